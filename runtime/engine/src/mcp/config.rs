//! `lobster.mcp.toml`: the MCP servers of an operator, and the tools that may be used.

use lobster_base::code::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::env::Env;
use crate::services::Services;
use lobster_base::credential::{CredentialGrant, CredentialHost, CredentialTerms, Scheme};
use lobster_base::quantity::{Bytes, Span};
use lobster_credentials::login::{LoginError, Logins, TokenError, WantedToken};
use lobster_executor::SecretSource;
use lobster_language::pipeline::{self, Pipeline};
use lobster_language::plan::{Plan, SecretGrant, Work, Workflow};
use lobster_mcp_client::Lock;
use lobster_models::http::{self, Secret, Url};
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
    /// The servers by name.
    #[serde(default, rename = "server")]
    pub servers: BTreeMap<String, ServerSpec>,
}

/// One server: a program, or an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// A program and its arguments, which speaks MCP on its standard streams.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Variables of the program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secrets of the program, by its variables.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The address of a server that speaks streamable HTTP.
    #[serde(default)]
    pub url: Option<String>,
    /// The variable with the bearer token for the address.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The secret whose value is the bearer token.
    #[serde(default)]
    pub token_secret: Option<String>,
    /// Secrets that are added to requests to these hosts: to the server's address, or from the program.
    #[serde(default)]
    pub credentials: BTreeMap<String, CredentialSpec>,
    /// The parameters of `lobster mcp login` at the address, beyond those that it discovers.
    #[serde(default)]
    pub login: Option<LoginSpec>,
    /// The tools that may be called, with `*` at the end for any rest of a name; all tools if left out.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// Most bytes of one answer.
    #[serde(default = "max_bytes")]
    pub max_bytes: Bytes,
    /// Time limit of a call, and of connecting.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

/// A credential by the name of its secret, or with more details.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum CredentialSpec {
    /// The secret, sent in the way that is known for its host.
    Secret(String),
    /// The secret and the way in which it is sent.
    Terms(CredentialTerms),
}

/// A client that was registered by hand, and the permissions that it requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginSpec {
    /// The client; without one, lobster registers itself.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The secret that proves the client's identity.
    #[serde(default)]
    pub client_secret: Option<String>,
    /// The permissions that the token should have; if left out, those that the server names.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The port of this machine to which the browser returns; any free port if left out.
    #[serde(default)]
    pub port: u16,
}

fn max_bytes() -> Bytes {
    Bytes(4 << 20)
}

fn timeout() -> Span {
    Span(Duration::from_secs(60))
}

/// The reason why the file cannot be used.
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
    /// If it cannot be read, or the fields of a server contradict each other.
    pub fn read_file(path: &Path) -> Result<Self, ConfigError> {
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
            if let Some(message) = server.field_conflict() {
                return Err(wrong(format!("server {name:?}: {message}")));
            }
        }
        Ok(config)
    }
}

impl ServerSpec {
    /// The reason why its fields do not fit together.
    fn field_conflict(&self) -> Option<String> {
        let misplaced = |field: &str, of: &str, instead: &str| {
            Some(format!("`{field}` belongs to `{of}`; use `{instead}`"))
        };
        let both = self.env.keys().find(|variable| self.secrets.contains_key(*variable));
        let wrong_credential = self.wrong_credential();
        match self.url {
            None if self.token_env.is_some() => misplaced("token_env", "url", "env"),
            None if self.token_secret.is_some() => misplaced("token_secret", "url", "secrets"),
            _ if wrong_credential.is_some() => wrong_credential,
            Some(_) if !self.credentials.is_empty() && (self.names_token() || self.login.is_some()) => {
                Some("it has one token: a credential, `token_env`, `token_secret` or `login`".to_owned())
            }
            None if self.login.is_some() => misplaced("login", "url", "secrets"),
            Some(_) if self.login.is_some() && self.names_token() => {
                Some("it has a token or a login, not both".to_owned())
            }
            Some(_)
                if self
                    .login
                    .as_ref()
                    .is_some_and(|it| it.client_id.is_none() && it.client_secret.is_some()) =>
            {
                Some("`login.client_secret` needs `login.client_id`".to_owned())
            }
            Some(_) if !self.secrets.is_empty() => misplaced("secrets", "command", "token_secret"),
            Some(_) if self.token_env.is_some() && self.token_secret.is_some() => {
                Some("it has one token: `token_env` or `token_secret`".to_owned())
            }
            _ => both.map(|variable| format!("{variable} is set by both env and secrets")),
        }
    }

    /// The credentials that the file itself grants.
    ///
    /// # Errors
    /// The reason why one of them is invalid.
    pub(crate) fn granted_credentials(&self) -> Result<Vec<CredentialGrant>, String> {
        let grant = |(host, spec): (&String, &CredentialSpec)| {
            let at = CredentialHost::parse(host).map_err(|error| format!("credentials: {error}"))?;
            let terms = match spec.clone() {
                CredentialSpec::Secret(secret) => CredentialTerms { secret, ..CredentialTerms::default() },
                CredentialSpec::Terms(terms) => terms,
            };
            terms.grant_for(at).map_err(|wrong| format!("credentials.{host}.{wrong}"))
        };
        self.credentials.iter().map(grant).collect()
    }

    /// The reason why a credential is invalid: by itself, or because its server has another address.
    fn wrong_credential(&self) -> Option<String> {
        let grants = match self.granted_credentials() {
            Ok(grants) => grants,
            Err(why) => return Some(why),
        };
        let url = http::parse_url(self.url.as_deref()?)?;
        let other = grants.iter().find(|grant| !is_for(grant, &url))?;
        Some(format!(
            "its credential is for {}, and the server is at {}",
            other.host,
            http::redacted_address(&url)
        ))
    }

    /// True if its users may log in: no other field sets the token.
    pub(crate) fn may_log_in(&self) -> bool {
        self.url.is_some() && !self.names_token() && self.credentials.is_empty()
    }

    fn names_token(&self) -> bool {
        self.token_env.is_some() || self.token_secret.is_some()
    }

    /// The secret that is the bearer token: the file's own, else the secret that the step grants as the token's
    /// variable.
    fn secret_token(&self, env: &Env) -> Option<(String, String)> {
        let own = self.token_secret.iter().map(|secret| (URL_TOKEN, secret)).next();
        let variable = self.token_env.as_deref().unwrap_or(URL_TOKEN);
        let granted = env.secrets().get(variable).map(|secret| (variable, secret));
        own.or(granted).map(|(variable, secret)| (variable.to_owned(), secret.clone()))
    }

    /// The secrets that the file itself grants, with their variables.
    pub(crate) fn secret_grants(&self) -> impl Iterator<Item = SecretGrant> {
        let token = self.token_secret.iter().map(|secret| (URL_TOKEN, secret));
        let own = self.secrets.iter().map(|(variable, secret)| (variable.as_str(), secret));
        own.chain(token)
            .map(|(variable, secret)| SecretGrant { variable: variable.to_owned(), secret: secret.clone() })
    }
}

/// The variable as which a step grants the token of a server that it names by address.
const URL_TOKEN: &str = lobster_stage::MCP_TOKEN;

/// The way to a server, as a call needs it.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    Program {
        argv: Vec<String>,
        env: Vec<(String, String)>,
        /// Secrets by their variables.
        secrets: BTreeMap<String, String>,
    },
    Address {
        url: Url,
        /// The token, unless it is the value of `secret`. Both are set only if the secret is a login: then this is its
        /// current token.
        token: Option<Secret>,
        /// The secret whose value is the token, with the variable of its grant.
        secret: Option<(String, String)>,
        /// The way in which the secret is sent, if it is not a bearer token.
        credential: Option<Box<CredentialGrant>>,
        /// The renewal of a token that comes from a login.
        login: Option<LoginSpec>,
    },
}

impl Reach {
    /// The secrets that it takes, by their variables.
    pub(crate) fn secrets(&self) -> BTreeMap<String, String> {
        match self {
            Self::Program { secrets, .. } => secrets.clone(),
            Self::Address { secret, .. } => secret.iter().cloned().collect(),
        }
    }
}

/// A server with all its settings by the operator.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its name in messages and in the lock.
    pub(crate) name: String,
    pub(crate) reach: Reach,
    tools: Option<Vec<String>>,
    /// The credentials that the operator's file grants it besides the step's.
    pub(crate) credentials: Vec<CredentialGrant>,
    pub(crate) max_bytes: usize,
    pub(crate) timeout: Duration,
    pub(crate) lock: PathBuf,
}

impl Target {
    /// Finds the server that a plan names.
    pub(crate) fn find_server(
        services: &Services,
        env: &Env,
        cwd: &Path,
        server: &McpServer,
    ) -> Result<Self, StageError> {
        let refuse = |message: String| StageError::permanent(message).with_code(Code::McpServer);
        let spec = match server {
            McpServer::Named(name) => {
                let (path, config) =
                    read_operator_config(services, cwd).map_err(|error| refuse(error.to_string()))?;
                let Some(spec) = config.servers.get(name).cloned() else {
                    let known: Vec<&str> = config.servers.keys().map(String::as_str).collect();
                    return Err(refuse(format!(
                        "mcp server {name:?} is not named in {}; there are {}",
                        path.display(),
                        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                    )));
                };
                let mut target = Self::from_spec(server, &spec, env, &path)?;
                target.log_in(services, &spec)?;
                target.take_token_of_secret(services)?;
                return Ok(target);
            }
            McpServer::Url(url) if !services.policy.is_open() => {
                return Err(refuse(format!(
                    "mcp server {}: a policy is in force, so addresses must be named by the operator in the file of {VARIABLE}",
                    McpServer::Url(url.clone())
                )));
            }
            McpServer::Url(url) => ServerSpec { url: Some(url.clone()), ..inline_spec() },
            McpServer::Command(argv) => ServerSpec { command: Some(argv.clone()), ..inline_spec() },
        };
        let mut target = Self::from_spec(server, &spec, env, &cwd.join(FILE))?;
        target.take_token_of_secret(services)?;
        Ok(target)
    }

    fn from_spec(server: &McpServer, spec: &ServerSpec, env: &Env, file: &Path) -> Result<Self, StageError> {
        let refuse = |message: String| StageError::permanent(message).with_code(Code::McpServer);
        let credentials =
            spec.granted_credentials().map_err(|why| refuse(format!("mcp server {server}: {why}")))?;
        let env = &env.with_more_credentials(&credentials);
        let reach = match (&spec.command, &spec.url) {
            (Some(argv), _) => {
                let mut secrets = env.secrets().clone();
                secrets.retain(|variable, _| !spec.env.contains_key(variable));
                secrets.extend(spec.secrets.clone());
                let env = spec.env.clone().into_iter().collect();
                Reach::Program { argv: argv.clone(), env, secrets }
            }
            (None, url) => {
                let text = url.as_deref().unwrap_or_default();
                let url = http::parse_url(text).filter(http::is_http);
                let url = url.ok_or_else(|| refuse(format!("mcp server {server}: no http(s) address")))?;
                let granted =
                    granted_for(&url, env).map_err(|why| refuse(format!("mcp server {server}: {why}")))?;
                let secret = match &granted {
                    Some(grant) => Some((URL_TOKEN.to_owned(), grant.secret.clone())),
                    None => spec.secret_token(env),
                };
                let credential = granted.filter(|grant| !is_bearer(grant)).map(Box::new);
                if let Some((_, secret)) = &secret
                    && url.scheme() != "https"
                    && !http::is_loopback(&url)
                {
                    return Err(refuse(format!(
                        "mcp server {server}: refuses to send the secret {secret} unencrypted; use an https address"
                    )));
                }
                let token = match &spec.token_env {
                    Some(name) if secret.is_none() => {
                        let token = env.get(name).as_deref().and_then(Secret::new);
                        Some(token.ok_or_else(|| {
                            refuse(format!("mcp server {server}: the variable {name} holds no token"))
                        })?)
                    }
                    Some(_) | None => None,
                };
                Reach::Address { url, token, secret, credential, login: None }
            }
        };
        Ok(Self {
            name: server.to_string(),
            reach,
            tools: spec.tools.clone(),
            credentials,
            max_bytes: usize::try_from(spec.max_bytes.0).unwrap_or(usize::MAX),
            timeout: spec.timeout.0,
            lock: file.with_file_name(Lock::FILE),
        })
    }

    /// Takes the token of a login, if no other setting gives the token.
    fn log_in(&mut self, services: &Services, spec: &ServerSpec) -> Result<(), StageError> {
        let terms = spec.login.clone().unwrap_or_default();
        if let Reach::Address { url, token: token @ None, secret: None, login, .. } = &mut self.reach
            && spec.may_log_in()
            && let Some(text) = token_of(services, &self.name, url, &terms, WantedToken::Good)?
        {
            *token = Secret::new(&text);
            *login = Some(terms);
        }
        Ok(())
    }

    /// Takes the current token of the login that is the server's secret: a session keeps the token with which it was
    /// opened.
    fn take_token_of_secret(&mut self, services: &Services) -> Result<(), StageError> {
        if let Reach::Address { token, secret: Some((_, secret)), .. } = &mut self.reach
            && let Some(login) = services.secret_login(secret)?
        {
            *token = Secret::new(&login.token().map_err(no_token)?);
        }
        Ok(())
    }

    /// Renews the token of a login, which the server has refused. Returns true if there is a new one.
    pub(crate) fn renew_login(&mut self, services: &Services) -> Result<bool, StageError> {
        let Reach::Address { url, token: Some(token), login, secret, .. } = &mut self.reach else {
            return Ok(false);
        };
        let refused = token.reveal().to_owned();
        let text = match (login, secret) {
            (Some(terms), _) => token_of(services, &self.name, url, terms, WantedToken::OtherThan(&refused))?,
            (None, Some((_, secret))) => match services.secret_login(secret)? {
                Some(login) => {
                    login.token_in_place_of(&refused).map_err(no_token)?.map(|text| text.to_string())
                }
                None => None,
            },
            (None, None) => None,
        };
        match text.as_deref().and_then(Secret::new) {
            Some(other) => *token = other,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// A secret that the step is granted and the server does not take, by its variable.
    pub(crate) fn refused_secret<'e>(&self, env: &'e Env) -> Option<&'e str> {
        let taken = self.reach.secrets();
        env.secrets()
            .iter()
            .find(|(variable, secret)| taken.get(*variable) != Some(secret))
            .map(|(name, _)| name.as_str())
    }

    /// True if the operator allows this tool.
    pub(crate) fn allows_tool(&self, tool: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => tool.starts_with(prefix),
            None => pattern == tool,
        };
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(fits))
    }
}

/// The credential that is granted for the address of a server.
fn granted_for(url: &Url, env: &Env) -> Result<Option<CredentialGrant>, String> {
    let Some(grant) = env.credentials().iter().find(|grant| is_for(grant, url)) else { return Ok(None) };
    grant.check_bounds("POST", url.path()).map_err(|error| error.to_string())?;
    Ok(Some(grant.clone()))
}

/// True if a credential is for the host of this address.
pub(crate) fn is_for(grant: &CredentialGrant, url: &Url) -> bool {
    let at = url.host_str().zip(url.port_or_known_default());
    url.scheme() == "https" && at.is_some_and(|(host, port)| grant.host.is_for(host, port))
}

/// True if a credential is sent like most tokens of MCP servers.
fn is_bearer(grant: &CredentialGrant) -> bool {
    let is_word = matches!(&grant.scheme, Scheme::Word(word) if word.eq_ignore_ascii_case("bearer"));
    is_word && grant.header == "authorization"
}

/// The failure of a call for which a login has no token.
fn no_token(error: TokenError) -> StageError {
    StageError { permanent: error.needs_person(), ..StageError::permanent_from(error) }
        .with_code(Code::McpLogin)
}

/// The token of a login at this address, if a user is logged in there.
fn token_of(
    services: &Services,
    name: &str,
    url: &Url,
    terms: &LoginSpec,
    want: WantedToken<'_>,
) -> Result<Option<String>, StageError> {
    let logins = Logins::in_state_dir(&services.state_dir);
    let refuse = |error: LoginError| {
        let message = format!("mcp server {name}: {error}{}", error.advice(name));
        StageError::permanent(message).with_code(Code::McpLogin)
    };
    if logins.find_login(url.as_str()).map_err(refuse)?.is_none() {
        return Ok(None);
    }
    let secret = services.client_secret(terms)?;
    let token =
        logins.valid_token(url.as_str(), secret.as_deref(), want, &services.cancel).map_err(refuse)?;
    Ok(token.map(|token| {
        services.secrets.hide_token(name, token.reveal());
        token.reveal().to_string()
    }))
}

/// A server that only the plan names: default limits, all its tools.
fn inline_spec() -> ServerSpec {
    ServerSpec {
        command: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        url: None,
        token_env: None,
        token_secret: None,
        credentials: BTreeMap::new(),
        login: None,
        tools: None,
        max_bytes: max_bytes(),
        timeout: timeout(),
    }
}

/// Reads the operator's file. Under a policy only the variable names it, since a step could have written the one in
/// the working directory.
pub(crate) fn read_operator_config(
    services: &Services,
    cwd: &Path,
) -> Result<(PathBuf, McpConfig), ConfigError> {
    let path = match services.env.get_path(VARIABLE) {
        Some(path) => services.cwd.join(path),
        None if services.policy.is_open() => cwd.join(FILE),
        None => {
            let message = format!("a policy is in force, so {VARIABLE} must name the file with the servers");
            return Err(ConfigError::Wrong { path: PathBuf::from(FILE), message });
        }
    };
    Ok((path.clone(), McpConfig::read_file(&path)?))
}

/// The operator's servers that a plan calls by name.
pub(crate) fn servers_of(plan: &Plan) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match plan {
        Plan::Pipeline(pipeline) => of_pipeline(pipeline, &mut names),
        Plan::Workflow(workflow) => of_workflow(workflow, &mut names),
    }
    names
}

fn of_workflow(workflow: &Workflow, names: &mut BTreeSet<String>) {
    for step in workflow.all_steps() {
        match &step.work {
            Work::Mcp { server: McpServer::Named(name), .. } => drop(names.insert(name.clone())),
            Work::Pipeline(text) => {
                if let Ok(pipeline) = pipeline::parse(text) {
                    of_pipeline(&pipeline, names);
                }
            }
            _ => {}
        }
    }
    workflow.children.values().for_each(|child| of_workflow(child, names));
}

fn of_pipeline(pipeline: &Pipeline, names: &mut BTreeSet<String>) {
    let calls = pipeline.stages.iter().filter(|stage| stage.name == "mcp.call");
    names.extend(calls.filter_map(|call| call.args.text_value("server")).map(|name| name.trim().to_owned()));
}

/// The variables from which servers' tokens are taken: those in the operator's file, else in the file of this
/// directory. An unreadable file names none; a call to a server reports the reason.
pub(crate) fn token_variables(file: Option<&Path>, cwd: &Path) -> Vec<String> {
    let path = cwd.join(file.unwrap_or(Path::new(FILE)));
    let config = McpConfig::read_file(&path).ok();
    config
        .into_iter()
        .flat_map(|config| config.servers.into_values())
        .filter_map(|server| server.token_env)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_config(text: &str) -> Result<McpConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        McpConfig::read_file(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_is_a_program_or_an_address() {
        let config = read_config(
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
            ("version = 1\n[server.x]\ncommand = [\"a\"]\ntoken_secret = \"b\"", "use `secrets`"),
            ("version = 1\n[server.x]\nurl = \"http://b\"\nsecrets = {A = \"b\"}", "use `token_secret`"),
            (
                "version = 1\n[server.x]\nurl = \"http://b\"\ntoken_env = \"A\"\ntoken_secret = \"b\"",
                "one token",
            ),
            (
                "version = 1\n[server.x]\ncommand = [\"a\"]\nenv = {A = \"1\"}\nsecrets = {A = \"b\"}",
                "both env",
            ),
            ("version = 1\n[server.x]\ncomand = [\"a\"]\n", "comand"),
            (
                "version = 1\n[server.x]\nurl = \"https://b/c\"\ncredentials = {\"d\" = \"s\"}",
                "for d, and the server is at https://b/c",
            ),
            (
                "version = 1\n[server.x]\nurl = \"https://b/c\"\ncredentials = {b = \"s\"}\ntoken_env = \"A\"",
                "one token",
            ),
            (
                "version = 1\n[server.x]\nurl = \"https://b\"\ncredentials = {b = {secret = \"s\", header = \"host\"}}",
                "credentials.b.header: \"host\" is not a header",
            ),
            ("version = 1\n[server.x]\ncommand = [\"a\"]\ncredentials = {\"*.b\" = \"s\"}", "is not a host"),
            ("version = 1\n[server.x]\ncommand = [\"a\"]\nlogin = {}", "`login` belongs to `url`"),
            (
                "version = 1\n[server.x]\nurl = \"http://b\"\nlogin = {client_secret = \"a\"}",
                "needs `login.client_id`",
            ),
            ("version = 1\n[server.x]\nurl = \"http://b\"\nlogin = {}\ntoken_env = \"A\"", "not both"),
            ("version = 1\n[server.x]\nurl = \"http://b\"\nlogin = {scope = \"A\"}", "scope"),
        ] {
            let error = read_config(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
