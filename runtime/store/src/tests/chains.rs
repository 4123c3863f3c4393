//! Reading a journal on from an earlier position.

use super::*;

fn read(store: &Store, run: RunId, known: ReadTo) -> (Result<ReadOn, StoreError>, Vec<u64>) {
    let mut seqs = Vec::new();
    let read = store.read_on(run, known, |record| seqs.push(record.seq));
    (read, seqs)
}

fn to(store: &Store, run: RunId, known: ReadTo) -> (ReadTo, Vec<u64>) {
    match read(store, run, known) {
        (Ok(ReadOn::To(read)), seqs) => (read, seqs),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_journal_is_read_on_from_where_it_was_read_to() {
    let store = Store::in_memory().unwrap();
    let run = new_run(&store, "w");
    let mut known = ReadTo::default();
    let mut all = Vec::new();
    // More than one page, in pieces of every size.
    for size in (0..40).chain([511, 512, 513, 600]) {
        let notes = (0..size).map(|n| note(&format!("{n}"))).collect();
        store.append_events(run, notes, Durability::Lazy).unwrap();
        let (read, seqs) = to(&store, run, known);
        all.extend(seqs);
        assert_eq!(all.len() as u64, read.last_seq());
        assert_eq!(to(&store, run, ReadTo::default()).0, read);
        known = read;
    }
    let whole: Vec<u64> = store.verified_events(run).unwrap().iter().map(|record| record.seq).collect();
    assert_eq!(all, whole);
    let some = store.events_at(run, &[3, 1, 9000]).unwrap();
    assert_eq!(some.iter().map(|record| record.seq).collect::<Vec<_>>(), [3, 1]);
    let mut found = Vec::new();
    store
        .events_holding(run, "\"text\":\"7\"", |record| {
            found.push(record.seq);
            found.len() < 3
        })
        .unwrap();
    assert!(found.len() == 3 && found.is_sorted_by(|one, other| one > other), "{found:?}");
}

#[test]
fn no_change_of_a_record_that_was_read_goes_unnoticed() {
    let changes = [
        "UPDATE journal SET record = replace(record, '\"at\"', '\"At\"') WHERE seq = ?1",
        "UPDATE journal SET record = record || ' ' WHERE seq = ?1",
        "DELETE FROM journal WHERE seq = ?1",
    ];
    for (changed, known_to, sql) in (1..=5_u64)
        .flat_map(|at| (0..=5_u64).map(move |to| (at, to)))
        .flat_map(|(at, to)| changes.map(|sql| (at, to, sql)))
    {
        let store = Store::in_memory().unwrap();
        let run = new_run(&store, "w");
        let mut known = ReadTo::default();
        for seq in 1..=5 {
            if seq > 1 {
                store.append_events(run, vec![note("the same")], Durability::Lazy).unwrap();
            }
            if seq == known_to {
                known = to(&store, run, ReadTo::default()).0;
            }
        }
        let changed = store
            .write_transaction(Durability::Lazy, |tx| Ok(tx.execute(sql, [changed.cast_signed()])?))
            .unwrap();
        assert_eq!(changed, 1);
        let (found, _) = read(&store, run, known);
        assert!(
            matches!(found, Ok(ReadOn::Other) | Err(StoreError::BrokenChain { .. })),
            "record {changed}, known to {known_to}: {sql}: {found:?}"
        );
    }
}
