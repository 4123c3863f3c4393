//! Runs and steps as OpenTelemetry spans, against a receiver that decodes them
//! and, where one is installed, a real collector.

use std::collections::HashMap;
use std::time::Duration;

use crate::home::{Answer, Home};
use crate::server::{Reply, Request, Server};

/// One field of a protobuf message.
#[derive(Clone, Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// Reads a message without knowing what it is (protobuf encoding specification).
fn message(mut bytes: &[u8]) -> HashMap<u64, Vec<Field>> {
    let mut fields: HashMap<u64, Vec<Field>> = HashMap::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                Field::Bytes(take(&mut bytes, length).to_vec())
            }
            5 => Field::Number(u32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap()).into()),
            other => panic!("wire type {other}"),
        };
        fields.entry(tag >> 3).or_default().push(value);
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint without an end")
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

type Message = HashMap<u64, Vec<Field>>;

fn children(of: &Message, tag: u64) -> Vec<Message> {
    let bytes = of.get(&tag).into_iter().flatten().filter_map(|field| match field {
        Field::Bytes(bytes) => Some(message(bytes)),
        Field::Number(_) => None,
    });
    bytes.collect()
}

fn bytes(of: &Message, tag: u64) -> Vec<u8> {
    match of.get(&tag).and_then(|fields| fields.first()) {
        Some(Field::Bytes(bytes)) => bytes.clone(),
        _ => Vec::new(),
    }
}

fn text(of: &Message, tag: u64) -> String {
    String::from_utf8(bytes(of, tag)).unwrap()
}

fn number(of: &Message, tag: u64) -> u64 {
    match of.get(&tag).and_then(|fields| fields.first()) {
        Some(Field::Number(number)) => *number,
        _ => 0,
    }
}

fn attributes(of: &Message, tag: u64) -> HashMap<String, String> {
    let shown = |value: &Message| {
        let text = text(value, 1);
        if text.is_empty() { number(value, 3).to_string() } else { text }
    };
    children(of, tag).iter().map(|pair| (text(pair, 1), shown(&children(pair, 2)[0]))).collect()
}

fn spans(request: &Request) -> Vec<Message> {
    assert_eq!(
        (request.path.as_str(), request.header("content-type")),
        ("/v1/traces", Some("application/x-protobuf"))
    );
    let body = match request.header("content-encoding") {
        Some("gzip") => unpacked(&request.body),
        _ => request.body.clone(),
    };
    let resource_spans = children(&message(&body), 1);
    let resource = attributes(&children(&resource_spans[0], 1)[0], 1);
    assert_eq!((resource["service.name"].as_str(), resource["team"].as_str()), ("lobster", "ops"));
    children(&children(&resource_spans[0], 2)[0], 2)
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let packed = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(packed.path(), bytes).unwrap();
    let stdin = std::fs::File::open(packed.path()).unwrap();
    std::process::Command::new("gzip").arg("-dc").stdin(stdin).output().unwrap().stdout
}

const FLOW: &str = "
name: traced
steps:
  - id: list
    run: printf '[\"private words\"]'
  - id: loop
    for_each: $list.json
    steps:
      - id: inner
        pipeline: \"exec --shell 'echo hidden'\"
  - id: bad
    run: echo secret-message >&2; exit 3
    on_error: continue
  - id: ask
    approval: Really?
  - id: end
    run: 'true'
";

fn traced(home: &Home, words: &[&str], endpoint: &str) -> Answer {
    let call = home.lobster(words).env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    call.env("OTEL_RESOURCE_ATTRIBUTES", "team=ops").env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k").run()
}

#[test]
fn a_run_and_its_steps_arrive_as_one_trace() {
    let server = Server::start(|_, _| Reply::status(200, "", ""));
    let home = Home::new();
    home.write("flow.lobster", FLOW);
    let first = traced(&home, &["run", "--mode", "tool", "flow.lobster"], &server.url());
    let token = first.token();
    traced(&home, &["resume", "--token", &token, "--approve", "yes"], &server.url()).output();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].header("api-key"), Some("k"));
    let all: Vec<Message> = requests.iter().flat_map(spans).collect();
    let named = |name: &str| {
        all.iter().find(|span| text(span, 5) == name).unwrap_or_else(|| panic!("no span {name}"))
    };
    let (run, resume) = (named("run traced"), named("resume traced"));
    let traces: std::collections::HashSet<_> = all.iter().map(|span| bytes(span, 1)).collect();
    assert_eq!((traces.len(), bytes(run, 1).len(), bytes(run, 2).len()), (1, 16, 8));
    assert_eq!((bytes(run, 4).len(), bytes(resume, 4)), (0, bytes(run, 2)));
    assert_eq!(attributes(run, 9)["lobster.run.status"], "waiting");
    assert_eq!(attributes(resume, 9)["lobster.run.status"], "ok");
    let gate = children(run, 11);
    assert_eq!(text(&gate[0], 2), "gate.opened");
    let inner = named("pipeline loop/inner");
    assert_eq!(bytes(named("native loop/inner|0.0"), 4), bytes(inner, 2));
    assert_eq!(bytes(inner, 4), bytes(named("for_each loop"), 2));
    let bad = named("native bad");
    assert_eq!(
        (number(&children(bad, 15)[0], 3), attributes(bad, 9)["process.exit.code"].as_str()),
        (2, "3")
    );
    for span in &all {
        assert!(number(span, 7) <= number(span, 8) && number(span, 7) > 1_700_000_000_000_000_000);
    }
    for request in &requests {
        let body = String::from_utf8_lossy(&request.body);
        for private in ["private words", "hidden", "secret-message", "Really?", &token] {
            assert!(!body.contains(private), "{private:?} was exported");
        }
    }
}

#[test]
fn a_caller_puts_the_run_into_its_own_trace() {
    let server = Server::start(|_, _| Reply::status(200, "", ""));
    let home = Home::new();
    let call = home.lobster(["run", "--mode", "tool", "exec --shell 'echo not-to-be-exported'"]);
    call.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/v1/traces", server.url()))
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=ops")
        .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .run()
        .output();
    let requests = server.requests();
    let run = &spans(&requests[0])[0];
    assert_eq!(text(run, 5), "run pipeline", "the text of a pipeline is nobody's business");
    assert_eq!(bytes(run, 1)[..2], [0x0a, 0xf7]);
    assert_eq!(bytes(run, 4), [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    assert!(!String::from_utf8_lossy(&requests[0].body).contains("not-to-be-exported"));
}

#[test]
fn a_step_finds_its_own_span_to_go_on_from() {
    let server = Server::start(|_, _| Reply::status(200, "", ""));
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: twice\n    retry: {max: 2, delay_ms: 1}\n    \
         run: 'echo \"$TRACEPARENT\" >>seen; test -e again || { touch again; exit 1; }'\n  \
         - {id: own, run: 'echo \"$TRACEPARENT\" >>seen', env: {TRACEPARENT: mine}}\n",
    );
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let run = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("TRACEPARENT", caller);
    let run = run.env("OTEL_RESOURCE_ATTRIBUTES", "team=ops");
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", server.url()).run().output();
    let all = spans(&server.requests()[0]);
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut attempts: Vec<_> = all.iter().filter(|span| text(span, 5) == "native twice").collect();
    attempts.sort_by_key(|span| number(span, 7));
    let mut expected: Vec<String> = attempts
        .iter()
        .map(|span| format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", hex(bytes(span, 2))))
        .collect();
    assert_eq!(expected.len(), 2);
    assert_ne!(expected[0], expected[1]);
    expected.push("mine".to_owned());
    assert_eq!(home.read("seen").lines().collect::<Vec<_>>(), expected);
    // Without a collector there is no span, and what the caller said is passed on.
    home.write("seen", "");
    home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("TRACEPARENT", caller).run().output();
    assert_eq!(home.read("seen").lines().collect::<Vec<_>>(), [caller, "mine"]);
}

#[test]
fn a_collector_out_of_order_fails_and_delays_nothing() {
    let silent = Server::start(|_, _| Reply::Silence);
    let refusing = Server::start(|_, _| Reply::status(503, "", "no"));
    for endpoint in ["http://127.0.0.1:1", "not an address", &silent.url(), &refusing.url()] {
        let home = Home::new();
        let answer = traced(&home, &["run", "--mode", "tool", "exec echo hi"], endpoint);
        assert_eq!(answer.output()[0], "hi");
        assert_eq!(answer.stderr, "", "{endpoint}");
        assert!(answer.took < Duration::from_secs(30), "{endpoint}: {:?}", answer.took);
    }
    assert_eq!(silent.requests().len(), 1);
}

/// A collector that nobody here wrote takes the spans, understands them, and hands them on.
#[test]
fn a_real_collector_takes_the_spans() {
    let Some(collector) = std::env::var_os("LOBSTER_TEST_COLLECTOR") else {
        println!("skipped: LOBSTER_TEST_COLLECTOR names no rotel-agent");
        return;
    };
    let behind = Server::start(|_, _| Reply::status(200, "", ""));
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (http, grpc) = (free(), free());
    let home = Home::new();
    let log = std::fs::File::create(home.dir().join("collector.log")).unwrap();
    let child = std::process::Command::new(collector)
        .arg("start")
        .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")])
        .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
        .args(["--exporter", "otlp", "--otlp-exporter-endpoint", &behind.url()])
        .args(["--otlp-exporter-protocol", "http"])
        .current_dir(home.dir())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let _child = Ending(child);
    let begun = std::time::Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", http)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", home.read("collector.log"));
        std::thread::sleep(Duration::from_millis(20));
    }
    home.write("flow.lobster", FLOW);
    traced(&home, &["run", "--mode", "tool", "flow.lobster"], &format!("http://127.0.0.1:{http}")).token();
    behind.wait_for(1);
    let names: Vec<_> = behind.requests().iter().flat_map(spans).map(|span| text(&span, 5)).collect();
    for name in ["run traced", "native list", "for_each loop", "native loop/inner|0.0"] {
        assert!(names.iter().any(|known| known == name), "{name} is not among {names:?}");
    }
}

/// Ends a process when the test does, however that ends.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
