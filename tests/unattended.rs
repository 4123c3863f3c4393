//! The contract with programs that start lobster where nobody looks on: `docs/unattended.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lobster_runtime::store::{RunFilter, Store};
use serde_json::Value;

use crate::home::{Answer, Call, Home};
use crate::markdown::Document;
use crate::random_workflows::{Dice, RESPONSE, Scenario};
use crate::setting::number;

/// No call of a random workflow takes longer, however busy the machine is; one that waits for a terminal would.
const LONGEST: Duration = Duration::from_secs(30);

/// What a program may leave lobster as its streams. The pipe is open, and nothing ever comes.
const STREAMS: [&str; 5] = ["<&-", "</dev/null", "< silent", "<&- 2>&-", "< silent 2>&-"];

/// A call of `lobster` that has no terminal.
fn lobster_with(streams: &str, home: &Home, words: &[&str]) -> Call {
    let script = format!(r#"exec 3<>silent; exec lobster "$@" {streams} 3>&-"#);
    let words = ["-c", &script, "sh"].into_iter().chain(words.iter().copied());
    home.program("sh", words)
}

fn home_with_lobster() -> Home {
    let home = Home::new();
    std::fs::create_dir(home.dir().join("bin")).unwrap();
    std::os::unix::fs::symlink(crate::binary::lobster(), home.dir().join("bin/lobster")).unwrap();
    let made = home.program("mkfifo", ["silent"]).run();
    assert_eq!(made.code(), 0, "{made:?}");
    home
}

/// The journals of the store, as the lines that `--events` writes, by run.
fn journals(home: &Home) -> BTreeMap<String, Vec<String>> {
    let store = Store::open(&home.state()).unwrap();
    let runs = store.list_runs(&RunFilter::default()).unwrap();
    runs.iter()
        .map(|run| {
            let records = store.all_events(run.id).unwrap();
            (run.id.to_string(), records.into_iter().map(|record| record.text).collect())
        })
        .collect()
}

/// Lines of events, by run. Every line is one.
fn by_run(lines: &str) -> BTreeMap<String, Vec<String>> {
    let mut runs = BTreeMap::<String, Vec<String>>::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        runs.entry(record["run"].as_str().unwrap().to_owned()).or_default().push(line.to_owned());
    }
    runs
}

/// Runs a random workflow to its end with nobody there, answering its questions from other processes.
fn live(seed: u64) {
    let scenario = Scenario::random(seed, false);
    let home = home_with_lobster();
    scenario.install(&home);
    let mut dice = Dice::new(seed);
    let mode = *dice.pick(&["human", "tool"]).unwrap();
    let mut streams_dice = Dice::new(!seed);
    let mut call = |words: &[&str]| -> Answer {
        let streams = streams_dice.pick(&STREAMS).unwrap();
        let answer = lobster_with(streams, &home, words).env("LOBSTER_EVENTS", "jsonl:events.jsonl").run();
        assert!(answer.took < LONGEST, "{seed}: {words:?} took {:?}", answer.took);
        assert_eq!(answer.code(), 0, "{seed}: {words:?}: {answer:#?}");
        answer
    };
    call(&["run", "--mode", mode, "flow.lobster"]);
    loop {
        let gates: Value = serde_json::from_str(&call(&["approvals", "--json"]).stdout).unwrap();
        let Some(gate) = gates.as_array().unwrap().first() else { break };
        let id = gate["id"].as_str().unwrap();
        let response = RESPONSE.to_string();
        match (gate["kind"].as_str().unwrap(), dice.chance(50)) {
            ("input", true) => call(&["approvals", "answer", id, &response]),
            ("input", false) => call(&["resume", "--id", id, "--response-json", &response]),
            (_, true) => call(&["approvals", "approve", id]),
            (_, false) => call(&["resume", "--id", id, "--approve", "yes"]),
        };
    }
    let mut effects = BTreeMap::<String, u64>::new();
    for line in home.read("effects").lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    assert_eq!(effects, scenario.effects, "{seed}");
    assert_eq!(by_run(&home.read("events.jsonl")), journals(&home), "{seed}: the lines are the journal");
}

#[test]
fn random_workflows_never_wait_for_a_terminal() {
    let (runs, first) =
        (number("LOBSTER_UNATTENDED_RUNS", 40), number("LOBSTER_UNATTENDED_SEED", 1) * 1_000_000);
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(4) as u64;
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || (first + worker..first + runs).step_by(workers as usize).for_each(live));
        }
    });
}

/// Every command with words for what it must be given.
pub(crate) fn all_commands(commands: &Value, before: &[String], found: &mut Vec<Vec<String>>) {
    for command in commands.as_array().into_iter().flatten() {
        let mut words = before.to_vec();
        words.push(command["name"].as_str().unwrap().to_owned());
        all_commands(&command["commands"], &words, found);
        for argument in command["arguments"].as_array().into_iter().flatten() {
            if argument["required"] == true {
                words.extend(argument["flag"].as_str().map(str::to_owned));
                words.push(argument["choices"][0].as_str().unwrap_or("x").to_owned());
            }
        }
        found.push(words);
    }
}

#[test]
fn no_command_waits_for_a_terminal() {
    let home = home_with_lobster();
    home.write("lobster.policy.toml", "version = 1\n");
    home.write("flow.lobster", "steps:\n  - id: ask\n    approval: Go on?\n");
    let described: Value = serde_json::from_str(&home.lobster(["--describe"]).run().stdout).unwrap();
    let mut commands =
        vec![vec!["flow.lobster".to_owned()], vec!["run".to_owned(), "flow.lobster".to_owned()]];
    all_commands(&described["commands"], &[], &mut commands);
    assert!(commands.len() > 50, "{commands:?}");
    // `serve` alone serves until it is stopped, whatever its streams are.
    for words in commands.into_iter().filter(|words| *words != ["serve"]) {
        // These two are servers over the stream that they are given: it is closed for them.
        let serves = ["mcp", "worker"].contains(&words[0].as_str());
        let streams = if serves { "<&-" } else { "< silent" };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = lobster_with(streams, &home, &words).run();
        assert!(answer.took < LONGEST, "{words:?} took {:?}", answer.took);
        assert!(
            [0, 1, 2].contains(&answer.code()) && !answer.stderr.contains("panicked at"),
            "{words:?}: {answer:#?}"
        );
    }
}

#[test]
fn events_stand_beside_the_copy_of_the_audit() {
    let home = Home::new();
    let policy = format!(
        "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[audit]\npath = \"{}\"\n",
        home.state().join("copy").display()
    );
    home.write("policy.toml", policy).write("flow.lobster", "steps:\n  - id: a\n    run: echo one\n");
    let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
    call.env("LOBSTER_POLICY", "policy.toml").env("LOBSTER_EVENTS", "jsonl:e.jsonl").run().output();
    assert_eq!(by_run(&home.read("e.jsonl")), journals(&home));
    let copies: Vec<_> = std::fs::read_dir(home.state().join("copy")).unwrap().collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
}

#[test]
fn events_on_stderr_are_the_journal_line_by_line() {
    let home = Home::new();
    let flow = "steps:\n  - id: a\n    run: echo one\n  - id: ask\n    approval: Go on?\n  - id: b\n    run: echo two\n";
    home.write("flow.lobster", flow);
    let asked = home.lobster(["run", "--mode", "tool", "--events", "jsonl", "flow.lobster"]).run();
    let token = asked.token();
    let first = by_run(&asked.stderr);
    assert_eq!(first, journals(&home));
    let done = home.lobster(["resume", "--token", &token, "--approve", "yes", "--events=jsonl"]).run();
    assert_eq!(done.output()[0], "two\n");
    let all = journals(&home);
    for (run, lines) in by_run(&done.stderr) {
        assert_eq!(
            first[&run].iter().chain(&lines).collect::<Vec<_>>(),
            all[&run].iter().collect::<Vec<_>>()
        );
    }
    let kinds: Vec<Value> = done.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = kinds.iter().map(|record| record["event"]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first().zip(kinds.last()), Some((&"gate_answered", &"run_ended")), "{kinds:?}");
}

#[test]
fn events_hold_no_secret() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "secrets: [token]\nsteps:\n  - id: a\n    run: echo $T; exit 3\n    secrets: { T: token }\n",
    );
    home.write("secrets.toml", "[secrets.token]\nenv = \"TOKEN\"\n");
    let call = home.lobster(["run", "--mode", "tool", "--events", "jsonl:e.jsonl", "flow.lobster"]);
    let answer = call.env("LOBSTER_SECRETS", "secrets.toml").env("TOKEN", "never-to-be-seen-9c1e").run();
    assert_eq!(answer.code(), 1);
    let lines = home.read("e.jsonl");
    assert!(lines.contains("step_ended") && !lines.contains("never-to-be-seen"), "{lines}");
}

#[test]
fn events_that_cannot_be_written_start_nothing() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: a\n    run: touch done\n");
    home.write("policy.toml", "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n");
    std::os::unix::fs::symlink("elsewhere", home.dir().join("link")).unwrap();
    for (value, said) in [
        ("csv", "must be jsonl or jsonl:FILE"),
        ("", "must be jsonl or jsonl:FILE"),
        ("jsonl:missing/e.jsonl", "cannot be written"),
        ("jsonl:link", "cannot be written"),
    ] {
        let answer = home.lobster(["run", "--mode", "tool", "--events", value, "flow.lobster"]).run();
        assert!(answer.error().contains(said) && answer.code() == 2, "{value}: {answer:#?}");
        let answer = home.lobster(["run", "flow.lobster", &format!("--events={value}")]).run();
        assert!(answer.stderr.contains(said) && answer.code() == 2, "{value}: {answer:#?}");
    }
    let under_policy = ["run", "--policy", "policy.toml", "--events", "jsonl:e.jsonl", "flow.lobster"];
    let answer = home.lobster(under_policy).run();
    assert!(answer.stderr.contains("LOBSTER_EVENTS") && answer.code() == 2, "{answer:#?}");
    assert!(journals(&home).is_empty() && home.read("e.jsonl").is_empty());
    // A reader that goes away stops nothing.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let stdio = std::process::Stdio::piped;
    let call = home.lobster(["run", "--events", "jsonl", "flow.lobster"]);
    let mut child = call.start_on(std::process::Stdio::null(), stdio(), writer.into());
    assert!(crate::home::wait(&mut child, &"a run whose events nobody reads").success());
    assert!(home.dir().join("done").exists());
}

#[test]
fn the_table_of_exit_codes_is_what_lobster_describes() {
    let document = Document::read("docs/unattended.md");
    let described: Value = serde_json::from_str(&Home::new().lobster(["--describe"]).run().stdout).unwrap();
    let mut known = BTreeSet::from(["0".to_owned(), "128 + N".to_owned()]);
    for error in described["exitCodes"]["errors"].as_array().unwrap() {
        known.insert(error["exit"].to_string());
        let name = error["type"].as_str().unwrap();
        assert!(document.text.contains(&format!("`{name}`")), "docs/unattended.md does not name {name}");
    }
    let table = document.text.split("| exit code |").nth(1).expect("there is a table of exit codes");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<String> =
        rows.filter_map(|row| Some(row.split('|').nth(1)?.trim().trim_matches('`').to_owned())).collect();
    assert_eq!(listed, known);
}

/// What the table says of mistakes, tried.
#[test]
fn mistakes_end_as_the_table_of_exit_codes_says() {
    let home = Home::new();
    home.write("flow.lobster", "args: { n: { type: integer } }\nsteps:\n  - id: a\n    run: touch done\n");
    home.write("wrong.lobster", "steps:\n  - id: a\n    run: touch done\n    stdin: $nope.json\n");
    home.write("command.lobster", "steps:\n  - id: a\n    pipeline: jsn\n");
    for (words, code, kind) in [
        (&["wrong.lobster"][..], 1, "runtime_error"),
        (&["command.lobster"], 1, "runtime_error"),
        (&["flow.lobster", "--arg", "n=x"], 1, "runtime_error"),
        (&["nope.command"], 1, "runtime_error"),
        (&["flow.lobster", "--bogus"], 2, "parse_error"),
        (&["--bogus", "flow.lobster"], 2, "parse_error"),
        (&["flow.lobster", "--policy"], 2, "parse_error"),
        (&["flow.lobster", "--no-cache=1"], 2, "parse_error"),
        (&["flow.lobster", "--arg", "m=1"], 2, "parse_error"),
        (&["flow.lobster", "--args-json", "{"], 2, "parse_error"),
    ] {
        let answer = home.tool(words);
        assert_eq!(
            (answer.code(), &answer.envelope()["error"]["type"]),
            (code, &kind.into()),
            "{words:?}: {answer:#?}"
        );
        let plain = home.lobster(["run"].iter().chain(words)).run();
        assert_eq!(plain.code(), code, "{words:?}: {plain:#?}");
    }
    assert!(!home.dir().join("done").exists());
    // Where `check` says a place, so does what refuses to run.
    let refused = home.tool(["command.lobster"]).error();
    assert!(refused.contains("(command.lobster:3:15)"), "{refused}");
    // These answer with an envelope whatever they are given.
    for words in [
        &["approvals", "answer", "x"][..],
        &["approvals", "approve", "--bogus"],
        &["approvals", "approve", "x"],
    ] {
        let answer = home.lobster(words).run();
        assert!(answer.code() == 2 && !answer.error().is_empty(), "{words:?}: {answer:#?}");
    }
}

/// The blocks of text below a heading, with the places that they name replaced by those of a test.
fn recipes(heading: &str, home: &Home) -> Vec<String> {
    let document = Document::read("docs/unattended.md");
    let from = document.text.lines().position(|line| line == heading).expect("the heading is there");
    let to = document.text.lines().skip(from + 1).position(|line| line.starts_with("## "));
    let to = to.map_or(usize::MAX, |to| from + 1 + to);
    let blocks = document.blocks();
    let here = blocks.iter().filter(|block| block.language == "text" && (from..to).contains(&block.first));
    let dir = home.dir().display().to_string();
    let binary = crate::binary::lobster().display().to_string();
    here.map(|block| block.text().replace("/usr/local/bin/lobster", &binary).replace("/srv/triage", &dir))
        .collect()
}

fn home_with_triage() -> Home {
    let home = Home::new();
    home.write("triage.lobster", "steps:\n  - { id: mail, run: echo mail }\n");
    home
}

#[test]
fn the_line_for_cron_runs_as_cron_runs_it() {
    let home = home_with_triage();
    let lines = recipes("## From cron", &home);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for line in lines {
        let command = line.trim().splitn(6, char::is_whitespace).nth(5).unwrap().trim().to_owned();
        assert!(
            command.starts_with("cd ") && !command.contains('%'),
            "cron reads % as a new line: {command}"
        );
        let call =
            home.program("/bin/sh", ["-c", &command]).env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh");
        let answer = call.dir(std::path::Path::new("/")).run();
        assert_eq!((answer.code(), answer.stdout.as_str(), answer.stderr.as_str()), (0, "", ""), "{command}");
    }
    let results = home.read("results.json");
    let envelopes = serde_json::Deserializer::from_str(&results).into_iter::<Value>();
    let statuses: Vec<_> = envelopes.map(|one| one.unwrap()["status"].clone()).collect();
    assert_eq!(statuses, ["ok"], "{results}");
    assert!(home.read("events.jsonl").contains("run_ended"));
}

#[test]
fn the_units_for_systemd_are_valid_and_their_command_works() {
    let home = home_with_triage();
    let [units] = recipes("## As a systemd service", &home).try_into().unwrap();
    let mut files = BTreeMap::<String, String>::new();
    let mut name = String::new();
    for line in units.lines() {
        match line.strip_prefix("# /etc/systemd/system/") {
            Some(file) => name = file.to_owned(),
            None => *files.entry(name.clone()).or_default() += &format!("{line}\n"),
        }
    }
    assert_eq!(files.keys().collect::<Vec<_>>(), ["triage.service", "triage.timer"]);
    for (file, text) in &files {
        // The user of the page is not one of this machine.
        home.write(file, text.replace("User=triage", "User=root"));
    }
    if std::path::Path::new("/usr/bin/systemd-analyze").exists() {
        let checked = home.program("systemd-analyze", ["verify", "./triage.service", "./triage.timer"]).run();
        let about_ours = checked.stderr.lines().any(|line| line.contains("triage."));
        assert!(checked.code() == 0 && !about_ours, "{checked:?}");
    }
    let command = files["triage.service"].lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let answer = home.program(words[0], &words[1..]).env("PATH", "/usr/local/bin:/usr/bin:/bin").run();
    assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
}
