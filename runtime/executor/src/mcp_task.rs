//! Calls of MCP tools as part of orders.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HostPath, HostText, OrderId, OrderToken};
use lobster_base::credential::CredentialGrant;
use lobster_mcp_client::PinnedTool;
use lobster_sandbox::{Confinement, ProcessLimits, RootId};

/// A tool of a server that is to be called once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTask {
    /// The server's name in messages.
    pub server: String,
    /// The order that opens the session: this one, or an earlier one of the run.
    pub session: OrderId,
    /// The way to the server, if this order opens the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<McpReach>,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The condition for calling the tool.
    pub pin: McpPin,
    /// True if the author declares that calling it twice is the same as calling it once.
    #[serde(default)]
    pub idempotent: bool,
    /// Most bytes of an answer.
    pub max_bytes: usize,
    /// Time limit of the call, and of connecting.
    pub timeout: Duration,
}

/// The way to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpReach {
    /// A program that is started.
    Program(Box<McpProgram>),
    /// An address that speaks streamable HTTP.
    Address {
        /// The address.
        url: String,
        /// The bearer token for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<OrderToken>,
        /// The secret whose value is the token, by its variable. The executor finds the value.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        secrets: BTreeMap<String, String>,
        /// The way in which the secret is sent, if it is not a bearer token.
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

    /// Secrets that are added to a program's requests.
    pub(super) fn credentials(&self) -> &[CredentialGrant] {
        match self {
            Self::Program(program) => &program.credentials,
            Self::Address { .. } => &[],
        }
    }
}

/// A server's program, as decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpProgram {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The complete environment, without secrets.
    pub env: Vec<(HostText, HostText)>,
    /// Secrets by their variables. The executor finds the values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Secrets that are added to the component's requests and never reach the component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// The directory in which it starts.
    pub cwd: HostPath,
    /// The limits of its resources. It lives as long as its session.
    pub limits: ProcessLimits,
    /// The rights of the program.
    pub confinement: Confinement,
    /// The roots of `confinement` that must be the same files that were judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<RootId>,
}

/// The condition for calling a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPin {
    /// The tool may have any description.
    Any,
    /// The description that a person reviewed.
    Pinned(Box<PinnedTool>),
    /// The tool is not called, for this reason, if the server has it.
    Refused(String),
}
