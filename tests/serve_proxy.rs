//! A proxy in front of the server says who calls, over its own socket file and nowhere else.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, parse, register, token};

const SETTINGS: &str = r#"
allow_host = ["flows.example"]
[proxy]
socket = "proxy/lobster.sock"
[proxy.people]
ann = "approver"
bob = { role = "operator", workflows = ["greet"] }
"#;

/// A request that the proxy passes on, with these headers.
fn pass_on(socket: &Path, request: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut stream = UnixStream::connect(socket).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: flows.example\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    parse(&answer).unwrap_or_else(|| panic!("{request}: {answer}"))
}

#[test]
fn whom_a_proxy_names_has_the_role_of_the_settings() {
    let home = Home::new();
    home.write("serve.toml", SETTINGS);
    home.write("greet.lobster", "steps: [{id: ask, approval: Greet?}, {id: a, run: echo hi >> said}]\n");
    home.write("other.lobster", "steps: [{id: a, run: 'true'}]\n");
    register(&home, &["greet.lobster", "other.lobster"]);
    let served = Served::start(&home, &["--config", "serve.toml"]);
    let socket = home.dir().join("proxy/lobster.sock");
    let ask = |name: &str, request: &str| pass_on(&socket, request, &[("Remote-User", name)], "");
    let page = [("Sec-Fetch-Site", "same-origin"), ("X-Forwarded-For", "6.6.6.6, 203.0.113.4")];
    let act = |name: &str, request: &str, body: &str| {
        pass_on(&socket, request, &[&page[..], &[("Remote-User", name)]].concat(), body)
    };

    let me = ask("ann", "GET /api/v1/me").good();
    assert_eq!((me["name"].as_str(), me["role"].as_str()), (Some("ann"), Some("approver")), "{me}");
    assert_eq!(ask("eve", "GET /api/v1/me").status, 403, "known to the proxy, and nobody here");
    assert_eq!(pass_on(&socket, "GET /api/v1/me", &[], "").status, 401, "the proxy names nobody");
    let both = [("Remote-User", "ann"), ("remote-user", "bob")];
    assert_eq!(pass_on(&socket, "GET /api/v1/me", &both, "").status, 401, "a client has named itself, too");
    // Over the port anybody could say so.
    assert_eq!(served.send("GET", "/api/v1/me", &[("Remote-User", "ann")], b"").status, 401);
    // Programs bring their tokens, also by the proxy.
    let bearer = format!("Bearer {}", token(&home, "viewer", None));
    let program = pass_on(&socket, "GET /api/v1/me", &[("Authorization", bearer.as_str())], "").good();
    assert_eq!(program["name"], "viewer-person");

    assert_eq!(
        act("ann", "POST /api/v1/workflows/greet/runs", "{}").status,
        403,
        "an approver starts nothing"
    );
    assert_eq!(act("bob", "POST /api/v1/workflows/other/runs", "{}").status, 403, "not his workflow");
    // The browser is known to the proxy whatever page makes it ask.
    assert_eq!(
        pass_on(&socket, "POST /api/v1/workflows/greet/runs", &[("Remote-User", "bob")], "{}").status,
        403
    );
    let foreign =
        [("Remote-User", "bob"), ("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")];
    assert_eq!(pass_on(&socket, "POST /api/v1/workflows/greet/runs", &foreign, "{}").status, 403);
    for origin in ["https://flows.example:9999", "http://flows.example"] {
        let neighbour = [("Remote-User", "bob"), ("Origin", origin)];
        let refused = pass_on(&socket, "POST /api/v1/workflows/greet/runs", &neighbour, "{}");
        assert_eq!((refused.status, refused.problem().as_str()), (403, "origin"), "{origin}");
    }
    act("bob", "POST /api/v1/workflows/greet/runs", "{}").good();

    let mut gates = json!(null);
    wait_until("it asks", || {
        gates = ask("ann", "GET /api/v1/approvals").good();
        gates["gates"][0]["status"] == "open"
    });
    let gate = &gates["gates"][0];
    let answer = json!({ "decision": "approve", "digest": gate["digest"] }).to_string();
    let path = format!("POST /api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    act("ann", &path, &answer).good();
    wait_until("it ends", || home.read("said") == "hi\n");
    let shown = home.lobster(["show", "greet@"]).run();
    assert!(shown.stdout.contains("approved by ann"), "{shown:?}");
    let trail = served.get(&token(&home, "admin", None), "/api/v1/trail").good().to_string();
    assert!(trail.contains("203.0.113.4 proxy") && !trail.contains("6.6.6.6"), "{trail}");
    // The console greets them without a login.
    let first = pass_on(&socket, "GET /", &[("Remote-User", "ann"), ("Accept", "text/html")], "");
    assert!(first.status == 200 && first.body.contains("ann"), "{first:?}");
    let link = home.lobster(["serve", "link"]).run();
    assert!(link.stdout.starts_with("https://flows.example/login#"), "{link:?}");
    // What people reach over TLS opens sessions that go over TLS alone.
    let body = json!({ "link": link.stdout.trim().split('#').nth(1) }).to_string();
    let opened = pass_on(&socket, "POST /api/v1/login", &[("Origin", "https://flows.example")], &body);
    assert!(opened.status == 200 && opened.head.contains("; Secure"), "{opened:?}");
    let doctor = pass_on(&socket, "GET /doctor", &[("Remote-User", "ann"), ("Accept", "text/html")], "");
    assert!(doctor.body.contains("reach this server over TLS"), "{doctor:?}");
    drop(served);
}

/// A login with this link, from this address, as a proxy in front of the port passes it on.
fn log_in(served: &Served, link: &str, from: &str) -> Reply {
    let headers = [("Content-Type", "application/json"), ("X-Forwarded-For", from)];
    served.send("POST", "/api/v1/login", &headers, json!({ "link": link }).to_string().as_bytes())
}

#[test]
fn a_stranger_who_guesses_keeps_nobody_out() {
    let home = Home::new();
    let served = Served::start(&home, &["--behind-proxy"]);
    let links: Vec<String> = (0..3)
        .map(|_| {
            let made = home.lobster(["serve", "link", "--name", "ann", "--role", "viewer"]).run();
            made.stdout.trim().split('#').nth(1).unwrap().to_owned()
        })
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guess = || {
            while !is_over.load(Ordering::Relaxed) {
                log_in(&served, "lob_guess", "6.6.6.6, 203.0.113.4");
            }
        };
        scope.spawn(guess);
        scope.spawn(guess);
        wait_until("the stranger is refused", || log_in(&served, "lob_x", "203.0.113.4").status == 429);
        let others = log_in(&served, "lob_x", "203.0.113.5").status;
        let opened: Vec<u16> = ["203.0.113.4", "203.0.113.5", "of nobody"]
            .iter()
            .zip(&links)
            .map(|(from, link)| log_in(&served, link, from).status)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!((others, opened), (401, vec![200; 3]));
    });
    let trail = served.get(&token(&home, "admin", None), "/api/v1/trail").good().to_string();
    for (address, is_there) in
        [("203.0.113.4", true), ("203.0.113.5", true), ("127.0.0.1", true), ("6.6.6.6", false)]
    {
        assert_eq!(trail.contains(address), is_there, "{address}: {trail}");
    }
}

#[test]
fn an_address_that_anybody_can_name_is_nobodys() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let made = home.lobster(["serve", "link", "--name", "ann", "--role", "viewer"]).run();
    assert_eq!(log_in(&served, made.stdout.trim().split('#').nth(1).unwrap(), "203.0.113.4").status, 200);
    let trail = served.get(&token(&home, "admin", None), "/api/v1/trail").good().to_string();
    assert!(trail.contains("127.0.0.1") && !trail.contains("203.0.113.4"), "{trail}");
}

#[test]
fn a_proxy_that_cannot_be_trusted_is_refused_at_the_start() {
    let home = Home::new();
    home.write("open/kept", "");
    std::fs::set_permissions(home.dir().join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    let people = "[proxy.people]\nann = \"approver\"\n";
    for (settings, about) in [
        (format!("[proxy]\nsocket = \"s\"\n{people}"), "allow_host"),
        ("allow_host = [\"a\"]\n[proxy]\nsocket = \"s\"\n".to_owned(), "no person has a role"),
        (
            format!("allow_host = [\"a\"]\n[proxy]\nsocket = \"s\"\nheader = \"a b\"\n{people}"),
            "is not a header",
        ),
        (
            format!("allow_host = [\"a\"]\n[proxy]\nsocket = \"s\"\nuser = \"nobody-here\"\n{people}"),
            "not a user",
        ),
        (format!("allow_host = [\"a\"]\n[proxy]\nsocket = \"open/s\"\n{people}"), "yours alone"),
        (
            format!("allow_host = [\"a\"]\n[proxy]\nsocket = \"open/s\"\nuser = \"33\"\n{people}"),
            "no other user may write",
        ),
        (format!("allow_host = [\"a\"]\n[proxy]\nsocket = \"open/kept\"\nuser = \"33\"\n{people}"), "open"),
        (
            "allow_host = [\"a\"]\n[proxy]\nsocket = \"s\"\n[proxy.people]\nann = \"king\"\n".to_owned(),
            "is not a role: viewer",
        ),
        (
            "allow_host = [\"a\"]\n[proxy]\nsocket = \"s\"\n[proxy.people]\nann = 5\n".to_owned(),
            "workflows = [NAME]",
        ),
    ] {
        home.write("serve.toml", &settings);
        let refused = home.lobster(["serve", "--listen", "127.0.0.1:0", "--config", "serve.toml"]).run();
        assert!(matches!(refused.code(), 1 | 2) && refused.stderr.contains(about), "{settings}: {refused:?}");
    }
}
