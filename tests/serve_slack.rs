//! Answers that come back over an app's socket in Slack: against a server that speaks as Slack does, who may, who may
//! not, and what the channel hears.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

const BOT: &str = "xoxb-s3cret-of-the-bot";
const APP: &str = "xapp-s3cret-of-the-app";

/// Slack's side of an app.
struct Slack {
    address: String,
    /// Methods with what they were called with.
    calls: Mutex<Vec<(String, Value)>>,
    /// The sockets that were opened; the last one is the one that is used.
    sockets: Mutex<Vec<TcpStream>>,
    /// Envelopes of which the app has said that they have come.
    acknowledged: Mutex<Vec<String>>,
}

impl Slack {
    fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let own = Arc::new(Self {
            address,
            calls: Mutex::default(),
            sockets: Mutex::default(),
            acknowledged: Mutex::default(),
        });
        let serving = Arc::clone(&own);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&serving);
                std::thread::spawn(move || own.serve(stream));
            }
        });
        own
    }

    fn serve(&self, stream: TcpStream) {
        let mut from = BufReader::new(stream.try_clone().unwrap());
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let header = |name: &str| {
            let named = |line: &String| {
                let (known, value) = line.split_once(": ")?;
                known.eq_ignore_ascii_case(name).then(|| value.to_owned())
            };
            head.iter().find_map(named).unwrap_or_default()
        };
        let path = head[0].split(' ').nth(1).unwrap().to_owned();
        if header("upgrade").eq_ignore_ascii_case("websocket") {
            assert!(
                path.starts_with("/link/?ticket=t-") && header("sec-websocket-version") == "13",
                "{head:?}"
            );
            return self.socket(stream, from, &header("sec-websocket-key"));
        }
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        from.read_exact(&mut body).unwrap();
        let answer = self.answer(&path, &header("authorization"), &body).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let _ = (&stream).write_all((head + &answer).as_bytes());
    }

    fn answer(&self, path: &str, authorization: &str, body: &[u8]) -> Value {
        let method = path.strip_prefix("/api/").unwrap();
        let wanted = if method == "apps.connections.open" { APP } else { BOT };
        if authorization != format!("Bearer {wanted}") {
            return json!({ "ok": false, "error": "invalid_auth" });
        }
        let mut calls = self.calls.lock().unwrap();
        calls.push((method.to_owned(), serde_json::from_slice(body).unwrap()));
        let number = calls.len();
        match method {
            "apps.connections.open" => {
                json!({ "ok": true, "url": format!("ws://{}/link/?ticket=t-{number}&app_id=A1", self.address) })
            }
            _ => json!({ "ok": true, "channel": "C1", "ts": format!("1700000000.{number:06}") }),
        }
    }

    /// Speaks the protocol of sockets (RFC 6455), as far as it is needed.
    fn socket(&self, stream: TcpStream, mut from: BufReader<TcpStream>, key: &str) {
        let accept = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, accept.as_bytes()));
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        (&stream).write_all(head.as_bytes()).unwrap();
        frame(
            &stream,
            &json!({ "type": "hello", "num_connections": 1, "connection_info": { "app_id": "A1" } }),
        );
        self.sockets.lock().unwrap().push(stream);
        loop {
            let mut begin = [0; 2];
            if from.read_exact(&mut begin).is_err() {
                return;
            }
            assert_eq!(begin[1] & 0x80, 0x80, "a client masks what it sends");
            let mut len = u64::from(begin[1] & 0x7f);
            if len == 126 {
                let mut more = [0; 2];
                from.read_exact(&mut more).unwrap();
                len = u64::from(u16::from_be_bytes(more));
            }
            let (mut mask, mut body) = ([0; 4], vec![0; usize::try_from(len).unwrap()]);
            from.read_exact(&mut mask).unwrap();
            from.read_exact(&mut body).unwrap();
            body.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= mask[at % 4]);
            if begin[0] == 0x81 {
                let said: Value = serde_json::from_slice(&body).unwrap();
                self.acknowledged.lock().unwrap().push(said["envelope_id"].as_str().unwrap().to_owned());
            }
        }
    }

    fn send(&self, message: &Value) {
        frame(self.sockets.lock().unwrap().last().unwrap(), message);
    }

    fn opened(&self) -> usize {
        self.sockets.lock().unwrap().len()
    }

    fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == method).map(|(_, body)| body.clone()).collect()
    }

    /// Presses a button, and gives what Slack is then told: the method and its body.
    fn press(&self, user: &str, channel: &str, value: &str) -> (String, Value) {
        let told = || {
            let calls = self.calls.lock().unwrap();
            let found = calls
                .iter()
                .filter(|(method, _)| ["chat.update", "chat.postEphemeral"].contains(&method.as_str()));
            found.cloned().collect::<Vec<_>>()
        };
        let (before, id) = (told().len(), format!("e-{}", told().len()));
        let shown = self.calls("chat.postMessage").first().map(|asked| asked["blocks"].clone());
        self.send(&json!({
            "envelope_id": id, "type": "interactive", "accepts_response_payload": true,
            "payload": {
                "type": "block_actions", "user": { "id": user, "username": "x", "team_id": "T1" }, "api_app_id": "A1",
                "container": { "type": "message", "message_ts": "1700000000.000002", "channel_id": channel, "is_ephemeral": false },
                "team": { "id": "T1", "domain": "example" }, "channel": { "id": channel, "name": "ops" },
                "message": { "type": "message", "ts": "1700000000.000002", "blocks": shown },
                "response_url": "https://hooks.slack.example/actions/T1/1",
                "actions": [{ "action_id": "yes", "block_id": "b", "type": "button", "value": value, "action_ts": "1" }],
            },
        }));
        wait_until("the press is answered", || told().len() > before);
        wait_until("it is acknowledged", || self.acknowledged.lock().unwrap().contains(&id));
        told().pop().unwrap()
    }
}

/// Sends a text in one frame.
fn frame(mut stream: &TcpStream, message: &Value) {
    let text = message.to_string();
    let mut bytes = vec![0x81];
    match u16::try_from(text.len()).unwrap() {
        short @ ..126 => bytes.push(short.to_be_bytes()[1]),
        long => {
            bytes.push(126);
            bytes.extend(long.to_be_bytes());
        }
    }
    bytes.extend(text.as_bytes());
    stream.write_all(&bytes).unwrap();
}

fn start(home: &Home) -> Served {
    let call = home.lobster(["serve", "--listen", "127.0.0.1:0", "--config", "serve.toml"]);
    Served::started(call.env("SLACK_BOT", BOT).env("SLACK_APP", APP))
}

#[test]
fn a_button_in_slack_counts_for_those_whom_the_operator_names() {
    let home = Home::new();
    let slack = Slack::start();
    home.write(
        "ask.lobster",
        "steps:\n  - {id: ask, approval: 'Ship <!channel> & <https://evil.example|this>?'}\n  - {id: a, run: 'echo done >> said'}\n",
    );
    home.write(
        "serve.toml",
        format!(
            "[[notify]]\nname = 'ops'\non = ['question']\nslack = {{ token = 'bot', app_token = 'app', channel = 'C1', \
             server = 'http://{}/api', people = [{{ user = 'U1', name = 'ann' }}, \
             {{ user = 'U2', name = 'bob', workflows = ['other'] }}] }}\n",
            slack.address
        ),
    );
    let config = home.dir().join("../home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    let secrets = "[secrets.bot]\nenv = \"SLACK_BOT\"\n\n[secrets.app]\nenv = \"SLACK_APP\"\n";
    std::fs::write(config.join("secrets.toml"), secrets).unwrap();
    register(&home, &["ask.lobster"]);
    let mut served = start(&home);
    let operator = token(&home, "operator", None);
    served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
    let gate = served.question(&operator);
    wait_until("it is asked", || slack.calls("chat.postMessage").len() == 1 && slack.opened() == 1);
    let asked = slack.calls("chat.postMessage").pop().unwrap();
    // All that a terminal shows, the digest too, and nothing of it is markup.
    let blocks = asked["blocks"].as_array().unwrap();
    let text: String = blocks.iter().filter_map(|block| block["text"]["text"].as_str()).collect();
    let digest = gate["digest"].as_str().unwrap();
    assert!(
        text.contains("Ship <!channel>") && text.contains("echo done") && text.contains(&digest[..8]),
        "{text}"
    );
    assert!(
        blocks.iter().all(|block| block["type"] == "actions" || block["text"]["type"] == "plain_text"),
        "{asked}"
    );
    assert!(!asked["text"].as_str().unwrap().contains('<') && asked["channel"] == "C1", "{asked}");
    let buttons = blocks.last().unwrap()["elements"].as_array().unwrap();
    let value = |at: usize| buttons[at]["value"].as_str().unwrap().to_owned();
    let (yes, no) = (value(0), value(1));

    for (user, channel, pressed, about) in [
        ("U9", "C1", yes.clone(), "not allowed to answer"),
        ("", "C1", yes.clone(), "not allowed to answer"),
        ("U2", "C1", yes.clone(), "may not answer"),
        ("U1", "C7", yes.clone(), "not the channel"),
        ("U1", "C1", yes.replace(&digest[..8], "00000000"), "not the version that was shown"),
        ("U1", "C1", yes[..20].to_owned(), "not the version that was shown"),
        ("U1", "C1", "approve".to_owned(), "belongs to no question"),
    ] {
        let (method, told) = slack.press(user, channel, &pressed);
        assert_eq!((method.as_str(), &told["user"]), ("chat.postEphemeral", &json!(user)), "{told}");
        assert!(told["text"].as_str().unwrap().contains(about), "{told}");
    }
    let id = gate["id"].as_str().unwrap();
    assert_eq!(served.get(&operator, &format!("/api/v1/approvals/{id}")).good()["status"], "open");

    // What is no press, and what is no text of ours, changes nothing; Slack opens sockets anew every few hours.
    slack.send(
        &json!({ "envelope_id": "s", "type": "slash_commands", "payload": { "command": "/x", "text": yes } }),
    );
    slack.send(&json!({ "type": "disconnect", "reason": "refresh_requested" }));
    wait_until("the socket is opened again", || slack.opened() == 2);
    // One that breaks is opened again, too, and so it is by another server.
    slack.sockets.lock().unwrap().last().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    wait_until("the socket is opened again", || slack.opened() == 3);
    served.kill();
    served = start(&home);
    wait_until("the socket is opened again", || slack.opened() == 4);
    let (method, told) = slack.press("U1", "C1", &yes);
    assert_eq!((method.as_str(), &told["ts"]), ("chat.update", &json!("1700000000.000002")), "{told}");
    let left = told["blocks"].as_array().unwrap();
    assert!(left.iter().all(|block| block["type"] != "actions"), "the buttons are gone: {told}");
    assert!(told["text"] == "ann said yes", "{told}");
    wait_until("it goes on", || home.read("said") == "done\n");
    wait_until("the channel hears of it", || slack.calls("chat.postMessage").len() >= 3);
    let heard: Vec<String> =
        slack.calls("chat.postMessage").iter().map(|one| one["blocks"].to_string()).collect();
    assert!(heard.iter().any(|text| text.contains("answered by ann")), "{heard:?}");
    assert!(heard.iter().any(|text| text.contains("ask has succeeded")), "{heard:?}");
    let (_, again) = slack.press("U1", "C1", &no);
    assert!(again["text"].as_str().unwrap().contains("by ann"), "{again}");
    let notices = served.get(&operator, "/api/v1/notices").body;
    for secret in [BOT, APP] {
        assert!(!served.has_said(secret) && !notices.contains(secret), "{notices}");
    }
}
