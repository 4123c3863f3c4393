//! A real HTTP server on the loopback that answers as a test tells it, and plays faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
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

    /// The answer of a server with `/chat/completions`.
    pub(crate) fn chat(content: &str) -> Self {
        Self::json(&serde_json::json!({
            "id": "c", "model": "gpt-4o",
            "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }))
    }
}

/// Answers one request per connection.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request with the number of those before it.
    pub(crate) fn start(answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (log, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read(&mut stream) else { return };
                    let before = {
                        let mut log = log.lock().unwrap();
                        log.push(request.clone());
                        log.len() - 1
                    };
                    match answer(before, &request) {
                        // A client that is gone is what some tests want.
                        Reply::Bytes(bytes) => drop(stream.write_all(&bytes)),
                        Reply::Silence => {
                            let _ = stream.read_to_end(&mut Vec::new());
                        }
                    }
                });
            }
        });
        Self { address, seen }
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

fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split_whitespace().nth(1)?.to_owned();
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
    Some(Request { path, headers, body })
}
