//! Answers that come back from where a question was asked: who may, who may not, and what the place hears.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};
use crate::server::{Reply, Request, Server};

/// The value of the secret `hook_key` in servers of these tests.
const SECRET: &str = "s3cret-of-hooks";

fn write_config(home: &Home, target: &str) {
    home.write(
        "ask.lobster",
        "steps:\n  - {id: ask, approval: 'Ship it?'}\n  - {id: a, run: 'echo done >> said'}\n",
    );
    home.write("big.lobster", {
        let prompt = "look ".repeat(1000);
        format!("steps:\n  - {{id: ask, approval: '{prompt}'}}\n  - {{id: a, run: 'true'}}\n")
    });
    home.write("serve.toml", format!("[[notify]]\nname = 'ann'\non = ['question']\n{target}\n"));
    let config = home.dir().join("../home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), "[secrets.hook_key]\nenv = \"HOOK_KEY\"\n").unwrap();
    register(home, &["ask.lobster", "big.lobster"]);
}

fn start(home: &Home) -> Served {
    Served::start(home, &["--config", "serve.toml"])
}

fn ask(served: &Served, operator: &str, workflow: &str) -> Value {
    served.post(operator, &format!("/api/v1/workflows/{workflow}/runs"), &json!({})).good();
    served.question(operator)
}

fn is_open(served: &Served, operator: &str, gate: &Value) -> bool {
    let id = gate["id"].as_str().unwrap();
    served.get(operator, &format!("/api/v1/approvals/{id}")).good()["status"] == "open"
}

/// Telegram's side of a bot: what it was asked, and what was pressed.
#[derive(Default)]
struct Telegram {
    calls: Mutex<Vec<(String, Value)>>,
    presses: Mutex<Vec<Value>>,
    /// What the bot has asked for after these is never sent again.
    confirmed: Mutex<i64>,
    /// The number of the next press.
    next: Mutex<i64>,
}

impl Telegram {
    fn start(self: &Arc<Self>) -> Server {
        let own = Arc::clone(self);
        Server::start(move |_, request| own.answer(request))
    }

    fn answer(&self, request: &Request) -> Reply {
        let Some(method) = request.path.strip_prefix(&format!("/bot{SECRET}/")) else {
            let body = json!({ "ok": false, "error_code": 401, "description": "Unauthorized" }).to_string();
            return Reply::status(401, "content-type: application/json\r\n", &body);
        };
        let asked = request.json();
        let result = match method {
            "getUpdates" => {
                assert_eq!(asked["allowed_updates"], json!(["callback_query"]));
                std::thread::sleep(std::time::Duration::from_millis(30));
                let mut confirmed = self.confirmed.lock().unwrap();
                *confirmed = asked["offset"].as_i64().unwrap_or(0).max(*confirmed);
                let from = *confirmed;
                let presses = self.presses.lock().unwrap();
                let new = presses.iter().filter(|press| press["update_id"].as_i64().unwrap() >= from);
                json!(new.collect::<Vec<_>>())
            }
            _ => {
                let mut calls = self.calls.lock().unwrap();
                calls.push((method.to_owned(), asked));
                json!({ "message_id": calls.len() })
            }
        };
        Reply::json(&json!({ "ok": true, "result": result }))
    }

    fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == method).map(|(_, body)| body.clone()).collect()
    }

    /// Presses a button, and gives what the person is told.
    fn press(&self, user: i64, chat: i64, data: &str) -> Value {
        let before = self.calls("answerCallbackQuery").len();
        let mut presses = self.presses.lock().unwrap();
        let id = *self.next.lock().unwrap();
        *self.next.lock().unwrap() += 1;
        presses.push(json!({ "update_id": id, "callback_query": {
            "id": id.to_string(), "from": { "id": user, "is_bot": false, "first_name": "X" },
            "message": { "message_id": 1, "chat": { "id": chat, "type": "group" } }, "data": data } }));
        drop(presses);
        wait_until("the press is answered", || self.calls("answerCallbackQuery").len() > before);
        self.calls("answerCallbackQuery").pop().unwrap()
    }
}

#[test]
fn a_button_in_telegram_counts_for_those_whom_the_operator_names() {
    let home = Home::new();
    let telegram = Arc::new(Telegram::default());
    let server = telegram.start();
    write_config(
        &home,
        &format!(
            "telegram = {{ token = 'hook_key', chat = -100, server = '{}', people = [\
             {{ user = 4711, name = 'ann' }}, {{ user = 5, name = 'bob', workflows = ['other'] }}] }}",
            server.url()
        ),
    );
    let mut served = start(&home);
    let operator = token(&home, "operator", None);
    let gate = ask(&served, &operator, "ask");
    wait_until("it is asked", || telegram.calls("sendMessage").len() == 1);
    let asked = telegram.calls("sendMessage").pop().unwrap();
    assert_eq!(asked["chat_id"], -100);
    let text = asked["text"].as_str().unwrap();
    // All that a terminal shows, the digest too.
    let digest = gate["digest"].as_str().unwrap();
    assert!(text.contains("Ship it?") && text.contains("echo done") && text.contains(&digest[..8]), "{text}");
    let buttons = &asked["reply_markup"]["inline_keyboard"][0];
    let (yes, no) = (&buttons[0]["callback_data"], &buttons[1]["callback_data"]);
    let (yes, no) = (yes.as_str().unwrap(), no.as_str().unwrap());
    assert!(yes.len() <= 64 && no.len() <= 64 && yes != no, "{asked}");

    for (user, chat, data, about) in [
        (99, -100, yes.to_owned(), "not allowed to answer"),
        (5, -100, yes.to_owned(), "may not answer"),
        (4711, -7, yes.to_owned(), "not the chat"),
        (4711, -100, yes.replace(&digest[..8], "00000000"), "not the version that was shown"),
        (4711, -100, yes[..20].to_owned(), "not the version that was shown"),
        (4711, -100, "approve".to_owned(), "belongs to no question"),
        (4711, -100, String::new(), "belongs to no question"),
    ] {
        let told = telegram.press(user, chat, &data);
        assert_eq!(told["show_alert"], true, "{told}");
        assert!(told["text"].as_str().unwrap().contains(about), "{told}");
    }
    assert!(is_open(&served, &operator, &gate));

    // What is pressed while no server is at work is taken by the next one.
    served.kill();
    telegram.presses.lock().unwrap().push(json!({ "update_id": 500, "callback_query": {
        "id": "500", "from": { "id": 4711 }, "message": { "message_id": 1, "chat": { "id": -100 } }, "data": yes } }));
    *telegram.next.lock().unwrap() = 501;
    served = start(&home);
    wait_until("it goes on", || home.read("said") == "done\n");
    wait_until("ann is told", || {
        let told = telegram.calls("answerCallbackQuery").pop().unwrap();
        (&told["text"], &told["show_alert"]) == (&json!("ann said yes"), &json!(false))
    });
    wait_until("the buttons are gone", || telegram.calls("editMessageReplyMarkup").len() == 1);
    // The place hears who answered and how it ended, and a button that is pressed again does nothing.
    wait_until("the place hears of it", || telegram.calls("sendMessage").len() >= 3);
    let heard: Vec<String> =
        telegram.calls("sendMessage").iter().map(|one| one["text"].as_str().unwrap().to_owned()).collect();
    assert!(heard.iter().any(|text| text.contains("answered by ann")), "{heard:?}");
    assert!(heard.iter().any(|text| text.contains("ask has succeeded")), "{heard:?}");
    let again = telegram.press(4711, -100, no);
    assert!(again["text"].as_str().unwrap().contains("by ann"), "{again}");

    // What cannot be shown whole is asked without buttons.
    let before = telegram.calls("sendMessage").len();
    served.post(&operator, "/api/v1/workflows/big/runs", &json!({})).good();
    wait_until("it is asked", || telegram.calls("sendMessage").len() > before);
    let big = telegram.calls("sendMessage").pop().unwrap();
    assert!(big["reply_markup"].is_null() && big["text"].as_str().unwrap().contains("too long"), "{big}");
    assert!(!served.has_said(SECRET));
    let notices = served.get(&operator, "/api/v1/notices").body;
    assert!(!notices.contains(SECRET), "{notices}");
}

/// A server of ntfy: topics, who may read them, and streams that stay open.
struct Topics {
    address: String,
    posted: Arc<Mutex<Vec<(String, String, String)>>>,
}

impl Topics {
    /// `is_open`: whether anybody may read.
    fn start(is_open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let posted: Arc<Mutex<Vec<(String, String, String)>>> = Arc::default();
        let kept = Arc::clone(&posted);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve_topic(stream, &kept, is_open));
            }
        });
        Self { address, posted }
    }

    /// What was posted to a topic: heads and bodies.
    fn of(&self, topic: &str) -> Vec<(String, String)> {
        let posted = self.posted.lock().unwrap();
        let found = posted.iter().filter(|(to, ..)| to == topic);
        found.map(|(_, head, body)| (head.clone(), body.clone())).collect()
    }

    /// Posts as a phone does.
    fn post(&self, body: &str) {
        self.posted.lock().unwrap().push(("answers".to_owned(), String::new(), body.to_owned()));
    }
}

type Posted = Mutex<Vec<(String, String, String)>>;

fn serve_topic(stream: TcpStream, posted: &Posted, is_open: bool) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut from = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let small = head.to_ascii_lowercase();
    let length = small.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let is_known = small.contains(&format!("authorization: bearer {SECRET}")) || is_open;
    let plain = |out: &mut TcpStream, status: &str| {
        let _ = write!(out, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    if path.ends_with("/auth") || !is_known {
        plain(&mut out, if is_known { "200 OK" } else { "403 Forbidden" });
        return None;
    }
    if head.starts_with("POST ") {
        let topic = path.trim_matches('/').to_owned();
        posted.lock().ok()?.push((topic, head, String::from_utf8_lossy(&body).into_owned()));
        plain(&mut out, "200 OK");
        return None;
    }
    write!(out, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n").ok()?;
    writeln!(out, "{}", json!({ "id": "o", "time": 1, "event": "open", "topic": "answers" })).ok()?;
    let since = path.split("since=m").nth(1).and_then(|id| id.parse::<usize>().ok());
    let mut sent = since.map_or(0, |last| last + 1);
    loop {
        let messages: Vec<String> = {
            let all = posted.lock().ok()?;
            all.iter().filter(|(to, ..)| to == "answers").map(|(.., body)| body.clone()).collect()
        };
        for (at, message) in messages.iter().enumerate().skip(sent) {
            let event = json!({ "id": format!("m{at}"), "time": 1, "event": "message", "topic": "answers", "message": message });
            writeln!(out, "{event}").ok()?;
        }
        sent = sent.max(messages.len());
        writeln!(out, "{}", json!({ "id": "k", "time": 1, "event": "keepalive", "topic": "answers" }))
            .ok()?;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn ntfy_config(home: &Home, topics: &Topics) {
    let at = &topics.address;
    write_config(
        home,
        &format!(
            "ntfy = {{ url = 'http://{at}/questions', token = 'hook_key', answers = {{ url = 'http://{at}/answers', person = 'ann' }} }}"
        ),
    );
}

#[test]
fn a_button_in_ntfy_counts_once_for_its_question() {
    let home = Home::new();
    let topics = Topics::start(false);
    ntfy_config(&home, &topics);
    let mut served = start(&home);
    let operator = token(&home, "operator", None);
    let gate = ask(&served, &operator, "ask");
    wait_until("it is asked", || topics.of("questions").len() == 1);
    let (head, text) = topics.of("questions").pop().unwrap();
    assert!(text.contains("Ship it?") && text.contains("echo done"), "{text}");
    let actions = head.lines().find_map(|line| line.strip_prefix("actions: ")).unwrap();
    let actions: Value = serde_json::from_str(actions).unwrap();
    let (yes, no) = (actions[0]["body"].as_str().unwrap(), actions[1]["body"].as_str().unwrap());
    assert_eq!((&actions[0]["action"], &actions[0]["method"]), (&json!("http"), &json!("POST")));
    let secret = yes.rsplit(' ').next().unwrap();
    let id = gate["id"].as_str().unwrap();

    // Neither a message alone, nor a secret of something else, nor the secret as a token.
    for message in [
        "yes".to_owned(),
        format!("yes {id} lob_{}", "A".repeat(43)),
        format!("yes 00000000 {secret}"),
        format!("yes {id} {}", gate["digest"].as_str().unwrap()),
        format!("https://flows.example/questions/{id}"),
        format!("{{\"decision\":\"approve\",\"gate\":\"{id}\"}}"),
    ] {
        topics.post(&message);
    }
    assert_eq!(served.get(secret, "/api/v1/me").status, 401);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(is_open(&served, &operator, &gate));

    topics.post(no);
    wait_until("it is answered", || !is_open(&served, &operator, &gate));
    topics.post(yes);
    let shown = served.get(&operator, &format!("/api/v1/approvals/{id}")).good();
    assert_eq!(shown["answeredBy"], "ann", "{shown}");
    wait_until("the place hears of it", || {
        topics.of("questions").iter().any(|(head, _)| head.contains("by ann"))
    });

    // All of it comes again to a server that is started later, and nothing comes of it.
    served.kill();
    served = start(&home);
    let second = ask(&served, &operator, "ask");
    topics.post(yes);
    topics.post(&format!("yes {} {secret}", second["id"].as_str().unwrap()));
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(is_open(&served, &operator, &second));
    assert_eq!(home.read("said"), "");
}

#[test]
fn a_topic_that_anybody_can_read_has_no_buttons() {
    let home = Home::new();
    let topics = Topics::start(true);
    ntfy_config(&home, &topics);
    let served = start(&home);
    let operator = token(&home, "operator", None);
    ask(&served, &operator, "ask");
    wait_until("it is told", || topics.of("questions").len() == 1);
    let (head, text) = topics.of("questions").pop().unwrap();
    assert!(!head.contains("actions:") && text.contains("Ship it?"), "{head}{text}");
    wait_until("it is said why", || served.has_said("anyone can read the topic"));
}

#[test]
fn places_that_cannot_tell_who_answers_are_refused() {
    let home = Home::new();
    for (written, about) in [
        (
            "ntfy = { url = 'https://n.example/q', answers = { url = 'https://n.example/a', person = 'ann' } }",
            "token",
        ),
        (
            "ntfy = { url = 'https://n.example/q', token = 'T', answers = { url = 'http://n.example/a', person = 'ann' } }",
            "in the clear",
        ),
        (
            "ntfy = { url = 'https://n.example/q', token = 'T', answers = { url = 'https://n.example/q', person = 'ann' } }",
            "another topic",
        ),
        ("telegram = { token = 'T', chat = 1, people = [{ user = 1, name = '' }] }", "name"),
        (
            "telegram = { token = 'T', chat = 1, people = [{ user = 1, name = 'a', role = 'viewer' }] }",
            "cannot answer",
        ),
        (
            "telegram = { token = 'T', chat = 1, people = [{ user = 1, name = 'a', role = 'boss' }] }",
            "is not a role",
        ),
        (
            "telegram = { token = 'T', chat = 1, people = [{ user = 1, name = 'a' }, { user = 1, name = 'b' }] }",
            "twice",
        ),
        ("telegram = { token = 'T', chat = 1, server = 'http://t.example' }", "in the clear"),
    ] {
        home.write("serve.toml", format!("[[notify]]\nname = 'a'\n{written}\n"));
        let refused = home.lobster(["serve", "--listen", "127.0.0.1:0", "--config", "serve.toml"]).run();
        assert!(refused.code() == 2 && refused.stderr.contains(about), "{written}: {refused:?}");
    }
}
