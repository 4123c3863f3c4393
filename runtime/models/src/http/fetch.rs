//! Moves bytes from or to an address: one request with bounded redirects, size and time.

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Method, Response, Url};

use super::{
    HttpError, HttpLimits, MAX_REDIRECTS, block_on, client_for, is_loopback, read_bytes, redirect_target,
    wait_for,
};

/// A download.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The address: https, or plain http from this machine.
    pub url: Url,
    /// The accepted media types.
    pub accept: Option<String>,
    /// The whole value of `authorization`; sent only to the origin of `url`.
    pub authorization: Option<String>,
    /// The method and its content.
    pub verb: Verb,
}

/// The method of a request.
#[derive(Clone, Debug)]
pub enum Verb {
    Get,
    /// The headers alone.
    Head,
    Post,
    /// Uploads bytes of a media type.
    Put(&'static str, Vec<u8>),
}

impl Fetch {
    /// A GET without further headers.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self { url, accept: None, authorization: None, verb: Verb::Get }
    }
}

/// A complete answer with any status.
#[derive(Debug)]
pub struct Fetched {
    pub status: u16,
    /// The authentication that the server requests (`www-authenticate`).
    pub challenge: Option<String>,
    /// The address of a created resource (`location`).
    pub location: Option<Url>,
    pub body: Vec<u8>,
}

/// True if bytes may be downloaded from there: nothing on the way can change them.
#[must_use]
pub fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)
}

/// Sends the request within `limits`, which bound the size of the answer and each silence.
///
/// # Errors
/// Any failure of the transport; a status is never an error but part of the answer.
pub fn fetch(request: &Fetch, limits: HttpLimits) -> Result<Fetched, HttpError> {
    if !request.url.username().is_empty() || request.url.password().is_some() {
        return Err(HttpError::UserInfo);
    }
    block_on(follow_redirects(request, limits))
}

async fn follow_redirects(request: &Fetch, limits: HttpLimits) -> Result<Fetched, HttpError> {
    let mut url = request.url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let origin = url.origin().ascii_serialization();
        if !is_safe(&url) {
            return Err(HttpError::BadRedirect { origin });
        }
        let client = client_for(&url)?;
        let mut builder = match &request.verb {
            Verb::Get => client.get(url.clone()),
            Verb::Head => client.head(url.clone()),
            Verb::Post => client.request(Method::POST, url.clone()).header(CONTENT_LENGTH, "0"),
            Verb::Put(kind, bytes) => client.put(url.clone()).header(CONTENT_TYPE, *kind).body(bytes.clone()),
        };
        if let Some(accept) = &request.accept {
            builder = builder.header(ACCEPT, accept);
        }
        if let Some(text) = request.authorization.as_ref().filter(|_| url.origin() == request.url.origin()) {
            let mut value = HeaderValue::from_str(text).map_err(|_| HttpError::TokenCharacters)?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        let response = wait_for(builder.send(), &origin, limits.idle).await?;
        // A request with an effect is repeated only if the server demands it.
        let repeats =
            matches!(request.verb, Verb::Get | Verb::Head) || matches!(response.status().as_u16(), 307 | 308);
        match redirect_target(&response, &url, &origin)?.filter(|_| repeats) {
            Some(target) => url = target,
            None => return read_body(response, &url, &origin, limits).await,
        }
    }
    Err(HttpError::TooManyRedirects { origin: url.origin().ascii_serialization(), most: MAX_REDIRECTS })
}

async fn read_body(
    response: Response,
    url: &Url,
    origin: &str,
    limits: HttpLimits,
) -> Result<Fetched, HttpError> {
    let status = response.status().as_u16();
    let text = |name| {
        let value = response.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let (challenge, location) = (text(WWW_AUTHENTICATE), text(LOCATION));
    let location = location.and_then(|text| url.join(&text).ok());
    let body = read_bytes(response, origin, limits).await?;
    Ok(Fetched { status, challenge, location, body })
}
