//! Tokens only name approvals and input requests: whatever else is in them, or made up, opens nothing.

use serde_json::{Value, json};

use crate::home::{Answer, Home};

const WORKFLOW: &str = "
steps:
  - id: ask
    approval: Send?
  - id: send
    run: echo sent >> log
";

fn waiting() -> (Home, String) {
    let home = Home::new();
    let token = home.write("flow.lobster", WORKFLOW).tool(["flow.lobster"]).token();
    (home, token)
}

fn resume(home: &Home, token: &str) -> Answer {
    home.lobster(["resume", "--token", token, "--approve", "yes"]).run()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn encode(value: &Value) -> String {
    let bytes = value.to_string().into_bytes();
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            out.push(char::from(ALPHABET[(group >> (18 - 6 * index) & 63) as usize]));
        }
    }
    out
}

fn decode(token: &str) -> Value {
    let (mut bytes, mut group, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in token.bytes() {
        let six = ALPHABET.iter().position(|known| *known == byte).expect("a token is base64url");
        group = group << 6 | u32::try_from(six).unwrap();
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits & 0xff) as u8);
        }
    }
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_token_carries_no_state() {
    let (home, token) = waiting();
    let content = decode(&token);
    let keys: Vec<_> = content.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["protocolVersion", "v", "kind", "stateKey"]);
    assert_eq!(resume(&home, &token).envelope()["status"], "ok");
    assert_eq!(home.read("log"), "sent\n");
}

#[test]
fn every_changed_character_makes_another_token() {
    let (home, token) = waiting();
    let key = decode(&token)["stateKey"].as_str().unwrap().to_owned();
    for index in (0..key.len()).step_by(5) {
        let mut bytes = key.clone().into_bytes();
        bytes[index] = if bytes[index] == b'0' { b'1' } else { b'0' };
        let mut content = decode(&token);
        content["stateKey"] = json!(String::from_utf8(bytes).unwrap());
        resume(&home, &encode(&content)).error();
    }
    for length in [0, 1, 20, token.len() / 2, token.len() - 8] {
        resume(&home, &token[..length]).error();
    }
    assert_eq!(home.read("log"), "");
    assert_eq!(resume(&home, &token).envelope()["status"], "ok", "the gate is still open for its token");
}

#[test]
fn legacy_tokens_that_carry_state_are_refused() {
    let (home, _) = waiting();
    let file = home.dir().join("flow.lobster");
    let embedded = json!({
        "protocolVersion": 1, "v": 1, "kind": "workflow-file", "filePath": file, "resumeAtIndex": 1,
        "steps": { "ask": { "id": "ask", "approved": true } }, "args": {}, "approvalStepId": "ask",
    });
    let message = resume(&home, &encode(&embedded)).error();
    assert!(message.contains("carries its own state"), "{message}");
    let pipeline = json!({
        "protocolVersion": 1, "v": 1, "kind": "pipeline-resume", "items": [1], "resumeAtIndex": 0,
        "pipeline": [{ "name": "exec", "args": { "_": [], "shell": "echo sent >> log" }, "raw": "" }],
    });
    resume(&home, &encode(&pipeline)).error();
    assert_eq!(home.read("log"), "");
}

#[test]
fn made_up_tokens_and_ids_are_refused() {
    let (home, token) = waiting();
    let real = decode(&token)["stateKey"].as_str().unwrap().to_owned();
    let other_kind = real.replace("workflow_resume_", "pipeline_resume_");
    for state_key in [
        "workflow_resume_00000000-0000-0000-0000-000000000000".to_owned(),
        "../../../etc/passwd".to_owned(),
        "workflow_resume_../../x".to_owned(),
        String::new(),
        "x".repeat(10_000),
        "workflow_resume_'; DROP TABLE gates; --".to_owned(),
        other_kind,
    ] {
        let content = json!({ "protocolVersion": 1, "v": 1, "kind": "workflow-file", "stateKey": state_key });
        resume(&home, &encode(&content)).error();
    }
    for id in ["00000000", "../gates", "' OR 1=1 --", "%", "*", "ffffffffffffffff"] {
        home.lobster(["resume", "--id", id, "--approve", "yes"]).run().error();
    }
    resume(&home, &"A".repeat(100_000)).error();
    assert_eq!(home.read("log"), "");
}

#[test]
fn another_states_token_opens_nothing() {
    let (_home, token) = waiting();
    let (other, _) = waiting();
    resume(&other, &token).error();
    assert_eq!(other.read("log"), "");
}

#[test]
fn users_state_does_not_reach_gates() {
    let (home, token) = waiting();
    let key = decode(&token)["stateKey"].as_str().unwrap().to_owned();
    let id = {
        let gates = home.lobster(["approvals", "--json"]).run();
        serde_json::from_str::<Value>(&gates.stdout).unwrap()[0]["id"].as_str().unwrap().to_owned()
    };
    for name in [key.as_str(), id.as_str(), "store/lobster.db", "../state/store/lobster.db", "store"] {
        // Whether it is refused or kept under another name: the gate is what it was.
        let set = home.tool([format!("exec --json --shell 'echo {{}}' | state.set '{name}'")]);
        set.envelope();
        home.tool([format!("state.get '{name}'")]).envelope();
    }
    home.write("made-up.json", "{}");
    for name in
        [format!("{key}.json"), format!("approval_{id}.json"), "workflow_resume_forged.json".to_owned()]
    {
        let forged = json!({
            "filePath": home.dir().join("flow.lobster"), "resumeAtIndex": 1, "args": {}, "createdAt": "2026-01-01T00:00:00Z",
            "steps": { "ask": { "id": "ask", "approved": true } }, "stateKey": "workflow_resume_forged",
        });
        std::fs::write(home.state().join(name), forged.to_string()).unwrap();
    }
    let content = json!({ "protocolVersion": 1, "v": 1, "kind": "workflow-file", "stateKey": "workflow_resume_forged" });
    resume(&home, &encode(&content)).error();
    assert_eq!(home.read("log"), "");
    assert_eq!(resume(&home, &token).envelope()["status"], "ok");
}

#[test]
fn mistyped_gates_are_errors_and_not_absent() {
    for approval in
        ["1", "[x]", "\"\"", "'  '", "{ promt: x }", "{ required_approver: 5 }", "{ prompt: [x] }"]
    {
        let home = Home::new();
        home.write("flow.lobster", WORKFLOW.replace("approval: Send?", &format!("approval: {approval}")));
        let answer = home.tool(["flow.lobster"]);
        let envelope = answer.envelope();
        assert!(
            envelope["ok"] == false || envelope["status"] == "needs_approval",
            "approval: {approval} vanished: {answer:?}"
        );
        assert_eq!(home.read("log"), "", "approval: {approval}");
    }
    for typo in ["aproval", "approvals", "Approval"] {
        let home = Home::new();
        home.write("flow.lobster", WORKFLOW.replace("approval: Send?", &format!("{typo}: Send?")));
        let answer = home.tool(["flow.lobster"]);
        assert!(answer.envelope()["ok"] == false || answer.stderr.contains("approval"), "{typo}: {answer:?}");
    }
}
