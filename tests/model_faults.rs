//! Everything that a model's server can do wrong, for every provider: one clear error or the right
//! recovery each, no call repeated that must not be, and what nobody learnt the cost of is booked in full.
//!
//! The matrix is made of two lists, the faults and the providers. A fault says by itself what must come of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use serde_json::{Value, json};

use crate::binary;
use crate::browser::Browser;
use crate::home::{Answer, Home, wait_until};
use crate::pty::Terminal;
use crate::sdk_shapes::event;
use crate::serve_agents::Client;
use crate::served::{Served, agent, register};
use crate::server::{Reply, Request, Server};

const KEY: &str = "sk-of-the-matrix-4f2a9c1e";
const MODEL: &str = "gpt-4o";
const PROVIDERS: [&str; 4] = ["openai", "openai-responses", "anthropic", "gemini"];

/// What the step may ask for at most.
const MOST: u64 = 100;

/// What is booked of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Booked {
    /// Nothing: it was certainly not computed.
    Nothing,
    /// What the provider counted.
    Counted,
    /// The most that it can have used.
    Most,
}

/// What must come of it.
enum Comes {
    /// The answer, from the last of so many requests.
    Answer { requests: usize },
    /// An error whose message has these words.
    Error(&'static str),
}

/// One way to go wrong.
struct Fault {
    name: &'static str,
    /// What the server does with a request, given the number of those before it.
    plays: fn(&str, usize, &Request) -> Reply,
    comes: Comes,
    booked: Booked,
    /// Whether `retry` may send it again.
    is_retried: bool,
    /// Such a server is only given a moment.
    is_silent: bool,
}

/// An answer as a stream of the provider's events.
fn events(provider: &str) -> Vec<Value> {
    let recorded: Value = serde_json::from_str(include_str!("models/shapes.json")).unwrap();
    recorded["streams"][provider]["text"].as_array().unwrap().clone()
}

/// Events as they stand in a stream.
fn written(events: &[Value]) -> String {
    events.iter().map(event).collect()
}

/// A stream whose connection ends with it.
fn stream(text: &str) -> Reply {
    Reply::Bytes(format!("HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n{text}").into_bytes())
}

/// The same in chunks, of which there is one that says that it was the last if it `ends`.
fn chunked(text: &str, ends: bool) -> Reply {
    let mut bytes =
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for part in text.as_bytes().chunks(50) {
        write!(bytes, "{:x}\r\n", part.len()).unwrap();
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    if ends {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    Reply::Bytes(bytes)
}

fn whole(provider: &str) -> Reply {
    let recorded: Value = serde_json::from_str(include_str!("models/shapes.json")).unwrap();
    Reply::json(&recorded["responses"][provider]["text"])
}

fn good(provider: &str) -> Reply {
    stream(&written(&events(provider)))
}

/// The beginning of a good stream: so many events of it.
fn first(provider: &str, count: usize) -> String {
    written(&events(provider)[..count])
}

/// Events until the middle of the text.
fn half(provider: &str) -> String {
    let events = events(provider);
    let has_text = |event: &Value| event.to_string().contains("{\\\"n\\\"");
    let at = events.iter().position(has_text).unwrap();
    written(&events[..=at])
}

/// The provider's word for being overloaded, as an event.
fn overloaded(provider: &str) -> String {
    let event = match provider {
        "openai" => json!({"error": {"message": "so busy", "type": "server_error", "code": null}}),
        "openai-responses" => {
            json!({"type": "response.failed", "sequence_number": 9, "response": {
                "id": "resp_1", "status": "failed", "output": [], "error": {"code": "server_error", "message": "so busy"}}})
        }
        "anthropic" => json!({"type": "error", "error": {"type": "overloaded_error", "message": "so busy"}}),
        _ => json!({"error": {"code": 503, "message": "so busy", "status": "UNAVAILABLE"}}),
    };
    written(&[event])
}

fn is_streamed(request: &Request) -> bool {
    request.path.contains(":streamGenerateContent") || request.json()["stream"] == true
}

fn fault(name: &'static str, plays: fn(&str, usize, &Request) -> Reply) -> Fault {
    Fault {
        name,
        plays,
        comes: Comes::Answer { requests: 1 },
        booked: Booked::Counted,
        is_retried: false,
        is_silent: false,
    }
}

impl Fault {
    /// It ends with an error that has these words; the call may have been computed.
    fn lost(self, words: &'static str) -> Self {
        Self { comes: Comes::Error(words), booked: Booked::Most, is_retried: true, ..self }
    }

    /// The server has said no: another time it may not.
    fn later(self, words: &'static str) -> Self {
        Self { comes: Comes::Error(words), booked: Booked::Nothing, is_retried: true, ..self }
    }

    /// It would say no again.
    fn refused(self, words: &'static str) -> Self {
        Self { is_retried: false, ..self.later(words) }
    }

    fn after(self, requests: usize) -> Self {
        Self { comes: Comes::Answer { requests }, ..self }
    }

    fn booking(self, booked: Booked) -> Self {
        Self { booked, ..self }
    }

    fn silent(self) -> Self {
        Self { is_silent: true, ..self }
    }
}

/// What goes wrong before there is an answer, and with one that comes at once.
fn faults_of_answers() -> Vec<Fault> {
    vec![
        fault("answers without a stream", |provider, _, _| whole(provider)),
        fault("refuses the stream", |provider, _, request| {
            let refusal = r#"{"error":{"message":"streaming is not supported","param":"stream"}}"#;
            if is_streamed(request) { Reply::status(400, "", refusal) } else { whole(provider) }
        })
        .after(2),
        fault("refuses everything", |_, _, _| {
            Reply::status(400, "", r#"{"error":{"message":"a bad request","status":"INVALID_ARGUMENT"}}"#)
        })
        .refused("400"),
        fault("refuses the key", |_, _, _| Reply::status(401, "", "who are you?")).refused("401"),
        fault("forbids", |_, _, _| Reply::status(403, "", "not you")).refused("403"),
        fault("knows no such model", |_, _, _| {
            Reply::status(404, "", r#"{"error":{"code":404,"message":"no such model","status":"NOT_FOUND"}}"#)
        })
        .refused("404"),
        fault("too large a request", |_, _, _| Reply::status(413, "", "too much")).refused("413"),
        fault("gives up", |_, _, _| Reply::status(408, "", "too slow")).lost("408"),
        fault("rate limit", |_, _, _| Reply::status(429, "retry-after: 0\r\n", "slow down")).later("429"),
        fault("fails", |_, _, _| Reply::status(500, "", "oh")).lost("500"),
        fault("is down", |_, _, _| Reply::status(503, "", "down")).lost("503"),
        fault("is overloaded", |_, _, _| Reply::status(529, "", "busy")).lost("529"),
        fault("hangs up", |_, _, _| Reply::Bytes(Vec::new())).lost("broke off"),
        fault("is silent", |_, _, _| Reply::Silence).lost("was silent for").silent(),
        fault("cuts its head", |_, _, _| Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-le".to_vec()))
            .lost("broke off"),
        fault("cuts its body", |_, _, _| {
            Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 900\r\n\r\n{\"id\":".to_vec())
        })
        .lost("broke off"),
        fault("answers with a page", |_, _, _| Reply::status(200, "content-type: text/html\r\n", "<html>hi"))
            .lost("not JSON"),
        fault("answers with something else", |_, _, _| Reply::json(&json!({"hello": 1})))
            .lost("invalid response envelope"),
        fault("leads in circles", |_, _, _| Reply::status(307, "location: /again\r\n", "")).lost("redirects"),
    ]
}

/// What goes wrong within a stream.
fn faults_of_streams() -> Vec<Fault> {
    vec![
        fault("streams", |provider, _, _| good(provider)),
        fault("streams in chunks", |provider, _, _| chunked(&written(&events(provider)), true)),
        fault("pings", |provider, _, _| {
            stream(&written(&events(provider)).replace("\n\n", "\n\n: ping\n\n"))
        }),
        fault("writes lines as Windows does", |provider, _, _| {
            stream(&written(&events(provider)).replace('\n', "\r\n"))
        }),
        fault("cut before the first event", |_, _, _| stream("")).lost("stream ended before the answer did"),
        fault("cut in the middle", |provider, _, _| stream(&half(provider)))
            .lost("stream ended before the answer did"),
        fault("cut in the middle of a chunk", |provider, _, _| chunked(&half(provider), false))
            .lost("broke off"),
        fault("cut within an event", |provider, _, _| {
            let text = half(provider);
            stream(&text[..text.len() - 10])
        })
        .lost("stream ended before the answer did"),
        fault("garbage instead of an event", |provider, _, _| {
            stream(&(first(provider, 1) + "data: {\"id\n\n"))
        })
        .lost("an event of its stream is not JSON"),
        fault("an error before the first event", |provider, _, _| stream(&overloaded(provider)))
            .lost("so busy"),
        fault("an error in the middle", |provider, _, _| stream(&(half(provider) + &overloaded(provider))))
            .lost("so busy"),
        fault("falls silent in the middle", |provider, _, _| stream(&half(provider)).kept_open())
            .lost("was silent for")
            .silent(),
        fault("keeps the connection", |provider, _, _| good(provider).kept_open()).silent(),
        fault("streams more than may be", |provider, _, _| stream(&half(provider).repeat(4000)))
            .lost("exceeded"),
        fault("ends without its last event", |provider, _, _| {
            let events = events(provider);
            let has_end = |event: &Value| {
                let end = ["[DONE]", "message_stop"];
                event.as_str().or(event["type"].as_str()).is_some_and(|name| end.contains(&name))
            };
            stream(&written(&events.into_iter().filter(|event| !has_end(event)).collect::<Vec<_>>()))
        }),
        fault("ends without a count of tokens", |provider, _, _| {
            let mut events = events(provider);
            for event in &mut events {
                for place in ["/usage", "/message/usage", "/response/usage", "/usageMetadata"] {
                    if let Some(usage) = event.pointer_mut(place) {
                        *usage = Value::Null;
                    }
                }
            }
            stream(&written(&events))
        })
        .booking(Booked::Most),
    ]
}

struct Tried {
    answer: Answer,
    requests: Vec<Request>,
    booked: Booked,
    /// The code with which the run failed; blank if it did not.
    code: String,
}

/// Lets a server play the fault to a step of the provider.
fn try_it(fault: &Fault, provider: &'static str, tries: u32) -> Tried {
    let plays = fault.plays;
    let server = Server::start(move |before, request| plays(provider, before, request));
    let home = Home::new();
    home.write(
        "flow.lobster",
        format!(
            "budget: {{tokens: 1000000}}\nsteps:\n  - id: ask\n    retry: {{max: {tries}, delay_ms: 1}}\n    pipeline: llm.invoke \
             --prompt Hello --disable-cache --provider {provider} --model {MODEL} --max-output-tokens {MOST}\n"
        ),
    );
    let idle = if fault.is_silent { "500" } else { "60000" };
    let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
    let call = call
        .env("OPENAI_BASE_URL", format!("{}/v1", server.url()))
        .env("OPENAI_API_KEY", KEY)
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", KEY)
        .env("GEMINI_BASE_URL", format!("{}/v1beta", server.url()))
        .env("GEMINI_API_KEY", KEY)
        .env("LOBSTER_MAX_HTTP_RESPONSE_BYTES", "10000")
        .env("LOBSTER_HTTP_TIMEOUT_MS", idle);
    let answer = call.run();
    let requests = server.requests();
    let shown = home.lobster(["show", "@", "--json"]).run();
    let records: Value = serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"));
    let ended = records.as_array().unwrap().iter().rfind(|record| record["event"]["type"] == "run_ended");
    let code = ended.and_then(|record| record["event"]["detail"]["code"].as_str()).unwrap_or_default();
    Tried { booked: booked(&home), answer, requests, code: code.to_owned() }
}

/// What the record says that the call was booked with.
fn booked(home: &Home) -> Booked {
    let cost = home.lobster(["cost", "--json"]).run();
    let cost: Value = serde_json::from_str(&cost.stdout).unwrap_or_else(|_| panic!("{cost:?}"));
    let count = |name: &str| cost["total"][name].as_u64().unwrap();
    match (count("calls"), count("lostCalls"), count("outputTokens")) {
        (0, 0, 0) => Booked::Nothing,
        (1, 0, 10) => Booked::Counted,
        // Each time that it was tried.
        (calls, lost, output) if calls == lost && output == calls * MOST => Booked::Most,
        other => panic!("{other:?}: {cost}"),
    }
}

/// Each fault with each provider, tried once and with `retry`.
fn try_all(faults: &[Fault]) {
    let mut wrong = Vec::new();
    for fault in faults {
        for provider in PROVIDERS {
            let Tried { answer, requests, booked, code } = try_it(fault, provider, 1);
            let mut expect = |holds: bool, what: &str| {
                if !holds {
                    wrong.push(format!(
                        "{provider} {}: {what}: {} requests, {booked:?}, {answer:?}",
                        fault.name,
                        requests.len()
                    ));
                }
            };
            match fault.comes {
                Comes::Answer { requests: count } => {
                    expect(
                        answer.code() == 0 && answer.output()[0]["output"]["text"] == "{\"n\": 7}",
                        "no answer",
                    );
                    expect(requests.len() == count, "other requests");
                }
                Comes::Error(words) => {
                    expect(answer.code() != 0 && answer.error().contains(words), "another error");
                    expect(code == "model", "another code");
                    expect(requests.len() == 1, "other requests");
                }
            }
            expect(booked == fault.booked, "booked otherwise");
            expect(!answer.stdout.contains(KEY) && !answer.stderr.contains(KEY), "the key shows");
            if matches!(fault.comes, Comes::Error(_)) && fault.name != "leads in circles" && !fault.is_silent
            {
                let again = try_it(fault, provider, 3);
                let expected = if fault.is_retried { 3 } else { 1 };
                if again.requests.len() != expected || again.booked != fault.booked {
                    let count = again.requests.len();
                    wrong.push(format!(
                        "{provider} {}: {count} requests with retry, {:?}",
                        fault.name, again.booked
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), faults.len() * PROVIDERS.len(), wrong.join("\n"));
}

#[test]
fn faults_of_answers_with_every_provider() {
    try_all(&faults_of_answers());
}

#[test]
fn faults_of_streams_with_every_provider() {
    try_all(&faults_of_streams());
}

#[test]
fn there_are_enough_faults() {
    assert!(faults_of_answers().len() + faults_of_streams().len() >= 25);
}

/// A run whose answers were streamed is replayed and forked without asking, and its requests are on
/// record as those of runs that were recorded before there were streams.
#[test]
fn what_is_recorded_does_not_depend_on_how_answers_come() {
    let mut preimages = Vec::new();
    for stream in ["on", "off"] {
        let server =
            Server::start(|_, request| if is_streamed(request) { good("openai") } else { whole("openai") });
        let home = Home::new();
        home.write("pool.json", "[]");
        let line = format!("llm.invoke --prompt Hello --disable-cache --provider openai --model {MODEL}");
        let call = home.lobster(["run", "--mode", "tool", &line]);
        let call = call.env("OPENAI_BASE_URL", "http://127.0.0.1:1").env("OPENAI_API_KEY", KEY);
        let call =
            call.env("OPENAI_BASE_URL", format!("{}/v1", server.url())).env("LOBSTER_LLM_STREAM", stream);
        let answer = call.run();
        assert_eq!(answer.output()[0]["output"]["text"], "{\"n\": 7}");
        assert_eq!(is_streamed(&server.requests()[0]), stream == "on");
        let replayed = home.lobster(["replay", "@"]).run();
        assert_eq!(replayed.code(), 0, "{replayed:?}");
        assert_eq!(server.requests().len(), 1);
        let shown = home.lobster(["show", "@", "--json"]).run().stdout;
        assert!(!shown.contains("\"stream\""), "{shown}");
        preimages.push(answer.output()[0]["usage"].clone());
    }
    assert_eq!(preimages[0], preimages[1]);
    let home = Home::new();
    let wrong = home.lobster(["run", "--mode", "tool", "llm.invoke --prompt p --provider openai --model m"]);
    let wrong = wrong.env("OPENAI_API_KEY", KEY).env("LOBSTER_LLM_STREAM", "maybe").run();
    assert!(wrong.error().contains("LOBSTER_LLM_STREAM must be on or off"), "{wrong:?}");
    assert!(!Path::new(&home.dir().join(".lobster-cache")).exists());
}

/// Half of an answer, and then nothing more while somebody looks.
fn half_of_an_answer() -> Server {
    Server::start(|_, _| stream(&half("openai")).kept_open())
}

const HALF: &str = "4 characters of the answer so far";

#[test]
fn a_person_sees_how_much_of_an_answer_has_come_and_none_of_it() {
    let server = half_of_an_answer();
    let home = Home::new();
    home.write(
        "flow.lobster",
        format!(
            "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model {MODEL} --provider openai\n"
        ),
    );
    let worker = format!("{} worker --stdio", binary::lobster().display());
    for executor in [None, Some(&worker)] {
        let call = home.lobster(["run", "flow.lobster"]).env("TERM", "xterm").env("OPENAI_API_KEY", KEY);
        let call = call.env("OPENAI_BASE_URL", server.url()).env("LOBSTER_HTTP_TIMEOUT_MS", "5000");
        let call = match executor {
            Some(executor) => call.env("LOBSTER_EXECUTOR", executor),
            None => call,
        };
        let mut terminal = Terminal::start(call, 100, 24);
        terminal.wait_until(|screen| screen.contains(HALF));
        let (code, screen) = terminal.end();
        assert_ne!(code, 0);
        assert!(!screen.text().contains("{\"n\""), "{}", screen.text());
    }
}

#[test]
fn pages_and_agents_of_the_service_are_told_how_much_of_an_answer_has_come() {
    let model = half_of_an_answer();
    let home = Home::new();
    home.write(
        "ask.lobster",
        format!(
            "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model {MODEL} --provider openai\n"
        ),
    );
    register(&home, &["ask.lobster"]);
    let call = home.lobster(["serve", "--listen", "127.0.0.1:0"]).env("OPENAI_API_KEY", KEY);
    let call = call.env("OPENAI_BASE_URL", model.url()).env("LOBSTER_HTTP_TIMEOUT_MS", "5000");
    let served = Served::started(call);
    let agent = Client::new(&served, &agent(&home, "operator", None));
    let browser = Browser::log_in(&home, &served, "viewer");
    std::thread::scope(|scope| {
        let called = scope.spawn(|| agent.told("ask", json!({})));
        let run =
            || served.get(&agent.token, "/api/v1/runs").good()["runs"][0]["id"].as_str().map(str::to_owned);
        wait_until("a run", || run().is_some());
        let run = run().unwrap();
        wait_until("its progress", || browser.page(&format!("/runs/{run}")).text.contains(HALF));
        let page = browser.page(&format!("/runs/{run}"));
        let mut steps = page.links().into_iter().filter(|link| link.contains("/step?path=ask"));
        assert!(steps.any(|step| browser.page(step).text.contains(HALF)));
        let told = called.join().unwrap();
        assert!(told.iter().any(|message| message.contains(HALF)), "{told:?}");
        served.ended(&agent.token, &run);
        assert!(!browser.page(&format!("/runs/{run}")).text.contains(HALF));
    });
}

#[test]
fn an_agent_is_told_how_much_of_an_answer_has_come() {
    let server = half_of_an_answer();
    let home = Home::new();
    home.write(
        "flows/ask.lobster",
        format!(
            "steps:\n  - id: ask\n    pipeline: llm.invoke --prompt p --model {MODEL} --provider openai\n"
        ),
    );
    let call = home.lobster(["mcp", "--workflows", "flows"]).env("OPENAI_API_KEY", KEY);
    let mut child = call.env("OPENAI_BASE_URL", server.url()).start_piped();
    let mut stdin = child.stdin.take().unwrap();
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": "ask", "arguments": {}, "_meta": {"progressToken": 7}}}),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = lines
        .map(|line| serde_json::from_str::<Value>(&line).unwrap())
        .filter(|message| message["method"] == "notifications/progress")
        .find(|message| message["params"]["message"].to_string().contains(HALF));
    assert_eq!(told.unwrap()["params"]["progressToken"], 7);
    child.kill().unwrap();
    child.wait().unwrap();
}
