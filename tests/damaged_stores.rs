//! Stores in which something was changed behind lobster's back.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::Value;

use crate::home::Home;

const WORKFLOW: &str = "
name: marks
steps:
  - id: a
    run: echo a >> trace
  - id: b
    run: echo b >> trace; exit 1
";

const ASKING: &str = "
name: asks
steps:
  - id: a
    run: echo a >> trace
  - id: ask
    approval: Go on?
  - id: b
    run: echo b >> trace
";

/// A home where a workflow ran, of whose journal two records are gone.
fn damaged(workflow: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", workflow).tool(["flow.lobster"]);
    change(&home, "DELETE FROM journal WHERE run = 1 AND seq IN (2, 3)");
    home
}

/// Changes the store's database as lobster never would.
fn change(home: &Home, sql: &str) {
    let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

fn run_of(home: &Home) -> String {
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

fn records(home: &Home) -> i64 {
    let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
    database.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap()
}

const MISSING: &str = "is damaged at record 2: it is missing";

#[test]
fn nothing_is_built_on_a_damaged_journal() {
    let home = damaged(WORKFLOW);
    let (run, before) = (run_of(&home), records(&home));
    for words in [&["resume", &run][..], &["resume", &run, "--retry-interrupted"]] {
        let error = home.lobster(words).run().error();
        assert!(error.contains(MISSING) && error.contains("lobster show"), "{error}");
    }
    for words in [&["fork", &run][..], &["fork", &run, "--from", "b"], &["fork", &run, "--dry-run"]] {
        let answer = home.lobster(words).run();
        assert!(answer.code() == 1 && format!("{answer:?}").contains(MISSING), "{answer:?}");
    }
    assert_eq!(home.read("trace"), "a\nb\n");
    assert_eq!(records(&home), before);
}

#[test]
fn an_answer_is_not_given_to_a_damaged_run_but_a_no_is() {
    let home = damaged(ASKING);
    let before = records(&home);
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    let id = gates[0]["id"].as_str().unwrap();
    for words in [&["approvals", "approve", id][..], &["resume", "--id", id, "--approve", "yes"]] {
        let error = home.lobster(words).run().error();
        assert!(error.contains(MISSING), "{error}");
    }
    assert_eq!((home.read("trace").as_str(), records(&home)), ("a\n", before));
    let shown = home.lobster(["approvals", "show", id]).run();
    // The screen breaks lines where it must.
    let words: Vec<&str> = shown.stdout.split_whitespace().collect();
    assert!(shown.code() == 0 && words.join(" ").contains(MISSING), "{shown:?}");
    assert_eq!(home.lobster(["approvals", "reject", id]).run().envelope()["status"], "cancelled");
    assert_eq!(home.read("trace"), "a\n");
}

#[test]
fn what_is_left_of_a_damaged_journal_is_shown_with_a_warning() {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW).tool(["flow.lobster"]);
    let sound = run_of(&home);
    home.tool(["flow.lobster"]);
    let run = run_of(&home);
    change(&home, "UPDATE journal SET record = 'x' || record WHERE run = 2 AND seq = 2");
    for words in [
        &["show", &run][..],
        &["show", &run, "--json"],
        &["logs", &run],
        &["logs", &run, "--json"],
        &["why", &run, "b"],
        &["why", &run, "b", "--json"],
        &["diff", &sound, &run, "--json"],
    ] {
        let answer = home.lobster(words).run();
        assert!(
            answer.code() < 2 && answer.stderr.contains("is damaged at record 2"),
            "{words:?}: {answer:?}"
        );
        if words.contains(&"--json") {
            let shown: Value = serde_json::from_str(&answer.stdout).unwrap();
            let broken = shown.as_array().map_or(&shown["broken"][0], |all| &all.last().unwrap()["broken"]);
            assert_eq!((&broken["run"], &broken["seq"]), (&Value::from(run.as_str()), &2.into()), "{shown}");
        }
        let answer = home.lobster(words).run();
        assert!(!answer.stdout.is_empty() || words.contains(&"logs"), "{words:?}: {answer:?}");
    }
    let answer = home.lobster(["show", &sound]).run();
    assert!(answer.code() == 0 && answer.stderr.is_empty(), "{answer:?}");
}

/// A step whose result is a file of its own, and steps that read it in every form.
const LARGE: &str = "
name: large
steps:
  - id: gen
    run: |
      awk 'BEGIN { printf \"[\"; for (n = 0; n < 20000; n++) printf \"%s{\\\"n\\\":%d}\", n ? \",\" : \"\", n; print \"]\" }'
  - id: READER
";

#[test]
fn a_result_that_cannot_be_read_is_no_difference_and_nobody_goes_on_without_it() {
    let readers = [
        "count\n    js: input.length\n    stdin: $gen.json",
        "count\n    run: wc -c\n    stdin: $gen.stdout",
        "count\n    run: echo ok\n    env: { N: $gen.json.7.n }",
        "count\n    run: echo ok\n    when: $gen.json.7.n == 7",
        "count\n    pipeline: head --n 1\n    stdin: $gen.json",
        "count\n    for_each: $gen.json\n    steps: [{ id: one, js: '1' }]",
    ];
    for reader in readers {
        let home = Home::new();
        let ask = "\n    on_error: continue\n  - id: ask\n    approval: Go?\n  - id: last\n    run: echo last >> log\n";
        home.write("flow.lobster", LARGE.replace("READER", reader));
        home.tool(["flow.lobster"]).output();
        home.write(
            "asks.lobster",
            LARGE.replace("READER", &format!("ask0\n    approval: Begin?\n  - id: {reader}{ask}")),
        );
        let token = home.tool(["asks.lobster"]).token();
        let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
        let run = runs[1]["id"].as_str().unwrap();
        for entry in std::fs::read_dir(home.state().join("store/blobs")).unwrap() {
            for file in std::fs::read_dir(entry.unwrap().path()).unwrap() {
                std::fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
        let replay = home.lobster(["replay", run]).run();
        assert_eq!(replay.code(), 1, "{reader}: {replay:?}");
        assert!(replay.stderr.contains("cannot be replayed here"), "{reader}: {replay:?}");
        assert!(replay.stderr.contains("is lost: its file"), "{reader}: {replay:?}");
        assert!(!replay.stdout.contains("the same"), "{reader}: {replay:?}");
        let answer = home.lobster(["resume", "--token", &token, "--approve", "yes"]).run();
        assert!(answer.error().contains("is lost: its file"), "{reader}: {answer:?}");
        assert_eq!(home.read("log"), "", "{reader}");
    }
}

/// All regular files below a directory, each by its path.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { files_below(&path) } else { vec![path] };
    entries.flat_map(of).collect()
}

/// A pipe that nobody writes to, or a link that leads out of the store, in the place of each file in turn.
#[test]
fn nothing_waits_for_a_pipe_or_follows_a_link_in_the_place_of_a_file_of_the_store() {
    let home = Home::new();
    let reader =
        "count\n    js: input.length\n    stdin: $gen.json\n  - id: note\n    pipeline: 'state.set note'";
    home.write("flow.lobster", LARGE.replace("READER", reader)).tool(["flow.lobster"]).output();
    let (run, state) = (run_of(&home), home.state());
    let calls = [
        "runs",
        "store verify",
        "store gc",
        "store backup",
        "bundle export",
        "replay",
        "run --mode tool flow.lobster",
        "run --mode tool state.get\u{a0}note",
    ];
    let call = |text: &str, at: &str| {
        let mut words: Vec<String> = text.split(' ').map(|word| word.replace('\u{a0}', " ")).collect();
        match text {
            "store backup" => words.push(format!("backup-{at}")),
            "bundle export" => words.extend([run.clone(), "-o".into(), format!("bundle-{at}")]),
            "replay" => words.push(run.clone()),
            _ => {}
        }
        home.lobster(words).run()
    };
    for (number, path) in files_below(&state).into_iter().enumerate() {
        let (copy, is_blob) = (home.dir().join("aside"), path.to_string_lossy().contains("/blobs/"));
        std::fs::copy(&path, &copy).unwrap();
        for is_link in [false, true] {
            std::fs::remove_file(&path).unwrap();
            if is_link {
                std::os::unix::fs::symlink(&copy, &path).unwrap();
            } else {
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
                rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
            }
            for text in if is_link { &calls[..6] } else { &calls[..] } {
                // A database that is a link is one that somebody keeps elsewhere.
                if is_link && !is_blob {
                    continue;
                }
                let answer = call(text, &format!("{number}-{is_link}"));
                let place = format!("{text}, {}: {answer:?}", path.display());
                assert!(answer.took < std::time::Duration::from_secs(20), "{place}");
                assert!(!answer.stderr.contains("panicked"), "{place}");
                if is_blob && matches!(*text, "store verify" | "bundle export") {
                    assert_eq!(answer.code(), 1, "{place}");
                    assert!(
                        answer.stdout.contains("is damaged (not a regular file") || *text != "store verify",
                        "{place}"
                    );
                }
                // What was recorded anew is a file again.
                if is_blob && std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
                    break;
                }
            }
            let _ = std::fs::remove_file(&path);
            std::fs::copy(&copy, &path).unwrap();
        }
    }
    let verified = home.lobster(["store", "verify"]).run();
    assert!(!verified.stderr.contains("panicked"), "{verified:?}");
}
