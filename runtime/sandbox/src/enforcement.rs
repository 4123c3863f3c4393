//! The enforcement statement: the promises of a run, the mechanisms that enforced them, and the promises that
//! could not be enforced.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A promise that a policy can make about a native step. The text form is the one used by `minimum` in a
/// policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// It reads nothing outside its roots.
    FsRead,
    /// It writes, creates and removes nothing outside its write roots.
    FsWrite,
    /// It changes no mode, owner, time or attribute outside its write roots.
    FsMetadata,
    /// It cannot see the denied paths inside its roots.
    FsDeny,
    /// It cannot change the protected paths inside its write roots.
    FsProtect,
    /// It sees the files of an approval with the approved content, whatever happens to them outside.
    ApprovedFiles,
    /// It cannot see the paths inside its roots that match the denied patterns.
    FsDenyPatterns,
    /// It has no network.
    NetDeny,
    /// It reaches only the listed hosts.
    NetHosts,
    /// It reaches only its own run, on the granted ports.
    NetPorts,
    /// It reaches no service over a unix socket, except for those granted.
    UnixDeny,
    /// It sees, signals and inspects only its own processes.
    ProcessIsolation,
    /// It cannot use kernel interfaces that ordinary programs do not need.
    KernelSurface,
    /// It gains no privileges, by set-user-id programs or otherwise.
    NoNewPrivs,
    /// All processes that the step started end with it, even if lobster is killed.
    TreeKill,
    /// The step's environment is exactly the requested one.
    EnvScrub,
    /// Only the three standard descriptors are inherited.
    FdClose,
    /// CPU time, memory, file size and descriptors of each process are limited.
    Limits,
    /// The number of processes is limited.
    ProcessLimit,
    /// Memory and processes of the step's whole tree are limited.
    TreeLimits,
    /// The total size that it adds to its write roots is limited.
    DiskLimit,
}

/// The name in policy files and statements.
impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A mechanism that enforces a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A separate file system, made of bind mounts.
    MountNamespace,
    /// A separate network with no way out.
    NetNamespace,
    /// The proxy that is the only way out of the network namespace.
    Proxy,
    /// A separate process table; when its first process ends, all others do.
    PidNamespace,
    /// Landlock rules.
    Landlock,
    /// A system call filter.
    Seccomp,
    /// `PR_SET_NO_NEW_PRIVS`, all capabilities dropped.
    NoNewPrivs,
    /// A supervisor that adopts orphans (`PR_SET_CHILD_SUBREAPER`) and kills until no process is left.
    Subreaper,
    /// The arguments of `execve`.
    Exec,
    /// `close_range`, close-on-exec.
    CloseRange,
    /// Resource limits of each process.
    Rlimit,
    /// A control group of the step.
    ControlGroup,
    /// The supervisor measures from time to time and ends the step; between two measurements the kernel
    /// enforces nothing.
    Watch,
}

/// A mechanism that this host could not provide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    /// Its name: `namespaces`, `Landlock`, `seccomp`, `control groups` …
    pub mechanism: String,
    /// The error when it was tried.
    pub why: String,
}

/// A promise that this host could not enforce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The promise.
    pub promise: Promise,
    /// The missing mechanism, found by trying it.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.promise, self.why)
    }
}

/// An attempt of the step that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The promise that forbids it.
    pub promise: Promise,
    /// The attempt, and why it was refused.
    pub what: String,
}

/// The statement for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The kind of confinement requested: `none`, `landlock-seccomp` or `jail`.
    pub asked: String,
    /// Each promise that was enforced, with its mechanisms.
    pub held: Vec<(Promise, Vec<Mechanism>)>,
    /// Each promise that was not.
    pub missing: Vec<Missing>,
    /// Mechanisms of this confinement that the host could not provide, even if another mechanism alone
    /// enforces the promise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<Lacking>,
    /// Refused attempts, as far as the mechanism reports them: network connections through the proxy. The
    /// kernel refuses file accesses without a report.
    pub denied: Vec<Denial>,
    /// The first hundred hosts reached through the proxy, as `host:port`, each once. If the host's own
    /// network is granted, no list exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<String>,
    /// Approved directories that did not change from before the start until after the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved_roots: Vec<String>,
    /// Changes in the other approved directories meanwhile: by the step where it may write, or by other
    /// programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
    /// The mechanism that isolated the file changes of a step with `changes: staged` or `review`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}
