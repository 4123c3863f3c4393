//! Tools of other programs, over the Model Context Protocol.
//!
//! The operator names servers in `lobster.mcp.toml` and pins their tools in `lobster.mcp.lock`. Both are read here;
//! `lobster-mcp-client` connects and calls.

mod config;
mod login;

pub use config::{ConfigError, CredentialSpec, LoginSpec, McpConfig, ServerSpec};
pub use lobster_mcp_client::{Lock, LockError, PinnedTool};
pub use login::McpLogin;

pub(crate) use config::{Reach, Target, VARIABLE, is_for, read_operator_config, servers_of, token_variables};
