//! State of a run, which is more than the status in its journal.

use std::collections::{HashMap, HashSet};

use lobster_store::{
    CUT_OFF, Event, ListedStart, RunFilter, RunId, RunStatus, RunSummary, StartState, Store, StoreError,
    is_interrupted_end,
};
use serde_json::Value;

lobster_store::words! {
    /// State of a run as shown everywhere: at the command line, in the console, over HTTP and over MCP.
    Standing {
        /// A process is executing it.
        Running = "running",
        /// It waits for a person, a time or an event.
        Waiting = "waiting",
        /// It has not ended for good, but does not continue by itself: its process was killed, a signal or a lost
        /// client stopped it, or it ended only to ask about an interrupted effect.
        Interrupted = "interrupted",
        /// The service was asked to cancel it, and has not ended it yet.
        Cancelling = "cancelling",
        Ok = "ok",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl Standing {
    /// Statuses in the journals of such runs.
    fn recorded_statuses(self) -> &'static [RunStatus] {
        match self {
            Self::Running => &[RunStatus::Running],
            Self::Waiting => &[RunStatus::Waiting],
            Self::Interrupted | Self::Cancelling => {
                &[RunStatus::Running, RunStatus::Waiting, RunStatus::Failed]
            }
            Self::Ok => &[RunStatus::Ok],
            Self::Failed => &[RunStatus::Failed],
            Self::Cancelled => &[RunStatus::Cancelled],
        }
    }
}

impl From<RunStatus> for Standing {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Running => Self::Running,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Ok => Self::Ok,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// States of several runs, read at once.
pub struct Standings {
    interrupted: HashSet<RunId>,
    cancelling: HashSet<RunId>,
}

impl Standings {
    /// Reads the states of these runs.
    #[must_use]
    pub fn of_runs(store: &Store, runs: &[RunSummary]) -> Self {
        let open = runs.iter().filter(|run| !matches!(run.status, RunStatus::Ok | RunStatus::Cancelled));
        let mut starts = starts_among(store, &open.map(|run| run.id).collect::<Vec<_>>());
        starts.retain(|_, start| !start.state.is_over());
        let interrupted = interrupted_among(store, runs, &starts);
        starts.retain(|_, start| start.is_cancelled);
        Self { interrupted, cancelling: starts.into_keys().collect() }
    }

    /// State of a run among these.
    #[must_use]
    pub fn standing(&self, run: &RunSummary) -> Standing {
        if self.cancelling.contains(&run.id) {
            Standing::Cancelling
        } else if self.interrupted.contains(&run.id) {
            Standing::Interrupted
        } else {
            run.status.into()
        }
    }
}

/// State of a run.
#[must_use]
pub fn read_standing(store: &Store, run: &RunSummary) -> Standing {
    Standings::of_runs(store, std::slice::from_ref(run)).standing(run)
}

/// Runs that are read at once.
const PAGE: usize = 100;

/// The runs that match the filter and the `wanted` state, with their states, the newest first.
///
/// # Errors
/// If the store cannot be read.
pub fn runs_with_standing(
    store: &Store,
    filter: &RunFilter,
    wanted: Option<Standing>,
) -> Result<Vec<(RunSummary, Standing)>, StoreError> {
    let and_standing = |runs: Vec<RunSummary>| {
        let standings = Standings::of_runs(store, &runs);
        runs.into_iter().map(move |run| {
            let standing = standings.standing(&run);
            (run, standing)
        })
    };
    let Some(wanted) = wanted else { return Ok(and_standing(store.list_runs(filter)?).collect()) };
    let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
    let mut found = Vec::new();
    for recorded in wanted.recorded_statuses() {
        let enough = limit.saturating_add(found.len());
        let mut page = RunFilter { status: Some(*recorded), limit: PAGE, ..filter.clone() };
        loop {
            let runs = store.list_runs(&page)?;
            page.before = runs.last().map(|run| run.id).filter(|_| runs.len() == PAGE);
            found.extend(and_standing(runs).filter(|(_, standing)| *standing == wanted));
            if page.before.is_none() || found.len() >= enough {
                break;
            }
        }
    }
    found.sort_by_key(|(run, _)| std::cmp::Reverse((run.started_at, run.id)));
    found.truncate(limit);
    Ok(found)
}

/// The interrupted runs among these. `starts` has the starts of the service that are not over.
fn interrupted_among(
    store: &Store,
    runs: &[RunSummary],
    starts: &HashMap<RunId, ListedStart>,
) -> HashSet<RunId> {
    let of =
        |status| -> Vec<RunId> { runs.iter().filter(|run| run.status == status).map(|run| run.id).collect() };
    let (waiting, failed) = (of(RunStatus::Waiting), of(RunStatus::Failed));
    let mut stuck = of(RunStatus::Running);
    // Killed between stopping and asking, or between an answer and continuing; or the question expired.
    if let Ok(found) = store.waiting_among(&waiting) {
        // An answered run may be waiting in the service's queue.
        let has_turn = |run: &RunId| starts.get(run).is_some_and(|start| start.state != StartState::Parked);
        stuck.extend(waiting.into_iter().filter(|run| !found.contains(run) && !has_turn(run)));
    }
    stuck.retain(|run| !store.is_claimed(*run));
    // Its process may still be about to end.
    if let Ok(ends) = store.last_events_holding(&failed, "run_ended", CUT_OFF) {
        stuck.extend(ends.into_iter().filter(|(_, event)| is_cut_off(event)).map(|(run, _)| run));
    }
    stuck.into_iter().collect()
}

/// Starts of these runs by a service, if it started them.
fn starts_among(store: &Store, runs: &[RunId]) -> HashMap<RunId, ListedStart> {
    if runs.is_empty() {
        return HashMap::new();
    }
    let service = store.existing_service().ok().flatten();
    service.and_then(|service| service.starts_of(runs).ok()).unwrap_or_default()
}

fn is_cut_off(event: &Event) -> bool {
    matches!(event, Event::RunEnded { detail, .. } if is_interrupted_end(detail))
}

/// Detail of a run's end, if it has ended.
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
