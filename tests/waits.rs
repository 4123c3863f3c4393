//! Steps that wait: until when is decided once, whoever goes on with the run.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::home::{Home, wait, wait_until};

/// Long enough that two commands that do not wait take less, on a slow machine too.
const WAIT: Duration = Duration::from_secs(5);

const FLOW: &str = "\
steps:
  - {id: before, run: echo before >>log}
  - {id: pause, wait: 5s, stdin: handed on}
  - {id: after, run: 'cat; echo after >>log', stdin: $pause.stdout}
";

fn flow() -> Home {
    let home = Home::new();
    home.write("flow.lobster", FLOW);
    home
}

fn log(home: &Home) -> String {
    std::fs::read_to_string(home.dir().join("log")).unwrap_or_default()
}

#[test]
fn a_run_that_was_killed_in_a_wait_waits_for_the_rest() {
    let home = flow();
    let events = home.dir().join("events");
    let mut running = home.lobster(["run", "--events", "jsonl:events", "flow.lobster"]).start();
    // The record shows the deadline before the wait begins, and a little later it is on disk.
    wait_until("the wait has begun", || {
        std::fs::read_to_string(&events).is_ok_and(|text| text.contains("pause!wait"))
    });
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    running.kill().unwrap();
    wait(&mut running, &"the kill");
    std::thread::sleep(WAIT.saturating_sub(begun.elapsed()));
    let resumed = home.lobster(["resume", "@"]).run();
    assert_eq!(resumed.code(), 0, "{resumed:?}");
    // Until when is decided once.
    let record: Value = serde_json::from_str(&home.lobster(["show", "@", "--json"]).run().stdout).unwrap();
    let decided = record.as_array().unwrap().iter().filter(|record| record["event"]["path"] == "pause!wait");
    assert_eq!(decided.count(), 1, "it waited anew: {record:#}");
    assert_eq!(log(&home), "before\nafter\n", "each effect is done once");
    assert!(resumed.stdout.contains("handed on"), "{resumed:?}");

    // Whatever goes on behind the wait does not wait.
    let again = Instant::now();
    let replayed = home.lobster(["replay", "@"]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
    let forked = home.lobster(["fork", "@", "--from", "after"]).run();
    assert_eq!(forked.code(), 0, "{forked:?}");
    assert!(again.elapsed() < WAIT, "they waited: {:?}", again.elapsed());
    assert_eq!(log(&home), "before\nafter\nafter\n");
    // One whose wait is another one waits.
    home.write("flow.lobster", FLOW.replace("5s", "1s"));
    let again = Instant::now();
    let forked = home.lobster(["fork", "@", "--workflow", "flow.lobster"]).run();
    assert_eq!(forked.code(), 0, "{forked:?}");
    assert!(again.elapsed() >= Duration::from_secs(1), "it did not wait: {:?}", again.elapsed());
}

#[test]
fn a_signal_ends_a_wait_at_once_and_a_time_limit_fails_it() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - {id: before, run: echo before >>log}\n  - {id: pause, wait: 300d}\n  - {id: after, run: echo after >>log}\n",
    );
    let mut running = home.lobster(["run", "flow.lobster"]).start();
    wait_until("the step before has run", || log(&home) == "before\n");
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!wait(&mut running, &"the interrupted wait").success());
    assert_eq!(log(&home), "before\n");
    home.write("limit.lobster", "steps:\n  - {id: pause, wait: 1h, timeout_ms: 50}\n");
    let limited = home.lobster(["run", "limit.lobster"]).run();
    assert!(limited.code() == 1 && limited.stderr.contains("timed out after 50ms"), "{limited:?}");
}

#[test]
fn a_wait_stands_wherever_a_step_does() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "\
args: {long: {default: 20ms}}
steps:
  - {id: list, run: \"echo '[\\\"10ms\\\",\\\"30ms\\\"]'\"}
  - {id: past, wait: {until: '2001-01-01T00:00:00Z'}, stdin: $list.json}
  - id: each
    for_each: $past.json
    steps:
      - {id: some, wait: $item.json}
      - {id: then, wait: '${long}', approval: false}
  - id: both
    parallel:
      branches:
        - {id: one, wait: 10ms}
        - {id: two, run: echo two}
  - {id: end, run: echo done}
",
    );
    let shown = home.lobster(["run", "--dry-run", "flow.lobster"]).run();
    assert!(shown.stderr.contains("wait: until 2001-01-01T00:00:00Z"), "{shown:?}");
    let drawn = home.lobster(["graph", "flow.lobster"]).run();
    assert!(drawn.stdout.contains("wait"), "{drawn:?}");
    let ran = home.lobster(["run", "flow.lobster"]).run();
    assert!(ran.code() == 0 && ran.stdout.contains("done"), "{ran:?}");
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
}

#[test]
fn what_is_no_time_is_told_with_its_place() {
    let home = Home::new();
    for (written, told) in [
        ("wait: soon", "\"soon\" is not a duration such as"),
        ("wait: 400d", "\"400d\" is more than 366 days ahead"),
        ("wait: 5", "wait must be a duration or a map, not a number"),
        ("wait: {for: 5s}", "for"),
        ("wait: {until: tomorrow}", "\"tomorrow\" is not a time such as"),
        ("wait: {until: '2027-01-31T09:00:00'}", "is not a time such as"),
        ("wait: 5s, run: echo", "can only define one of"),
        ("sleep: 5", "write `wait: 90s`"),
    ] {
        home.write("flow.lobster", format!("steps:\n  - {{id: a, {written}}}\n"));
        let checked = home.lobster(["check", "flow.lobster"]).run();
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert_ne!(checked.code(), 0, "{written}: {checked:?}");
        assert!(said.contains(told) && said.contains("flow.lobster:2"), "{written}: {said}");
    }
    home.write("flow.lobster", "args: {at: {default: never}}\nsteps:\n  - {id: a, wait: '${at}'}\n");
    let ran = home.lobster(["run", "flow.lobster"]).run();
    assert!(ran.code() == 1 && ran.stderr.contains("step a wait: \"never\" is not a duration"), "{ran:?}");
}
