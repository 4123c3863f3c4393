//! Every failure has a code, and `lobster help CODE` explains every code there is.

use lobster_runtime::code::Code;
use serde_json::Value;

use crate::home::Home;

#[test]
fn each_is_explained() {
    let home = Home::new();
    let unexplained: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| {
            let page = home.lobster(["help", code.as_str()]).run();
            // A name may be that of a command, too, whose page stands before.
            page.code() != 0 || !page.stdout.lines().any(|line| line.starts_with(&format!("{code} — ")))
        })
        .collect();
    assert!(unexplained.is_empty(), "no page for {unexplained:?}");
}

/// The end of the last run, as its journal has it: status and code.
fn end_of_last_run(home: &Home) -> Option<(String, Value)> {
    let runs: Value =
        serde_json::from_str(&home.lobster(["runs", "--json", "--limit", "1"]).run().stdout).unwrap();
    let id = runs[0]["id"].as_str()?;
    let journal: Value = serde_json::from_str(&home.lobster(["show", id, "--json"]).run().stdout).unwrap();
    let end = journal.as_array()?.iter().rev().find(|record| record["event"]["type"] == "run_ended")?;
    let event = &end["event"];
    Some((event["status"].as_str().unwrap_or_default().to_owned(), event["detail"]["code"].clone()))
}

/// A step of each kind that fails, and the code of its failure.
const STEPS: &[(&str, Code)] = &[
    ("run: exit 3", Code::CommandFailed),
    ("exec: [no-such-program-at-all]", Code::ProgramNotFound),
    ("run: sleep 9\ntimeout_ms: 100", Code::Timeout),
    ("run: seq 100000\nlimits: {output: 64}", Code::ProcessOutputLimit),
    ("js: 'while (true) {}'\nlimits: {fuel: 100_000_000}", Code::OutOfFuel),
    ("js: 'while (true) {}'\ntimeout_ms: 300", Code::Timeout),
    ("pipeline: exec --json echo no json", Code::CommandError),
    ("pipeline: exec sh -c 'exit 3'", Code::CommandFailed),
    ("pipeline: exec no-such-program-at-all", Code::ProgramNotFound),
    ("pipeline: head --n $bad.stdout", Code::BadArguments),
    ("pipeline: openclaw.invoke --url http://127.0.0.1:9 --tool a --action b", Code::CommandError),
    ("pipeline: llm.invoke --provider openai --model m --prompt hi", Code::Model),
    ("mcp: {server: absent, tool: t}", Code::McpServer),
    ("for_each: $bad.json\nsteps: [{id: one, run: echo}]", Code::StepValue),
    (
        "parallel:\n  wait: all\n  branches: [{id: left, run: exit 3}, {id: right, run: echo}]",
        Code::CommandFailed,
    ),
    ("parallel:\n  wait: all\n  timeout_ms: 200\n  branches: [{id: left, run: sleep 9}]", Code::Timeout),
];

/// A file whose failing step stands at some depth, and the files beside it.
fn file_with(step: &str, depth: &str) -> (String, Option<String>) {
    let indented =
        |by: usize| step.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect::<String>();
    let first = "  - id: bad\n    run: echo '{}'\n";
    match depth {
        "top" => (format!("steps:\n{first}  - id: it\n{}", indented(4)), None),
        "loop" => (
            format!(
                "steps:\n{first}  - id: list\n    run: echo '[1]'\n  - id: each\n    for_each: $list.json\n    steps:\n      - id: it\n{}",
                indented(8)
            ),
            None,
        ),
        "branch" => (
            format!(
                "steps:\n{first}  - id: both\n    parallel:\n      wait: all\n      branches:\n        - id: it\n{}",
                indented(10)
            ),
            None,
        ),
        _ => (
            "steps:\n  - id: sub\n    workflow: ./sub.lobster\n".to_owned(),
            Some(format!("steps:\n{first}  - id: it\n{}", indented(4))),
        ),
    }
}

#[test]
fn a_failed_run_has_the_code_of_its_failure_at_every_depth() {
    let mut wrong = Vec::new();
    for (step, expected) in STEPS {
        for depth in ["top", "loop", "branch", "sub-workflow"] {
            // One of each way of failing stands at every depth; the others only at the top.
            let everywhere = [Code::CommandFailed, Code::OutOfFuel, Code::CommandError, Code::McpServer]
                .contains(expected);
            if depth != "top" && (!everywhere || step.contains("branches") || step.contains("openclaw")) {
                continue;
            }
            let home = Home::new();
            let (file, beside) = file_with(step, depth);
            home.write("flow.lobster", &file);
            if let Some(text) = beside {
                home.write("sub.lobster", text);
            }
            let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
            let ran = call.env("OPENAI_API_KEY", "k").env("OPENAI_BASE_URL", "http://127.0.0.1:9").run();
            let end = end_of_last_run(&home);
            if end != Some(("failed".to_owned(), Value::from(expected.as_str()))) {
                wrong.push(format!(
                    "{step:?} ({depth}): {end:?}, not {expected}: {}{}",
                    ran.stdout, ran.stderr
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
