//! `lobster:step/http`: one call sends a request and returns the whole response, for languages that
//! cannot link `wasi:http`. It uses the same code as `wasi:http`, so grants, the record and the limits
//! are the same.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use wasmtime_wasi_http::{DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::http::{CONNECT_TIMEOUT, Http, collect_body, header_value, plain_headers};
use super::step_http::lobster::step::http as wit;
use crate::state::State;

impl wit::Host for State {
    async fn fetch(
        &mut self,
        request: wit::Request,
    ) -> wasmtime::Result<Result<wit::Response, wit::HttpError>> {
        let sent = request.body.len() + request.url.len();
        let answer = self.http.fetch_response(request).await;
        let given = answer.as_ref().map_or(0, |answer| answer.body.len());
        self.pipes.count_moved(sent + given);
        Ok(answer)
    }
}

impl Http {
    async fn fetch_response(&mut self, asked: wit::Request) -> Result<wit::Response, wit::HttpError> {
        let patience = asked.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let request = convert_request(asked)?;
        let options = RequestOptions {
            connect_timeout: patience.map(|patience| patience.min(CONNECT_TIMEOUT)),
            first_byte_timeout: patience,
            ..RequestOptions::default()
        };
        let unused = Box::new(std::future::ready(Ok(())));
        let sending = Box::into_pin(self.send_request(request, Some(options), unused));
        let answered = async {
            // The body is read completely before the connection is dropped.
            let (response, _connection) = sending.await?;
            let (head, body) = response.into_parts();
            let body = collect_body(body, || Error::HttpResponseBodySize(None)).await?;
            Ok((head, body))
        };
        let (head, body) = answered.await.map_err(|error: Error| convert_error(&error))?;
        Ok(wit::Response {
            status: head.status.as_u16(),
            headers: plain_headers(&head.headers),
            body: body.into(),
        })
    }
}

/// Converts the request for the network, or returns its fault.
fn convert_request(asked: wit::Request) -> Result<Request<WasiBody>, wit::HttpError> {
    let method = Method::from_bytes(asked.method.as_bytes())
        .map_err(|_| bad_request(format!("{:?} is not an HTTP method", asked.method)))?;
    let url: Uri =
        asked.url.parse().map_err(|error| bad_request(format!("{:?} is not a URL: {error}", asked.url)))?;
    let usual = url.scheme() == Some(&Scheme::HTTP) || url.scheme() == Some(&Scheme::HTTPS);
    let authority = url.authority().filter(|authority| usual && !authority.host().is_empty());
    let authority =
        authority.ok_or_else(|| bad_request(format!("{:?} is not an http or https URL", asked.url)))?;
    if authority.as_str().contains('@') {
        return Err(bad_request(
            "a URL cannot carry a user and a password; send an `authorization` header".to_owned(),
        ));
    }
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(authority.as_str());
    headers.insert(HOST, host.map_err(|_| bad_request(format!("{authority} is not a host")))?);
    for (name, value) in &asked.headers {
        let (name, value) = parse_header(name, value)?;
        headers.append(name, value);
    }
    let body = Full::new(Bytes::from(asked.body)).map_err(Error::from).boxed_unsync();
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = url;
    *request.headers_mut() = headers;
    Ok(request)
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), wit::HttpError> {
    let known = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| bad_request(format!("{name:?} is not a name of a header")))?;
    // The host sends the length of the body: with two different lengths, a proxy might see two
    // requests.
    if known == CONTENT_LENGTH || DEFAULT_FORBIDDEN_HEADERS.contains(&known) {
        return Err(bad_request(format!("the header {known} is the host's to send")));
    }
    let value = header_value(value);
    Ok((
        known,
        value.ok_or_else(|| {
            bad_request(format!("the header {name} has characters that no header can have"))
        })?,
    ))
}

fn bad_request(message: String) -> wit::HttpError {
    wit::HttpError { code: "bad-request".to_owned(), message, retryable: false }
}

fn convert_error(error: &Error) -> wit::HttpError {
    let (code, retryable) = match error {
        Error::HttpRequestDenied => ("denied", false),
        Error::HttpRequestUriInvalid => ("bad-request", false),
        Error::DestinationNotFound => ("not-found", true),
        Error::ConnectionTimeout | Error::ConnectionReadTimeout => ("timeout", true),
        Error::HttpResponseBodySize(_) | Error::HttpRequestBodySize(_) => ("too-large", false),
        Error::ConnectionRefused => ("refused", true),
        Error::Connect(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => ("refused", true),
        Error::Connect(_) | Error::DestinationUnavailable => ("unreachable", true),
        Error::Tls(_) | Error::TlsProtocolError => ("tls", false),
        _ => ("io", true),
    };
    wit::HttpError { code: code.to_owned(), message: error.to_string(), retryable }
}
