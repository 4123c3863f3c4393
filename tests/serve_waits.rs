//! Runs that the service leaves while they wait: no process, and nothing lost.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::home::{Home, wait_until};
use crate::serve_load::{between, time_of};
use crate::served::{Served, register, token};
use crate::setting::number;

/// Waits for an event, so that nothing but the test ends the wait.
const WAITS: &str = "args: {n: {type: integer, default: 0}}\nsteps:\n  - {id: before, run: 'echo before >> said'}\n  - {id: paid, wait: {event: 'paid/${n}'}}\n  - {id: after, run: 'cat >> said', stdin: $paid.json.sum}\n";

fn start(served: &Served, token: &str, workflow: &str, args: &Value) -> String {
    let path = format!("/api/v1/workflows/{workflow}/runs");
    let run = served.post(token, &path, &json!({ "args": args })).good();
    run["run"].as_str().unwrap().to_owned()
}

/// Waits until so many waits of so many runs stand in the store and no process is at work.
fn wait_until_parked(served: &Served, token: &str, count: usize, runs: usize) -> Vec<Value> {
    let mut waits = Vec::new();
    wait_until("the runs are parked", || {
        let found = served.get(token, "/api/v1/waits?limit=1000").good();
        waits = found["waits"].as_array().unwrap().clone();
        waits.len() == count && lines_of(served, token, "parked") == runs
    });
    waits
}

/// So many runs stand like this, as the figures have it.
fn lines_of(served: &Served, token: &str, state: &str) -> usize {
    let metrics = served.get(token, "/metrics").body;
    let line = format!("lobster_starts{{state=\"{state}\"}} ");
    metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_run_that_waits_for_an_event_is_a_row_and_survives_every_server() {
    let home = Home::new();
    home.write("order.lobster", WAITS);
    register(&home, &["order.lobster"]);
    let mut served = Served::start(&home, &["--max-runs", "1"]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "order", &json!({ "n": 1 }));
    let other = start(&served, &operator, "order", &json!({ "n": 2 }));
    // The second one begins though the only place was the first one's: a wait keeps none.
    let waits = wait_until_parked(&served, &operator, 2, 2);
    assert_eq!((&waits[0]["event"], &waits[0]["until"]), (&json!("paid/1"), &Value::Null), "{waits:?}");
    // It waits, whoever tells of it: no process is at work, and none was killed.
    let listed = home.lobster(["runs", "--status", "waiting"]).run();
    assert_eq!(listed.stdout.matches("order").count(), 2, "{listed:?}");
    let browser = Browser::log_in(&home, &served, "viewer");
    for path in ["/".to_owned(), "/runs".to_owned(), format!("/runs/{run}")] {
        let page = browser.get(&path).body;
        // The list can be asked for each way in which runs stand.
        let (head, rest) = page.split_once("<nav class=\"chips\"").unwrap_or((&page, ""));
        let page = format!("{head}{}", rest.split_once("</nav>").map_or("", |(_, rest)| rest));
        assert!(!page.to_lowercase().contains("interrupted"), "{path}: {page}");
    }
    assert!(browser.get("/runs?status=waiting").body.contains(&run[24..]), "{run}");
    assert_eq!(served.get(&operator, &format!("/api/v1/runs/{run}")).good()["status"], "waiting");
    served.kill();
    let sent = home.lobster(["event", "send", "paid/1", "--data", r#"{"sum": "twelve "}"#]).run();
    assert!(sent.code() == 0 && sent.stdout.contains("1 run continues"), "{sent:?}");
    let served = Served::start(&home, &[]);
    assert_eq!(served.ended(&operator, &run)["status"], "ok");
    assert_eq!(served.get(&operator, &format!("/api/v1/runs/{other}")).good()["status"], "waiting");
    let answer =
        served.post(&operator, "/api/v1/events", &json!({ "name": "paid/2", "data": {"sum": "two"} }));
    assert_eq!((answer.status, answer.good()["waiting"].as_i64()), (202, Some(1)));
    assert_eq!(served.ended(&operator, &other)["status"], "ok");
    assert_eq!(home.read("said"), "before\nbefore\ntwelve two");
    assert_eq!(served.get(&operator, "/api/v1/waits").good()["waits"], json!([]));
    let admin = token(&home, "admin", None);
    let trail = served.get(&admin, "/api/v1/trail").good();
    let sent: Vec<_> =
        trail["trail"].as_array().unwrap().iter().filter(|deed| deed["verb"] == "send-event").collect();
    assert_eq!((sent.len(), &sent[0]["actor"]), (2, &json!("operator-person")), "{trail}");
    for (body, code) in [
        (json!({ "name": "a b" }), "bad_request"),
        (json!({ "data": 1 }), "bad_request"),
        (json!({ "name": "a", "data": "x".repeat(70_000) }), "too_large"),
    ] {
        assert_eq!(served.post(&operator, "/api/v1/events", &body).problem(), code);
    }
    drop(served);
    let replayed = home.lobster(["replay", &run]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
    home.assert_deserted();
}

#[test]
fn a_run_is_taken_up_when_its_time_has_come() {
    let home = Home::new();
    home.write(
        "later.lobster",
        "steps:\n  - id: both\n    parallel:\n      branches:\n        - {id: pause, wait: 5s}\n        - {id: none, wait: {event: never, timeout: 6s}, on_error: continue}\n  - {id: after, run: 'echo after >> said'}\n",
    );
    register(&home, &["later.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "later", &json!({}));
    let waits = wait_until_parked(&served, &operator, 2, 1);
    assert!(waits.iter().all(|wait| wait["until"].is_string()), "{waits:?}");
    assert_eq!(served.ended(&operator, &run)["status"], "ok");
    assert_eq!(home.read("said"), "after\n");
    let shown = home.lobster(["show", &run]).run();
    assert!(shown.stdout.contains("both/none   wait      failed"), "{shown:?}");
}

#[test]
fn a_question_and_a_wait_of_one_run_do_not_hold_each_other() {
    let home = Home::new();
    home.write(
        "both.lobster",
        "steps:\n  - id: both\n    parallel:\n      branches:\n        - {id: ask, approval: 'Go on?'}\n        - {id: come, wait: {event: come}}\n  - {id: after, run: 'echo after >> said'}\n",
    );
    register(&home, &["both.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let answer = |gate: &Value| {
        let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
        served.post(&operator, &path, &json!({ "decision": "approve", "digest": gate["digest"] })).good();
    };
    // The answer first, then the event; and the other way round.
    let one = start(&served, &operator, "both", &json!({}));
    let gate = served.question(&operator);
    wait_until_parked(&served, &operator, 1, 1);
    answer(&gate);
    wait_until("it waits for the event alone", || {
        served.get(&operator, "/api/v1/approvals").good()["gates"] == json!([])
            && lines_of(&served, &operator, "parked") == 1
            && served.get(&operator, "/api/v1/waits").good()["waits"].as_array().unwrap().len() == 1
    });
    served.run_with(&operator, &one, |status| status == "waiting");
    home.lobster(["event", "send", "come"]).run();
    assert_eq!(served.ended(&operator, &one)["status"], "ok");
    let two = start(&served, &operator, "both", &json!({}));
    let gate = served.question(&operator);
    wait_until_parked(&served, &operator, 1, 1);
    home.lobster(["event", "send", "come"]).run();
    wait_until("the event is taken and the question is the same", || {
        served.get(&operator, "/api/v1/waits").good()["waits"] == json!([])
            && lines_of(&served, &operator, "parked") == 1
            && served.get(&operator, "/api/v1/approvals").good()["gates"][0]["id"] == gate["id"]
    });
    answer(&gate);
    assert_eq!(served.ended(&operator, &two)["status"], "ok");
    assert_eq!(home.read("said"), "after\nafter\n");
}

#[test]
fn a_no_to_a_question_is_heard_by_the_worker_that_took_up_the_wait() {
    let home = Home::new();
    home.write(
        "both.lobster",
        "steps:\n  - {id: ask, approval: 'Go on?', needs: []}\n  - {id: come, wait: {event: come}, needs: []}\n  - {id: slow, needs: come, run: 'touch started; until [ -e go ]; do sleep 0.05; done; echo slow >> said'}\n  - {id: after, needs: slow, run: 'echo after >> said'}\n",
    );
    register(&home, &["both.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "both", &json!({}));
    let gate = served.question(&operator);
    wait_until_parked(&served, &operator, 1, 1);
    home.lobster(["event", "send", "come"]).run();
    wait_until("the worker is at an effect", || home.dir().join("started").exists());
    let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    served.post(&operator, &path, &json!({ "decision": "reject", "digest": gate["digest"] })).good();
    home.write("go", "");
    wait_until("nothing is at work, and nothing is to be", || {
        ["queued", "taken", "parked"].iter().all(|state| lines_of(&served, &operator, state) == 0)
    });
    // Longer than a run without a process is left alone.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(home.read("said"), "slow\n");
    assert_eq!(served.get(&operator, &format!("/api/v1/runs/{run}")).good()["status"], "cancelled");
    assert_eq!(served.get(&operator, "/api/v1/approvals").good()["gates"], json!([]));
}

/// What keeps one waiting run from going on may keep 10,000 from it: each is left alone for longer and longer, says
/// why, and goes on by itself when it can.
#[test]
fn a_run_that_cannot_go_on_is_tried_again_with_rests_and_says_why() {
    let home = Home::new();
    let config = home.dir().join("../home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    let secret = home.dir().join("password");
    let names = format!("[secrets.password]\nfile = {:?}\n", secret.to_str().unwrap());
    std::fs::write(config.join("secrets.toml"), names).unwrap();
    std::fs::write(&secret, "correct horse").unwrap();
    home.write(
        "order.lobster",
        "secrets: [password]\nsteps:\n  - {id: before, run: 'echo before >> said', secrets: {PASSWORD: password}}\n  - {id: paid, wait: {event: paid}}\n  - {id: after, run: 'echo ${#PASSWORD} >> said', secrets: {PASSWORD: password}}\n",
    );
    register(&home, &["order.lobster"]);
    let served = Served::start(&home, &[]);
    let operator = token(&home, "operator", None);
    let run = start(&served, &operator, "order", &json!({}));
    wait_until_parked(&served, &operator, 1, 1);
    std::fs::rename(&secret, home.dir().join("away")).unwrap();
    served.post(&operator, "/api/v1/events", &json!({ "name": "paid" })).good();
    let mut found = Value::Null;
    wait_until("it says why it cannot go on", || {
        found = served.get(&operator, &format!("/api/v1/runs/{run}")).good();
        found["error"].is_string()
    });
    let why = found["error"].as_str().unwrap();
    assert!(why.contains("password") && found["status"] == "waiting", "{found}");
    let wait = || served.get(&operator, "/api/v1/waits").good()["waits"][0].clone();
    let mut untils = std::collections::BTreeSet::new();
    wait_until("it was tried three times", || {
        untils.extend(wait()["until"].as_str().map(str::to_owned));
        untils.len() == 3
    });
    let times: Vec<i64> = untils.iter().map(|until| time_of(&json!(until))).collect();
    // The first rest is over, and the second twice as long.
    assert!(between(times[0], times[1]) >= 4_000 && between(times[1], times[2]) >= 8_000, "{untils:?}");
    let listed = home.lobster(["event", "list"]).run();
    assert!(listed.stdout.contains("(again)"), "{listed:?}");
    let page = Browser::log_in(&home, &served, "viewer").get(&format!("/runs/{run}")).body;
    assert!(page.contains("It could not continue"), "{page}");
    std::fs::rename(home.dir().join("away"), &secret).unwrap();
    // Whoever does not want to wait goes on at once.
    let resumed = home.lobster(["resume", &run]).run();
    assert!(
        resumed.stdout.contains(r#""ok":true"#) || resumed.stdout.contains(r#""ok": true"#),
        "{resumed:?}"
    );
    assert_eq!(served.ended(&operator, &run)["status"], "ok");
    assert_eq!(served.get(&operator, &format!("/api/v1/runs/{run}")).good()["error"], Value::Null);
    assert_eq!(home.read("said"), "before\n13\n");
}

#[test]
fn without_a_server_a_run_waits_for_an_event_in_its_process() {
    let home = Home::new();
    home.write("order.lobster", WAITS);
    let running = home.lobster(["run", "order.lobster", "--arg", "n=7"]).start();
    wait_until("it waits", || home.read("said") == "before\n");
    for (words, about) in [
        (vec!["event", "send", "a b"], "is not a name of an event"),
        (vec!["event", "send", "a", "--data", "{"], "--data must be JSON"),
    ] {
        let refused = home.lobster(words).run();
        assert!(refused.code() == 2 && refused.stderr.contains(about), "{refused:?}");
    }
    let inside = home.lobster(["event", "send", "paid/7"]).env("LOBSTER_RUN_ID", "x").run();
    assert!(inside.code() == 1 && inside.stderr.contains("a run cannot send an event"), "{inside:?}");
    let sent = home.lobster(["event", "send", "paid/7", "--data", r#"{"sum": 3}"#]).run();
    assert!(sent.stdout.contains("no run waits"), "{sent:?}");
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(home.read("said"), "before\n3");
    let listed = home.lobster(["event", "list"]).run();
    assert!(listed.stdout.contains("paid/7") && listed.stdout.contains(r#"{"sum":3}"#), "{listed:?}");
    let late = "steps:\n  - {id: a, wait: {event: never, timeout: 200ms}}\n";
    home.write("late.lobster", late);
    let failed = home.lobster(["run", "late.lobster"]).run();
    assert!(failed.code() == 1 && failed.stderr.contains("no event never came within 200ms"), "{failed:?}");
}

/// Resident memory of a process, in KiB.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// `LOBSTER_SERVE_WAITS` runs that wait, and a server that is killed `LOBSTER_SERVE_KILLS` times
/// while they begin to, while they do, and while they go on.
#[test]
fn waiting_runs_cost_no_process_and_outlive_servers_that_are_killed() {
    let (count, kills) = (number("LOBSTER_SERVE_WAITS", 6), number("LOBSTER_SERVE_KILLS", 3));
    let home = Home::new();
    home.write("order.lobster", WAITS.replace("${n}", "all"));
    register(&home, &["order.lobster"]);
    let operator = token(&home, "operator", None);
    let mut served = Served::start(&home, &[]);
    for n in 0..count {
        start(&served, &operator, "order", &json!({ "n": n }));
        if n % (count / kills + 1) == count / kills {
            served.kill();
            served = Served::start(&home, &[]);
        }
    }
    let parked = |served: &Served| lines_of(served, &operator, "parked");
    let patience = std::time::Instant::now();
    while parked(&served) < count {
        assert!(patience.elapsed() < Duration::from_secs(60 + count as u64), "{}", parked(&served));
        std::thread::sleep(Duration::from_millis(100));
    }
    served.kill();
    let begun = std::time::Instant::now();
    let served = Served::start(&home, &[]);
    served.get(&operator, "/metrics").good_text();
    let restart = begun.elapsed();
    std::thread::sleep(Duration::from_secs(if count > 100 { 30 } else { 0 }));
    let memory = memory_of(served.child.id());
    println!("{count} waiting runs: {memory} KiB, started again in {restart:?}");
    if count > 100 {
        assert!(memory <= 80 << 10, "{memory} KiB");
    }
    assert_eq!(home.read("said"), "before\n".repeat(count), "each has done its first step once");
    served.post(&operator, "/api/v1/events", &json!({ "name": "paid/all", "data": {"sum": "x\n"} })).good();
    let mut served = served;
    let patience = std::time::Instant::now();
    while home.read("said").matches("x\n").count() < count {
        assert!(patience.elapsed() < Duration::from_secs(60 + count as u64));
        std::thread::sleep(Duration::from_millis(300));
        if patience.elapsed() < Duration::from_secs(2) {
            served.kill();
            served = Served::start(&home, &[]);
        }
    }
    wait_until("all are over", || lines_of(&served, &operator, "over") == count);
    assert_eq!(home.read("said").matches("x\n").count(), count, "each went on once");
    served.signal(Signal::TERM);
}
