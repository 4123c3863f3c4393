//! The output of a step is stored as it arrives: whatever ends the step, and while it runs.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::home::{Answer, Home, assert_nowhere, newest, wait_until};
use crate::served::{Served, register, token};

/// Prints on both streams, says that it has, and stays.
const STAYS: &str = "echo out 1; echo err 1 >&2; printf 'out half'; touch ready; exec sleep 60";

/// The streams of the last run: step, stream, text, and whether the step has ended.
fn streams(home: &Home) -> Vec<(String, String, String, bool)> {
    let answer = home.lobster(["logs", "@", "--json"]).run();
    let all: Vec<Value> = serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let stream =
        |one: &Value| (text(&one["step"]), text(&one["stream"]), text(&one["text"]), one["ended"] == true);
    all.iter().map(stream).collect()
}

fn both(step: &str, ended: bool) -> Vec<(String, String, String, bool)> {
    [("stdout", "out 1\nout half"), ("stderr", "err 1\n")]
        .map(|(stream, text)| (step.to_owned(), stream.to_owned(), text.to_owned(), ended))
        .into()
}

/// Starts the workflow, and kills lobster with SIGKILL once `ready` is there.
fn killed(home: &Home, words: &[&str]) {
    let mut child = home.lobster(words).start_with_stdout(Stdio::null());
    wait_until("the step", || home.dir().join("ready").exists());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    home.assert_deserted();
    std::fs::remove_file(home.dir().join("ready")).unwrap();
}

fn output_files(home: &Home) -> usize {
    std::fs::read_dir(home.state().join("store/output")).map_or(0, Iterator::count)
}

fn flow(step: &str) -> String {
    format!("steps:\n  - id: a\n    run: \"{STAYS}\"\n{step}")
}

#[test]
fn what_had_arrived_is_there_after_lobster_was_killed_and_after_the_run_went_on() {
    for has_worker in [false, true] {
        let home = Home::cold().with_worker(has_worker);
        home.write("flow.lobster", flow(""));
        let mut child = home.lobster(["run", "flow.lobster"]).start_with_stdout(Stdio::null());
        wait_until("the step", || home.dir().join("ready").exists());
        // While it runs.
        wait_until("its output", || streams(&home) == both("a", false));
        let shown = home.lobster(["show", "@"]).run();
        assert!(shown.stdout.contains("out half"), "{shown:?}");
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        home.assert_deserted();
        assert_eq!(streams(&home), both("a", false), "worker: {has_worker}");
        // Two pipes were read: only the order within each is certain.
        let text = home.lobster(["logs", "@"]).run().stdout;
        let of = |stream: &str| -> Vec<String> {
            let parts = text.split("── a ").filter_map(|part| part.strip_prefix(stream)?.split_once('\n'));
            parts.map(|(_, lines)| lines.trim_end_matches('\n').to_owned()).collect()
        };
        assert_eq!(
            [of("stdout").join("\n"), of("stderr").join("\n")],
            ["out 1\nout half", "err 1"],
            "{text}"
        );
        assert_eq!(home.lobster(["logs", "@", "a", "--stdout"]).run().stdout, "out 1\nout half");
        // Going on moves it into the record, whatever is decided about the step.
        let run = newest(&home);
        home.lobster(["resume", &run, "--skip-interrupted"]).run();
        assert_eq!(streams(&home), both("a", true), "worker: {has_worker}");
        assert_eq!(output_files(&home), 0);
        assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
    }
}

#[test]
fn each_attempt_has_its_own_output_and_an_idempotent_one_that_was_killed_is_on_record() {
    let home = Home::cold();
    let step = "echo try $(ls | grep -c again); touch again$$; sleep 0.5; touch ready; exec sleep 60";
    home.write("flow.lobster", format!("steps: [{{id: a, idempotent: true, run: '{step}'}}]\n"));
    killed(&home, &["run", "flow.lobster"]);
    let run = newest(&home);
    killed(&home, &["resume", &run]);
    let texts: Vec<_> = streams(&home).into_iter().map(|(_, _, text, ended)| (text, ended)).collect();
    assert_eq!(texts, [("try 0\n".to_owned(), true), ("try 1\n".to_owned(), false)]);
    home.lobster(["resume", &run, "--cancel"]).run();
    // It belongs to the run, and goes with it.
    assert_eq!(output_files(&home), 1);
    home.lobster(["store", "gc"]).run();
    assert_eq!(output_files(&home), 1);
    home.lobster(["store", "gc", "--keep", "0", "--older-than", "0s"]).run();
    assert_eq!(output_files(&home), 0);

    home.write(
        "twice.lobster",
        "steps: [{id: a, retry: {max: 3, delay_ms: 1}, run: 'echo x >> n; wc -l < n; exit 1'}]\n",
    );
    home.tool(["twice.lobster"]);
    let texts: Vec<_> = streams(&home).into_iter().map(|(_, _, text, _)| text.trim().to_owned()).collect();
    assert_eq!(texts, ["1", "2", "3"]);
}

#[test]
fn a_step_that_is_ended_keeps_both_streams() {
    for has_worker in [false, true] {
        for (name, extra, how) in [
            ("by its time limit", "    timeout_ms: 1500\n", None),
            ("at the limit of its output", "    limits: { output: 14 }\n", None),
            ("by a signal to lobster", "", Some(Signal::TERM)),
            ("by a signal to the step", "", Some(Signal::KILL)),
        ] {
            let home = Home::cold().with_worker(has_worker);
            let script = if name.starts_with("at the limit") {
                "echo err 1 >&2; echo out 1; printf 'out half, and more'; sleep 60".to_owned()
            } else {
                format!("echo $$ > pid; {STAYS}")
            };
            home.write("flow.lobster", format!("steps:\n  - id: a\n    run: \"{script}\"\n{extra}"));
            let mut child = home.lobster(["run", "flow.lobster"]).start_with_stdout(Stdio::null());
            if let Some(signal) = how {
                wait_until("the step", || home.dir().join("ready").exists());
                wait_until("its output", || streams(&home) == both("a", false));
                let pid = match signal {
                    Signal::KILL => Pid::from_raw(home.read("pid").trim().parse().unwrap()).unwrap(),
                    _ => Pid::from_child(&child),
                };
                kill_process(pid, signal).unwrap();
            }
            crate::home::wait(&mut child, &name);
            assert_eq!(streams(&home), both("a", true), "{name}, worker: {has_worker}");
            assert_eq!(output_files(&home), 0, "{name}");
        }
    }
}

#[test]
fn a_run_is_followed_as_it_comes() {
    let home = Home::cold();
    let until = |file: &str| format!("while ! [ -e {file} ]; do sleep 0.02; done");
    home.write(
        "flow.lobster",
        format!(
            "steps:\n  - id: a\n    run: \"echo one; {}; echo two >&2; {}; printf three\"\n  - {{id: b, run: echo four}}\n",
            until("go1"),
            until("go2")
        ),
    );
    let mut run = home.lobster(["run", "flow.lobster"]).start_with_stdout(Stdio::null());
    wait_until("the run", || streams_or_none(&home) == 1);
    let mut follower = home.lobster(["logs", "-f", "@"]).start();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |expected: &str| assert_eq!(lines.next().as_deref(), Some(expected));
    next("── a stdout, so far");
    next("one");
    home.write("go1", "");
    next("── a stderr, so far");
    next("two");
    home.write("go2", "");
    next("── a stdout, so far");
    next("three");
    next("── b stdout");
    next("four");
    assert_eq!(lines.next(), None);
    assert!(crate::home::wait(&mut follower, &"logs -f").success());
    crate::home::wait(&mut run, &"run");
}

fn streams_or_none(home: &Home) -> usize {
    let answer: Answer = home.lobster(["logs", "@", "--json"]).run();
    serde_json::from_str::<Vec<Value>>(&answer.stdout).map_or(0, |all| all.len())
}

#[test]
fn secrets_are_not_in_what_is_stored_while_it_comes() {
    let secret = "correct-horse-battery";
    for has_worker in [false, true] {
        let home = Home::cold().with_worker(has_worker);
        // In pieces, across lines, and in another spelling; the last line is not complete.
        let script = "printf 'key %s' ${K%%-*}; sleep 0.1; printf '%s\\n' ${K#correct}; echo seen; \
                      echo $K | od -An -tx1; echo $K >&2; printf $K; touch ready; exec sleep 60";
        home.write(
            "flow.lobster",
            format!(
                "secrets: [KEY]\nsteps:\n  - id: a\n    secrets: {{ K: KEY }}\n    run: |\n      {script}\n"
            ),
        );
        home.write("secrets.toml", "[secrets.KEY]\nenv = \"MY_KEY\"\n");
        let call =
            |words: &[&str]| home.lobster(words).env("LOBSTER_SECRETS", "secrets.toml").env("MY_KEY", secret);
        let mut child = call(&["run", "flow.lobster"]).start_with_stdout(Stdio::null());
        wait_until("the step", || home.dir().join("ready").exists());
        wait_until("its output", || {
            streams(&home).iter().any(|(_, _, text, _)| text.starts_with("key «secret:KEY»\nseen\n"))
        });
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        home.assert_deserted();
        assert_nowhere(&home.state(), secret);
        let kept = streams(&home);
        assert!(
            kept.iter().any(|(_, stream, text, _)| stream == "stderr" && text == "«secret:KEY»\n"),
            "{kept:?}"
        );
        assert!(!kept.iter().any(|(_, _, text, _)| text.contains("63 6f 72 72 65 63 74 2d")), "{kept:?}");
    }
}

#[test]
fn a_long_stderr_is_there_to_its_last_byte() {
    for has_worker in [false, true] {
        let home = Home::cold().with_worker(has_worker);
        home.write("flow.lobster", "steps: [{id: a, run: 'seq 100000 >&2; echo done'}]\n");
        home.tool(["flow.lobster"]).output();
        let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
        let printed = home.lobster(["logs", "@", "--stderr"]).run().stdout;
        assert!(printed == expected, "{} bytes of {}", printed.len(), expected.len());
        // Nor does a bundle that leaves the results of the step out have any of it.
        let run = newest(&home);
        let answer = home.lobster(["bundle", "export", &run, "-o", "b", "--redact", "a"]).run();
        assert_eq!(answer.code(), 0, "{answer:?}");
        let bundle = std::fs::read(home.dir().join("b")).unwrap();
        assert!(!bundle.windows(13).any(|bytes| bytes == b"50000\n50001\n5"));
    }
}

#[test]
fn output_is_had_over_http_while_a_step_runs() {
    let home = Home::cold();
    home.write("flow.lobster", format!("name: flow\n{}", flow("")));
    register(&home, &["flow.lobster"]);
    let operator = token(&home, "operator", None);
    let served = Served::start(&home, &[]);
    let started = served.post(&operator, "/api/v1/workflows/flow/runs", &serde_json::json!({})).good();
    let run = started["run"].as_str().unwrap().to_owned();
    wait_until("the step", || home.dir().join("ready").exists());
    wait_until("its output", || {
        let told = served.get(&operator, &format!("/api/v1/runs/{run}/output?step=a")).good();
        let texts: Vec<_> =
            told["streams"].as_array().unwrap().iter().map(|one| one["text"].clone()).collect();
        texts == ["out 1\nout half", "err 1\n"]
    });
    let page = served.get(&operator, &format!("/runs/{run}/step?path=a"));
    assert!(page.good_text().contains("out half"));
    served.post(&operator, &format!("/api/v1/runs/{run}/cancel"), &serde_json::json!({}));
    served.ended(&operator, &run);
}
