//! Costs of durability.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::super::group::Patience;
use super::*;

fn started(path: &str) -> Event {
    Event::StepStarted {
        path: path.into(),
        attempt: 1,
        kind: "shell".into(),
        action: Some(Digest::of_bytes(path.as_bytes())),
        effect: true,
        idempotent: false,
        decision: json!({"verdict": "allow"}),
        detail: json!(null),
    }
}

fn ended(store: &Store, path: &str) -> Event {
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.stdout = Some(store.put_blob(path.as_bytes()).unwrap());
    Event::StepEnded { path: path.into(), attempt: 1, begun: None, outcome: Arc::new(outcome) }
}

#[test]
fn one_effect_costs_two_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let run = new_run(&store, "w");
    assert_eq!(store.sync_count(), 0);
    for i in 1..=20 {
        let path = format!("step{i}");
        store.append_events(run, vec![started(&path)], Durability::Synced).unwrap();
        store.append_events(run, vec![ended(&store, &path)], Durability::Synced).unwrap();
        assert_eq!(store.sync_count(), 2 * i);
    }
    store.append_events(run, vec![note("pure")], Durability::Lazy).unwrap();
    assert_eq!(store.sync_count(), 40);
    store.sync().unwrap();
    assert_eq!(store.sync_count(), 41);
}

#[test]
fn sixty_four_parallel_effects_share_their_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    // Longer than a thread waits for its turn on any machine.
    let patient = Duration::from_secs(60);
    store.inner.db.group.set_patience(Patience { gather: patient, commit: patient, arrive: patient });
    let run = new_run(&store, "w");
    let working = Barrier::new(64);
    std::thread::scope(|scope| {
        let place: Vec<_> = (0..64_u64).map(|i| (i, store.join_commit_group())).collect();
        for (i, place) in place {
            let (store, working) = (&store, &working);
            scope.spawn(move || {
                let _member = place.become_member();
                let path = format!("branch{i}");
                // As on a busy machine, it takes a while until the last thread has had its turn.
                std::thread::sleep(Duration::from_millis(i));
                store.append_events(run, vec![started(&path)], Durability::Synced).unwrap();
                let outside = store.leave_commit_group();
                working.wait();
                drop(outside);
                // All are back before the first one writes, so no leader waits for threads that are still outside.
                working.wait();
                store.append_events(run, vec![ended(store, &path)], Durability::Synced).unwrap();
            });
        }
    });
    let syncs = store.sync_count();
    assert!(syncs <= 4, "{syncs} syncs");
    assert_eq!(store.all_events(run).unwrap().len(), 129);
    store.verify_chain(run).unwrap();
}

#[test]
fn who_was_announced_and_does_not_come_is_waited_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let run = new_run(&store, "w");
    let ended = Barrier::new(2);
    let hundred = || {
        let at = Instant::now();
        for i in 0..100 {
            store.append_events(run, vec![started(&i.to_string())], Durability::Synced).unwrap();
        }
        at.elapsed()
    };
    let alone = hundred();
    std::thread::scope(|scope| {
        let place = store.join_commit_group();
        let ended = &ended;
        scope.spawn(move || {
            let _member = place.become_member();
            ended.wait();
        });
        let beside = hundred();
        ended.wait();
        // If each sync waited for it, they would take ten seconds longer.
        assert!(beside < alone + Duration::from_secs(5), "{alone:?} alone, {beside:?} beside it");
    });
}

#[test]
fn a_large_blob_is_durable_with_the_event_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let run = new_run(&store, "w");
    store.sync().unwrap();
    let before = store.sync_count();
    store.put_blob(&vec![1; INLINE_MAX + 1]).unwrap();
    assert_eq!(store.sync_count(), before);
    store.append_events(run, vec![note("names it")], Durability::Synced).unwrap();
    // The file, the two directories above it, and the log.
    assert_eq!(store.sync_count(), before + 4);
}

/// Another process may sync the log at any moment.
#[test]
fn a_large_blob_is_durable_before_a_lazy_commit_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let run = new_run(&store, "w");
    store.sync().unwrap();
    let before = store.sync_count();
    for large in [vec![1; INLINE_MAX + 1], vec![2; 5 << 20]] {
        store.put_blob(&large).unwrap();
        store.append_events(run, vec![note("names it")], Durability::Lazy).unwrap();
    }
    // Each of the files and the two directories above it. The log is not synced.
    assert_eq!(store.sync_count(), before + 6);
    store.append_events(run, vec![note("names none")], Durability::Lazy).unwrap();
    assert_eq!(store.sync_count(), before + 6);
}

/// Figures for people; `cargo test -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn figures() {
    let dir = tempfile::tempdir().unwrap();
    let show = |what: &str, since: Instant, count: u32| {
        println!("{what}: {:?}", since.elapsed() / count);
    };
    let at = Instant::now();
    let store = Store::open(dir.path()).unwrap();
    show("make a store", at, 1);
    let run = new_run(&store, "w");
    let at = Instant::now();
    for i in 0..1000 {
        store.append_events(run, vec![started(&i.to_string())], Durability::Lazy).unwrap();
    }
    show("lazy append", at, 1000);
    let at = Instant::now();
    for i in 0..1000 {
        store.append_events(run, vec![started(&i.to_string())], Durability::Synced).unwrap();
    }
    show("synced append", at, 1000);
    drop(store);
    for _ in 0..5 {
        let at = Instant::now();
        let store = Store::open(dir.path()).unwrap();
        show("open", at, 1);
        let run = new_run(&store, "x");
        let at = Instant::now();
        store.append_events(run, vec![started("a")], Durability::Synced).unwrap();
        show("first synced append", at, 1);
        let at = Instant::now();
        drop(store);
        show("close", at, 1);
    }
    let at = Instant::now();
    for _ in 0..100 {
        Store::in_memory().unwrap();
    }
    show("in memory", at, 100);
    let gates = Store::in_memory().unwrap();
    let run = new_run(&gates, "w");
    for _ in 0..5000 {
        gates.open_gate(gate(run, None)).unwrap();
    }
    let at = Instant::now();
    for _ in 0..100 {
        let open = gates.open_gate(gate(run, None)).unwrap();
        gates.gate_by_id(&open.id).unwrap();
        gates.answer_gate(open.key, GateAnswer::Approved, None).unwrap();
    }
    show("open, find and answer a gate among 5000", at, 100);
    let at = Instant::now();
    let listed =
        gates.list_approvals(&GateFilter { status: Some(GateStatus::Open), limit: 50, ..Default::default() });
    show("first 50 of 5000 gates", at, 1);
    assert_eq!(listed.unwrap().len(), 50);
}

#[test]
fn two_who_alternate_do_not_wait_for_a_third() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let run = new_run(&store, "w");
    store.sync().unwrap();
    let at = Instant::now();
    std::thread::scope(|scope| {
        for i in 0..2 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..100 {
                    store.append_events(run, vec![started(&i.to_string())], Durability::Synced).unwrap();
                }
            });
        }
    });
    println!("{:?} for each of 100 pairs, {} syncs", at.elapsed() / 100, store.sync_count());
    assert!(store.sync_count() <= 201);
}
