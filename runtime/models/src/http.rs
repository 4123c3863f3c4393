//! The one HTTP client.
//!
//! Every request of lobster itself is a [`Post`]. A call blocks its thread, ends within milliseconds when
//! its token is cancelled, and bounds its waiting time and the bytes it reads. Redirects are followed as
//! browsers do (RFC 9110 §15.4): 301, 302 and 303 become a GET without the body, 307 and 308 repeat the
//! request; a credential never follows to another origin. Proxies of the process environment are not
//! used.

use std::ffi::OsString;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use serde_json::Value;
use tokio::time::timeout;

use crate::stream::{EventStream, StreamError};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::json;
use lobster_base::request_error::request_causes;
use lobster_base::setting::{self, BadSetting, Setting};
use lobster_base::text::{self, Count};
use lobster_stage::{
    HttpCredential, HttpReply, HttpRequest, HttpSender, SHORTEST_HIDDEN, Token, byte_limit, byte_setting,
};

mod events;
pub mod fetch;

pub use lobster_stage::HttpError;
pub use reqwest::Error as RequestError;
pub use reqwest::Url;
pub use reqwest::header::{HeaderName, HeaderValue};

/// Most redirects that are followed, as in the Fetch standard.
const MAX_REDIRECTS: usize = 20;

/// Time limit of a connection: longer than any retransmission that still succeeds, shorter than a
/// person's patience.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest silence of a server before an answer or within it; models think
/// for minutes. `LOBSTER_HTTP_TIMEOUT_MS` overrides it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Most bytes of an answer. A larger answer is a fault or an attack: answers are JSON that a workflow
/// handles. `LOBSTER_MAX_HTTP_RESPONSE_BYTES` and the older `LOBSTER_HTTP_MAX_BYTES` override it; the
/// smaller value applies.
const MAX_BODY: u64 = 16 << 20;

/// The incumbent's variable for the most bytes of an answer.
pub const MAX_RESPONSE: Setting<u64> = byte_setting("LOBSTER_MAX_HTTP_RESPONSE_BYTES");

/// The longest silence of a server, in milliseconds.
pub const IDLE: Setting<u64> =
    Setting::new("LOBSTER_HTTP_TIMEOUT_MS", "a whole number above 0", setting::read_count);

/// The most bytes of an answer.
pub const MAX_BYTES: Setting<u64> =
    Setting::new("LOBSTER_HTTP_MAX_BYTES", "a whole number above 0", setting::read_count);

/// Text that is never shown: a token or a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    /// The name of the step's secret, if it is one.
    name: Option<String>,
}

impl Secret {
    /// A secret of the trimmed text; `None` if that is empty.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self { text: text.to_owned(), name: None })
    }

    /// The secret of a token; `None` if the token is empty.
    pub fn from_token(token: &Token) -> Option<Self> {
        Self::new(&token.value).map(|secret| Self { name: token.secret.clone(), ..secret })
    }

    /// The secret itself, for sending.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Masks the secret in a text that is shown or kept, in case a server repeated it. A short secret
    /// could be an ordinary word, so it is not masked.
    pub fn mask_text(&self, text: &str) -> String {
        if self.text.len() < SHORTEST_HIDDEN {
            text.to_owned()
        } else {
            text.replace(&self.text, "[redacted]")
        }
    }

    /// Masks the secret in all texts of a value; field names are unchanged.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(&self.text) => *text = self.mask_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.mask_value(item)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Proof of identity of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestAuth {
    /// `authorization: Bearer …`
    Bearer(Secret),
    /// The secret alone in a header of this name.
    Header(&'static str, Secret),
}

impl RequestAuth {
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Bearer(secret) | Self::Header(_, secret) => secret,
        }
    }
}

/// A JSON request.
#[derive(Clone, Debug)]
pub struct Post {
    /// The address.
    pub url: Url,
    /// Headers in addition to `content-type`.
    pub headers: Vec<(String, String)>,
    /// Sent only to the origin of `url`.
    pub credential: Option<RequestAuth>,
    /// JSON text.
    pub body: String,
}

impl Post {
    /// The request as data.
    fn http_request(&self, limits: HttpLimits) -> HttpRequest {
        let credential = self.credential.as_ref().map(|credential| {
            let Secret { text, name } = credential.secret();
            let header = match credential {
                RequestAuth::Bearer(_) => None,
                RequestAuth::Header(header, _) => Some((*header).to_owned()),
            };
            HttpCredential { header, token: Token { value: text.clone(), secret: name.clone() } }
        });
        HttpRequest {
            url: self.url.as_str().to_owned(),
            headers: self.headers.clone(),
            credential,
            body: self.body.clone(),
            idle: limits.idle,
            max_body: limits.body,
        }
    }
}

/// A complete answer with any status.
#[derive(Debug, PartialEq, Eq)]
pub struct CompleteReply {
    pub status: u16,
    /// The standard phrase of the status.
    pub(crate) reason: String,
    /// The body as received; bytes that are not UTF-8 are replaced. [`CompleteReply::body_json`] and
    /// [`CompleteReply::body_excerpt`] return the forms that may be shown or kept.
    body: String,
    /// The secret sent with the request.
    secret: Option<Secret>,
    /// The pause that the server asks for (`Retry-After`, in seconds or as a date).
    pub retry_after: Option<Duration>,
}

impl CompleteReply {
    /// True if the status is a success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A reply with lobster's own `text`, which contains no secret.
    pub(crate) fn from_words(status: u16, reason: &str, text: &str) -> Self {
        Self { status, reason: reason.to_owned(), body: text.to_owned(), secret: None, retry_after: None }
    }

    /// The beginning of the body, for messages.
    pub fn body_excerpt(&self) -> String {
        const EXCERPT: usize = 400;
        let masked = self.secret.as_ref().map(|secret| secret.mask_text(&self.body));
        text::prefix(masked.as_deref().unwrap_or(&self.body), EXCERPT, Count::Chars).to_owned()
    }

    /// True if the body contains the word, in any case.
    pub(crate) fn body_contains(&self, word: &str) -> bool {
        self.body.to_lowercase().contains(word)
    }

    /// The body as JSON; an empty body is null. It is parsed as received; only then are texts that
    /// contain the secret masked.
    pub fn body_json(&self) -> Result<Value, json::JsonError> {
        if self.body.trim().is_empty() {
            return Ok(Value::Null);
        }
        Ok(self.mask_answer(json::parse(&self.body)?))
    }

    /// The answer in the body if it is a stream of events, which may come from an executor that knows
    /// nothing of models; `None` for any other body.
    pub(crate) fn streamed_answer(&self, limit: u64) -> Option<Result<Value, StreamError>> {
        let is_stream = EventStream::is_events(&self.body);
        is_stream.then(|| EventStream::parse_whole(&self.body, limit).map(|value| self.mask_answer(value)))
    }

    fn mask_answer(&self, mut value: Value) -> Value {
        if let Some(secret) = &self.secret {
            secret.mask_value(&mut value);
        }
        value
    }
}

/// Limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Longest silence.
    pub idle: Duration,
    /// Most bytes of the body.
    pub body: u64,
}

impl HttpLimits {
    /// The limits set by the environment.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let idle =
            IDLE.read_env(|name| env(name).map(OsString::from))?.map_or(IDLE_TIMEOUT, Duration::from_millis);
        let own = MAX_BYTES.read_env(|name| env(name).map(OsString::from))?;
        // An explicit limit may exceed the default.
        let body = match (byte_limit(&MAX_RESPONSE, &env)?, own) {
            (Some(asked), Some(own)) => own.min(asked),
            (asked, own) => asked.or(own).unwrap_or(MAX_BODY),
        };
        Ok(Self { idle, body })
    }
}

/// An unusable setting of the environment.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error(transparent)]
    Number(#[from] BadSetting),
    #[error(transparent)]
    Limit(#[from] lobster_stage::LimitError),
}

/// Parses an http(s) address; `None` if it is not one.
pub fn parse_url(text: &str) -> Option<Url> {
    Url::parse(text.trim()).ok()
}

/// True if the address has the scheme http or https.
pub fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// True if the host is this machine.
pub fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(lobster_base::address::is_loopback)
}

/// The address as it may be journaled and shown: without user, password and fragment, and with the values
/// of its query hidden.
pub fn redacted_address(url: &Url) -> String {
    let mut shown = url.clone();
    // Both fail only for addresses without a host, which are never requested.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_fragment(None);
    if url.query().is_some() {
        let names: Vec<String> = url.query_pairs().map(|(name, _)| format!("{name}=…")).collect();
        shown.set_query(Some(&names.join("&")));
    }
    shown.into()
}

/// A configured address as it may be journaled. Text that is not an address is kept without its presumed
/// user and password.
pub fn without_credentials(text: &str) -> String {
    match parse_url(text) {
        Some(url) if url.has_host() => redacted_address(&url),
        _ => text.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

/// Sends a request through `send` and reads the answer.
///
/// # Errors
/// Any failure of the transport; a status is never an error but part of the [`CompleteReply`].
pub fn post(post: &Post, limits: HttpLimits, send: &HttpSender<'_>) -> Result<CompleteReply, HttpError> {
    let HttpReply { status, reason, retry_after, body } = send(&post.http_request(limits))?;
    let secret = post.credential.as_ref().map(|credential| credential.secret().clone());
    Ok(CompleteReply { status, reason, body, secret, retry_after })
}

/// Sends `request` from this process and reads the whole answer.
///
/// # Errors
/// Any failure of the transport; a status is never an error but part of the answer.
pub fn make_request(request: &HttpRequest, cancel: &CancelToken) -> Result<HttpReply, HttpError> {
    make_telling(request, &|_| (), cancel)
}

/// Like [`make_request`]; `told` receives the number of characters of a model's answer so far, each time more of
/// it arrives.
///
/// # Errors
/// Any failure of the transport; a status is never an error but part of the answer.
pub fn make_telling(
    request: &HttpRequest,
    told: &dyn Fn(u64),
    cancel: &CancelToken,
) -> Result<HttpReply, HttpError> {
    if let Some(reason) = cancel.reason() {
        return Err(HttpError::Cancelled(reason));
    }
    let url = parse_url(&request.url).filter(is_http);
    let url = url.ok_or_else(|| HttpError::Setup("no http(s) address".to_owned()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(HttpError::UserInfo);
    }
    block_on(async {
        let mut cancelled = pin!(cancel.cancelled());
        let mut work = pin!(follow_redirects(request, &url, told));
        poll_fn(|cx| {
            if cancelled.as_mut().poll(cx).is_ready() {
                let reason = cancel.reason().unwrap_or(CancelReason::Superseded);
                return Poll::Ready(Err(HttpError::Cancelled(reason)));
            }
            work.as_mut().poll(cx)
        })
        .await
    })
}

/// Does the work of a request on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, HttpError>>) -> Result<T, HttpError> {
    let setup = |error: std::io::Error| HttpError::Setup(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(setup)?;
    let result = runtime.block_on(work);
    // A name that is still being resolved blocks a thread of the runtime; do not wait for it.
    runtime.shutdown_background();
    result
}

/// Sends protobuf and returns the status of the answer without reading its body. Takes at most `within`.
pub fn post_protobuf(
    url: &Url,
    headers: &[(String, String)],
    body: Vec<u8>,
    within: Duration,
) -> Result<u16, HttpError> {
    let origin = url.origin().ascii_serialization();
    let mut request =
        client_for(url)?.post(url.clone()).header(CONTENT_TYPE, "application/x-protobuf").body(body);
    for (name, value) in headers {
        let mut value = HeaderValue::from_str(value).map_err(|_| HttpError::TokenCharacters)?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    let sent = block_on(async { wait_for(request.send(), &origin, within).await });
    sent.map(|response| response.status().as_u16())
}

async fn follow_redirects(
    request: &HttpRequest,
    first: &Url,
    told: &dyn Fn(u64),
) -> Result<HttpReply, HttpError> {
    let limits = HttpLimits { idle: request.idle, body: request.max_body };
    let (mut url, mut with_body) = (first.clone(), true);
    for _ in 0..=MAX_REDIRECTS {
        let origin = url.origin().ascii_serialization();
        let sent = prepare_request(request, first, &url, with_body)?.send();
        let response = wait_for(sent, &origin, limits.idle).await?;
        let Some(target) = redirect_target(&response, &url, &origin)? else {
            return read_reply(response, &origin, limits, told).await;
        };
        // A call that is billed once is sent once: no redirect repeats it.
        let repeats =
            matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if with_body && repeats {
            return Err(HttpError::TooManyRedirects { origin, most: 0 });
        }
        with_body = false;
        url = target;
    }
    Err(HttpError::TooManyRedirects { origin: url.origin().ascii_serialization(), most: MAX_REDIRECTS })
}

fn prepare_request(
    request: &HttpRequest,
    first: &Url,
    url: &Url,
    with_body: bool,
) -> Result<RequestBuilder, HttpError> {
    let method = if with_body { Method::POST } else { Method::GET };
    let mut builder = client_for(url)?.request(method, url.clone());
    if with_body {
        builder = builder.header(CONTENT_TYPE, "application/json").body(request.body.clone());
    }
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    if let Some(credential) = request.credential.as_ref().filter(|_| url.origin() == first.origin()) {
        let (name, value) = credential_header(credential)?;
        builder = builder.header(name, value);
    }
    Ok(builder)
}

/// The header with the credential.
fn credential_header(credential: &HttpCredential) -> Result<(HeaderName, HeaderValue), HttpError> {
    let token = &credential.token.value;
    let (name, value) = match &credential.header {
        None => (Ok(AUTHORIZATION), format!("Bearer {token}")),
        Some(name) => (HeaderName::from_bytes(name.as_bytes()), token.clone()),
    };
    let name = name.map_err(|_| HttpError::TokenCharacters)?;
    let mut value = HeaderValue::from_str(&value).map_err(|_| HttpError::TokenCharacters)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Waits for an answer, or the next part of it.
async fn wait_for<T>(
    part: impl Future<Output = Result<T, RequestError>>,
    origin: &str,
    idle: Duration,
) -> Result<T, HttpError> {
    match timeout(idle, part).await {
        Ok(Ok(part)) => Ok(part),
        Ok(Err(error)) if error.is_connect() => {
            Err(HttpError::Connect { origin: origin.to_owned(), cause: request_causes(&error) })
        }
        Ok(Err(error)) => Err(HttpError::Broken { origin: origin.to_owned(), cause: request_causes(&error) }),
        Err(_) => Err(HttpError::Silent { origin: origin.to_owned(), idle }),
    }
}

/// Reads a body of at most `limits.body` bytes.
async fn read_bytes(mut response: Response, origin: &str, limits: HttpLimits) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    while let Some(chunk) = wait_for(response.chunk(), origin, limits.idle).await? {
        body.extend_from_slice(&chunk);
        if body.len() as u64 > limits.body {
            return Err(HttpError::TooLarge { origin: origin.to_owned(), limit: limits.body });
        }
    }
    Ok(body)
}

/// RFC 9110 §10.2.3: seconds, or the date of the next attempt.
fn retry_after(text: &str, now: jiff::Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

fn redirect_target(response: &Response, url: &Url, origin: &str) -> Result<Option<Url>, HttpError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    match url.join(&location) {
        Ok(target) if is_http(&target) && target.username().is_empty() && target.password().is_none() => {
            Ok(Some(target))
        }
        _ => Err(HttpError::BadRedirect { origin: origin.to_owned() }),
    }
}

async fn read_reply(
    response: Response,
    origin: &str,
    limits: HttpLimits,
    told: &dyn Fn(u64),
) -> Result<HttpReply, HttpError> {
    let status = response.status();
    let is_stream = status.is_success() && events::is_stream(&response);
    if !is_stream && response.content_length().is_some_and(|length| length > limits.body) {
        return Err(HttpError::TooLarge { origin: origin.to_owned(), limit: limits.body });
    }
    let reason = status.canonical_reason().unwrap_or_default().to_owned();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| retry_after(value.to_str().ok()?.trim(), jiff::Timestamp::now()));
    if is_stream {
        let body = events::read_answer(response, origin, limits, told).await?;
        return Ok(HttpReply { status: status.as_u16(), reason, retry_after, body });
    }
    let body = read_bytes(response, origin, limits).await?;
    let text = String::from_utf8_lossy(&body);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(HttpReply { status: status.as_u16(), reason, retry_after, body: text.to_owned() })
}

/// The client for the address. The client for plain HTTP has no certificate authorities, so that a call
/// on this machine does not wait until the system's are read. Connections are not kept: each call has its
/// own runtime.
pub fn client_for(url: &Url) -> Result<&'static Client, HttpError> {
    static PLAIN: OnceLock<Client> = OnceLock::new();
    static TLS: OnceLock<Client> = OnceLock::new();
    let (cell, plain) = if url.scheme() == "https" { (&TLS, false) } else { (&PLAIN, true) };
    if let Some(client) = cell.get() {
        return Ok(client);
    }
    // Fails only if another part of the process has chosen a provider, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("lobster/", env!("CARGO_PKG_VERSION")));
    if plain {
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|error| HttpError::Setup(request_causes(&error)))?;
    Ok(cell.get_or_init(|| client))
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
