//! What calls wait for: neither for people that think nor longer than their limit, and what stops at a
//! gate is told as that.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::Home;
use crate::mcp_server::Client;

#[test]
fn people_who_think_keep_no_call_waiting() {
    let home = Home::new();
    let mut client = Client::ready(&home, &[], Some(Value::Null));
    let gate = json!({"name": "run", "arguments": {"pipeline": "approve --prompt q"}});
    for _ in 0..70 {
        client.begin("tools/call", gate.clone());
    }
    let arguments = json!({"pipeline": "commands.list | head --n 1", "timeoutMs": 20_000});
    let answer = client.call("run", arguments);
    assert_eq!(answer["ok"], true, "{answer}");
    let asked = client.heard.iter().filter(|message| message["method"] == "elicitation/create").count();
    assert!(asked > 0, "{:?}", client.heard);
}

#[test]
fn waiting_for_a_turn_ends_with_the_calls_time() {
    let home = Home::new();
    let mut client = Client::ready(&home, &["--profile", "open"], None);
    for _ in 0..70 {
        let arguments = json!({"pipeline": "exec sleep 20", "timeoutMs": 30_000});
        client.begin("tools/call", json!({"name": "run", "arguments": arguments}));
    }
    let begun = Instant::now();
    let answer = client.call("run", json!({"pipeline": "commands.list | head --n 1", "timeoutMs": 500}));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("busy"), "{answer}");
}

#[test]
fn what_stops_at_a_gate_with_much_to_show_still_asks() {
    let home = Home::new();
    let items = format!("[{}]", vec![format!("\"{}\"", "x".repeat(1000)); 900].join(","));
    home.write("big.json", items);
    let call = json!({"pipeline": "exec --json cat big.json | approve --prompt big"});
    let asking = |client: &mut Client, call: &Value| {
        let answer = client.call("run", call.clone());
        assert_eq!(answer["status"], "needs_approval", "{answer}");
        assert!(answer["requiresApproval"]["approvalId"].is_string(), "{answer}");
        assert!(answer["note"].as_str().unwrap().contains("of items"), "{answer}");
        let items = answer["requiresApproval"]["items"].as_array().unwrap().len();
        assert!(items < 900 && answer.to_string().len() < 530_000, "{items}");
    };
    let mut nobody = Client::ready(&home, &["--profile", "open"], None);
    asking(&mut nobody, &call);
    let small =
        json!({"pipeline": "exec --json cat big.json | approve --prompt big", "maxStdoutBytes": 1024});
    asking(&mut nobody, &small);
    let yes = json!({"action": "accept", "content": {"approve": true}});
    let mut user = Client::ready(&home, &["--profile", "open"], Some(yes));
    let answer = user.call("run", call);
    assert!(user.heard.iter().any(|message| message["method"] == "elicitation/create"), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("exceeded maxStdoutBytes") && message.contains("ended ok"), "{answer}");
}
