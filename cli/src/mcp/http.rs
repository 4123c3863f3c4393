//! Streamable HTTP: loopback by default, a bearer token for anything else,
//! and no page of a browser gets in by another name (DNS rebinding).

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::digest::Digest;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::cancelled;
use super::server::Server;
use super::shared::Shared;
use super::stdio::MAX_MESSAGE;
use crate::exit::CommandError;

/// Where the protocol is spoken.
const PATH: &str = "/mcp";

/// Connections at once; more wait to be accepted.
const CONNECTIONS: usize = 256;

/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(15);

/// A token shorter than this is guessed too easily.
const LEAST_TOKEN: usize = 16;

/// How the server is reached.
pub(crate) struct Options {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
    /// Names that the server is called by, besides its address.
    pub(crate) hosts: Vec<String>,
    /// Pages that may call it.
    pub(crate) origins: Vec<String>,
}

impl Options {
    /// Refuses what would be open to others.
    ///
    /// # Errors
    /// What to add.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        let loopback = self.address.ip().is_loopback();
        match &self.token {
            None if !loopback => Err(CommandError::usage(format!(
                "{} can be reached by others, so clients need a token: --token-file FILE or LOBSTER_MCP_TOKEN",
                self.address
            ))),
            Some(token) if token.len() < LEAST_TOKEN => {
                Err(CommandError::usage(format!("the token must have at least {LEAST_TOKEN} characters")))
            }
            _ if self.address.ip().is_unspecified() && self.hosts.is_empty() => Err(CommandError::usage(
                "name the host that clients call with --allow-host NAME; requests for others are refused",
            )),
            _ => Ok(()),
        }
    }

    fn config(&self) -> StreamableHttpServerConfig {
        let mut hosts = self.hosts.clone();
        let mut origins = self.origins.clone();
        if self.address.ip().is_loopback() {
            hosts.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
            origins.extend(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"].map(str::to_owned));
        }
        if !self.address.ip().is_unspecified() {
            hosts.push(match self.address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => ip.to_string(),
            });
        }
        StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_MESSAGE)
    }
}

type Service = StreamableHttpService<Server, LocalSessionManager>;

/// Serves until `cancel` is.
pub(super) async fn serve(
    shared: Arc<Shared>,
    options: Options,
    cancel: CancelToken,
) -> Result<(), CommandError> {
    let listener = TcpListener::bind(options.address)
        .await
        .map_err(|error| CommandError::failed(format!("cannot listen on {}: {error}", options.address)))?;
    let address = listener.local_addr()?;
    anstream::eprintln!("lobster mcp listens on http://{address}{PATH}");
    let config = options.config();
    let sessions = config.cancellation_token.clone();
    let of_session = cancel.clone();
    let service: Service = StreamableHttpService::new(
        move || Ok(Server::new(Arc::clone(&shared), of_session.child())),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    let door = Arc::new(Door { service, token: options.token.map(|token| Digest::of(token.as_bytes())) });
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else { break };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, or a client that went at once: go on with the next.
                    tracing::warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = cancelled(&cancel) => break,
        };
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let door = Arc::clone(&door);
                async move { Ok::<_, Infallible>(door.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), answer);
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(seat);
        });
    }
    sessions.cancel();
    Ok(())
}

/// Looks at every request before the protocol does.
struct Door {
    service: Service,
    /// The digest of the token: comparing digests tells nothing about how much of a guess was right.
    token: Option<Digest>,
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "lobster speaks the Model Context Protocol at /mcp\n");
        }
        if self.token.is_some_and(|wanted| token_of(request.headers()) != Some(wanted)) {
            let mut refused = plain(StatusCode::UNAUTHORIZED, "the bearer token is missing or wrong\n");
            refused.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                header::HeaderValue::from_static("Bearer realm=\"lobster\""),
            );
            return refused;
        }
        self.service.handle(request).await
    }
}

fn token_of(headers: &HeaderMap) -> Option<Digest> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Digest::of(token.trim().as_bytes()))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(address: &str, token: Option<&str>, hosts: &[&str]) -> Options {
        Options {
            address: address.parse().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0))),
            token: token.map(str::to_owned),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            origins: Vec::new(),
        }
    }

    #[test]
    fn only_this_machine_is_let_in_without_a_token() {
        let long = Some("0123456789abcdef");
        for (address, token, hosts, good) in [
            ("127.0.0.1:0", None, &[][..], true),
            ("[::1]:0", None, &[][..], true),
            ("10.0.0.1:80", None, &[][..], false),
            ("10.0.0.1:80", long, &[][..], true),
            ("10.0.0.1:80", Some("short"), &[][..], false),
            ("0.0.0.0:80", long, &[][..], false),
            ("0.0.0.0:80", long, &["box.example"][..], true),
        ] {
            assert_eq!(options(address, token, hosts).check().is_ok(), good, "{address} {token:?}");
        }
    }
}
