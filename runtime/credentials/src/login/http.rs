//! The requests of a login: small, never redirected, and unencrypted only to this machine.

use std::sync::mpsc;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use lobster_base::address::is_loopback;
use lobster_base::cancel::CancelToken;
use lobster_base::request_error::request_causes;
use reqwest::{Client, RequestBuilder, Url, redirect};
use serde_json::Value;

use super::LoginError;
use crate::outward::shared_connections;

/// Time limit of one request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval at which a waiting caller checks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(20);

/// Most bytes of an answer: metadata and tokens are small.
const MAX_BODY: usize = 1 << 20;

/// An answer of any status.
pub(super) struct LoginReply {
    pub(super) status: StatusCode,
    /// The `WWW-Authenticate` header: the authentication that the server requires.
    pub(super) challenge: Option<String>,
    body: Vec<u8>,
}

impl LoginReply {
    /// The body, if it is a JSON object.
    pub(super) fn json_object(&self) -> Option<Value> {
        lobster_base::json::parse_message(&self.body).ok().filter(Value::is_object)
    }
}

/// Parses an address that a login may use. The requests carry secrets, so it must be https or on this machine.
pub(super) fn parse_login_url(text: &str) -> Result<Url, LoginError> {
    let refuse = || LoginError::Unsafe { url: text.to_owned() };
    let url = Url::parse(text).map_err(|_| refuse())?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    match url.scheme() {
        "https" if is_bare => Ok(url),
        "http" if is_bare && url.host_str().is_some_and(is_loopback) => Ok(url),
        _ => Err(refuse()),
    }
}

/// Asks for a document.
pub(super) fn get(url: &Url, cancel: &CancelToken) -> Result<LoginReply, LoginError> {
    send_request(url, |client| client.get(url.clone()).header(ACCEPT, "application/json"), cancel)
}

/// Sends JSON.
pub(super) fn post_json(url: &Url, body: &Value, cancel: &CancelToken) -> Result<LoginReply, LoginError> {
    let build = |client: &Client| {
        let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json");
        request.header(ACCEPT, "application/json, text/event-stream").body(body.to_string())
    };
    send_request(url, build, cancel)
}

/// Sends a form, with a header that proves who the client is.
pub(super) fn post_form(
    url: &Url,
    fields: &[(&str, &str)],
    authorization: Option<&str>,
    cancel: &CancelToken,
) -> Result<LoginReply, LoginError> {
    let body = encode_fields(fields)?;
    let build = |client: &Client| {
        let request = client.post(url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request.header(ACCEPT, "application/json").body(body.clone());
        match authorization {
            Some(text) => request.header(AUTHORIZATION, text),
            None => request,
        }
    };
    send_request(url, build, cancel)
}

/// Encodes fields as in a form or a query.
pub(super) fn encode_fields(fields: &[(&str, &str)]) -> Result<String, LoginError> {
    let url = Url::parse_with_params("http://form.invalid/", fields);
    let url = url.map_err(|_| LoginError::Unsafe { url: "form".to_owned() })?;
    Ok(url.query().unwrap_or_default().to_owned())
}

fn send_request(
    url: &Url,
    build: impl FnOnce(&Client) -> RequestBuilder,
    cancel: &CancelToken,
) -> Result<LoginReply, LoginError> {
    let unreachable = |why: String| LoginError::Unreachable { url: without_query(url), why };
    let outward = shared_connections().map_err(|error| unreachable(error.to_string()))?;
    let client = build_client().map_err(|error| unreachable(request_causes(&error)))?;
    let request = build(&client);
    let (answer, given) = mpsc::sync_channel(1);
    let work = outward.runtime.spawn(async move {
        let _ = answer.send(read_reply(request).await);
    });
    loop {
        match given.recv_timeout(LOOK) {
            Ok(read) => return read.map_err(unreachable),
            Err(mpsc::RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                work.abort();
                return Err(LoginError::Cancelled);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(unreachable("the request was dropped".to_owned()));
            }
        }
    }
}

async fn read_reply(request: RequestBuilder) -> Result<LoginReply, String> {
    let mut response = request.send().await.map_err(|error| request_causes(&error))?;
    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let challenge = challenge.map(str::to_owned);
    let is_stream = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let mut body = Vec::new();
    // A stream of events may be endless and holds nothing that a login needs.
    while !is_stream && let Some(chunk) = response.chunk().await.map_err(|error| request_causes(&error))? {
        if chunk.len() > MAX_BODY - body.len() {
            return Err(format!("the answer has more than {MAX_BODY} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(LoginReply { status: response.status(), challenge, body })
}

/// Builds a separate client: the client of [`outward`] uses https only, and a server on this machine may use http.
fn build_client() -> reqwest::Result<Client> {
    Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .timeout(PATIENCE)
        .pool_max_idle_per_host(0)
        .build()
}

/// Removes the query and the fragment of an address.
pub(super) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}
