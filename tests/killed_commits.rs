//! A run that is killed in the middle of a commit: whichever command comes next, the files are all old or all new, and
//! the record of the run says which.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::home::Home;
use crate::setting::number;
use crate::staged::tree;

const EDITS: &str = "echo three >> a && rm gone && echo n > new && echo m > more";

fn files(home: &Home) -> BTreeMap<String, String> {
    tree(&home.dir().join("tree"))
}

/// What comes first after the kill.
#[derive(Clone, Copy, Debug)]
enum First {
    Cancel,
    Undo,
    Collect,
    OtherRun,
    /// A component without a run, which writes into the same directory.
    StepRun,
}

/// Makes a file in the directory that it is given.
const WRITES: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "beside")
  (func (export "_start")
    (if (call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 6) (i32.const 1)
          (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 200))
      (then (call $exit (i32.const 1))))))"#;

fn home(several: bool) -> Home {
    let home = Home::new();
    let step = |id: &str, script: &str| {
        format!("  - id: {id}\n    changes: review\n    cwd: tree\n    run: {script}\n")
    };
    let more = if several { step("again", "echo four >> a && echo o > other") } else { String::new() };
    home.write("flow.lobster", format!("steps:\n{}{more}", step("fix", EDITS)));
    home.write("other.lobster", "steps:\n  - {id: a, run: 'true'}\n");
    home.write("tree/a", "one\n").write("tree/gone", "x\n").write("tree/stays", "y\n");
    home
}

fn is_committed(home: &Home, run: &str) -> bool {
    let shown = home.lobster(["changes", run, "--json"]).run();
    assert_eq!(shown.code(), 0, "{shown:#?}");
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let mut each = shown.as_array().unwrap().iter().map(|step| step["committed"] == true);
    let first = each.next().unwrap();
    assert!(each.all(|other| other == first), "{shown:#}");
    first
}

/// What the next command makes of a kill at one point. None if nothing was killed.
fn story(point: usize, first: First, several: bool) -> Option<bool> {
    let home = home(several);
    let old = files(&home);
    let token = home.tool(["flow.lobster"]).token();
    let call = home.lobster(["resume", "--token", &token, "--approve", "yes"]);
    if call.env("LOBSTER_FAULT", format!("{point}:kill")).run().code() != 137 {
        return None;
    }
    let told = format!("killed at {point}, then {first:?}");
    let is_half =
        files(&home).iter().any(|(name, told)| !name.starts_with('.') && old.get(name) != Some(told));
    let run = |words: &[&str]| home.lobster(words).run();
    match first {
        // The run may wait still, or have succeeded.
        First::Cancel => drop(run(&["resume", "flow@", "--cancel"])),
        First::Undo => {
            let undone = run(&["undo", "flow@"]);
            // What was rolled back need not be undone.
            assert_eq!(files(&home), old, "{told}: {undone:#?}");
            return Some(is_half);
        }
        First::Collect => {
            let gone = run(&["store", "gc", "--abandoned", "0s"]);
            assert_eq!(gone.code(), 0, "{told}: {gone:#?}");
        }
        First::OtherRun => assert_eq!(home.tool(["other.lobster"]).code(), 0),
        First::StepRun => {
            home.write("writes.wasm", wat::parse_str(WRITES).unwrap());
            let ran = run(&["step", "run", "writes.wasm", "--write", "tree:/out"]);
            assert_eq!(ran.code(), 0, "{told}: {ran:#?}");
            std::fs::remove_file(home.dir().join("tree/beside")).unwrap();
            // Before `changes` looks for ends that nobody saw.
            let record = run(&["show", "flow@", "--json"]).stdout;
            assert_eq!(record.contains("\"committed\":"), files(&home) != old, "{told}: {record}");
        }
    }
    let after = files(&home);
    let has_run = run(&["show", "flow@"]).code() == 0;
    if matches!(first, First::Collect) && !has_run {
        // Nothing is committed any more in the name of a run that is gone.
        let commits = home.state().join("store/commits");
        let left = std::fs::read_dir(commits).map_or(0, |dir| {
            dir.filter(|entry| {
                entry.as_ref().unwrap().path().extension().is_some_and(|last| last == "commit")
            })
            .count()
        });
        assert_eq!(left, 0, "{told}");
    } else {
        assert_eq!(is_committed(&home, "flow@"), after != old, "{told}");
    }
    assert_eq!(home.tool(["other.lobster"]).code(), 0);
    assert_eq!(files(&home), after, "{told}: a later run changed files of the killed one");
    if after != old {
        assert_eq!(after["new"], "file 644 \"n\\n\"", "{told}");
        assert!(!after.contains_key("gone") && after.contains_key("more"), "{told}: {after:#?}");
    }
    if has_run {
        let undone = run(&["undo", "flow@"]);
        assert_eq!(undone.code() == 0, after != old, "{told}: {undone:#?}");
        assert_eq!(files(&home), old, "{told}");
    }
    Some(is_half)
}

#[test]
fn whatever_comes_after_a_kill_in_a_commit_the_record_says_what_became_of_it() {
    let every = number("LOBSTER_CHANGES_KILLS", 3);
    let firsts = [First::Cancel, First::StepRun, First::Undo, First::Collect, First::OtherRun];
    let (mut kills, mut halves) = (0, 0);
    for (number, point) in (1..).step_by(every).enumerate() {
        let whole = every == 1;
        let count = if whole { firsts.len() } else { 1 };
        let mut is_over = false;
        for first in firsts.iter().cycle().skip(number).take(count) {
            match story(point, *first, number % 2 == 1) {
                None => is_over = true,
                Some(is_half) => {
                    kills += 1;
                    halves += usize::from(is_half);
                }
            }
        }
        if is_over {
            break;
        }
    }
    assert!(kills > 10, "only {kills} kills");
    assert!(halves > 0, "no kill hit a commit");
}
