//! The proxy through which a native step reaches the hosts whose credentials it may use: plain HTTP on the step's
//! loopback interface, `http://ORIGIN/PASS/HOST/path`. PASS is unguessable, because the interface may be shared with
//! others, and is valid until the step ends.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION, EXPECT, HOST, HeaderName, LINK, LOCATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use lobster_base::credential::CredentialHost;
use lobster_base::request_error::request_causes;
use lobster_base::sync::lock;
use tokio::task::{AbortHandle, JoinSet};

use crate::credential::{Credential, Proof, Unready};
use crate::login::TokenError;
use crate::masked::Masked;
use crate::outward::{Outward, shared_connections};
use crate::resend::Sent;

/// Connections at a time; more wait.
const MOST_CONNECTIONS: usize = 128;

/// Most refusals that are kept for the statement. The first ones are enough to note a step that tries more.
const MOST_REFUSALS: usize = 100;

/// Headers that concern one connection only, in addition to those named by `Connection`.
const OF_THE_CONNECTION: [HeaderName; 6] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, EXPECT];

/// The body of an answer: from the host, or a message of lobster.
type Body = Either<Masked<reqwest::Body>, Full<Bytes>>;

/// The hosts that a native step reaches with credentials.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    credentials: Vec<Credential>,
    pass: String,
    used: Mutex<Used>,
}

/// Use that a step made of its credentials.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// Hosts that answered.
    pub reached: BTreeSet<String>,
    /// Refused requests with the reason.
    pub refused: Vec<String>,
}

/// A running server. Dropping it closes its open connections.
#[derive(Debug)]
pub struct Serving(AbortHandle);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Upstream {
    /// Creates a proxy for these credentials.
    ///
    /// # Errors
    /// Fails if the system provides no randomness.
    pub fn new(credentials: Vec<Credential>) -> io::Result<Self> {
        let mut pass = [0; 16];
        getrandom::fill(&mut pass).map_err(io::Error::other)?;
        let pass = pass.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(Arc::new(Shared { credentials, pass, used: Mutex::default() })))
    }

    /// Returns the variables through which the step finds the proxy at `origin`, `http://address:port`.
    #[must_use]
    pub fn environment(&self, origin: &str) -> Vec<(String, String)> {
        let of = |credential: &Credential| {
            let grant = credential.grant();
            grant.environment_for(&format!("{origin}{}", self.0.path_prefix(&grant.host.to_string())))
        };
        self.0.credentials.iter().flat_map(of).collect()
    }

    /// Returns pairs of `https://HOST/` and the address that replaces it.
    #[must_use]
    pub fn address_pairs(&self, origin: &str) -> Vec<(String, String)> {
        let of = |credential: &Credential| {
            let host = credential.grant().host.to_string();
            (format!("https://{host}/"), format!("{origin}{}/", self.0.path_prefix(&host)))
        };
        self.0.credentials.iter().map(of).collect()
    }

    /// Serves requests on a listening socket that the step reaches at `origin`.
    ///
    /// # Errors
    /// Fails if the socket cannot be used or no thread can be started.
    pub fn serve(&self, listener: std::net::TcpListener, origin: String) -> io::Result<Serving> {
        let outward = shared_connections()?;
        listener.set_nonblocking(true)?;
        let shared = Arc::clone(&self.0);
        let _entered = outward.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let task = outward.runtime.spawn(accept_connections(listener, shared, outward, origin.into()));
        Ok(Serving(task.abort_handle()))
    }

    /// Returns the use so far.
    #[must_use]
    pub fn usage_so_far(&self) -> Used {
        lock(&self.0.used).clone()
    }

    /// The reason if a request needed a token and none was available.
    #[must_use]
    pub fn token_problem(&self) -> Option<TokenError> {
        self.0.credentials.iter().find_map(Credential::token_problem)
    }
}

async fn accept_connections(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
    outward: &'static Outward,
    origin: Arc<str>,
) {
    // Dropping the set with this task closes the connections.
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        if open.len() >= MOST_CONNECTIONS {
            open.join_next().await;
            continue;
        }
        // An error means that a client has gone, or that too many files are open, which passes.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = client.set_nodelay(true);
        let (shared, origin) = (Arc::clone(&shared), Arc::clone(&origin));
        open.spawn(async move {
            let answer = service_fn(|request| {
                let (shared, origin) = (Arc::clone(&shared), Arc::clone(&origin));
                async move { Ok::<_, Infallible>(shared.forward_request(request, outward, &origin).await) }
            });
            let served =
                http1::Builder::new().half_close(true).serve_connection(TokioIo::new(client), answer);
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection of a step with credentials broke");
            }
        });
    }
}

impl Shared {
    fn path_prefix(&self, host: &str) -> String {
        format!("/{}/{host}", self.pass)
    }

    /// Returns the credential that a path belongs to, and the path at its host.
    fn find_route<'p>(&self, path: &'p str) -> Option<(&Credential, &'p str)> {
        let rest = path.strip_prefix('/')?.strip_prefix(self.pass.as_str())?.strip_prefix('/')?;
        let (host, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let credential = self.credentials.iter().find(|known| known.grant().host.to_string() == host)?;
        Some((credential, rest))
    }

    /// Forwards a request with its credential and returns the answer.
    async fn forward_request(
        &self,
        request: Request<Incoming>,
        outward: &Outward,
        origin: &str,
    ) -> Response<Body> {
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let Some((credential, rest)) = self.find_route(&path) else {
            let text = "no credential of this step is for this address; see its variables LOBSTER_URL_…";
            return message_response(StatusCode::NOT_FOUND, text);
        };
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        let host = credential.grant().host.to_string();
        let (mut parts, body) = request.into_parts();
        strip_connection_headers(&mut parts.headers);
        parts.headers.remove(HOST);
        parts.headers.remove(CONTENT_LENGTH);
        let Ok(body) = Sent::from_body(body, credential.is_renewed()).await else {
            return message_response(StatusCode::BAD_REQUEST, "the body of the request broke off");
        };
        let url = format!("https://{host}{rest}");
        let onward = Onward { outward, credential, parts: &parts, url: &url };
        let answer = match self.send_with_retry(&onward, &rest, body).await {
            Ok(answer) => answer,
            Err((status, text)) => {
                self.note_refusal(text.clone());
                return message_response(status, &text);
            }
        };
        lock(&self.used).reached.insert(host.clone());
        let (mut head, body) = Response::<reqwest::Body>::from(answer).into_parts();
        strip_connection_headers(&mut head.headers);
        credential.hide_in(&mut head.headers);
        self.lead_back(&mut head.headers, &host, origin);
        let body = Masked::new(body, credential.echo_mask());
        let mut response = Response::new(Either::Left(body));
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }

    /// Returns the host's answer. If the host rejects the token, the request is sent again with another one.
    async fn send_with_retry(
        &self,
        onward: &Onward<'_>,
        path: &str,
        body: Sent<Incoming>,
    ) -> Result<reqwest::Response, (StatusCode, String)> {
        let unready = |error: Unready| {
            let status = match error {
                Unready::OutOfBounds(_) => StatusCode::FORBIDDEN,
                Unready::Login(_) | Unready::Unsendable(_) => StatusCode::BAD_GATEWAY,
            };
            (status, error.to_string())
        };
        let Parts { method, headers, .. } = onward.parts;
        let proof = onward.credential.proof_for(method.as_str(), path, headers).await.map_err(unready)?;
        let again = body.copy_to_resend();
        let answer = onward.send_request(&proof, body).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        // The host has done nothing. If the body is already sent, the next request uses the other token.
        match (onward.credential.proof_in_place_of(&proof).await, again) {
            (Ok(Some(other)), Some(body)) => onward.send_request(&other, body).await,
            (Ok(_), _) => Ok(answer),
            (Err(error), _) => {
                self.note_refusal(error.to_string());
                Ok(answer)
            }
        }
    }

    /// Rewrites addresses of known hosts in an answer's headers to the step's addresses for them. The step reaches all
    /// other addresses directly, without a credential.
    fn lead_back(&self, headers: &mut HeaderMap, host: &str, origin: &str) {
        let led = |address: &str| self.rewrite_address(address, host, origin);
        for (name, value) in headers.iter_mut() {
            let Ok(text) = value.to_str() else { continue };
            let changed = match *name {
                LOCATION | CONTENT_LOCATION => led(text),
                LINK => Some(in_angle_brackets(text, &led)),
                _ => None,
            };
            if let Some(changed) = changed.and_then(|text| HeaderValue::from_str(&text).ok()) {
                *value = changed;
            }
        }
    }

    /// Returns the step's address for an address at a host with a credential. `host` is the host that answered.
    fn rewrite_address(&self, address: &str, host: &str, origin: &str) -> Option<String> {
        let (named, rest) = match address.strip_prefix("https:").unwrap_or(address).strip_prefix("//") {
            Some(rest) => {
                let (named, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                let named = CredentialHost::parse(named).ok()?;
                let is_known = self.credentials.iter().any(|known| known.grant().host == named);
                (is_known.then(|| named.to_string())?, rest)
            }
            None => (address.starts_with('/').then(|| host.to_owned())?, address),
        };
        Some(format!("{origin}{}{rest}", self.path_prefix(&named)))
    }

    fn note_refusal(&self, why: String) {
        let refused = &mut lock(&self.used).refused;
        if refused.len() < MOST_REFUSALS && !refused.contains(&why) {
            refused.push(why);
        }
    }
}

/// A request on its way to the host of its credential.
struct Onward<'r> {
    outward: &'r Outward,
    credential: &'r Credential,
    parts: &'r Parts,
    url: &'r str,
}

impl Onward<'_> {
    async fn send_request(
        &self,
        proof: &Proof,
        body: Sent<Incoming>,
    ) -> Result<reqwest::Response, (StatusCode, String)> {
        let mut headers = self.parts.headers.clone();
        proof.add_to(&mut headers);
        let request = self.outward.client.request(self.parts.method.clone(), self.url).headers(headers);
        let request = match body {
            // A request without a body must not become a request with an empty one.
            Sent::Nothing => request,
            Sent::Whole(bytes) => request.body(bytes),
            Sent::Stream(body) => request.body(reqwest::Body::wrap(body)),
        };
        request.send().await.map_err(|error| {
            let host = &self.credential.grant().host;
            (StatusCode::BAD_GATEWAY, format!("cannot reach {host}: {}", request_causes(&error)))
        })
    }
}

/// Replaces the addresses in `<address>; rel=next, <address>; rel=last`.
fn in_angle_brackets(text: &str, led: &dyn Fn(&str) -> Option<String>) -> String {
    let part = |part: &str| match part.strip_suffix('>').and_then(|part| part.rsplit_once('<')) {
        Some((before, address)) => match led(address) {
            Some(led) => format!("{before}<{led}>"),
            None => part.to_owned(),
        },
        None => part.to_owned(),
    };
    text.split_inclusive('>').map(part).collect()
}

/// Removes the headers that concern only the connection on which the message came.
fn strip_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let of_proxies: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("proxy-") || *name == "keep-alive" || *name == "alt-svc")
        .cloned()
        .collect();
    for name in named.into_iter().chain(of_proxies).chain(OF_THE_CONNECTION) {
        headers.remove(name);
    }
}

/// An answer with a message of lobster.
fn message_response(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(format!("lobster: {text}\n")))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_base::credential::CredentialGrant;

    fn shared_for_hosts(hosts: &[&str]) -> Shared {
        let credential = |host: &&str| {
            let grant = CredentialGrant::new(CredentialHost::parse(host).unwrap(), "s".to_owned());
            Credential::new(grant, "value").unwrap()
        };
        let credentials = hosts.iter().map(credential).collect();
        Shared { credentials, pass: "pass".to_owned(), used: Mutex::default() }
    }

    #[test]
    fn only_who_knows_the_pass_is_sent_on() {
        let shared = shared_for_hosts(&["a.example", "b.example:8443"]);
        let route = |path| shared.find_route(path).map(|(it, rest)| (it.grant().host.to_string(), rest));
        assert_eq!(route("/pass/a.example/x?y"), Some(("a.example".to_owned(), "/x?y")));
        assert_eq!(route("/pass/b.example:8443?y"), Some(("b.example:8443".to_owned(), "?y")));
        assert_eq!(route("/pass/a.example"), Some(("a.example".to_owned(), "")));
        for path in [
            "/",
            "/pass",
            "/pass/",
            "/pas/a.example/",
            "/passa.example/",
            "/pass/c.example/",
            "//pass/a.example/",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }

    #[test]
    fn addresses_in_answers_lead_back_or_away() {
        let shared = shared_for_hosts(&["a.example", "b.example:8443"]);
        let led = |address: &str| shared.rewrite_address(address, "a.example", "http://o");
        for (address, expected) in [
            ("/x?y", Some("http://o/pass/a.example/x?y")),
            ("https://a.example/x", Some("http://o/pass/a.example/x")),
            ("https://A.example:443?x", Some("http://o/pass/a.example?x")),
            ("//b.example:8443/x", Some("http://o/pass/b.example:8443/x")),
            ("https://b.example/x", None),
            ("http://a.example/x", None),
            ("https://a.example.evil/x", None),
            ("https://a.example@evil/x", None),
            ("x", None),
        ] {
            assert_eq!(led(address).as_deref(), expected, "{address}");
        }
        let link = "<https://a.example/1>; rel=\"next\", <https://c.example/2>; rel=last";
        assert_eq!(
            in_angle_brackets(link, &led),
            "<http://o/pass/a.example/1>; rel=\"next\", <https://c.example/2>; rel=last"
        );
    }

    #[test]
    fn what_concerns_one_connection_goes_no_further() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, x-mine"),
            ("keep-alive", "3"),
            ("x-mine", "1"),
            ("proxy-authorization", "p"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-other", "2"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip_connection_headers(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
    }
}
