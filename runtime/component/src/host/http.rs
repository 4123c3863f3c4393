//! `wasi:http` requests to granted hosts. The run's own resolver resolves the name, and the connection
//! goes to the checked address. Only the program follows redirects, so each target is checked again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::client::conn::http1;
use lobster_credentials::{Credential, Masked, Proof, Sent, Unready};
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::bindings::sockets::network::ErrorCode;
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use crate::host::network::NetGrants;
use crate::host::services::Tracer;
use crate::state::State;

/// Time limit of a connection if the program sets none.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Most connections of one run at once: each needs buffers and a descriptor of the host.
const MAX_CONNECTIONS: usize = 128;

/// Most bytes of a request body that wait to be sent.
const BODY_CHUNK: usize = 64 << 10;

/// Largest request or response body that is recorded.
const MAX_RECORDED: usize = 16 << 20;

/// Sends the requests of one run.
pub(crate) struct Http {
    pub(crate) net: Arc<NetGrants>,
    pub(crate) tracer: Tracer,
    /// Added to requests when they leave: neither the program nor the record sees them.
    credentials: Arc<[Credential]>,
    connections: Arc<Semaphore>,
}

impl Http {
    pub(crate) fn new(net: Arc<NetGrants>, tracer: Tracer, credentials: Vec<Credential>) -> Self {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Self { net, tracer, credentials: credentials.into(), connections }
    }
}

/// Everything that sending a request needs.
struct Way {
    net: Arc<NetGrants>,
    credentials: Arc<[Credential]>,
    connections: Arc<Semaphore>,
}

/// Drives a connection in the background while its response is read.
type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

type Answer = Result<(Response<WasiBody>, Driver), Error>;

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.http, table: &mut self.table, ctx: &mut self.http_limits }
    }
}

impl WasiHttpHooks for Http {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Driver,
    ) -> Box<dyn Future<Output = Answer> + Send> {
        let way = Way {
            net: self.net.clone(),
            credentials: self.credentials.clone(),
            connections: self.connections.clone(),
        };
        let tracer = self.tracer.clone();
        let options = options.unwrap_or_default();
        Box::new(async move {
            if tracer.is_on() {
                replay_or_send(&way, &tracer, request, options).await
            } else {
                send_with_credential(&way, request, options).await
            }
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }
}

/// Version of the interface that the library links; programs that import another 0.2 version get the
/// same.
const TYPES: &str = "wasi:http/types@0.2.12";

/// Longest host and port in bytes. A name has at most 253 (RFC 1035, section 2.3.4).
const MAX_AUTHORITY: usize = 1 << 10;

/// Longest method name in bytes. Registered methods have up to 17 (RFC 9110, section 16.1.1).
const MAX_METHOD: usize = 64;

/// Result of these setters: WASI reports a refusal without a reason.
type Answered = wasmtime::Result<(Result<(), ()>,)>;

/// Links the setters of a request whose values have no length limit in the library: the host stores
/// these values outside of the program's memory.
pub(super) fn bound_requests(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store, (request, method): (Resource<HostOutgoingRequest>, Method)| -> Answered {
            if matches!(&method, Method::Other(name) if name.len() > MAX_METHOD) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store, (request, authority): (Resource<HostOutgoingRequest>, Option<String>)| -> Answered {
            if authority.as_ref().is_some_and(|authority| authority.len() > MAX_AUTHORITY) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,))
        },
    )
}

/// Sends a request with its credential, and again with a new token if the server rejected the first
/// one.
async fn send_with_credential(way: &Way, request: Request<WasiBody>, options: RequestOptions) -> Answer {
    let to = Destination::from_request(&request)?;
    let credential = way.credentials.iter().find(|known| to.https && known.is_for(&to.host, to.port));
    let Some(credential) = credential else { return to.send_once(way, request, &options).await };
    let (parts, body) = request.into_parts();
    let proof = match credential.proof_for(parts.method.as_str(), &to.path.to_string(), &parts.headers).await
    {
        Ok(proof) => proof,
        // Outside of the credential's bounds, the request goes out unchanged.
        Err(Unready::OutOfBounds(_)) => {
            return to.send_once(way, Request::from_parts(parts, body), &options).await;
        }
        Err(error) => return Err(Error::InternalError(Some(error.to_string()))),
    };
    let body = Sent::from_body(body, credential.is_renewed()).await?;
    let again = body.copy_to_resend();
    let request = |proof: &Proof, body: Sent<WasiBody>| {
        let mut parts = parts.clone();
        proof.add_to(&mut parts.headers);
        Request::from_parts(parts, wasi_body(body))
    };
    let mut answer = to.send_once(way, request(&proof, body), &options).await?;
    if answer.0.status() == StatusCode::UNAUTHORIZED
        && let (Ok(Some(other)), Some(body)) = (credential.proof_in_place_of(&proof).await, again)
    {
        answer = to.send_once(way, request(&other, body), &options).await?;
    }
    let (response, driver) = answer;
    let (mut head, body) = response.into_parts();
    credential.hide_in(&mut head.headers);
    let body = Masked::new(body, credential.echo_mask());
    Ok((Response::from_parts(head, body.boxed_unsync()), driver))
}

fn wasi_body(body: Sent<WasiBody>) -> WasiBody {
    match body {
        Sent::Nothing => Empty::new().map_err(Error::from).boxed_unsync(),
        Sent::Whole(bytes) => Full::new(bytes).map_err(Error::from).boxed_unsync(),
        Sent::Stream(body) => body,
    }
}

/// Destination of a request.
struct Destination {
    https: bool,
    host: String,
    port: u16,
    /// Without a proxy, the request names the path alone.
    path: Uri,
}

impl Destination {
    fn from_request(request: &Request<WasiBody>) -> Result<Self, Error> {
        let https = request.uri().scheme() == Some(&Scheme::HTTPS);
        let authority = request.uri().authority().ok_or(Error::HttpRequestUriInvalid)?;
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        Ok(Self {
            https,
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            path: path.parse().map_err(|_| Error::HttpRequestUriInvalid)?,
        })
    }

    /// Sends one request over its own connection.
    async fn send_once(&self, way: &Way, mut request: Request<WasiBody>, options: &RequestOptions) -> Answer {
        let place = way.connections.clone().try_acquire_owned();
        let place = place.map_err(|_| Error::ConnectionLimitReached)?;
        let patience = options.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let connecting = async {
            let stream = connect_granted(&way.net, &self.host, self.port).await?;
            stream.set_nodelay(true).map_err(Error::Connect)?;
            let stream: Box<dyn Stream> =
                if self.https { Box::new(start_tls(stream, &self.host).await?) } else { Box::new(stream) };
            Ok::<_, Error>(http1::handshake(TokioIo::new(stream)).await?)
        };
        let (mut sender, connection) =
            tokio::time::timeout(patience, connecting).await.map_err(|_| Error::ConnectionTimeout)??;
        *request.uri_mut() = self.path.clone();
        let driver = wasmtime_wasi::runtime::spawn(async move {
            let ended = connection.await.map_err(Error::from);
            drop(place);
            ended
        });
        let sending = sender.send_request(request);
        let response = match options.first_byte_timeout {
            Some(patience) => {
                tokio::time::timeout(patience, sending).await.map_err(|_| Error::ConnectionReadTimeout)?
            }
            None => sending.await,
        }?;
        let driver: Driver = Box::new(driver);
        Ok((response.map(|body| body.map_err(Error::from).boxed_unsync()), driver))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect_granted(net: &NetGrants, host: &str, port: u16) -> Result<TcpStream, Error> {
    let addresses = net.resolve_host(host).await.map_err(|code| match code {
        ErrorCode::AccessDenied => Error::HttpRequestDenied,
        ErrorCode::InvalidArgument => Error::HttpRequestUriInvalid,
        _ => Error::DestinationNotFound,
    })?;
    let mut last = Error::HttpRequestDenied;
    for address in addresses {
        let address = SocketAddr::new(address, port);
        if !net.allows(address, SocketAddrUse::TcpConnect) {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Error::Connect(error),
        }
    }
    Err(last)
}

async fn start_tls(
    stream: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    let internal = |message: String| Error::InternalError(Some(message));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| internal(format!("no certificates to trust: {error}")))?
        .with_no_client_auth();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|_| Error::HttpRequestUriInvalid)?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(Error::Tls)
}

/// Recorded form of a request: everything except the time when it was sent.
#[derive(Serialize)]
struct Question<'a> {
    method: &'a str,
    uri: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

/// Sends a request unless the record has its answer. Bodies are held in memory as a whole.
async fn replay_or_send(
    way: &Way,
    tracer: &Tracer,
    request: Request<WasiBody>,
    options: RequestOptions,
) -> Answer {
    let (parts, body) = request.into_parts();
    let body = collect_body(body, || Error::HttpRequestBodySize(None)).await?;
    let question = Question {
        method: parts.method.as_str(),
        uri: parts.uri.to_string(),
        headers: plain_headers(&parts.headers),
        body: blake3::hash(&body).to_hex().to_string(),
    };
    let internal = |message: String| Error::InternalError(Some(message));
    let question = serde_json::to_vec(&question).map_err(|error| internal(error.to_string()))?;
    match tracer.recorded_answer("http", &question) {
        Ok(Some(answer)) => {
            if let Some(name) = answer.strip_prefix(FAILED) {
                return Err(error_from_name(&String::from_utf8_lossy(name)));
            }
            return parse_recorded(&answer)
                .ok_or_else(|| internal("the recorded answer is damaged".to_owned()));
        }
        Ok(None) => {}
        // The run ends at its next check; until then, the request has failed.
        Err(()) => return Err(internal("the run departed from its record".to_owned())),
    }
    let body = Full::new(body).map_err(Error::from).boxed_unsync();
    let answer = match whole_answer(way, Request::from_parts(parts, body), options).await {
        Ok(answer) => answer,
        Err(error) => {
            // The program gets only as much detail as the record can repeat.
            let name = failure_name(&error);
            tracer.record_answer("http", &question, &[FAILED, name.as_bytes()].concat());
            return Err(error_from_name(&name));
        }
    };
    tracer.record_answer("http", &question, &answer);
    parse_recorded(&answer).ok_or_else(|| internal("the answer cannot be recorded".to_owned()))
}

/// Sends a request and returns its answer in recorded form: the head as JSON, a line end, the body.
async fn whole_answer(
    way: &Way,
    request: Request<WasiBody>,
    options: RequestOptions,
) -> Result<Vec<u8>, Error> {
    let (response, driver) = send_with_credential(way, request, options).await?;
    let (parts, body) = response.into_parts();
    let body = collect_body(body, || Error::HttpResponseBodySize(None)).await?;
    drop(driver);
    let head = Head { status: parts.status.as_u16(), headers: plain_headers(&parts.headers) };
    let mut answer =
        serde_json::to_vec(&head).map_err(|error| Error::InternalError(Some(error.to_string())))?;
    answer.push(b'\n');
    answer.extend_from_slice(&body);
    Ok(answer)
}

/// First byte of the recorded answer to a failed request.
const FAILED: &[u8] = b"!";

/// Name of the error, for [`error_from_name`].
fn failure_name(error: &Error) -> String {
    match error {
        Error::HttpRequestDenied => "denied".to_owned(),
        Error::HttpRequestUriInvalid => "uri-invalid".to_owned(),
        Error::DestinationNotFound => "not-found".to_owned(),
        Error::ConnectionTimeout => "connection-timeout".to_owned(),
        Error::ConnectionReadTimeout => "read-timeout".to_owned(),
        Error::ConnectionLimitReached => "connection-limit".to_owned(),
        Error::HttpResponseBodySize(_) => "response-too-large".to_owned(),
        Error::Connect(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "refused".to_owned()
        }
        Error::Connect(_) => "unreachable".to_owned(),
        Error::Tls(_) => "tls".to_owned(),
        Error::InternalError(Some(why)) => why.clone(),
        other => format!("{other:?}"),
    }
}

fn error_from_name(name: &str) -> Error {
    match name {
        "denied" => Error::HttpRequestDenied,
        "uri-invalid" => Error::HttpRequestUriInvalid,
        "not-found" => Error::DestinationNotFound,
        "connection-timeout" => Error::ConnectionTimeout,
        "read-timeout" => Error::ConnectionReadTimeout,
        "connection-limit" => Error::ConnectionLimitReached,
        "response-too-large" => Error::HttpResponseBodySize(None),
        "refused" => Error::ConnectionRefused,
        "unreachable" => Error::DestinationUnavailable,
        "tls" => Error::TlsProtocolError,
        other => Error::InternalError(Some(other.to_owned())),
    }
}

pub(crate) async fn collect_body(body: WasiBody, too_large: impl FnOnce() -> Error) -> Result<Bytes, Error> {
    match Limited::new(body, MAX_RECORDED).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(error.downcast::<Error>().map_or_else(|_| too_large(), |own| *own)),
    }
}

/// Parses the recorded head up to the first line end, then the body.
fn parse_recorded(answer: &[u8]) -> Option<(Response<WasiBody>, Driver)> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let (head, body) = (answer.get(..end)?, answer.get(end + 1..)?);
    let head: Head = serde_json::from_slice(head).ok()?;
    let mut response = Response::builder().status(head.status);
    for (name, value) in head.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        response = response.header(name, header_value(&value)?);
    }
    let body = Full::new(Bytes::copy_from_slice(body)).map_err(Error::from).boxed_unsync();
    let driver: Driver = Box::new(std::future::ready(Ok(())));
    Some((response.body(body).ok()?, driver))
}

/// Headers as text: each byte is one character.
pub(crate) fn plain_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// Header value of such a text; `None` if no header can have it.
pub(crate) fn header_value(text: &str) -> Option<HeaderValue> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    HeaderValue::from_bytes(&bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostCall, HostCallTrace};
    use lobster_base::sync::lock;
    use std::io::{Read, Write};
    use std::sync::Mutex;

    /// Answers `count` requests on a free port of this machine.
    fn start_server(count: usize) -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("{e}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        std::thread::spawn(move || {
            for stream in listener.incoming().take(count) {
                let Ok(mut stream) = stream else { continue };
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap_or(0);
                let line = String::from_utf8_lossy(&request[..read]);
                let path = line.split(' ').nth(1).unwrap_or("").to_owned();
                let _ =
                    write!(stream, "HTTP/1.1 203 Fine\r\nx-seen: {path}\r\ncontent-length: 4\r\n\r\nbody");
            }
        });
        port
    }

    fn get(http: &mut Http, uri: &str) -> Result<(u16, String, String), String> {
        let body = Full::new(Bytes::new()).map_err(Error::from).boxed_unsync();
        let request =
            Request::builder().uri(uri).header("host", "x").body(body).map_err(|e| e.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let sent = Box::into_pin(http.send_request(request, None, Box::new(std::future::ready(Ok(())))));
            let (response, _driver) = sent.await.map_err(|error| error.to_string())?;
            let seen =
                response.headers().get("x-seen").and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
            Ok((status, seen, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        })
    }

    fn http_client(grants: &[String], trace: Option<Box<dyn HostCallTrace>>) -> Http {
        let net = NetGrants::parse_hosts(grants).unwrap_or_else(|error| panic!("{error}"));
        Http::new(net, Tracer::new(trace), Vec::new())
    }

    #[test]
    fn requests_go_to_granted_hosts_only() {
        let port = start_server(1);
        let mut granted = http_client(&[format!("localhost:{port}")], None);
        assert_eq!(
            get(&mut granted, &format!("http://localhost:{port}/a?b")),
            Ok((203, "/a?b".into(), "body".into()))
        );
        for uri in [
            format!("http://127.0.0.2:{port}/"),
            "http://localhost:1/".to_owned(),
            "http://169.254.169.254/latest".to_owned(),
        ] {
            assert_eq!(get(&mut granted, &uri), Err("HTTP request denied".into()), "{uri}");
        }
    }

    /// Records answers, and replays them after a rewind.
    #[derive(Default)]
    struct Tape(Vec<(Vec<u8>, Vec<u8>)>, Option<usize>);

    impl HostCallTrace for Tape {
        fn recorded_answer(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
            let Some(at) = &mut self.1 else { return Ok(None) };
            let (request, answer) = self.0.get(*at).ok_or("the record is at its end")?;
            *at += 1;
            if request == call.request { Ok(Some(answer.clone())) } else { Err("another request".to_owned()) }
        }

        fn record_answer(&mut self, call: &HostCall<'_>, answer: &[u8]) {
            self.0.push((call.request.to_vec(), answer.to_vec()));
        }
    }

    #[test]
    fn a_recorded_answer_is_given_again_without_the_network() {
        let port = start_server(1);
        let tape = Arc::new(Mutex::new(Tape::default()));
        let uri = format!("http://localhost:{port}/once");
        let grants = [format!("localhost:{port}")];
        let live = get(&mut http_client(&grants, Some(Box::new(tape.clone()))), &uri);
        assert_eq!(live, Ok((203, "/once".into(), "body".into())));
        lock(&tape).1 = Some(0);
        let mut replay = http_client(&grants, Some(Box::new(tape.clone())));
        assert_eq!(get(&mut replay, &uri), live);
        assert!(get(&mut replay, &uri).is_err());
        assert!(replay.tracer.take_divergence().is_some());
    }
}
