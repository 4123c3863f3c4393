//! `lobster schedule`, with and without a server, and servers that start runs when they are due.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::home::{Home, wait_until};
use crate::models::openai;
use crate::served::{Served, register};
use crate::server::{Reply, Server};
use crate::setting::number;

const HOURLY: &str = "args: {day: {type: string, default: today}}\non: {schedule: {cron: '0 * * * *', timezone: \
                      Europe/Berlin}}\nsteps:\n  - {id: say, run: 'echo \"$LOBSTER_ARG_DAY\" >> said'}\n";

/// Due each second; each run leaves a line.
const EACH_SECOND: &str = "on: {schedule: {cron: '* * * * * *', overlap: allow, missed: {policy: all, max: 100}}}\nsteps:\n  - {id: say, run: 'echo \"$LOBSTER_RUN_ID\" >> said'}\n";

fn ledger(home: &Home, schedule: &str) -> Vec<Value> {
    let told = home.lobster(["schedule", "why", schedule, "--json", "--count", "10000"]).run();
    let mut told: Value =
        serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    told["ticks"].as_array_mut().map(std::mem::take).unwrap_or_default()
}

#[test]
fn a_file_is_registered_on_a_persons_word_and_again_when_it_changes() {
    let home = Home::new();
    home.write("report.lobster", HOURLY);
    let asked = home.lobster(["schedule", "register", "report.lobster"]).run();
    assert!(asked.code() == 1 && asked.stderr.contains("--trust"), "{asked:?}");
    assert!(home.lobster(["schedule", "list"]).run().stdout.contains("nothing is registered"));
    register(&home, &["report.lobster"]);
    let list = home.lobster(["schedule", "list"]).run();
    assert!(list.stdout.contains("report/schedule") && list.stdout.contains("Europe/Berlin"), "{list:?}");
    let same = home.lobster(["schedule", "register", "report.lobster"]).run();
    assert!(same.code() == 0 && same.stdout.contains("already registered"), "{same:?}");
    home.write("report.lobster", HOURLY.replace("said", "told"));
    let changed = home.lobster(["schedule", "register", "report.lobster"]).run();
    assert!(changed.code() == 1 && changed.stdout.contains("has changed"), "{changed:?}");
    let inside =
        home.lobster(["schedule", "register", "--trust", "report.lobster"]).env("LOBSTER_RUN_ID", "x").run();
    assert!(inside.code() == 1 && inside.stderr.contains("a run cannot"), "{inside:?}");
    let gone = home.lobster(["schedule", "unregister", "report"]).run();
    assert_eq!(gone.code(), 0, "{gone:?}");
    let unknown = home.lobster(["schedule", "why", "report"]).run();
    assert!(unknown.code() == 2 && unknown.stderr.contains("is not registered"), "{unknown:?}");
}

#[test]
fn ticks_are_told_before_they_come_with_the_days_on_which_the_clock_is_changed() {
    let home = Home::new();
    home.write(
        "night.lobster",
        "on: {schedule: {cron: '30 2 * * *', timezone: America/New_York}}\nsteps: [{id: a, run: 'true'}]\n",
    );
    let next = home
        .lobster(["schedule", "next", "night.lobster", "-n", "3", "--from", "2026-03-06T12:00:00Z"])
        .run();
    let lines: Vec<&str> = next.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{next:?}");
    assert!(lines[0].starts_with("Sat 2026-03-07 02:30:00") && lines[0].contains("within a day"), "{next:?}");
    assert!(lines[1].starts_with("Sun 2026-03-08 03:00:00") && lines[1].contains("skips"), "{next:?}");
    assert!(lines[2].starts_with("Mon 2026-03-09 02:30:00"), "{next:?}");
    let json = home
        .lobster(["schedule", "next", "night.lobster", "-n", "1", "--json", "--from", "2026-11-01"])
        .run();
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["due"], "2026-11-01T07:30:00.000Z", "{json}");
}

#[test]
fn without_a_server_a_schedule_is_paused_made_up_for_and_asked_about() {
    let home = Home::new();
    home.write("report.lobster", HOURLY);
    register(&home, &["report.lobster"]);
    let lobster = |words: &[&str]| home.lobster(words).run();
    let why = lobster(&["schedule", "why", "report"]);
    assert!(why.stdout.contains("no server is running") && why.stdout.contains("next "), "{why:?}");
    let paused = lobster(&["schedule", "pause", "report"]);
    assert!(paused.code() == 0 && paused.stdout.contains("paused"), "{paused:?}");
    let why = home.lobster(["schedule", "why", "report"]).run();
    assert!(why.stdout.contains("paused since"), "{why:?}");
    assert!(lobster(&["schedule", "resume", "report/schedule"]).stdout.contains("is resumed"));
    let dry = lobster(&["schedule", "backfill", "report", "--from", "3h", "--dry-run"]);
    assert_eq!(dry.stdout.lines().count(), 3, "{dry:?}");
    for words in [["--from", "1h", "--to", "3h"], ["--from", "1h", "--to", "1h"]] {
        let reversed = lobster(&[&["schedule", "backfill", "report"], words.as_slice()].concat());
        assert!(reversed.code() == 2 && reversed.stderr.contains("no time between"), "{reversed:?}");
    }
    let none = ["--from", "2026-05-01T10:10:00Z", "--to", "2026-05-01T10:50:00Z"];
    let none = lobster(&[&["schedule", "backfill", "report"], none.as_slice()].concat());
    assert!(none.code() == 0 && none.stdout.starts_with("no tick between 2026-05-01T10:10"), "{none:?}");
    let made = lobster(&["schedule", "backfill", "report", "--from", "3h"]);
    assert!(made.stderr.contains("no server is running"), "{made:?}");
    let again = lobster(&["schedule", "backfill", "report", "--from", "3h"]);
    assert_eq!(again.stdout.matches("had a run").count(), 3, "{again:?}");
    let now = lobster(&["schedule", "run-now", "report", "--arg", "day=monday"]);
    assert_eq!(now.code(), 0, "{now:?}");
    let mistyped = lobster(&["schedule", "run-now", "report", "--arg", "dya=monday"]);
    assert!(mistyped.code() == 2 && mistyped.stderr.contains("no argument \"dya\""), "{mistyped:?}");
    assert!(lobster(&["runs"]).stdout.contains("no runs"));

    let mut served = Served::start(&home, &[]);
    wait_until("four runs", || home.read("said").lines().count() == 4);
    served.signal(Signal::TERM);
    assert_eq!(crate::home::wait(&mut served.child, &"serve").code(), Some(143));
    let mut said: Vec<String> = home.read("said").lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, ["monday", "today", "today", "today"]);
    assert_eq!(ledger(&home, "report").iter().filter(|tick| tick["state"] == "backfilled").count(), 3);
    home.assert_deserted();
}

/// How often each tick of the ledger has a run, and each run has left a line.
fn assert_each_ran_once(home: &Home, schedule: &str) -> usize {
    let ledger = ledger(home, schedule);
    let mut ticks = HashMap::new();
    for tick in &ledger {
        *ticks.entry(tick["tick"].as_str().unwrap()).or_insert(0) += 1;
    }
    assert!(ticks.values().all(|count| *count == 1), "{ticks:?}");
    let runs: Vec<&str> = ledger.iter().filter_map(|tick| tick["run"].as_str()).collect();
    let mut lines = HashMap::new();
    for line in home.read("said").lines() {
        *lines.entry(line.to_owned()).or_insert(0) += 1;
    }
    let twice: Vec<_> = lines.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "ran twice: {twice:?}");
    let missing: Vec<_> = runs.iter().filter(|run| !lines.contains_key(**run)).collect();
    assert!(missing.is_empty(), "never ran: {missing:?}");
    assert_eq!(lines.len(), runs.len());
    runs.len()
}

/// Waits until nothing is queued or at work.
fn wait_for_quiet(home: &Home, schedule: &str) {
    home.lobster(["schedule", "pause", schedule]).run();
    wait_until("the runs end", || {
        let runs = ledger(home, schedule).iter().filter(|tick| !tick["run"].is_null()).count();
        home.read("said").lines().count() >= runs
    });
}

/// `LOBSTER_SERVE_TICKS` ticks of two servers, of which one is stopped and killed again and again.
#[test]
fn two_servers_of_which_one_is_frozen_or_killed_run_each_tick_once() {
    let wanted = number("LOBSTER_SERVE_TICKS", 6);
    let home = Home::new();
    home.write("second.lobster", EACH_SECOND);
    register(&home, &["second.lobster"]);
    let _steady = Served::start(&home, &["--max-runs", "8"]);
    let mut other = Served::start(&home, &["--max-runs", "8"]);
    let mut round = 0;
    while home.read("said").lines().count() < wanted {
        round += 1;
        match round % 2 {
            0 => {
                other.kill();
                other = Served::start(&home, &["--max-runs", "8"]);
            }
            _ => {
                other.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(1500));
                other.signal(Signal::CONT);
            }
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    wait_for_quiet(&home, "second");
    let ran = assert_each_ran_once(&home, "second");
    println!("{ran} ticks, {ran} runs, {round} rounds");
    assert!(ran >= wanted);
}

#[test]
fn a_run_whose_server_is_killed_goes_on_and_is_taken_over() {
    let home = Home::new();
    home.write(
        "long.lobster",
        "on: {schedule: {cron: '0 0 1 1 *'}}\nsteps:\n  - {id: one, run: 'echo one >> said; while ! test -e go; do sleep 0.05; done'}\n  - {id: two, run: 'echo two >> said'}\n",
    );
    register(&home, &["long.lobster"]);
    let mut served = Served::start(&home, &[]);
    home.lobster(["schedule", "run-now", "long"]).run();
    wait_until("it begins", || home.read("said") == "one\n");
    served.kill();
    let second = Served::start(&home, &[]);
    home.write("go", "");
    wait_until("it ends", || home.read("said") == "one\ntwo\n");
    drop(second);
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    assert_eq!((runs.as_array().unwrap().len(), runs[0]["status"].as_str()), (1, Some("ok")), "{runs}");
    home.assert_deserted();
}

#[test]
fn a_changed_file_is_refused_and_its_schedule_says_so() {
    let home = Home::new();
    home.write("report.lobster", HOURLY);
    register(&home, &["report.lobster"]);
    home.write("report.lobster", HOURLY.replace("said", "stolen"));
    let served = Served::start(&home, &["--workflows", "."]);
    wait_until("it says that the file has changed", || {
        served.has_said("has changed since it was registered")
    });
    let now = home.lobster(["schedule", "run-now", "report"]).run();
    assert!(now.code() == 1 && now.stderr.contains("is not what was registered"), "{now:?}");
    let made = home.lobster(["schedule", "backfill", "report", "--from", "1h"]).run();
    assert_eq!(made.code(), 0, "{made:?}");
    wait_until("why it did not begin", || {
        home.lobster(["schedule", "why", "report"]).run().stdout.contains("is not what was registered")
    });
    assert_eq!(home.read("stolen"), "");
}

/// Elsewhere each tick of a script wakes an agent, which reads what the script said, for money.
#[test]
fn a_script_that_is_due_calls_no_model_and_its_tick_says_so() {
    let server = Server::start(|_, _| Reply::chat("hello"));
    let home = Home::new();
    let each_second = "on: {schedule: {cron: '* * * * * *'}}\nsteps:\n  - {id: a, ";
    home.write("script.lobster", format!("{each_second}run: 'echo a >> said'}}\n"));
    home.write("asks.lobster", format!("{each_second}pipeline: \"llm.invoke --prompt hi --model m\"}}\n"));
    register(&home, &["script.lobster", "asks.lobster"]);
    home.lobster(["schedule", "pause", "asks"]).run();
    let models = |call| openai(call, &server);
    let served = Served::started(models(home.lobster(["serve", "--listen", "127.0.0.1:0"])));
    let why = |name: &str| openai(home.lobster(["schedule", "why", name]), &server).run().stdout;
    wait_until("some ticks of the script", || why("script").matches("no model was called").count() >= 2);
    assert_eq!(server.requests().len(), 0, "{:?}", server.requests().len());
    home.lobster(["schedule", "resume", "asks"]).run();
    wait_until("a tick of what asks a model", || why("asks").contains("1 model call: "));
    assert!(!server.requests().is_empty());
    drop(served);
    assert!(!why("script").contains("model call:"), "{}", why("script"));
}
