//! What stops a run without deciding about it: a signal, a lost client. The run is interrupted and continues without a
//! question if nothing was cut off; only a person or a rule of the file cancels.

use std::io::Read;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::home::{Home, wait, wait_until};
use crate::served::{Served, register, token};

const BETWEEN: &str = "
steps:
  - { id: before, run: echo before >> log }
  - { id: pause, wait: 5s }
  - { id: after, run: echo after >> log }
";

const SIGNALS: [(Signal, &str, i32); 4] = [
    (Signal::TERM, "SIGTERM", 143),
    (Signal::INT, "SIGINT", 130),
    (Signal::HUP, "SIGHUP", 129),
    (Signal::QUIT, "SIGQUIT", 131),
];

fn kill(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn listed(home: &Home, words: &[&str]) -> Value {
    let answer = home.lobster(["runs", "--json"].iter().chain(words)).run();
    serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"))
}

#[test]
fn a_signal_between_two_effects_interrupts_and_the_run_continues() {
    for (signal, name, code) in SIGNALS {
        let home = Home::new();
        home.write("flow.lobster", BETWEEN);
        let words = ["run", "--mode", "tool", "--events", "jsonl:events", "flow.lobster"];
        let mut child = home.lobster(words).start();
        wait_until("it waits", || home.read("events").contains("pause!wait"));
        kill(&child, signal);
        let mut said = String::new();
        child.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(wait(&mut child, &name).code(), Some(code), "{said}");
        let envelope: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(envelope["error"]["message"], format!("Received {name}"));

        let runs = listed(&home, &["--interrupted"]);
        assert_eq!((&runs[0]["status"], &runs[0]["interruptedBy"]), (&json!("interrupted"), &json!(name)));
        let (shown, run) = (home.lobster(["runs"]).run().stdout, runs[0]["id"].as_str().unwrap());
        let line = format!("`lobster resume {}` continues flow, stopped by {name}", &run[run.len() - 8..]);
        assert!(shown.contains(&line), "{line}: {shown}");
        let show = home.lobster(["show", run]).run().stdout;
        assert!(show.contains("interrupted") && show.contains(&format!("Received {name}")), "{show}");
        assert_eq!(home.lobster(["replay", run]).run().code(), 0);
        if name == "SIGTERM" {
            let collected = home.lobster(["store", "gc", "--keep", "0"]).run();
            assert!(collected.stdout.starts_with("removed 0 of "), "{collected:?}");
            assert_eq!(home.lobster(["resume", run]).run().envelope()["status"], "ok");
            assert_eq!(home.read("log"), "before\nafter\n");
        } else {
            // Only a person ends it for good.
            assert_eq!(home.lobster(["resume", run, "--cancel"]).run().envelope()["status"], "cancelled");
            assert_eq!(listed(&home, &[])[0]["status"], "cancelled");
            home.lobster(["resume", run]).run().error();
        }
    }
}

#[test]
fn a_signal_ends_a_run_that_waits_for_a_locked_store_with_one_envelope() {
    for (has_begun, signals) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let home = Home::new();
        assert_eq!(home.tool(["exec --shell true"]).code(), 0);
        home.write(
            "flow.lobster",
            "steps:\n  - { id: a, run: 'touch began; until [ -e go ]; do sleep 0.05; done' }\n",
        );
        let lock = rusqlite::Connection::open(home.state().join("store/lobster.db")).unwrap();
        let words = ["run", "--mode", "tool", "flow.lobster"];
        let mut child;
        if has_begun {
            child = home.lobster(words).start();
            wait_until("the step began", || home.dir().join("began").exists());
            lock.execute_batch("BEGIN IMMEDIATE").unwrap();
            home.write("go", "");
        } else {
            lock.execute_batch("BEGIN IMMEDIATE").unwrap();
            child = home.lobster(words).start();
        }
        // Then its first thread is no longer the only one.
        let threads = format!("/proc/{}/task", child.id());
        wait_until("it listens to signals", || {
            let names = std::fs::read_dir(&threads).unwrap().flatten();
            let mut names =
                names.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
            names.any(|name| name.trim() == "signals")
        });
        let begun = std::time::Instant::now();
        for _ in 0..signals {
            kill(&child, Signal::TERM);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let mut said = String::new();
        child.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(wait(&mut child, &signals).code(), Some(143), "{said}");
        assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
        let envelope: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert_eq!(envelope["ok"], false);
        drop(lock);
        home.assert_deserted();
    }
}

#[test]
fn the_service_resumes_a_run_that_a_shutdown_stopped_between_two_effects() {
    let home = Home::new();
    let repeat = "repeat: { until: $look.json == 12, every: 400ms, max: 99 }, steps: [{ id: look, js: input.length, stdin: $index.json }]";
    home.write("flow.lobster", BETWEEN.replace("wait: 5s", &repeat.replace("input.length", "input")));
    register(&home, &["flow.lobster"]);
    // With the server, as at a shutdown; then the worker alone, under a server that stays.
    for with_server in [true, false] {
        let mut served = Served::start(&home, &[]);
        let operator = token(&home, "operator", None);
        let begun = home.read("log").matches("before").count();
        let started = served.post(&operator, "/api/v1/workflows/flow/runs", &json!({})).good();
        let run = started["run"].as_str().unwrap().to_owned();
        let mut worker = None;
        wait_until("its worker is between two effects", || {
            worker = worker_of(&run);
            worker.is_some() && home.lobster(["show", &run]).run().stdout.contains("look")
        });
        let _ = kill_process(worker.unwrap(), Signal::TERM);
        if with_server {
            served.signal(Signal::TERM);
            wait(&mut served.child, &"lobster serve");
            served = Served::start(&home, &[]);
        }
        assert_eq!(served.ended(&operator, &run)["status"], "ok");
        assert_eq!(home.read("log").matches("after").count(), begun + 1);
        assert_eq!(home.read("log").matches("before").count(), begun + 1, "an effect was repeated");
    }
}

/// The process that executes a run of the service.
fn worker_of(run: &str) -> Option<Pid> {
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(|process| {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains(run) && words.contains("begin")
    })?;
    Pid::from_raw(found.file_name().to_str()?.parse().ok()?)
}

#[test]
fn a_signal_that_is_ignored_at_the_start_stays_ignored() {
    let lobster = crate::binary::lobster().display().to_string();
    for (signal, name, _) in SIGNALS {
        let home = Home::new();
        home.write("flow.lobster", "steps:\n  - { id: one, run: 'touch began; until [ -e go ]; do sleep 0.05; done; echo done >> log' }\n");
        let ignoring = |words: &str| {
            home.program("sh", ["-c", &format!("trap '' {}; exec {lobster} {words}", &name[3..])])
        };
        let mut child = ignoring("run --mode tool flow.lobster").start();
        wait_until("the step began", || home.dir().join("began").exists());
        kill(&child, signal);
        home.write("go", "");
        assert!(wait(&mut child, &name).success(), "{name}");
        assert_eq!(home.read("log"), "done\n", "{name}");

        let served = Served::started(ignoring("serve --listen 127.0.0.1:0"));
        served.signal(signal);
        assert_eq!(served.send("GET", "/healthz", &[("Host", "localhost")], b"").status, 200, "{name}");
    }
}
