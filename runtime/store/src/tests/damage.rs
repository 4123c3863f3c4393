//! Messages about a damaged store, which itself is left unchanged.

use std::fs;
use std::os::unix::fs::FileExt;

use super::processes::start_mounted;
use super::*;

/// A closed store with a run, folded into its database file.
fn closed(dir: &Path) -> RunId {
    let store = Store::open(dir).unwrap();
    let run = new_run(&store, "w");
    store.append_events(run, (0..200).map(|i| note(&format!("{i}"))).collect(), Durability::Synced).unwrap();
    store.put_blob(&[5; INLINE_MAX * 2]).unwrap();
    store.flush_pending().unwrap();
    store
        .inner
        .db
        .read_snapshot(|db| Ok(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?))
        .unwrap();
    run
}

#[test]
fn a_store_of_a_newer_version_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let store = Store::open(dir.path()).unwrap();
    store
        .inner
        .db
        .write_transaction(Durability::Lazy, |tx| Ok(tx.execute_batch("PRAGMA user_version = 7")?), |_| ())
        .unwrap();
    drop(store);
    let error = Store::open(dir.path()).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 7, supported: 1, .. }), "{error}");
}

#[test]
fn a_cut_or_foreign_database_is_damage_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let path = dir.path().join("store/lobster.db");
    let whole = fs::read(&path).unwrap();
    for len in [0, 1, 100, 5000, whole.len() / 2, whole.len() - 4096] {
        fs::write(&path, &whole[..len]).unwrap();
        let outcome = Store::open(dir.path()).and_then(|store| {
            let runs = store.list_runs(&RunFilter::default())?;
            runs.iter().try_for_each(|run| store.verify_chain(run.id))?;
            let report = store.verify()?;
            if report.problems.is_empty() { Ok(()) } else { Err(StoreError::UnknownRun(String::new())) }
        });
        match outcome {
            Err(StoreError::Damaged { path: at, .. }) => assert_eq!(at, path),
            Err(StoreError::UnknownRun(_) | StoreError::BrokenChain { .. }) => assert!(len > 4096),
            other => panic!("cut at {len}: {other:?}"),
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
    }
    fs::write(&path, "not a database, but a text put here by mistake".repeat(100)).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Damaged { .. })));
    // Restored, it is intact again.
    fs::write(&path, &whole).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().verify().unwrap().problems, []);
}

#[test]
fn a_lost_database_is_not_silently_replaced() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    fs::remove_file(dir.path().join("store/lobster.db")).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Damaged { .. })));
}

#[test]
fn unusable_directories_say_so_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for place in [Path::new("/dev/null/x"), &dir.path().join("file"), &dir.path().join("file/below")] {
        let error = Store::open(place).err().unwrap();
        assert!(matches!(error, StoreError::Unusable { .. }), "{place:?}: {error:?}");
    }
    assert!(!Path::new("/proc/nowhere").exists());
    assert!(Store::open(Path::new("/proc/nowhere")).is_err());
}

#[test]
fn verify_names_each_damage_and_nothing_else_suffers() {
    let store = Store::in_memory().unwrap();
    let [good, bad] = [new_run(&store, "good"), new_run(&store, "bad")];
    store.append_events(bad, vec![note("one"), note("two")], Durability::Lazy).unwrap();
    let named = |bytes: &[u8]| {
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        let blob = store.put_blob(bytes).unwrap();
        outcome.stdout = Some(blob);
        let event =
            Event::StepEnded { path: "a".into(), attempt: 1, begun: None, outcome: Arc::new(outcome) };
        store.append_events(good, vec![event], Durability::Lazy).unwrap();
        blob.digest
    };
    let [rotten, gone, lost] = [named(&[1; INLINE_MAX * 2]), named(&[2; INLINE_MAX * 2]), named(b"lost")];
    let rotten_path = store.blob_path(&rotten);
    fs::set_permissions(&rotten_path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::File::options().write(true).open(&rotten_path).unwrap().write_at(b"!", 70_000).unwrap();
    fs::remove_file(store.blob_path(&gone)).unwrap();
    let spoil = |tx: &Transaction<'_>| {
        tx.execute("DELETE FROM blobs WHERE digest = ?", [lost.as_bytes()])?;
        Ok(tx.execute("UPDATE journal SET record = replace(record, 'one', 'six')", [])?)
    };
    store.inner.db.write_transaction(Durability::Lazy, spoil, |_| ()).unwrap();

    let mut spoilt = vec![
        Problem::DamagedBlob {
            digest: rotten,
            place: rotten_path.display().to_string(),
            named_by: vec![format!("run {good} at a")],
        },
        Problem::MissingBlob {
            digest: gone,
            named_by: format!("the table of blobs; its file is gone, run {good} at a"),
        },
    ];
    if gone < rotten {
        spoilt.reverse();
    }
    let report = store.verify().unwrap();
    assert_eq!(
        report.problems,
        [
            Problem::MissingBlob { digest: lost, named_by: format!("run {good} at a") },
            Problem::Journal {
                run: bad,
                seq: 3,
                why: "it does not carry the hash of the record before".into()
            },
        ]
        .into_iter()
        .chain(spoilt)
        .collect::<Vec<_>>()
    );
    assert_eq!((report.runs, report.records, report.blobs), (2, 7, 1));
    store.verify_chain(good).unwrap();
    assert!(matches!(store.load_blob(&rotten, u64::MAX), Err(StoreError::DamagedBlob { .. })));
    assert_eq!(store.load_blob(&Digest::of_bytes(b"plan"), 9).unwrap(), b"plan");
}

#[test]
fn verify_holds_rows_against_journals_and_reads_the_action_cache() {
    let store = Store::in_memory().unwrap();
    let runs = ["a", "b", "c", "d"].map(|name| new_run(&store, name));
    let (action, other) = (Digest::of_bytes(b"action"), Digest::of_bytes(b"other"));
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.output = Some(store.put_blob(b"1\n").unwrap());
    store.cache_outcome(action, &outcome, None).unwrap();
    store.cache_outcome(other, &outcome, None).unwrap();
    store.flush_pending().unwrap();
    assert_eq!(store.verify().unwrap().problems, []);
    let spoil = |tx: &Transaction<'_>| {
        tx.execute_batch(
            "UPDATE runs SET status = 'ok', started = started + 1 WHERE n = 1;
             UPDATE runs SET status = 'dancing' WHERE n = 2;
             DELETE FROM runs WHERE n = 3;",
        )?;
        Ok(tx.execute("UPDATE actions SET outcome = '{}' WHERE digest = ?1", [action.as_bytes()])?)
    };
    store.inner.db.write_transaction(Durability::Lazy, spoil, |_| ()).unwrap();
    let said: Vec<String> = store.verify().unwrap().problems.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 5, "{said:#?}");
    assert_eq!(said[0], format!("run {}: its row says status \"ok\", its journal \"running\"", runs[0]));
    assert!(said[1].starts_with(&format!("run {}: its row says started ", runs[0])), "{}", said[1]);
    assert!(said[2].starts_with(&format!("run {}: its row cannot be read", runs[1])), "{}", said[2]);
    assert_eq!(said[3], format!("1 records of run {}, which is not in the list of runs", runs[2]));
    assert!(said[4].starts_with(&format!("the cached outcome of action {action}")), "{}", said[4]);
    // An unreadable outcome is unknown, and the next one replaces it.
    assert_eq!(store.cached_outcome(&action, None).unwrap(), None);
    assert_eq!(store.cached_outcome(&other, None).unwrap().as_ref(), Some(&outcome));
    store.cache_outcome(action, &outcome, None).unwrap();
    store.flush_pending().unwrap();
    assert_eq!(store.cached_outcome(&action, None).unwrap(), Some(outcome));
}

/// Run by a copy of the test on a file system of 1 MiB.
pub(super) fn on_a_full_disk(dir: &Path) {
    let store = Store::open(dir).unwrap();
    let run = new_run(&store, "w");
    let mut kept = Vec::new();
    let error = loop {
        let bytes = vec![u8::try_from(kept.len()).unwrap(); 20_000];
        let append = || {
            let blob = store.put_blob(&bytes)?;
            store.append_events(run, vec![note("kept")], Durability::Synced)?;
            Ok(blob.digest)
        };
        match append() {
            Ok(digest) => kept.push(digest),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(kept.len() > 5);
    let large = store.put_blob(&vec![7; 900_000]);
    assert!(matches!(large, Err(StoreError::Full { .. })), "{large:?}");
    let state = UserState::in_dir(dir).set("k", &json!("x".repeat(900_000)));
    assert!(matches!(state, Err(StoreError::Full { .. })), "{state:?}");
    drop(store);
    let store = Store::open(dir).unwrap();
    store.verify_chain(run).unwrap();
    assert!(kept.iter().all(|digest| store.open_blob(digest).is_ok()));
    // Once there is room again, it continues.
    fs::remove_file(dir.join("../ballast")).unwrap();
    store.append_events(run, vec![note("goes on")], Durability::Synced).unwrap();
    assert_eq!(store.verify().unwrap().problems, []);
    println!("> {error}");
}

#[test]
fn a_full_disk_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=1m none {0} && mkdir {0}/state && head -c 300000 /dev/zero > {0}/ballast",
        dir.path().display()
    );
    let state = dir.path().join("state");
    let Some(said) = start_mounted("full disk", &state, &mount) else { return };
    let place = state.join("store/lobster.db");
    let wanted = format!(
        "no space left for {}; free some space (`lobster store gc` may help) and try again",
        place.display()
    );
    assert_eq!(said, [wanted]);
}

/// Run by a copy of the test on a store that it cannot write.
pub(super) fn on_a_read_only_disk(dir: &Path) {
    let store = Store::open(dir).unwrap();
    let runs = store.list_runs(&RunFilter::default()).unwrap();
    println!("> {} run", runs.len());
    println!("> {:?}", store.verify().unwrap().problems);
    println!("> {}", store.append_events(runs[0].id, vec![note("x")], Durability::Lazy).unwrap_err());
    println!("> {:?}", UserState::in_dir(dir).get("k").unwrap());
    println!("> {}", UserState::in_dir(dir).set("k", &json!(2)).unwrap_err());
    println!("> {}", Store::open(&dir.join("new")).err().unwrap());
}

#[test]
fn a_read_only_disk_is_said_to_be_one() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    UserState::in_dir(dir.path()).set("k", &json!(1)).unwrap();
    let state = dir.path().display();
    let mount = format!("mount --bind {state} {state} && mount -o remount,bind,ro {state}");
    let Some(said) = start_mounted("read-only disk", dir.path(), &mount) else { return };
    let read_only = |path: &Path| {
        format!(
            "{} is read-only, so nothing can be recorded; make it writable or set LOBSTER_STATE_DIR to another directory",
            path.display()
        )
    };
    let store = dir.path().join("store");
    assert_eq!(
        said,
        [
            "1 run".to_owned(),
            "[]".to_owned(),
            read_only(&store.join("lobster.db")),
            "Some(Number(1))".to_owned(),
            read_only(&dir.path().join("k.json")),
            read_only(&dir.path().join("new/store")),
        ]
    );
    assert_eq!(Store::open(dir.path()).unwrap().verify().unwrap().problems, []);
}

/// A run whose records name a damaged blob only through others is listed with it, and so is each of many runs.
#[test]
fn verify_names_all_runs_that_need_a_damaged_blob() {
    let store = Store::in_memory().unwrap();
    let deep = store.put_blob(&[7; INLINE_MAX * 2]).unwrap().digest;
    let middle = store.put_blob(format!(r#"{{"stdin":"{deep}"}}"#).as_bytes()).unwrap().digest;
    let top = store.put_blob(format!(r#"["blake3:{middle}"]"#).as_bytes()).unwrap();
    let runs: Vec<RunId> = (0..9).map(|n| new_run(&store, &format!("run {n}"))).collect();
    for run in &runs[1..] {
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.stdout = Some(top);
        let event =
            Event::StepEnded { path: "a".into(), attempt: 1, begun: None, outcome: Arc::new(outcome) };
        store.append_events(*run, vec![event], Durability::Lazy).unwrap();
    }
    let path = store.blob_path(&deep);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().write_at(b"!", 70_000).unwrap();
    let report = store.verify().unwrap();
    let [problem @ Problem::DamagedBlob { digest, named_by, .. }] = &report.problems[..] else {
        panic!("{report:?}");
    };
    assert_eq!(*digest, deep);
    let mut expected: Vec<String> = runs[1..].iter().map(|run| format!("run {run} at a")).collect();
    expected.sort();
    assert_eq!(*named_by, expected);
    let line = problem.to_string();
    assert!(line.contains(&expected[4]) && !line.contains(&expected[5]), "{line}");
    assert!(line.ends_with(" and 3 more (--json names them)"), "{line}");
}
