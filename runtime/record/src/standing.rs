//! Where a run stands, which is more than the status that its journal has.

use lobster_store::{Event, GateFilter, GateStatus, RunStatus, RunSummary, Store};
use serde_json::Value;

/// Whether a run neither ended for good nor goes on by itself: its process was killed, or it ended only to
/// ask about an effect that was cut off.
#[must_use]
pub fn is_interrupted(store: &Store, run: &RunSummary) -> bool {
    let open = GateFilter { status: Some(GateStatus::Open), run: Some(run.id), limit: 1 };
    let is_stuck = match run.status {
        RunStatus::Running => true,
        // Killed between stopping and asking, or between an answer and going on; or the question expired.
        RunStatus::Waiting => store.gates(&open).is_ok_and(|gates| gates.is_empty()),
        RunStatus::Failed => last_end(store, run).is_some_and(|detail| detail["cut_off"].is_array()),
        RunStatus::Ok | RunStatus::Cancelled => false,
    };
    is_stuck && !store.is_claimed(run.id)
}

/// What the end of a run says besides its status, if it has ended.
#[must_use]
pub fn last_end(store: &Store, run: &RunSummary) -> Option<Value> {
    for seq in (0..run.records).rev() {
        let records = store.events_after(run.id, seq, 1).ok()?;
        match records.into_iter().next()?.event {
            Event::RunEnded { detail, .. } => return Some(detail),
            event if event.run_status().is_none() => {}
            _ => return None,
        }
    }
    None
}
