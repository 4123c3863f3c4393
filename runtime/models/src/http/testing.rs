//! A real HTTP server on the loopback that gives prepared answers and plays faults.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the tests of two crates share it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The answer to one connection.
#[derive(Clone)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    /// Keep the connection open and silent after the bytes.
    hang: bool,
}

impl Answer {
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self::raw(&format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    }

    pub(crate) fn json(body: &serde_json::Value) -> Self {
        Self::new(200, &body.to_string())
    }

    pub(crate) fn redirect(status: u16, to: &str) -> Self {
        Self::raw(&format!("HTTP/1.1 {status} X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"))
    }

    pub(crate) fn raw(bytes: &str) -> Self {
        Self { bytes: bytes.as_bytes().to_vec(), hang: false }
    }

    pub(crate) fn hang() -> Self {
        Self::hang_after("")
    }

    pub(crate) fn hang_after(bytes: &str) -> Self {
        Self { hang: true, ..Self::raw(bytes) }
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Answers one request per connection; repeats the last answer.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(crate) fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let mut answers = answers.into_iter().collect::<Vec<_>>().into_iter();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            let mut last = None;
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Some(request) = read(&mut stream) else { continue };
                log.lock().unwrap().push(request);
                last = answers.next().or(last);
                let Some(answer) = &last else { continue };
                // Some tests close the connection early.
                let _ = stream.write_all(&answer.bytes);
                if answer.hang {
                    kept.push(stream);
                }
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(stream: &mut TcpStream) -> Option<Seen> {
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
    let mut seen = Seen { method, path, headers, body: String::new() };
    let length = seen.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    seen.body = String::from_utf8(body).ok()?;
    Some(seen)
}
