//! Collections: the removed and the kept items.

use std::time::{Duration, Instant};

use super::super::named_blobs::Marks;
use super::*;

/// A finished run that names a small and a large blob.
pub(super) fn finished(store: &Store, name: &str) -> (RunId, [Digest; 3]) {
    let run = new_run(store, name);
    let small = store.put_blob(format!("small of {run}").as_bytes()).unwrap();
    let large = store.put_blob(format!("{run}").repeat(4000).as_bytes()).unwrap();
    // Named by a blob, not by the journal.
    let behind = store.put_blob(format!("behind {run}").as_bytes()).unwrap();
    let manifest = store.put_blob(format!("{{\"files\":[\"{}\"]}}", behind.digest).as_bytes()).unwrap();
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.stdout = Some(small);
    outcome.output = Some(large);
    outcome.detail = json!({"manifest": manifest.digest});
    let events = vec![
        Event::StepEnded { path: "a".into(), attempt: 1, begun: None, outcome: Arc::new(outcome) },
        Event::RunEnded { status: RunStatus::Ok, output: Some(large), error: None, detail: json!(null) },
    ];
    store.append_events(run, events, Durability::Lazy).unwrap();
    (run, [small.digest, large.digest, behind.digest])
}

fn at_once() -> GcPolicy {
    GcPolicy { grace_ms: 0, ..GcPolicy::default() }
}

fn here(store: &Store, digests: &[Digest]) -> Vec<bool> {
    digests.iter().map(|d| store.open_blob(d).is_ok()).collect()
}

#[test]
fn keeps_what_is_named_and_removes_the_rest() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let (old, old_blobs) = finished(&store, "old");
    let (pinned, pinned_blobs) = finished(&store, "pinned");
    store.pin_run(pinned, true).unwrap();
    let waiting = new_run(&store, "waiting");
    let asked = store.open_gate(gate(waiting, None)).unwrap();
    now.fetch_add(10_000, Ordering::Relaxed);
    let (new, new_blobs) = finished(&store, "new");
    let stray =
        [store.put_blob(b"stray").unwrap().digest, store.put_blob(&[9; INLINE_MAX * 2]).unwrap().digest];
    let cached = store.put_blob(b"cached result").unwrap();
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.stdout = Some(cached);
    store.cache_outcome(Digest::of_bytes(b"a"), &outcome, None).unwrap();
    store
        .set_run_value(waiting, "k", &json!(store.put_blob(b"value").unwrap().digest), Durability::Lazy)
        .unwrap();
    now.fetch_add(1, Ordering::Relaxed);

    let policy = GcPolicy { max_age_ms: Some(5000), ..at_once() };
    let promised = store.collect_garbage(&GcPolicy { dry_run: true, ..policy.clone() }).unwrap();
    assert_eq!(store.list_runs(&RunFilter::default()).unwrap().len(), 4);
    let done = store.collect_garbage(&policy).unwrap();
    assert_eq!(done, promised);
    assert_eq!((done.runs, done.kept_runs, done.actions), (1, 3, 0));
    // The old run's blobs: small, large, behind, manifest. And two strays.
    assert_eq!(done.blobs, 6);

    let left: Vec<_> = store.list_runs(&RunFilter::default()).unwrap().iter().map(|r| r.id).collect();
    assert_eq!(left, [new, waiting, pinned]);
    assert!(matches!(store.all_events(old), Err(StoreError::UnknownRun(_))));
    assert_eq!(here(&store, &old_blobs), [false; 3]);
    assert_eq!(here(&store, &stray), [false; 2]);
    assert_eq!(here(&store, &[pinned_blobs, new_blobs].concat()), [true; 6]);
    assert_eq!(
        here(&store, &[cached.digest, Digest::of_bytes(b"value"), Digest::of_bytes(b"plan")]),
        [true; 3]
    );
    assert_eq!(store.approval_by_key(asked.key).unwrap(), asked);
    assert_eq!(store.verify().unwrap().problems, []);
    let again = store.collect_garbage(&policy).unwrap();
    assert_eq!((again.runs, again.blobs, again.leftovers), (0, 0, 0));
}

/// The set of named digests may err without influence on which blobs are read; if there is no room, blobs that were
/// read are forgotten.
#[test]
fn what_only_a_kept_blob_names_stays_whatever_the_marks_have_room_for() {
    let store = Store::in_memory().unwrap();
    let run = new_run(&store, "w");
    let behind = store.put_blob(b"behind").unwrap().digest;
    let inner = store.put_blob(format!("[\"{behind}\"]").as_bytes()).unwrap().digest;
    let outer = store.put_blob(format!("[\"{inner}\",\"{inner}\"]").as_bytes()).unwrap().digest;
    let stray = store.put_blob(b"stray").unwrap().digest;
    let names = || Event::Note { path: None, text: "names".into(), detail: json!([outer, inner]) };
    store.append_events(run, vec![names(), names()], Durability::Lazy).unwrap();
    let mut marks = Marks::with_room_for(1);
    // As if other digests had set the same bits before.
    assert!(marks.add(&outer) && marks.add(&inner));
    store.gc_with(&at_once(), marks).unwrap();
    assert_eq!(here(&store, &[behind, inner, outer, stray]), [true, true, true, false]);
}

#[test]
fn a_collection_waits_for_the_one_that_a_command_started() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let other = Store::open(dir.path()).unwrap();
    let lock = other.lock_collection().unwrap();
    let (waiting, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let collection = scope.spawn(|| {
            waiting.send(()).unwrap();
            store.collect_garbage(&at_once())
        });
        begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!collection.is_finished());
        drop(lock);
        collection.join().unwrap().unwrap();
    });
}

#[test]
fn counts_and_sizes_bound_what_stays() {
    let store = Store::in_memory().unwrap();
    let runs: Vec<_> = (0..10).map(|i| finished(&store, &i.to_string()).0).collect();
    let left = |store: &Store| {
        store.list_runs(&RunFilter::default()).unwrap().iter().map(|r| r.id).collect::<Vec<_>>()
    };
    store.collect_garbage(&GcPolicy { max_runs: Some(6), ..at_once() }).unwrap();
    assert_eq!(left(&store), [runs[9], runs[8], runs[7], runs[6], runs[5], runs[4]]);
    // Each takes about 150 kB.
    let most = 400_000;
    store.collect_garbage(&GcPolicy { max_bytes: Some(most), ..at_once() }).unwrap();
    let stats = store.stats().unwrap();
    assert_eq!(stats.runs, 3);
    assert!(stats.blob_bytes < most + 160_000, "{stats:?}");
    store.collect_garbage(&GcPolicy { max_runs: Some(0), ..at_once() }).unwrap();
    let stats = store.stats().unwrap();
    assert_eq!((stats.runs, stats.records, stats.blobs, stats.blob_bytes), (0, 0, 0, 0));
}

#[test]
fn silent_runs_go_only_when_asked() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let crashed = new_run(&store, "crashed");
    now.fetch_add(10_000, Ordering::Relaxed);
    let busy = new_run(&store, "busy");
    store.collect_garbage(&GcPolicy { max_runs: Some(0), max_age_ms: Some(0), ..at_once() }).unwrap();
    assert_eq!(store.stats().unwrap().runs, 2);
    store.collect_garbage(&GcPolicy { abandoned_ms: Some(5000), ..at_once() }).unwrap();
    assert!(store.run(crashed).is_err());
    assert!(store.run(busy).is_ok());
}

/// The strictest value of every option that removes runs, applied to runs of every status: runs held by a process
/// stay.
#[test]
fn a_run_that_a_process_holds_stays_whatever_is_collected() {
    let strictest: [fn(&mut GcPolicy); 4] = [
        |policy| policy.max_age_ms = Some(0),
        |policy| policy.max_runs = Some(0),
        |policy| policy.max_bytes = Some(0),
        |policy| policy.abandoned_ms = Some(0),
    ];
    for chosen in 0..1_u8 << strictest.len() {
        let (now, clock) = hand();
        let store = Store::in_memory_with(clock).unwrap();
        let mut policy = at_once();
        for (i, option) in strictest.iter().enumerate() {
            if chosen >> i & 1 == 1 {
                option(&mut policy);
            }
        }
        let make = |name: &str| {
            let (waiting, running) = (new_run(&store, name), new_run(&store, name));
            store.open_gate(gate(waiting, None)).unwrap();
            [waiting, running, finished(&store, name).0]
        };
        let (held, free) = (make("held"), make("free"));
        let claims = held.map(|run| store.claim_run(run).unwrap());
        now.fetch_add(10, Ordering::Relaxed);
        let promised = store.collect_garbage(&GcPolicy { dry_run: true, ..policy.clone() }).unwrap();
        assert_eq!(store.collect_garbage(&policy).unwrap().runs, promised.runs, "{policy:?}");
        for run in held {
            store.append_events(run, vec![note("goes on")], Durability::Lazy).unwrap();
        }
        let left = free.iter().filter(|run| store.run(**run).is_ok()).count();
        let gone = usize::from(chosen & 7 != 0) + 2 * usize::from(chosen & 8 != 0);
        assert_eq!(left, 3 - gone, "{policy:?}");
        drop(claims);
    }
}

/// A process that has claimed a run and written to it can keep writing, even during collections that would remove the
/// run.
#[test]
fn a_collection_takes_no_run_from_under_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let policy = GcPolicy { abandoned_ms: Some(-1), max_runs: Some(0), ..GcPolicy::default() };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let store = Store::open(dir.path()).unwrap();
                scope.spawn(move || {
                    for turn in 0..60 {
                        let run = new_run(&store, "w");
                        let _claim = store.claim_run(run).unwrap();
                        match store.append_events(run, vec![note("first")], Durability::Lazy) {
                            // It was removed before it was claimed.
                            Err(StoreError::UnknownRun(_)) => continue,
                            other => other.unwrap(),
                        }
                        for _ in 0..5 {
                            store.append_events(run, vec![note("more")], Durability::Lazy).unwrap();
                            assert!(store.run(run).is_ok(), "turn {turn}");
                        }
                    }
                })
            })
            .collect();
        let store = Store::open(dir.path()).unwrap();
        while writers.iter().any(|writer| !writer.is_finished()) {
            store.collect_garbage(&policy).unwrap();
        }
    });
}

#[test]
fn what_was_recorded_lately_stays_even_when_the_clock_jumps() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let fresh =
        [store.put_blob(b"fresh").unwrap().digest, store.put_blob(&[9; INLINE_MAX * 2]).unwrap().digest];
    store.collect_garbage(&GcPolicy::default()).unwrap();
    assert_eq!(here(&store, &fresh), [true; 2]);
    now.store(0, Ordering::Relaxed);
    store.collect_garbage(&GcPolicy::default()).unwrap();
    assert_eq!(here(&store, &fresh), [true; 2]);
    // Recorded again after a long time, it is treated as new.
    now.store(100_000_000, Ordering::Relaxed);
    store.put_blob(b"fresh").unwrap();
    store.collect_garbage(&GcPolicy::default()).unwrap();
    assert!(store.open_blob(&fresh[0]).is_ok());
}

#[test]
fn leftovers_of_dead_writers_go_and_work_in_progress_stays() {
    let store = Store::in_memory().unwrap();
    let mut busy = store.blob_writer();
    busy.write_all(&[3; INLINE_MAX * 2]).unwrap();
    std::fs::write(store.dir().join("tmp/blob-dead"), "half").unwrap();
    let orphan = Digest::of_bytes(b"orphan");
    let shelf = store.dir().join("blobs").join(&orphan.to_string()[..2]);
    std::fs::create_dir_all(&shelf).unwrap();
    std::fs::write(shelf.join(orphan.to_string()), b"orphan").unwrap();
    let report = store.collect_garbage(&at_once()).unwrap();
    assert_eq!((report.leftovers, report.blobs, report.bytes), (1, 1, 6));
    let blob = busy.finish().unwrap();
    assert_eq!(store.load_blob(&blob.digest, u64::MAX).unwrap(), [3; INLINE_MAX * 2]);
}

#[test]
fn writers_lose_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    // The same two contents repeatedly, named only at the end of each iteration.
    let policy = GcPolicy { max_runs: Some(3), grace_ms: 60_000, ..GcPolicy::default() };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|i| {
                let store = Store::open(dir.path()).unwrap();
                scope.spawn(move || {
                    for turn in 0..25 {
                        let (run, blobs) = finished(&store, &format!("{i}"));
                        store.pin_run(run, true).unwrap();
                        assert_eq!(here(&store, &blobs), [true; 3], "turn {turn}");
                    }
                })
            })
            .collect();
        while writers.iter().any(|w| !w.is_finished()) {
            store.collect_garbage(&policy).unwrap();
        }
    });
    assert_eq!(store.verify().unwrap().problems, []);
    assert_eq!(store.stats().unwrap().runs, 100);
    assert!(matches!(store.collect_garbage(&policy), Ok(GcReport { runs: 0, .. })));
}

#[test]
fn many_files_go_in_several_strokes() {
    let store = Store::in_memory().unwrap();
    for i in 0..600_u32 {
        let mut bytes = vec![0; INLINE_MAX];
        bytes.extend(i.to_le_bytes());
        store.put_blob(&bytes).unwrap();
    }
    assert_eq!(store.collect_garbage(&at_once()).unwrap().blobs, 600);
    assert_eq!(store.stats().unwrap().blobs, 0);
}

/// Limits for a large store; `cargo test -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute"]
fn a_hundred_thousand_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let at = Instant::now();
    for i in 0..100_000 {
        let run = new_run(&store, "w");
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.stdout = Some(store.put_blob(format!("stdout of run {i}").repeat(20).as_bytes()).unwrap());
        let mut events: Vec<_> = (0..4).map(|i| note(&format!("step {i}"))).collect();
        events.push(Event::StepEnded {
            path: "a".into(),
            attempt: 1,
            begun: None,
            outcome: Arc::new(outcome),
        });
        events.push(Event::RunEnded {
            status: RunStatus::Ok,
            output: None,
            error: None,
            detail: json!(null),
        });
        store.append_events(run, events, Durability::Lazy).unwrap();
    }
    println!("100,000 runs made: {:?}, {:?}", at.elapsed(), store.stats().unwrap());
    drop(store);
    let at = Instant::now();
    let store = Store::open(dir.path()).unwrap();
    println!("open: {:?}", at.elapsed());
    let at = Instant::now();
    assert_eq!(store.list_runs(&RunFilter { limit: 50, ..Default::default() }).unwrap().len(), 50);
    println!("first page: {:?}", at.elapsed());
    let at = Instant::now();
    let filter = RunFilter { status: Some(RunStatus::Failed), limit: 50, ..Default::default() };
    assert_eq!(store.list_runs(&filter).unwrap().len(), 0);
    println!("first page of a status without runs: {:?}", at.elapsed());
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status
            .lines()
            .filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    println!("before gc: {}", memory());
    let at = Instant::now();
    let report = store.collect_garbage(&GcPolicy { max_runs: Some(50_000), ..at_once() }).unwrap();
    println!("gc of half: {:?}, {report:?}", at.elapsed());
    println!("after gc: {}", memory());
    println!("{:?}", store.stats().unwrap());
    assert_eq!((report.runs, report.blobs), (50_000, 50_000));
}
