//! What a person is told when the store is not what it should be, and that it is left alone.

use std::fs;
use std::os::unix::fs::FileExt;

use super::*;

/// A closed store with a run, folded into its database file.
fn closed(dir: &Path) -> RunId {
    let store = Store::open(dir).unwrap();
    let run = new_run(&store, "w");
    store.append(run, (0..200).map(|i| note(&format!("{i}"))).collect(), Durability::Synced).unwrap();
    store.put(&[5; INLINE_MAX * 2]).unwrap();
    store.flush().unwrap();
    store.inner.db.read(|db| Ok(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)).unwrap();
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
        .write(Durability::Lazy, |tx| Ok(tx.execute_batch("PRAGMA user_version = 7")?), || ())
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
            let runs = store.runs(&RunFilter::default())?;
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
    fs::write(&path, "not a database, but a text that somebody put here".repeat(100)).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Damaged { .. })));
    // Put back, it is whole again.
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
    store.append(bad, vec![note("one"), note("two")], Durability::Lazy).unwrap();
    let named = |bytes: &[u8]| {
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        let blob = store.put(bytes).unwrap();
        outcome.stdout = Some(blob);
        let event = Event::StepEnded { path: "a".into(), attempt: 1, outcome: Box::new(outcome) };
        store.append(good, vec![event], Durability::Lazy).unwrap();
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
    store.inner.db.write(Durability::Lazy, spoil, || ()).unwrap();

    let report = store.verify().unwrap();
    assert_eq!(
        report.problems,
        [
            Problem::MissingBlob { digest: lost, named_by: format!("run {good}") },
            Problem::Journal {
                run: bad,
                seq: 3,
                why: "it does not carry the hash of the record before".into()
            },
            Problem::DamagedBlob { digest: rotten, place: rotten_path.display().to_string() },
            Problem::MissingBlob { digest: gone, named_by: "the table of blobs; its file is gone".into() },
        ]
    );
    assert_eq!((report.runs, report.records, report.blobs), (2, 7, 1));
    store.verify_chain(good).unwrap();
    assert!(matches!(store.load(&rotten, u64::MAX), Err(StoreError::DamagedBlob { .. })));
    assert_eq!(store.load(&Digest::of(b"plan"), 9).unwrap(), b"plan");
}
