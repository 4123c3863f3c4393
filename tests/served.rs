//! A server of the service for tests: started, asked over HTTP, killed and started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};

use crate::home::{Call, Home, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is ended with the test.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// What it said, one line each.
    pub(crate) said: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// The body of an answer that did it.
    pub(crate) fn good(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }

    /// The same of one that is no JSON.
    pub(crate) fn good_text(&self) -> &str {
        assert!((200..300).contains(&self.status), "{self:?}");
        &self.body
    }

    /// The name of the problem, which has to be one.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

impl Served {
    /// Starts one on a free port.
    pub(crate) fn start(home: &Home, words: &[&str]) -> Self {
        Self::start_on(home, "127.0.0.1:0", words)
    }

    /// The same under an operator's policy.
    pub(crate) fn start_under(home: &Home, policy: &std::path::Path, words: &[&str]) -> Self {
        let call = home.lobster(["serve", "--listen", "127.0.0.1:0"].iter().chain(words));
        Self::started(call.env("LOBSTER_POLICY", policy))
    }

    pub(crate) fn start_on(home: &Home, listen: &str, words: &[&str]) -> Self {
        Self::started(home.lobster(["serve", "--listen", listen].iter().chain(words)))
    }

    /// Starts one that trusts this authority and no other.
    pub(crate) fn start_trusting(home: &Home, authority: &std::path::Path, words: &[&str]) -> Self {
        let call = home.lobster(["serve", "--listen", "127.0.0.1:0"].iter().chain(words));
        Self::started(call.env("SSL_CERT_FILE", authority))
    }

    /// Starts one with these words.
    pub(crate) fn start_as(home: &Home, words: &[&str]) -> Self {
        Self::started(home.lobster(words))
    }

    /// Starts what this calls.
    pub(crate) fn started(call: Call) -> Self {
        let call = call.env("HOOK_KEY", "s3cret-of-hooks");
        let mut child = call.start();
        let mut from = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let mut said = Vec::new();
        while !line.contains("listens on http://") {
            said.push(line.trim_end().to_owned());
            line.clear();
            assert!(from.read_line(&mut line).unwrap() > 0, "it does not start: {said:?}");
        }
        let address = line.split("http://").nth(1).unwrap().trim().to_owned();
        let said = std::sync::Arc::new(std::sync::Mutex::new(said));
        let kept = std::sync::Arc::clone(&said);
        std::thread::spawn(move || {
            for line in from.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        Self { child, address, said }
    }

    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Sends a request as it is written.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.try_send(method, path, headers, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The same, for a server that may be killed meanwhile.
    pub(crate) fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Reply> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || method == "POST" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        stream.write_all(head.as_bytes())?;
        stream.write_all(b"\r\n")?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "half an answer"))
    }

    pub(crate) fn get(&self, token: &str, path: &str) -> Reply {
        self.send("GET", path, &[("Authorization", &format!("Bearer {token}"))], b"")
    }

    pub(crate) fn post(&self, token: &str, path: &str, body: &Value) -> Reply {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("Authorization", bearer.as_str())];
        if !body.is_null() {
            headers.push(("Content-Type", "application/json"));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send("POST", path, &headers, body.as_bytes())
    }

    /// Waits until a run of the API has ended, and gives it. One that ended within an effect asks about it.
    pub(crate) fn ended(&self, token: &str, run: &str) -> Value {
        self.run_that(token, run, |run| {
            let status = run["status"].as_str().unwrap();
            ["ok", "failed", "cancelled", "refused", "withdrawn"].contains(&status)
                || status == "interrupted" && !run["endedAt"].is_null()
        })
    }

    /// Waits until a run has a status.
    pub(crate) fn run_with(&self, token: &str, run: &str, holds: impl Fn(&str) -> bool) -> Value {
        self.run_that(token, run, |run| holds(run["status"].as_str().unwrap()))
    }

    fn run_that(&self, token: &str, run: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut found = json!(null);
        wait_until(&format!("run {run} of {}", self.address), || {
            found = self.get(token, &format!("/api/v1/runs/{run}")).good();
            holds(&found)
        });
        found
    }

    /// Waits until somebody is asked, and gives the question.
    pub(crate) fn question(&self, token: &str) -> Value {
        let mut found = json!(null);
        wait_until("a question", || {
            found = self.get(token, "/api/v1/approvals").good()["gates"][0].clone();
            !found.is_null()
        });
        found
    }

    /// Ends it at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An answer as it came over the wire.
pub(crate) fn parse(answer: &str) -> Option<Reply> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body)? } else { body.to_owned() };
    Some(Reply { status, head: head.to_owned(), body })
}

fn unchunked(mut body: &str) -> Option<String> {
    let mut out = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.push_str(rest.get(..size)?);
        body = rest.get(size + 2..)?;
    }
}

/// A token of this role, for everything or for one workflow.
pub(crate) fn token(home: &Home, role: &str, workflow: Option<&str>) -> String {
    let name = format!("{role}-person");
    let mut words = vec!["serve", "token", "new", "--name", &name, "--role", role];
    words.extend(workflow.into_iter().flat_map(|workflow| ["--workflow", workflow]));
    let made = home.lobster(words).run();
    assert_eq!(made.code(), 0, "{made:?}");
    made.stdout.trim().to_owned()
}

/// A token of an agent.
pub(crate) fn agent(home: &Home, role: &str, workflow: Option<&str>) -> String {
    let mut words = vec!["serve", "token", "new", "--name", "coder", "--role", role, "--agent"];
    words.extend(workflow.into_iter().flat_map(|workflow| ["--workflow", workflow]));
    let made = home.lobster(words).run();
    assert_eq!(made.code(), 0, "{made:?}");
    made.stdout.trim().to_owned()
}

/// Registers files of the working directory.
pub(crate) fn register(home: &Home, files: &[&str]) {
    let made = home.lobster(["schedule", "register", "--trust"].iter().chain(files)).run();
    assert_eq!(made.code(), 0, "{made:?}");
}
