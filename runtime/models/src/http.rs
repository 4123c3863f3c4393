//! The one HTTP client.
//!
//! Every request that lobster itself makes is a [`Post`]. A call blocks its
//! thread, ends within milliseconds when its token is cancelled, and bounds
//! what it waits for and what it reads. Redirects are followed as browsers do
//! (RFC 9110 §15.4): 301, 302 and 303 become a GET without the body, 307 and
//! 308 repeat the request; a credential never follows to another origin.
//! Proxies of the process environment are not used.

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

/// How long a connection may take: longer than any retransmission that still
/// succeeds, shorter than a person's patience.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest silence of a server before an answer or within it; models think
/// for minutes. `LOBSTER_HTTP_TIMEOUT_MS` overrides it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Most bytes of an answer. Larger ones are a fault or an attack: answers are
/// JSON that a workflow handles. `LOBSTER_MAX_HTTP_RESPONSE_BYTES` and the older
/// `LOBSTER_HTTP_MAX_BYTES` override it; the smaller counts.
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
    /// The secret of a step that it is, if it is one.
    name: Option<String>,
}

impl Secret {
    /// A secret of the trimmed text, or none if that is empty.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self { text: text.to_owned(), name: None })
    }

    /// The secret that a token is, or none if that is empty.
    pub fn of(token: &Token) -> Option<Self> {
        Self::new(&token.value).map(|secret| Self { name: token.secret.clone(), ..secret })
    }

    /// The secret itself, for the one who needs it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Text to be shown or kept, without the secret, should a server have repeated it. A short
    /// secret could be an ordinary word of it, and is left where it stands.
    pub fn mask(&self, text: &str) -> String {
        if self.text.len() < SHORTEST_HIDDEN {
            text.to_owned()
        } else {
            text.replace(&self.text, "[redacted]")
        }
    }

    /// The same in all texts of a value; the names of its fields stay what they are.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(&self.text) => *text = self.mask(text),
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

/// What proves who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// `authorization: Bearer …`
    Bearer(Secret),
    /// The secret alone in a header of this name.
    Header(&'static str, Secret),
}

impl Credential {
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Bearer(secret) | Self::Header(_, secret) => secret,
        }
    }
}

/// A JSON request.
#[derive(Clone, Debug)]
pub struct Post {
    /// Where to.
    pub url: Url,
    /// Headers beside `content-type`.
    pub headers: Vec<(String, String)>,
    /// Sent to the origin of `url` alone.
    pub credential: Option<Credential>,
    /// JSON text.
    pub body: String,
}

impl Post {
    /// The request as data.
    fn request(&self, limits: Limits) -> HttpRequest {
        let credential = self.credential.as_ref().map(|credential| {
            let Secret { text, name } = credential.secret();
            let header = match credential {
                Credential::Bearer(_) => None,
                Credential::Header(header, _) => Some((*header).to_owned()),
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

/// A complete answer, whatever its status.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// The standard phrase of the status.
    pub(crate) reason: String,
    /// The body as it came; bytes that are not UTF-8 are replaced. What is shown or kept of it is
    /// what [`Reply::json`] and [`Reply::excerpt`] give.
    body: String,
    /// What the request was made with.
    secret: Option<Secret>,
    /// How long the server asks to be left alone (`Retry-After`, in seconds or as a date).
    pub retry_after: Option<Duration>,
}

impl Reply {
    /// Whether the status is one of success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// One that says `text` for itself, of which nothing is secret any more.
    pub(crate) fn from_words(status: u16, reason: &str, text: &str) -> Self {
        Self { status, reason: reason.to_owned(), body: text.to_owned(), secret: None, retry_after: None }
    }

    /// The beginning of the body, for messages.
    pub fn excerpt(&self) -> String {
        const EXCERPT: usize = 400;
        let masked = self.secret.as_ref().map(|secret| secret.mask(&self.body));
        text::prefix(masked.as_deref().unwrap_or(&self.body), EXCERPT, Count::Chars).to_owned()
    }

    /// Whether the body has the word, in any case.
    pub(crate) fn says(&self, word: &str) -> bool {
        self.body.to_lowercase().contains(word)
    }

    /// The body as JSON; nothing is null. It is read as it came: only then are texts that hold the
    /// secret masked.
    pub fn json(&self) -> Result<Value, json::JsonError> {
        if self.body.trim().is_empty() {
            return Ok(Value::Null);
        }
        Ok(self.masked(json::parse(&self.body)?))
    }

    /// What the body says if it is a stream of events, as an executor may bring it that knows nothing
    /// of models; none if it is something else.
    pub(crate) fn events(&self, limit: u64) -> Option<Result<Value, StreamError>> {
        let is_stream = EventStream::is_events(&self.body);
        is_stream.then(|| EventStream::whole(&self.body, limit).map(|value| self.masked(value)))
    }

    fn masked(&self, mut value: Value) -> Value {
        if let Some(secret) = &self.secret {
            secret.mask_value(&mut value);
        }
        value
    }
}

/// What a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest silence.
    pub idle: Duration,
    /// Most bytes of the body.
    pub body: u64,
}

impl Limits {
    /// The limits that the environment asks for.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let idle =
            IDLE.value(|name| env(name).map(OsString::from))?.map_or(IDLE_TIMEOUT, Duration::from_millis);
        let own = MAX_BYTES.value(|name| env(name).map(OsString::from))?;
        // Whoever names a limit may also name one above ours.
        let body = match (byte_limit(&MAX_RESPONSE, &env)?, own) {
            (Some(asked), Some(own)) => own.min(asked),
            (asked, own) => asked.or(own).unwrap_or(MAX_BODY),
        };
        Ok(Self { idle, body })
    }
}

/// A setting of the environment that is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error(transparent)]
    Number(#[from] BadSetting),
    #[error(transparent)]
    Limit(#[from] lobster_stage::LimitError),
}

/// Reads an http(s) address; `None` where it is not one.
pub fn parse_url(text: &str) -> Option<Url> {
    Url::parse(text.trim()).ok()
}

/// Whether the address has the scheme of HTTP.
pub fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Whether the host is this machine.
pub fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(lobster_base::address::is_loopback)
}

/// The address as it may be journaled and shown: without user, password and
/// fragment, and with the values of its query hidden.
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

/// An address that somebody configured, as far as it may be journaled. What is
/// no address is kept but for what would be its user and password.
pub fn without_credentials(text: &str) -> String {
    match parse_url(text) {
        Some(url) if url.has_host() => redacted_address(&url),
        _ => text.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

/// Has a request sent, and its answer read.
///
/// # Errors
/// Whatever came between: never a status, which is part of the [`Reply`].
pub fn post(post: &Post, limits: Limits, send: &HttpSender<'_>) -> Result<Reply, HttpError> {
    let HttpReply { status, reason, retry_after, body } = send(&post.request(limits))?;
    let secret = post.credential.as_ref().map(|credential| credential.secret().clone());
    Ok(Reply { status, reason, body, secret, retry_after })
}

/// Sends `request` from here and reads the whole answer.
///
/// # Errors
/// Whatever came between: never a status, which is part of the answer.
pub fn make(request: &HttpRequest, cancel: &CancelToken) -> Result<HttpReply, HttpError> {
    make_telling(request, &|_| (), cancel)
}

/// The same; `told` is given the characters of a model's answer so far, as often as some of it arrives.
///
/// # Errors
/// Whatever came between: never a status, which is part of the answer.
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
    let setup = |error: std::io::Error| HttpError::Setup(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(setup)?;
    let result = runtime.block_on(async {
        let mut cancelled = pin!(cancel.cancelled());
        let mut work = pin!(exchange(request, &url, told));
        poll_fn(|cx| {
            if cancelled.as_mut().poll(cx).is_ready() {
                let reason = cancel.reason().unwrap_or(CancelReason::Superseded);
                return Poll::Ready(Err(HttpError::Cancelled(reason)));
            }
            work.as_mut().poll(cx)
        })
        .await
    });
    // A name that is still being resolved blocks a thread of the runtime; nobody waits for it.
    runtime.shutdown_background();
    result
}

/// Sends protobuf and gives the status of the answer, of which nothing is read. All of it takes `within` at most.
pub fn post_protobuf(
    url: &Url,
    headers: &[(String, String)],
    body: Vec<u8>,
    within: Duration,
) -> Result<u16, HttpError> {
    let origin = url.origin().ascii_serialization();
    let limits = Limits { idle: within, body: 0 };
    let mut request =
        client(url)?.post(url.clone()).header(CONTENT_TYPE, "application/x-protobuf").body(body);
    for (name, value) in headers {
        let mut value = HeaderValue::from_str(value).map_err(|_| HttpError::TokenCharacters)?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    let setup = |error: std::io::Error| HttpError::Setup(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(setup)?;
    let sent = runtime.block_on(send(request, &origin, limits));
    runtime.shutdown_background();
    sent.map(|response| response.status().as_u16())
}

async fn exchange(request: &HttpRequest, first: &Url, told: &dyn Fn(u64)) -> Result<HttpReply, HttpError> {
    let limits = Limits { idle: request.idle, body: request.max_body };
    let (mut url, mut with_body) = (first.clone(), true);
    for _ in 0..=MAX_REDIRECTS {
        let origin = url.origin().ascii_serialization();
        let response = send(prepare(request, first, &url, with_body)?, &origin, limits).await?;
        let Some(target) = redirect_target(&response, &url, &origin)? else {
            return read(response, &origin, limits, told).await;
        };
        // What is counted as one call is sent once: no redirect repeats it.
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

fn prepare(
    request: &HttpRequest,
    first: &Url,
    url: &Url,
    with_body: bool,
) -> Result<RequestBuilder, HttpError> {
    let method = if with_body { Method::POST } else { Method::GET };
    let mut builder = client(url)?.request(method, url.clone());
    if with_body {
        builder = builder.header(CONTENT_TYPE, "application/json").body(request.body.clone());
    }
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    if let Some(credential) = request.credential.as_ref().filter(|_| url.origin() == first.origin()) {
        let (name, value) = header(credential)?;
        builder = builder.header(name, value);
    }
    Ok(builder)
}

/// The header that proves who asks.
fn header(credential: &HttpCredential) -> Result<(HeaderName, HeaderValue), HttpError> {
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

async fn send(request: RequestBuilder, origin: &str, limits: Limits) -> Result<Response, HttpError> {
    match timeout(limits.idle, request.send()).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) if error.is_connect() => {
            Err(HttpError::Connect { origin: origin.to_owned(), cause: request_causes(&error) })
        }
        Ok(Err(error)) => Err(HttpError::Broken { origin: origin.to_owned(), cause: request_causes(&error) }),
        Err(_) => Err(HttpError::Silent { origin: origin.to_owned(), idle: limits.idle }),
    }
}

/// RFC 9110 §10.2.3: seconds, or the date from which on to try again.
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

async fn read(
    mut response: Response,
    origin: &str,
    limits: Limits,
    told: &dyn Fn(u64),
) -> Result<HttpReply, HttpError> {
    let too_large = || HttpError::TooLarge { origin: origin.to_owned(), limit: limits.body };
    let status = response.status();
    let is_stream = status.is_success() && events::is_stream(&response);
    if !is_stream && response.content_length().is_some_and(|length| length > limits.body) {
        return Err(too_large());
    }
    let reason = status.canonical_reason().unwrap_or_default().to_owned();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| retry_after(value.to_str().ok()?.trim(), jiff::Timestamp::now()));
    if is_stream {
        let body = events::read(response, origin, limits, told).await?;
        return Ok(HttpReply { status: status.as_u16(), reason, retry_after, body });
    }
    let mut body = Vec::new();
    loop {
        match timeout(limits.idle, response.chunk()).await {
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => {
                return Err(HttpError::Broken { origin: origin.to_owned(), cause: request_causes(&error) });
            }
            Err(_) => return Err(HttpError::Silent { origin: origin.to_owned(), idle: limits.idle }),
        }
        if body.len() as u64 > limits.body {
            return Err(too_large());
        }
    }
    let text = String::from_utf8_lossy(&body);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(HttpReply { status: status.as_u16(), reason, retry_after, body: text.to_owned() })
}

/// The client for the address. The one for plain HTTP knows no certificate
/// authorities, so that a call on this machine does not wait for the system's to
/// be read. Connections are not kept: each call runs on a runtime of its own.
pub fn client(url: &Url) -> Result<&'static Client, HttpError> {
    static PLAIN: OnceLock<Client> = OnceLock::new();
    static TLS: OnceLock<Client> = OnceLock::new();
    let (cell, plain) = if url.scheme() == "https" { (&TLS, false) } else { (&PLAIN, true) };
    if let Some(client) = cell.get() {
        return Ok(client);
    }
    // Fails only where another part of the process has chosen a provider, which then is used.
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
