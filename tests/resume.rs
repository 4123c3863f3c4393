//! `lobster resume RUN`: what it does with a run that stopped, and what it refuses.

use serde_json::Value;

use crate::home::{Home, wait, wait_until};

/// An effect that is under way when the test looks, and one after it.
const SLOW: &str = "
steps:
  - id: slow
    run: echo slow >> log; touch started; sleep 30
  - id: after
    run: echo after >> log
";

fn runs(home: &Home, words: &[&str]) -> Vec<Value> {
    let listed = home.lobster(["runs", "--json"].iter().chain(words)).run();
    serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"))
}

fn only_run(home: &Home) -> (String, String) {
    let all = runs(home, &[]);
    assert_eq!(all.len(), 1, "{all:#?}");
    let text = |key: &str| all[0][key].as_str().unwrap().to_owned();
    (text("id"), text("status"))
}

/// A run of [`SLOW`] that was killed during its first step.
fn killed() -> (Home, String) {
    let home = Home::new();
    home.write("flow.lobster", SLOW);
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || home.dir().join("started").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let (run, status) = only_run(&home);
    assert_eq!(status, "interrupted");
    (home, run)
}

#[test]
fn cancelling_a_run_executes_nothing_and_ends_it_for_good() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: fail\n    run: echo tried >> log; exit 1\n  - id: go\n    run: echo gone >> log\n",
    );
    home.tool(["flow.lobster"]).error();
    let (run, _) = only_run(&home);
    assert_eq!(home.lobster(["resume", &run, "--cancel"]).run().envelope()["status"], "cancelled");
    assert_eq!(home.read("log"), "tried\n");
    assert_eq!(only_run(&home).1, "cancelled");
    for words in
        [&["resume", &run][..], &["resume", &run, "--cancel"], &["resume", &run, "--retry-interrupted"]]
    {
        let message = home.lobster(words).run().error();
        assert!(message.contains("is over: a person cancelled it"), "{message}");
    }
    assert_eq!(home.read("log"), "tried\n");
    assert_eq!(home.lobster(["replay", &run]).run().code(), 0);

    let (home, run) = killed();
    assert_eq!(home.lobster(["resume", &run, "--cancel"]).run().envelope()["status"], "cancelled");
    assert_eq!((home.read("log").as_str(), only_run(&home).1.as_str()), ("slow\n", "cancelled"));
}

/// `resume` has looked at the run and is about to take it up when somebody calls the run off.
#[test]
fn a_run_that_is_called_off_while_it_is_taken_up_stays_so() {
    // Before the retry is in the journal, and between that and the claim.
    for place in ["begin", "synced log"] {
        let home = Home::new();
        home.write(
            "flow.lobster",
            "steps:\n  - id: fail\n    run: echo tried >> log; test -e fixed\n  - id: go\n    run: echo gone >> log\n",
        );
        home.tool(["flow.lobster"]).error();
        home.write("fixed", "");
        let (run, _) = only_run(&home);
        let resumed = home.lobster(["resume", &run]).env("LOBSTER_FAULT", format!("{place}:stop")).start();
        let pid = rustix::process::Pid::from_raw(i32::try_from(resumed.id()).unwrap()).unwrap();
        wait_until("it is stopped", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", resumed.id())).unwrap();
            status.contains("State:\tT")
        });
        let cancelled = home.lobster(["resume", &run, "--cancel"]).run();
        assert_eq!(cancelled.envelope()["status"], "cancelled", "{place}: {cancelled:?}");
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        let ended = resumed.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(said.contains("is over: a person cancelled it"), "{place}: {ended:?}");
        assert_eq!(
            (home.read("log").as_str(), only_run(&home).1.as_str()),
            ("tried\n", "cancelled"),
            "{place}"
        );
        assert_eq!(home.lobster(["replay", &run]).run().code(), 0);
    }
}

#[test]
fn cancelling_a_run_that_waits_closes_its_questions() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    approval: Go?\n  - id: go\n    run: echo gone >> log\n",
    );
    let token = home.tool(["flow.lobster"]).token();
    let (run, _) = only_run(&home);
    let words = ["resume", &run, "--cancel"];
    let answer = home.lobster(words).env("LOBSTER_APPROVAL_APPROVED_BY", "ann").run();
    assert_eq!(answer.envelope()["status"], "cancelled");
    let gates: Value =
        serde_json::from_str(&home.lobster(["approvals", "--all", "--json"]).run().stdout).unwrap();
    assert_eq!((&gates[0]["status"], &gates[0]["answeredBy"]), (&"cancelled".into(), &"ann".into()));
    home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().error();
    assert_eq!((home.read("log").as_str(), only_run(&home).1.as_str()), ("", "cancelled"));
}

#[test]
fn a_no_ends_the_run() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    approval: Go?\n  - id: go\n    run: echo gone >> log\n",
    );
    let token = home.tool(["flow.lobster"]).token();
    let (run, _) = only_run(&home);
    home.lobster(["resume", "--token", &token, "--approve", "no"]).run().envelope();
    let message = home.lobster(["resume", &run]).run().error();
    assert!(message.contains("is over: a person rejected it"), "{message}");
    assert_eq!(only_run(&home).1, "cancelled");
}

#[test]
fn words_that_resume_does_not_read_for_a_run_are_errors() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: fail\n    run: echo tried >> log; exit 1\n");
    home.tool(["flow.lobster"]).error();
    let (run, _) = only_run(&home);
    for (words, says) in [
        (&["--approve", "no"][..], "lobster approvals"),
        (&["--approve", "yes"], "lobster approvals"),
        (&["--response-json", "{}"], "lobster approvals"),
        (&["--dry-run"], "no option \"--dry-run\""),
        (&["ffffffff"], "one run, not also \"ffffffff\""),
        (&["--retry-interrupted", "--skip-interrupted"], "only one of"),
        (&["--cancel", "--skip-interrupted"], "only one of"),
    ] {
        let answer = home.lobster(["resume", &run].iter().chain(words)).run();
        assert_eq!(answer.code(), 2, "{answer:?}");
        assert!(answer.error().contains(says), "{answer:?}");
    }
    assert_eq!(home.read("log"), "tried\n");
}

#[test]
fn an_interrupted_effect_is_never_repeated_unasked() {
    let (home, run) = killed();
    let resume = |words: &[&str]| home.lobster(["resume", &run].iter().chain(words)).run().error();
    for _ in 0..2 {
        assert!(resume(&["--skip-interrupted"]).contains("interrupted and skipped on request"));
        assert!(resume(&[]).contains("--retry-interrupted"));
        assert_eq!(home.read("log"), "slow\n");
    }
    home.write("bin/sleep", "#!/bin/sh\n");
    let answer = home.lobster(["resume", &run, "--retry-interrupted"]).run();
    assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
    assert_eq!(home.read("log"), "slow\nslow\nafter\n");
    assert_eq!(home.lobster(["replay", &run]).run().code(), 0);
}

#[test]
fn a_run_whose_effect_was_cut_off_stays_listed_until_somebody_decides() {
    let (home, run) = killed();
    let listed = |words: &[&str]| runs(&home, words).iter().any(|found| found["id"] == run.as_str());
    for _ in 0..2 {
        assert!(listed(&["--interrupted"]) && listed(&["--status", "interrupted"]));
        assert!(!listed(&["--status", "failed"]) && !listed(&["--status", "running"]));
        home.lobster(["resume", &run]).run().error();
    }
    home.lobster(["resume", &run, "--skip-interrupted"]).run().error();
    assert!(!listed(&["--interrupted"]) && listed(&["--status", "failed"]));
    let wrong = home.lobster(["runs", "--status", "stuck"]).run();
    assert_eq!(wrong.code(), 2);
    assert!(
        wrong.stderr.contains("running, waiting, interrupted, cancelling, ok, failed, cancelled"),
        "{wrong:?}"
    );
}

/// Ends a run with a signal while its step is under way.
fn signalled(home: &Home, signal: rustix::process::Signal) -> String {
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || home.dir().join("started").exists());
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
    wait(&mut child, &"lobster");
    only_run(home).0
}

#[test]
fn what_a_signal_stopped_half_way_is_never_repeated_unasked() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let home = Home::new();
        home.write("flow.lobster", SLOW);
        let run = signalled(&home, signal);
        assert_eq!(runs(&home, &["--interrupted"]).len(), 1, "{:?}", runs(&home, &[]));
        assert_eq!(home.lobster(["replay", &run]).run().code(), 0);
        let resume = |words: &[&str]| home.lobster(["resume", &run].iter().chain(words)).run();
        for _ in 0..2 {
            assert!(resume(&[]).error().contains("--retry-interrupted"));
            assert!(resume(&["--skip-interrupted"]).error().contains("skipped on request"));
        }
        assert_eq!(home.read("log"), "slow\n");
        home.write("bin/sleep", "#!/bin/sh\n");
        assert_eq!(resume(&["--retry-interrupted"]).envelope()["status"], "ok");
        assert_eq!(home.read("log"), "slow\nslow\nafter\n");
        assert_eq!(home.lobster(["replay", &run]).run().code(), 0);
    }
}

#[test]
fn what_may_be_repeated_or_lost_a_race_is_not_asked_about() {
    let home = Home::new();
    home.write("flow.lobster", SLOW.replace("  - id: after", "    idempotent: true\n  - id: after"));
    let run = signalled(&home, rustix::process::Signal::INT);
    assert_eq!(only_run(&home).1, "interrupted");
    home.write("bin/sleep", "#!/bin/sh\n");
    assert_eq!(home.lobster(["resume", &run]).run().envelope()["status"], "ok");
    assert_eq!(home.read("log"), "slow\nslow\nafter\n");

    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: race\n    parallel:\n      wait: any\n      branches:\n        - { id: slow, run: sleep 30 }\n        \
         - { id: fast, run: 'true' }\n  - { id: late, run: sleep 30, timeout_ms: 50, on_error: continue }\n  \
         - { id: wait, run: 'touch started; sleep 30', idempotent: true }\n",
    );
    let run = signalled(&home, rustix::process::Signal::TERM);
    assert_eq!(runs(&home, &["--interrupted"])[0]["unknownEnds"], Value::Null);
    home.write("bin/sleep", "#!/bin/sh\n");
    assert_eq!(home.lobster(["resume", &run]).run().envelope()["status"], "ok");
}

#[test]
fn a_run_whose_question_expired_is_listed_as_interrupted() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: ask\n    approval: Go?\n");
    let asked = home.tool(["flow.lobster"]).envelope();
    assert_eq!(only_run(&home).1, "waiting");
    assert_eq!(runs(&home, &["--status", "waiting"]).len(), 1);
    home.lobster(["approvals", "expire", asked["requiresApproval"]["approvalId"].as_str().unwrap()]).run();
    assert_eq!(runs(&home, &["--interrupted"]).len(), 1);
    assert_eq!(runs(&home, &["--status", "waiting"]).len(), 0);
}

#[test]
fn who_initiated_a_run_is_known_to_every_process_that_continues_it() {
    let home = Home::new();
    let gate = |id: &str| {
        format!("  - {{id: {id}, approval: {{prompt: '{id}?', requireDifferentApprover: true}}}}\n")
    };
    home.write("flow.lobster", format!("steps:\n{}{}", gate("first"), gate("second")));
    let begun =
        home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_APPROVAL_INITIATED_BY", "ann");
    let first = begun.run().token();
    let approve = |token: &str, by: &str| {
        let call = home.lobster(["resume", "--token", token, "--approve", "yes"]);
        // Who answers says of nobody, or of somebody else, that the run is theirs.
        let initiated_by = if by == "ann" { "ben" } else { "" };
        call.env("LOBSTER_APPROVAL_APPROVED_BY", by).env("LOBSTER_APPROVAL_INITIATED_BY", initiated_by).run()
    };
    assert!(approve(&first, "ann").error().contains("other than 'ann'"));
    let second = approve(&first, "ben").token();
    assert!(approve(&second, "ann").error().contains("other than 'ann'"));
    assert_eq!(approve(&second, "ben").envelope()["status"], "ok");
}
