//! The enforcement statement: what was promised, what held it, what could not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing a policy can promise about a native step. The text form is the
/// one that `minimum` in a policy file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// It reads nothing outside its roots.
    FsRead,
    /// It writes, creates and removes nothing outside its write roots.
    FsWrite,
    /// It changes no mode, owner, time or attribute outside its write roots.
    FsMetadata,
    /// Paths inside its roots that it cannot see.
    FsDeny,
    /// Paths inside its write roots that it cannot change.
    FsProtect,
    /// The files that an approval covers have, for the step, the content that
    /// was approved, whatever becomes of them outside.
    ApprovedFiles,
    /// Paths that match patterns, inside its roots, that it cannot see.
    FsDenyPatterns,
    /// It talks to nobody.
    NetDeny,
    /// It talks to the listed hosts only.
    NetHosts,
    /// It talks to nobody but its run, where ports are granted.
    NetPorts,
    /// It reaches no service over a unix socket, but for those granted.
    UnixDeny,
    /// It sees, signals and inspects no process but its own.
    ProcessIsolation,
    /// It cannot use kernel interfaces that no ordinary program needs.
    KernelSurface,
    /// It gains no privilege, by set-user-id programs or otherwise.
    NoNewPrivs,
    /// Everything the step started ends with it, also when lobster is killed.
    TreeKill,
    /// The step's environment is exactly the one given.
    EnvScrub,
    /// No descriptor but the standard three is inherited.
    FdClose,
    /// CPU time, memory, file size and descriptors of each process are bounded.
    Limits,
    /// The number of processes is bounded.
    ProcessLimit,
    /// Memory and processes are bounded for all that the step starts together.
    TreeLimits,
    /// What it adds to its write roots is bounded in all.
    DiskLimit,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::FsRead,
        Self::FsWrite,
        Self::FsMetadata,
        Self::FsDeny,
        Self::FsProtect,
        Self::ApprovedFiles,
        Self::FsDenyPatterns,
        Self::NetDeny,
        Self::NetHosts,
        Self::NetPorts,
        Self::UnixDeny,
        Self::ProcessIsolation,
        Self::KernelSurface,
        Self::NoNewPrivs,
        Self::TreeKill,
        Self::EnvScrub,
        Self::FdClose,
        Self::Limits,
        Self::ProcessLimit,
        Self::TreeLimits,
        Self::DiskLimit,
    ];

    /// The name in policy files and statements.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FsRead => "fs-read",
            Self::FsWrite => "fs-write",
            Self::FsMetadata => "fs-metadata",
            Self::FsDeny => "fs-deny",
            Self::FsProtect => "fs-protect",
            Self::ApprovedFiles => "approved-files",
            Self::FsDenyPatterns => "fs-deny-patterns",
            Self::NetDeny => "net-deny",
            Self::NetHosts => "net-hosts",
            Self::NetPorts => "net-ports",
            Self::UnixDeny => "unix-deny",
            Self::ProcessIsolation => "process-isolation",
            Self::KernelSurface => "kernel-surface",
            Self::NoNewPrivs => "no-new-privs",
            Self::TreeKill => "tree-kill",
            Self::EnvScrub => "env-scrub",
            Self::FdClose => "fd-close",
            Self::Limits => "limits",
            Self::ProcessLimit => "process-limit",
            Self::TreeLimits => "tree-limits",
            Self::DiskLimit => "disk-limit",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What holds a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A file system of its own, made of bind mounts.
    MountNamespace,
    /// A network of its own, with no way out.
    NetNamespace,
    /// The proxy that is the only way out of the network namespace.
    Proxy,
    /// A process table of its own; its end is the end of all in it.
    PidNamespace,
    /// Landlock rules.
    Landlock,
    /// A system call filter.
    Seccomp,
    /// `PR_SET_NO_NEW_PRIVS`, all capabilities dropped.
    NoNewPrivs,
    /// A supervisor that adopts orphans (`PR_SET_CHILD_SUBREAPER`) and kills until none is left.
    Subreaper,
    /// The arguments of `execve`.
    Exec,
    /// `close_range`, close-on-exec.
    CloseRange,
    /// Resource limits of each process.
    Rlimit,
    /// A control group of the step's own.
    ControlGroup,
    /// The supervisor measures now and then, and ends the step: between two
    /// measurements the kernel holds nothing.
    Watch,
}

/// A mechanism that this host could not give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    /// Its name: `namespaces`, `Landlock`, `seccomp`, `control groups` …
    pub mechanism: String,
    /// How it failed when it was tried.
    pub why: String,
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
        write!(f, "{} ({})", self.promise, self.why)
    }
}

/// Something the step tried and was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The promise that stood in the way.
    pub promise: Promise,
    /// What was tried, and why it was refused.
    pub what: String,
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
    /// Mechanisms that the confinement has where the host can, and that this
    /// one could not; also where another mechanism holds the promise alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<Lacking>,
    /// What was refused, where the mechanism tells: network connections
    /// through the proxy. File accesses are refused by the kernel without a word.
    pub denied: Vec<Denial>,
    /// The hosts that it reached through the proxy, as `host:port`: each once,
    /// and no more than the first hundred. The host's own network, where that
    /// is granted, keeps no list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<String>,
    /// Directories that stayed as they were approved from before the start until after the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved_roots: Vec<String>,
    /// What changed in the others meanwhile: by the step where it may write, or by others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
    /// What kept apart the changes to files of a step with `changes: staged` or `review`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}
