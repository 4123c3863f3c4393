//! HTTP requests as data, so that another process than the stage's can send them.

use std::time::Duration;

use lobster_base::cancel::CancelReason;
use serde::{Deserialize, Serialize};

use super::Token;

/// A request with a JSON body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The URL of the request.
    pub url: String,
    /// Headers other than `content-type`.
    pub headers: Vec<(String, String)>,
    /// Sent only to the origin of `url`.
    pub credential: Option<HttpCredential>,
    /// JSON text.
    pub body: String,
    /// Longest time without data from the server.
    pub idle: Duration,
    /// Most bytes of the answer's body.
    pub max_body: u64,
}

/// Authenticates the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCredential {
    /// The header that contains only the token; `None` means `authorization: Bearer …`.
    pub header: Option<String>,
    /// The token.
    pub token: Token,
}

/// A complete answer, with any status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// The standard phrase of the status.
    pub reason: String,
    /// Time for which the server asks not to be called again.
    pub retry_after: Option<Duration>,
    /// The body as received; bytes that are not UTF-8 are replaced.
    pub body: String,
}

/// Sends a request, directly or through another process.
pub type HttpSender<'a> = dyn Fn(&HttpRequest) -> Result<HttpReply, HttpError> + 'a;

/// Reason why there is no answer. The messages name the origin, never the path or the query, because both may contain
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the messages say what each is")]
pub enum HttpError {
    #[error("{}", .0.message())]
    Cancelled(CancelReason),
    #[error("the URL holds a user name or password; give the token with --token instead")]
    UserInfo,
    #[error("the token holds a character that no HTTP header can carry")]
    TokenCharacters,
    #[error("fetch failed: no connection to {origin}: {cause}")]
    Connect { origin: String, cause: String },
    #[error("fetch failed: {origin} was silent for {} ms (LOBSTER_HTTP_TIMEOUT_MS)", .idle.as_millis())]
    Silent { origin: String, idle: Duration },
    #[error("fetch failed: {origin} broke off: {cause}")]
    Broken { origin: String, cause: String },
    #[error(
        "HTTP response body exceeded {limit} bytes: the answer of {origin} (LOBSTER_MAX_HTTP_RESPONSE_BYTES)"
    )]
    TooLarge { origin: String, limit: u64 },
    #[error("fetch failed: {origin} redirects to what is not an http(s) address without user and password")]
    BadRedirect { origin: String },
    #[error("fetch failed: {}", describe_redirects(origin, *most))]
    TooManyRedirects { origin: String, most: usize },
    #[error("fetch failed: {0}")]
    Setup(String),
    /// The process that should send the request has not reported its result.
    #[error("{0}")]
    #[serde(skip)]
    Executor(String),
}

/// A POST is never repeated at another address.
fn describe_redirects(origin: &str, most: usize) -> String {
    match most {
        0 => {
            format!("{origin} redirects, and a POST is not sent again: give the address that it redirects to")
        }
        most => format!("more than {most} redirects, the last from {origin}"),
    }
}

impl HttpError {
    /// True if the request may have reached the server, but no answer came back.
    #[must_use]
    pub fn is_answer_lost(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Broken { .. } | Self::Cancelled(_) | Self::Executor(_) => true,
            // There was an answer, although it was not usable.
            Self::TooLarge { .. } | Self::BadRedirect { .. } | Self::TooManyRedirects { .. } => false,
            Self::UserInfo | Self::TokenCharacters | Self::Connect { .. } | Self::Setup(_) => false,
        }
    }

    /// True if the request may have reached the server.
    #[must_use]
    pub fn is_after_sending(&self) -> bool {
        match self {
            Self::UserInfo | Self::TokenCharacters | Self::Connect { .. } | Self::Setup(_) => false,
            Self::Cancelled(_)
            | Self::Silent { .. }
            | Self::Broken { .. }
            | Self::TooLarge { .. }
            | Self::BadRedirect { .. }
            | Self::TooManyRedirects { .. }
            | Self::Executor(_) => true,
        }
    }
}
