//! Behaviour of the store as a whole.

mod chains;
mod collection;
mod damage;
mod faults;
mod masking;
mod model;
mod processes;
mod shared_syncs;

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use super::*;

fn new_run(store: &Store, name: &str) -> RunId {
    let plan = store.put_blob(b"plan").unwrap().digest;
    let new = NewRun {
        name: name.into(),
        kind: "workflow".into(),
        plan,
        args: None,
        mode: "tool".into(),
        actor: None,
        cwd: "/w".into(),
        parent: None,
        detail: json!(null),
    };
    store.create_run(new).unwrap()
}

fn note(text: &str) -> Event {
    Event::Note { path: None, text: text.into(), detail: json!(null) }
}

fn gate(run: RunId, expires_at: Option<i64>) -> GateRecord {
    GateRecord {
        run,
        path: "ask".into(),
        kind: GateKind::Approval,
        question: json!({"prompt": "really?", "items": [1]}),
        binding: Digest::of_bytes(b"all of it"),
        expires_at,
        required_approver: Some("ann".into()),
        detail: json!({"initiator": "bob"}),
    }
}

/// A clock set by the test.
fn hand() -> (Arc<AtomicI64>, Clock) {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&now);
    (now, Arc::new(move || clock.load(Ordering::Relaxed)))
}

#[test]
fn a_store_is_private_and_survives_reopening() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("deep/state");
    let store = Store::open(&state).unwrap();
    let run = new_run(&store, "w");
    store.append_events(run, vec![note("one"), note("two")], Durability::Synced).unwrap();
    drop(store);
    for (name, mode) in [("store", 0o700), ("store/lobster.db", 0o600), ("store/lobster.db-wal", 0o600)] {
        let meta = std::fs::metadata(state.join(name)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, mode, "{name}");
    }
    let store = Store::open(&state).unwrap();
    let events: Vec<_> = store.all_events(run).unwrap();
    assert_eq!(events.iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(events[2].event, note("two"));
    store.verify_chain(run).unwrap();
    assert_eq!(store.load_blob(&Digest::of_bytes(b"plan"), 10).unwrap(), b"plan");
}

/// Number of write calls of this thread to the kernel.
fn writes_so_far() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap().parse().unwrap()
}

#[test]
fn a_blob_that_comes_in_small_pieces_is_written_in_large_ones() {
    let store = Store::in_memory().unwrap();
    let piece = b"{\"n\":1}";
    let pieces = 400_000;
    let mut writer = store.blob_writer();
    let before = writes_so_far();
    for _ in 0..pieces {
        writer.write_all(piece).unwrap();
    }
    let blob = writer.finish().unwrap();
    let writes = writes_so_far() - before;
    let whole = piece.repeat(pieces);
    assert_eq!(blob, Blob { digest: Digest::of_bytes(&whole), len: whole.len() as u64 });
    assert_eq!(store.load_blob(&blob.digest, u64::MAX).unwrap(), whole);
    // 2.8 MB in writes of 64 KiB, and a few of the transaction.
    assert!(writes < 100, "{writes} writes");
}

#[test]
fn blobs_small_and_large_come_back_and_are_checked() {
    let store = Store::in_memory().unwrap();
    for len in [0, 1, INLINE_MAX, INLINE_MAX + 1, 3 * INLINE_MAX] {
        let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut writer = store.blob_writer();
        for chunk in bytes.chunks(1000) {
            writer.write_all(chunk).unwrap();
        }
        let blob = writer.finish().unwrap();
        assert_eq!(blob, Blob { digest: Digest::of_bytes(&bytes), len: len as u64 });
        assert_eq!(store.put_blob(&bytes).unwrap(), blob);
        for _pending_then_stored in 0..2 {
            assert_eq!(store.blob_len(&blob.digest).unwrap(), Some(len as u64));
            assert_eq!(store.load_blob(&blob.digest, len as u64).unwrap(), bytes);
            let mut file = Vec::new();
            std::io::Read::read_to_end(&mut store.open_file(&blob.digest).unwrap(), &mut file).unwrap();
            assert_eq!(file, bytes);
            let path = store.blob_file(&blob.digest).unwrap();
            assert_eq!(
                path.map(|path| std::fs::read(path).unwrap()),
                (len > INLINE_MAX).then(|| bytes.clone())
            );
            store.flush_pending().unwrap();
        }
        if len > 0 {
            let small = store.load_blob(&blob.digest, len as u64 - 1);
            assert!(matches!(small, Err(StoreError::BlobTooLarge { .. })));
        }
    }
    let missing = Digest::of_bytes(b"never");
    assert!(matches!(store.open_blob(&missing), Err(StoreError::MissingBlob(d)) if d == missing));
    assert_eq!(store.blob_len(&missing).unwrap(), None);
}

#[test]
fn a_writer_over_its_limit_keeps_nothing() {
    let store = Store::in_memory().unwrap();
    let mut writer = store.blob_writer().with_limit(100_000);
    writer.write_all(&[7; 90_000]).unwrap();
    let error = writer.write_all(&[7; 20_000]).unwrap_err();
    assert!(matches!(writer.store_error(error), StoreError::OverLimit { limit: 100_000 }));
    drop(writer);
    assert_eq!(std::fs::read_dir(store.dir().join("tmp")).unwrap().count(), 0);
}

#[test]
fn damaged_blobs_are_errors_until_recorded_again() {
    let store = Store::in_memory().unwrap();
    let small = store.put_blob(b"small").unwrap().digest;
    store.flush_pending().unwrap();
    store
        .inner
        .db
        .write_transaction(
            Durability::Lazy,
            |tx| Ok(tx.execute("UPDATE blobs SET data = x'00'", [])?),
            |_| (),
        )
        .unwrap();
    assert!(
        matches!(store.load_blob(&small, 9), Err(StoreError::DamagedBlob { digest, .. }) if digest == small)
    );
    store.put_blob(b"small").unwrap();
    store.flush_pending().unwrap();
    assert_eq!(store.load_blob(&small, 9).unwrap(), b"small");

    let bytes = vec![1; INLINE_MAX + 1];
    let large = store.put_blob(&bytes).unwrap().digest;
    let path = store.blob_path(&large);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(store.open_blob(&large), Err(StoreError::LostBlob { path: gone, .. }) if gone == path));
    std::fs::write(&path, vec![2; INLINE_MAX + 1]).unwrap();
    assert!(matches!(store.open_file(&large), Err(StoreError::DamagedBlob { .. })));
    store.put_blob(&bytes).unwrap();
    assert_eq!(store.load_blob(&large, u64::MAX).unwrap(), bytes);
}

#[test]
fn the_status_of_a_run_follows_its_events() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let run = new_run(&store, "w");
    assert_eq!(store.run(run).unwrap().status, RunStatus::Running);
    store.append_events(run, vec![Event::RunPaused { detail: json!(null) }], Durability::Lazy).unwrap();
    assert_eq!(store.run(run).unwrap().status, RunStatus::Waiting);
    now.store(2_000_000, Ordering::Relaxed);
    let ended = Event::RunEnded {
        status: RunStatus::Failed,
        output: None,
        error: Some("boom".into()),
        detail: json!(null),
    };
    store.append_events(run, vec![ended], Durability::Synced).unwrap();
    let summary = store.run(run).unwrap();
    assert_eq!(
        (summary.status, summary.ended_at, summary.error.as_deref(), summary.records),
        (RunStatus::Failed, Some(2_000_000), Some("boom"), 3)
    );
    let resumed = Event::RunResumed { by: None, detail: json!(null) };
    store.append_events(run, vec![resumed], Durability::Lazy).unwrap();
    let summary = store.run(run).unwrap();
    assert_eq!((summary.status, summary.ended_at, summary.error), (RunStatus::Running, None, None));
    let nobody: RunId = "0190b1c2-0000-7000-8000-000000000000".parse().unwrap();
    assert!(matches!(
        store.append_events(nobody, vec![note("x")], Durability::Synced),
        Err(StoreError::UnknownRun(_))
    ));
}

#[test]
fn runs_are_listed_newest_first_by_pages_and_found_by_parts_of_their_id() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let ids: Vec<_> = (0..10)
        .map(|i| {
            // The clock jumps back; the order is kept.
            now.store(1_000_000 - i * 1000, Ordering::Relaxed);
            new_run(&store, if i % 2 == 0 { "even" } else { "odd" })
        })
        .collect();
    let list = |filter: RunFilter| store.list_runs(&filter).unwrap().iter().map(|r| r.id).collect::<Vec<_>>();
    let newest: Vec<_> = ids.iter().rev().copied().collect();
    assert_eq!(list(RunFilter::default()), newest);
    assert_eq!(list(RunFilter { limit: 3, ..Default::default() }), newest[..3]);
    assert_eq!(list(RunFilter { limit: 3, before: Some(newest[2]), ..Default::default() }), newest[3..6]);
    assert_eq!(
        list(RunFilter { name: Some("odd".into()), limit: 2, ..Default::default() }),
        [ids[9], ids[7]]
    );
    assert_eq!(list(RunFilter { since: Some(1_000_000), ..Default::default() }), [ids[0]]);
    assert_eq!(list(RunFilter { status: Some(RunStatus::Ok), ..Default::default() }), []);

    let text = ids[4].to_string();
    let short = ids[4].short_id();
    let pieces = [text.as_str(), &text.to_uppercase(), &text[..30], &text.replace('-', ""), &text[27..]];
    for part in pieces.into_iter().chain([&*short, &short[..7], &short[2..]]) {
        assert_eq!(store.find_run(part).unwrap(), ids[4], "{part}");
    }
    assert!(
        matches!(store.find_run(&text[..4]), Err(StoreError::AmbiguousRun { candidates, .. }) if candidates.len() == 6 && candidates[5] == "others")
    );
    for part in ["", "0", "zzzzzz", "' OR 1=1 --", "ffffffffffff"] {
        assert!(matches!(store.find_run(part), Err(StoreError::UnknownRun(_))), "{part}");
    }
}

#[test]
fn a_blob_is_readable_while_another_thread_commits_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let large = vec![7; 2 * INLINE_MAX];
    let blobs = [store.put_blob(b"small").unwrap(), store.put_blob(&large).unwrap()];
    let readable = || {
        assert_eq!(store.load_blob(&blobs[0].digest, 5).unwrap(), b"small");
        assert_eq!(store.load_blob(&blobs[1].digest, large.len() as u64).unwrap(), large);
        assert_eq!(blobs.map(|blob| store.blob_len(&blob.digest).unwrap()), blobs.map(|blob| Some(blob.len)));
    };
    for fails in [true, false] {
        let written = store.write_transaction(Durability::Lazy, |_| {
            std::thread::scope(|scope| scope.spawn(readable).join().unwrap());
            if fails { Err(StoreError::MissingBlob(blobs[0].digest)) } else { Ok(()) }
        });
        assert_eq!(written.is_err(), fails);
        readable();
    }
}

#[test]
fn a_changed_journal_shows() {
    let tampered = |sql: &str| {
        let store = Store::in_memory().unwrap();
        let run = new_run(&store, "w");
        store
            .append_events(run, (0..1200).map(|i| note(&i.to_string())).collect(), Durability::Lazy)
            .unwrap();
        store.verify_chain(run).unwrap();
        store.inner.db.write_transaction(Durability::Lazy, |tx| Ok(tx.execute_batch(sql)?), |_| ()).unwrap();
        match store.verify_chain(run).unwrap_err() {
            StoreError::BrokenChain { seq, why, .. } => (seq, why),
            other => panic!("{other}"),
        }
    };
    let changed =
        tampered("UPDATE journal SET record = replace(record, '\"700\"', '\"701\"') WHERE seq = 702");
    assert_eq!(changed, (703, "it does not carry the hash of the record before".into()));
    let last = tampered("UPDATE journal SET record = replace(record, 'note', 'gone') WHERE seq = 1201");
    assert_eq!(last, (1201, "its hash is not the one that was recorded".into()));
    assert_eq!(tampered("DELETE FROM journal WHERE seq = 3"), (3, "it is missing".into()));
    assert_eq!(tampered("DELETE FROM journal WHERE seq > 1000").0, 1001);
    let added = "INSERT INTO journal (run, seq, record) SELECT run, 1202, replace(record, '\"seq\":1201', '\"seq\":1202')
                 FROM journal WHERE seq = 1201";
    assert_eq!(tampered(added).0, 1202);
}

#[test]
fn a_gate_is_answered_once() {
    let store = Store::in_memory().unwrap();
    let run = new_run(&store, "w");
    let open = store.open_gate(gate(run, None)).unwrap();
    assert_eq!(store.approval_by_key(open.key).unwrap(), open);
    let typed = format!(" {}-{}!", open.id[..4].to_uppercase(), &open.id[4..]);
    assert_eq!(store.gate_by_id(&typed).unwrap(), open);
    assert_eq!(
        store.list_approvals(&GateFilter { status: Some(GateStatus::Open), ..Default::default() }).unwrap(),
        std::slice::from_ref(&open)
    );

    let answered = store.answer_gate(open.key, GateAnswer::Approved, Some("ann")).unwrap();
    assert_eq!(
        (answered.status, answered.answer.clone()),
        (GateStatus::Answered, Some(GateAnswer::Approved))
    );
    assert_eq!(store.approval_by_key(open.key).unwrap(), answered);
    let again = store.answer_gate(open.key, GateAnswer::Rejected, Some("eve")).unwrap_err();
    assert_eq!(again.to_string(), format!("{} was already answered by ann", open.id));
    assert!(matches!(store.cancel_gate(open.key, None), Err(StoreError::ConsumedGate { .. })));
    assert_eq!(
        store.list_approvals(&GateFilter { status: Some(GateStatus::Open), ..Default::default() }).unwrap(),
        []
    );

    let events: Vec<_> = store.all_events(run).unwrap().into_iter().skip(1).map(|r| r.event).collect();
    let (path, gate, binding) = ("ask".to_owned(), open.id.clone(), open.binding);
    assert_eq!(
        events,
        [
            Event::GateOpened {
                path: path.clone(),
                gate: gate.clone(),
                kind: "approval".into(),
                binding,
                question: open.question_digest,
                expires_at: None
            },
            Event::GateAnswered {
                path,
                gate,
                binding,
                answer: GateAnswer::Approved,
                by: Some("ann".into()),
                author: serde_json::Value::Null,
                from: None
            },
        ]
    );
    let forged: GateKey = "00000000-0000-4000-8000-000000000000".parse().unwrap();
    assert!(matches!(store.answer_gate(forged, GateAnswer::Approved, None), Err(StoreError::UnknownGate(_))));
    assert!(matches!(store.gate_by_id("zz"), Err(StoreError::UnknownGate(_))));
}

/// Another process executes the run meanwhile.
#[test]
fn nothing_goes_on_with_a_run_that_a_person_has_ended() {
    let store = Store::in_memory().unwrap();
    let run = new_run(&store, "w");
    let [first, second] = [(), ()].map(|()| store.open_gate(gate(run, None)).unwrap());
    store.answer_gate(first.key, GateAnswer::Approved, None).unwrap();
    let end = |status, detail| Event::RunEnded { status, output: None, error: None, detail };
    let no = end(RunStatus::Cancelled, json!({ "answer": "rejected" }));
    store.refuse_gate(second.key, Some(GateAnswer::Rejected), None, no).unwrap();
    let before = store.all_events(run).unwrap().len();
    let outcome = Arc::new(StepOutcome::new(StepStatus::Ok));
    let ended = Event::StepEnded { path: "a".into(), attempt: 1, begun: None, outcome };
    let started = Event::StepStarted {
        path: "b".into(),
        attempt: 1,
        kind: "shell".into(),
        action: None,
        effect: true,
        idempotent: false,
        decision: json!(null),
        detail: json!(null),
    };
    let going_on = [
        started,
        Event::RunPaused { detail: json!(null) },
        Event::RunResumed { by: None, detail: json!(null) },
        Event::RetryRequested { path: None, by: None, detail: json!(null) },
        end(RunStatus::Ok, json!(null)),
    ];
    for (n, event) in going_on.into_iter().enumerate() {
        // Events about begun effects are appended.
        let events = vec![ended.clone(), event, note("what became of it")];
        let refused = store.append_events(run, events, Durability::Lazy);
        assert!(
            matches!(&refused, Err(StoreError::CalledOff { how, .. }) if how == "rejected"),
            "{refused:?}"
        );
        assert_eq!(store.all_events(run).unwrap().len(), before + 2 * (n + 1));
    }
    assert!(matches!(store.open_gate(gate(run, None)), Err(StoreError::CalledOff { .. })));
    store.reopen_gate(first.key).unwrap();
    assert_eq!(store.approval_by_key(first.key).unwrap().status, GateStatus::Answered);
    assert_eq!(store.run(run).unwrap().status, RunStatus::Cancelled);
    store.verify_chain(run).unwrap();
    // A run that was ended by a signal can continue.
    let other = new_run(&store, "w");
    store
        .append_events(
            other,
            vec![end(RunStatus::Cancelled, json!({ "code": "cancelled" }))],
            Durability::Lazy,
        )
        .unwrap();
    store
        .append_events(other, vec![Event::RunResumed { by: None, detail: json!(null) }], Durability::Lazy)
        .unwrap();
    assert_eq!(store.run(other).unwrap().status, RunStatus::Running);
}

#[test]
fn an_overdue_gate_can_only_be_closed() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let run = new_run(&store, "w");
    let first = store.open_gate(gate(run, Some(1_000_100))).unwrap();
    let second = store.open_gate(gate(run, Some(1_000_100))).unwrap();
    let third = store.open_gate(gate(run, None)).unwrap();
    now.store(1_000_100, Ordering::Relaxed);
    let status = |status| {
        store.list_approvals(&GateFilter { status: Some(status), run: Some(run), limit: 0 }).unwrap().len()
    };
    assert_eq!((status(GateStatus::Open), status(GateStatus::Expired)), (1, 2));
    let late = store.answer_gate(first.key, GateAnswer::Approved, None);
    assert!(matches!(late, Err(StoreError::ExpiredGate { at: 1_000_100, .. })));
    // A clock that jumps back does not reopen an expired gate.
    now.store(0, Ordering::Relaxed);
    assert!(matches!(
        store.answer_gate(first.key, GateAnswer::Approved, None),
        Err(StoreError::ExpiredGate { .. })
    ));
    now.store(2_000_000, Ordering::Relaxed);
    let closed: Vec<_> = store.expire_gates().unwrap().into_iter().map(|g| g.id).collect();
    assert_eq!(closed, [second.id]);
    assert_eq!(store.cancel_gate(third.key, None).unwrap().status, GateStatus::Cancelled);
    store.verify_chain(run).unwrap();
}

#[test]
fn cached_outcomes_and_run_values_are_kept_while_they_should_be() {
    let (now, clock) = hand();
    let store = Store::in_memory_with(clock).unwrap();
    let action = Digest::of_bytes(b"action");
    assert_eq!(store.cached_outcome(&action, None).unwrap(), None);
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.value = json!({"z": 1, "a": [1.5, "x"]});
    store.cache_outcome(action, &outcome, Some(1000)).unwrap();
    assert_eq!(store.cached_outcome(&action, None).unwrap(), Some(outcome.clone()));
    now.store(1_001_000, Ordering::Relaxed);
    assert_eq!(store.cached_outcome(&action, None).unwrap(), None);
    store.cache_outcome(action, &outcome, None).unwrap();
    now.store(900_001_000, Ordering::Relaxed);
    assert_eq!(store.cached_outcome(&action, None).unwrap(), Some(outcome));
    // A clock that is ahead must not make outcomes look new: with a limit on age, such outcomes are ignored.
    for flush in [false, true] {
        now.store(2_000_000_000, Ordering::Relaxed);
        store.cache_outcome(action, &StepOutcome::new(StepStatus::Ok), None).unwrap();
        if flush {
            store.flush_pending().unwrap();
        }
        now.store(900_001_000, Ordering::Relaxed);
        assert!(store.cached_outcome(&action, None).unwrap().is_some());
        assert_eq!(store.cached_outcome(&action, Some(2000)).unwrap(), None);
    }

    let run = new_run(&store, "w");
    assert_eq!(store.run_value(run, "k").unwrap(), None);
    store.set_run_value(run, "k", &json!([1]), Durability::Lazy).unwrap();
    store.set_run_value(run, "k", &json!([2]), Durability::Synced).unwrap();
    assert_eq!(store.run_value(run, "k").unwrap(), Some(json!([2])));
    assert_eq!(store.run_values(run).unwrap(), [("k".to_owned(), json!([2]))].into());
}

#[test]
fn secrets_never_reach_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut redactions = Redactions::new();
    assert!(redactions.add_secret("KEY", "hunter\"2"));
    store.set_redactions(redactions);
    let blob = store.put_blob(b"log: hunter\"2 and {\"k\":\"hunter\\\"2\"}").unwrap();
    let run = new_run(&store, "pipe hunter\"2");
    store.append_events(run, vec![note("used hunter\"2")], Durability::Synced).unwrap();
    let mut asked = gate(run, None);
    asked.question = json!({"prompt": "hunter\"2?"});
    let open = store.open_gate(asked).unwrap();
    store.answer_gate(open.key, GateAnswer::Response(json!("hunter\"2")), None).unwrap();
    assert_eq!(
        store.load_blob(&blob.digest, 999).unwrap(),
        "log: «secret:KEY» and {\"k\":\"«secret:KEY»\"}".as_bytes()
    );
    store.verify_chain(run).unwrap();
    drop(store);
    for file in ["lobster.db", "lobster.db-wal"] {
        let bytes = std::fs::read(dir.path().join("store").join(file)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter"), "{file}");
    }
}

/// A login is renewed while a step runs and its output is in the middle of a blob.
#[test]
fn what_becomes_a_secret_while_a_blob_is_written_is_hidden_in_it() {
    for size in [700_000, 30] {
        for is_cut in [false, true] {
            let store = Store::in_memory().unwrap();
            let mut redactions = Redactions::new();
            assert!(redactions.add_secret("KEY", "first-token"));
            store.set_redactions(redactions.clone());
            let mut writer = store.blob_writer();
            let filling = "first-token.\n".repeat(size / 13);
            writer.write_all(filling.as_bytes()).unwrap();
            // Longer than the bytes held back so far.
            let renewed = "second".repeat(400);
            assert!(redactions.add_secret("KEY", &renewed));
            store.set_redactions(redactions);
            writer.write_all(format!("{filling}{renewed}.\n{filling}").as_bytes()).unwrap();
            let blob = if is_cut { writer.finish_cut() } else { writer.finish() }.unwrap();
            let kept = String::from_utf8(store.load_blob(&blob.digest, u64::MAX).unwrap()).unwrap();
            assert!(!kept.contains("second") && !kept.contains("first-"), "{size} {is_cut}");
            assert_eq!(kept.matches("«secret:KEY».").count(), 3 * (size / 13) + 1);
        }
    }
}

#[test]
fn secrets_are_hidden_in_large_blobs_across_writes() {
    let store = Store::in_memory().unwrap();
    let mut redactions = Redactions::new();
    assert!(redactions.add_secret("KEY", "hunter2"));
    store.set_redactions(redactions);
    let mut writer = store.blob_writer().with_limit(700_000);
    for piece in "hunter2.".repeat(80_000).as_bytes().chunks(13) {
        writer.write_all(piece).unwrap();
    }
    assert_eq!(writer.bytes_written(), 640_000);
    let blob = writer.finish().unwrap();
    assert_eq!(store.load_blob(&blob.digest, u64::MAX).unwrap(), "«secret:KEY».".repeat(80_000).as_bytes());
}

#[test]
fn one_at_a_time_executes_a_run() {
    let store = Store::in_memory().unwrap();
    let run = new_run(&store, "w");
    assert!(!store.is_claimed(run));
    let claim = store.claim_run(run).unwrap();
    assert!(store.is_claimed(run));
    assert!(matches!(store.claim_run(run), Err(StoreError::RunBusy(_))));
    drop(claim);
    assert!(!store.is_claimed(run));
    let holders = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    if let Ok(claim) = store.claim_run(run) {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(claim);
                    }
                }
            });
        }
    });
    drop(store.claim_run(run).unwrap());
    assert_eq!(std::fs::read_dir(store.dir().join("locks")).unwrap().count(), 0);
}

/// Each directory of the store is removed while a process executes the run; then another one continues it.
#[test]
fn whoever_lost_a_claim_writes_nothing_more() {
    for removed in ["locks", "blobs", "tmp", "commits", "answers", "nothing"] {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (Store::open(dir.path()).unwrap(), Store::open(dir.path()).unwrap());
        let run = new_run(&first, "w");
        let claim = first.claim_run(run).unwrap();
        first.append_events(run, vec![note("begun")], Durability::Lazy).unwrap();
        let _ = std::fs::remove_dir_all(first.dir().join(removed));
        // This process knows that it executes the run.
        assert!(matches!(first.claim_run(run), Err(StoreError::RunBusy(_))), "{removed}");
        let Ok(other) = second.claim_run(run) else {
            assert_ne!(removed, "locks");
            first.append_events(run, vec![note("goes on")], Durability::Lazy).unwrap();
            continue;
        };
        assert_eq!(removed, "locks");
        let lost =
            |done: Result<(), StoreError>| assert!(matches!(done, Err(StoreError::ClaimLost(_))), "{done:?}");
        lost(first.append_events(run, vec![note("goes on")], Durability::Synced));
        lost(first.set_run_value(run, "k", &json!(1), Durability::Lazy));
        lost(first.open_gate(gate(run, None)).map(drop));
        second.append_events(run, vec![note("goes on")], Durability::Synced).unwrap();
        // The end of the first claim leaves the second its lock.
        drop(claim);
        assert!(second.is_claimed(run));
        second.append_events(run, vec![note("goes on")], Durability::Synced).unwrap();
        assert_eq!(second.all_events(run).unwrap().len(), 4);
        drop(other);
        assert!(!second.is_claimed(run));
        drop(first.claim_run(run).unwrap());
    }
}

#[test]
fn a_claim_names_the_process_that_executes_nothing_else() {
    let store = Store::in_memory().unwrap();
    let run = new_run(&store, "w");
    let path = store.dir().join("locks").join(format!("run-{run}"));
    let claim = store.claim_run(run).unwrap();
    // This program has other tests to run.
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), store.process_of_run(run)), ("", None));
    let own = std::process::id();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let began: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let write = |pid: u32, began: u64, space: &str| {
        std::fs::write(&path, format!("{pid} {began} {space}")).unwrap();
        store.process_of_run(run)
    };
    let found = write(own, began, space.to_str().unwrap()).unwrap();
    assert!(found.pid == own && found.age().as_secs() < 86_400, "{found:?}");
    // A later process with the same number, a process of another name space, and unreadable text.
    assert_eq!(write(own, began - 1, space.to_str().unwrap()), None);
    assert_eq!(write(own, began, "pid:[1]"), None);
    std::fs::write(&path, "1").unwrap();
    assert_eq!(store.process_of_run(run), None);
    write(own, began, space.to_str().unwrap()).unwrap();
    drop(claim);
    assert_eq!(store.process_of_run(run), None);
}

#[test]
fn a_run_moves_to_another_store_unchanged() {
    let (here, there) = (Store::in_memory().unwrap(), Store::in_memory().unwrap());
    let run = new_run(&here, "w");
    let inner = here.put_blob(b"inner").unwrap();
    let outer = here.put_blob(format!("[\"{}\"]", inner.digest).as_bytes()).unwrap();
    let unnamed = here.put_blob(b"unnamed").unwrap();
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.output = Some(outer);
    let ended = Event::StepEnded { path: "a".into(), attempt: 1, begun: None, outcome: Arc::new(outcome) };
    let over =
        Event::RunEnded { status: RunStatus::Ok, output: Some(outer), error: None, detail: json!(null) };
    here.append_events(run, vec![ended, over], Durability::Lazy).unwrap();

    let blobs = here.blobs_of_run(run).unwrap();
    assert_eq!(blobs, [Blob { digest: Digest::of_bytes(b"plan"), len: 4 }, outer, inner]);
    assert!(!blobs.contains(&unnamed));
    let texts: Vec<_> = here.all_events(run).unwrap().into_iter().map(|r| r.text).collect();
    let mut forged = texts.clone();
    forged[1] = forged[1].replace("\"ok\"", "\"failed\"");
    assert!(matches!(
        there.import_run(forged, &Redacted::default()),
        Err(StoreError::BrokenChain { seq: 3, .. })
    ));
    assert!(matches!(
        there.import_run(texts[1..].to_vec(), &Redacted::default()),
        Err(StoreError::BrokenChain { seq: 1, .. })
    ));
    assert!(matches!(
        there.import_run(Vec::new(), &Redacted::default()),
        Err(StoreError::BrokenChain { seq: 1, .. })
    ));
    assert_eq!(there.list_runs(&RunFilter::default()).unwrap(), []);
    assert_eq!(there.import_run(texts.clone(), &Redacted::default()).unwrap(), run);
    assert_eq!(there.run(run).unwrap(), here.run(run).unwrap());
    there.verify_chain(run).unwrap();
    assert_eq!(there.all_events(run).unwrap(), here.all_events(run).unwrap());
    assert!(matches!(there.import_run(texts, &Redacted::default()), Err(StoreError::RunExists(_))));
}
