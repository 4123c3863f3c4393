//! What the document says of the sandbox: roots, network, environment, and what must hold.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the sandbox promises, and whether it may promise less.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// What happens when this host cannot hold a promise.
    pub mode: SandboxMode,
    /// The controls that must hold even when degraded.
    pub minimum: Vec<Control>,
    /// The user a step runs as.
    pub user: SandboxUser,
    /// How far changes to files are kept apart at least, whatever a workflow says.
    #[serde(skip_serializing_if = "LeastChanges::is_direct")]
    pub changes: LeastChanges,
    /// The same for the runs that an agent starts over MCP.
    #[serde(skip_serializing_if = "LeastChanges::is_direct")]
    pub agent_changes: LeastChanges,
    /// File roots.
    pub fs: FsRoots,
    /// Network.
    pub net: NetPolicy,
    /// Environment variables.
    pub env: EnvPolicy,
}

/// How far what a native step changes in files is kept apart at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeastChanges {
    /// As the workflow says.
    #[default]
    Direct,
    /// Until the step succeeds.
    Staged,
    /// Until a person agrees, too.
    Review,
}

impl LeastChanges {
    /// Left out where it is so: a policy that says nothing of it keeps its digest.
    pub(crate) fn is_direct(&self) -> bool {
        *self == Self::Direct
    }

    /// What it demands, for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Direct => "as the workflow says",
            Self::Staged => "staged: kept apart until the step succeeds",
            Self::Review => "review: kept apart until a person agrees",
        }
    }
}

/// What happens when a promised control is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Refuse to run.
    #[default]
    Strict,
    /// Run when `minimum` holds, and say so in the record.
    Degrade,
}

/// One thing the kernel can be asked to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// Writes stay inside the write roots.
    FsWrite,
    /// Reads stay inside the read roots.
    FsRead,
    /// What is denied by its path stays hidden.
    FsDeny,
    /// What patterns deny stays hidden.
    FsDenyPatterns,
    /// What is protected stays as it is.
    FsProtect,
    /// No network.
    NetDeny,
    /// No unix socket but those granted.
    UnixDeny,
    /// Privileges never grow.
    NoNewPrivs,
    /// Everything a step started ends with it.
    TreeKill,
    /// The environment is built from nothing.
    EnvScrub,
    /// No inherited file descriptor survives.
    FdClose,
    /// The system call filter is in place.
    Seccomp,
    /// Memory and process limits hold for the whole tree.
    TreeLimits,
    /// A step finds the files that an approval covers as they were approved.
    ApprovedFiles,
}

/// The user a step runs as. There is one answer; a file that asks for another
/// one is refused rather than given less than it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxUser {
    /// The caller's user; root drops every capability.
    #[default]
    Inherit,
}

/// File roots. Entries are absolute, begin with `~/`, or begin with
/// `@workspace`, `@tmp`, `@state`, `@step-home` or are `@system-ro`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FsRoots {
    /// What steps may read.
    pub read: Vec<String>,
    /// What steps may write.
    pub write: Vec<String>,
    /// Secrets: never read, in gitignore-like order with `!` exceptions.
    pub deny: Vec<String>,
    /// Read-only even inside a write root.
    pub protect: Vec<String>,
}

impl Default for FsRoots {
    fn default() -> Self {
        Self {
            read: vec!["@workspace".to_owned(), "@system-ro".to_owned()],
            write: vec!["@workspace".to_owned(), "@tmp".to_owned()],
            deny: Vec::new(),
            protect: Vec::new(),
        }
    }
}

/// Network rights of steps.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetPolicy {
    /// What every step gets.
    pub default: NetDefault,
    /// `host:port` entries for `default = "hosts"`.
    pub hosts: Vec<String>,
}

/// The network every step gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetDefault {
    /// None at all.
    #[default]
    None,
    /// The listed hosts.
    Hosts,
    /// The host's own network.
    HostNetwork,
}

impl NetDefault {
    pub(crate) fn freedom(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Hosts => 1,
            Self::HostNetwork => 2,
        }
    }
}

/// Environment of steps.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnvPolicy {
    /// Names passed through; a trailing `*` matches the rest.
    pub pass: Vec<String>,
    /// Values set for every step.
    pub set: BTreeMap<String, String>,
    /// Names of secret references a step may receive.
    pub secrets: Vec<String>,
}
