//! A jailed step with the host's network, and an agent over MCP, want a yes to a question that waits for a
//! person. They know all there is to know of it but a credential. None of their ways may work.

use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\ngrant = { net = \"host-network\" }\n";

/// Everything that would have changed if one of them had worked.
fn state_of(home: &Home, served: &Served, admin: &str) -> Value {
    let all = |path: &str| served.get(admin, path).good();
    let tokens = all("/api/v1/tokens")["tokens"].as_array().unwrap().len();
    let trail: Vec<Value> = all("/api/v1/trail")["trail"].as_array().unwrap().clone();
    let waits = home.lobster(["event", "list", "--json"]).run();
    let events: Value = serde_json::from_str(&waits.stdout).unwrap();
    json!({ "gates": all("/api/v1/approvals?all=1"), "tokens": tokens, "trail": trail, "events": events["events"] })
}

#[test]
fn no_step_and_no_agent_answers_its_own_question() {
    let home = Home::new();
    let policy = home.dir().join("p.toml");
    home.write("p.toml", POLICY).write("attack.pl", include_str!("self_approval.pl"));
    home.write("ask.lobster", "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: after, run: 'true'}\n");
    let admin = token(&home, "admin", None);
    register(&home, &["ask.lobster"]);
    home.write(
        "serve.toml",
        "allow_host = ['127.0.0.1']\n[proxy]\nsocket = 'proxy/s'\npeople = { ann = 'admin' }\n",
    );
    let served = Served::start_under(&home, &policy, &["--config", "serve.toml"]);
    let socket = home.dir().join("proxy/s").display().to_string();
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok(), "a proxy reaches it");
    served.post(&admin, "/api/v1/workflows/ask/runs", &json!({})).good();
    let gate = served.question(&admin);
    let text = |name: &str| gate[name].as_str().unwrap().to_owned();
    let port = served.address.rsplit(':').next().unwrap().to_owned();
    let lobster = crate::binary::lobster().display().to_string();
    let state = home.state().display().to_string();
    let words = [
        port,
        text("id"),
        text("digest"),
        text("run"),
        lobster,
        state,
        home.dir().join("../home").display().to_string(),
        served.child.id().to_string(),
        socket,
    ];
    let exec: Vec<&str> = ["perl", "attack.pl"].into_iter().chain(words.iter().map(String::as_str)).collect();
    home.write("attack.lobster", json!({ "steps": [{ "id": "a", "exec": exec }] }).to_string());
    register(&home, &["attack.lobster"]);
    let mut before = state_of(&home, &served, &admin);
    let run = served.post(&admin, "/api/v1/workflows/attack/runs", &json!({})).good();
    let run = run["run"].as_str().unwrap();
    let ended = served.ended(&admin, run);
    let told = home.lobster(["logs", run]).run();
    if ended["status"] != "ok" && told.stdout.contains("cannot enforce") {
        println!("no jail here: {told:?}");
        return;
    }
    let ways: Vec<(&str, &str)> =
        told.stdout.lines().filter_map(|line| line.trim().strip_prefix("WAY ")?.rsplit_once(": ")).collect();
    assert!(ways.len() >= 50, "{ended} {told:?}");
    assert!(told.stdout.contains("REACHED 200"), "it reached the server at all: {told:?}");
    let worked: Vec<_> = ways.iter().filter(|(_, how)| how.starts_with('2')).collect();
    assert!(worked.is_empty(), "{worked:?}");

    // An agent that the operator has left no answers to.
    let mut tries = 0;
    let lines: Vec<String> = ["approve", "yes", "true"]
        .iter()
        .flat_map(|yes| {
            [
                json!({ "approvalId": text("id"), "approve": yes }),
                json!({ "id": text("id"), "approve": true }),
                json!({ "token": text("id"), "approve": true }),
                json!({ "run": text("run"), "decision": yes }),
                json!({ "resumeToken": text("digest"), "approve": true, "approvedBy": "ann" }),
            ]
        })
        .flat_map(|arguments| ["resume", "run", "approvals", "answer"].map(|tool| (tool, arguments.clone())))
        .map(|(tool, arguments)| {
            tries += 1;
            json!({ "jsonrpc": "2.0", "id": tries, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
                .to_string()
        })
        .collect();
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "agent", "version": "1" } } });
    let input = format!(
        "{hello}\n{}\n{}\n",
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        lines.join("\n")
    );
    let agent = home.lobster(["mcp", "--approvals", "operator"]).stdin(input).run();
    let answers = agent.stdout.lines().filter(|line| line.contains("\"id\":")).count();
    assert!(answers > tries / 2, "{agent:?}");
    wait_until("all has settled", || !served.get(&admin, "/healthz").body.is_empty());
    let mut after = state_of(&home, &served, &admin);
    // What this test did itself.
    let begins = "POST /api/v1/workflows/{workflow}/runs";
    let own = |deed: &Value| deed["object"] == "attack" || deed["object"] == begins;
    for state in [&mut before, &mut after] {
        state["trail"].as_array_mut().unwrap().retain(|deed| !own(deed));
    }
    assert_eq!(after, before);
    println!("{} ways of a step, {tries} of an agent: none worked", ways.len());
}
