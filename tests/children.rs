//! Child processes that misbehave: too much output, deaf to signals, forking
//! away, holding their stdout open; and readers of ours that go away.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use crate::home::{Home, wait, wait_until};

fn step(fields: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", format!("steps:\n  - id: child\n{fields}"));
    home
}

#[test]
fn a_gigabyte_of_output_is_stopped_at_the_limit() {
    let home = step("    run: head -c 1000000000 /dev/zero\n    limits: { output: 4MiB }\n");
    let answer = home.tool(["flow.lobster"]);
    let message = answer.error();
    assert!(message.contains("4194304 bytes") && message.contains("limits.output"), "{message}");
    assert!(answer.stdout.len() < 4096 && answer.stderr.len() < 4096, "the output is not in the answer");

    let pipeline = Home::new();
    let answer = pipeline
        .lobster(["run", "--mode", "tool", "exec --shell 'yes | head -c 1000000000' | head --n 1"])
        .env("LOBSTER_MAX_OUTPUT_BYTES", "8000000")
        .run();
    let message = answer.error();
    assert!(message.contains("8000000 bytes") && message.contains("LOBSTER_MAX_OUTPUT_BYTES"), "{message}");
}

#[test]
fn a_gigabyte_on_stderr_neither_blocks_nor_fills_memory() {
    let home = step("    run: head -c 300000000 /dev/zero >&2; echo fine\n");
    assert_eq!(home.tool(["flow.lobster"]).output()[0], "fine\n");
}

#[test]
fn a_child_that_ignores_sigterm_is_killed() {
    let home = step(
        "    run: trap '' TERM INT HUP; while :; do sleep 0.1; echo tick >> log; done\n    timeout_ms: 300\n",
    );
    let answer = home.tool(["flow.lobster"]);
    let message = answer.error();
    assert!(message.contains("300"), "{message}");
    assert!(answer.took < Duration::from_secs(40), "it took {:?}", answer.took);
    assert_stopped(&home);
}

#[test]
fn a_child_that_forks_away_is_found() {
    let away = "(setsid sh -c 'trap \"\" TERM; while :; do echo tick >> log; sleep 0.1; done' < /dev/null > /dev/null 2>&1 &)";
    for end in ["echo done", "sleep 60", "exit 3", "kill -9 $$"] {
        let home = step(&format!(
            "    run: {}\n    timeout_ms: 4000\n",
            serde_json::json!(format!("{away}; until [ -s log ]; do sleep 0.05; done; {end}"))
        ));
        home.tool(["flow.lobster"]).envelope();
        assert!(!home.read("log").is_empty(), "the fork ran");
        assert_stopped(&home);
    }
}

#[test]
fn nothing_survives_when_lobster_itself_is_killed() {
    let home = step("    run: (setsid sh -c 'while :; do echo tick >> log; sleep 0.1; done' &); sleep 60\n");
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || !home.read("log").is_empty());
    child.kill().unwrap();
    wait(&mut child, &"lobster");
    assert_stopped(&home);
}

#[test]
fn a_stdout_held_open_by_a_background_process_does_not_block() {
    let home = step("    run: sleep 59 & echo hi\n");
    let answer = home.tool(["flow.lobster"]);
    assert_eq!(answer.output()[0], "hi\n");
    assert!(answer.took < Duration::from_secs(40), "it took {:?}", answer.took);
}

#[test]
fn a_child_that_closes_its_streams_is_waited_for() {
    let home = step("    run: exec >&- 2>&-; sleep 0.3; echo ended > log\n");
    home.tool(["flow.lobster"]).envelope();
    assert_eq!(home.read("log"), "ended\n");
}

#[test]
fn a_child_that_does_not_read_its_stdin_is_no_error() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: big\n    run: head -c 3000000 /dev/zero | tr '\\0' x\n  - id: deaf\n    run: echo deaf\n    stdin: $big.stdout\n");
    assert_eq!(home.tool(["flow.lobster"]).output()[0], "deaf\n");
}

#[test]
fn binary_output_is_kept_as_text() {
    let home = step("    run: printf '\\377\\000\\376ok'\n");
    let output = home.tool(["flow.lobster"]).output();
    assert!(output[0].as_str().unwrap().ends_with("ok"), "{output}");
}

#[test]
fn signals_end_the_run_and_its_children_with_one_envelope() {
    for (signal, code) in [(rustix::process::Signal::TERM, 143), (rustix::process::Signal::INT, 130)] {
        let home = step("    run: echo started >> log; while :; do echo tick >> log; sleep 0.05; done\n");
        let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
        wait_until("the step began", || home.read("log").contains("tick"));
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let status = wait(&mut child, &"lobster");
        assert_eq!(status.code(), Some(code), "{said}");
        let envelope: serde_json::Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert_eq!(envelope["ok"], false);
        assert_stopped(&home);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_panic() {
    for words in [
        vec!["run", "--mode", "tool", "exec --shell 'seq 200000'"],
        vec!["exec --shell 'seq 200000'"],
        vec!["help"],
        vec!["runs"],
    ] {
        let home = Home::new();
        let mut child = home.lobster(&words).start();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = wait(&mut child, &words);
        assert!(!said.contains("panicked") && status.code().is_some(), "{words:?}: {status} {said}");
    }
}

#[test]
fn a_full_device_is_an_error_and_no_panic() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let home = Home::new();
    let mut child =
        home.lobster(["run", "--mode", "tool", "exec echo hi"]).start_with_stdout(Stdio::from(full));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = wait(&mut child, &"lobster");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked") && said.contains("No space left"), "{said}");
}

/// Whatever wrote to `log` does not any more.
fn assert_stopped(home: &Home) {
    let settle = Duration::from_millis(500);
    std::thread::sleep(settle);
    let before = home.read("log").len();
    std::thread::sleep(settle);
    assert_eq!(home.read("log").len(), before, "a process survived");
}

#[test]
fn a_jailed_step_does_not_see_the_command_line_of_lobster() {
    let home = step("    run: cat /proc/1/cmdline\n");
    home.write(
        "policy.toml",
        "version = 1\nprofile = \"default\"\nextends = [\"builtin:readonly-catalog@1\"]\n",
    );
    let answer = home.tool(["--policy", "policy.toml", "flow.lobster"]);
    assert_eq!(answer.output()[0], "lobster\0__sandbox\0");
}
