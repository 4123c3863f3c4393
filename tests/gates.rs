//! `lobster approvals`: what it shows is what would run, and its answers keep to
//! the same rules as `resume`.

use serde_json::Value;

use crate::home::{Answer, Home, wait_until};
use crate::pty::Terminal;

const WORKFLOW: &str = "
name: release
steps:
  - id: pick
    js: 40 + 2
  - id: ask
    approval: { prompt: Publish?, required_approver: ann, initiated_by: bob, require_different_approver: true }
  - id: publish
    run: echo published $pick.stdout >> log; cat
    stdin: $pick.json
  - id: tell
    run: echo told >> log
";

fn waiting(workflow: &str) -> (Home, Value) {
    let home = Home::new();
    home.write("flow.lobster", workflow).tool(["flow.lobster"]).token();
    let gate = gates(&home).as_array().unwrap()[0].clone();
    (home, gate)
}

fn gates(home: &Home) -> Value {
    serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap()
}

fn id(gate: &Value) -> &str {
    gate["id"].as_str().unwrap()
}

/// An error of a command: nothing on stdout, one message on stderr.
fn refused(answer: &Answer, code: i32) -> &str {
    assert_eq!((answer.code(), answer.stdout.as_str()), (code, ""), "{answer:?}");
    assert!(!answer.stderr.contains("panicked"), "{answer:?}");
    &answer.stderr
}

#[test]
fn a_gate_shows_the_very_command_that_an_approval_starts() {
    let (home, gate) = waiting(WORKFLOW);
    let shown = home.lobster(["approvals", "show", id(&gate), "--json"]).run();
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let ahead = &shown["ahead"];
    assert_eq!(ahead["next"].as_array().map(Vec::len), Some(1), "{shown:#}");
    let next = &ahead["next"][0];
    assert_eq!((&next["step"], ahead["stale"].as_bool()), (&"publish".into(), Some(false)), "{shown:#}");
    let words = next["action"]["argv"].as_array().unwrap();
    assert_eq!(words.last().unwrap(), "echo published 42 >> log; cat");
    assert!(ahead["then"].as_str().unwrap().contains("4. tell"), "{shown:#}");
    assert_eq!(home.read("log"), "", "showing runs nothing");

    let person = home.lobster(["approvals", "show", id(&gate)]).run();
    for text in ["Publish?", "only ann may approve", "bob may not approve", "echo published 42", "4. tell"] {
        assert!(person.stdout.contains(text), "{text}: {person:?}");
    }
    // What it says runs is what runs.
    let answer = home
        .lobster(["approvals", "approve", &id(&gate)[..6]])
        .env("LOBSTER_APPROVAL_APPROVED_BY", "ann")
        .run();
    assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
    assert_eq!(home.read("log"), "published 42\ntold\n");
}

#[test]
fn what_a_person_decides_by_cannot_command_their_terminal() {
    let (home, gate) = waiting(
        r#"{"name": "x", "steps": [
            {"id": "ask", "approval": "Delete all?\u001b[2K\rKeep all? \u202eyes"},
            {"id": "go", "run": "echo gone # \u001b[8mhidden"},
            {"id": "fail", "pipeline": "exec --json --shell 'printf \"\\033[31mred\"'"}]}"#,
    );
    let shown = home.lobster(["approvals", "show", id(&gate)]).run();
    let listed = home.lobster(["approvals"]).run();
    let failed = home.lobster(["approvals", "approve", id(&gate)]).run();
    assert_eq!(failed.code(), 1, "{failed:?}");
    let run = home.lobster(["show", gate["run"].as_str().unwrap()]).run();
    let resumed = home.lobster(["run", "no-such-\u{1b}[2Jcommand"]).run();
    for answer in [&shown, &listed, &run, &resumed] {
        let text = format!("{}{}", answer.stdout, answer.stderr);
        assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text:?}");
    }
    assert!(listed.stdout.contains("Delete all?\u{fffd}[2K\u{fffd}Keep all?"), "{listed:?}");
    assert!(shown.stdout.contains("echo gone"), "{shown:?}");
    // A program is told what was said, to the letter.
    assert_eq!(gate["request"]["prompt"], "Delete all?\u{1b}[2K\rKeep all? \u{202e}yes");
}

/// Lines of a step's text cannot pass for lobster's own lines or for another step.
#[test]
fn a_text_of_the_plan_does_not_look_like_a_step() {
    let forged = "true\n4. c  [no-op]\n\n  at once   nothing\n  lobster approvals approve 00000000";
    let steps = serde_json::json!([
        { "id": "ok", "approval": "Fine?" },
        { "id": "a", "run": "echo first" },
        { "id": "b", "run": forged },
        { "id": "c", "run": format!("echo{}; rm data", " ".repeat(3000)) },
    ]);
    let plan = "  │ 2. a  [shell]
  │    run: echo first
  │ 3. b  [shell]
  │    run: true
  │    │ 4. c  [no-op]
  │    │
  │    │   at once   nothing
  │    │   lobster approvals approve 00000000
  │ 4. c  [shell]
  │    run: echo<3000 blanks>; rm data
";
    let (home, gate) = waiting(&serde_json::json!({ "steps": steps }).to_string());
    let shown = home.lobster(["approvals", "show", id(&gate)]).run();
    assert!(shown.stdout.contains(&format!("\n  the rest of the plan:\n{plan}")), "{shown:?}");
    let mut terminal = Terminal::start(home.lobster(["run", "flow.lobster"]).env("NO_COLOR", "1"), 100, 40);
    let screen = terminal.wait_for("Approve? [y/n/s/l/?]").text();
    assert!(screen.contains(&format!("\n  then, as the plan stands:\n{plan}")), "{screen}");
    terminal.enter("l");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn who_may_answer_holds_for_gates_as_for_resume() {
    let (home, gate) = waiting(WORKFLOW);
    let approve = |who: Option<&str>| {
        let call = home.lobster(["approvals", "approve", id(&gate)]);
        let call = match who {
            Some(who) => call.env("LOBSTER_APPROVAL_APPROVED_BY", who),
            None => call,
        };
        call.run()
    };
    assert!(approve(None).error().contains("requires approver identity"));
    assert!(approve(Some("eve")).error().contains("requires approver 'ann', got 'eve'"));
    assert!(approve(Some("bob")).error().contains("requires approver 'ann', got 'bob'"));
    assert_eq!(home.read("log"), "");
    assert_eq!(approve(Some("ann")).envelope()["status"], "ok");
    let again = approve(Some("ann"));
    let message = again.error();
    assert!(message.contains("already answered by ann"), "{message}");
}

#[test]
fn a_rejected_gate_ends_the_run_and_its_other_gates() {
    let (home, gate) = waiting(
        "steps:\n  - id: both\n    parallel:\n      branches:\n        - id: a\n          run: echo a\n          approval: A?\n        - id: b\n          run: echo b\n          approval: B?\n",
    );
    assert_eq!(gates(&home).as_array().map(Vec::len), Some(2));
    let answer = home.lobster(["approvals", "reject", id(&gate)]).run();
    assert_eq!(answer.envelope()["status"], "cancelled");
    assert_eq!(gates(&home), Value::Array(Vec::new()));
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    assert_eq!(runs[0]["status"], "cancelled");
    let all = home.lobster(["approvals", "--all"]).run().stdout;
    assert!(all.contains("answered") && all.contains("cancelled"), "{all}");
}

/// A run that asks `a` and `b`, and executes these steps behind `a`; and the ids of its two gates.
fn with_two_gates(steps: &str) -> (Home, String, [String; 2]) {
    let (home, gate) = waiting(&format!(
        "steps:\n  - {{id: a, approval: 'A?', needs: []}}\n{steps}  - {{id: b, approval: 'B?', needs: []}}\n"
    ));
    let all = gates(&home);
    let of = |path: &str| {
        let gate = all.as_array().unwrap().iter().find(|gate| gate["path"] == format!("{path}!approval"));
        id(gate.unwrap_or_else(|| panic!("{all:#}"))).to_owned()
    };
    (home, gate["run"].as_str().unwrap().to_owned(), [of("a"), of("b")])
}

#[test]
fn a_no_to_one_question_is_heard_where_another_one_set_the_run_going() {
    let (home, run, [a, b]) = with_two_gates(
        "  - {id: slow, needs: a, run: 'touch started; until [ -e go ]; do sleep 0.05; done; echo slow >> log'}
  - {id: after, needs: slow, run: 'echo after >> log'}
  - {id: long, needs: a, run: 'touch long; sleep 50; echo long >> log'}
",
    );
    let going = home.lobster(["approvals", "approve", &a]).start();
    wait_until("both effects began", || {
        ["started", "long"].iter().all(|name| home.dir().join(name).exists())
    });
    assert_eq!(home.lobster(["approvals", "reject", &b]).run().envelope()["status"], "cancelled");
    home.write("go", "");
    let begun = std::time::Instant::now();
    let ended = going.wait_with_output().unwrap();
    // What had begun may end; nothing begins, and what goes on is stopped.
    assert!(begun.elapsed() < std::time::Duration::from_secs(30));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("cancelled"), "{ended:?}");
    assert_eq!(home.read("log"), "slow\n");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    assert_eq!((&runs[0]["status"], gates(&home)), (&Value::from("cancelled"), Value::Array(Vec::new())));
    let over = home.lobster(["resume", &run]).run().error();
    assert!(over.contains("is over: a person rejected it"), "{over}");
    assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
    let shown = home.lobster(["show", &run]).run().stdout;
    assert!(shown.contains("slow") && !shown.contains("after"), "{shown}");
}

#[test]
fn a_no_ends_a_run_that_waits_in_its_process() {
    let (home, _, [a, b]) = with_two_gates(
        "  - {id: before, needs: a, run: echo before >> log}
  - {id: later, needs: before, wait: 1h}
",
    );
    let going = home.lobster(["approvals", "approve", &a]).start();
    wait_until("it is about to wait", || home.read("log") == "before\n");
    assert_eq!(home.lobster(["approvals", "reject", &b]).run().envelope()["status"], "cancelled");
    let begun = std::time::Instant::now();
    assert!(going.wait_with_output().unwrap().status.success());
    assert!(begun.elapsed() < std::time::Duration::from_secs(30));
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    assert_eq!(runs[0]["status"], "cancelled");
}

#[test]
fn an_expired_gate_is_asked_again_under_a_new_id() {
    let home = Home::new();
    let token = home
        .write(
            "flow.lobster",
            "steps:\n  - id: ask\n    approval: Send?\n  - id: send\n    run: echo sent >> log\n",
        )
        .tool(["flow.lobster"])
        .token();
    let gate = gates(&home)[0].clone();
    assert_eq!(home.lobster(["approvals", "expire", id(&gate)]).run().code(), 0);
    assert_eq!(gates(&home), Value::Array(Vec::new()));
    let message = home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().error();
    assert!(message.contains("it has expired") && message.contains("lobster resume "), "{message}");
    let late = home.lobster(["approvals", "approve", id(&gate)]).run();
    let message = late.error();
    assert!(message.contains("has expired"), "{message}");
    home.lobster(["resume", gate["run"].as_str().unwrap()]).run().token();
    let anew = gates(&home)[0].clone();
    assert_ne!(id(&anew), id(&gate));
    assert_eq!(home.read("log"), "");
    assert_eq!(home.lobster(["approvals", "approve", id(&anew)]).run().envelope()["status"], "ok");
    assert_eq!(home.read("log"), "sent\n");
}

#[test]
fn an_input_gate_takes_a_value_that_fits() {
    let (home, gate) = waiting(
        "steps:\n  - id: ask\n    input: { prompt: How many?, responseSchema: { type: integer } }\n  - id: say\n    run: echo $ask.response\n",
    );
    let shown = home.lobster(["approvals"]).run().stdout;
    assert!(shown.contains(&format!("lobster approvals answer {} JSON", id(&gate))), "{shown}");
    let wrong_kind = home.lobster(["approvals", "approve", id(&gate)]).run();
    assert!(wrong_kind.error().contains("asks for a value"));
    let no_json = home.lobster(["approvals", "answer", id(&gate), "{"]).run();
    assert!(no_json.error().contains("must be JSON"));
    assert!(home.lobster(["approvals", "answer", id(&gate), "\"x\""]).run().error().contains("schema"));
    let said = home.lobster(["approvals", "answer", id(&gate), "-"]).stdin("3").run();
    assert_eq!(said.output(), serde_json::json!([3]));
}

#[test]
fn a_gate_is_named_by_the_run_that_asks() {
    let (home, gate) = waiting(WORKFLOW);
    let run = gate["run"].as_str().unwrap();
    for name in ["@", run, &run[..8], &run[run.len() - 8..]] {
        let shown = home.lobster(["approvals", "show", name]).run();
        assert!(shown.code() == 0 && shown.stdout.contains(id(&gate)), "{name}: {shown:?}");
    }
    assert_eq!(
        home.lobster(["approvals", "reject", &run[run.len() - 8..]]).run().envelope()["status"],
        "cancelled"
    );
}

#[test]
fn ids_that_name_no_gate_are_refused() {
    let (home, gate) = waiting(WORKFLOW);
    for text in ["", "4", "abc"] {
        let message = refused(&home.lobster(["approvals", "show", text]).run(), 2).to_owned();
        assert!(message.contains("too short") && message.contains("lobster approvals"), "{message}");
    }
    for text in ["zzzz", "00000000000000", "' OR 1=1 --", "%%%%", &format!("{}0", id(&gate))] {
        for task in ["show", "approve", "reject", "expire"] {
            let answer = home.lobster(["approvals", task, text]).run();
            let message = match task {
                "approve" | "reject" => answer.error(),
                _ => refused(&answer, 2).to_owned(),
            };
            assert!(message.contains("not found") && message.contains("lobster approvals"), "{message}");
        }
    }
    assert_eq!(gates(&home).as_array().map(Vec::len), Some(1));
}

#[test]
fn a_gate_says_when_an_answer_would_be_refused() {
    let (home, gate) =
        waiting("steps:\n  - id: ask\n    approval: Go?\n  - id: go\n    run: echo gone >> log\n");
    home.write("strict.toml", "version = 1\n");
    let strict = home.dir().join("strict.toml");
    let shown = home.lobster(["approvals", "show", id(&gate)]).env("LOBSTER_POLICY", &strict).run();
    if shown.code() == 0 {
        assert!(shown.stdout.contains("would be refused"), "{shown:?}");
        let message =
            home.lobster(["approvals", "approve", id(&gate)]).env("LOBSTER_POLICY", &strict).run().error();
        assert!(message.contains("is not what would run now"), "{message}");
    } else {
        panic!("{shown:?}");
    }
    assert_eq!(home.read("log"), "");
    assert_eq!(home.lobster(["approvals", "approve", id(&gate)]).run().envelope()["status"], "ok");
}

#[test]
fn an_answer_counts_under_the_policy_that_the_run_began_with_and_says_where_it_acts() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: ask\n    approval: Go?\n  - id: go\n    run: pwd\n");
    home.write("p.toml", "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n");
    home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]).run().token();
    let gate = gates(&home).as_array().unwrap()[0].clone();
    let shown = home.lobster(["approvals", "show", id(&gate)]).run();
    assert!(!shown.stdout.contains("would be refused"), "{shown:?}");
    home.write("elsewhere/file", "");
    let elsewhere = home.dir().join("elsewhere");
    let answer = home.lobster(["approvals", "approve", id(&gate)]).dir(&elsewhere).run();
    // Under a policy the directory is part of what was decided.
    let printed = answer.output()[0].as_str().unwrap().trim().to_owned();
    assert!(printed.ends_with("/work"), "{printed}");
    assert!(!answer.stderr.contains("its next steps run"), "{answer:?}");
    // Without one it is the answerer's, as with the incumbent, who says so.
    home.tool(["flow.lobster"]).token();
    let gate = gates(&home).as_array().unwrap()[0].clone();
    let answer = home.lobster(["approvals", "approve", id(&gate)]).dir(&elsewhere).run();
    let printed = answer.output()[0].as_str().unwrap().trim().to_owned();
    assert!(printed.ends_with("/elsewhere"), "{printed}");
    let told = format!("its next steps run in {printed}");
    assert!(answer.stderr.contains(&told), "{answer:?}");
}

#[test]
fn the_former_name_of_the_command_still_works() {
    let (home, gate) =
        waiting("steps:\n  - id: ask\n    approval: Go?\n  - id: go\n    run: echo gone >> log\n");
    for words in [&["--json"][..], &["show", id(&gate), "--json"]] {
        let [now, former] = ["approvals", "gates"].map(|name| home.lobster([name].iter().chain(words)).run());
        assert_eq!((former.code(), &former.stdout), (0, &now.stdout), "{words:?}");
    }
    // Texts say the new name; JSON keeps the commands that programs know.
    let listed = home.lobster(["gates"]).run().stdout;
    assert!(listed.contains(&format!("lobster approvals approve {}", id(&gate))), "{listed}");
    assert_eq!(gate["commands"][0], format!("lobster approvals approve {}", id(&gate)));
    let shown = home.lobster(["gates", "show", id(&gate)]).run().stdout;
    assert!(shown.contains("Go?") && shown.contains(&format!("{}, open, asked", id(&gate))), "{shown}");
    for (words, usage) in [
        (&["help", "gates"][..], "Usage: lobster approvals [OPTIONS]"),
        (&["gates", "--help"], "Usage: lobster approvals [OPTIONS]"),
        (&["help", "gates", "show"], "Usage: lobster approvals show"),
    ] {
        let help = home.lobster(words).run();
        assert!(help.code() == 0 && help.stdout.contains(usage), "{help:?}");
    }
    assert!(!home.lobster(["help"]).run().stdout.contains("gates"));
    let offered = home.lobster(["complete", "fish", "--", "gates", "show", ""]).run().stdout;
    assert!(offered.starts_with(id(&gate)), "{offered}");
    assert!(home.lobster(["gates", "approve", "ffffffff"]).run().error().contains("lobster approvals"));
    assert_eq!(home.lobster(["gates", "approve", &id(&gate)[..6]]).run().envelope()["status"], "ok");
    assert_eq!(home.read("log"), "gone\n");
}
