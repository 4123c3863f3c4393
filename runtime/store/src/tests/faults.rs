//! Stops a process at every write and sync in turn, and checks the remaining store.

use std::os::unix::process::ExitStatusExt;

use tempfile::TempDir;

use super::processes::{lines, start};
use super::*;
use crate::fault::armed::points_passed;

/// Run by the copy: effects with small and large results, a gate, a state file. Prints each promise once it was made.
pub(super) fn effects(dir: &Path, _rest: &str) {
    let store = match Store::open(dir) {
        Ok(store) => store,
        Err(error) => return println!("> error {error}"),
    };
    let work = || -> Result<(), StoreError> {
        let plan = store.put_blob(b"plan")?.digest;
        let run = store.create_run(NewRun {
            name: "w".into(),
            kind: "workflow".into(),
            plan,
            args: None,
            mode: "tool".into(),
            actor: None,
            cwd: "/".into(),
            parent: None,
            detail: json!(null),
        })?;
        for i in 0..3_u8 {
            let start =
                Event::Note { path: Some(format!("s{i}")), text: "start".into(), detail: json!(null) };
            store.append_events(run, vec![start], Durability::Synced)?;
            println!("> started {run} {i}");
            let size = if i == 1 { INLINE_MAX * 2 } else { 100 };
            let mut outcome = StepOutcome::new(StepStatus::Ok);
            outcome.stdout = Some(store.put_blob(&vec![i; size])?);
            let outcome = Arc::new(outcome);
            let end = Event::StepEnded { path: format!("s{i}"), attempt: 1, begun: None, outcome };
            store.append_events(run, vec![end], Durability::Synced)?;
            println!("> ended {run} {i}");
        }
        let open = store.open_gate(gate(run, None))?;
        println!("> gate {run} {}", open.key);
        store.answer_gate(open.key, GateAnswer::Approved, None)?;
        println!("> answered {run} {}", open.key);
        Ok(())
    };
    if let Err(error) = work() {
        println!("> error {error}");
    }
    for n in 1..=2 {
        match UserState::in_dir(dir).set("ctr", &json!(n)) {
            Ok(()) => println!("> state x {n}"),
            Err(error) => println!("> error {error}"),
        }
    }
    println!("> points x {}", points_passed());
}

/// Checks that every promise is kept, and nothing is incomplete.
fn check(dir: &Path, promises: &[String], context: &str) {
    let store = Store::open(dir).unwrap_or_else(|e| panic!("{context}: {e}"));
    for summary in store.list_runs(&RunFilter::default()).unwrap() {
        store.verify_chain(summary.id).unwrap_or_else(|e| panic!("{context}: {e}"));
        store.load_blob(&summary.plan, 99).unwrap_or_else(|e| panic!("{context}: {e}"));
        for record in store.all_events(summary.id).unwrap() {
            if let Event::StepEnded { outcome, .. } = record.event {
                let blob = outcome.stdout.unwrap();
                store.load_blob(&blob.digest, blob.len).unwrap_or_else(|e| panic!("{context}: {e}"));
            }
        }
    }
    let state = UserState::in_dir(dir).get("ctr").unwrap_or_else(|e| panic!("{context}: {e}"));
    for promise in promises {
        let words: Vec<_> = promise.split(' ').collect();
        match words.as_slice() {
            ["started" | "ended", run, i] => {
                let step = format!("s{i}");
                let wanted = 1 + usize::from(promise.starts_with("ended"));
                let found = store.all_events(run.parse().unwrap()).unwrap();
                let found = found.iter().filter(|r| r.event.step_path() == Some(&*step)).count();
                assert!(found >= wanted, "{context}: {promise}");
            }
            ["gate", _, key] => drop(store.approval_by_key(key.parse().unwrap()).unwrap()),
            ["answered", _, key] => {
                assert_eq!(
                    store.approval_by_key(key.parse().unwrap()).unwrap().status,
                    GateStatus::Answered,
                    "{context}"
                );
            }
            ["state", _, n] => {
                let n: u64 = n.parse().unwrap();
                assert!(
                    state.as_ref().and_then(serde_json::Value::as_u64) >= Some(n),
                    "{context}: {state:?}"
                );
            }
            _ => {}
        }
    }
    // A gate and its journal never disagree.
    for open in store.list_approvals(&GateFilter::default()).unwrap() {
        let events = store.all_events(open.run).unwrap();
        let answered =
            events.iter().any(|r| matches!(&r.event, Event::GateAnswered { gate, .. } if *gate == open.id));
        assert_eq!(answered, open.status == GateStatus::Answered, "{context}");
    }
    // The store still works.
    let run = new_run(&store, "after");
    store
        .append_events(run, vec![note("fine")], Durability::Synced)
        .unwrap_or_else(|e| panic!("{context}: {e}"));
    UserState::in_dir(dir).set("ctr", &json!(9)).unwrap_or_else(|e| panic!("{context}: {e}"));
}

fn run_with(fault: Option<&str>) -> (TempDir, Option<i32>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let output = start("effects", dir.path(), "", fault).wait_with_output().unwrap();
    let said = lines(&output.stdout);
    (dir, output.status.signal(), said)
}

#[test]
fn killed_or_failing_at_any_point_nothing_promised_is_lost() {
    let (dir, _, said) = run_with(None);
    check(dir.path(), &said, "undisturbed");
    let points: u64 = said.last().unwrap().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(points > 40, "{points} points");
    for n in 1..=points {
        let (dir, signal, said) = run_with(Some(&format!("{n}:kill")));
        assert_eq!(signal, Some(9), "point {n}");
        check(dir.path(), &said, &format!("killed at {n}"));
        let (dir, signal, said) = run_with(Some(&format!("{n}:fail")));
        assert_eq!(signal, None, "point {n}");
        assert!(said.iter().any(|line| line.starts_with("error")), "point {n} failed silently: {said:?}");
        check(dir.path(), &said, &format!("failed at {n}"));
    }
}

/// Run by the copy: collects all runs but the pinned one.
pub(super) fn collects(dir: &Path) {
    let store = Store::open(dir).unwrap();
    match store.collect_garbage(&GcPolicy { max_runs: Some(0), grace_ms: 0, ..GcPolicy::default() }) {
        Ok(_) => println!("> points x {}", points_passed()),
        Err(error) => println!("> error {error}"),
    }
}

#[test]
fn a_collection_that_dies_leaves_a_whole_store() {
    let prepare = || {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        for i in 0..4 {
            let (run, _) = collection::finished(&store, &i.to_string());
            store.pin_run(run, i == 1).unwrap();
        }
        dir
    };
    let dir = prepare();
    let output = start("collects", dir.path(), "", None).wait_with_output().unwrap();
    let points: u64 = lines(&output.stdout).last().unwrap().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(points >= 12, "{points} points");
    for (n, how) in (1..=points).flat_map(|n| [(n, "kill"), (n, "fail")]) {
        let dir = prepare();
        start("collects", dir.path(), "", Some(&format!("{n}:{how}"))).wait_with_output().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.verify().unwrap().problems, [], "{how} at {n}");
        store.collect_garbage(&GcPolicy { max_runs: Some(0), grace_ms: 0, ..GcPolicy::default() }).unwrap();
        assert_eq!(store.verify().unwrap().problems, [], "{how} at {n}");
        let stats = store.stats().unwrap();
        // Plan, small, large, behind, manifest.
        assert_eq!((stats.runs, stats.blobs), (1, 5), "{how} at {n}");
        let files = std::fs::read_dir(store.dir().join("blobs")).unwrap();
        let files = files.flat_map(|shelf| std::fs::read_dir(shelf.unwrap().path()).unwrap()).count();
        assert_eq!(files, 1, "{how} at {n}");
    }
}
