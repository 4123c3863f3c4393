//! The enforcement statement: what was promised, what held it, what could not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing a policy can promise about a native step. The text form is the
/// one that `minimum` in a policy file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Everything the step started ends with it, also when lobster is killed.
    TreeKill,
    /// The step's environment is exactly the one given.
    EnvScrub,
    /// No descriptor but the standard three is inherited.
    FdClose,
}

impl Promise {
    /// The name in policy files and statements.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TreeKill => "tree-kill",
            Self::EnvScrub => "env-scrub",
            Self::FdClose => "fd-close",
        }
    }
}

/// What holds a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A supervisor that adopts orphans (`PR_SET_CHILD_SUBREAPER`) and kills until none is left.
    Subreaper,
    /// Signals to the process group alone: a process that leaves the group escapes.
    ProcessGroup,
    /// The arguments of `execve`.
    Exec,
    /// `close_range`, close-on-exec.
    CloseRange,
}

/// A promise that this host could not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The promise.
    pub promise: Promise,
    /// What is missing, as found by trying.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.promise.name(), self.why)
    }
}

/// The statement for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// What was asked for: `none`, `landlock-seccomp` or `jail`.
    pub asked: String,
    /// Each promise that held, with what held it.
    pub held: Vec<(Promise, Vec<Mechanism>)>,
    /// Each promise that did not.
    pub missing: Vec<Missing>,
}
