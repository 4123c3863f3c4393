//! Requests of people to a run that no execution has handled yet: answers to its questions, and retries. The
//! process that continues the run finds them here, even if another process recorded them.

use lobster_engine::Interrupted;
use lobster_engine::envelope::Failure;
use lobster_store::{Event, Gate, Record, RunId, Store, StoreError};
use serde_json::{Value, json};

/// Field of a retry's detail that determines the treatment of interrupted effects.
const INTERRUPTED: &str = "interrupted";

/// The detail of a retry with this treatment.
pub(crate) fn detail_of_retry(interrupted: Interrupted) -> Value {
    match interrupted {
        Interrupted::Ask => Value::Null,
        Interrupted::Retry => json!({ INTERRUPTED: "retry" }),
        Interrupted::RetryAnyway => json!({ INTERRUPTED: "retry_anyway" }),
        Interrupted::Skip => json!({ INTERRUPTED: "skip" }),
    }
}

/// The treatment in a retry that a person requested and no process has begun. It applies only to that
/// execution.
pub(crate) fn requested_retry(store: &Store, run: RunId) -> Result<Option<Interrupted>, Failure> {
    let last = store.events_after(run, store.run(run)?.records.saturating_sub(1), 1)?;
    // Requests from before an import do not apply here.
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

/// The gates whose answers no execution has used yet.
pub(crate) fn unused_answers(store: &Store, journal: &[Record]) -> Result<Vec<Gate>, Failure> {
    let mut gates = Vec::new();
    for record in journal.iter().rev() {
        match &record.event {
            Event::RunStarted { .. } | Event::RunResumed { .. } | Event::RunEnded { .. } => break,
            Event::GateAnswered { gate, from: None, .. } => match store.gate_by_id(gate) {
                Ok(gate) if gate.run == record.run => gates.push(gate),
                // A record from another store may name any gate.
                Ok(_) => {}
                // The answer to a question at a terminal.
                Err(StoreError::UnknownGate(_)) => {}
                Err(error) => return Err(error.into()),
            },
            _ => {}
        }
    }
    Ok(gates)
}
