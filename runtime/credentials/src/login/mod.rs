//! Logins at servers of tools: OAuth 2.1 as MCP has it, for a client that runs where its user is.
//!
//! [`LoginAttempt`] finds out where a server has its clients log in, and makes the address that a
//! person opens; [`Callback`] takes what the browser brings back; [`Logins`] keeps the tokens, in files
//! of this user alone, and renews them; [`HeldLogin`] is one of them while it is used. No token is ever shown, and none goes in the clear to another
//! machine.

mod attempt;
mod callback;
mod held;
mod http;
mod kept;
mod metadata;

pub use attempt::{LoginAttempt, LoginTerms};
pub use callback::Callback;
pub use held::{HeldLogin, LoginTerm, TokenError};
pub use kept::{AccessToken, Login, Logins, Want};

use std::io;

/// Why nobody is logged in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The work was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// An address that nothing secret is sent to.
    #[error("{url} cannot be used for a login: it must be an https address, or one of this machine")]
    Unsafe {
        /// The address.
        url: String,
    },
    /// No answer.
    #[error("cannot reach {url}: {why}")]
    Unreachable {
        /// Who was asked.
        url: String,
        /// The cause.
        why: String,
    },
    /// The server does not say where its clients log in.
    #[error("{server} does not say where its clients log in")]
    NoLogin {
        /// The server.
        server: String,
    },
    /// What is said about a login cannot be used.
    #[error("the metadata of {url} cannot be used: {why}")]
    Metadata {
        /// Whose metadata.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Clients must be made known by hand.
    #[error("{issuer} registers no clients by itself; register one there and name its `client_id`")]
    NoRegistration {
        /// The authorization server.
        issuer: String,
    },
    /// The authorization server says no.
    #[error("{issuer} refuses {what}: {why}")]
    Refused {
        /// The authorization server.
        issuer: String,
        /// What was asked of it.
        what: &'static str,
        /// In its words.
        why: String,
    },
    /// What came back with the browser is not an answer to what was asked.
    #[error("the answer that the browser brought is not one to this login: {0}")]
    Forged(&'static str),
    /// Nobody came back.
    #[error("nobody has logged in within {0} s")]
    TimedOut(u64),
    /// There is no login.
    #[error("nobody is logged in at {server}")]
    Nobody {
        /// The server.
        server: String,
    },
    /// The token has run out, and nothing renews it.
    #[error("the login has expired")]
    Expired,
    /// A file cannot be used.
    #[error("the login cannot be kept in {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no randomness, or no port.
    #[error("cannot begin a login: {0}")]
    System(#[from] io::Error),
}

impl LoginError {
    /// Whether only a person can do something about it: to log in.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        matches!(self, Self::Nobody { .. } | Self::Refused { .. } | Self::Expired)
    }

    /// What to do about it, at the end of a message; `name` is what the operator calls the server.
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
