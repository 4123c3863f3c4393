//! What this host can hold, found out by doing it, and whether it really
//! holds: the sandbox attacked from inside.

use serde::{Deserialize, Serialize};

use super::{Enforcement, Promise};

/// What this host can do, found by confining a process that does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Kernel release, as `uname -r` gives it.
    pub kernel: String,
    /// Landlock's version, when there is one.
    pub landlock_abi: Option<u32>,
    /// What a jail holds here.
    pub jail: Enforcement,
    /// What Landlock and seccomp alone hold here.
    pub landlock_seccomp: Enforcement,
}

/// The sandbox's health on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkup {
    /// What is promised here.
    pub probe: Probe,
    /// What came of each attack, in a jail.
    pub findings: Vec<Finding>,
}

impl Checkup {
    /// Whether every promise made here was kept.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::Broken)
    }
}

/// One attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The promise that it tries to break.
    pub promise: Promise,
    /// What it tries.
    pub action: String,
    /// What came of it.
    pub verdict: Verdict,
    /// How it was refused, or why it could not be.
    pub detail: String,
}

/// What came of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was refused.
    Held,
    /// It succeeded, though the promise was made: a bug, of lobster or of the kernel.
    Broken,
    /// It succeeded, and the statement says that the promise cannot be held here.
    Unenforceable,
    /// It fails on this host even without a sandbox, so it shows nothing.
    Impossible,
}
