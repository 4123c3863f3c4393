//! File changes of the steps of a run, and their undo.
//!
//! Only staged changes (`changes: staged` or `review`) are recorded. An undo is a separate run with one step,
//! which commits the inverse of all changes that the other run committed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lobster_base::digest::Digest;
use lobster_base::place::is_within;
use lobster_changes::{ChangeSet, CommitError, NotChanged, Resolution, find_conflicts};
use lobster_engine::envelope::Failure;
use lobster_engine::kinds::changes::{load_change_set, recover_commits, resolve_conflicts};
use lobster_engine::kinds::finished_commits::record_unseen_ends;
use lobster_engine::runtime::{Planned, Runtime};
use lobster_language::plan::{Extras, Plan, Span, Step, Work, Workflow};
use lobster_stage::{StageError, Stop};
use lobster_store::{Event, Record, RunId, StepStatus, Store, StoreError};
use serde_json::Value;

use crate::step_undos::{NotProposed, StepUndo, StepUndos, name_of_undo, step_undos};

/// File changes of one step.
#[derive(Clone, Debug)]
pub struct StepChanges {
    /// Place of the step in the run.
    pub step: String,
    /// Digest of the change set.
    pub digest: Digest,
    /// The change set.
    pub set: ChangeSet,
    /// True if it was committed; otherwise no file was changed.
    pub committed: bool,
}

/// An effect that no change set covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherEffect {
    /// Place in the run.
    pub step: String,
    /// Kind of effect: `native`, `component`, `http` …
    pub kind: String,
}

/// Scope of an undo.
#[derive(Clone, Debug)]
pub struct WhatToUndo {
    /// The run.
    pub run: RunId,
    /// Only this step and what is inside it.
    pub step: Option<String>,
    /// Only paths at or below these places; empty means all.
    pub only: Vec<PathBuf>,
    /// Treatment of files that have changed since. Without it, such files prevent the undo.
    pub conflicts: Option<Resolution>,
}

/// Plan of a run that undoes another one.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Change set that undoes all file changes at once.
    pub set: ChangeSet,
    /// One sentence for each file that has changed since the run. With any conflict, nothing can be undone.
    pub conflicts: Vec<String>,
    /// Undos of steps, each after an approval; the last step first.
    pub steps: Vec<StepUndo>,
    /// Undos of steps that cannot be proposed.
    pub not_proposed: Vec<NotProposed>,
    /// Other effects of the run, which cannot be undone.
    pub others: Vec<OtherEffect>,
    /// The run that performs the undo.
    pub planned: Planned,
}

/// Reason why a run cannot be undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// It did nothing that can be undone.
    #[error(
        "{what} committed no changes to files; only steps with `changes: staged` or `review`, or with an `undo:`, can be \
         undone"
    )]
    Nothing {
        /// The run or its step.
        what: String,
    },
    /// It has been undone already.
    #[error("{what} is undone already")]
    Done {
        /// The run or its step.
        what: String,
    },
    /// Another undo of it has not ended.
    #[error(
        "run {by} is undoing {what} and has not ended: `lobster approvals` shows its question, `lobster resume {by}` \
         continues it if it was interrupted"
    )]
    Underway {
        /// The run or its step.
        what: String,
        /// The run that undoes it.
        by: String,
    },
    /// A step's undo cannot be run.
    #[error("step {step} cannot be undone: {why}")]
    NotProposed {
        /// The step.
        step: String,
        /// The reason.
        why: String,
    },
    /// Its record is damaged.
    #[error(
        "{broken}; nothing is undone, because the record may be incomplete. `lobster show {run}` shows what is left; \
         restore the store from a backup"
    )]
    Damaged {
        /// The run.
        run: String,
        /// The damage.
        broken: StoreError,
    },
    /// It was executed in another store.
    #[error(
        "{what} was imported: its record describes changes where it ran, not here, so nothing is undone here. \
         Undo it there (`lobster undo {run}`), or revert by hand the changes in `lobster changes {run} --patch`"
    )]
    Elsewhere {
        /// The run or its step.
        what: String,
        /// The run.
        run: String,
    },
    /// Nothing is left to undo.
    #[error("nothing of {what} is left to undo: all of its files changed since and are kept")]
    Kept {
        /// The run or its step.
        what: String,
    },
    /// It changed nothing at a requested place.
    #[error("{what}: {error}")]
    NotChanged {
        /// The run or its step.
        what: String,
        /// The place.
        error: NotChanged,
    },
    /// Contents are missing from the store.
    #[error("{what} cannot be undone: the contents of {missing} of its files are no longer in the store")]
    Gone {
        /// The run or its step.
        what: String,
        /// Number of missing contents.
        missing: usize,
    },
    /// A change set cannot be read.
    #[error(transparent)]
    Changes(#[from] StageError),
    /// Files cannot be compared, or an interrupted commit cannot be finished.
    #[error(transparent)]
    Files(#[from] CommitError),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The undo's own run cannot be recorded.
    #[error("the undo cannot be recorded: {0}")]
    Record(#[from] serde_json::Error),
}

impl UndoError {
    /// True if no files are left to undo, but steps may still be undone.
    fn is_nothing_left(&self) -> bool {
        matches!(self, Self::Nothing { .. } | Self::Done { .. } | Self::Kept { .. })
    }
}

impl From<Stop> for UndoError {
    fn from(stop: Stop) -> Self {
        Self::Changes(match stop {
            Stop::Failed(error) => error,
            Stop::Cancelled | Stop::Paused | Stop::Interrupted => {
                StageError::permanent("the record cannot be read")
            }
        })
    }
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Self {
        match error {
            UndoError::Store(error) => error.into(),
            other => Self::parse_error(other.to_string()),
        }
    }
}

/// Suffix of the place of a commit; see the engine's paths.
pub(crate) const SUFFIX: &str = "!changes";

/// File changes of the steps of a run, in order.
///
/// # Errors
/// If the journal or a change set cannot be read.
pub fn changes_of_run(store: &Store, run: RunId) -> Result<Vec<StepChanges>, UndoError> {
    changes_in(store, &store.verified_events(run)?)
}

/// True if a record describes file changes of a step.
#[must_use]
pub fn tells_changes(record: &Record) -> bool {
    match &record.event {
        Event::StepEnded { path, outcome, .. } => {
            path.ends_with(SUFFIX) || outcome.detail.get("changes").is_some()
        }
        _ => false,
    }
}

/// File changes of the steps, from the records for which [`tells_changes`] is true.
///
/// # Errors
/// If a change set cannot be read.
pub fn changes_in(store: &Store, journal: &[Record]) -> Result<Vec<StepChanges>, UndoError> {
    let mut found: Vec<(String, Digest, bool)> = Vec::new();
    let mut together: Vec<(Vec<String>, Digest)> = Vec::new();
    for record in journal {
        let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
        let read = |value: Option<&Value>| value.and_then(Value::as_str)?.parse::<Digest>().ok();
        if let Some(step) = path.strip_suffix(SUFFIX) {
            let committed = read(outcome.value.get("committed")).filter(|_| outcome.status == StepStatus::Ok);
            let Some(digest) = committed else { continue };
            let steps: Vec<String> =
                serde_json::from_value(outcome.value["steps"].clone()).unwrap_or_default();
            if steps.len() > 1 {
                together.push((steps, digest));
                continue;
            }
            found.retain(|(known, ..)| known != step);
            found.push((step.to_owned(), digest, true));
        } else if let Some(digest) = read(outcome.detail.get("changes").and_then(|blob| blob.get("digest"))) {
            found.retain(|(known, ..)| known != path);
            found.push((path.clone(), digest, false));
        }
    }
    let read = |(step, digest, committed)| {
        let set = load_change_set(store, &digest)?;
        Ok(StepChanges { step, digest, set, committed })
    };
    let mut all = found.into_iter().map(read).collect::<Result<Vec<StepChanges>, UndoError>>()?;
    for (steps, digest) in together {
        mark_committed(store, &mut all, &steps, digest)?;
    }
    Ok(all)
}

/// Handles the changes of several steps that were committed as one. If the change set equals all parts
/// together, each step committed its part. Otherwise a person made a selection, and it is assigned to the
/// last step.
fn mark_committed(
    store: &Store,
    all: &mut Vec<StepChanges>,
    steps: &[String],
    digest: Digest,
) -> Result<(), UndoError> {
    let set = load_change_set(store, &digest)?;
    let parts: Vec<&ChangeSet> =
        all.iter().filter(|part| steps.contains(&part.step)).map(|part| &part.set).collect();
    if ChangeSet::compose(&parts) == set {
        all.iter_mut().filter(|part| steps.contains(&part.step)).for_each(|part| part.committed = true);
    } else if let Some(last) = steps.last() {
        all.retain(|part| part.step != *last);
        all.push(StepChanges { step: last.clone(), digest, set, committed: true });
    }
    Ok(())
}

/// Prepares the run that undoes another one, or one step of it. Changes nothing yet.
///
/// # Errors
/// If there is nothing to undo, or its contents are missing.
pub fn plan_undo(runtime: &Runtime, wanted: &WhatToUndo) -> Result<Undo, UndoError> {
    let (run, step) = (wanted.run, wanted.step.as_deref());
    let store = runtime.store()?;
    // Checked before anything is added to the record, and again afterwards.
    sound_record(&store, run)?;
    recover_commits(&store)?;
    record_unseen_ends(&store, run)?;
    let is_meant = |path: &str| step.is_none_or(|step| is_within(path, step));
    let what = step.map_or_else(
        || format!("run {}", run.short_id()),
        |step| format!("step {step} of run {}", run.short_id()),
    );
    let journal = sound_record(&store, run)?;
    // Records from another store describe changes there, so they cause no changes here.
    let imported = store.imported_records(run)?;
    let (elsewhere, journal) = match imported {
        Some(count) => {
            journal.split_at(usize::try_from(count).map_or(journal.len(), |n| n.min(journal.len())))
        }
        None => journal.split_at(0),
    };
    let not_here = effects_elsewhere(elsewhere, &is_meant);
    let mut committed = changes_in(&store, journal)?;
    committed.retain(|changes| changes.committed && is_meant(&changes.step) && !changes.set.is_empty());
    // An undo of certain paths undoes nothing else.
    let undos = match wanted.only.is_empty() {
        true => step_undos(&store, run, journal, &is_meant)?,
        false => StepUndos::default(),
    };
    let files = match files_to_undo(&store, wanted, &what, &committed) {
        Err(error) if error.is_nothing_left() => match undos.proposed.is_empty() {
            false => None,
            true if imported.is_some() && undos.done.is_empty() => {
                return Err(UndoError::Elsewhere { what, run: run.short_id().to_string() });
            }
            true => return Err(without_files(error, &undos, what)),
        },
        files => Some(files?),
    };
    if let (Some(by), false) = (&undos.underway, undos.proposed.is_empty()) {
        return Err(UndoError::Underway { what, by: by.short_id().to_string() });
    }
    let name = name_of_undo(&store.run(run)?.name);
    let mut others = other_effects(journal, &committed, &is_meant);
    others.retain(|other| {
        let is_covered = |place: &str| is_within(&other.step, place);
        !undos.done.iter().any(|place| is_covered(place))
            && !undos.proposed.iter().any(|undo| is_covered(&undo.step))
            && !undos.not_proposed.iter().any(|undo| is_covered(&undo.step))
    });
    let (set, conflicts, blob) = match files {
        Some(files) => (files.set, files.conflicts, Some(files.blob)),
        None => (ChangeSet::compose(&[]), Vec::new(), None),
    };
    Ok(Undo {
        others,
        conflicts,
        planned: plan_undo_run(&name, run, blob, &undos.proposed),
        set,
        steps: undos.proposed,
        not_proposed: undos.not_proposed.into_iter().chain(not_here).collect(),
    })
}

/// The journal of a run to undo, if its chain is intact.
fn sound_record(store: &Store, run: RunId) -> Result<Vec<Record>, UndoError> {
    store.verified_events(run).map_err(|error| match error {
        broken @ StoreError::BrokenChain { .. } => {
            UndoError::Damaged { run: run.short_id().to_string(), broken }
        }
        other => other.into(),
    })
}

/// The effects of an imported run before its import.
fn effects_elsewhere(journal: &[Record], is_meant: &dyn Fn(&str) -> bool) -> Vec<NotProposed> {
    let why = "it was executed before the run was imported";
    let mut found: Vec<NotProposed> = Vec::new();
    for record in journal {
        if let Event::StepStarted { path, effect: true, .. } = &record.event
            && is_meant(path)
            && !path.ends_with(SUFFIX)
            && !found.iter().any(|known| known.step == *path)
        {
            found.push(NotProposed { step: path.clone(), why: why.to_owned() });
        }
    }
    found
}

/// Reason why there is nothing to do if no files are to be undone.
fn without_files(error: UndoError, undos: &StepUndos, what: String) -> UndoError {
    match undos.not_proposed.first() {
        Some(NotProposed { step, why }) => UndoError::NotProposed { step: step.clone(), why: why.clone() },
        None if !undos.done.is_empty() => UndoError::Done { what },
        None => error,
    }
}

/// File changes of an undo.
struct FilesToUndo {
    set: ChangeSet,
    blob: Digest,
    conflicts: Vec<String>,
}

fn files_to_undo(
    store: &Store,
    wanted: &WhatToUndo,
    what: &str,
    committed: &[StepChanges],
) -> Result<FilesToUndo, UndoError> {
    let what = || what.to_owned();
    if committed.is_empty() {
        return Err(UndoError::Nothing { what: what() });
    }
    let sets: Vec<&ChangeSet> = committed.iter().map(|changes| &changes.set).collect();
    let mut done = ChangeSet::compose(&sets);
    if !wanted.only.is_empty() {
        done = done.only_at(&wanted.only).map_err(|error| UndoError::NotChanged { what: what(), error })?;
    }
    let mut set = done.inverse();
    if set.is_empty() {
        return Err(UndoError::Done { what: what() });
    }
    let missing =
        set.content_digests().iter().filter(|digest| !matches!(store.blob_len(digest), Ok(Some(_)))).count();
    if missing > 0 {
        return Err(UndoError::Gone { what: what(), missing });
    }
    let mut found = find_conflicts(&set)?;
    if !found.is_empty() && find_conflicts(&done)?.is_empty() {
        return Err(UndoError::Done { what: what() });
    }
    let mut blob = store.put_verbatim(&serde_json::to_vec(&set)?)?.digest;
    if let Some(how) = wanted.conflicts.filter(|_| !found.is_empty()) {
        blob = resolve_conflicts(store, &blob, how)?;
        set = load_change_set(store, &blob)?;
        found = find_conflicts(&set)?;
        if set.is_empty() {
            return Err(UndoError::Kept { what: what() });
        }
    }
    Ok(FilesToUndo { conflicts: found.iter().map(ToString::to_string).collect(), set, blob })
}

fn other_effects(
    journal: &[Record],
    committed: &[StepChanges],
    is_meant: &dyn Fn(&str) -> bool,
) -> Vec<OtherEffect> {
    let covered: BTreeMap<&str, ()> = committed.iter().map(|changes| (changes.step.as_str(), ())).collect();
    let mut others = Vec::new();
    for record in journal {
        if let Event::StepStarted { path, kind, effect: true, .. } = &record.event
            && is_meant(path)
            && !path.ends_with(SUFFIX)
            && !covered.contains_key(path.as_str())
        {
            others.push(OtherEffect { step: path.clone(), kind: kind.clone() });
        }
    }
    others
}

/// A run that commits a change set and then asks for the undo of each step, one after the other.
fn plan_undo_run(name: &str, run: RunId, set: Option<Digest>, undos: &[StepUndo]) -> Planned {
    let mut steps = Vec::new();
    if set.is_some() {
        let extras = Extras { commit: set, ..Extras::default() };
        steps.push(Step { extras, ..Step::new("undo", Span::default(), Work::Nothing) });
    }
    let mut children = BTreeMap::new();
    for undo in undos {
        let (step, child) = undo.plan_step(run, &children);
        children.insert(step.id.clone(), child);
        steps.push(step);
    }
    let workflow = Workflow {
        file: PathBuf::from("undo"),
        source: set.unwrap_or_else(|| Digest::of_bytes(name.as_bytes())),
        name: Some(name.to_owned()),
        description: None,
        args: Vec::new(),
        env: Vec::new(),
        secrets: Vec::new(),
        cwd: None,
        concurrency: None,
        cost_limit: None,
        budget: None,
        changes: None,
        least_changes: None,
        triggers: lobster_language::triggers::Triggers::default(),
        notify: Vec::new(),
        steps,
        children,
        components: BTreeMap::new(),
    };
    Planned {
        plan: Plan::Workflow(workflow),
        args: serde_json::Map::new(),
        given: std::collections::BTreeSet::new(),
        name: name.to_owned(),
    }
}
