//! `lobster.mcp.toml`: which servers there are, and what of them may be used.

use lobster_base::code::Code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::lock::Lock;
use crate::env::Env;
use crate::services::Services;
use lobster_models::http::{self, Secret, Url};
use lobster_policy::{Bytes, Span};
use lobster_stage::{McpServer, StageError};

/// The file's usual name.
const FILE: &str = "lobster.mcp.toml";
/// Names another file.
pub(crate) const VARIABLE: &str = "LOBSTER_MCP_CONFIG";

/// The servers of one operator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpConfig {
    /// Format version; 1.
    pub version: u32,
    /// By name.
    #[serde(default, rename = "server")]
    pub servers: BTreeMap<String, ServerSpec>,
}

/// One server: a program, or an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// A program and its arguments that speaks on its standard streams.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Variables of that program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The address of a server that speaks streamable HTTP.
    #[serde(default)]
    pub url: Option<String>,
    /// The variable that holds the bearer token for that address.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The tools that may be called, `*` at the end standing for the rest; all if it is left out.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// Most bytes of one answer.
    #[serde(default = "max_bytes")]
    pub max_bytes: Bytes,
    /// How long a call may take, and connecting.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

fn max_bytes() -> Bytes {
    Bytes(4 << 20)
}

fn timeout() -> Span {
    Span(Duration::from_secs(60))
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {message}", .path.display())]
    Wrong { path: PathBuf, message: String },
}

impl McpConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or names a server in a way that cannot be meant.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let wrong = |message: String| ConfigError::Wrong { path: path.to_owned(), message };
        let config: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if config.version != 1 {
            return Err(wrong(format!(
                "format {} is not known; this lobster reads format 1",
                config.version
            )));
        }
        for (name, server) in &config.servers {
            let has_program = server.command.as_ref().is_some_and(|argv| !argv.is_empty());
            if has_program == server.url.is_some() {
                return Err(wrong(format!("server {name:?} needs `command` or `url`, one of them")));
            }
            if server.url.is_none() && server.token_env.is_some() {
                return Err(wrong(format!("server {name:?}: `token_env` belongs to `url`; use `env`")));
            }
        }
        Ok(config)
    }
}

/// Where a server is, as a call needs it.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    Program { argv: Vec<String>, env: Vec<(String, String)> },
    Address { url: Url, token: Option<Secret> },
}

/// A server with all that the operator says about it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// What it is called, in messages and in the lock.
    pub(crate) name: String,
    pub(crate) reach: Reach,
    tools: Option<Vec<String>>,
    pub(crate) max_bytes: usize,
    pub(crate) timeout: Duration,
    pub(crate) lock: PathBuf,
}

impl Target {
    /// Finds the server that a plan means.
    pub(crate) fn find(
        services: &Services,
        env: &Env,
        cwd: &Path,
        server: &McpServer,
    ) -> Result<Self, StageError> {
        let refuse = |message: String| StageError::permanent(message).with_code(Code::McpServer);
        let spec = match server {
            McpServer::Named(name) => {
                let (path, config) = operators(services, cwd).map_err(|error| refuse(error.to_string()))?;
                let Some(spec) = config.servers.get(name).cloned() else {
                    let known: Vec<&str> = config.servers.keys().map(String::as_str).collect();
                    return Err(refuse(format!(
                        "mcp server {name:?} is not named in {}; there are {}",
                        path.display(),
                        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                    )));
                };
                return Self::of(server, &spec, env, &path);
            }
            McpServer::Url(url) if !services.policy.is_open() => {
                return Err(refuse(format!(
                    "mcp server {}: a policy is in force, so addresses must be named by the operator in the file of {VARIABLE}",
                    McpServer::Url(url.clone())
                )));
            }
            McpServer::Url(url) => ServerSpec { url: Some(url.clone()), ..inline() },
            McpServer::Command(argv) => ServerSpec { command: Some(argv.clone()), ..inline() },
        };
        Self::of(server, &spec, env, &cwd.join(FILE))
    }

    fn of(server: &McpServer, spec: &ServerSpec, env: &Env, file: &Path) -> Result<Self, StageError> {
        let refuse = |message: String| StageError::permanent(message).with_code(Code::McpServer);
        let reach = match (&spec.command, &spec.url) {
            (Some(argv), _) => {
                Reach::Program { argv: argv.clone(), env: spec.env.clone().into_iter().collect() }
            }
            (None, url) => {
                let text = url.as_deref().unwrap_or_default();
                let url = http::parse_url(text).filter(http::is_http);
                let url = url.ok_or_else(|| refuse(format!("mcp server {server}: no http(s) address")))?;
                let token = match &spec.token_env {
                    None => None,
                    Some(name) => Some(env.get(name).as_deref().and_then(Secret::new).ok_or_else(|| {
                        refuse(format!("mcp server {server}: the variable {name} holds no token"))
                    })?),
                };
                Reach::Address { url, token }
            }
        };
        Ok(Self {
            name: server.to_string(),
            reach,
            tools: spec.tools.clone(),
            max_bytes: usize::try_from(spec.max_bytes.0).unwrap_or(usize::MAX),
            timeout: spec.timeout.0,
            lock: file.with_file_name(Lock::FILE),
        })
    }

    /// Whether the operator lets this tool be called.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => tool.starts_with(prefix),
            None => pattern == tool,
        };
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(fits))
    }
}

/// A server that a plan names by itself: the usual limits, all its tools.
fn inline() -> ServerSpec {
    ServerSpec {
        command: None,
        env: BTreeMap::new(),
        url: None,
        token_env: None,
        tools: None,
        max_bytes: max_bytes(),
        timeout: timeout(),
    }
}

/// The operator's file. Under a policy only the variable names it: a step could
/// have written the one in the working directory.
pub(crate) fn operators(services: &Services, cwd: &Path) -> Result<(PathBuf, McpConfig), ConfigError> {
    let path = match services.env.non_blank(VARIABLE) {
        Some(path) => services.cwd.join(path),
        None if services.policy.is_open() => cwd.join(FILE),
        None => {
            let message = format!("a policy is in force, so {VARIABLE} must name the file with the servers");
            return Err(ConfigError::Wrong { path: PathBuf::from(FILE), message });
        }
    };
    Ok((path.clone(), McpConfig::read(&path)?))
}

/// The variables that servers' tokens are taken from: of the operator's file,
/// else of the one in this directory. A file that cannot be read names none;
/// whoever calls a server is told why.
pub(crate) fn token_variables(file: Option<&str>, cwd: &Path) -> Vec<String> {
    let path = cwd.join(file.unwrap_or(FILE));
    let config = McpConfig::read(&path).ok();
    config
        .into_iter()
        .flat_map(|config| config.servers.into_values())
        .filter_map(|server| server.token_env)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<McpConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        McpConfig::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_is_a_program_or_an_address() {
        let config = read(
            "version = 1\n[server.files]\ncommand = [\"files\", \".\"]\ntools = [\"read_*\"]\nmax_bytes = \"1MiB\"\n\
             [server.web]\nurl = \"https://x.example/mcp\"\ntoken_env = \"T\"\ntimeout = \"5s\"\n",
        )
        .unwrap();
        assert_eq!(config.servers["files"].max_bytes, Bytes(1 << 20));
        assert_eq!(config.servers["web"].timeout, Span(Duration::from_secs(5)));
        for (text, part) in [
            ("version = 2", "format 2"),
            ("version = 1\n[server.x]\n", "one of them"),
            ("version = 1\n[server.x]\ncommand = [\"a\"]\nurl = \"http://b\"", "one of them"),
            ("version = 1\n[server.x]\ncommand = [\"a\"]\ntoken_env = \"b\"", "belongs to `url`"),
            ("version = 1\n[server.x]\ncomand = [\"a\"]\n", "comand"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
