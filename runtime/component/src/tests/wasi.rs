//! Files through a current C library, as a module and over preview 2, and requests over `wasi:http`,
//! with the built `tests/guests/c/files.c` and `guest-steps/rust/request`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::fixture::as_component;
use super::runs::Tape;
use super::{Ran, load, run};
use crate::{Component, DirGrant, Kind, RunError};

fn built(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/dist").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn files_of_a_current_c_library_work_in_both_previews() {
    let module = built("files.wasm");
    for (program, kind) in [(module.clone(), Kind::Module), (as_component(&module), Kind::Command)] {
        let program = load(&program);
        assert_eq!(program.kind(), kind);
        for clock in [false, true] {
            let [given, made] = [(); 2].map(|()| tempfile::tempdir().expect("temporary directory"));
            fs::write(given.path().join("given"), "given").expect("writes");
            let dir =
                |dir: &tempfile::TempDir, at: &str| DirGrant { host: dir.path().into(), guest: at.into() };
            let ran = run(&program, "{}", |i| {
                i.grants.read = vec![dir(&given, "/r")];
                i.grants.write = vec![dir(&made, "/w")];
                i.grants.clock = clock;
            });
            let outcome = ran.result.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            assert_eq!(
                (ran.output.as_str(), outcome.exit_code),
                ("files are as C has them\n", 0),
                "{kind:?}"
            );
            assert_eq!(fs::read_dir(made.path()).expect("lists").count(), 0);
            outcome.writes.commit().expect("commits");
            let text = fs::read_to_string(made.path().join("text")).expect("is there");
            assert!(text.starts_with("line 0\n") && text.ends_with("line 999\nthe end\n"));
            assert_eq!(fs::read(made.path().join("sub/moved")).expect("is there"), b"0123");
            assert_eq!(fs::read_dir(given.path()).expect("lists").count(), 1);
        }
    }
}

/// A server on this machine that returns each request and counts the connections.
struct Server {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("has an address").port();
        let came = Arc::new(AtomicUsize::new(0));
        let count = came.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                // A program that is refused during the request closes the connection.
                let _ = answer(stream);
            }
        });
        Self { port, came }
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// The whole request: its head, and a body in chunks or of known length.
fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = String::new();
    let mut part = [0; 1024];
    loop {
        let read = stream.read(&mut part)?;
        text.push_str(&String::from_utf8_lossy(&part[..read]));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let whole = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            true => body.ends_with("0\r\n\r\n"),
            false => text.contains("\r\n\r\n"),
        };
        if whole || read == 0 {
            return Ok(text);
        }
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let asked = request(&mut stream)?;
    let path = asked.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, headers) = match path.as_str() {
        "/away" => ("302 Found", "location: http://127.0.0.1:1/\r\n"),
        "/none" => ("404 Not Found", ""),
        _ => ("200 OK", "x-kind: echo\r\n"),
    };
    let length = asked.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{asked}"
    )
}

fn request_step() -> Component {
    load(&built("request.wasm"))
}

fn ask(program: &Component, args: &Value, net: &[&str]) -> Ran {
    run(program, &args.to_string(), |i| i.grants.net = net.iter().map(|n| (*n).to_owned()).collect())
}

#[test]
fn requests_reach_what_is_granted_and_say_what_came_back() {
    let (server, program) = (Server::start(), request_step());
    let authority = server.authority();
    let got = |args: Value| {
        let ran = ask(&program, &args, &[&authority]);
        assert_eq!(ran.name(), "ok", "{args}: {:?}", ran.result);
        serde_json::from_str::<Value>(&ran.output).expect("is JSON")
    };
    let answer = got(json!({ "authority": authority, "path": "/x?y=1" }));
    assert_eq!((&answer["status"], &answer["headers"]["x-kind"]), (&json!(200), &json!("echo")));
    let asked = answer["body"].as_str().expect("has a body");
    assert!(asked.starts_with("GET /x?y=1 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_lowercase().contains("x-from: a component"), "{asked}");
    assert!(asked.to_lowercase().contains(&format!("host: {authority}")), "{asked}");
    // The body goes out in parts and returns whole.
    let long = "0123456789".repeat(2000);
    let answer = got(json!({ "authority": authority, "path": "/", "body": long }));
    let asked = answer["body"].as_str().expect("has a body");
    assert!(asked.starts_with("POST / "), "{asked}");
    let digits = asked.split("\r\n\r\n").nth(1).unwrap_or_default();
    assert!(digits.matches("0123456789").count() >= 1990, "{}", digits.len());
    // The program handles the server's answer itself: the host follows no redirect.
    assert_eq!(got(json!({ "authority": authority, "path": "/none" }))["status"], 404);
    let away = got(json!({ "authority": authority, "path": "/away" }));
    assert_eq!((&away["status"], &away["headers"]["location"]), (&json!(302), &json!("http://127.0.0.1:1/")));
    assert_eq!(server.came(), 4);
}

#[test]
fn requests_without_a_grant_reach_nobody() {
    let (server, program) = (Server::start(), request_step());
    let port = server.port;
    // Without a grant, the program does not start, and the error names the missing grant.
    let ran = ask(&program, &json!({ "authority": server.authority(), "path": "/" }), &[]);
    assert!(
        matches!(&ran.result, Err(RunError::NotGranted { import, .. }) if import.starts_with("wasi:http/")),
        "{:?}",
        ran.result
    );
    let (other_port, other_host) = (format!("127.0.0.1:{}", port - 1), format!("example.com:{port}"));
    for net in [other_port.as_str(), other_host.as_str()] {
        for host in
            ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433"]
        {
            let ran = ask(&program, &json!({ "authority": format!("{host}:{port}"), "path": "/" }), &[net]);
            let Err(RunError::Step(error)) = &ran.result else { panic!("{net}, {host}: {:?}", ran.result) };
            assert_eq!(error.code, "refused", "{net}, {host}: {error}");
        }
    }
    assert_eq!(server.came(), 0);
}

#[test]
fn a_recorded_request_replays_without_its_server() {
    let (server, program) = (Server::start(), request_step());
    let args =
        json!({ "authority": server.authority(), "path": "/once", "body": "for the record" }).to_string();
    let tape = Arc::new(Mutex::new(Tape::default()));
    let once = || {
        let ran = run(&program, &args, |i| {
            i.grants.net = vec![server.authority()];
            i.trace = Some(Box::new(tape.clone()));
        });
        let fuel = ran.outcome().fuel_used;
        (ran.output, fuel)
    };
    let live = once();
    assert!(live.0.contains("for the record"), "{}", live.0);
    tape.lock().expect("is there").replay = Some(0);
    assert_eq!(once(), live);
    assert_eq!(server.came(), 1);
}

/// A command whose `run` is `body`; its memory begins with letters.
fn requests(body: &str) -> Component {
    let text = format!(
        r#"(component
            (import "wasi:http/types@0.2.0" (instance $types
                (export "fields" (type $fields (sub resource)))
                (export "outgoing-request" (type $request (sub resource)))
                (type $names (variant (case "get") (case "head") (case "post") (case "put") (case "delete")
                    (case "connect") (case "options") (case "trace") (case "patch") (case "other" string)))
                (export "method" (type $method (eq $names)))
                (export "[constructor]fields" (func (result (own $fields))))
                (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
                (export "[method]outgoing-request.set-method"
                    (func (param "self" (borrow $request)) (param "method" $method) (result (result))))
                (export "[method]outgoing-request.set-authority"
                    (func (param "self" (borrow $request)) (param "authority" (option string)) (result (result))))))
            (core module $memory (memory (export "memory") 1))
            (core instance $held (instantiate $memory))
            (alias core export $held "memory" (core memory $m))
            (core func $fields (canon lower (func $types "[constructor]fields")))
            (core func $request (canon lower (func $types "[constructor]outgoing-request")))
            (core func $method (canon lower (func $types "[method]outgoing-request.set-method") (memory $m)))
            (core func $authority (canon lower (func $types "[method]outgoing-request.set-authority") (memory $m)))
            (core module $main
                (import "host" "memory" (memory 1))
                (import "host" "fields" (func $fields (result i32)))
                (import "host" "request" (func $request (param i32) (result i32)))
                (import "host" "method" (func $method (param i32 i32 i32 i32) (result i32)))
                (import "host" "authority" (func $authority (param i32 i32 i32 i32) (result i32)))
                (func (export "run") (result i32)
                    (local $made i32)
                    (memory.fill (i32.const 0) (i32.const 97) (i32.const 4096))
                    {body}))
            (core instance $host
                (export "memory" (memory $m)) (export "fields" (func $fields))
                (export "request" (func $request)) (export "method" (func $method))
                (export "authority" (func $authority)))
            (core instance $i (instantiate $main (with "host" (instance $host))))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $e (export "run" (func $run)))
            (export "wasi:cli/run@0.2.0" (instance $e)))"#
    );
    load(&wat::parse_str(text).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn what_requests_hold_of_the_host_is_bounded() {
    let named = |method: usize, authority: usize| {
        let program = requests(&format!(
            "(local.set $made (call $request (call $fields)))
             (if (i32.or
                    (call $method (local.get $made) (i32.const 9) (i32.const 0) (i32.const {method}))
                    (call $authority (local.get $made) (i32.const 1) (i32.const 0) (i32.const {authority})))
                 (then unreachable))
             (i32.const 0)"
        ));
        run(&program, "", |i| i.grants.net = vec!["example.com:443".into()]).name()
    };
    assert_eq!(named(64, 1024), "ok");
    assert_eq!(named(65, 1024), "trap");
    assert_eq!(named(64, 1025), "trap");
    let hoarder = requests("(loop $again (drop (call $request (call $fields))) (br $again)) (i32.const 0)");
    let ran = run(&hoarder, "", |i| i.grants.net = vec!["example.com:443".into()]);
    let limit = ran.result.as_ref().map_or_else(ToString::to_string, |_| String::new());
    assert!(limit.contains("1000") || limit.contains("1,000"), "{limit}");
    assert_eq!(ran.name(), "handle-limit");
}
