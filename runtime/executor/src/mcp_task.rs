//! Calls of MCP tools as orders have them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HostPath, HostText, OrderId, OrderToken};
use lobster_base::credential::CredentialGrant;
use lobster_mcp_client::PinnedTool;
use lobster_sandbox::{Confinement, ProcessLimits, RootId};

/// A tool of a server to be called once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTask {
    /// What messages call the server.
    pub server: String,
    /// The order that opens the session: this one, or an earlier one of the run.
    pub session: OrderId,
    /// How the server is reached if this order opens the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<McpReach>,
    /// The tool.
    pub tool: String,
    /// What it is given.
    pub args: Map<String, Value>,
    /// What the tool must be.
    pub pin: McpPin,
    /// Whether its author says that calling it twice is the same as once.
    #[serde(default)]
    pub idempotent: bool,
    /// Most bytes of an answer.
    pub max_bytes: usize,
    /// How long the call may take, and connecting.
    pub timeout: Duration,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpReach {
    /// A program to be started.
    Program(Box<McpProgram>),
    /// An address that speaks streamable HTTP.
    Address {
        /// The address.
        url: String,
        /// The bearer token for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<OrderToken>,
        /// The secret that is that token, by its variable. The value is the executor's to find.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        secrets: BTreeMap<String, String>,
        /// How the secret is sent, if not as a bearer token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credential: Option<Box<CredentialGrant>>,
    },
}

impl McpReach {
    /// The secrets that it names, by their variables.
    pub(super) fn secrets(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Program(program) => &program.secrets,
            Self::Address { secrets, .. } => secrets,
        }
    }
}

impl McpReach {
    /// Secrets that are added to what a program sends.
    pub(super) fn credentials(&self) -> &[CredentialGrant] {
        match self {
            Self::Program(program) => &program.credentials,
            Self::Address { .. } => &[],
        }
    }
}

/// A server's program, as it was decided about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpProgram {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The complete environment but for secrets.
    pub env: Vec<(HostText, HostText)>,
    /// Secrets by the variables that hold them. The values are the executor's to find.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Secrets that are added to what it sends, and never reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// Where it starts.
    pub cwd: HostPath,
    /// What it may use. It lives as long as its session.
    pub limits: ProcessLimits,
    /// What it may reach.
    pub confinement: Confinement,
    /// The roots of `confinement` that must be the very files that were judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<RootId>,
}

/// What a tool must be to be called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPin {
    /// Whatever the server says it is.
    Any,
    /// What a person has looked at.
    Pinned(Box<PinnedTool>),
    /// It is not called, for this reason, if the server has it.
    Refused(String),
}
