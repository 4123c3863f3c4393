//! The inbox triage that made this runtime: collect, categorize, ask, apply.

use serde_json::{Value, json};

use crate::home::Home;

/// A mail program that keeps its mailbox in a file and logs what it was told to do.
const INBOX: &str = r#"#!/bin/sh
set -eu
case "$1" in
list) cat mailbox.json ;;
categorize) sed 's/"unread":true/"unread":true,"category":"archive"/g' ;;
apply) cat > applied.json; echo apply >> effects.log; cat applied.json ;;
*) echo "inbox: unknown command $1" >&2; exit 64 ;;
esac
"#;

const MAILBOX: &str = r#"[{"id":"m1","unread":true,"subject":"Plan"},{"id":"m2","unread":true,"subject":"Ünïcode | \"quoted\""}]"#;

const PIPELINE: &str = "exec --json --shell 'inbox list --json' | exec --stdin json --shell 'inbox categorize --json' \
                        | exec --stdin json --shell 'inbox apply --json' \
                        | approve --preview-from-stdin --limit 5 --prompt 'Apply changes?'";

const WORKFLOW: &str = "
name: inbox-triage
args:
  limit: { default: 5 }
steps:
  - id: collect
    command: inbox list --json
  - id: categorize
    command: inbox categorize --json
    stdin: $collect.stdout
  - id: approve
    command: cat
    stdin: $categorize.stdout
    approval: required
  - id: execute
    command: inbox apply --json
    stdin: $categorize.stdout
    condition: $approve.approved
";

fn mailbox() -> Home {
    let home = Home::new();
    home.write("bin/inbox", INBOX).write("mailbox.json", MAILBOX).write("inbox-triage.lobster", WORKFLOW);
    home
}

fn categorized() -> Value {
    let text = MAILBOX.replace("\"unread\":true", "\"unread\":true,\"category\":\"archive\"");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_pipeline_previews_asks_and_goes_on() {
    let home = mailbox();
    let asked = home.tool([PIPELINE]);
    let envelope = asked.envelope();
    assert_eq!(envelope["status"], "needs_approval");
    assert_eq!(envelope["output"], json!([]));
    let request = &envelope["requiresApproval"];
    assert_eq!(request["type"], "approval_request");
    assert_eq!(request["prompt"], "Apply changes?");
    let preview = request["preview"].as_str().unwrap();
    assert!(preview.contains("m1") && preview.contains("archive"), "{preview}");
    assert_eq!(home.read("effects.log"), "apply\n");

    let done = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).run();
    // Without `--json` a line of output is a text item, here one JSON text in another.
    let output = done.output();
    let lines: Vec<String> = serde_json::from_str(output[0].as_str().unwrap()).unwrap();
    let mails: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((lines.len(), mails), (1, categorized()));
    assert_eq!(home.read("effects.log"), "apply\n", "what ran before the question runs once");

    let again = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).run();
    assert!(again.error().contains("not found"), "{again:?}");
}

#[test]
fn the_pipeline_can_be_refused() {
    let home = mailbox();
    let asked = home.tool([PIPELINE]);
    let done = home.lobster(["resume", "--token", &asked.token(), "--approve", "no"]).run();
    assert_eq!(done.envelope()["status"], "cancelled");
    assert_eq!(home.read("effects.log"), "apply\n");
}

#[test]
fn the_workflow_applies_after_yes_only() {
    for (answer, log, status) in [("yes", "apply\n", "ok"), ("no", "", "cancelled")] {
        let home = mailbox();
        let asked = home.tool(["inbox-triage.lobster", "--args-json", "{\"limit\":2}"]);
        let request = asked.envelope()["requiresApproval"].clone();
        assert_eq!((&request["items"], &request["prompt"]), (&categorized(), &json!("Approve approve?")));
        assert_eq!(home.read("effects.log"), "");
        let id = request["approvalId"].as_str().unwrap();
        let done = home.lobster(["resume", "--id", id, "--approve", answer]).run();
        assert_eq!(done.envelope()["status"], status, "{done:?}");
        if answer == "yes" {
            assert_eq!(done.output(), categorized());
        }
        assert_eq!(home.read("effects.log"), log);
    }
}

#[test]
fn of_many_processes_that_answer_one_gate_one_wins() {
    for round in 0..20 {
        let home = mailbox();
        let token = home.tool(["inbox-triage.lobster"]).token();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| home.lobster(["resume", "--token", &token, "--approve", "yes"]).run())
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let won = answers.iter().filter(|answer| answer.envelope()["ok"] == true).count();
        assert_eq!(won, 1, "round {round}: {answers:#?}");
        for lost in answers.iter().filter(|answer| answer.code() != 0) {
            assert!(lost.error().contains("not found"), "{lost:?}");
        }
        assert_eq!(home.read("effects.log"), "apply\n", "round {round}");
    }
}
