//! A login that this process works with: its token is in memory, and is renewed when it runs out or is refused.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_base::cancel::CancelToken;
use lobster_base::sync::lock;

use super::LoginError;
use super::kept::{AccessToken, Logins, Stamp, Want};

/// How long no other token is asked for after one that was refused before its end, or after nobody gave one: a server
/// that refuses whatever it is sent must not have each request renew the login.
const PAUSE: Duration = Duration::from_secs(30);

/// Whose login it is, and where.
pub struct LoginTerm {
    /// The secret that the token is.
    pub secret: String,
    /// What the operator calls the server.
    pub name: String,
    /// Its address, by which the login is kept.
    pub server: String,
    /// The secret of a client that was registered by hand.
    pub client_secret: Option<String>,
}

/// A login, and its token for as long as it is good.
pub struct HeldLogin {
    term: LoginTerm,
    logins: Logins,
    cancel: CancelToken,
    /// [`PAUSE`], but in tests.
    pause: Duration,
    /// Is told of each token before anybody has it.
    learn: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
    /// One at a time asks for another token.
    asking: Mutex<()>,
}

#[derive(Default)]
struct State {
    token: Option<AccessToken>,
    /// All that were given out.
    given: Vec<Arc<str>>,
    /// When one was asked for in place of a refused one.
    replaced: Option<Instant>,
    /// When there was none, why, and what was kept then.
    failed: Option<(Instant, TokenError, Option<Stamp>)>,
}

/// Why a login gives no token, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("secret {secret}: {why}{}", .why.advice(.name))]
pub struct TokenError {
    secret: String,
    name: String,
    #[source]
    why: Arc<LoginError>,
}

impl TokenError {
    /// Whether only a person can do something about it.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        self.why.needs_person()
    }
}

/// Without a token.
impl std::fmt::Debug for HeldLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldLogin").field("server", &self.term.server).finish_non_exhaustive()
    }
}

impl HeldLogin {
    /// The login of these terms. `learn` is told of each token before it is used.
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

    /// The token in memory, while it is good and the login is the same. This asks nobody, and reads no file.
    #[must_use]
    pub fn at_hand(&self) -> Option<Arc<str>> {
        let state = lock(&self.state);
        let token = state.token.as_ref().filter(|token| token.lasts())?;
        let is_kept = self.logins.stamp(&self.term.server) == Some(token.stamp);
        is_kept.then(|| Arc::clone(token.reveal()))
    }

    /// A token that should be good. This may wait for the authorization server.
    ///
    /// # Errors
    /// When nobody is logged in, or the login has ended.
    pub fn token(&self) -> Result<Arc<str>, TokenError> {
        if let Some(token) = self.at_hand() {
            return Ok(token);
        }
        let _one = lock(&self.asking);
        match self.at_hand() {
            Some(token) => Ok(token),
            None => self.ask(Want::Good),
        }
    }

    /// Another token than one that the server has refused; none if it was refused so soon after the last one that
    /// another would be, too. This may wait for the authorization server.
    ///
    /// # Errors
    /// As [`HeldLogin::token`].
    pub fn token_in_place_of(&self, refused: &str) -> Result<Option<Arc<str>>, TokenError> {
        let _one = lock(&self.asking);
        if let Some(token) = self.at_hand().filter(|token| **token != *refused) {
            return Ok(Some(token));
        }
        let kept = self.logins.kept(&self.term.server, Want::OtherThan(refused));
        if let Some(token) = kept.map_err(|error| self.problem(error))? {
            return Ok(Some(self.hold(token)));
        }
        let is_soon = lock(&self.state).replaced.is_some_and(|at| at.elapsed() < self.pause);
        if is_soon {
            return Ok(None);
        }
        lock(&self.state).replaced = Some(Instant::now());
        self.ask(Want::OtherThan(refused)).map(Some)
    }

    /// All tokens that were given out.
    #[must_use]
    pub fn used_tokens(&self) -> Vec<Arc<str>> {
        lock(&self.state).given.clone()
    }

    fn ask(&self, want: Want<'_>) -> Result<Arc<str>, TokenError> {
        let stamp = self.logins.stamp(&self.term.server);
        if let Some((at, error, then)) = &lock(&self.state).failed
            && *then == stamp
            && at.elapsed() < self.pause
        {
            return Err(error.clone());
        }
        let LoginTerm { server, client_secret, .. } = &self.term;
        let token = self.logins.token(server, client_secret.as_deref(), want, &self.cancel);
        let token = token.and_then(|token| token.ok_or(LoginError::Nobody { server: server.clone() }));
        match token {
            Ok(token) => Ok(self.hold(token)),
            Err(error) => {
                let error = self.problem(error);
                lock(&self.state).failed = Some((Instant::now(), error.clone(), stamp));
                Err(error)
            }
        }
    }

    fn hold(&self, token: AccessToken) -> Arc<str> {
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

    pub(crate) fn problem(&self, error: LoginError) -> TokenError {
        let LoginTerm { secret, name, .. } = &self.term;
        TokenError { secret: secret.clone(), name: name.clone(), why: Arc::new(error) }
    }
}

#[cfg(test)]
mod tests;
