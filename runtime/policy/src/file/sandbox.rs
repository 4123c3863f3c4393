//! Sandbox settings in the document: roots, network, environment and required controls.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::paths::SYSTEM_ROOTS;

/// Guarantees of the sandbox, and whether they may be reduced.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// Behaviour on a host that cannot enforce a guarantee.
    pub mode: SandboxMode,
    /// Controls that are required even in degraded mode.
    pub minimum: Vec<Control>,
    /// User that runs a step.
    pub user: SandboxUser,
    /// Minimum isolation of changes to files, even if a workflow sets less.
    #[serde(skip_serializing_if = "LeastChanges::is_direct")]
    pub changes: LeastChanges,
    /// The same for runs that an agent starts over MCP.
    #[serde(skip_serializing_if = "LeastChanges::is_direct")]
    pub agent_changes: LeastChanges,
    /// Roots in the file system.
    pub fs: FsRoots,
    /// Network rights.
    pub net: NetPolicy,
    /// Environment variables.
    pub env: EnvPolicy,
}

/// Minimum isolation of the changes that a native step makes to files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeastChanges {
    /// As set by the workflow.
    #[default]
    Direct,
    /// Until the step succeeds.
    Staged,
    /// Until the step succeeds and a person approves the changes.
    Review,
}

impl LeastChanges {
    /// The default is left out: a policy without this field keeps its digest.
    pub(crate) fn is_direct(&self) -> bool {
        *self == Self::Direct
    }

    /// Description of the requirement for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Direct => "as the workflow says",
            Self::Staged => "staged: kept apart until the step succeeds",
            Self::Review => "review: kept apart until a person approves",
        }
    }
}

/// Behaviour if a required control is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Refuses to run.
    #[default]
    Strict,
    /// Runs if the `minimum` controls are available, and records it.
    Degrade,
}

/// A control that the kernel can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// Writes stay inside the write roots.
    FsWrite,
    /// Reads stay inside the read roots.
    FsRead,
    /// Paths that are denied by name stay hidden.
    FsDeny,
    /// Paths that are denied by a pattern stay hidden.
    FsDenyPatterns,
    /// Protected paths stay unchanged.
    FsProtect,
    /// No network.
    NetDeny,
    /// No unix socket except the granted ones.
    UnixDeny,
    /// Privileges never grow.
    NoNewPrivs,
    /// All processes that a step started end with the step.
    TreeKill,
    /// The environment starts empty.
    EnvScrub,
    /// No inherited file descriptor survives.
    FdClose,
    /// The system call filter is active.
    Seccomp,
    /// Memory and process limits apply to the whole process tree.
    TreeLimits,
    /// A step gets the files of an approval with their approved content.
    ApprovedFiles,
}

/// User that runs a step. There is only one value; a file with another one is rejected rather than
/// given less than it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxUser {
    /// The caller's user; root loses all capabilities.
    #[default]
    Inherit,
}

/// Roots in the file system. An entry is absolute, begins with `~/`, `@workspace`, `@tmp`, `@state` or
/// `@step-home`, or is `@system-ro`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FsRoots {
    /// Paths that steps may read.
    pub read: Vec<String>,
    /// Paths that steps may write.
    pub write: Vec<String>,
    /// Secrets that are never readable; ordered like gitignore, with `!` exceptions.
    pub deny: Vec<String>,
    /// Read-only even inside a write root.
    pub protect: Vec<String>,
}

impl Default for FsRoots {
    fn default() -> Self {
        Self {
            read: vec!["@workspace".to_owned(), SYSTEM_ROOTS.to_owned()],
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
    /// Network of every step.
    pub default: NetDefault,
    /// `host:port` entries for `default = "hosts"`.
    pub hosts: Vec<String>,
}

/// Network of every step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetDefault {
    /// No network.
    #[default]
    None,
    /// The listed hosts.
    Hosts,
    /// The host's own network.
    HostNetwork,
}

/// Environment of steps.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnvPolicy {
    /// Names that are passed on; a trailing `*` matches any rest.
    pub pass: Vec<String>,
    /// Values set for every step.
    pub set: BTreeMap<String, String>,
    /// Names of secret references a step may receive.
    pub secrets: Vec<String>,
}
