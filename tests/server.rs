//! A real HTTP server on the loopback that answers as a test tells it, and plays faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What a connection is answered with.
pub(crate) enum Reply {
    /// These bytes, then the connection ends.
    Bytes(Vec<u8>),
    /// These bytes, and the connection stays open.
    ThenSilence(Vec<u8>),
    /// Nothing, and the connection stays open.
    Silence,
}

impl Reply {
    pub(crate) fn status(status: u16, headers: &str, body: &str) -> Self {
        let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len());
        Self::Bytes((head + body).into_bytes())
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::status(200, "content-type: application/json\r\n", &body.to_string())
    }

    /// The same, and the connection stays open.
    pub(crate) fn kept_open(self) -> Self {
        match self {
            Self::Bytes(bytes) => Self::ThenSilence(bytes),
            other => other,
        }
    }

    /// The answer of a server with `/chat/completions`.
    pub(crate) fn chat(content: &str) -> Self {
        Self::json(&serde_json::json!({
            "id": "c", "model": "gpt-4o",
            "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }))
    }
}

/// Answers one request per connection, over TLS as many as come.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request with the number of those before it.
    pub(crate) fn start(answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::answering(answer, None)
    }

    /// The same over TLS, for whoever trusts [`authority`].
    pub(crate) fn start_tls(answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::answering(answer, Some(tls()))
    }

    fn answering(
        answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (log, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                let serve = move |stream: &mut dyn Stream| {
                    let Some(request) = read(stream) else { return false };
                    let before = {
                        let mut log = log.lock().unwrap();
                        log.push(request.clone());
                        log.len() - 1
                    };
                    match answer(before, &request) {
                        // A client that is gone is what some tests want.
                        Reply::Bytes(bytes) => stream.write_all(&bytes).and_then(|()| stream.flush()).is_ok(),
                        Reply::ThenSilence(bytes) => {
                            let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
                            let _ = stream.read_to_end(&mut Vec::new());
                            false
                        }
                        Reply::Silence => {
                            let _ = stream.read_to_end(&mut Vec::new());
                            false
                        }
                    }
                };
                let tls = tls.clone();
                std::thread::spawn(move || match tls {
                    None => drop(serve(&mut stream)),
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        let mut stream = StreamOwned::new(connection, stream);
                        while serve(&mut stream) {}
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) fn wait_for(&self, count: usize) {
        let begun = Instant::now();
        while self.seen.lock().unwrap().len() < count {
            assert!(begun.elapsed() < Duration::from_secs(30), "no request came");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Both ends of a connection.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The certificate of the authority that servers of these tests have theirs from.
pub(crate) fn authority() -> PathBuf {
    crate::binary::repository().join("tests/tls/ca.pem")
}

/// What servers of these tests encrypt with.
pub(crate) fn tls() -> Arc<ServerConfig> {
    let place = crate::binary::repository().join("tests/tls");
    let chain =
        CertificateDer::pem_file_iter(place.join("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(place.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key);
    Arc::new(config.unwrap())
}

fn read(stream: &mut dyn Stream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(Some(0), |(_, length)| length.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body })
}
