//! What a client of `lobster mcp` is shown: names of tools, forms for its user, signs of life.

use serde_json::{Value, json};

use crate::home::Home;
use crate::mcp_server::Client;

/// Names that are no tool's as they are, that differ in one character alone, and that the server has itself.
#[test]
fn each_workflow_is_a_tool_of_its_own() {
    let home = Home::new();
    let flow = "steps: [{id: a, js: '1'}]";
    let names = ["\u{90e8}\u{7f72}", "\u{6e05}\u{7406}", "\u{5907}\u{4efd}", "a b", "a-b", "a.b", "run"];
    for name in names {
        home.write(&format!("flows/{name}.lobster"), flow);
    }
    let listed = |home: &Home| -> Vec<(String, String)> {
        let tools = Client::ready(home, &["--workflows", "flows"], None).tools();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| (text(&tool["name"]), text(&tool["title"])))
            .collect()
    };
    let before = listed(&home);
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    assert!(before.iter().all(|(name, _)| name.len() <= 64 && name.chars().all(fits)), "{before:?}");
    for name in names {
        let own: Vec<_> = before.iter().filter(|(_, title)| title == name).collect();
        assert_eq!(own.len(), 1, "{name}: {before:?}");
    }
    assert!(before.iter().any(|(name, _)| name == "a-b"), "a name that fits stays: {before:?}");
    home.write("flows/\u{90e8}.lobster", flow).write("flows/a:b.lobster", flow);
    let after = listed(&home);
    assert!(before.iter().all(|tool| after.contains(tool)), "{before:?} {after:?}");
    assert_eq!(after.len(), before.len() + 2, "{after:?}");
}

/// What an agent writes may be longer than what a form shows; a person approves no command unseen.
#[test]
fn a_form_that_hides_a_command_takes_no_yes() {
    let yes = json!({"action": "accept", "content": {"approve": true}});
    // A question has 50 different commands at most, each as long as the agent likes.
    for (touches, length, hides) in [(20, 1, false), (24, 400, true)] {
        let home = Home::new();
        let many = |from: usize| -> String {
            (from..from + touches).map(|n| format!("touch s{}{n}; ", "x".repeat(length))).collect()
        };
        let text = format!("{}mkdir -p precious; {}true", many(0), many(1000));
        let mut client = Client::ready(&home, &[], Some(yes.clone()));
        let answer = client.call("run", json!({"pipeline": format!("exec --shell '{text}'")}));
        let asked = client.heard.iter().find(|message| message["method"] == "elicitation/create");
        match hides {
            true => {
                assert_eq!(answer["status"], "needs_approval", "{answer}");
                assert!(asked.is_none(), "{asked:?}");
                assert!(answer["note"].as_str().unwrap().contains("more commands"), "{answer}");
                assert!(!home.dir().join("precious").exists());
            }
            false => {
                let message = asked.unwrap()["params"]["message"].as_str().unwrap();
                assert!(message.contains("precious"), "{message}");
                assert_ne!(answer["status"], "needs_approval", "{answer}");
            }
        }
    }
}

#[test]
fn a_silent_step_is_reported_as_running() {
    let home = Home::new();
    let mut client = Client::ready(&home, &["--profile", "open"], None);
    let call =
        json!({"name": "run", "arguments": {"pipeline": "exec sleep 11"}, "_meta": {"progressToken": 1}});
    let id = client.begin("tools/call", call);
    client.answer_to(id);
    let told: Vec<_> =
        client.heard.iter().filter_map(|message| message["params"]["message"].as_str()).collect();
    assert!(told.iter().any(|text| text.contains("since the call began")), "{told:?}");
}
