//! Requests of pipeline commands as part of orders.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OrderText, OrderToken};
use lobster_stage::HttpError;

/// A POST of JSON to be made once; redirects are part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTask {
    /// The address.
    pub url: String,
    /// Headers besides `content-type`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The proof of identity. It is sent only to the origin of `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<HttpKey>,
    /// JSON text.
    pub body: OrderText,
    /// Longest silence of the server.
    pub idle: Duration,
    /// Most bytes of the answer's body.
    pub max_body: u64,
}

/// A token, or the secret with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpKey {
    /// The header with the bare token; `None` means `authorization: Bearer …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The token, if it is not a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<OrderToken>,
    /// The secret with the token's value, under a name of its own. The executor finds the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

/// The end of a request. Its answer is never kept as received, since it may repeat the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpEnd {
    /// With an answer of any status.
    Reply {
        /// The status.
        status: u16,
        /// Its standard phrase.
        #[serde(default)]
        reason: String,
        /// The pause that the server requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
        /// The body as received.
        body: OrderText,
    },
    /// Without an answer.
    Failed(HttpError),
}
