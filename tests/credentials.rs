//! A secret that a step is granted is the key that models, gateways and MCP servers are sent, whatever
//! else the environment holds; and it is nowhere else.

use serde_json::{Value, json};

use crate::canary::Canary;
use crate::home::{Answer, Call, Home};
use crate::server::{Reply, Request, Server};

/// Fit for a header, and written in another way by every encoding.
const KEY: &str = "sk-t0p/S3cret+\"quoted\"&%41-0123456789abcdef";

/// What the same variables hold in the environment: it must never be sent.
const AMBIENT: &str = "sk-ambient-0123456789";

/// The variables from which a token may be taken, each holding the wrong one.
const AMBIENT_VARIABLES: [&str; 6] =
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENCLAW_TOKEN", "POOL_KEY", "TICKETS_TOKEN", "MCP_TOKEN"];

/// A server on the standard streams that tells its token in every way it has.
const TELLING_SERVER: &str = r#"#!/usr/bin/env python3
import json, os, sys
token = os.environ.get("TICKETS_TOKEN", "none")
print("started with " + token, file=sys.stderr, flush=True)
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    if ask["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "telling", "version": "1"}}
    elif ask["method"] == "tools/list":
        answer = {"tools": [{"name": "say", "description": "Says.", "inputSchema": {"type": "object"}}]}
    else:
        answer = {"content": [{"type": "text", "text": "token " + token}], "structuredContent": {"token": token}}
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": answer}), flush=True)
"#;

/// What was sent to prove who asks.
fn sent(request: &Request) -> String {
    let key = request.header("authorization").or_else(|| request.header("x-api-key")).unwrap_or("none");
    key.strip_prefix("Bearer ").unwrap_or(key).to_owned()
}

/// An MCP server over HTTP that tells the token too.
pub(crate) fn mcp_over_http(request: &Request) -> Reply {
    let Ok(ask) = serde_json::from_slice::<Value>(&request.body) else {
        return Reply::status(405, "", "");
    };
    let result = match ask["method"].as_str().unwrap_or_default() {
        _ if ask.get("id").is_none() => return Reply::status(202, "", ""),
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "telling", "version": "1"}}),
        "tools/list" => json!({"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}),
        _ => json!({"content": [{"type": "text", "text": format!("you sent {}", sent(request))}]}),
    };
    Reply::json(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": result}))
}

/// Everything that is called here, on one port.
fn telling_server() -> Server {
    Server::start(|_, request| {
        let key = sent(request);
        match request.path.as_str() {
            "/v1/chat/completions" => Reply::chat(&format!("you sent {key}")),
            "/v1/messages" => Reply::json(&json!({
                "content": [{"type": "text", "text": format!("you sent {key}")}], "model": "m",
                "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
            })),
            "/refuses/chat/completions" => Reply::status(401, "", &format!("wrong key: {key}")),
            "/tools/invoke" => Reply::json(&json!({"ok": true, "result": {"said": key}})),
            "/mcp" => mcp_over_http(request),
            _ => Reply::status(404, "", &key),
        }
    })
}

/// A home whose operator has named the secret `key` and two MCP servers.
fn home(server: &Server) -> Home {
    let home = Home::new();
    let config = home.dir().parent().unwrap().join("home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), "[secrets.key]\nenv = \"THE_KEY\"\n").unwrap();
    home.write("server.py", TELLING_SERVER);
    home.write(
        "lobster.mcp.toml",
        format!(
            "version = 1\n[server.program]\ncommand = [\"./server.py\"]\ntimeout = \"50s\"\n\
             [server.granted]\ncommand = [\"./server.py\"]\nsecrets = {{ TICKETS_TOKEN = \"key\" }}\ntimeout = \"50s\"\n\
             [server.web]\nurl = \"{0}/mcp\"\ntoken_env = \"TICKETS_TOKEN\"\n\
             [server.own]\nurl = \"{0}/mcp\"\ntoken_secret = \"key\"\n",
            origin(server)
        ),
    );
    home
}

/// The address of a test's server without `/v1` behind it.
fn origin(server: &Server) -> String {
    server.url().trim_end_matches("/v1").to_owned()
}

fn surrounded(call: Call, server: &Server) -> Call {
    let pool = json!([{"name": "one", "provider": "openai", "model": "m", "url": format!("{}/v1", origin(server)),
                       "key_env": "POOL_KEY"}]);
    let call = call
        .env("THE_KEY", KEY)
        .env("OPENAI_BASE_URL", format!("{}/v1", origin(server)))
        .env("ANTHROPIC_BASE_URL", origin(server))
        .env("OPENCLAW_URL", origin(server))
        .env("LOBSTER_LLM_POOL", pool.to_string())
        .env("LOBSTER_LOG", "trace");
    AMBIENT_VARIABLES.iter().fold(call, |call, name| call.env(name, AMBIENT))
}

fn run(home: &Home, server: &Server, words: &[&str]) -> Answer {
    surrounded(home.lobster(words), server).run()
}

/// One step for each thing that is sent a key.
const STEPS: [(&str, &str); 9] = [
    (
        "openai",
        "pipeline: llm.invoke --provider openai --prompt p --model m --state-key k\n    secrets: {OPENAI_API_KEY: key}",
    ),
    (
        "anthropic",
        "pipeline: llm.invoke --provider anthropic --prompt p --model m\n    secrets: {ANTHROPIC_API_KEY: key}",
    ),
    ("pool", "pipeline: llm.invoke --provider pool --prompt p\n    secrets: {POOL_KEY: key}"),
    ("gateway", "pipeline: openclaw.invoke --tool t --action a\n    secrets: {OPENCLAW_TOKEN: key}"),
    // The other variable of the two: the grant counts, and not which is looked at first.
    ("older", "pipeline: clawd.invoke --tool t --action a\n    secrets: {CLAWD_TOKEN: key}"),
    ("program", "mcp: {server: program, tool: say}\n    secrets: {TICKETS_TOKEN: key}"),
    ("granted", "mcp: {server: granted, tool: say}"),
    ("web", "mcp: {server: web, tool: say}\n    secrets: {TICKETS_TOKEN: key}"),
    ("own", "pipeline: mcp.call --server own --tool say"),
];

fn write_flow(home: &Home, steps: &[(&str, &str)], rest: &str) {
    let steps: String = steps.iter().map(|(id, work)| format!("  - id: {id}\n    {work}\n")).collect();
    home.write("flow.lobster", format!("secrets: [key]\nsteps:\n{steps}{rest}"));
}

#[test]
fn a_granted_key_is_sent_and_never_the_one_of_the_environment() {
    for has_worker in [false, true] {
        let server = telling_server();
        let home = home(&server).with_worker(has_worker);
        for (id, work) in STEPS {
            write_flow(&home, &[(id, work)], "");
            let check = run(&home, &server, &["check", "--strict", "flow.lobster"]);
            assert_eq!(check.code(), 0, "{id}: {}", check.stdout);
            let before = server.requests().len();
            let answer = run(&home, &server, &["run", "--mode", "tool", "flow.lobster"]);
            assert!(
                answer.output().to_string().contains("«secret:key»") || id != "program",
                "{id}: {answer:?}"
            );
            let requests = server.requests();
            let keys: Vec<String> = requests[before..].iter().map(sent).collect();
            assert!(keys.iter().all(|key| key == KEY), "{id}: {keys:?}");
            assert!(!keys.is_empty() || matches!(id, "program" | "granted"), "{id} asked nobody");
        }
        // By an address of its own.
        let work =
            format!("mcp: {{url: '{}/mcp', tool: say}}\n    secrets: {{MCP_TOKEN: key}}", origin(&server));
        write_flow(&home, &[("address", &work)], "");
        run(&home, &server, &["run", "--mode", "tool", "flow.lobster"]).output();
        assert_eq!(sent(server.requests().last().unwrap()), KEY);
    }
}

/// A session that was opened with a secret is none for a step that was not granted it.
#[test]
fn a_server_that_holds_a_secret_serves_only_steps_that_are_granted_it() {
    let server = telling_server();
    let home = home(&server);
    write_flow(
        &home,
        &[
            ("with", "mcp: {server: program, tool: say}\n    secrets: {TICKETS_TOKEN: key}"),
            ("without", "mcp: {server: program, tool: say}"),
            ("again", "mcp: {server: program, tool: say}\n    secrets: {TICKETS_TOKEN: key}"),
        ],
        "  - {id: all, js: '[steps.with, steps.without, steps.again].map(s => s.token)'}\n",
    );
    let answer = run(&home, &server, &["run", "--mode", "tool", "flow.lobster"]);
    assert_eq!(answer.output(), json!(["«secret:key»", "none", "«secret:key»"]));
}

#[test]
fn a_grant_that_reaches_nothing_is_told_or_refused() {
    let server = telling_server();
    let home = home(&server);
    for (work, variable, says) in [
        (
            "pipeline: llm.invoke --provider openai --prompt p --model m",
            "OPENAI_KEY",
            "takes it as OPENAI_API_KEY",
        ),
        (
            "pipeline: llm.invoke --provider anthropic --prompt p --model m",
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
        ),
        ("pipeline: openclaw.invoke --tool t --action a", "TOKEN", "OPENCLAW_TOKEN or CLAWD_TOKEN"),
        ("pipeline: js '[1]' | where 'true'", "TOKEN", "reaches no stage"),
        ("mcp: {url: 'https://x.example/mcp', tool: say}", "TOKEN", "MCP_TOKEN"),
    ] {
        write_flow(&home, &[("a", &format!("{work}\n    secrets: {{{variable}: key}}"))], "");
        let check = run(&home, &server, &["check", "--strict", "flow.lobster"]);
        assert!(check.code() == 1 && check.stdout.contains(says), "{work}: {}", check.stdout);
    }
    // What the file of servers says is known when the step runs.
    write_flow(&home, &[("a", "mcp: {server: web, tool: say}\n    secrets: {TOKEN: key}")], "");
    let refused = run(&home, &server, &["run", "--mode", "tool", "flow.lobster"]).error();
    assert!(refused.contains("takes no secret as TOKEN"), "{refused}");
    assert!(server.requests().is_empty());
}

#[test]
fn a_secret_is_not_sent_in_the_clear_to_another_machine() {
    let server = telling_server();
    let home = home(&server);
    for (work, variable) in [
        ("pipeline: llm.invoke --provider openai --prompt p --model m", "OPENAI_API_KEY"),
        ("pipeline: llm.invoke --provider http --prompt p", "LOBSTER_LLM_ADAPTER_TOKEN"),
        ("pipeline: openclaw.invoke --tool t --action a --url http://gateway.invalid", "OPENCLAW_TOKEN"),
        ("mcp: {url: 'http://server.invalid/mcp', tool: say}", "MCP_TOKEN"),
    ] {
        write_flow(&home, &[("a", &format!("{work}\n    secrets: {{{variable}: key}}"))], "");
        let call = surrounded(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server);
        let call = call
            .env("OPENAI_BASE_URL", "http://models.invalid/v1")
            .env("LOBSTER_LLM_ADAPTER_URL", "http://adapter.invalid");
        let error = call.run().error();
        assert!(error.contains("refuses to send the secret key unencrypted"), "{work}: {error}");
    }
}

#[test]
fn a_key_that_was_sent_is_in_no_file_log_envelope_bundle_or_span() {
    let canary = Canary(KEY);
    let server = telling_server();
    let collector = Server::start(|_, _| Reply::json(&json!({})));
    let home = home(&server);
    let address =
        format!("mcp: {{url: '{}/mcp', tool: say}}\n    secrets: {{MCP_TOKEN: key}}", origin(&server));
    let refused = format!(
        "pipeline: llm.invoke --provider openai --prompt p --model m --refresh\n    secrets: {{OPENAI_API_KEY: key}}\n    \
         env: {{OPENAI_BASE_URL: '{}/refuses'}}\n    on_error: continue",
        origin(&server)
    );
    let steps: Vec<(&str, &str)> =
        STEPS.into_iter().chain([("address", address.as_str()), ("refused", refused.as_str())]).collect();
    write_flow(
        &home,
        &steps,
        "  - {id: native, run: 'env; echo \"$K\" >&2', secrets: {K: key}}\n\
         \x20 - {id: told, stdin: $gateway.json, pipeline: state.set told}\n\
         \x20 - {id: asks, approval: {prompt: 'Go on?'}, stdin: $program.json}\n\
         \x20 - {id: fails, run: 'env; exit 3', secrets: {K: key}}\n",
    );
    let watched = |words: &[&str]| {
        let call = surrounded(home.lobster(words), &server);
        let call = call
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
            .env("LOBSTER_EVENTS", "jsonl:events.jsonl");
        let answer = call.run();
        canary.assert_not_in(&format!("stdout of {words:?}"), answer.stdout.as_bytes());
        canary.assert_not_in(&format!("stderr of {words:?}"), answer.stderr.as_bytes());
        answer
    };
    let asked = watched(&["run", "--mode", "tool", "flow.lobster"]);
    let token = asked.token();
    let failed = watched(&["resume", "--token", &token, "--approve", "yes"]);
    assert!(failed.error().contains("«secret:key»"), "{failed:?}");
    assert!(server.requests().iter().all(|request| sent(request) == KEY));
    for words in [
        &["show", "@", "--full"][..],
        &["show", "@", "--json"],
        &["logs", "@"],
        &["audit", "--json"],
        &["cost", "--json"],
        &["approvals", "--json"],
        &["secrets", "list"],
        &["secrets", "check", "--workflow", "flow.lobster"],
        &["fork", "@"],
        &["why", "@", "native"],
        &["replay", "@-"],
        &["bundle", "export", "@-", "-o", "run.bundle"],
    ] {
        let shown = watched(words);
        assert!(!shown.stdout.is_empty() || words[0] == "bundle", "{words:?}: {shown:?}");
    }
    assert!(home.dir().join("run.bundle").exists() && home.dir().join("events.jsonl").exists());
    for span in collector.requests() {
        canary.assert_not_in("a span", &span.body);
    }
    assert!(!collector.requests().is_empty(), "no spans");
    assert!(canary.assert_not_below(home.dir().parent().unwrap()) > 10);
}

#[test]
fn sources_are_tried_without_a_run() {
    let server = telling_server();
    let home = home(&server);
    let config = home.dir().parent().unwrap().join("home/.config/lobster/secrets.toml");
    let more = "[secrets.gone]\nfile = \"~/nowhere\"\n[secrets.fails]\ncommand = [\"false\"]\n";
    std::fs::write(&config, format!("[secrets.key]\nenv = \"THE_KEY\"\n{more}")).unwrap();
    let list = run(&home, &server, &["secrets", "list"]).stdout;
    assert!(
        ["environment variable THE_KEY", "file ~/nowhere", "command false"]
            .iter()
            .all(|from| list.contains(from))
    );
    let check = run(&home, &server, &["secrets", "check", "--json"]);
    assert_eq!(check.code(), 1);
    let found: Value = serde_json::from_str(&check.stdout).unwrap();
    let ok =
        |name: &str| found.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()["ok"].clone();
    assert_eq!([ok("key"), ok("gone"), ok("fails")], [json!(true), json!(false), json!(false)]);
    assert_eq!(run(&home, &server, &["secrets", "check", "key"]).code(), 0);
    // A workflow names what its steps are granted, and what the file of MCP servers grants.
    write_flow(&home, &[STEPS[6]], "");
    let check = run(&home, &server, &["secrets", "check", "--workflow", "flow.lobster"]);
    assert_eq!((check.code(), check.stdout.as_str()), (0, "key: ok\n"));
    home.write("flow.lobster", "secrets: [other]\nsteps:\n  - {id: a, run: 'true', secrets: [other]}\n");
    let check = run(&home, &server, &["secrets", "check", "--workflow", "flow.lobster"]);
    assert!(check.code() == 1 && check.stdout.contains("it has no source yet"), "{check:?}");
    // Under a policy that lets steps receive none, and none is read.
    home.write("policy.toml", "version = 1\n");
    let policy = home.dir().join("policy.toml");
    let under =
        |words: &[&str]| surrounded(home.lobster(words), &server).env("LOBSTER_POLICY", &policy).run();
    let list = under(&["secrets", "list", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&list.stdout).unwrap()[0]["allowed"], false, "{list:?}");
    assert!(under(&["secrets", "check", "key"]).stdout.contains("the policy does not let steps receive it"));
}
