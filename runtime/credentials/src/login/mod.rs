//! Logins at servers of tools: OAuth 2.1 as specified by MCP, for a client on the user's machine.
//!
//! [`LoginAttempt`] finds the authorization server and builds the address that a person opens. [`Callback`] receives
//! the browser's answer. [`Logins`] stores the tokens in files that only this user can read, and renews them.
//! [`HeldLogin`] is one login in use. No token is ever shown, and none is sent unencrypted to another machine.

mod attempt;
mod callback;
mod held;
mod http;
mod kept;
mod metadata;

pub use attempt::{LoginAttempt, LoginTerms};
pub use callback::Callback;
pub use held::{HeldLogin, LoginTerm, TokenError};
pub use kept::{AccessToken, Login, Logins, WantedToken};

use std::io;

/// Reason why a login, or its token, is not available.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The work was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The address is not safe for secrets.
    #[error("{url} cannot be used for a login: it must be an https address, or one of this machine")]
    Unsafe {
        /// The address.
        url: String,
    },
    /// The server gave no answer.
    #[error("cannot reach {url}: {why}")]
    Unreachable {
        /// The address of the request.
        url: String,
        /// The cause.
        why: String,
    },
    /// The server names no authorization server.
    #[error("{server} does not say where its clients log in")]
    NoLogin {
        /// The server.
        server: String,
    },
    /// The metadata of the server is invalid.
    #[error("the metadata of {url} cannot be used: {why}")]
    Metadata {
        /// The address of the metadata.
        url: String,
        /// The fault in it.
        why: String,
    },
    /// The authorization server does not register clients, so an operator must.
    #[error("{issuer} registers no clients by itself; register one there and name its `client_id`")]
    NoRegistration {
        /// The authorization server.
        issuer: String,
    },
    /// The authorization server refused the request.
    #[error("{issuer} refuses {what}: {why}")]
    Refused {
        /// The authorization server.
        issuer: String,
        /// The request.
        what: &'static str,
        /// The reason in the server's words.
        why: String,
    },
    /// The browser's answer does not belong to this login.
    #[error("the browser's answer does not belong to this login: {0}")]
    Forged(&'static str),
    /// The browser did not come back in time.
    #[error("the login was not completed within {0} s")]
    TimedOut(u64),
    /// There is no login.
    #[error("nobody is logged in at {server}")]
    Nobody {
        /// The server.
        server: String,
    },
    /// The token has expired and cannot be renewed.
    #[error("the login has expired")]
    Expired,
    /// The file of the login cannot be read or written.
    #[error("the login cannot be kept in {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The system provides no randomness or no port.
    #[error("cannot begin a login: {0}")]
    System(#[from] io::Error),
}

impl LoginError {
    /// True if a person must log in to solve the problem.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        matches!(self, Self::Nobody { .. } | Self::Refused { .. } | Self::Expired)
    }

    /// Advice for the end of a message. `name` is the operator's name for the server.
    #[must_use]
    pub fn advice(&self, name: &str) -> String {
        let again = match self {
            Self::Nobody { .. } => "",
            Self::Refused { .. } | Self::Expired => " again",
            _ => return String::new(),
        };
        format!("; `lobster mcp login {name}` logs in{again}")
    }
}
