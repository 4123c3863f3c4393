//! Credentials are used without sight: curl, git, Python, node, an MCP server and a component
//! are answered by a server that wants the key, and none of them ever has it.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::canary::Canary;
use crate::credentials::mcp_over_http;
use crate::home::{Answer, Call, Home};
use crate::server::{Reply, Request, Server, authority};

/// Fit for a header, and written in another way by every encoding.
const KEY: &str = "sk-t0p/S3cret+\"quoted\"&%41-9x8w7v6u5t4s3r2q";

/// What a step that asks for itself might send.
const WRONG: &str = "sk-of-the-step-0123456789";

/// Asks twice, then looks for the key in its own memory and environment. The key's digest is what
/// it knows of it.
const LOOKS: &str = r#"import hashlib, os, re, sys, urllib.request
url, want, length = os.environ["HOST_URL"], sys.argv[1], int(sys.argv[2])
ask = urllib.request.Request(url + "/echo", headers={"authorization": "Bearer WRONG"})
said = urllib.request.urlopen(ask).read().decode()
posted = urllib.request.urlopen(url + "/post", data=b"x" * 100000).read().decode()
found = 0
maps = open("/proc/self/maps").read().splitlines()
memory = open("/proc/self/mem", "rb", 0)
for line in maps + [None]:
    if line is None:
        data = open("/proc/self/environ", "rb").read()
    else:
        place = re.match("([0-9a-f]+)-([0-9a-f]+) r", line)
        if not place or "[v" in line:
            continue
        begin, end = (int(it, 16) for it in place.groups())
        try:
            memory.seek(begin)
            data = memory.read(end - begin)
        except (OSError, OverflowError, ValueError):
            continue
    for at in re.finditer(b"sk-t0p", data):
        found += hashlib.sha256(data[at.start():at.start() + length]).hexdigest() == want
print(said, posted, found, len(maps) > 10)
"#;

/// Asks, and dies with a core dump.
const CRASHES: &str = r#"import os, resource, urllib.request
said = urllib.request.urlopen(os.environ["HOST_URL"] + "/echo").read()
kept = "-".join(["the", "memory", "of", "this", "step"])
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
os.abort()
"#;

/// A server on the standard streams that asks its host when its tool is called.
const ASKING_SERVER: &str = r#"#!/usr/bin/env python3
import json, os, sys, urllib.request
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    if ask["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "asking", "version": "1"}}
    elif ask["method"] == "tools/list":
        answer = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
    else:
        said = urllib.request.urlopen(os.environ["HOST_URL"] + "/echo").read().decode()
        answer = {"content": [{"type": "text", "text": said}], "structuredContent": {"said": said}}
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": answer}), flush=True)
"#;

/// A server that answers only who sends the key, and tells what it was sent. `elsewhere` is where
/// it sends its clients for `/away`; below `/repo.git/` lie the files of `repository`.
fn demanding_server(elsewhere: u16, repository: &Path) -> Server {
    let (bearer, basic) = (format!("Bearer {KEY}"), STANDARD.encode(format!("git:{KEY}")));
    let basic = format!("Basic {basic}");
    let repository = repository.to_owned();
    Server::start_tls(move |_, request| {
        let sent = request.header("authorization").unwrap_or("nothing");
        if sent != bearer && sent != basic {
            return Reply::status(401, "", "who are you?");
        }
        let path = request.path.split('?').next().unwrap();
        if let Some(file) = path.strip_prefix("/repo.git/") {
            return match std::fs::read(repository.join(file)) {
                Ok(bytes) => {
                    let head = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", bytes.len());
                    Reply::Bytes([head.into_bytes(), bytes].concat())
                }
                Err(_) => Reply::status(404, "", ""),
            };
        }
        match path {
            "/v1/chat/completions" => Reply::chat("an answer"),
            "/mcp" => mcp_over_http(request),
            "/away" => Reply::status(302, &format!("location: https://localhost:{elsewhere}/there\r\n"), ""),
            "/within" => Reply::status(302, "location: /echo\r\nlink: </echo>; rel=next\r\n", ""),
            "/post" => Reply::status(200, "", &format!("{} bytes", request.body.len())),
            _ => Reply::status(200, &format!("x-sent: {sent}\r\n"), &format!("you sent {sent}")),
        }
    })
}

/// What a client is told instead of the key.
fn hidden() -> String {
    format!("you sent Bearer {}", "*".repeat(KEY.len()))
}

struct Place {
    home: Home,
    server: Server,
    elsewhere: Server,
}

impl Place {
    fn new(has_worker: bool) -> Self {
        let home = Home::new().with_worker(has_worker);
        let elsewhere = Server::start_tls(|_, _| Reply::status(200, "", "elsewhere"));
        let server = demanding_server(elsewhere.port(), &home.dir().join("repo.git"));
        let place = Self { home, server, elsewhere };
        place.name_secret("");
        place.home.write("looks.py", LOOKS.replace("WRONG", WRONG)).write("asking.py", ASKING_SERVER);
        place.home.write(
            "fetches.wasm",
            std::fs::read(crate::binary::repository().join("tests/guests/dist/fetches.wasm")).unwrap(),
        );
        place
    }

    /// The operator's secret, with further lines about it.
    fn name_secret(&self, lines: &str) {
        let config = self.home.dir().parent().unwrap().join("home/.config/lobster");
        std::fs::create_dir_all(&config).unwrap();
        let text = format!("[secrets.key]\nenv = \"THE_KEY\"\n{lines}");
        std::fs::write(config.join("secrets.toml"), text).unwrap();
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    fn surrounded(&self, call: Call) -> Call {
        call.env("THE_KEY", KEY).env("SSL_CERT_FILE", authority()).env("LOBSTER_LOG", "trace")
    }

    fn run(&self, words: &[&str]) -> Answer {
        self.surrounded(self.home.lobster(words)).run()
    }

    /// A file of steps, each with its credential.
    fn write_flow(&self, steps: &[(&str, String, &str)]) {
        let mut text = "secrets: [key]\nsteps:\n".to_owned();
        for (id, work, more) in steps {
            let host = self.host();
            let _ = writeln!(
                text,
                "  - id: {id}\n    {work}\n    credentials: {{\"{host}\": {{secret: key, env: HOST_URL{more}}}}}"
            );
        }
        self.home.write("flow.lobster", text);
    }

    fn make_repository(&self) {
        let git = |words: &[&str]| {
            let done = self.home.program("git", words).run();
            assert!(done.status.success(), "{words:?}: {done:?}");
        };
        git(&["init", "-q", "-b", "main", "made"]);
        self.home.write("made/file", "content of the repository\n");
        git(&["-C", "made", "add", "file"]);
        let who = ["-c", "user.name=a", "-c", "user.email=a@b.example"];
        git(&[&["-C", "made"], &who[..], &["commit", "-q", "-m", "first"]].concat());
        git(&["clone", "-q", "--bare", "made", "repo.git"]);
        git(&["-C", "repo.git", "update-server-info"]);
    }
}

fn sent(request: &Request) -> &str {
    request.header("authorization").unwrap_or("nothing")
}

/// Each client, and what it says when it was answered. All but node are on every machine that runs
/// these tests.
fn clients(place: &Place) -> Vec<(&'static str, String, &'static str, String)> {
    let digest: String = sha2::Sha256::digest(KEY).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut clients = vec![
        (
            "curl",
            format!("run: 'curl -s --max-time 30 -H \"Authorization: {WRONG}\" \"$HOST_URL/echo?x=1\"'"),
            "",
            hidden(),
        ),
        ("within", "run: 'curl -sL --max-time 30 \"$HOST_URL/within\"'".to_owned(), "", hidden()),
        (
            "python",
            format!("exec: [/usr/bin/python3, looks.py, {digest}, \"{}\"]", KEY.len()),
            "",
            format!("{} 100000 bytes 0 True", hidden()),
        ),
        (
            "git",
            format!("run: 'git clone -q https://{}/repo.git cloned && cat cloned/file'", place.host()),
            ", scheme: basic, user: git",
            "content of the repository".to_owned(),
        ),
    ];
    if Path::new("/usr/bin/node").exists() {
        let script = "fetch(process.env.HOST_URL + \"/echo\").then(a => a.text()).then(t => console.log(t))";
        clients.push(("node", format!("exec: [/usr/bin/node, -e, '{script}']"), "", hidden()));
    }
    clients
}

#[test]
fn programs_use_a_key_that_they_never_have() {
    let canary = Canary(KEY);
    for has_worker in [false, true] {
        let place = Place::new(has_worker);
        place.make_repository();
        let collector = Server::start(|_, _| Reply::json(&json!({})));
        let all = clients(&place);
        let steps: Vec<_> = all.iter().map(|(id, work, more, _)| (*id, work.clone(), *more)).collect();
        let mut rest = vec![
            ("environment", "run: 'env; cat /proc/$$/environ'".to_owned(), ""),
            ("program", "mcp: {command: [./asking.py], tool: ask}".to_owned(), ""),
            (
                "component",
                format!(
                    "component: fetches.wasm\n    args: {{url: \"https://{0}/echo\"}}\n    grants: {{net: [\"{0}\"]}}",
                    place.host()
                ),
                "",
            ),
            ("pipeline", "pipeline: \"exec --shell 'curl -s $HOST_URL/echo'\"".to_owned(), ""),
        ];
        rest.splice(0..0, steps);
        place.write_flow(&rest);
        let check = place.run(&["check", "--strict", "flow.lobster"]);
        assert_eq!(check.code(), 0, "{}", check.stdout);
        let call = place.surrounded(place.home.lobster(["run", "--mode", "tool", "flow.lobster"]));
        let call = call.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
        let answer = call.env("LOBSTER_EVENTS", "jsonl:events.jsonl").run();
        assert!(answer.output().to_string().contains("you sent Bearer ***"), "{answer:?}");
        for (id, _, _, says) in &all {
            let logs = place.run(&["logs", "@", id]);
            assert!(logs.stdout.contains(says.as_str()), "{id}: {logs:?}");
        }
        for id in ["program", "component", "pipeline"] {
            let shown = place.run(&["show", "@", "--json"]).stdout;
            assert!(shown.contains(&hidden()), "{id}: {shown}");
        }
        for request in place.server.requests() {
            assert!(sent(&request).contains(KEY) || sent(&request).starts_with("Basic "), "{request:?}");
        }
        canary.assert_not_in("the run", format!("{answer:?}").as_bytes());
        for words in [
            &["show", "@", "--full"][..],
            &["show", "@", "--json"],
            &["logs", "@"],
            &["audit", "--json"],
            &["secrets", "check", "--workflow", "flow.lobster"],
            &["fork", "@"],
            &["why", "@", "curl"],
            &["replay", "@-"],
            &["bundle", "export", "@-", "-o", "run.bundle"],
        ] {
            let shown = place.run(words);
            canary.assert_not_in(&format!("{words:?}"), format!("{shown:?}").as_bytes());
        }
        assert!(!collector.requests().is_empty());
        for span in collector.requests() {
            canary.assert_not_in("a span", &span.body);
        }
        assert!(canary.assert_not_below(place.home.dir().parent().unwrap()) > 10);
    }
}

/// What a step leaves behind when it crashes is all of its memory and of its environment.
#[test]
fn a_core_dump_of_a_step_does_not_hold_the_key() {
    for has_worker in [false, true] {
        let place = Place::new(has_worker);
        place.home.write("crashes.py", CRASHES);
        place.write_flow(&[("crash", "run: '/usr/bin/python3 crashes.py; echo ended'".to_owned(), "")]);
        let answer = place.run(&["run", "--mode", "tool", "flow.lobster"]);
        assert!(answer.output().to_string().contains("ended"), "{answer:?}");
        assert_eq!(place.server.requests().len(), 1, "{answer:?}");
        let files = std::fs::read_dir(place.home.dir()).unwrap().map(|entry| entry.unwrap().path());
        let is_core = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"))
        };
        let Some(core) = files.into_iter().find(is_core) else {
            return println!("this system keeps core dumps elsewhere, or not at all");
        };
        let dump = std::fs::read(&core).unwrap();
        let marker = b"the-memory-of-this-step";
        assert!(dump.windows(marker.len()).any(|part| part == marker), "it has the memory");
        Canary(KEY).assert_not_in(&core.display().to_string(), &dump);
        Canary(KEY).assert_not_below(place.home.dir().parent().unwrap());
    }
}

/// In the jail nothing but the hosts of the credentials is reached, and neither lobster nor its
/// environment is there to be read.
#[test]
fn the_same_in_the_jail() {
    let place = Place::new(false);
    place.make_repository();
    // One program that the policy lets start whatever it is told to.
    let all = clients(&place);
    let mut targets: String = all
        .iter()
        .map(|(id, work, ..)| {
            let words: Vec<String> = match work.strip_prefix("exec: ") {
                Some(list) => list.trim_matches(['[', ']']).splitn(3, ", ").map(str::to_owned).collect(),
                None => vec![work.trim_start_matches("run: '").trim_end_matches('\'').to_owned()],
            };
            format!("{id}:\n\t@{}\n", words.join(" ").replace(", \"", " \"").replace('$', "$$"))
        })
        .collect();
    let _ = writeln!(
        targets,
        "direct:\n\t@curl -sk --max-time 30 --noproxy '*' https://{0}/echo || curl -sk --max-time 30 https://{0}/echo || \
         echo refused",
        place.host()
    );
    place.home.write("Makefile", targets);
    let rule = "[[rule]]\nid = \"make\"\neffect = \"allow\"\nprogram = \"make\"\nargs = { allow_flags = [\"-s\"] }\n\
                grant = { fs_write = [\"@workspace\"] }\n";
    let policy = |secret: &str, rule: &str| {
        let text = format!("version = 1\n[secrets.key]\nenv = \"THE_KEY\"\n{secret}\n{rule}");
        place.home.write("p.toml", text);
    };
    let step = |id: &'static str, more: &'static str| (id, format!("exec: [make, -s, {id}]"), more);
    let steps: Vec<_> = all.iter().map(|(id, _, more, _)| step(id, more)).collect();
    place.write_flow(&steps);
    let run = || place.run(&["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]);
    // A secret that the operator has bound to the host needs no other leave, and gives no other way out.
    policy(&format!("hosts = [\"{}\"]", place.host()), rule);
    let answer = run();
    if ["cannot enforce", "not found"].iter().any(|lack| answer.stdout.contains(lack)) {
        return println!("no jail, or no make, here: {answer:?}");
    }
    answer.output();
    for (id, _, _, says) in &all {
        let logs = place.run(&["logs", "@", id]);
        assert!(logs.stdout.contains(says.as_str()), "{id}: {logs:?}");
    }
    // The host itself is not reached: the credential is no grant of the network.
    place.write_flow(&[step("direct", "")]);
    let before = place.server.requests().len();
    assert_eq!(run().output(), json!(["refused\n"]));
    assert_eq!(place.server.requests().len(), before);
    // Without the binding, the policy must let steps have the secret and the command reach the host.
    place.write_flow(&[step("curl", "")]);
    policy("", rule);
    assert!(run().error().contains("the policy does not let steps receive it"));
    policy("[sandbox.env]\nsecrets = [\"key\"]", rule);
    let refused = run().error();
    assert!(refused.contains("may not reach") && refused.contains("hosts = ["), "{refused}");
    let reaching = format!("grant = {{ net = {{ hosts = [\"{}\"] }}, ", place.host());
    policy("[sandbox.env]\nsecrets = [\"key\"]", &rule.replace("grant = { ", &reaching));
    assert_eq!(run().output(), json!([hidden()]));
    Canary(KEY).assert_not_below(place.home.dir().parent().unwrap());
}

#[test]
fn a_credential_goes_to_its_host_for_what_it_was_granted_and_nowhere_else() {
    let place = Place::new(false);
    let curl = |words: &str| format!("run: 'curl -s --max-time 30 {words}'");
    let bounds = ", methods: [GET], paths: [/repos/acme]";
    for (work, more, says) in [
        (curl("$HOST_URL/repos/acme/x"), bounds, hidden()),
        (curl("-X DELETE $HOST_URL/repos/acme/x"), bounds, "for GET, not for DELETE".to_owned()),
        (curl("$HOST_URL/repos/other"), bounds, "below /repos/acme, not for /repos/other".to_owned()),
        (
            curl("--path-as-is $HOST_URL/repos/acme/../other"),
            bounds,
            "could mean another one to the server".to_owned(),
        ),
        (curl("-X TRACE $HOST_URL/x"), "", "no credential is added to TRACE".to_owned()),
        (
            curl("${HOST_URL%/*}/elsewhere:443/x"),
            "",
            "no credential of this step is for this address".to_owned(),
        ),
        (
            curl("${HOST_URL%/*/*}/0123/${HOST_URL##*/}/x"),
            "",
            "no credential of this step is for this address".to_owned(),
        ),
        // Sent on to another host, it gets there by itself.
        (curl("-L --cacert \"$SSL_CERT_FILE\" $HOST_URL/away"), "", "elsewhere".to_owned()),
        (curl("-I $HOST_URL/within | grep -i location"), "", "/127.0.0.1:".to_owned()),
    ] {
        place.write_flow(&[("a", work.clone(), more)]);
        let answer = place.run(&["run", "--mode", "tool", "flow.lobster"]);
        assert!(
            answer.output().to_string().replace('\\', "").contains(&says.replace('\\', "")),
            "{work}: {answer:?}"
        );
    }
    for request in place.elsewhere.requests() {
        assert_eq!((request.path.as_str(), sent(&request)), ("/there", "nothing"));
    }
    assert_eq!(place.elsewhere.requests().len(), 1);
    assert!(place.server.requests().iter().all(|request| request.method != "DELETE"));
    // An address is of use as long as its step is there. (Its port may be another lobster's by then, which refuses.)
    place.write_flow(&[
        ("a", "run: 'printf %s \"$HOST_URL\"'".to_owned(), ""),
        ("b", "run: 'curl -sf -m 5 \"$(cat)/echo\" || echo gone'\n    stdin: $a.stdout".to_owned(), ""),
    ]);
    assert_eq!(place.run(&["run", "--mode", "tool", "flow.lobster"]).output(), json!(["gone\n"]));
    // The host must be the one that it says it is.
    place.write_flow(&[("a", curl("$HOST_URL/echo"), "")]);
    let call = place.home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("THE_KEY", KEY);
    let before = place.server.requests().len();
    let answer = call.env("SSL_CERT_FILE", authority().with_file_name("server.pem")).run();
    assert!(answer.stdout.contains("cannot reach 127.0.0.1"), "{answer:?}");
    assert_eq!(place.server.requests().len(), before);
}

/// A component's request outside of the bounds goes as it was made; a redirect is its own to follow.
#[test]
fn a_component_is_held_to_the_same_bounds() {
    let place = Place::new(false);
    for (path, more, says) in [
        ("/echo", "", hidden()),
        ("/echo", ", paths: [/other]", "who are you?".to_owned()),
        ("/echo", ", methods: [POST]", "who are you?".to_owned()),
        ("/away", "", format!("https://localhost:{}/there", place.elsewhere.port())),
    ] {
        let work = format!(
            "component: fetches.wasm\n    args: {{url: \"https://{0}{path}\"}}\n    grants: {{net: [\"{0}\"]}}",
            place.host()
        );
        place.write_flow(&[("a", work, more)]);
        let answer = place.run(&["run", "--mode", "tool", "flow.lobster"]);
        assert!(answer.output().to_string().contains(&says), "{path} {more}: {answer:?}");
    }
    // What it was answered is answered again without the key and the network.
    let replayed = place.surrounded(place.home.lobster(["replay", "@-3"])).env("THE_KEY", "").run();
    assert!(replayed.code() == 0, "{replayed:?}");
    Canary(KEY).assert_not_below(place.home.dir().parent().unwrap());
}

/// Models and MCP servers by the same table, and not with what else the environment holds.
#[test]
fn models_and_mcp_servers_are_asked_with_the_credential_of_their_host() {
    let place = Place::new(false);
    let url = format!("https://{}", place.host());
    let run = |work: &str, more: &'static str| {
        place.write_flow(&[("a", work.to_owned(), more)]);
        let call = place.surrounded(place.home.lobster(["run", "--mode", "tool", "flow.lobster"]));
        let call = call.env("OPENAI_API_KEY", WRONG).env("MCP_TOKEN", WRONG);
        call.env("OPENAI_BASE_URL", format!("{url}/v1")).run()
    };
    let model = "pipeline: llm.invoke --provider openai --prompt p --model m --refresh";
    assert_eq!(run(model, "").output()[0]["output"]["text"], "an answer");
    let asked = run(&format!("mcp: {{url: '{url}/mcp', tool: say}}"), "");
    assert_eq!(asked.output(), json!(["you sent [redacted]"]), "{asked:?}");
    assert!(place.server.requests().iter().all(|request| sent(request) == format!("Bearer {KEY}")));
    // The operator's file has the same table, in another header too; the step has nothing then.
    place.home.write("flow.lobster", "steps:\n  - {id: a, mcp: {server: web, tool: say}}\n");
    for (more, header) in [("", "authorization"), (", header = \"x-api-key\"", "x-api-key")] {
        let table = format!("credentials = {{ \"{}\" = {{ secret = \"key\"{more} }} }}", place.host());
        let server = format!("version = 1\n[server.web]\nurl = \"{url}/mcp\"\n{table}\n");
        place.home.write("lobster.mcp.toml", server);
        let before = place.server.requests().len();
        let call = place.surrounded(place.home.lobster(["run", "--mode", "tool", "flow.lobster"]));
        let answer = call.env("MCP_TOKEN", WRONG).run();
        for request in &place.server.requests()[before..] {
            let sent = request.header(header).unwrap_or_default();
            assert_eq!(sent.strip_prefix("Bearer ").unwrap_or(sent), KEY, "{answer:?}");
        }
        assert!(place.server.requests().len() > before, "{answer:?}");
    }
    // Outside of its bounds, and for another host.
    assert!(run(model, ", paths: [/v2]").error().contains("401"), "the key went below another path");
    let refused = run("mcp: {url: 'https://other.invalid/mcp', tool: say}", "").error();
    assert!(refused.contains("the step has a credential for 127.0.0.1"), "{refused}");
    Canary(KEY).assert_not_below(place.home.dir().parent().unwrap());
}

#[test]
fn what_may_not_be_is_refused_before_anything_runs() {
    let place = Place::new(false);
    let refused = |credentials: &str, says: &str| {
        let text =
            format!("secrets: [key]\nsteps:\n  - {{id: a, run: touch made, credentials: {credentials}}}\n");
        place.home.write("flow.lobster", text);
        let answer = place.run(&["run", "--mode", "tool", "flow.lobster"]);
        assert!(answer.error().contains(says), "{credentials}: {answer:?}");
        assert!(!place.home.dir().join("made").exists());
    };
    refused("{h.example: other}", "is not listed");
    refused("{'https://h.example': key}", "is not a host");
    refused("{'*.example': key}", "is not a host");
    refused("[key]", "must be a map");
    refused("{h.example: {secret: key, headers: x}}", "has no field");
    refused("{h.example: {secret: key, header: host}}", "is not a header that a credential can be sent in");
    refused("{h.example: {secret: key, user: u}}", "needs `scheme: basic`");
    refused("{h.example: {secret: key, paths: [/a/../b]}}", "must be a plain path");
    refused("{h.example: {secret: key, paths: [a]}}", "must be a plain path");
    refused("{h.example: {secret: key, env: {A: b}}}", "must be the name of a variable");
    refused("{h.example: key, H.example: key}", "twice");
    // The operator's word goes before the file's.
    place.name_secret("hosts = [\"other.example\"]\n");
    refused("{h.example: key}", "the operator allows it for other.example, not for h.example");
    for (work, says) in [
        ("{id: a, run: touch made, secrets: {K: key}}", "no step receives it"),
        ("{id: a, js: '1', credentials: {h.example: key}}", "sends nothing itself"),
        ("{id: a, component: fetches.wasm, credentials: {h.example: key}}", "which its grants do not name"),
        ("{id: a, run: x, env: {X: y}, credentials: {h.example: {secret: key, env: X}}}", "set by both"),
        ("{id: a, run: x, cache: true, credentials: {h.example: key}}", "never cached"),
    ] {
        place.home.write("flow.lobster", format!("secrets: [key]\nsteps:\n  - {work}\n"));
        let answer = place.run(&["run", "--mode", "tool", "flow.lobster"]);
        assert!(answer.error().contains(says), "{work}: {answer:?}");
    }
    let list = place.run(&["secrets", "list"]).stdout;
    assert!(list.contains("only as a credential for other.example"), "{list}");
    let list: Value = serde_json::from_str(&place.run(&["secrets", "list", "--json"]).stdout).unwrap();
    assert_eq!(list[0]["hosts"], json!(["other.example"]));
}
