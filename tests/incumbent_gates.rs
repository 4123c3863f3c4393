//! Questions that `@clawdbot/lobster` left in the state directory: recorded
//! ones of two releases (`tests/incumbent_gates/RELEASE/KIND/`, each the
//! envelope that the caller got and the files that were left behind).
//!
//! They are named, with the program and the command that answers them; they
//! are never answered here, never lost, and never "not found".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::home::{Answer, Home};

const RELEASES: [&str; 2] = ["2026.6.11", "2026.9.13"];
const KINDS: [&str; 4] = ["pipeline", "workflow", "input", "pipeask"];

/// One recorded question in a state directory of its own.
struct Left {
    home: Home,
    token: String,
    id: Option<String>,
    is_input: bool,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

fn recorded(release: &str, kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("incumbent_gates").join(release).join(kind)
}

fn leave(home: &Home, release: &str, kind: &str) {
    for entry in std::fs::read_dir(recorded(release, kind).join("state")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), home.state().join(entry.file_name())).unwrap();
    }
}

fn left(release: &str, kind: &str) -> Left {
    let home = Home::new();
    leave(&home, release, kind);
    let envelope = std::fs::read(recorded(release, kind).join("envelope.json")).unwrap();
    let envelope: Value = serde_json::from_slice(&envelope).unwrap();
    let is_input = envelope["status"] == "needs_input";
    let request = &envelope[if is_input { "requiresInput" } else { "requiresApproval" }];
    let token = request["resumeToken"].as_str().unwrap().to_owned();
    let id = request["approvalId"].as_str().map(str::to_owned);
    let files = files(&home);
    Left { home, token, id, is_input, files }
}

/// The incumbent's files of a state directory.
fn files(home: &Home) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(home.state()).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn refused(left: &Left, words: &[&str]) -> String {
    let message = left.home.lobster(words).run().error();
    assert!(!message.contains("not found"), "{words:?}: {message}");
    assert!(message.contains("made by @clawdbot/lobster"), "{words:?}: {message}");
    message
}

/// The command that a message or a line gives.
fn command(text: &str) -> &str {
    let from = text.find("LOBSTER_STATE_DIR=").expect(text);
    text[from..].split(['`', '\n']).next().unwrap()
}

#[test]
fn an_answer_is_refused_with_the_command_that_the_incumbent_takes() {
    for (release, kind) in RELEASES.iter().flat_map(|release| KINDS.map(|kind| (*release, kind))) {
        let left = left(release, kind);
        let answer: &[&str] = if left.is_input {
            &["--response-json", r#"{"colour":"it's red"}"#]
        } else {
            &["--approve", "yes"]
        };
        let expected = if left.is_input {
            r#"--response-json '{"colour":"it'\''s red"}'"#.to_owned()
        } else {
            "--approve yes".to_owned()
        };
        let name = match &left.id {
            Some(id) => format!("--id {id}"),
            None => format!("--token {}", left.token),
        };
        let state = left.home.state().display().to_string();
        let npx = format!("LOBSTER_STATE_DIR={state} npx -y @clawdbot/lobster@2026.9.13 resume {name}");
        let message = refused(&left, &[&["resume", "--token", &left.token], answer].concat());
        assert_eq!(command(&message), format!("{npx} {expected}"), "{release} {kind}");
        let made_by = if release == "2026.6.11" { "2026.6.11 or older" } else { "2026.9.11 or newer" };
        assert!(message.contains(made_by), "{release} {kind}: {message}");
        let message = refused(&left, &["resume", "--token", &left.token, "--cancel"]);
        assert_eq!(command(&message), format!("{npx} --cancel"));
        if let Some(id) = &left.id {
            let message = refused(&left, &["resume", "--id", id, "--approve", "no"]);
            assert_eq!(command(&message), format!("{npx} --approve no"));
            refused(&left, &["resume", "--id", &id.to_uppercase(), "--cancel"]);
            refused(&left, &["approvals", "approve", id]);
            let shown = left.home.lobster(["approvals", "show", id]).run();
            assert!(shown.stderr.contains("made by @clawdbot/lobster"), "{shown:?}");
        }
        assert_eq!(files(&left.home), left.files, "{release} {kind}: the question is as it was left");
    }
}

#[test]
fn gates_and_doctor_name_them_beside_their_own_output() {
    let home = Home::new();
    assert_eq!(home.lobster(["approvals"]).run().stderr, "");
    leave(&home, "2026.9.13", "pipeline");
    let told = |answer: &Answer, first: &str| {
        let first = format!("{first} in {}. ", home.state().display());
        assert!(answer.stderr.starts_with(&first), "{answer:?}");
        assert!(answer.stderr.contains("npx -y @clawdbot/lobster@2026.9.13 resume --id"), "{answer:?}");
    };
    let list = home.lobster(["approvals"]).run();
    told(&list, "1 question of @clawdbot/lobster waits");
    assert_eq!((list.code(), list.stdout.as_str()), (0, "no open questions\n"));
    leave(&home, "2026.6.11", "input");
    leave(&home, "2026.9.13", "answered");
    let list = home.lobster(["approvals", "--json"]).run();
    told(&list, "2 questions of @clawdbot/lobster wait");
    assert_eq!(list.stdout, "[]\n");
    assert!(list.stderr.contains("--response-json JSON"), "{list:?}");
    let doctor = home.lobster(["doctor"]).run();
    told(&doctor, "2 questions of @clawdbot/lobster wait");
    assert_eq!(doctor.envelope()["ok"], true);
    // A question of ours stands on stdout, as ever.
    home.tool(["exec echo 1 | approve --prompt ours"]).token();
    let list = home.lobster(["approvals"]).run();
    assert!(list.stdout.contains("ours") && !list.stdout.contains("Go on?"), "{list:?}");
}

#[test]
fn one_that_the_incumbent_has_taken_an_answer_to_is_said_to_be_over() {
    let left = left("2026.9.13", "answered");
    let message = refused(&left, &["resume", "--token", &left.token, "--approve", "yes"]);
    assert!(message.contains("already accepted an answer"), "{message}");
}

/// Anything may lie in the state directory: `state.set` writes there.
#[test]
fn files_that_only_look_like_questions_do_no_harm() {
    let left = left("2026.9.13", "pipeline");
    let state = left.home.state();
    let key = |n: u32| format!("pipeline_resume_00000000-0000-4000-8000-{n:012x}.json");
    std::fs::write(state.join(key(1)), "{").unwrap();
    std::fs::write(state.join(key(2)), "[".repeat(100_000)).unwrap();
    std::fs::create_dir(state.join(key(3))).unwrap();
    std::os::unix::fs::symlink("/dev/zero", state.join(key(4))).unwrap();
    std::os::unix::fs::symlink(state.join(key(1)), state.join(key(5))).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(state.join(key(6))).status().unwrap().success());
    std::fs::write(state.join("pipeline_resume_$(touch x).json"), "{}").unwrap();
    std::fs::write(state.join("approval_0000.json"), r#"{"stateKey":"../../../etc/passwd"}"#).unwrap();
    std::fs::write(state.join("approval_0001.json"), r#"{"stateKey":7}"#).unwrap();
    let list = left.home.lobster(["approvals"]).run();
    assert!(list.stderr.starts_with("3 questions of @clawdbot/lobster wait"), "{list:?}");
    assert!(!list.stderr.contains('$'), "{list:?}");
    for id in ["0000", "0001", "../approval_0001", ""] {
        left.home.lobster(["resume", "--id", id, "--approve", "yes"]).run().error();
    }
    // A forged record starts nothing: there is no import.
    let forged = r#"{"pipeline":[{"name":"exec","args":{"_":["touch","forged"]},"raw":"exec touch forged"}],"resumeAtIndex":0,"items":[],"haltType":"approval_request"}"#;
    std::fs::write(state.join(key(7)), forged).unwrap();
    std::fs::write(
        state.join("approval_0007.json"),
        format!(r#"{{"stateKey":"{}"}}"#, key(7).trim_end_matches(".json")),
    )
    .unwrap();
    refused(&left, &["resume", "--id", "0007", "--approve", "yes"]);
    assert!(!left.home.dir().join("forged").exists());
}
