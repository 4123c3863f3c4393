//! `lobster step publish`: what a registry gets is what others read and `lobster add` takes back.
//!
//! `LOBSTER_TEST_REGISTRY=HOST:PORT` has the real registry there take it as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::added::{bytes, ready, sha256};
use crate::home::{Answer, Home};
use crate::server::{Reply, Request, Server};

/// What a registry holds. It follows the distribution specification of OCI, with tokens.
#[derive(Default)]
struct Held {
    blobs: BTreeMap<String, Vec<u8>>,
    /// By tag and by digest.
    manifests: BTreeMap<String, Vec<u8>>,
    uploads: usize,
}

const REPOSITORY: &str = "acme/tools/csv";

impl Held {
    fn answer(&mut self, request: &Request) -> Reply {
        let host = request.header("host").unwrap_or_default();
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        if path == "/token" {
            let known = request.header("authorization") == Some("Basic dXNlcjpwYXNz");
            let scope = if query.contains("pull%2Cpush") { "push" } else { "pull" };
            return match (
                known,
                query.contains(&format!("scope=repository%3A{}", REPOSITORY.replace('/', "%2F"))),
            ) {
                (true, true) => Reply::json(&json!({ "token": scope })),
                _ => Reply::status(401, "", ""),
            };
        }
        let error = |status, code: &str| {
            let body = json!({"errors": [{"code": code, "message": "no"}]}).to_string();
            Reply::status(status, "content-type: application/json\r\n", &body)
        };
        // A store of blobs elsewhere takes an upload by its address alone, and must not be told a token.
        if let ("PUT", Some(upload)) = (request.method.as_str(), path.strip_prefix("/store/")) {
            assert_eq!(request.header("authorization"), None, "the token went elsewhere");
            assert_eq!((upload, request.header("content-type")), ("1", Some("application/octet-stream")));
            let digest = query.rsplit_once("digest=").unwrap().1.replace("%3A", ":");
            if digest != sha256(&request.body) || !query.starts_with("state=a%2Bb&") {
                return error(400, "DIGEST_INVALID");
            }
            self.blobs.insert(digest.clone(), request.body.clone());
            return Reply::status(201, &format!("location: /v2/{REPOSITORY}/blobs/{digest}\r\n"), "");
        }
        let writes = !matches!(request.method.as_str(), "GET" | "HEAD");
        let allowed = match request.header("authorization") {
            Some("Bearer push") => true,
            Some("Bearer pull") => !writes,
            _ => false,
        };
        if !allowed {
            let act = if writes { "pull,push" } else { "pull" };
            let challenge = format!(
                "www-authenticate: Bearer realm=\"http://{host}/token\",service=\"here\",scope=\"repository:{REPOSITORY}:{act}\"\r\n"
            );
            return Reply::status(401, &challenge, "");
        }
        let Some(rest) = path.strip_prefix(&format!("/v2/{REPOSITORY}/")) else {
            return error(404, "NAME_UNKNOWN");
        };
        match (request.method.as_str(), rest.split_once('/').unwrap()) {
            ("POST", ("blobs", "uploads/")) => {
                self.uploads += 1;
                let elsewhere = host.replace("127.0.0.1", "localhost");
                Reply::status(202, &format!("location: http://{elsewhere}/store/1?state=a%2Bb\r\n"), "")
            }
            ("HEAD", ("blobs", digest)) if self.blobs.contains_key(digest) => Reply::status(200, "", ""),
            ("GET", ("blobs", digest)) if self.blobs.contains_key(digest) => bytes(&self.blobs[digest]),
            ("PUT", ("manifests", tag)) => {
                let manifest: Value = serde_json::from_slice(&request.body).unwrap();
                let named = manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]);
                for part in named {
                    let blob = self.blobs.get(part["digest"].as_str().unwrap());
                    if blob.is_none_or(|blob| part["size"] != blob.len()) {
                        return error(400, "MANIFEST_BLOB_UNKNOWN");
                    }
                }
                assert_eq!(request.header("content-type"), manifest["mediaType"].as_str());
                self.manifests.insert(tag.to_owned(), request.body.clone());
                self.manifests.insert(sha256(&request.body), request.body.clone());
                Reply::status(201, "", "")
            }
            ("GET", ("manifests", name)) if self.manifests.contains_key(name) => bytes(&self.manifests[name]),
            _ => error(404, "BLOB_UNKNOWN"),
        }
    }
}

fn registry() -> (Server, Arc<Mutex<Held>>, String) {
    let held = Arc::<Mutex<Held>>::default();
    let of_server = held.clone();
    let server = Server::start(move |_, request| of_server.lock().unwrap().answer(request));
    let place = format!("oci://{}/{REPOSITORY}:1.0", server.url().replace("http://", ""));
    (server, held, place)
}

/// A call of somebody who is logged in with a credential helper.
fn call(home: &Home, words: &[&str]) -> Answer {
    home.write("docker/config.json", "{\"auths\": {}, \"credsStore\": \"test\"}");
    home.write(
        "bin/docker-credential-test",
        "#!/bin/sh\n[ \"$1\" = get ] && read -r host; case $host in 127.0.0.1:*) echo '{\"ServerURL\": \"x\", \"Username\": \"user\", \"Secret\": \"pass\"}';; *) exit 1;; esac\n",
    );
    home.lobster(words).env("DOCKER_CONFIG", home.dir().join("docker").display().to_string()).run()
}

fn refused(answer: &Answer, words: &[&str]) {
    assert!(
        answer.code() != 0 && words.iter().all(|word| answer.stderr.contains(word)),
        "{words:?}: {answer:?}"
    );
}

fn manifest(held: &Mutex<Held>, name: &str) -> Value {
    serde_json::from_slice(&held.lock().unwrap().manifests[name]).unwrap()
}

#[test]
fn what_is_published_is_an_artifact_that_others_read_and_that_add_takes_back() {
    let (_server, held, place) = registry();
    let home = Home::new();
    home.write("csv.wasm", ready("csv"));
    let published = call(&home, &["step", "publish", &place]);
    assert_eq!(published.code(), 0, "{published:?}");
    let made = manifest(&held, "1.0");
    let digest = sha256(&held.lock().unwrap().manifests["1.0"]);
    assert_eq!(published.stdout, format!("published {place}@{digest}\n"));
    assert_eq!(made["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(made["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    let program = ready("csv");
    let layer = json!([{"mediaType": "application/wasm", "digest": sha256(&program), "size": program.len()}]);
    assert_eq!(made["layers"], layer);
    assert_eq!(made["annotations"]["org.opencontainers.image.title"], "csv");
    let config = held.lock().unwrap().blobs[made["config"]["digest"].as_str().unwrap()].clone();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!((&config["architecture"], &config["os"]), (&json!("wasm"), &json!("wasip2")));
    assert_eq!(config["layerDigests"], json!([sha256(&program)]));
    assert_eq!(config["component"]["exports"], json!(["describe", "run"]));
    assert_eq!(config["component"]["imports"][1], "lobster:step/io@0.1.0");

    // The same component is the same artifact, and nothing is sent twice.
    let uploads = held.lock().unwrap().uploads;
    assert_eq!(call(&home, &["step", "publish", &place, "--component", "csv.wasm"]).stdout, published.stdout);
    assert_eq!(held.lock().unwrap().uploads, uploads);

    let other = Home::new();
    let added = call(&other, &["add", &place]);
    assert_eq!(added.code(), 0, "{added:?}");
    assert_eq!(std::fs::read(other.dir().join("steps/csv.wasm")).unwrap(), program);
    assert!(other.read("lobster.lock").contains(&format!("source = \"{place}@{digest}\"")));
}

#[test]
fn a_signature_is_beside_the_artifact_and_those_of_others_stay() {
    let (_server, held, place) = registry();
    let home = Home::new();
    home.write("csv.wasm", ready("csv"));
    for key in ["ours.pem", "theirs.pem", "nobodys.pem"] {
        assert_eq!(home.lobster(["bundle", "keygen", key]).run().code(), 0);
    }
    let publish = |more: &[&str]| call(&home, &[["step", "publish", &place].as_slice(), more].concat());
    let add = |key: &str| {
        call(&home, &["add", &place, "--name", key, "--dir", key, "--key", &format!("{key}.pem.pub")])
    };
    assert_eq!(publish(&[]).code(), 0);
    refused(&add("ours"), &["has no signature"]);
    for key in ["theirs", "ours", "ours"] {
        let signed = publish(&["--sign", &format!("{key}.pem")]);
        assert!(signed.code() == 0 && signed.stdout.contains("\nsigned by ed25519:"), "{signed:?}");
    }
    let digest = sha256(&held.lock().unwrap().manifests["1.0"]);
    let tag = format!("{}.sig", digest.replace(':', "-"));
    let layers = manifest(&held, &tag)["layers"].as_array().unwrap().len();
    assert_eq!(layers, 2, "each signature once");
    for key in ["ours", "theirs"] {
        let added = add(key);
        assert!(added.code() == 0 && added.stdout.contains("signed with the key"), "{added:?}");
    }
    refused(&add("nobodys"), &["is not signed with this key"]);
    // Another program at the same tag is not what was signed.
    home.write("csv.wasm", ready("diff"));
    assert_eq!(publish(&[]).code(), 0);
    refused(&call(&home, &["add", "--update", "ours"]), &["has no signature"]);
    let moved = held.lock().unwrap().manifests[&tag].clone();
    let other = sha256(&held.lock().unwrap().manifests["1.0"]).replace(':', "-");
    held.lock().unwrap().manifests.insert(format!("{other}.sig"), moved);
    refused(&call(&home, &["add", "--update", "ours"]), &["is by this key, but for other content"]);
}

#[test]
fn what_cannot_be_published_changes_nothing_there() {
    let (_server, held, place) = registry();
    let home = Home::new();
    home.write("text.wasm", "no program").write("csv.wasm", ready("csv"));
    let csv = ["--component", "csv.wasm"];
    refused(&call(&home, &["step", "publish", &place]), &["several programs"]);
    refused(&call(&home, &["step", "publish", &place, "--component", "text.wasm"]), &["not WebAssembly"]);
    let publish =
        |place: &str, more: &[&str]| call(&home, &[&["step", "publish", place], &csv[..], more].concat());
    refused(&publish(&place.replace("oci://", "https://"), &[]), &["oci://HOST/REPOSITORY:TAG"]);
    refused(&publish(place.strip_suffix(":1.0").unwrap(), &[]), &["needs a tag"]);
    refused(&publish(&place, &["--sign", "csv.wasm"]), &["is not an ed25519 private key"]);
    refused(&publish(&place.replace("acme/", "others/"), &[]), &["gives no token to write", "docker login"]);
    let unknown = home.lobster(["step", "publish", &place]).words(csv).run();
    refused(&unknown, &["gives no token to write", "docker login"]);
    assert!(held.lock().unwrap().blobs.is_empty() && held.lock().unwrap().manifests.is_empty());
}

/// Skipped without a registry.
#[test]
fn a_real_registry_takes_a_signed_component_and_gives_it_back() {
    let Ok(host) = std::env::var("LOBSTER_TEST_REGISTRY") else { return };
    let home = Home::new();
    home.write("csv.wasm", ready("csv"));
    let place = format!("oci://{host}/acme/csv:1.0");
    assert_eq!(home.lobster(["bundle", "keygen", "me.pem"]).run().code(), 0);
    for _ in 0..2 {
        let published = home.lobster(["step", "publish", &place, "--sign", "me.pem"]).run();
        assert_eq!(published.code(), 0, "{published:?}");
    }
    let added = home.lobster(["add", &place, "--key", "me.pem.pub"]).run();
    assert!(added.code() == 0 && added.stdout.contains("signed with the key"), "{added:?}");
    assert_eq!(std::fs::read(home.dir().join("steps/csv.wasm")).unwrap(), ready("csv"));
}
