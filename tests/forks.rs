//! `lobster fork`: what a new run takes over from an earlier one, and what it asks again.

use serde_json::{Value, json};

use crate::home::{Answer, Home, newest};

const PAY: &str = "
name: pay
args:
  to: { default: bob }
  amount: { default: 10 }
steps:
  - id: ask
    approval: Pay the invoice?
  - id: pay
    run: echo \"paid ${amount} to ${to}\" >> log; echo paid
    when: $ask.approved
  - id: tell
    js: input.trim()
    stdin: $pay.stdout
";

fn approve(home: &Home, asked: &Answer, who: &str) -> Answer {
    let words = ["resume", "--token", &asked.token(), "--approve", "yes"];
    home.lobster(words).env("LOBSTER_APPROVAL_APPROVED_BY", who).run()
}

/// A run whose question ann answered with yes.
fn approved(workflow: &str) -> (Home, String) {
    let home = Home::new();
    home.write("flow.lobster", workflow);
    let asked = home.tool(["flow.lobster"]);
    approve(&home, &asked, "ann").output();
    let run = newest(&home);
    (home, run)
}

fn fork(home: &Home, run: &str, words: &[&str]) -> Answer {
    home.lobster(["fork", run].iter().chain(words)).run()
}

/// The line of `lobster show` for one place.
fn shown(home: &Home, run: &str, place: &str) -> String {
    let shown = home.lobster(["show", run]).run().stdout;
    let mut steps = shown.lines().skip_while(|line| !line.starts_with("STEP "));
    let line = steps.find(|line| line.split_whitespace().next() == Some(place));
    line.unwrap_or_else(|| panic!("{place} is not in\n{shown}")).to_owned()
}

#[test]
fn an_answer_is_taken_over_with_what_it_led_to() {
    let (home, run) = approved(PAY);
    fork(&home, &run, &[]).output();
    assert_eq!(home.read("log"), "paid 10 to bob\n");
    let forked = newest(&home);
    let line = shown(&home, &forked, "ask!approval");
    assert!(line.contains(&format!("approved by ann in run {}", &run[run.len() - 8..])), "{line}");
    // And on to the fork of a fork.
    fork(&home, &forked, &[]).output();
    let line = shown(&home, &newest(&home), "ask!approval");
    assert!(line.contains(&format!("approved by ann in run {}", &run[run.len() - 8..])), "{line}");
    for run in [&forked, &newest(&home)] {
        let replayed = home.lobster(["replay", run]).run();
        assert_eq!(replayed.code(), 0, "{replayed:?}");
    }
    assert_eq!(home.read("log"), "paid 10 to bob\n");
}

#[test]
fn an_argument_that_the_workflow_does_not_know_is_not_set() {
    let home = Home::new();
    home.write("flow.lobster", "args: { limit: { default: 1 } }\nsteps:\n  - id: a\n    run: echo \"$LOBSTER_ARG_LIMIT $LOBSTER_ARG_MORE\" >> log\n");
    home.tool(["flow.lobster"]).output();
    let run = newest(&home);
    let as_file: &[&str] = &["--workflow", "flow.lobster"];
    for more in [&[][..], as_file] {
        let words = [&["--set", "args.limt=20"], more].concat();
        let refused = fork(&home, &run, &words);
        assert!(refused.code() == 2 && refused.stderr.contains("did you mean `limit`?"), "{refused:?}");
    }
    assert_eq!(home.read("log"), "1 \n");
    // A name that nothing declares, and that the file names, is an argument; also when the file has gone.
    std::fs::remove_file(home.dir().join("flow.lobster")).unwrap();
    fork(&home, &run, &["--set", "args.limit=2", "--set", "args.more=x"]).output();
    assert_eq!(home.read("log"), "1 \n2 x\n");
}

#[test]
fn what_is_done_anew_is_approved_anew() {
    for (words, paid) in [
        (&["--set", "args.to=mallory"][..], "paid 10 to mallory"),
        (&["--set", "args.amount=1000"], "paid 1000 to bob"),
        (&["--from", "pay"], "paid 10 to bob"),
    ] {
        let (home, run) = approved(PAY);
        let asked = fork(&home, &run, words);
        assert_eq!(asked.envelope()["requiresApproval"]["prompt"], "Pay the invoice?", "{words:?}");
        assert_eq!(home.read("log"), "paid 10 to bob\n", "{words:?}");
        let forked = newest(&home);
        let replayed = home.lobster(["replay", &forked]).run();
        assert_eq!(replayed.code(), 0, "{words:?}: {replayed:?}");
        let gate = home
            .lobster([
                "approvals",
                "show",
                asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap(),
            ])
            .run();
        assert!(gate.stdout.contains("echo \"paid") || gate.stdout.contains("echo \\\"paid"), "{gate:?}");
        approve(&home, &asked, "eve").output();
        assert_eq!(home.read("log"), format!("paid 10 to bob\n{paid}\n"), "{words:?}");
        assert!(shown(&home, &forked, "ask!approval").ends_with("approved by eve"), "{words:?}");
        let replayed = home.lobster(["replay", &forked]).run();
        assert_eq!(replayed.code(), 0, "{words:?}: {replayed:?}");
    }
}

#[test]
fn a_question_that_is_asked_again_can_be_refused_expired_and_asked_once_more() {
    let (home, run) = approved(PAY);
    let asked = fork(&home, &run, &["--from", "pay"]);
    let gate = asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap().to_owned();
    home.lobster(["approvals", "expire", &gate]).run();
    let forked = newest(&home);
    let again = home.lobster(["resume", &forked]).run();
    assert_ne!(again.token(), asked.token());
    home.lobster(["resume", "--token", &again.token(), "--approve", "no"]).run().envelope();
    assert_eq!(home.read("log"), "paid 10 to bob\n");
    // What was refused is refused in a fork of it, too: it asks.
    fork(&home, &forked, &[]).token();
    assert_eq!(home.read("log"), "paid 10 to bob\n");
}

/// What follows the question computes with the answer, before an effect that is done anew.
const GREET: &str = "
name: greet
steps:
  - id: who
    input: { prompt: Who?, responseSchema: { type: string } }
  - id: greet
    run: echo \"hello $WHO\" | tee -a log
    env: { WHO: $who.response }
  - id: loud
    js: input.trim().toUpperCase()
    stdin: $greet.stdout
  - id: send
    run: cat >> sent
    stdin: $loud.json
";

#[test]
fn another_answer_leads_elsewhere() {
    for (answer, log, sent) in [
        ("ann", "hello ann\n", "HELLO ANNHELLO ANN"),
        ("bob", "hello ann\nhello bob\n", "HELLO ANNHELLO BOB"),
    ] {
        let home = Home::new();
        home.write("flow.lobster", GREET);
        let reply = |asked: &Answer, who: &str| {
            let json = format!("\"{who}\"");
            home.lobster(["resume", "--token", &asked.token(), "--response-json", &json]).run().envelope()
        };
        assert_eq!(reply(&home.tool(["flow.lobster"]), "ann")["status"], "ok");
        let asked = fork(&home, &newest(&home), &["--from", "send"]);
        assert_eq!(asked.envelope()["requiresInput"]["prompt"], "Who?");
        assert_eq!(reply(&asked, answer)["status"], "ok");
        assert_eq!(home.read("log"), log);
        assert_eq!(home.read("sent").replace(['"', '\n'], ""), sent);
        let replayed = home.lobster(["replay", &newest(&home)]).run();
        assert_eq!(replayed.code(), 0, "{replayed:?}");
    }
}

#[test]
fn what_a_policy_asks_is_asked_again() {
    for remember in ["never", "run"] {
        let home = Home::new();
        home.write(
            "p.toml",
            format!(
                "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[[rule]]\nid = \"w\"\neffect = \"ask\"\nprogram = \"printenv\"\nask = {{ remember = \"{remember}\" }}\n"
            ),
        );
        home.write("w.lobster", "steps:\n  - { id: a, exec: [printenv, HOME] }\n");
        let policy = home.dir().join("p.toml");
        let call = |words: &[&str]| home.lobster(words).env("LOBSTER_POLICY", &policy).run();
        let asked = call(&["run", "--mode", "tool", "w.lobster"]);
        call(&["resume", "--token", &asked.token(), "--approve", "yes"]).output();
        let run = newest(&home);
        call(&["fork", &run]).output();
        let asked = call(&["fork", &run, "--from", "a"]);
        asked.token();
        // Killing the process that asked, or its question, is not a yes.
        let gate = asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap().to_owned();
        call(&["approvals", "expire", &gate]);
        let again = call(&["resume", &newest(&home)]);
        call(&["resume", "--token", &again.token(), "--approve", "yes"]).output();
    }
}

#[test]
fn the_step_that_is_named_is_the_one_that_is_done_again() {
    let home = Home::new();
    let step = "echo x >> log; wc -l < log | tr -d ' '";
    home.write(
        "flow.lobster",
        format!(
            "steps:\n  - id: first\n    run: {step}\n  - id: second\n    run: {step}\n  - id: both\n    run: echo $first.json $second.json\n"
        ),
    );
    let said = |answer: &Answer| answer.output()[0].as_str().unwrap().trim().to_owned();
    assert_eq!(said(&home.tool(["flow.lobster"])), "1 2");
    assert_eq!(said(&fork(&home, &newest(&home), &["--from", "first"])), "3 2");
    let run = newest(&home);
    assert!(
        shown(&home, &run, "first").contains(" ok ") && shown(&home, &run, "second").contains(" cached ")
    );
}

#[test]
fn the_announcement_goes_on_behind_a_question() {
    let (home, run) = approved(PAY);
    let plan = |words: &[&str]| -> Value {
        let answer = fork(&home, &run, &[words, &["--dry-run", "--json"]].concat());
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    };
    let same = plan(&[]);
    assert_eq!(same["reused"], json!(["pay", "tell"]), "{same:#}");
    assert_eq!((&same["asked"], &same["effects"]), (&json!([]), &json!([])), "{same:#}");
    // Arguments stand in the environment of every step.
    for (words, paid, reused, done) in [
        (&["--from", "pay"][..], "10 to bob", json!(["tell"]), json!(["pay"])),
        (&["--set", "args.to=mallory"], "10 to mallory", json!([]), json!(["pay", "tell"])),
    ] {
        let plan = plan(words);
        assert_eq!((&plan["reused"], &plan["more"]), (&reused, &json!(false)), "{plan:#}");
        assert_eq!((&plan["asked"], &plan["done"]), (&json!(["ask!approval"]), &done), "{plan:#}");
        let effects = json!([{ "step": "pay", "action": format!("echo \"paid {paid}\" >> log; echo paid") }]);
        assert_eq!(plan["effects"], effects);
    }
    let said = fork(&home, &run, &["--from", "pay", "--dry-run"]).stderr;
    for line in ["asked       ask!approval", "re-run      pay", "effect      pay: echo \"paid 10 to bob\""] {
        assert!(said.contains(line), "{said}");
    }
    assert_eq!(home.read("log"), "paid 10 to bob\n");
}

#[test]
fn what_an_edited_result_leads_to_is_told_beforehand() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "
steps:
  - {id: list, run: 'echo \"[1, 2]\"'}
  - {id: norm, js: 'input.map(n => n * 2)', stdin: $list.json}
  - {id: size, js: 'input.length', stdin: $list.json}
  - {id: send, run: 'cat >> sent; echo >> sent', stdin: $norm.json}
  - {id: count, run: 'cat >> counted', stdin: $size.stdout}
",
    );
    home.tool(["flow.lobster"]).output();
    let run = newest(&home);
    home.write("other.json", "[3, 4]").write("odd.json", "{}");
    let said = fork(&home, &run, &["--edit", "list=other.json", "--dry-run"]).stderr;
    for line in [
        "reused      count",
        "edited      list",
        "re-run      norm, size, send",
        "effect      send: cat >> sent",
    ] {
        assert!(said.lines().any(|told| told.starts_with(line)), "{said}");
    }
    fork(&home, &run, &["--edit", "list=other.json"]).output();
    assert_eq!((home.read("sent").as_str(), home.read("counted").as_str()), ("[2,4]\n[6,8]\n", "2"));

    let said = fork(&home, &run, &["--edit", "list=odd.json", "--dry-run"]).stderr;
    assert!(said.contains("fails       ") && said.contains("input.map"), "{said}");
}

#[test]
fn an_edited_result_is_shown_as_one() {
    let (home, run) = approved(PAY);
    home.write("e.txt", "PAID");
    assert_eq!(fork(&home, &run, &["--edit", "pay=e.txt"]).output()[0], "PAID");
    let forked = newest(&home);
    assert!(shown(&home, &forked, "pay").contains(" edited "));
    let replayed = home.lobster(["replay", &forked]).run();
    assert!(replayed.stdout.contains("edited by hand, and not compared: pay"), "{replayed:?}");
    // It stays one where it is taken over, and in a bundle.
    fork(&home, &forked, &[]).output();
    let again = newest(&home);
    assert!(shown(&home, &again, "pay").contains(" edited "));
    home.lobster(["bundle", "export", &again, "-o", "b"]).run();
    let verified = home.lobster(["bundle", "verify", "b"]).run();
    assert!(verified.stdout.contains("not compared: pay"), "{verified:?}");
    assert_eq!(home.read("log"), "paid 10 to bob\n");
}

/// The record tells given arguments from defaults, so another version of the file brings its own defaults.
#[test]
fn a_changed_default_counts_and_a_given_argument_stays() {
    let file = |default: u32| {
        format!(
            "name: defaults\nargs:\n  given: {{ default: 1 }}\n  left: {{ default: {default} }}\n  same: {{ default: 5 }}\n\
             steps:\n  - id: say\n    run: echo given=${{given}} left=${{left}} same=${{same}}\n"
        )
    };
    let home = Home::new();
    home.write("flow.lobster", file(1));
    // `same` is given, and happens to be the default.
    home.tool(["flow.lobster", "--args-json", r#"{"given": 7, "same": 5}"#]).output();
    let run = newest(&home);
    home.write("next.lobster", file(2).replace("same: { default: 5 }", "same: { default: 6 }"));
    let forked = fork(&home, &run, &["--workflow", "next.lobster"]);
    assert!(forked.stdout.contains("given=7 left=2 same=5"), "{forked:?}");
    // A fork of the fork knows it as well.
    home.write("last.lobster", file(3));
    let forked = fork(&home, &newest(&home), &["--workflow", "last.lobster", "--set", "args.same=8"]);
    assert!(forked.stdout.contains("given=7 left=3 same=8"), "{forked:?}");
}

/// Two steps of one action, with a question between them.
const TWICE: &str = "
name: notify
steps:
  - id: notify_a
    run: echo sent >> log
  - id: ask
    approval: Send it once more?
  - id: notify_b
    run: echo sent >> log
";

#[test]
fn an_outcome_is_taken_once_however_often_the_fork_is_resumed() {
    let home = Home::new();
    home.write("once.lobster", "name: notify\nsteps:\n  - id: notify\n    run: echo sent >> log\n");
    home.write("twice.lobster", TWICE);
    home.tool(["once.lobster"]).output();
    let run = newest(&home);
    let asked = fork(&home, &run, &["--workflow", "twice.lobster"]);
    assert_eq!(home.read("log"), "sent\n", "{asked:?}");
    let forked = newest(&home);
    approve(&home, &asked, "ann").output();
    assert_eq!(home.read("log"), "sent\nsent\n");
    assert!(shown(&home, &forked, "notify_a").contains(" cached "));
    assert!(shown(&home, &forked, "notify_b").contains(" ok "));
}
