//! Capabilities of this host, found by trying them, and a check that they really protect: the sandbox is
//! attacked from inside.

use serde::{Deserialize, Serialize};

use super::{Enforcement, Promise};

/// Capabilities of this host, found by confining a process that does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Kernel release, as printed by `uname -r`.
    pub kernel: String,
    /// Version of Landlock, if the kernel has it.
    pub landlock_abi: Option<u32>,
    /// Promises that a jail enforces here.
    pub jail: Enforcement,
    /// Promises that Landlock and seccomp alone enforce here.
    pub landlock_seccomp: Enforcement,
}

/// The sandbox's health on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkup {
    /// Promises made on this host.
    pub probe: Probe,
    /// Result of each attack on a jail.
    pub findings: Vec<Finding>,
}

impl Checkup {
    /// True if every promise made here was kept.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != ProbeVerdict::Broken)
    }
}

/// One attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The promise that it tries to break.
    pub promise: Promise,
    /// Description of the attempt.
    pub action: String,
    /// Result of the attack.
    pub verdict: ProbeVerdict,
    /// Details of the refusal, or the reason why it was not refused.
    pub detail: String,
}

/// Result of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeVerdict {
    /// It was refused.
    Held,
    /// It succeeded although the promise was made: a bug in lobster or in the kernel.
    Broken,
    /// It succeeded, and according to the statement the promise cannot be enforced here.
    Unenforceable,
    /// It fails on this host even without a sandbox, so it proves nothing.
    Impossible,
}
