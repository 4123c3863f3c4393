//! What a command prints and nobody can be given, because the disk is full or the reader has gone: never a success
//! that prints nothing, and never a panic.

use serde_json::Value;

use crate::home::{Answer, Home};

/// Commands that serve over their streams.
const SERVERS: &[&[&str]] = &[&["serve"], &["mcp"], &["mcp", "serve"], &["worker"]];

/// Every command line of interest: each command alone and with the last run, each of them also as JSON.
fn command_lines(commands: &Value, before: &[String], found: &mut Vec<Vec<String>>) {
    for command in commands.as_array().into_iter().flatten() {
        let mut words = before.to_vec();
        words.push(command["name"].as_str().unwrap().to_owned());
        command_lines(&command["commands"], &words, found);
        if SERVERS.contains(&words.iter().map(String::as_str).collect::<Vec<_>>().as_slice()) {
            continue;
        }
        let arguments: Vec<&Value> = command["arguments"].as_array().into_iter().flatten().collect();
        let has = |flag: &str| arguments.iter().any(|argument| argument["flag"] == flag);
        let mut variants = vec![words.clone()];
        for argument in arguments.iter().filter(|argument| argument["required"] == true) {
            for variant in &mut variants {
                variant.extend(argument["flag"].as_str().map(str::to_owned));
                variant.push(argument["choices"][0].as_str().unwrap_or("x").to_owned());
            }
        }
        // What names a run or a gate stands alone, whether or not it is required.
        if arguments.iter().any(|argument| argument["flag"].is_null()) {
            variants.push(words.iter().cloned().chain(["@".to_owned()]).collect());
        }
        for variant in variants {
            for flag in ["--json", "--dry-run", "--unit"] {
                if has(flag) {
                    let mut more: Vec<String> = variant.iter().cloned().chain([flag.to_owned()]).collect();
                    if flag == "--json" && words == ["fork"] {
                        more.push("--dry-run".to_owned());
                    }
                    found.push(more);
                }
            }
            found.push(variant);
        }
    }
}

fn with_streams(home: &Home, streams: &str, words: &[String]) -> Answer {
    let script = format!("\"$0\" \"$@\" </dev/null {streams}");
    let program = crate::binary::lobster().display().to_string();
    let words = ["-c", &script, &program].into_iter().map(str::to_owned).chain(words.iter().cloned());
    home.program("bash", words).run()
}

#[test]
fn what_cannot_be_printed_is_no_success_and_no_panic() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: a\n    run: echo one\n");
    home.write("ask.lobster", "steps:\n  - id: ask\n    approval: Go on?\n");
    home.tool(["ask.lobster"]).token();
    home.tool(["flow.lobster"]).output();
    let described: Value = serde_json::from_str(&home.lobster(["--describe"]).run().stdout).unwrap();
    let mut all: Vec<Vec<String>> = [
        &["--describe"][..],
        &["--help"],
        &["--version"],
        &["flow.lobster"],
        &["run", "--mode", "tool", "flow.lobster"],
    ]
    .map(|words| words.iter().map(|word| (*word).to_owned()).collect())
    .to_vec();
    all.extend([vec!["serve".to_owned(), "unit".to_owned()], vec!["approvals".to_owned()]]);
    command_lines(&described["commands"], &[], &mut all);
    assert!(all.len() > 150, "{}", all.len());
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for words in all {
        let unheard = with_streams(&home, "2>/dev/full", &words);
        let gone = with_streams(&home, "| true; exit ${PIPESTATUS[0]}", &words);
        let full = with_streams(&home, ">/dev/full", &words);
        for answer in [&unheard, &gone, &full] {
            if ![0, 1, 2].contains(&answer.code()) || answer.stderr.contains("panicked at") {
                wrong.push(format!("{words:?}: {answer:#?}"));
            }
        }
        let plain = with_streams(&home, "", &words);
        if plain.code() == 0 && !plain.stdout.is_empty() {
            compared += 1;
            if full.code() == 0 {
                wrong.push(format!("{words:?} printed nothing and succeeded: {full:#?}"));
            }
        }
    }
    assert!(compared > 30, "{compared}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
