//! Streamable HTTP over a port, for clients with the bearer token, or over a socket file, for this
//! user. Pages of browsers cannot get in by another host name (DNS rebinding).

use std::convert::Infallible;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::digest::Digest;
use lobster_runtime::sync::lock;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::endpoint::{Body, Endpoint, plain_response};
use super::listen::Listener;
use super::server::McpServer;
use super::shared::Shared;
use super::stdio::MAX_MESSAGE;
use crate::{request_failure, work_failure};
use lobster_runtime::envelope::Failure;
use lobster_serve::net::{Newcomer, Newcomers, Shared as SharedBody};

/// The path of the protocol.
const PATH: &str = "/mcp";

/// Most authenticated connections at once; further clients are asked to come back later.
const CONNECTIONS: usize = 256;

/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(15);

/// Least length of a token; a shorter one is easily guessed.
const LEAST_TOKEN: usize = 16;

/// Default time that a session may be without its client.
pub const SESSION_IDLE: Duration = Duration::from_secs(300);

/// A token of the operator, with the name of its client.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedToken {
    pub token: String,
    /// `None` if there is only one token.
    pub name: Option<String>,
}

/// The identity of a client, proved by its token or by the user at the other end, not by its own statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientIdentity {
    pub(super) name: String,
    /// True if the operator gave it this name.
    pub(super) is_named: bool,
}

impl ClientIdentity {
    /// The sender of a request; `None` on the standard streams, whose client started the server.
    pub(super) fn from_context(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.extensions.get::<http::request::Parts>()?.extensions.get::<Self>().cloned()
    }

    fn unnamed(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_named: false }
    }
}

/// The way in which clients authenticate.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientToken {
    /// The operator's own tokens, at least one, which the operator gives to clients.
    Given(Vec<NamedToken>),
    /// A token generated for this server, and printed for its clients.
    Made(String),
    /// Every client that can connect may call.
    Off,
}

impl ClientToken {
    /// 32 random bytes as text.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn make_random() -> Result<Self, Failure> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|error| work_failure(format!("no token can be made: {error}")))?;
        Ok(Self::Made(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Parses the tokens of a text: a single token, or lines of a name and a token.
    ///
    /// # Errors
    /// A line has another form, or a name or a token occurs twice.
    pub fn read_given(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
        let tokens: Vec<NamedToken> = match lines.as_slice() {
            [only] if only.len() == 1 => vec![NamedToken { token: only[0].to_owned(), name: None }],
            several => several
                .iter()
                .map(|words| match words.as_slice() {
                    [name, token] => {
                        Ok(NamedToken { token: (*token).to_owned(), name: Some((*name).to_owned()) })
                    }
                    _ => Err("it holds one token, or a name and a token in each line".to_owned()),
                })
                .collect::<Result<_, _>>()?,
        };
        for (at, one) in tokens.iter().enumerate() {
            if tokens[..at].iter().any(|other| other.token == one.token || other.name == one.name) {
                let name = one.name.as_deref().unwrap_or_default();
                return Err(format!("the name or the token of {name:?} is there twice"));
            }
        }
        Ok(Self::Given(tokens))
    }

    /// The accepted tokens by their digests, with the identities of their clients; `None` accepts every
    /// client.
    fn client_identities(&self) -> Option<Vec<(Digest, ClientIdentity)>> {
        match self {
            Self::Off => None,
            // Only users who can read the server's stderr know it.
            Self::Made(token) => {
                Some(vec![(Digest::of_bytes(token.as_bytes()), ClientIdentity::unnamed(own_user()))])
            }
            Self::Given(tokens) => {
                let identity = |given: &NamedToken| {
                    let digest = Digest::of_bytes(given.token.as_bytes());
                    let identity = match &given.name {
                        Some(name) => ClientIdentity { name: name.clone(), is_named: true },
                        None => ClientIdentity::unnamed(format!("token-{}", &digest.to_string()[..8])),
                    };
                    (digest, identity)
                };
                Some(tokens.iter().map(identity).collect())
            }
        }
    }
}

/// The name of this user, or the number.
fn own_user() -> String {
    let name = std::env::var("USER").ok().filter(|name| !name.trim().is_empty());
    name.unwrap_or_else(|| format!("user-{}", rustix::process::geteuid().as_raw()))
}

/// The address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenPlace {
    Port(SocketAddr),
    Socket(PathBuf),
}

impl ListenPlace {
    fn ip_address(&self) -> Option<IpAddr> {
        match self {
            Self::Port(address) => Some(address.ip()),
            Self::Socket(_) => None,
        }
    }

    fn is_local(&self) -> bool {
        self.ip_address().is_none_or(|ip| ip.is_loopback())
    }
}

/// The options of the server.
pub struct Options {
    pub place: ListenPlace,
    pub token: ClientToken,
    /// Host names of the server, in addition to its address.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it.
    pub origins: Vec<String>,
    /// Time that a session may be without its client.
    pub idle: Duration,
}

impl Options {
    /// Refuses options that would open the server to others.
    ///
    /// # Errors
    /// The missing option.
    pub fn check_exposure(&self) -> Result<(), Failure> {
        match (&self.place, &self.token) {
            (ListenPlace::Port(address), ClientToken::Off | ClientToken::Made(_))
                if !self.place.is_local() =>
            {
                Err(request_failure(format!(
                    "{address} can be reached by others, so clients need a token of yours: --token-file FILE or \
                     LOBSTER_MCP_TOKEN"
                )))
            }
            (_, ClientToken::Given(tokens)) if tokens.iter().any(|given| given.token.len() < LEAST_TOKEN) => {
                Err(request_failure(format!("the token must have at least {LEAST_TOKEN} characters")))
            }
            _ if self.place.ip_address().is_some_and(|ip| ip.is_unspecified()) && self.hosts.is_empty() => {
                Err(request_failure(
                    "name the host that clients call with --allow-host NAME; requests for others are refused",
                ))
            }
            _ => Ok(()),
        }
    }

    fn transport_config(&self) -> StreamableHttpServerConfig {
        let mut hosts = self.hosts.clone();
        let mut origins = self.origins.clone();
        if self.place.is_local() {
            hosts.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
            origins.extend(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"].map(str::to_owned));
        }
        if let Some(ip) = self.place.ip_address().filter(|ip| !ip.is_unspecified()) {
            hosts.push(ip.to_string());
        }
        StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_MESSAGE)
    }

    /// Prints on stderr how clients connect.
    fn announce_address(&self, listener: &Listener, say: fn(&str)) -> Result<(), Failure> {
        if let ListenPlace::Socket(path) = &self.place {
            let path = path.display();
            say(&format!("lobster mcp listens on unix:{path}"));
            say(&format!("clients call http://localhost{PATH} over it, as with curl --unix-socket {path}"));
        }
        let Listener::Port(listener) = listener else { return Ok(()) };
        let url = format!("http://{}{PATH}", listener.local_addr().map_err(work_failure)?);
        say(&format!("lobster mcp listens on {url}"));
        match &self.token {
            ClientToken::Given(_) => {}
            ClientToken::Made(token) => {
                let header = format!("Bearer {token}");
                let server = json!({ "type": "http", "url": url, "headers": { "Authorization": header } });
                say(&format!("clients send the header   Authorization: {header}"));
                say(&format!("or are configured with    {}", json!({ "mcpServers": { "lobster": server } })));
            }
            ClientToken::Off => {
                let user = std::env::var("USER").unwrap_or_else(|_| "this user".to_owned());
                say(&format!(
                    "warning: --no-token: every user and every program of this machine can run things as {user} here"
                ));
            }
        }
        Ok(())
    }
}

/// Serves until `cancel` is cancelled.
pub(super) async fn serve(shared: Arc<Shared>, options: Options, cancel: CancelToken) -> Result<(), Failure> {
    let listener = Listener::bind(&options.place).await?;
    options.announce_address(&listener, shared.options.say)?;
    let config = options.transport_config();
    let ending = config.cancellation_token.clone();
    let of_session = cancel.clone();
    let endpoint = Endpoint::new(options.idle, config, move || {
        let session = of_session.child_token();
        (McpServer::new(Arc::clone(&shared), session.clone()), session)
    });
    let sweeper = tokio::spawn(endpoint.sweep_abandoned());
    // On a socket file the kernel identifies the client, and only this user may connect.
    let anyone = match &options.place {
        ListenPlace::Port(_) => ClientIdentity::unnamed("anyone"),
        ListenPlace::Socket(_) => ClientIdentity::unnamed(own_user()),
    };
    let identities = options.token.client_identities();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let door = Arc::new(Door { endpoint, identities, anyone, room });
    let newcomers = Arc::new(Newcomers::default());
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    // No descriptors are left, or the client disconnected at once: continue with the
                    // next one.
                    tracing::warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = cancel.cancelled() => break,
        };
        let caller = Arc::new(Caller { newcomer: newcomers.add_connection(), seat: Mutex::default() });
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            let of_request = Arc::clone(&caller);
            let answer = service_fn(move |request| {
                let (door, caller) = (Arc::clone(&door), Arc::clone(&of_request));
                async move { Ok::<_, Infallible>(door.answer_request(request, &caller).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!("a connection ended: {error}");
                },
                () = caller.newcomer.must_go() => tracing::debug!("a connection made way for a newer one"),
            }
        });
    }
    sweeper.abort();
    ending.cancel();
    Ok(())
}

/// One connection.
struct Caller {
    newcomer: Newcomer,
    /// Its permit among the authenticated connections.
    seat: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Checks every request before the protocol sees it.
struct Door {
    endpoint: Endpoint,
    /// Identities by the digests of tokens: comparing digests does not reveal how much of a guess was right.
    identities: Option<Vec<(Digest, ClientIdentity)>>,
    /// The identity of a client without a token, if no token is required.
    anyone: ClientIdentity,
    room: Arc<Semaphore>,
}

impl Door {
    /// Answers a request; a refused request is read completely first.
    async fn answer_request(&self, request: Request<Incoming>, caller: &Caller) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = SharedBody::new(body);
        let response = self.let_in(Request::from_parts(head, body.clone()), caller).await;
        if response.status().is_client_error() || response.status().is_server_error() {
            body.discard_rest().await;
        }
        response
    }

    /// The sender of a request; `None` if the token is missing or wrong.
    fn identify_client(&self, headers: &HeaderMap) -> Option<&ClientIdentity> {
        let Some(identities) = &self.identities else { return Some(&self.anyone) };
        let token = token_of(headers)?;
        identities.iter().find(|(known, _)| *known == token).map(|(_, identity)| identity)
    }

    async fn let_in(&self, mut request: Request<SharedBody>, caller: &Caller) -> Response<Body> {
        if request.uri().path() != PATH {
            return plain_response(
                StatusCode::NOT_FOUND,
                "lobster speaks the Model Context Protocol at /mcp\n",
            );
        }
        let Some(identity) = self.identify_client(request.headers()).cloned() else {
            let mut refused =
                plain_response(StatusCode::UNAUTHORIZED, "the bearer token is missing or wrong\n");
            refused.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                header::HeaderValue::from_static("Bearer realm=\"lobster\""),
            );
            return refused;
        };
        if !self.acquire_permit(caller) {
            return plain_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many connections; come back later\n",
            );
        }
        caller.newcomer.mark_accepted();
        let owner = identity.name.clone();
        request.extensions_mut().insert(identity);
        // A session belongs to the client that began it.
        self.endpoint.handle_request(request, Some(owner)).await
    }

    /// True if the connection has a permit, or gets one now.
    fn acquire_permit(&self, caller: &Caller) -> bool {
        let mut seat = lock(&caller.seat);
        if seat.is_none() {
            *seat = Arc::clone(&self.room).try_acquire_owned().ok();
        }
        seat.is_some()
    }
}

fn token_of(headers: &HeaderMap) -> Option<Digest> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Digest::of_bytes(token.trim().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_options(address: &str, token: ClientToken, hosts: &[&str]) -> Options {
        Options {
            place: ListenPlace::Port(address.parse().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))),
            token,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            origins: Vec::new(),
            idle: SESSION_IDLE,
        }
    }

    #[test]
    fn only_this_machine_is_let_in_without_a_token_of_the_operators() {
        let given = |text: &str| ClientToken::read_given(text).unwrap();
        let long = || given("0123456789abcdef");
        let made = || ClientToken::Made("0123456789abcdef".to_owned());
        for (address, token, hosts, good) in [
            ("127.0.0.1:0", ClientToken::Off, &[][..], true),
            ("[::1]:0", made(), &[][..], true),
            ("10.0.0.1:80", ClientToken::Off, &[][..], false),
            ("10.0.0.1:80", made(), &[][..], false),
            ("10.0.0.1:80", long(), &[][..], true),
            ("10.0.0.1:80", given("short"), &[][..], false),
            ("0.0.0.0:80", long(), &[][..], false),
            ("0.0.0.0:80", long(), &["box.example"][..], true),
        ] {
            assert_eq!(
                test_options(address, token, hosts).check_exposure().is_ok(),
                good,
                "{address} {hosts:?}"
            );
        }
    }

    #[test]
    fn tokens_that_are_made_are_long_and_differ() {
        let (one, other) =
            (ClientToken::make_random().ok().unwrap(), ClientToken::make_random().ok().unwrap());
        assert!(one != other && matches!(one, ClientToken::Made(token) if token.len() == 64));
    }

    #[test]
    fn each_token_is_somebody() {
        let names = |text: &str| -> Result<Vec<(String, bool)>, String> {
            let identities = ClientToken::read_given(text)?.client_identities().unwrap();
            Ok(identities.into_iter().map(|(_, who)| (who.name, who.is_named)).collect())
        };
        let named = |name: &str| (name.to_owned(), true);
        assert_eq!(
            names("ann 0123456789abcdef\n# of the night\nbob fedcba9876543210\n"),
            Ok(vec![named("ann"), named("bob")])
        );
        let alone = names("0123456789abcdef\n").unwrap();
        assert!(alone.len() == 1 && alone[0].0.starts_with("token-") && !alone[0].1, "{alone:?}");
        for bad in [
            "a b c",
            "ann 0123456789abcdef\nann fedcba9876543210",
            "ann 0123456789abcdef\nbob 0123456789abcdef",
        ] {
            assert!(names(bad).is_err(), "{bad}");
        }
    }
}
