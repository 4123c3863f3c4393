//! Requests of pipeline commands as orders have them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OrderText, OrderToken};
use lobster_stage::HttpError;

/// A POST of JSON to be made once; redirects are part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTask {
    /// Where to.
    pub url: String,
    /// Headers beside `content-type`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// What proves who asks. It is sent to the origin of `url` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<HttpKey>,
    /// JSON text.
    pub body: OrderText,
    /// Longest silence of the server.
    pub idle: Duration,
    /// Most bytes of the answer's body.
    pub max_body: u64,
}

/// A token, or the secret that it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpKey {
    /// The header that has it alone; none is `authorization: Bearer …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The token, if it is no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<OrderToken>,
    /// The secret that it is, by a name of its own. The value is the executor's to find.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

/// How a request ended. Its answer is never kept as it came: it may repeat the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpEnd {
    /// With an answer, whatever its status.
    Reply {
        /// The status.
        status: u16,
        /// Its standard phrase.
        #[serde(default)]
        reason: String,
        /// How long the server asks to be left alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
        /// The body as it came.
        body: OrderText,
    },
    /// Without one.
    Failed(HttpError),
}
