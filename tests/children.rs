//! Child processes that misbehave: too much output, deaf to signals, forking
//! away, holding their stdout open; and readers of ours that go away.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::home::{Home, wait, wait_until};
use crate::own_processes::{Kind, signal, tree_of};

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
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let home = step("    run: echo started >> log; while :; do echo tick >> log; sleep 0.05; done\n");
        let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
        wait_until("the step began", || home.read("log").contains("tick"));
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let status = wait(&mut child, &"lobster");
        assert_eq!(status.code(), Some(code), "{said}");
        let envelope: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said:?}"));
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

const AWAY: &str = "    run: 'setsid sleep 600.5 & sleep 600.7; echo late >> log'\n";

#[test]
fn nothing_survives_when_all_processes_of_lobster_are_killed_at_once() {
    for has_worker in [false, true] {
        let home = Home::new().with_worker(has_worker);
        home.write("flow.lobster", format!("steps:\n  - id: child\n{AWAY}"));
        let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
        wait_until("the step and what it started run", || {
            tree_of(&child).iter().any(|(_, kind)| *kind == Kind::BelowStep)
        });
        assert!(signal(&child, Signal::KILL, Kind::is_lobster) >= 3);
        wait(&mut child, &"lobster");
        home.assert_deserted();
        let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
        assert_eq!(runs[0]["status"], "interrupted");
    }
}

#[test]
fn an_effect_is_not_repeated_beside_itself() {
    let home = step("    run: 'echo begun >> log; until [ -e go ]; do sleep 0.05; done'\n");
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || !home.read("log").is_empty());
    child.kill().unwrap();
    wait(&mut child, &"lobster");
    home.assert_deserted();
    // As if it had survived.
    let run = crate::home::newest(&home);
    let mut left = home.program("sleep", ["600.3"]).env("LOBSTER_RUN_ID", &run).start();
    let refused = home.lobster(["resume", &run, "--retry-interrupted"]).run().error();
    let told = format!("still running: {} (sleep 600.3)", left.id());
    assert!(refused.contains(&told) && refused.contains("--even-if-running"), "{refused}");
    assert_eq!(home.read("log"), "begun\n");
    home.write("go", "");
    let words = ["resume", &run, "--retry-interrupted", "--even-if-running"];
    assert_eq!(home.lobster(words).run().envelope()["status"], "ok");
    left.kill().unwrap();
    wait(&mut left, &"sleep");
    assert_eq!(home.read("log"), "begun\nbegun\n");
}

#[test]
fn a_stopped_supervisor_or_helper_holds_up_neither_a_time_limit_nor_the_end() {
    for (kinds, text) in [
        (&[Kind::Supervisor][..], "    run: touch began; sleep 600.9\n    timeout_ms: 2000\n"),
        (&[Kind::Helper, Kind::Supervisor], "    run: touch began; sleep 3\n"),
        (&[Kind::Helper], "    run: touch began; sleep 1\n"),
        (&[Kind::Guard], "    run: touch began; sleep 1\n"),
    ] {
        let home = step(text);
        let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
        wait_until("the step began", || home.dir().join("began").exists());
        assert!(signal(&child, Signal::STOP, |kind| kinds.contains(&kind)) >= kinds.len(), "{kinds:?}");
        let begun = Instant::now();
        wait(&mut child, &text);
        assert!(begun.elapsed() < Duration::from_secs(30), "{text}: {:?}", begun.elapsed());
        home.assert_deserted();
    }
}

#[test]
fn nothing_survives_a_killed_lobster_whose_other_processes_are_stopped() {
    let kinds = [Kind::Guard, Kind::Helper, Kind::Supervisor];
    // Before the guard has become a shell, and after it.
    for (stopped, later) in (1..8_usize).flat_map(|stopped| [(stopped, false), (stopped, true)]) {
        let home = step("    run: 'touch began; sleep 600.8'\n");
        let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
        wait_until("the step began", || home.dir().join("began").exists());
        let is_shell = || {
            let guard = tree_of(&child).into_iter().find(|(_, kind)| *kind == Kind::Guard);
            let words = guard.map(|(pid, _)| std::fs::read_to_string(format!("/proc/{pid}/cmdline")));
            words.is_some_and(|words| words.is_ok_and(|words| words.contains("trap")))
        };
        if later {
            wait_until("the guard is a shell", is_shell);
        }
        signal(&child, Signal::STOP, |kind| {
            kinds.iter().position(|one| *one == kind).is_some_and(|at| stopped & (1 << at) != 0)
        });
        child.kill().unwrap();
        wait(&mut child, &stopped);
        home.assert_deserted();
    }
}

#[test]
fn a_process_is_asked_to_end_before_it_is_killed() {
    let trap = "run: 'trap \"echo asked >> log; exit 0\" TERM; touch began; while :; do sleep 0.05; done'";
    let deaf = "run: 'trap \"\" TERM; touch began; while :; do sleep 0.05; done'";
    for (fields, log, shortest, longest) in [
        (format!("{trap}, timeout_ms: 1000"), "asked\n", 0, 8),
        (format!("{trap}, timeout_ms: 1000, stop_grace: 0"), "", 0, 8),
        (format!("{deaf}, timeout_ms: 500, stop_grace: 2s"), "", 2, 9),
        (format!("{deaf}, timeout_ms: 500, stop_grace: 2s, changes: staged"), "", 2, 9),
        (format!("{deaf}, timeout_ms: 500"), "", 10, 25),
    ] {
        // Staged steps have lobster's own executor.
        for has_worker in [false, !fields.contains("staged")] {
            let home = Home::new().with_worker(has_worker);
            home.write("flow.lobster", format!("steps:\n  - {{ id: child, {fields} }}\n"));
            let begun = Instant::now();
            let answer = home.tool(["flow.lobster"]);
            assert!(answer.error().contains("timed out after"), "{fields}: {answer:?}");
            let took = begun.elapsed().as_secs();
            assert!((shortest..longest).contains(&took), "{fields}: {took} s");
            assert_eq!(home.read("log"), log, "{fields}");
            home.assert_deserted();
        }
    }
    // Cancelling is the same.
    let home = Home::new();
    home.write("flow.lobster", format!("steps:\n  - {{ id: child, {trap} }}\n"));
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the step began", || home.dir().join("began").exists());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(wait(&mut child, &"lobster").code(), Some(143));
    assert_eq!(home.read("log"), "asked\n");
}
