//! `lobster add`: components come into a project from wherever they are, and stay what they were.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::home::{Answer, Home};
use crate::pty::Terminal;
use crate::server::{Reply, Server};

/// Bytes of ready steps.
fn ready(name: &str) -> Vec<u8> {
    std::fs::read(crate::binary::repository().join(format!("guest-steps/dist/{name}.wasm"))).unwrap()
}

fn add(home: &Home, words: &[&str]) -> Answer {
    home.lobster([["add"].as_slice(), words].concat()).run()
}

fn refused(answer: &Answer, words: &[&str]) {
    assert!(
        answer.code() != 0 && words.iter().all(|word| answer.stderr.contains(word)),
        "{words:?}: {answer:?}"
    );
}

const FLOW: &str = "steps:\n  - id: a\n    component: steps/regex.wasm\n    args: {mode: extract, pattern: 'a+'}\n    stdin: caat\n";

#[test]
fn what_was_added_is_what_runs() {
    let home = Home::new();
    home.write("flow.lobster", FLOW);
    let added = add(&home, &["regex"]);
    assert!(added.code() == 0 && added.stdout.contains("It can"), "{added:?}");
    let lock = home.read("lobster.lock");
    assert!(lock.contains("[step.regex]") && lock.contains("source = \"regex\""), "{lock}");
    home.tool(["flow.lobster"]).output();
    // Once more changes nothing.
    assert_eq!(add(&home, &["regex"]).code(), 0);
    assert_eq!(home.read("lobster.lock"), lock);

    // Other bytes in its place run nowhere, whichever way leads to them.
    home.write("steps/regex.wasm", ready("csv"))
        .write("sub/flow.lobster", FLOW.replace("steps/", "../steps/"));
    std::os::unix::fs::symlink("steps/regex.wasm", home.dir().join("link.wasm")).unwrap();
    for words in [
        &["run", "--mode", "tool", "flow.lobster"][..],
        &["run", "--mode", "tool", "sub/flow.lobster"],
        &["run", "--mode", "tool", "component ./steps/regex.wasm --args-json {}"],
        &["run", "--mode", "tool", "component ./link.wasm --args-json {}"],
        &["check", "flow.lobster"],
    ] {
        let answer = home.lobster(words).run();
        let said = format!("{}{}", answer.stdout, answer.stderr);
        let words_of_it = ["is not the file that was added as regex", "lobster add --locked"];
        assert!(
            answer.code() != 0 && words_of_it.iter().all(|part| said.contains(part)),
            "{words:?}: {answer:?}"
        );
    }
    let restored = add(&home, &["--locked"]);
    assert!(restored.code() == 0 && restored.stdout.contains("restored regex"), "{restored:?}");
    home.tool(["flow.lobster"]).output();
    std::fs::remove_file(home.dir().join("steps/regex.wasm")).unwrap();
    assert_eq!(add(&home, &["--locked"]).code(), 0);
    assert_eq!(std::fs::read(home.dir().join("steps/regex.wasm")).unwrap(), ready("regex"));

    // Its own new bytes, when they are meant.
    home.write("steps/regex.wasm", ready("csv"));
    assert_eq!(add(&home, &["./steps/regex.wasm", "--name", "regex"]).code(), 0);
    assert_eq!(home.lobster(["step", "inspect", "steps/regex.wasm"]).run().code(), 0);
    assert!(home.read("lobster.lock").contains("source = \"./steps/regex.wasm\""));
}

#[test]
fn what_cannot_be_added_leaves_everything_as_it_is() {
    let home = Home::new();
    home.write("mine.wasm", ready("csv")).write("text.wasm", "no program").write("steps/diff.wasm", "mine");
    refused(&add(&home, &["regexx"]), &["there is no ready step", "did you mean `lobster add regex`?"]);
    refused(&add(&home, &["./none.wasm"]), &["cannot read ./none.wasm"]);
    refused(&add(&home, &["text.wasm"]), &["not WebAssembly"]);
    refused(&add(&home, &["http://example.com/a.wasm"]), &["is not https"]);
    refused(&add(&home, &["oci://example.com"]), &["oci://HOST/REPOSITORY:TAG"]);
    refused(&add(&home, &["diff"]), &["steps/diff.wasm exists", "left as it is"]);
    refused(&add(&home, &["regex", "--dir", "../elsewhere"]), &["is not below"]);
    refused(&add(&home, &["regex", "--digest", &"0".repeat(64)]), &["and not blake3:0000"]);
    refused(&add(&home, &["--update", "regex"]), &["has no \"regex\"; it has none yet"]);
    assert_eq!(home.read("lobster.lock"), "");
    assert_eq!(home.read("steps/diff.wasm"), "mine");
    // A name belongs to the bytes that have it.
    assert_eq!(add(&home, &["mine.wasm", "--name", "regex"]).code(), 0);
    assert!(!home.dir().join("steps/regex.wasm").exists(), "a file of the project stays where it is");
    refused(
        &add(&home, &["regex"]),
        &["regex was added from mine.wasm", "lobster add --update regex", "--name"],
    );
    home.write("lobster.lock", "version = 7\n");
    refused(&add(&home, &["regex"]), &["lobster.lock is no lock file of this lobster"]);
}

fn sha256(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn bytes(content: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len());
    Reply::Bytes([head.as_bytes(), content].concat())
}

#[test]
fn an_address_gives_what_it_gave_or_nothing() {
    let home = Home::new();
    let server = Server::start(|before, request| match request.path.as_str() {
        "/csv.wasm" if before < 3 => bytes(&ready("csv")),
        "/csv.wasm" => bytes(&ready("diff")),
        "/moved" => Reply::status(302, "location: /csv.wasm\r\n", ""),
        "/away" => Reply::status(302, "location: http://example.com/csv.wasm\r\n", ""),
        _ => Reply::status(404, "", ""),
    });
    let at = |path: &str| format!("{}{path}", server.url());
    refused(&add(&home, &[&at("/none.wasm")]), &["answers 404"]);
    refused(&add(&home, &[&at("/away")]), &["redirects to what is no http(s) address"]);
    assert_eq!(add(&home, &[&at("/csv.wasm"), "--name", "csv"]).code(), 0);
    std::fs::remove_file(home.dir().join("steps/csv.wasm")).unwrap();
    refused(&add(&home, &["--locked"]), &["csv: http://", "and not blake3:"]);
    assert!(!home.dir().join("steps/csv.wasm").exists());
    let updated = add(&home, &["--update", "csv"]);
    assert!(updated.code() == 0 && updated.stdout.contains("csv is up to date now"), "{updated:?}");
    assert_eq!(std::fs::read(home.dir().join("steps/csv.wasm")).unwrap(), ready("diff"));
}

/// A registry that wants a token, and gives `acme/csv` in an index.
fn registry(lies: bool) -> Server {
    let program = ready("csv");
    let layer = json!({"mediaType": "application/wasm", "digest": sha256(&program), "size": program.len()});
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": sha256(b"{}"), "size": 2},
        "layers": [layer],
    });
    let manifest = manifest.to_string();
    let index = json!({"schemaVersion": 2, "manifests": [
        {"digest": sha256(b"other"), "platform": {"architecture": "amd64", "os": "linux"}},
        {"digest": sha256(manifest.as_bytes()), "platform": {"architecture": "wasm", "os": "wasip2"}},
    ]});
    Server::start(move |_, request| {
        let host = request.header("host").unwrap_or_default();
        if let Some(query) = request.path.strip_prefix("/token?") {
            let asked = query.contains("service=here") && query.contains("scope=repository");
            let known = request.header("authorization") == Some("Basic dXNlcjpwYXNz");
            return if asked && known {
                Reply::json(&json!({"token": "t0"}))
            } else {
                Reply::status(403, "", "")
            };
        }
        if request.path == "/blob" {
            return bytes(if lies { b"other" } else { &program });
        }
        if request.header("authorization") != Some("Bearer t0") {
            let challenge = format!(
                "www-authenticate: Bearer realm=\"http://{host}/token\",service=\"here\",scope=\"repository:acme/csv:pull\"\r\n"
            );
            return Reply::status(401, &challenge, "");
        }
        match request.path.strip_prefix("/v2/acme/csv/") {
            Some("manifests/1.0") => Reply::json(&index),
            Some(path) if path == format!("manifests/{}", sha256(manifest.as_bytes())) => {
                bytes(manifest.as_bytes())
            }
            Some(path) if path.starts_with("blobs/") => {
                // A redirect to a store of blobs is usual, and must not be told the token.
                Reply::status(
                    307,
                    &format!("location: http://{}/blob\r\n", host.replace("127.0.0.1", "localhost")),
                    "",
                )
            }
            _ => Reply::status(404, "", ""),
        }
    })
}

#[test]
fn a_registry_gives_the_bytes_that_its_manifest_names() {
    for lies in [false, true] {
        let home = Home::new();
        let server = registry(lies);
        let host = server.url().replace("http://", "");
        let auths = json!({"auths": {&host: {"auth": "dXNlcjpwYXNz"}}});
        home.write("auth.json", auths.to_string());
        let source = format!("oci://{host}/acme/csv:1.0");
        let call = |words: &[&str]| {
            let call = home.lobster([["add"].as_slice(), words].concat());
            call.env("REGISTRY_AUTH_FILE", home.dir().join("auth.json")).run()
        };
        let blob = |requests: Vec<crate::server::Request>| requests.into_iter().find(|r| r.path == "/blob");
        let answer = call(&[&source]);
        let asked = blob(server.requests());
        assert!(
            asked.is_none_or(|request| request.header("authorization").is_none()),
            "the token went elsewhere"
        );
        if lies {
            refused(&answer, &["gives other bytes", "sha256:"]);
            assert_eq!(home.read("lobster.lock"), "");
            continue;
        }
        assert_eq!(answer.code(), 0, "{answer:?}");
        let lock = home.read("lobster.lock");
        assert!(lock.contains(&format!("source = \"{source}@sha256:")), "{lock}");
        std::fs::remove_file(home.dir().join("steps/csv.wasm")).unwrap();
        assert_eq!(call(&["--locked"]).code(), 0);
        assert_eq!(call(&["--update", "csv"]).code(), 0);
        refused(&call(&[&format!("oci://{host}/acme/csv:2.0")]), &["is not there", "404"]);
        let unknown = home.lobster(["add", &source]).env("REGISTRY_AUTH_FILE", "/none").run();
        refused(&unknown, &["gives no token"]);
    }
}

#[test]
fn a_person_sees_what_it_is_before_it_is_added() {
    let home = Home::new();
    for (answer, code) in [("n", 1), ("", 1), ("y", 0)] {
        let mut terminal = Terminal::start(home.lobster(["add", "csv"]).env("NO_COLOR", "1"), 90, 60);
        terminal.wait_for("Add it as csv? [y/N]");
        let (ended, screen) = terminal.enter_and_end(answer);
        assert!(ended == code && screen.text().contains("It cannot"), "{}", screen.text());
        assert_eq!(home.dir().join("lobster.lock").exists(), code == 0);
    }
    let locked: Value = toml::from_str(&home.read("lobster.lock")).unwrap();
    assert_eq!(locked["step"]["csv"]["file"], "steps/csv.wasm");
}
