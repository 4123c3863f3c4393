//! What ends a run of the service: cancelling it and the limits of the server reach whatever process is at it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

const SLOW: &str =
    "  - {id: slow, run: 'touch begun; while ! test -e go; do sleep 0.05; done; echo slow >> said'}\n";

fn home() -> Home {
    let home = Home::new();
    home.write("slow.lobster", format!("steps:\n{SLOW}"));
    home.write("asks.lobster", format!("steps:\n  - {{id: ask, approval: 'Go on?'}}\n{SLOW}"));
    home.write("fails.lobster", format!("steps:\n  - {{id: a, run: 'test -e good'}}\n{SLOW}"));
    home.write(
        "quick.lobster",
        "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: b, run: 'echo quick >> said'}\n",
    );
    register(&home, &["slow.lobster", "asks.lobster", "fails.lobster", "quick.lobster"]);
    home
}

fn start(served: &Served, operator: &str, workflow: &str) -> String {
    let started = served.post(operator, &format!("/api/v1/workflows/{workflow}/runs"), &json!({})).good();
    started["run"].as_str().unwrap().to_owned()
}

/// Says yes to the one question that is open.
fn approve(served: &Served, operator: &str) {
    let gate = served.question(operator);
    let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    served.post(operator, &path, &json!({ "decision": "approve", "digest": gate["digest"] })).good();
}

fn begins(home: &Home) {
    wait_until("it works", || home.dir().join("begun").exists());
}

fn cancel(home: &Home, served: Served, operator: &str, run: &str) {
    let reply = served.post(operator, &format!("/api/v1/runs/{run}/cancel"), &Value::Null);
    assert_eq!(reply.status, 202, "{reply:?}");
    assert_eq!(served.ended(operator, run)["status"], "cancelled");
    drop(served);
    home.assert_deserted();
    assert_eq!(home.read("said"), "");
}

#[test]
fn a_run_is_cancelled_after_its_question_was_answered() {
    let home = home();
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "asks");
    approve(&served, &operator);
    begins(&home);
    cancel(&home, served, &operator, &run);
}

#[test]
fn a_run_is_cancelled_that_goes_on_in_a_shell() {
    let home = home();
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "asks");
    let gate = served.question(&operator);
    let words = ["resume", "--id", gate["id"].as_str().unwrap(), "--approve", "yes"];
    let mut shell = home.lobster(words).start();
    begins(&home);
    cancel(&home, served, &operator, &run);
    assert!(!shell.wait().unwrap().success());
}

#[test]
fn a_run_is_cancelled_that_an_earlier_server_has_started() {
    let home = home();
    let mut earlier = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&earlier, &operator, "slow");
    begins(&home);
    earlier.kill();
    let served = Served::start(&home, &[]);
    cancel(&home, served, &operator, &run);
}

#[test]
fn a_run_is_cancelled_that_is_tried_again() {
    let home = home();
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "fails");
    assert_eq!(served.ended(&operator, &run)["status"], "failed");
    home.write("good", "");
    let reply = Browser::log_in(&home, &served, "operator").post(&format!("/runs/{run}/resume"), &[]);
    assert_eq!(reply.status, 303, "{reply:?}");
    begins(&home);
    cancel(&home, served, &operator, &run);
}

#[test]
fn the_time_of_a_run_is_limited_after_an_answer_and_after_a_restart() {
    let home = home();
    let mut served = Served::start(&home, &["--max-time", "2s"]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "asks");
    approve(&served, &operator);
    assert_eq!(served.ended(&operator, &run)["status"], "interrupted");
    served.kill();
    std::fs::remove_file(home.dir().join("begun")).unwrap();
    let mut served = Served::start(&home, &[]);
    let run = start(&served, &operator, "slow");
    begins(&home);
    served.kill();
    let served = Served::start(&home, &["--max-time", "2s"]);
    let ended = served.ended(&operator, &run);
    assert_eq!(ended["status"], "interrupted");
    // The record names the limit, so that it can be told from other ends.
    assert!(ended["error"].to_string().contains("`--max-time` of `lobster serve`"), "{ended}");
    let shown = home.lobster(["show", &run]).run();
    assert!(shown.stdout.contains("--max-time"), "{shown:?}");
    drop(served);
    home.assert_deserted();
    assert_eq!(home.read("said"), "");
}

#[test]
fn a_run_that_reaches_a_limit_between_effects_is_resumed_by_a_person() {
    let home = Home::new();
    let counts = "steps:\n  - id: count\n    repeat: { until: $turn.json == 12, every: 500ms, max: 60 }\n    \
                  steps: [{ id: turn, run: 'echo $index.json' }]\n";
    home.write("counts.lobster", counts);
    register(&home, &["counts.lobster"]);
    let served = Served::start(&home, &["--max-time", "2s"]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "counts");
    let ended = served.ended(&operator, &run);
    assert_eq!(ended["status"], "interrupted", "{ended}");
    assert!(ended["error"].to_string().contains("`--max-time` of `lobster serve`"), "{ended}");
    // The server starts what it resumes by itself before this.
    let later = start(&served, &operator, "counts");
    served.ended(&operator, &later);
    assert_eq!(served.ended(&operator, &run)["status"], "interrupted");
    // The limit holds for whoever continues a run of the service.
    drop(served);
    assert_eq!(home.lobster(["resume", &run]).run().code(), 0);
}

#[test]
fn a_run_that_has_too_much_in_memory_says_so() {
    let home = Home::new();
    let step = "awk 'BEGIN { s = \"0123456789abcdef\"; while (length(s) < 600000000) s = s s; system(\"sleep 30\") }'";
    home.write("large.lobster", format!("steps:\n  - id: large\n    run: |\n      {step}\n"));
    register(&home, &["large.lobster"]);
    let served = Served::start(&home, &["--max-memory", "400MiB"]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "large");
    let ended = served.ended(&operator, &run);
    assert!(ended["error"].to_string().contains("`--max-memory` of `lobster serve`"), "{ended}");
    drop(served);
    home.assert_deserted();
}

#[test]
fn what_follows_an_answer_waits_for_a_free_place() {
    let home = home();
    let served = Served::start(&home, &["--max-runs", "1"]);
    let operator = token(&home, "operator", None);
    let asking = start(&served, &operator, "quick");
    served.question(&operator);
    let slow = start(&served, &operator, "slow");
    begins(&home);
    approve(&served, &operator);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(home.read("said"), "");
    home.write("go", "");
    for run in [asking, slow] {
        assert_eq!(served.ended(&operator, &run)["status"], "ok");
    }
    assert_eq!(home.read("said"), "slow\nquick\n");
}

#[test]
fn a_question_that_nobody_answers_in_time_is_not_asked_again_before_a_person_says_so() {
    let home = home();
    home.write("late.lobster", "steps:\n  - {id: b, run: printenv HOME}\n");
    home.write("closed.lobster", "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: b, js: '1'}\n");
    let policy = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n[[rule]]\nid = \"w\"\neffect = \"ask\"\n\
                  program = \"printenv\"\nask = { ttl = \"1s\" }\n";
    home.write("p.toml", policy);
    let told = home.dir().join("told");
    let tell = format!("cat >> {0}; echo >> {0}", told.display());
    home.write("serve.toml", format!("[[notify]]\nname = 'all'\ncommand = ['/bin/sh', '-c', '{tell}']\n"));
    register(&home, &["late.lobster", "closed.lobster"]);
    let policy = home.dir().join("p.toml");
    let served = Served::start_under(&home, &policy, &["--config", "serve.toml"]);
    let operator = token(&home, "operator", None);
    let lobster = |words: &[&str]| home.lobster(words).env("LOBSTER_POLICY", &policy).run();
    let (late, closed) = (start(&served, &operator, "late"), start(&served, &operator, "closed"));
    let gates = || {
        let all: Vec<Value> =
            serde_json::from_str(&lobster(&["approvals", "--all", "--json"]).stdout).unwrap_or_default();
        all.iter().map(|gate| (gate["run"].clone(), gate["id"].clone())).collect::<Vec<_>>()
    };
    wait_until("both questions", || gates().len() == 2);
    let id = gates().into_iter().find(|(run, _)| *run == closed.as_str()).unwrap().1;
    assert_eq!(lobster(&["approvals", "expire", id.as_str().unwrap()]).code(), 0);
    let interrupted = || {
        let told = std::fs::read_to_string(&told).unwrap_or_default();
        let told = serde_json::Deserializer::from_str(&told).into_iter::<Value>().filter_map(Result::ok);
        let told = told.filter(|notice| notice["status"] == "interrupted");
        told.map(|notice| notice["run"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    wait_until("both are left", || interrupted().len() == 2);
    // As long as it would take to ask again.
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!((gates().len(), interrupted().len()), (2, 2));
    for run in [&late, &closed] {
        assert!(interrupted().contains(run));
        let shown = lobster(&["runs", "--interrupted"]);
        assert!(shown.stdout.contains(&run[run.len() - 8..]), "{shown:?}");
    }
    let again = lobster(&["resume", &closed, "--mode", "tool"]);
    assert_eq!(again.envelope()["status"], "needs_approval", "{again:?}");
    assert_eq!(gates().len(), 3);
    approve(&served, &operator);
    assert_eq!(served.ended(&operator, &closed)["status"], "ok");
}

#[test]
fn what_follows_a_run_begins_when_a_shell_has_brought_it_to_its_end() {
    let home = Home::new();
    home.write("closed.lobster", "steps:\n  - {id: ask, approval: 'Go on?'}\n  - {id: b, js: '1'}\n");
    home.write("fails.lobster", "steps:\n  - {id: a, run: 'test -e good'}\n");
    let next = |name: &str| {
        format!(
            "on:\n  after: {{workflow: {name}.lobster, ended: ok}}\nsteps:\n  - {{id: a, run: 'echo {name} >> followed'}}\n"
        )
    };
    home.write("next1.lobster", next("closed")).write("next2.lobster", next("fails"));
    register(&home, &["closed.lobster", "fails.lobster", "next1.lobster", "next2.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let (closed, fails) = (start(&served, &operator, "closed"), start(&served, &operator, "fails"));
    assert_eq!(served.ended(&operator, &fails)["status"], "failed");
    let gate = served.question(&operator);
    assert_eq!(home.lobster(["approvals", "expire", gate["id"].as_str().unwrap()]).run().code(), 0);
    let shown = || home.lobster(["show", &closed]).run().stdout;
    wait_until("the service leaves it", || shown().contains("its question expired"));
    home.write("good", "");
    home.lobster(["resume", &fails, "--mode", "tool"]).run().output();
    let token = home.lobster(["resume", &closed, "--mode", "tool"]).run().token();
    assert!(!shown().contains("does not continue it"), "{}", shown());
    home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().output();
    wait_until("what follows", || home.read("followed").lines().count() == 2);
    assert_eq!(home.read("followed").matches("closed").count(), 1);
}
