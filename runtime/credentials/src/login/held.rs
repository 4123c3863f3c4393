//! A login in use by this process. Its token is kept in memory and renewed when it expires or is rejected.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_base::cancel::CancelToken;
use lobster_base::sync::lock;

use super::LoginError;
use super::kept::{AccessToken, Logins, Stamp, WantedToken};

/// Time without a further renewal after a token was rejected before its expiry, or after a renewal failed: a server
/// that rejects every token must not cause a renewal for each request.
const PAUSE: Duration = Duration::from_secs(30);

/// Names and address of a login.
pub struct LoginTerm {
    /// The name of the secret whose value is the token.
    pub secret: String,
    /// The operator's name for the server.
    pub name: String,
    /// The server's address, which is the key of the stored login.
    pub server: String,
    /// The secret of a client that was registered by hand.
    pub client_secret: Option<String>,
}

/// A login, with its token as long as it is valid.
pub struct HeldLogin {
    term: LoginTerm,
    logins: Logins,
    cancel: CancelToken,
    /// [`PAUSE`], except in tests.
    pause: Duration,
    /// Receives each token before it is used.
    learn: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
    /// Held while another token is requested, so that only one thread requests it.
    asking: Mutex<()>,
}

#[derive(Default)]
struct State {
    token: Option<AccessToken>,
    /// All tokens that were handed out.
    given: Vec<Arc<str>>,
    /// Time at which a rejected token was last replaced.
    replaced: Option<Instant>,
    /// Time and error of the last failure, with the state of the login file at that time.
    failed: Option<(Instant, TokenError, Option<Stamp>)>,
}

/// Reason why a login gives no token, with advice.
#[derive(Clone, Debug, thiserror::Error)]
#[error("secret {secret}: {why}{}", .why.advice(.name))]
pub struct TokenError {
    secret: String,
    name: String,
    #[source]
    why: Arc<LoginError>,
}

impl TokenError {
    /// True if a person must log in to solve the problem.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        self.why.needs_person()
    }
}

/// Leaves out the token.
impl std::fmt::Debug for HeldLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldLogin").field("server", &self.term.server).finish_non_exhaustive()
    }
}

impl HeldLogin {
    /// Creates the login of these terms. `learn` receives each token before it is used.
    #[must_use]
    pub fn new(
        term: LoginTerm,
        logins: Logins,
        cancel: CancelToken,
        learn: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        Self { term, logins, cancel, pause: PAUSE, learn, state: Mutex::default(), asking: Mutex::default() }
    }

    /// The address of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.term.server
    }

    /// The token in memory, if it is still valid and the stored login has not changed. Sends no request and reads no
    /// file.
    #[must_use]
    pub fn at_hand(&self) -> Option<Arc<str>> {
        let state = lock(&self.state);
        let token = state.token.as_ref().filter(|token| token.is_fresh())?;
        let is_kept = self.logins.file_stamp(&self.term.server) == Some(token.stamp);
        is_kept.then(|| Arc::clone(token.reveal()))
    }

    /// Returns a token that should be valid. May wait for the authorization server.
    ///
    /// # Errors
    /// Fails if there is no login, or if it has ended.
    pub fn token(&self) -> Result<Arc<str>, TokenError> {
        if let Some(token) = self.at_hand() {
            return Ok(token);
        }
        let _one = lock(&self.asking);
        match self.at_hand() {
            Some(token) => Ok(token),
            None => self.fetch_token(WantedToken::Good),
        }
    }

    /// Returns a token other than `refused`, which the server has rejected. Returns `None` if the last replacement was
    /// so recent that another token would be rejected as well. May wait for the authorization server.
    ///
    /// # Errors
    /// Fails like [`HeldLogin::token`].
    pub fn token_in_place_of(&self, refused: &str) -> Result<Option<Arc<str>>, TokenError> {
        let _one = lock(&self.asking);
        if let Some(token) = self.at_hand().filter(|token| **token != *refused) {
            return Ok(Some(token));
        }
        let kept = self.logins.stored_token(&self.term.server, WantedToken::OtherThan(refused));
        if let Some(token) = kept.map_err(|error| self.token_error(error))? {
            return Ok(Some(self.remember_token(token)));
        }
        let is_soon = lock(&self.state).replaced.is_some_and(|at| at.elapsed() < self.pause);
        if is_soon {
            return Ok(None);
        }
        lock(&self.state).replaced = Some(Instant::now());
        self.fetch_token(WantedToken::OtherThan(refused)).map(Some)
    }

    /// All tokens that were handed out.
    #[must_use]
    pub fn used_tokens(&self) -> Vec<Arc<str>> {
        lock(&self.state).given.clone()
    }

    fn fetch_token(&self, want: WantedToken<'_>) -> Result<Arc<str>, TokenError> {
        let stamp = self.logins.file_stamp(&self.term.server);
        if let Some((at, error, then)) = &lock(&self.state).failed
            && *then == stamp
            && at.elapsed() < self.pause
        {
            return Err(error.clone());
        }
        let LoginTerm { server, client_secret, .. } = &self.term;
        let token = self.logins.valid_token(server, client_secret.as_deref(), want, &self.cancel);
        let token = token.and_then(|token| token.ok_or(LoginError::Nobody { server: server.clone() }));
        match token {
            Ok(token) => Ok(self.remember_token(token)),
            Err(error) => {
                let error = self.token_error(error);
                lock(&self.state).failed = Some((Instant::now(), error.clone(), stamp));
                Err(error)
            }
        }
    }

    fn remember_token(&self, token: AccessToken) -> Arc<str> {
        let text = Arc::clone(token.reveal());
        if !lock(&self.state).given.contains(&text) {
            (self.learn)(&text);
        }
        let mut state = lock(&self.state);
        if !state.given.contains(&text) {
            state.given.push(Arc::clone(&text));
        }
        state.failed = None;
        state.token = Some(token);
        text
    }

    pub(crate) fn token_error(&self, error: LoginError) -> TokenError {
        let LoginTerm { secret, name, .. } = &self.term;
        TokenError { secret: secret.clone(), name: name.clone(), why: Arc::new(error) }
    }
}

#[cfg(test)]
mod tests;
