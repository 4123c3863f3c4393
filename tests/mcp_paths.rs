//! Paths that an agent writes into a pipeline: lobster opens none of them past the policy, and
//! none of them stops the server.

use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType};
use serde_json::{Value, json};

use crate::home::Home;
use crate::mcp_server::Client;

/// What no answer may have, as text or as bytes in hexadecimal.
const CANARY: [&str; 3] = ["PIN=4711", "50494e", "50 49 4e"];

const LIMIT: Duration = Duration::from_millis(1000);

/// How much later than its limit a call may be answered on a machine with other work: what waits for
/// a pipe is never answered.
const LATE: Duration = Duration::from_secs(20);

/// Commands that must not be let in by the operator to be tried here.
const FREE: [&str; 3] = ["exec", "component", "js"];

/// A home with what lobster should not read, and what never ends.
fn home() -> Home {
    let home = Home::new();
    home.write("canary", CANARY[0]);
    let pipe = home.dir().join("pipe");
    rustix::fs::mknodat(CWD, pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    home
}

fn is_answered(client: &mut Client, pipeline: &str) -> Value {
    let begun = Instant::now();
    let limit = u64::try_from(LIMIT.as_millis()).unwrap();
    let answer = client.call("run", json!({ "pipeline": pipeline, "timeoutMs": limit }));
    assert!(begun.elapsed() < LIMIT + LATE, "{pipeline}: after {:?}", begun.elapsed());
    let text = answer.to_string();
    assert!(!CANARY.iter().any(|part| text.contains(part)), "{pipeline}: {text}");
    answer
}

/// The arguments of a command in its text, with one of them replaced.
fn pipeline_of(command: &str, args: &Value, option: &str, value: &str) -> String {
    let quoted = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("'{}'", text.replace('\'', ""))
    };
    let mut text = command.to_owned();
    for (name, given) in args.as_object().into_iter().flatten() {
        match given {
            _ if name == "_" || name == option => {}
            Value::Bool(true) => text += &format!(" --{name}"),
            given => text += &format!(" --{name} {}", quoted(given)),
        }
    }
    if option == "_" {
        return format!("{text} {value}");
    }
    for word in args["_"].as_array().into_iter().flatten() {
        text += &format!(" {}", quoted(word));
    }
    format!("{text} --{option} {value}")
}

#[test]
fn no_argument_of_any_command_makes_lobster_read_a_file() {
    let home = home();
    let mut plain = Client::ready(&home, &[], None);
    let commands = plain.call("run", json!({"pipeline": "commands.list --all"}))["output"].clone();
    let commands = commands.as_array().unwrap();
    let names: Vec<&str> = commands.iter().map(|command| command["name"].as_str().unwrap()).collect();
    let allowed = names.iter().filter(|name| !FREE.contains(name)).flat_map(|name| ["--allow", name]);
    let mut allowing = Client::ready(&home, &allowed.collect::<Vec<_>>(), None);
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), CANARY[0]).unwrap();
    let outside = outside.path().to_str().unwrap();
    let mut tried = 0;
    for command in commands {
        let name = command["name"].as_str().unwrap();
        let example = &command["examples"][0]["args"];
        for (option, schema) in command["argsSchema"]["properties"].as_object().unwrap() {
            if schema["type"] == "boolean" || schema["type"] == "number" {
                continue;
            }
            for value in ["canary", outside, "@canary", "pipe", "/dev/zero", "/dev/stdin"] {
                let stage = pipeline_of(name, example, option, value);
                let pipeline = format!("commands.list | head --n 1 | {stage}");
                is_answered(if FREE.contains(&name) { &mut plain } else { &mut allowing }, &pipeline);
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "{tried} of {names:?}");
    // Neither server is deaf.
    for client in [&mut plain, &mut allowing] {
        assert_eq!(is_answered(client, "commands.list | head --n 1")["ok"], true);
    }
}

#[test]
fn a_component_of_another_place_is_refused_without_a_word_about_it() {
    let home = home();
    home.write("sub/not.wasm", CANARY[0]);
    std::os::unix::fs::symlink("/etc/passwd", home.dir().join("link.wasm")).unwrap();
    let mut client = Client::ready(&home, &[], None);
    let mut told = Vec::new();
    for path in ["/etc/passwd", "/etc/no-such-file", "/etc", "link.wasm", "pipe", "/dev/stdin", "sub"] {
        let refused = is_answered(&mut client, &format!("component {path}"));
        assert_eq!(refused["error"]["type"], "refused", "{refused}");
        told.push(refused["error"]["message"].as_str().unwrap().replace(path, "PATH"));
    }
    told.dedup();
    assert_eq!(told.len(), 1, "what is there is not told: {told:?}");
    let no_component = is_answered(&mut client, "component sub/not.wasm");
    assert!(no_component["error"]["message"].as_str().unwrap().contains("not WebAssembly"), "{no_component}");
    // Whatever does not become a run is on record as refused.
    let runs = home.lobster(["runs", "--json", "--status", "failed"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 8, "{runs}");
    assert_eq!(no_component["runId"], runs[0]["id"], "{no_component}");
}

#[test]
fn from_a_shell_no_path_waits_or_grows_either() {
    let home = home();
    for path in ["pipe", "/dev/zero", "/dev/stdin", "canary"] {
        home.write("w.lobster", format!("steps:\n  - id: a\n    component: {path}\n"));
        let inspect = vec!["step", "inspect", path];
        let (component, template) =
            (format!("component {path}"), format!("exec echo x | template --file {path}"));
        let unfit = path != "canary";
        for words in [inspect, vec!["run", &component], vec!["run", "w.lobster"], vec!["run", &template]] {
            if words[1] == template && !unfit {
                continue;
            }
            let done = home.lobster(&words).run();
            assert!(!done.status.success(), "{words:?}: {done:?}");
            assert!(!CANARY.iter().any(|part| format!("{done:?}").contains(part)), "{words:?}: {done:?}");
        }
    }
}
