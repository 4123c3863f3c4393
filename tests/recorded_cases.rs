//! `step test --record`: what a step asks over HTTP is asked once, and answered from a file for ever.

use serde_json::{Value, json};

use crate::home::Home;
use crate::server::{Reply, Server};

fn step(home: &Home) {
    let program = crate::binary::repository().join("tests/guests/dist/request.wasm");
    home.write("request.wasm", std::fs::read(program).unwrap());
}

fn case(home: &Home, net: &str, path: &str, expect: &Value) {
    let case = json!({
        "summary": "asks", "args": { "authority": net, "path": path }, "net": [net], "expect": expect,
    });
    home.write("cases/ask.json", case.to_string());
}

#[test]
fn answers_are_recorded_once_and_need_no_server_after_that() {
    let home = Home::new();
    step(&home);
    let server = Server::start(|_, _| Reply::status(200, "set-cookie: s3cret\r\nx-kind: real\r\n", "hello"));
    let net = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    case(&home, &net, "/greeting", &json!({ "text": "?" }));
    let call = |more: &[&str]| home.lobster(["step", "test"].iter().chain(more)).run();
    let unrecorded = call(&[]);
    assert!(unrecorded.code() == 1 && unrecorded.stdout.contains("--record"), "{unrecorded:?}");
    assert_eq!(server.requests().len(), 0, "nothing is asked that is not to be recorded");

    // What it says is learnt from the failure, and then expected.
    let failed = call(&["--record"]);
    assert!(failed.code() == 1 && failed.stdout.contains("hello"), "{failed:?}");
    let given = failed.stdout.split("given\n").nth(1).unwrap().lines().next().unwrap().trim().to_owned();
    case(&home, &net, "/greeting", &json!({ "text": given }));
    let recorded = call(&["--record"]);
    assert_eq!(recorded.code(), 0, "{recorded:?}");
    let kept = home.read("cases/recorded/ask.json");
    assert!(kept.contains("hello") && kept.contains("x-kind"), "{kept}");
    assert!(!format!("{kept}{failed:?}{recorded:?}").contains("s3cret"), "{kept}");
    assert_eq!(call(&["--record"]).code(), 0);
    assert_eq!(server.requests().len(), 3);

    let again = call(&[]);
    assert_eq!(again.code(), 0, "{again:?}");
    assert_eq!(server.requests().len(), 3, "the world is left alone");
    // A server that is gone costs no recording.
    case(&home, "127.0.0.1:1", "/greeting", &json!({ "text": given }));
    let gone = call(&["--record"]);
    assert!(gone.code() == 1 && gone.stdout.contains("nothing was recorded"), "{gone:?}");
    assert_eq!(home.read("cases/recorded/ask.json"), kept);
    case(&home, &net, "/other", &json!({ "text": given }));
    let other = call(&[]);
    assert!(other.code() == 1 && other.stdout.contains("its path was /greeting, now /other"), "{other:?}");
    home.write("cases/recorded/ask.json", "[{}]");
    let damaged = call(&[]);
    assert!(damaged.code() == 1 && damaged.stdout.contains("recorded/ask.json"), "{damaged:?}");
}

#[test]
fn a_case_without_hosts_reaches_nobody() {
    let home = Home::new();
    step(&home);
    let server = Server::start(|_, _| Reply::status(200, "", "hello"));
    let net = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let case = json!({
        "summary": "asks", "args": { "authority": net, "path": "/" }, "expect": { "error": { "code": "not-granted" } },
    });
    home.write("cases/ask.json", case.to_string());
    let passed = home.lobster(["step", "test", "--record"]).run();
    assert_eq!(passed.code(), 0, "{passed:?}");
    assert!(server.requests().is_empty());
    assert!(!home.dir().join("cases/recorded").exists());
}
