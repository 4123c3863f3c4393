//! Many processes over one store: the test binary starts itself again.

use std::process::{Child, Command, Stdio};

use super::*;

/// Role of a copy of this binary: `<role> <state directory> <rest>`.
const ROLE: &str = "LOBSTER_STORE_TEST_ROLE";

/// Starts a copy in the given role.
pub(super) fn start(role: &str, dir: &Path, rest: &str, fault: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["tests::processes::copy", "--exact", "--nocapture"])
        .env(ROLE, format!("{role}\n{}\n{rest}", dir.display()))
        .env_remove("LOBSTER_FAULT")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(fault) = fault {
        command.env("LOBSTER_FAULT", fault);
    }
    command.spawn().unwrap()
}

/// Starts a copy in the given role on a separate file system at `dir`, which `prepare` (a shell command) mounts.
/// `None` if mounting is not permitted.
pub(super) fn start_mounted(role: &str, dir: &Path, prepare: &str) -> Option<Vec<String>> {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(format!("{prepare} || exit 99; exec \"$0\" tests::processes::copy --exact --nocapture"))
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, format!("{role}\n{}\n", dir.display()))
        .output()
        .ok()?;
    if matches!(output.status.code(), Some(1 | 99)) && lines(&output.stdout).is_empty() {
        eprintln!("not allowed to mount: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(lines(&output.stdout))
}

/// The copy's output on lines that begin with `> `; panics with its stderr if it failed.
fn said(child: Child) -> Vec<String> {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    lines(&output.stdout)
}

pub(super) fn lines(stdout: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stdout);
    // libtest's own output may precede it on the first line.
    text.lines().filter_map(|line| line.split_once("> ").map(|(_, said)| said.to_owned())).collect()
}

/// Runs the role of a copy. Without a role it does nothing.
#[test]
fn copy() {
    let Ok(text) = std::env::var(ROLE) else { return };
    let mut words = text.splitn(3, '\n');
    let mut next = || words.next().unwrap();
    let (role, dir, rest) = (next(), Path::new(next()).to_owned(), next());
    match role {
        "write runs" => {
            let count: usize = rest.parse().unwrap();
            let store = Store::open(&dir).unwrap();
            for i in 0..count {
                let run = new_run(&store, rest);
                store.append_events(run, vec![note(&format!("{i}"))], Durability::Synced).unwrap();
                println!("> {run}");
            }
        }
        "answer gates" => {
            let store = Store::open(&dir).unwrap();
            let me = std::process::id().to_string();
            for key in rest.split(' ') {
                match store.answer_gate(key.parse().unwrap(), GateAnswer::Approved, Some(me.as_str())) {
                    Ok(gate) => println!("> {}", gate.id),
                    Err(StoreError::ConsumedGate { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
        "effects" => faults::effects(&dir, rest),
        "collects" => faults::collects(&dir),
        "full disk" => damage::on_a_full_disk(&dir),
        "read-only disk" => damage::on_a_read_only_disk(&dir),
        other => panic!("unknown role {other}"),
    }
}

#[test]
fn sixteen_processes_make_and_write_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let copies: Vec<_> = (0..16).map(|_| start("write runs", &state, "25", None)).collect();
    let mut ids: Vec<_> = copies.into_iter().flat_map(said).collect();
    let store = Store::open(&state).unwrap();
    let mut found: Vec<_> =
        store.list_runs(&RunFilter::default()).unwrap().iter().map(|r| r.id.to_string()).collect();
    for id in &ids {
        let run = id.parse().unwrap();
        store.verify_chain(run).unwrap();
        assert_eq!(store.all_events(run).unwrap().len(), 2);
    }
    ids.sort();
    found.sort();
    assert_eq!((ids.len(), found), (16 * 25, ids));
}

#[test]
fn of_eight_processes_that_answer_a_gate_one_wins_each_of_two_hundred_times() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let run = new_run(&store, "w");
    let gates: Vec<_> = (0..200).map(|_| store.open_gate(gate(run, None)).unwrap()).collect();
    let keys: Vec<_> = gates.iter().map(|g| g.key.to_string()).collect();
    let copies: Vec<_> = (0..8).map(|_| start("answer gates", dir.path(), &keys.join(" "), None)).collect();
    let mut won: Vec<_> = copies.into_iter().flat_map(said).collect();
    let mut ids: Vec<_> = gates.into_iter().map(|g| g.id).collect();
    won.sort();
    ids.sort();
    assert_eq!(won, ids);
    let answers = store
        .all_events(run)
        .unwrap()
        .iter()
        .filter(|r| matches!(r.event, Event::GateAnswered { .. }))
        .count();
    assert_eq!(answers, 200);
    store.verify_chain(run).unwrap();
}

/// Each run begins with this check, while other processes write and mark durable records.
#[test]
fn a_store_that_others_write_to_was_not_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let store = Store::open(&state).unwrap();
    let run = new_run(&store, "busy");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                let event = Event::RunResumed { by: None, detail: serde_json::Value::Null };
                store.append_events(run, vec![event], Durability::Synced).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let other = Store::open(&state).unwrap();
                    other.check_rollback().unwrap();
                    assert_eq!(other.find_rollback().unwrap(), None);
                }
            });
        }
    });
}
