//! Attacks a running server from outside, as a stranger on this machine could. It changes nothing if the attacks fail.
//! Where possible, it names the effect of a successful attack without causing it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lobster_runtime::sync::lock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::http::{Access, COOKIE, MAX_BODY, Route, routes};
use crate::net::check_certificate;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One promise with the result of its test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub promise: &'static str,
    /// Number of attempts.
    pub tries: usize,
    /// Attempts that succeeded and must not.
    pub broken: Vec<String>,
}

/// The headers of an attack, added to each route.
struct Disguise {
    promise: &'static str,
    host: Option<&'static str>,
    headers: String,
    /// Statuses that refuse the attack.
    refusals: &'static [u16],
    /// True if routes that are open to everyone are tried as well.
    open_too: bool,
    /// Number of routes that are tried: a caller who fails too often with a secret is ignored for a while.
    routes: usize,
}

/// Attacks the server that listens at an address and that people reach at `url`.
///
/// # Errors
/// Fails if the server cannot be reached or does not speak HTTP.
pub fn attack(listen: SocketAddr, url: &str) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    // An unspecified address cannot be connected to and is not a name, so the server is called as people call it.
    let (address, name) = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            (loopback_address(Ipv4Addr::LOCALHOST, listen), url_authority(url))
        }
        IpAddr::V6(ip) if ip.is_unspecified() => {
            (loopback_address(Ipv6Addr::LOCALHOST, listen), url_authority(url))
        }
        _ => (listen, listen.to_string()),
    };
    let host = format!("Host: {name}\r\n");
    let way = match send_request(address, &Way::Plain, "GET", "/healthz", &host) {
        Ok(_) => Way::Plain,
        Err(_) => Way::with_tls()?,
    };
    let health = send_request(address, &way, "GET", "/healthz", &host)?;
    if !matches!(health, 200 | 503) {
        return Err(format!("{address} answered {health} to /healthz when it was called {name}"));
    }
    if let Way::Tls(_, shown) = &way {
        let chain = lock(&shown.chain).clone();
        let wrong = check_certificate(&chain, &[]).err();
        let promise = "its certificate is valid now";
        found.push(Finding { promise, tries: 1, broken: wrong.into_iter().collect() });
    }
    let made_up = format!("lob_{}", "A".repeat(43));
    let disguise = |promise, headers: String, refusals: &'static [u16]| Disguise {
        promise,
        host: None,
        headers,
        refusals,
        open_too: false,
        routes: usize::MAX,
    };
    let token = format!("Authorization: Bearer {made_up}\r\n");
    let session = format!("Cookie: {COOKIE}={made_up}\r\nSec-Fetch-Site: same-origin\r\n");
    let other_origin = "Origin: https://other.example\r\nSec-Fetch-Site: cross-site\r\n".to_owned();
    let disguises = [
        disguise("no route answers without a login", String::new(), &[401]),
        Disguise { routes: 1, ..disguise("a made-up token is rejected", token, &[401, 429]) },
        Disguise { routes: 1, ..disguise("a made-up session is rejected", session, &[401, 429]) },
        Disguise {
            host: Some("rebound.example"),
            open_too: true,
            ..disguise("another name is not answered (DNS rebinding)", String::new(), &[421])
        },
        disguise("a page of another origin is refused", other_origin, &[401, 403]),
    ];
    for disguise in &disguises {
        let mut finding = Finding { promise: disguise.promise, tries: 0, broken: Vec::new() };
        let tried = routes().iter().filter(|route| disguise.open_too || route.access != Access::Open);
        for route in tried.take(disguise.routes) {
            let host = disguise.host.unwrap_or(&name);
            let path = path_of(route);
            let headers = format!("Host: {host}\r\n{}", disguise.headers);
            let status = send_request(address, &way, route.method, &path, &headers)?;
            finding.tries += 1;
            if !disguise.refusals.contains(&status) {
                finding.broken.push(format!("{} {path}: {status}", route.method));
            }
        }
        found.push(finding);
    }
    let large =
        format!("Host: {name}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", MAX_BODY * 2048);
    let status = send_request(address, &way, "POST", "/api/v1/login", &large)?;
    found.push(Finding {
        promise: "a body that is too large is not read",
        tries: 1,
        broken: if status == 413 { Vec::new() } else { vec![format!("POST /api/v1/login: {status}")] },
    });
    Ok(found)
}

fn loopback_address(ip: impl Into<IpAddr>, listen: SocketAddr) -> SocketAddr {
    SocketAddr::new(ip.into(), listen.port())
}

/// Extracts `flows.example:7410` from `https://flows.example:7410/console`.
fn url_authority(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default().to_owned()
}

/// A path of a route whose parameters name nothing that exists.
fn path_of(route: &Route) -> String {
    let parts = route.path.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Sends a request and returns the status of the answer.
fn send_request(
    address: SocketAddr,
    way: &Way,
    method: &str,
    path: &str,
    headers: &str,
) -> Result<u16, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let plain = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    plain.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut stream: Box<dyn Wire> = match way {
        Way::Plain => Box::new(plain),
        Way::Tls(config, _) => {
            let name = ServerName::IpAddress(address.ip().into());
            let connection =
                ClientConnection::new(Arc::clone(config), name).map_err(|error| error.to_string())?;
            Box::new(StreamOwned::new(connection, plain))
        }
    };
    write!(stream, "{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").map_err(failed)?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).map_err(failed)?;
    let head = String::from_utf8_lossy(&answer[..length]).into_owned();
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.ok_or_else(|| format!("{address} does not speak HTTP, so it is not tested"))
}

/// The protocol of a server's connections.
enum Way {
    Plain,
    Tls(Arc<ClientConfig>, Arc<Shown>),
}

trait Wire: std::io::Read + std::io::Write {}
impl<T: std::io::Read + std::io::Write> Wire for T {}

impl Way {
    fn with_tls() -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown =
            Arc::new(Shown { chain: Mutex::default(), known: provider.signature_verification_algorithms });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        // Any certificate is accepted: it is checked afterwards, and nothing secret is sent.
        let verifier = Arc::<Shown>::clone(&shown);
        let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Self::Tls(Arc::new(config), shown))
    }
}

/// The certificate that a server presents.
#[derive(Debug)]
struct Shown {
    chain: Mutex<Vec<CertificateDer<'static>>>,
    known: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = std::iter::once(leaf).chain(rest).map(|one| one.clone().into_owned());
        *lock(&self.chain) = chain.collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_schemes()
    }
}
