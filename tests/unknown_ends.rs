//! Effects whose end nobody has seen, and calls that were sent: neither is done again by itself.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::server::{Reply, Server};

const SLOW: &str = "
name: slow
steps:
  - id: pay
    run: echo $$ > pid; echo paid >> effects; exec sleep 60
    retry: { max: 3, delay_ms: 10 }
    on_error: continue
  - id: after
    run: echo after >> effects
";

/// Runs the workflow; once its first step has done its work, the process that `whom` names is killed.
fn killed(workflow: &str, whom: impl Fn(i32) -> i32) -> (Home, Answer) {
    let home = Home::new();
    home.write("flow.lobster", workflow);
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| home.tool(["flow.lobster"]));
        let begun = Instant::now();
        let pid = loop {
            if home.read("effects").contains("paid")
                && let Ok(pid) = home.read("pid").trim().parse::<i32>()
            {
                break pid;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the step never began");
            std::thread::sleep(Duration::from_millis(10));
        };
        let pid = rustix::process::Pid::from_raw(whom(pid)).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        running.join().unwrap()
    });
    (home, answer)
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn newest(home: &Home) -> String {
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn what_was_killed_from_outside_is_asked_about_and_not_retried() {
    type Whom = fn(i32) -> i32;
    let whoms: [(&str, Whom); 2] = [("the process", |pid| pid), ("its supervisor", parent)];
    for (what, whom) in whoms {
        let (home, answer) = killed(SLOW, whom);
        let error = answer.error();
        assert!(error.contains("interrupted") && error.contains("--retry-interrupted"), "{what}: {answer:?}");
        assert_eq!(home.read("effects"), "paid\n", "{what}");
        // Going on does not repeat it unasked either.
        let run = newest(&home);
        let asked = home.lobster(["resume", &run]).run();
        assert!(asked.error().contains("--retry-interrupted"), "{what}: {asked:?}");
        assert_eq!(home.read("effects"), "paid\n", "{what}");
        // A person who has looked says how to go on.
        let skipped = home.lobster(["resume", &run, "--skip-interrupted"]).run();
        skipped.output();
        assert_eq!(home.read("effects"), "paid\nafter\n", "{what}");
    }
}

#[test]
fn what_may_be_repeated_is() {
    let idempotent = SLOW
        .replace("retry: { max: 3, delay_ms: 10 }", "retry: { max: 2, delay_ms: 10 }\n    idempotent: true")
        .replace("exec sleep 60", "[ -e again ] || { touch again; exec sleep 60; }");
    let (home, answer) = killed(&idempotent, |pid| pid);
    answer.output();
    assert_eq!(home.read("effects"), "paid\npaid\nafter\n");
    // A command of the step that was killed is a failure that the step has seen.
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: a\n    run: \"echo try >> effects; sh -c 'kill -9 $$'; exit $?\"\n    retry: { max: 3, delay_ms: 1 }\n",
    );
    home.tool(["flow.lobster"]).error();
    assert_eq!(home.read("effects"), "try\ntry\ntry\n");
}

/// A call with `retry: {max: 3}`, and how many requests came.
fn calls(extra: &str, tail: &str, reply: fn() -> Reply) -> (usize, Answer) {
    let server = Server::start(move |_, _| reply());
    let home = Home::new();
    home.write(
        "flow.lobster",
        format!(
            "steps:\n  - id: send\n    pipeline: openclaw.invoke --url {} --tool message --action send --args-json '{{}}'{tail}\n    \
             retry: {{ max: 3, delay_ms: 1 }}\n{extra}",
            server.url()
        ),
    );
    let answer = home.tool(["flow.lobster"]);
    (server.requests().len(), answer)
}

#[test]
fn a_call_that_was_sent_is_not_sent_again() {
    let failing: fn() -> Reply = || Reply::status(500, "", "{}");
    let broken: fn() -> Reply = || Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec());
    for reply in [failing, broken] {
        let (sent, answer) = calls("", "", reply);
        assert_eq!((sent, answer.code()), (1, 1), "{answer:?}");
        let (sent, answer) = calls("    idempotent: true\n", "", reply);
        assert_eq!((sent, answer.code()), (3, 1), "{answer:?}");
    }
    // It succeeded; what follows in its pipeline fails.
    let (sent, answer) = calls("", " | exec false", || Reply::json(&json!({"ok": true, "result": [1]})));
    assert_eq!((sent, answer.code()), (1, 1), "{answer:?}");
}

#[test]
fn a_call_that_was_never_sent_is_tried_again() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: send\n    pipeline: openclaw.invoke --url http://127.0.0.1:9 --tool message --action send\n    \
         retry: { max: 3, delay_ms: 1 }\n",
    );
    let answer = home.tool(["flow.lobster"]);
    answer.error();
    assert_eq!(answer.stderr.matches("[RETRY]").count(), 2, "{answer:?}");
}
