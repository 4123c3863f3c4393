//! Where a run stands, which is more than the status that its journal has.

use std::collections::HashSet;

use lobster_store::{Event, RunId, RunStatus, RunSummary, Store};
use serde_json::Value;

/// Whether a run neither ended for good nor goes on by itself: its process was killed, or it ended only to
/// ask about an effect that was cut off.
#[must_use]
pub fn is_interrupted(store: &Store, run: &RunSummary) -> bool {
    !interrupted_among(store, std::slice::from_ref(run)).is_empty()
}

/// Those of these runs that are interrupted.
#[must_use]
pub fn interrupted_among(store: &Store, runs: &[RunSummary]) -> HashSet<RunId> {
    let of =
        |status| -> Vec<RunId> { runs.iter().filter(|run| run.status == status).map(|run| run.id).collect() };
    let (waiting, failed) = (of(RunStatus::Waiting), of(RunStatus::Failed));
    let mut stuck = of(RunStatus::Running);
    // Killed between stopping and asking, or between an answer and going on; or the question expired.
    if let Ok(found) = store.waiting_among(&waiting) {
        stuck.extend(waiting.into_iter().filter(|run| !found.contains(run)));
    }
    if let Ok(ends) = store.last_events_holding(&failed, "run_ended", CUT_OFF) {
        stuck.extend(ends.into_iter().filter(|(_, event)| is_cut_off(event)).map(|(run, _)| run));
    }
    stuck.retain(|run| !store.is_claimed(*run));
    stuck.into_iter().collect()
}

/// What the end of a run has that only asks about an effect that was cut off.
const CUT_OFF: &str = "cut_off";

fn is_cut_off(event: &Event) -> bool {
    matches!(event, Event::RunEnded { detail, .. } if detail[CUT_OFF].is_array())
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
