//! A process is stopped in the middle of a commit, at each point in turn: it blocks commits in the same
//! directories, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lobster_base::cancel::{CancelReason, CancelToken};

use crate::commit::commit_within;
use crate::tests::{Bench, set};
use crate::{ChangeSet, CommitError, Terms, recover_commits};

/// Variable with the directory and the stopping point for a copy of this binary.
const ROLE: &str = "LOBSTER_CHANGES_TEST_ROLE";

/// Points to pass before the copy stops.
static LEFT: AtomicU64 = AtomicU64::new(0);

fn bench_at(dir: &Path) -> (Bench, ChangeSet) {
    let bench = Bench::at(dir);
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o644));
    let changes = set(&bench.tree(), vec![("a", Some(old), Some(new.clone())), ("b", None, Some(new))]);
    (bench, changes)
}

/// Not a test: this is the role of a copy. It does nothing without a role.
#[test]
fn stopping_copy() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (point, dir) = role.split_once(' ').unwrap();
    LEFT.store(point.parse().unwrap(), Ordering::SeqCst);
    lobster_base::fault::install_fault_hook(|_| {
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
            send_signal("STOP", std::process::id());
            // The signal may be delivered to another thread, and stop this one a little later.
            let told = std::io::stdin().read(&mut [0]);
            assert_eq!(told.unwrap(), 0, "it goes on when its input ends");
        }
        Ok(())
    });
    let (bench, changes) = bench_at(Path::new(dir));
    bench.commit(&changes).unwrap();
}

fn send_signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

fn start_copy(dir: &Path, point: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["stopped_commits::stopping_copy", "--exact"])
        .env(ROLE, format!("{point} {}", dir.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// True if it stopped; otherwise it has ended.
fn has_stopped(child: &mut Child) -> bool {
    let stat = format!("/proc/{}/stat", child.id());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return false;
        }
        let text = std::fs::read_to_string(&stat).unwrap_or_default();
        if text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_stopped_commit_is_in_the_way_of_the_same_directories_alone() {
    let mut points = 0;
    loop {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let bench = Bench::at(dir.path());
        bench.put("a", "old");
        std::fs::create_dir(bench.tree().join("inner")).unwrap();
        let journals = dir.path().join("journals");
        let mut child = start_copy(dir.path(), points);
        if !has_stopped(&mut child) {
            break;
        }
        let is_begun = std::fs::read_dir(&journals).unwrap().count() > 0;
        assert!(is_begun, "nobody holds anything at point {points}");
        let since = Instant::now();
        assert_eq!(recover_commits(&journals, &|_| Ok(())).unwrap(), [], "point {points}");
        // Another directory of the same parent.
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let new = bench.memory.file("new", 0o644);
        let elsewhere = set(&other, vec![("a", None, Some(new.clone()))]);
        let commit = |id: &str, set: &ChangeSet, patience, cancel: &CancelToken| {
            let terms = Terms { journals: &journals, id, links: None, cancel, tell: &|_| Ok(()) };
            commit_within(patience, set, &bench.memory, &terms)
        };
        let free = CancelToken::new();
        commit("elsewhere", &elsewhere, Duration::ZERO, &free).unwrap();
        // The same directory, one inside it and one above it.
        for (at, path) in
            [(bench.tree(), "c"), (bench.tree().join("inner"), "c"), (dir.path().to_owned(), "tree/c")]
        {
            let here = set(&at, vec![(path, None, Some(new.clone()))]);
            let busy = commit("here", &here, Duration::from_millis(30), &free).unwrap_err();
            let CommitError::Busy { holder, .. } = &busy else { panic!("point {points}: {busy}") };
            assert!(holder.contains(&child.id().to_string()) && holder.contains("stopped"), "{busy}");
            let cancelled = CancelToken::new();
            cancelled.cancel(CancelReason::Requested("enough".to_owned()));
            let told = commit("here", &here, Duration::from_secs(60), &cancelled).unwrap_err();
            assert!(matches!(told, CommitError::Cancelled { .. }), "{told}");
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{:?} at point {points}", since.elapsed());
        // Half of them continue, the others are killed.
        if points % 2 == 0 {
            send_signal("CONT", child.id());
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let here = set(&bench.tree(), vec![("c", None, Some(new))]);
        commit("here", &here, Duration::ZERO, &free).unwrap();
        // A killed process may leave a draft of its journal.
        let names = std::fs::read_dir(&journals).unwrap().map(|entry| entry.unwrap().path());
        let left: Vec<_> = names.filter(|path| path.extension().is_none_or(|last| last != "new")).collect();
        assert!(left.is_empty(), "{left:?} at point {points}");
        points += 1;
    }
    assert!(points > 10, "{points}");
}
