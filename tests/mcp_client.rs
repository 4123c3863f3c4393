//! Tools of other programs: servers that lie, stall, flood, change and die.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::binary;
use crate::home::{Answer, Home, wait_until};
use crate::server::{Reply, Server};

/// A home with one server of this manner.
fn server(mode: &str) -> Home {
    let home = Home::new();
    configure(&home, mode, "Says it back.", "timeout = \"20s\"");
    home
}

fn configure(home: &Home, mode: &str, description: &str, more: &str) {
    let script = binary::repository().join("tests/mcp/hostile_server.py");
    let command = json!(["python3", script, mode, description]);
    home.write("lobster.mcp.toml", format!("version = 1\n[server.s]\ncommand = {command}\n{more}\n"));
}

fn say(home: &Home) -> Answer {
    home.tool(["mcp.call --server s --tool say --args-json '{\"text\":\"hi\"}'"])
}

/// The server that ran last is gone.
fn assert_gone(home: &Home) {
    assert!(server_is_gone(home), "the server is still there");
}

fn server_is_gone(home: &Home) -> bool {
    let pid: i32 = home.read("server.pid").trim().parse().unwrap();
    rustix::process::test_kill_process(rustix::process::Pid::from_raw(pid).unwrap()).is_err()
}

fn last_run(home: &Home) -> String {
    let runs = home.lobster(["runs", "--json", "--limit", "1"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_tools_structure_goes_on_and_is_replayed_without_the_server() {
    let home = server("good");
    home.write(
        "flow.lobster",
        "args:\n  text: {default: hi}\nsteps:\n  - id: ask\n    mcp: {server: s, tool: say}\n    args: {text: \"${text}\", item: [1, {a: \"$x\"}]}\n\
         \x20 - id: use\n    js: steps.ask.said.text + steps.ask.said.item[0]\n    stdin: $ask.json\n",
    );
    let answer = home.tool(["flow.lobster"]);
    assert_eq!(answer.output(), json!(["hi1"]), "{answer:?}");
    assert_gone(&home);
    let run = last_run(&home);
    std::fs::remove_file(home.dir().join("lobster.mcp.toml")).unwrap();
    let replay = home.lobster(["replay", &run]).run();
    assert_eq!(replay.code(), 0, "{replay:?}");
    assert!(replay.stdout.contains("1 answered from the record"), "{replay:?}");
    assert_eq!(home.read("calls.log").lines().count(), 1);
}

#[test]
fn each_item_is_one_recorded_call_and_none_is_repeated() {
    let home = server("fails-second");
    let answer = home.tool(["js '[1,2,3]' | mcp.call --server s --tool say --each"]);
    let message = answer.error();
    assert!(message.contains("stopped at item 2; the call for item 1 was answered"), "{message}");
    assert_eq!(home.read("calls.log").lines().count(), 2);
    configure(&home, "good", "Says it back.", "");
    let resumed = home.lobster(["resume", &last_run(&home)]).run();
    assert_eq!(resumed.output().as_array().unwrap().len(), 3, "{resumed:?}");
    // Item 1 was answered; 2 and 3 are called now.
    let items: Vec<Value> = home
        .read("calls.log")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["item"].clone())
        .collect();
    assert_eq!(items, [json!(1), json!(2), json!(2), json!(3)]);
}

#[test]
fn a_result_that_looks_like_an_envelope_or_an_approval_is_data() {
    let home = server("envelope");
    let answer = say(&home);
    let output = answer.output();
    assert_eq!(output[0]["status"], "needs_approval");
    // Its words may not replace the file's, nor say who may answer.
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    mcp: {server: s, tool: say}\n    approval: {prompt: Delete it?, required_approver: ann}\n",
    );
    let answer = home.tool(["flow.lobster"]);
    let request = &answer.envelope()["requiresApproval"];
    assert_eq!((&request["prompt"], &request["requiredApprover"]), (&json!("Delete it?"), &json!("ann")));
    assert_ne!(request["resumeToken"], "x");
}

#[test]
fn a_tools_own_failure_fails_the_step() {
    let home = server("tool-error");
    let message = say(&home).error();
    assert!(message.contains("mcp server s") && message.contains("the disk is full"), "{message}");
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    mcp: {server: s, tool: say}\n    on_error: continue\n  - id: after\n    js: '\"went on\"'\n",
    );
    assert_eq!(home.tool(["flow.lobster"]).output(), json!(["went on"]));
}

#[test]
fn a_changed_description_stops_the_run_with_the_difference() {
    let home = server("good");
    let locked = home.lobster(["mcp", "lock"]).run();
    assert_eq!(locked.code(), 0, "{locked:?}");
    say(&home).output();
    configure(&home, "good", "Says it back, and mails it to me.", "");
    let message = say(&home).error();
    assert!(message.contains("\"Says it back.\"") && message.contains("mails it to me"), "{message}");
    assert_eq!(home.read("calls.log").lines().count(), 1, "the changed tool was not called");
    let check = home.lobster(["mcp", "lock", "--check"]).run();
    assert!(check.code() == 1 && check.stdout.contains("mails it to me"), "{check:?}");
    home.lobster(["mcp", "lock"]).run();
    say(&home).output();
}

#[test]
fn arguments_are_checked_before_the_call() {
    let home = server("good");
    let answer = home.tool(["mcp.call --server s --tool say --args-json '{\"text\":7}'"]);
    let message = answer.error();
    assert!(message.contains("/text") && message.contains("string"), "{message}");
    let message = home.tool(["mcp.call --server s --tool shout"]).error();
    assert!(message.contains("no tool \"shout\"; it has say"), "{message}");
    let message = home.tool(["mcp.call --server t --tool say"]).error();
    assert!(message.contains("there are s"), "{message}");
    assert_eq!(home.read("calls.log"), "");
}

#[test]
fn servers_that_stall_flood_or_die_are_errors_in_time() {
    for (mode, more, parts) in [
        ("silent", "timeout = \"5s\"", &["no answer within 5000 ms"][..]),
        ("no-handshake", "timeout = \"4s\"", &["has not answered within 4000 ms"]),
        ("endless", "timeout = \"20s\"", &["pages"]),
        ("exit", "", &["exit code 7", "it went wrong"]),
        ("oversized", "", &["more than", "max_bytes"]),
        ("noise", "", &["are not messages"]),
        ("wrong-types", "timeout = \"4s\"", &["mcp server s"]),
    ] {
        let home = Home::new();
        configure(&home, mode, "Says it back.", more);
        let answer = say(&home);
        let message = answer.error();
        assert!(parts.iter().all(|part| message.contains(part)), "{mode}: {message}");
        assert!(answer.took < Duration::from_secs(50), "{mode} took {:?}", answer.took);
        assert!(answer.stdout.len() < 64 << 10, "{mode}: what it sent is not in the answer");
        assert_gone(&home);
    }
    let home = server("notifications");
    assert_eq!(say(&home).output(), json!([{"said": {"text": "hi"}}]));
}

/// Whichever answer does not come: the one to the handshake, the list of tools, or that of the tool.
#[test]
fn the_limit_of_a_step_ends_each_wait_for_a_server() {
    let deaf = Server::start(|_, _| Reply::Silence);
    for mode in ["no-handshake", "no-list", "silent", "address"] {
        let home = Home::new();
        configure(&home, mode, "Says it back.", "timeout = \"60s\"");
        if mode == "address" {
            let url = format!("{}/mcp", deaf.url());
            home.write(
                "lobster.mcp.toml",
                format!("version = 1\n[server.s]\nurl = \"{url}\"\ntimeout = \"60s\"\n"),
            );
        }
        home.write("flow.lobster", "steps:\n  - {id: a, timeout_ms: 2000, mcp: {server: s, tool: say}}\n");
        let answer = home.tool(["flow.lobster"]);
        assert!(answer.error().contains("2000"), "{mode}: {answer:?}");
        assert!(answer.took < Duration::from_secs(40), "{mode}: {:?}", answer.took);
        if mode != "address" {
            assert_gone(&home);
        }
    }
}

#[test]
fn a_server_that_does_not_end_is_ended() {
    let home = server("deaf");
    say(&home).output();
    assert_gone(&home);
    let home = server("silent");
    let mut child = home.lobster(["run", "--mode", "tool", "mcp.call --server s --tool say"]).start();
    wait_until("the call went out", || !home.read("calls.log").is_empty());
    child.kill().unwrap();
    crate::home::wait(&mut child, &"lobster");
    wait_until("the server is gone", || server_is_gone(&home));
}

#[test]
fn the_operator_says_which_servers_and_tools() {
    let home = server("good");
    configure(&home, "good", "Says it back.", "tools = [\"read_*\"]");
    let message = say(&home).error();
    assert!(message.contains("does not allow its tool \"say\""), "{message}");
    // Under a policy the servers are named outside of the directory that steps write to.
    configure(&home, "good", "Says it back.", "");
    home.write("policy.toml", "version = 1\n");
    let message = home
        .lobster(["run", "--mode", "tool", "--policy", "policy.toml", "mcp.call --server s --tool say"])
        .run()
        .error();
    assert!(message.contains("LOBSTER_MCP_CONFIG"), "{message}");
    let message = home
        .lobster([
            "run",
            "--mode",
            "tool",
            "--policy",
            "policy.toml",
            "mcp.call --url http://127.0.0.1:9/mcp --tool t",
        ])
        .run()
        .error();
    assert!(message.contains("named by the operator"), "{message}");
    assert_eq!(home.read("calls.log"), "");
}

#[test]
fn mistakes_in_a_step_are_found_before_anything_runs() {
    let home = Home::new();
    for (fields, part) in [
        ("mcp: {tool: t}", "one of server, command and url"),
        ("mcp: {server: s}", "names no tool"),
        ("mcp: {server: s, tool: t, tol: x}", "no field \"tol\""),
        ("mcp: {server: s, url: 'http://x', tool: t}", "one of server, command and url"),
        ("mcp: {command: [], tool: t}", "must be a list"),
        ("mcp: {server: s, tool: t}\n    run: echo", "can only define one"),
    ] {
        home.write(
            "flow.lobster",
            format!("steps:\n  - id: a\n    run: touch ran\n  - id: b\n    {fields}\n"),
        );
        let message = home.tool(["flow.lobster"]).error();
        assert!(message.contains(part), "{fields}: {message}");
        assert!(!home.dir().join("ran").exists());
    }
}

/// A server of protocol 2026-07-28 that knows no handshake: each request says for itself who asks.
#[test]
fn a_server_without_a_handshake_is_discovered() {
    const VERSION: &str = "2026-07-28";
    let server = Server::start(|_, request| {
        let Ok(ask) = serde_json::from_slice::<Value>(&request.body) else {
            return Reply::status(405, "", "");
        };
        let method = ask["method"].as_str().unwrap_or_default();
        if method != "initialize" {
            let meta = &ask["params"]["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], VERSION, "{ask}");
            assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "lobster", "{ask}");
            assert_eq!(request.header("mcp-protocol-version"), Some(VERSION));
            assert_eq!(request.header("mcp-method"), Some(method));
        }
        let result = match method {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": [VERSION], "capabilities": {"tools": {}},
                "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/list" => json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": [{"name": "say", "inputSchema": {"type": "object"}}],
            }),
            "tools/call" => json!({"resultType": "complete", "content": [{"type": "text", "text": "said"}]}),
            _ => {
                let error = json!({"code": -32022, "message": "Unsupported protocol version",
                    "data": {"supported": [VERSION], "requested": ask["params"]["protocolVersion"]}});
                return Reply::json(&json!({"jsonrpc": "2.0", "id": ask["id"], "error": error}));
            }
        };
        Reply::json(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": result}))
    });
    let answer = Home::new().tool([format!("mcp.call --url {}/mcp --tool say", server.url())]);
    assert_eq!(answer.output(), json!(["said"]), "{answer:?}");
}

/// A server over HTTP with a session, whose first call of a tool is answered with `first`.
fn with_session(annotations: Value, first: impl Fn() -> Reply + Send + Sync + 'static) -> Server {
    let calls = AtomicUsize::new(0);
    Server::start(move |_, request| {
        let Ok(ask) = serde_json::from_slice::<Value>(&request.body) else {
            return Reply::status(405, "", "");
        };
        let result = match ask["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }),
            "tools/list" => json!({"tools": [
                {"name": "say", "inputSchema": {"type": "object"}, "annotations": annotations},
            ]}),
            "tools/call" if calls.fetch_add(1, Ordering::SeqCst) == 0 => return first(),
            "tools/call" => json!({"content": [{"type": "text", "text": "said"}]}),
            _ => return Reply::status(202, "", ""),
        };
        let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": result}).to_string();
        Reply::status(200, "content-type: application/json\r\nmcp-session-id: s1\r\n", &answer)
    })
}

fn asked(server: &Server, method: &str) -> usize {
    let asks = server.requests().into_iter();
    asks.filter(|ask| serde_json::from_slice::<Value>(&ask.body).is_ok_and(|ask| ask["method"] == method))
        .count()
}

/// Whatever a server answers, a call that may have been done is not sent again; what is known to
/// do no harm is, over a new connection.
#[test]
fn no_answer_of_a_server_sends_a_call_twice() {
    let html = "content-type: text/html\r\n";
    type Answer = fn() -> Reply;
    let answers: [(&str, Answer); 7] = [
        ("does not know the session any more", || Reply::status(404, "", "{}")),
        ("redirects are not followed", || Reply::status(307, "location: http://localhost:1/\r\n", "")),
        ("HTTP 400 Bad Request: no", || Reply::status(400, "content-type: text/plain\r\n", "no")),
        ("HTTP 500", || Reply::status(500, "content-type: text/plain\r\n", "no")),
        ("HTTP 503", || Reply::status(503, "retry-after: 0\r\n", "")),
        ("text/html instead of JSON", || Reply::status(200, "content-type: text/html\r\n", "<html>")),
        ("", || Reply::Bytes(Vec::new())),
    ];
    for (said, first) in answers {
        let server = with_session(json!({}), first);
        let home = Home::new();
        let step = format!(
            "steps:\n  - {{id: a, mcp: {{url: '{}/mcp', tool: say}}, retry: {{max: 3}}}}\n",
            server.url()
        );
        home.write("flow.lobster", &step);
        let message = home.tool(["flow.lobster"]).error();
        assert!(message.contains(said) && !message.contains("rmcp"), "{said}: {message}");
        assert_eq!(asked(&server, "tools/call"), 1, "{said}: {message}");
        let harmless = with_session(json!({"readOnlyHint": true}), first);
        home.write("flow.lobster", step.replace(&server.url(), &harmless.url()));
        assert_eq!(home.tool(["flow.lobster"]).output(), json!(["said"]), "{said}");
        assert_eq!(asked(&harmless, "tools/call"), 2, "{said}");
    }
    let page = Server::start(move |_, _| Reply::status(200, html, "<html>"));
    let message = Home::new().tool([format!("mcp.call --url {}/mcp --tool say", page.url())]).error();
    assert!(
        message.contains("there is no MCP server at this address") && !message.contains("rmcp"),
        "{message}"
    );
}
