//! lobster as a server over HTTP: who gets in, and what ends with a session.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::Home;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is ended with the test.
struct Served {
    child: Child,
    said: Vec<String>,
    address: String,
}

impl Served {
    /// Reads `lines` lines of what it says about itself.
    fn start(home: &Home, words: &[&str], lines: usize) -> Self {
        let mut child = home.lobster(["mcp"].iter().chain(words)).start();
        let mut from = BufReader::new(child.stderr.take().unwrap());
        let said: Vec<String> = (0..lines)
            .map(|_| {
                let mut line = String::new();
                from.read_line(&mut line).unwrap();
                line.trim_end().to_owned()
            })
            .collect();
        let address = said[0].split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_default().to_owned();
        // It must be able to go on writing.
        std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
        Self { child, said, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a message, and gives the head of the answer.
    fn post(&self, headers: &str, message: &Value) -> String {
        let mut stream = self.connect();
        send(&mut stream, "POST", &format!("Host: {}\r\n{headers}", self.address), &message.to_string());
        head(&mut stream)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(stream: &mut impl Write, method: &str, headers: &str, body: &str) {
    write!(
        stream,
        "{method} /mcp HTTP/1.1\r\n{headers}Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
}

fn head(stream: &mut impl Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}})
}

#[test]
fn a_token_is_made_and_printed_for_clients() {
    let home = Home::new();
    let served = Served::start(&home, &["--http", "127.0.0.1:0"], 3);
    let token = served.said[1].split("Bearer ").nth(1).unwrap();
    assert_eq!(token.len(), 64, "{:?}", served.said);
    let config: Value = serde_json::from_str(&served.said[2][served.said[2].find('{').unwrap()..]).unwrap();
    let server = &config["mcpServers"]["lobster"];
    assert_eq!(server["headers"]["Authorization"], format!("Bearer {token}"));
    assert_eq!(server["url"], format!("http://{}/mcp", served.address));
    assert_eq!(status(&served.post("", &initialize())), 401);
    let wrong = format!("Authorization: Bearer {}0\r\n", &token[..63]);
    assert!(token.ends_with('0') || status(&served.post(&wrong, &initialize())) == 401);
    assert_eq!(status(&served.post(&format!("Authorization: Bearer {token}\r\n"), &initialize())), 200);
    drop(served);

    let open = Served::start(&home, &["--http", "127.0.0.1:0", "--no-token"], 2);
    assert!(open.said[1].contains("every user"), "{:?}", open.said);
    assert_eq!(status(&open.post("", &initialize())), 200);
    let refused = home.lobster(["mcp", "--http", "10.0.0.1:1", "--no-token"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("--token-file"), "{refused:?}");
}

#[test]
fn a_socket_file_is_for_its_user_alone() {
    let home = Home::new();
    let path = home.dir().join("run/lobster.sock");
    let served = Served::start(&home, &["--socket", "run/lobster.sock"], 2);
    assert!(served.said[0].contains("unix:"), "{:?}", served.said);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    send(&mut stream, "POST", "Host: localhost\r\n", &initialize().to_string());
    assert_eq!(status(&head(&mut stream)), 200);
    let mut page = UnixStream::connect(&path).unwrap();
    send(&mut page, "POST", "Host: localhost\r\nOrigin: http://evil.example\r\n", &initialize().to_string());
    assert_eq!(status(&head(&mut page)), 403);
    let second = home.lobster(["mcp", "--socket", "run/lobster.sock"]).run();
    assert!(second.stderr.contains("another server"), "{second:?}");
    // Killed: the file stays, and the next server takes its place.
    drop(served);
    assert!(path.exists());
    drop(Served::start(&home, &["--socket", "run/lobster.sock"], 2));
    let shared = home.dir().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = home.lobster(["mcp", "--socket", "shared/s"]).run();
    assert!(refused.code() != 0 && refused.stderr.contains("yours alone"), "{refused:?}");
}

#[test]
fn a_refusal_arrives_though_the_client_is_still_sending() {
    let home = Home::new();
    let served = Served::start(&home, &["--http", "127.0.0.1:0"], 3);
    let by_path = format!("Host: {}\r\n", served.address);
    for (path, headers, wanted) in [
        ("/mcp", by_path.clone(), 401),
        ("/elsewhere", by_path, 404),
        ("/mcp", format!("Host: evil.example\r\nAuthorization: {}\r\n", authorization(&served)), 403),
    ] {
        let mut stream = served.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\n{headers}Content-Type: application/json\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: 60000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // By now a server that answers at once has answered, and closed.
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..60 {
            stream.write_all(&[b' '; 1000]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(status(&answer), wanted, "{path}: {answer}");
    }
    // One who does not send what they announced keeps no connection.
    let mut stream = served.connect();
    stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n").unwrap();
    let began = Instant::now();
    assert_eq!(status(&head(&mut stream)), 401);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

fn authorization(served: &Served) -> &str {
    served.said[1].split_once("Authorization: ").unwrap().1
}

#[test]
fn half_open_connections_keep_nobody_out() {
    let home = Home::new();
    let served = Served::start(&home, &["--http", "127.0.0.1:0", "--no-token"], 2);
    let half: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = served.connect();
            let _ = stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: ");
            stream
        })
        .collect();
    let began = Instant::now();
    assert_eq!(status(&served.post("", &initialize())), 200);
    // Theirs are kept for 15 s.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    drop(half);
}

/// A session with a call under way that sleeps for a minute; its connection, if it is to stay.
fn session_that_sleeps(served: &Served, home: &Home) -> (String, TcpStream) {
    let began = served.post("", &initialize());
    let id = began.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    let id = id.unwrap_or_else(|| panic!("{began}"));
    let of_session = format!("Mcp-Session-Id: {id}\r\nMcp-Protocol-Version: 2025-06-18\r\n");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(status(&served.post(&of_session, &initialized)), 202);
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run", "arguments": {"pipeline": "exec sleep 60", "timeoutMs": 60000}}});
    let mut stream = served.connect();
    send(&mut stream, "POST", &format!("Host: {}\r\n{of_session}", served.address), &call.to_string());
    until(home, "running", "the call runs");
    (of_session, stream)
}

fn runs(home: &Home, status: &str) -> usize {
    home.lobster(["runs", "--status", status, "--json"]).run().stdout.matches("exec sleep 60").count().min(1)
}

fn until(home: &Home, status: &str, what: &str) {
    let began = Instant::now();
    while runs(home, status) == 0 {
        let late = began.elapsed() > Duration::from_secs(60);
        assert!(!late, "{what}: {}", home.lobster(["runs", "--json"]).run().stdout);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_a_session_started_ends_with_it() {
    for deleted in [true, false] {
        let home = Home::new();
        let words = ["--http", "127.0.0.1:0", "--no-token", "--profile", "open", "--session-idle", "1"];
        let served = Served::start(&home, &words, 2);
        let (of_session, stream) = session_that_sleeps(&served, &home);
        if deleted {
            let mut other = served.connect();
            send(&mut other, "DELETE", &format!("Host: {}\r\n{of_session}", served.address), "");
            assert_eq!(status(&head(&mut other)), 202);
            until(&home, "interrupted", "deleted: the call ends");
        } else {
            // Longer than the session may be idle: the client waits for its answer.
            std::thread::sleep(Duration::from_secs(3));
            assert_eq!(runs(&home, "running"), 1, "a call that is waited for goes on");
            drop(stream);
            until(&home, "interrupted", "idle: the call ends");
        }
    }
}

/// A session of somebody who calls itself `name`: its headers.
fn session_as(served: &Served, authorization: &str, name: &str) -> String {
    let mut message = initialize();
    message["params"]["clientInfo"]["name"] = json!(name);
    let began = served.post(authorization, &message);
    let id = began.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    let id = id.unwrap_or_else(|| panic!("{began}"));
    let headers = format!("{authorization}Mcp-Session-Id: {id}\r\nMcp-Protocol-Version: 2025-06-18\r\n");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(status(&served.post(&headers, &initialized)), 202);
    headers
}

/// What a call of a tool answers, as it comes.
fn called(served: &Served, headers: &str, tool: &str, arguments: &Value) -> String {
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    let mut stream = served.connect();
    send(&mut stream, "POST", &format!("Host: {}\r\n{headers}", served.address), &call.to_string());
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_client_is_who_its_token_says_whatever_it_calls_itself() {
    let home = Home::new();
    home.write("tokens", "ann 0123456789abcdef-ann\nbob 0123456789abcdef-bob\n");
    let served = Served::start(&home, &["--http", "127.0.0.1:0", "--token-file", "tokens"], 1);
    let (ann, bob) =
        ("Authorization: Bearer 0123456789abcdef-ann\r\n", "Authorization: Bearer 0123456789abcdef-bob\r\n");
    let of_ann = session_as(&served, ann, "alice");
    let done = called(&served, &of_ann, "run", &json!({"pipeline": "exec echo by-ann", "timeoutMs": 60000}));
    assert!(done.contains("by-ann"), "{done}");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    assert_eq!(runs[0]["actor"], "mcp:ann", "{runs}");
    // The same name for itself gives nobody else's runs, and another one hides none of one's own.
    for (authorization, name, sees) in
        [(bob, "alice", false), (bob, "ann", false), (ann, "alice", true), (ann, "bob", true)]
    {
        let session = session_as(&served, authorization, name);
        let seen = called(&served, &session, "runs", &json!({}));
        assert_eq!(seen.contains(runs[0]["id"].as_str().unwrap()), sees, "{name}: {seen}");
    }
    // Nor does anybody enter the session of another one.
    let (_, session) = of_ann.split_once("\r\n").unwrap();
    assert_eq!(status(&called(&served, &format!("{bob}{session}"), "runs", &json!({}))), 404);
    let twice = "ann 0123456789abcdef-ann\nann 0123456789abcdef-bob\n";
    home.write("tokens", twice);
    let refused = home.lobster(["mcp", "--http", "127.0.0.1:0", "--token-file", "tokens"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("twice"), "{refused:?}");
}
