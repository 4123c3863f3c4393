//! What people have said to a run that no execution of it has seen yet: answers to its questions, and that it is to be
//! tried again. Whoever goes on with the run finds it here, though another process has written it down.

use lobster_engine::Interrupted;
use lobster_engine::envelope::Failure;
use lobster_store::{Event, Gate, Record, RunId, Store, StoreError};
use serde_json::{Value, json};

/// The field of a retry's detail that says what becomes of interrupted effects.
const INTERRUPTED: &str = "interrupted";

/// The detail of a retry that says so.
pub(crate) fn detail_of_retry(interrupted: Interrupted) -> Value {
    match interrupted {
        Interrupted::Ask => Value::Null,
        Interrupted::Retry => json!({ INTERRUPTED: "retry" }),
        Interrupted::RetryAnyway => json!({ INTERRUPTED: "retry_anyway" }),
        Interrupted::Skip => json!({ INTERRUPTED: "skip" }),
    }
}

/// What the retry says that a person wants and nobody has begun. It holds for that execution alone.
pub(crate) fn requested_retry(store: &Store, run: RunId) -> Result<Option<Interrupted>, Failure> {
    let last = store.events_after(run, store.run(run)?.records.saturating_sub(1), 1)?;
    // What was wanted elsewhere is not wanted here.
    let imported = store.imported_records(run)?.unwrap_or_default();
    Ok(last.last().filter(|record| record.seq > imported).and_then(|record| match &record.event {
        Event::RetryRequested { detail, .. } => Some(match detail[INTERRUPTED].as_str() {
            Some("retry") => Interrupted::Retry,
            Some("retry_anyway") => Interrupted::RetryAnyway,
            Some("skip") => Interrupted::Skip,
            _ => Interrupted::Ask,
        }),
        _ => None,
    }))
}

/// The gates whose answers no execution has seen yet.
pub(crate) fn unused_answers(store: &Store, journal: &[Record]) -> Result<Vec<Gate>, Failure> {
    let mut gates = Vec::new();
    for record in journal.iter().rev() {
        match &record.event {
            Event::RunStarted { .. } | Event::RunResumed { .. } | Event::RunEnded { .. } => break,
            Event::GateAnswered { gate, from: None, .. } => match store.gate_by_id(gate) {
                Ok(gate) if gate.run == record.run => gates.push(gate),
                // A record from elsewhere may name anything.
                Ok(_) => {}
                // Of a question at a terminal.
                Err(StoreError::UnknownGate(_)) => {}
                Err(error) => return Err(error.into()),
            },
            _ => {}
        }
    }
    Ok(gates)
}
