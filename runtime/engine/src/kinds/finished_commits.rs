//! Records the end of a commit in its run, if a crash interrupted the commit and another command finished it. So the
//! commit can be shown and undone, even if the run never resumes.

use std::io;
use std::sync::Arc;

use lobster_base::digest::Digest;
use lobster_changes::{ChangeSet, Recovered, find_conflicts};
use lobster_store::{Durability, Event, Record, RunId, StepOutcome, StepStatus, Store, StoreError};
use serde_json::{Value, json};

use lobster_executor::change_sets::{CHANGES, COMMIT, load_change_set};

/// Most bytes of a commit's action; it has only a few words.
const MAX_ACTION: u64 = 1 << 20;

/// The id of a commit by this run at this path. The id contains the run, so that a journal of a commit leads to it.
pub(super) fn commit_id(run: RunId, path: &str) -> String {
    format!("{run}-{}", Digest::of_bytes(path.as_bytes()).short())
}

/// A commit whose record has a beginning and no success.
struct Begun {
    path: String,
    attempt: u32,
    set: Digest,
}

/// Records the end of a commit in its run.
///
/// # Errors
/// If the end cannot be recorded; the journal of the commit is then kept.
pub fn tell_owner(store: &Store, finished: &Recovered) -> io::Result<()> {
    let run = finished.id.rsplit_once('-').and_then(|(run, _)| run.parse::<RunId>().ok());
    let Some(run) = run.filter(|_| finished.committed) else { return Ok(()) };
    record_ends(store, run, |begun, _| commit_id(run, &begun.path) == finished.id).map_err(io::Error::other)
}

/// Records the end of each commit whose run was killed after the last file was changed and before the end was
/// recorded: the files are as the commit would leave them.
///
/// # Errors
/// If an end cannot be recorded.
pub fn record_unseen_ends(store: &Store, run: RunId) -> Result<(), StoreError> {
    record_ends(store, run, |_, set| {
        let fits = |set: &ChangeSet| find_conflicts(set).is_ok_and(|found| found.is_empty());
        !set.is_empty() && fits(&set.inverse()) && !fits(set)
    })
}

fn record_ends(
    store: &Store,
    run: RunId,
    is_done: impl Fn(&Begun, &ChangeSet) -> bool,
) -> Result<(), StoreError> {
    match store.run(run) {
        Err(StoreError::UnknownRun(_)) => return Ok(()),
        found => found?,
    };
    if begun_commits(store, &own_events(store, run)?).is_empty() {
        return Ok(());
    }
    // The process that executes the run commits again, finds the work done and records that.
    let Ok(_claim) = store.claim_run(run) else { return Ok(()) };
    let journal = own_events(store, run)?;
    for begun in begun_commits(store, &journal) {
        // Without its change set the commit could be neither shown nor undone.
        let Ok(set) = load_change_set(store, &begun.set) else { continue };
        if !is_done(&begun, &set) {
            continue;
        }
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.value = json!({ "committed": begun.set, "files": set.changes().count() });
        let steps = steps_together(store, &journal, &begun, &set);
        if !steps.is_empty() {
            outcome.value["steps"] = json!(steps);
        }
        let Begun { path, attempt, .. } = begun;
        let event = Event::StepEnded { path, attempt, begun: None, outcome: Arc::new(outcome) };
        store.append_events(run, vec![event], Durability::Synced)?;
    }
    Ok(())
}

/// The records of a run that this store wrote: a commit that began elsewhere has not ended here.
fn own_events(store: &Store, run: RunId) -> Result<Vec<Record>, StoreError> {
    store.events_after(run, store.imported_records(run)?.unwrap_or_default(), usize::MAX)
}

/// The commits that began, without those that succeeded.
fn begun_commits(store: &Store, journal: &[Record]) -> Vec<Begun> {
    let mut found: Vec<Begun> = Vec::new();
    for record in journal {
        match &record.event {
            Event::StepStarted { path, attempt, kind, action: Some(action), .. } if kind == COMMIT => {
                found.retain(|begun| begun.path != *path);
                let set = store
                    .load_blob(action, MAX_ACTION)
                    .ok()
                    .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
                    .and_then(|action| action.get(CHANGES)?.as_str()?.parse().ok());
                found.extend(set.map(|set| Begun { path: path.clone(), attempt: *attempt, set }));
            }
            Event::StepEnded { path, outcome, .. } if outcome.status == StepStatus::Ok => {
                found.retain(|begun| begun.path != *path);
            }
            _ => {}
        }
    }
    found
}

/// The steps whose changes were committed together, as the end of the commit names them. Empty for a single step, or
/// if a person chose other changes.
fn steps_together(store: &Store, journal: &[Record], begun: &Begun, set: &ChangeSet) -> Vec<String> {
    let mut parts: Vec<(String, Digest)> = Vec::new();
    for record in journal {
        let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
        let digest = outcome.detail.get(CHANGES).and_then(|blob| blob.get("digest")?.as_str()?.parse().ok());
        if let Some(digest) = digest {
            parts.retain(|(known, _)| known != path);
            parts.push((path.clone(), digest));
        }
    }
    if parts.iter().any(|(_, digest)| *digest == begun.set) {
        return Vec::new();
    }
    let sets: Option<Vec<ChangeSet>> =
        parts.iter().map(|(_, digest)| load_change_set(store, digest).ok()).collect();
    let Some(sets) = sets else { return Vec::new() };
    // Changes before these steps had been committed before.
    let sums_up = |first: &usize| ChangeSet::compose(&sets[*first..].iter().collect::<Vec<_>>()) == *set;
    let first = (0..sets.len().saturating_sub(1)).rev().find(sums_up);
    first.map_or_else(Vec::new, |first| parts.drain(first..).map(|(path, _)| path).collect())
}
