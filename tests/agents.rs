//! What an agent and its operator get besides runs: the guide, the description,
//! notifications, logs, spans.

use std::time::Duration;

use lobster_runtime::schema::Schema;
use serde_json::{Value, json};

use crate::home::{Answer, Home};

const GATED: &str = "
name: gated
steps:
  - id: list
    run: printf '[\"one\",\"two\"]'
  - id: ask
    approval: { prompt: Go on? }
    stdin: $list.json
  - id: end
    run: echo ended > ended
";

fn gated() -> Home {
    let home = Home::new();
    home.write("flow.lobster", GATED);
    home
}

/// The blocks of the guide: what its fence says, and what stands in it.
fn blocks(guide: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in guide.lines() {
        match (line.strip_prefix("```"), inside) {
            (Some(_), true) => inside = false,
            (Some(fence), false) => {
                inside = true;
                blocks.push((fence.to_owned(), String::new()));
            }
            (None, true) => blocks.last_mut().unwrap().1.push_str(&format!("{line}\n")),
            (None, false) => {}
        }
    }
    blocks
}

#[test]
fn every_command_of_the_guide_works() {
    let home = Home::new();
    let guide = home.lobster(["skill"]).run().stdout;
    assert!(guide.lines().count() < 150, "an agent has to read it");
    home.write(
        "mails.json",
        r#"[{"id":1,"unread":true,"subject":"a"},{"id":2,"unread":false,"subject":"b"}]"#,
    );
    let (mut id, mut token) = (String::new(), String::new());
    let mut statuses = Vec::new();
    for (fence, text) in blocks(&guide) {
        if let Some(file) = fence.strip_prefix("yaml ") {
            home.write(file, text);
            continue;
        }
        let words = text.trim().strip_prefix("lobster ").unwrap_or_else(|| panic!("not a command: {text}"));
        // As the agent's shell would split them.
        let script = format!("for word in {words}; do printf '%s\\0' \"$word\"; done");
        let split = std::process::Command::new("sh")
            .args(["-c", &script])
            .env("ID", &id)
            .env("TOKEN", &token)
            .output();
        let split = String::from_utf8(split.unwrap().stdout).unwrap();
        let answer = home.lobster(split.split_terminator('\0')).run();
        assert_eq!(answer.code() != 0, fence == "sh fails", "{text}: {answer:#?}");
        let Ok(envelope) = serde_json::from_str::<Value>(&answer.stdout) else { continue };
        if envelope["protocolVersion"].is_null() || envelope["commands"].is_array() {
            continue;
        }
        answer.envelope();
        statuses.push(envelope["status"].as_str().unwrap_or("failed").to_owned());
        for (request, field, slot) in
            [("requiresApproval", "approvalId", &mut id), ("requiresInput", "resumeToken", &mut token)]
        {
            if let Some(text) = envelope[request][field].as_str() {
                text.clone_into(slot);
            }
        }
    }
    assert_eq!(statuses, ["ok", "ok", "needs_approval", "ok", "needs_input", "ok", "failed"]);
    assert!(home.read("archived.json").contains("\"subject\":\"a\""));
}

#[test]
fn the_description_is_complete() {
    let home = Home::new();
    let document: Value = serde_json::from_str(&home.lobster(["--describe"]).run().stdout).unwrap();
    let names = |list: &Value| {
        let names = list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let help = home.lobster(["help"]).run().stdout;
    for name in names(&document["commands"]).iter().chain(&names(&document["stages"])) {
        assert!(help.contains(&format!("\n  {name} ")), "{name} is not in the help");
    }
    let run =
        document["commands"].as_array().unwrap().iter().find(|command| command["name"] == "run").unwrap();
    let flags: Vec<_> =
        run["arguments"].as_array().unwrap().iter().filter_map(|arg| arg["flag"].as_str()).collect();
    for flag in [
        "--mode",
        "--file",
        "--args-json",
        "--arg",
        "--policy",
        "--notify",
        "--dry-run",
        "--log",
        "--log-format",
    ] {
        assert!(flags.contains(&flag), "{flag} is not among {flags:?}");
    }
    let wheres =
        document["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == "where").unwrap();
    assert_eq!((&wheres["kind"], wheres["argsSchema"].is_object()), (&json!("pure"), true));
    assert!(document["schemas"]["policy"]["properties"].is_object());
    for name in ["envelope", "workflow"] {
        Schema::compile(&document["schemas"][name]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A command that keeps what it reads.
const KEEP: &str =
    "cat > \"$HOME/message\"; env > \"$HOME/env\"; tr '\\0' '\\n' < /proc/$PPID/cmdline > \"$HOME/parent\"";

fn message(home: &Home) -> Value {
    serde_json::from_str(&home.read("../home/message")).unwrap()
}

#[test]
fn an_operators_command_hears_of_a_question_and_how_to_answer_it() {
    let home = gated();
    let answer = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_NOTIFY", KEEP).run();
    let token = answer.token();
    let heard = message(&home);
    let id = answer.envelope()["requiresApproval"]["approvalId"].as_str().unwrap().to_owned();
    assert_eq!((&heard["gate"]["id"], &heard["prompt"]), (&json!(id), &json!("Go on?")));
    assert_eq!((&heard["items"], &heard["itemCount"]), (&json!(["one", "two"]), &json!(2)));
    assert_eq!(heard["run"]["name"], "gated");
    for kept in ["message", "env", "parent"] {
        assert!(!home.read(&format!("../home/{kept}")).contains(&token), "the token is in {kept}");
    }
    assert!(!home.read("../home/env").contains("LOBSTER_NOTIFY="), "it would tell itself");
    // The command that it names works.
    let words = heard["commands"]["approve"]
        .as_str()
        .unwrap()
        .split(' ')
        .skip(1)
        .map(str::to_owned)
        .collect::<Vec<_>>();
    home.lobster(words).run().output();
    assert_eq!(home.read("ended"), "ended\n");
    let journal = home.lobster(["show", heard["run"]["id"].as_str().unwrap(), "--json"]).run().stdout;
    assert!(!journal.contains("cat >"), "the command may hold an address that is a secret");
}

#[test]
fn a_question_for_input_can_be_answered_as_the_message_says() {
    let home = Home::new();
    let ask = "ask --prompt 'Which?' --schema '{\"type\":\"object\"}'";
    let answer = home.lobster(["run", "--mode", "tool", "--notify", KEEP, ask]).run();
    let heard = message(&home);
    assert!(!heard.to_string().contains(&answer.token()));
    let command = heard["commands"]["answer"].as_str().unwrap().replace("JSON", "{\"a\":1}");
    let words: Vec<_> = command.split(' ').skip(1).map(str::to_owned).collect();
    assert_eq!(home.lobster(words).run().output(), json!([{"a": 1}]));
}

#[test]
fn a_command_may_answer_at_once() {
    let home = gated();
    let lobster = crate::binary::lobster().display();
    let command = format!(
        "cd \"$LOBSTER_RUN_DIR\" && {lobster} resume --id $LOBSTER_GATE_ID --approve yes > \"$HOME/answer\""
    );
    let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_NOTIFY", command);
    call.run().token();
    assert_eq!(home.read("ended"), "ended\n", "{}", home.read("../home/answer"));
}

#[test]
fn a_command_that_fails_or_hangs_changes_nothing() {
    let home = gated();
    let run = |command: &str| {
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_NOTIFY", command);
        call.env("LOBSTER_NOTIFY_TIMEOUT_MS", "400").run()
    };
    let failed = run("echo no such chat >&2; exit 4");
    failed.token();
    assert!(failed.stderr.contains("notify") && failed.stderr.contains("code 4: no such chat"), "{failed:?}");
    let hung = run("(setsid sh -c 'while :; do echo tick >> \"$HOME/log\"; sleep 0.05; done' &) ; sleep 60");
    hung.token();
    assert!(hung.stderr.contains("longer than 400 ms"), "{hung:?}");
    assert!(hung.took < Duration::from_secs(40), "{:?}", hung.took);
    let size = home.read("../home/log").len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(home.read("../home/log").len(), size, "nothing is left running");
}

/// Each way in which a run can end, with what is asked for and what is heard.
#[test]
fn ends_are_told_of_when_they_are_wanted() {
    let home = Home::new();
    home.write("good.lobster", "steps: [{id: a, run: echo secret-output}]\n");
    home.write(
        "bad.lobster",
        "steps: [{id: a, run: echo secret-output}, {id: b, run: echo oops >&2; exit 3}]\n",
    );
    home.write("asks.lobster", "steps: [{id: a, approval: ok?}]\n");
    let heard = |on: &str, words: &[&str]| {
        home.write("../state/heard", "");
        let call = home.lobster(words).env("LOBSTER_NOTIFY", "cat >> heard").env("LOBSTER_NOTIFY_ON", on);
        let answer = call.run();
        let text = home.read("../state/heard");
        (answer, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>())
    };
    let run = |on: &str, file: &str| heard(on, &["run", "--mode", "tool", file]);
    for (on, file, event) in [
        ("failed, finished", "good.lobster", Some("run_finished")),
        ("failed", "good.lobster", None),
        ("question", "bad.lobster", None),
        ("failed,finished", "bad.lobster", Some("run_failed")),
        ("failed,finished,cancelled", "asks.lobster", None),
        ("question", "asks.lobster", Some("gate_opened")),
    ] {
        let (_, told) = run(on, file);
        let events: Vec<_> = told.iter().map(|message| message["event"].as_str().unwrap()).collect();
        assert_eq!(events, event.into_iter().collect::<Vec<_>>(), "{on} {file}");
        assert!(!json!(told).to_string().contains("secret-output"));
    }
    let (_, told) = run("failed", "bad.lobster");
    assert_eq!((&told[0]["failedAt"], &told[0]["run"]["name"]), (&json!("b"), &json!("bad")), "{told:?}");
    for name in ["show", "logs"] {
        let command = told[0]["commands"][name].as_str().unwrap();
        assert_eq!(home.lobster(command.split(' ').skip(1)).run().code(), 0, "{command}");
    }
    let (asked, _) = run("failed", "asks.lobster");
    let (_, told) = heard("cancelled", &["resume", "--token", &asked.token(), "--approve", "no"]);
    assert_eq!(told[0]["event"], "run_cancelled", "{told:?}");
    let (refused, _) = run("failed,often", "good.lobster");
    assert!(
        refused.code() == 1 && refused.error().contains("LOBSTER_NOTIFY_ON must be some of"),
        "{refused:?}"
    );
}

#[test]
fn only_the_operator_names_the_command() {
    let home = Home::new();
    home.write("flow.lobster", "env: { LOBSTER_NOTIFY: touch hit }\nsteps:\n  - id: a\n    approval: ok?\n    env: { LOBSTER_NOTIFY: touch hit }\n");
    home.tool(["flow.lobster"]).token();
    assert!(!home.dir().join("hit").exists() && !home.state().join("hit").exists());
    home.write(
        "policy.toml",
        std::fs::read(crate::binary::repository().join("tests/policy/example.toml")).unwrap(),
    );
    let words = ["run", "--mode", "tool", "--notify", "touch hit", "flow.lobster"];
    let refused = home.lobster(words).env("LOBSTER_POLICY", "policy.toml").run();
    assert!(refused.error().contains("LOBSTER_NOTIFY"), "{refused:?}");
    assert_eq!(refused.code(), 2);
}

#[test]
fn logs_go_to_stderr_with_the_spans_around_them() {
    let home = gated();
    let answer =
        home.lobster(["run", "--mode", "tool", "--log", "info", "--log-format=json", "flow.lobster"]).run();
    answer.token();
    let lines: Vec<Value> = answer
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let names = |line: &Value| {
        let spans = line["spans"].as_array().into_iter().flatten();
        spans.map(|span| span["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(lines.iter().any(|line| names(line) == ["run", "step", "effect"]), "{}", answer.stderr);
    assert!(
        lines.iter().any(|line| line["spans"][1]["path"] == "list" && line["spans"][0]["id"].is_string())
    );
    assert!(!answer.stderr.contains(&answer.token()));
    // The same flags in front, for a pipeline and for a command of ours.
    let pipeline = home.lobster(["--log", "info", "--mode", "tool", "exec echo hi | json"]).run();
    assert!(
        pipeline.stderr.contains("stage{name=\"exec\"") || pipeline.stderr.contains("stage"),
        "{pipeline:?}"
    );
    assert_eq!(home.lobster(["runs", "--log", "debug"]).run().code(), 0);
    let doctor = home.lobster(["doctor", "--log", "info"]).run();
    assert!(doctor.envelope()["ok"] == true && doctor.stderr.contains("run{id="), "{doctor:?}");
    for wrong in [["run", "--log", "a=b=c"], ["run", "--log-format", "xml"]] {
        assert_eq!(home.lobster(wrong.iter().chain(&["exec true"])).run().code(), 2, "{wrong:?}");
    }
}

#[test]
fn long_words_come_by_stdin() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "args: { text: {} }\nsteps:\n  - id: count\n    run: wc -c\n    stdin: ${text}\n",
    );
    let args = json!({ "text": "x".repeat(300_000) }).to_string();
    let answer =
        home.lobster(["run", "--mode", "tool", "--args-json", "-", "flow.lobster"]).stdin(args).run();
    assert_eq!(answer.output()[0], json!(300_000));
    let text = format!("exec --json --shell 'echo [1]' | where a!={}", "x".repeat(200_000));
    let answer: Answer = home.lobster(["run", "--mode", "tool", "--pipeline", "-"]).stdin(text).run();
    assert_eq!(answer.output(), json!([1]));
    for text in ["--help", "flow.lobster", "--file=flow.lobster"] {
        let answer = home.lobster(["run", "--mode", "tool", &format!("--pipeline={text}")]).run();
        assert_eq!(answer.envelope()["ok"], false, "{text}");
    }
}
