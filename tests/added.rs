//! `lobster add`: components come into a project from wherever they are, and stay what they were.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING as ALGORITHM, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::home::{Answer, Home};
use crate::pty::Terminal;
use crate::server::{Reply, Server};

/// Bytes of ready steps.
pub(crate) fn ready(name: &str) -> Vec<u8> {
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
    refused(&add(&home, &["http://example.com/a.wasm"]), &["does not use https"]);
    refused(&add(&home, &["oci://example.com"]), &["oci://HOST/REPOSITORY:TAG"]);
    refused(&add(&home, &["diff"]), &["steps/diff.wasm already exists", "was not changed"]);
    refused(&add(&home, &["regex", "--dir", "../elsewhere"]), &["is not below"]);
    refused(&add(&home, &["regex", "--digest", &"0".repeat(64)]), &["not blake3:0000"]);
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
    refused(&add(&home, &["regex"]), &["lobster.lock is not a lock file of this lobster"]);
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

pub(crate) fn bytes(content: &[u8]) -> Reply {
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
    refused(&add(&home, &[&at("/away")]), &["redirects to what is not an http(s) address"]);
    assert_eq!(add(&home, &[&at("/csv.wasm"), "--name", "csv"]).code(), 0);
    std::fs::remove_file(home.dir().join("steps/csv.wasm")).unwrap();
    refused(&add(&home, &["--locked"]), &["csv: http://", "not blake3:"]);
    assert!(!home.dir().join("steps/csv.wasm").exists());
    let updated = add(&home, &["--update", "csv"]);
    assert!(updated.code() == 0 && updated.stdout.contains("csv is updated"), "{updated:?}");
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

/// A key pair as `cosign generate-key-pair` makes one; the public half is written to a file.
struct Signer {
    pair: EcdsaKeyPair,
    random: ring::rand::SystemRandom,
}

impl Signer {
    fn new(home: &Home, file: &str) -> Self {
        let random = ring::rand::SystemRandom::new();
        let private = EcdsaKeyPair::generate_pkcs8(&ALGORITHM, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ALGORITHM, private.as_ref(), &random).unwrap();
        let info = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
        let info = BASE64.encode([info, pair.public_key().as_ref()].concat());
        home.write(
            file,
            format!(
                "-----BEGIN PUBLIC KEY-----\n{}\n{}\n-----END PUBLIC KEY-----\n",
                &info[..64],
                &info[64..]
            ),
        );
        Self { pair, random }
    }

    fn sign(&self, message: &[u8]) -> String {
        BASE64.encode(self.pair.sign(&self.random, message).unwrap())
    }
}

#[test]
fn a_file_and_an_address_must_be_signed_with_the_key_that_is_named() {
    let home = Home::new();
    let (ours, theirs) = (Signer::new(&home, "ours.pub"), Signer::new(&home, "theirs.pub"));
    let (csv, diff) = (ready("csv"), ready("diff"));
    home.write("csv.wasm", &csv);
    refused(&add(&home, &["./csv.wasm", "--key", "ours.pub"]), &["has no signature", "csv.wasm.sig"]);
    refused(&add(&home, &["csv", "--key", "ours.pub"]), &["identified by its digest"]);
    refused(&add(&home, &["./csv.wasm", "--key", "csv.wasm"]), &["csv.wasm"]);
    for (signature, why) in [
        (theirs.sign(&csv), "not signed with this key"),
        (ours.sign(&diff), "not signed with this key"),
        ("no Base64".to_owned(), "not signed with this key"),
    ] {
        home.write("csv.wasm.sig", signature);
        refused(&add(&home, &["./csv.wasm", "--key", "ours.pub"]), &[why]);
    }
    assert_eq!(home.read("lobster.lock"), "");
    let unchecked = add(&home, &["./csv.wasm", "--name", "other"]);
    assert!(
        unchecked.code() == 0 && unchecked.stdout.contains("a signature that was not checked"),
        "{unchecked:?}"
    );

    let signatures = [ours.sign(&csv), theirs.sign(&diff), ours.sign(&diff)];
    let (first, second) = (csv.clone(), diff.clone());
    let server = Server::start(move |before, request| match (request.path.as_str(), before) {
        ("/csv.wasm", 0) => bytes(&first),
        ("/csv.wasm", _) => bytes(&second),
        ("/csv.wasm.sig", 1) => bytes(signatures[0].as_bytes()),
        ("/csv.wasm.sig", 3) => bytes(signatures[1].as_bytes()),
        ("/csv.wasm.sig", 5) => bytes(signatures[2].as_bytes()),
        _ => Reply::status(404, "", ""),
    });
    let source = format!("{}/csv.wasm", server.url());
    let added = add(&home, &[&source, "--name", "csv", "--key", "ours.pub"]);
    assert!(added.code() == 0 && added.stdout.contains("signed with the key"), "{added:?}");
    assert!(home.read("lobster.lock").contains("key = \"MFkw"));
    // The key is kept: what the source has later must be signed with it, too.
    refused(&add(&home, &["--update", "csv"]), &["not signed with this key"]);
    assert_eq!(std::fs::read(home.dir().join("steps/csv.wasm")).unwrap(), csv);
    assert_eq!(add(&home, &["--update", "csv"]).code(), 0);
    assert_eq!(std::fs::read(home.dir().join("steps/csv.wasm")).unwrap(), diff);
    refused(&add(&home, &["--update", "csv"]), &["has no signature"]);
}

#[test]
fn an_artifact_must_be_signed_with_the_key_that_is_named() {
    let program = ready("csv");
    let layer = json!({"mediaType": "application/wasm", "digest": sha256(&program), "size": program.len()});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    let payload = |digest: &str, kind: &str| {
        json!({"critical": {"identity": {"docker-reference": "r.example/acme/csv"},
               "image": {"docker-manifest-digest": digest}, "type": kind}, "optional": null})
        .to_string()
    };
    let cosign = "cosign container image signature";
    let good = payload(&sha256(manifest.as_bytes()), cosign);
    for (name, message, by_ours, lies, why) in [
        ("good", good.clone(), true, false, None),
        ("of another", good.clone(), false, false, Some("not signed with this key")),
        ("another artifact", payload(&sha256(b"other"), cosign), true, false, Some("but for other content")),
        (
            "another kind",
            payload(&sha256(manifest.as_bytes()), "a letter"),
            true,
            false,
            Some("but for other content"),
        ),
        ("changed on the way", good.clone(), true, true, Some("gives other bytes")),
    ] {
        let home = Home::new();
        let (ours, theirs) = (Signer::new(&home, "ours.pub"), Signer::new(&home, "theirs.pub"));
        // Signatures of others stand beside it, too.
        let more = payload(&sha256(manifest.as_bytes()), cosign);
        let signature = if by_ours { ours.sign(message.as_bytes()) } else { theirs.sign(message.as_bytes()) };
        let layer = |message: &str, signature: &str| {
            json!({"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": sha256(message.as_bytes()),
                   "size": message.len(), "annotations": {"dev.cosignproject.cosign/signature": signature}})
        };
        let layers = [layer(&more, &theirs.sign(more.as_bytes())), layer(&message, &signature)];
        let signatures = json!({"schemaVersion": 2, "layers": layers});
        let tag = format!("manifests/{}.sig", sha256(manifest.as_bytes()).replace(':', "-"));
        let (manifest, program) = (manifest.clone(), program.clone());
        let server = Server::start(move |_, request| {
            let path = request.path.strip_prefix("/v2/acme/csv/").unwrap_or_default();
            match path {
                "manifests/1.0" => bytes(manifest.as_bytes()),
                path if path == tag => Reply::json(&signatures),
                path if path == format!("blobs/{}", sha256(&program)) => bytes(&program),
                path if path == format!("blobs/{}", sha256(message.as_bytes())) => {
                    bytes(if lies { b"{}" } else { message.as_bytes() })
                }
                path if path == format!("blobs/{}", sha256(more.as_bytes())) => bytes(more.as_bytes()),
                _ => Reply::status(404, "", ""),
            }
        });
        let source = format!("oci://{}/acme/csv:1.0", server.url().replace("http://", ""));
        let answer = add(&home, &[&source, "--key", "ours.pub"]);
        match why {
            Some(why) => refused(&answer, &[why]),
            None => assert!(
                answer.code() == 0 && home.read("lobster.lock").contains("key = "),
                "{name}: {answer:?}"
            ),
        }
        assert_eq!(home.dir().join("lobster.lock").exists(), why.is_none(), "{name}");
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
