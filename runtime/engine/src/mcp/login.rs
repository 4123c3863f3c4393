//! The operator's logins at the servers of `lobster.mcp.toml`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::config::{LoginSpec, ServerSpec, read_operator_config};
use crate::runtime::Runtime;
use crate::secrets::LoginServers;
use crate::services::Services;
use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_credentials::login::{Callback, Login, LoginAttempt, LoginError, LoginTerm, LoginTerms, Logins};
use lobster_executor::SecretSource;
use lobster_models::http;
use lobster_stage::StageError;

/// A login that waits for its person.
pub struct McpLogin {
    name: String,
    attempt: LoginAttempt,
    callback: Callback,
    logins: Logins,
    cancel: CancelToken,
}

impl McpLogin {
    /// The address for the person's browser.
    #[must_use]
    pub fn address(&self) -> &str {
        self.attempt.login_address()
    }

    /// Waits for the person, and keeps the tokens.
    ///
    /// # Errors
    /// If the person does not log in within `patience`, or the login is refused.
    pub fn complete(&self, patience: Duration) -> Result<Login, StageError> {
        let complete = || {
            let is_mine = |query: &str| self.attempt.is_mine(query);
            let query = self.callback.wait_for_query(patience, &is_mine, &self.cancel)?;
            let login = self.attempt.finish(&query, &self.cancel)?;
            self.logins.store_login(&login)?;
            Ok(login)
        };
        complete().map_err(|error| login_failure(&self.name, &error))
    }
}

impl Runtime {
    /// Begins a login at one of the operator's servers.
    ///
    /// # Errors
    /// If the server is unknown, or does not publish where its users log in.
    pub fn begin_mcp_login(&self, name: &str) -> Result<McpLogin, StageError> {
        let services = &self.services;
        let (spec, server) = login_server(services, name)?;
        let terms = spec.login.unwrap_or_default();
        let client_secret = services.client_secret(&terms)?;
        let begin = || {
            let callback = Callback::open(terms.port)?;
            let terms = LoginTerms {
                server,
                client_id: terms.client_id,
                client_secret,
                scopes: terms.scopes,
                redirect: callback.redirect_address()?,
            };
            Ok(McpLogin {
                name: name.to_owned(),
                attempt: LoginAttempt::begin(&terms, &services.cancel)?,
                callback,
                logins: Logins::in_state_dir(&services.state_dir),
                cancel: services.cancel.clone(),
            })
        };
        begin().map_err(|error| login_failure(name, &error))
    }

    /// Removes the tokens of a login. Returns true if there were any.
    ///
    /// # Errors
    /// If the server is unknown, or the file of the login cannot be removed.
    pub fn forget_mcp_login(&self, name: &str) -> Result<bool, StageError> {
        let (_, server) = login_server(&self.services, name)?;
        Logins::in_state_dir(&self.services.state_dir)
            .delete_login(&server)
            .map_err(|error| login_failure(name, &error))
    }
}

impl Services {
    /// The value of the secret of a client that was registered by hand.
    pub(super) fn client_secret(&self, terms: &LoginSpec) -> Result<Option<String>, StageError> {
        let Some(secret) = &terms.client_secret else { return Ok(None) };
        let named = BTreeMap::from([("client_secret".to_owned(), secret.clone())]);
        Ok(self.secret_values(&named)?.into_iter().next().map(|(_, value)| value))
    }
}

impl LoginServers for Services {
    fn login_term(&self, secret: &str, server: &str) -> Result<LoginTerm, StageError> {
        let (spec, address) = login_server(self, server)?;
        let terms = spec.login.unwrap_or_default();
        if let Some(of_client) = terms.client_secret.as_deref().filter(|name| self.secrets.is_login(name)) {
            let message = format!("mcp server {server}: its client_secret {of_client} is itself a login");
            return Err(StageError::permanent(message).with_code(Code::McpServer));
        }
        Ok(LoginTerm {
            secret: secret.to_owned(),
            name: server.to_owned(),
            server: address,
            client_secret: self.client_secret(&terms)?,
        })
    }

    fn login_address(&self, server: &str) -> Result<String, StageError> {
        login_server(self, server).map(|(_, address)| address)
    }

    fn logins(&self) -> Logins {
        Logins::in_state_dir(&self.state_dir)
    }
}

/// The server of this name, and its address as the key of its logins.
fn login_server(services: &Services, name: &str) -> Result<(ServerSpec, String), StageError> {
    let refuse = |message: String| StageError::permanent(message).with_code(Code::McpServer);
    let (path, config) =
        read_operator_config(services, &services.cwd).map_err(|error| refuse(error.to_string()))?;
    let Some(spec) = config.servers.get(name) else {
        return Err(refuse(format!("mcp server {name:?} is not named in {}", path.display())));
    };
    if !spec.may_log_in() {
        let why = if spec.url.is_some() { "it has a token in the file" } else { "it is a program" };
        return Err(refuse(format!("mcp server {name}: it takes no login, since {why}")));
    }
    let url = spec.url.as_deref().and_then(http::parse_url).filter(http::is_http);
    let url = url.ok_or_else(|| refuse(format!("mcp server {name}: no http(s) address")))?;
    Ok((spec.clone(), url.as_str().to_owned()))
}

fn login_failure(name: &str, error: &LoginError) -> StageError {
    StageError::permanent(format!("mcp server {name}: {error}")).with_code(Code::McpLogin)
}
