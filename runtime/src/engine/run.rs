//! One execution of a plan: what it remembers, and how an effect happens once.
//!
//! Executing is deterministic apart from effects and answers, and those are
//! journaled under their [`StepPath`]. So a stopped run goes on by executing its
//! plan again from the beginning: whatever the journal knows is answered from
//! there, and the first thing it does not know is where the work continues.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::gate::{KnownAnswer, PendingGate};
use super::path::StepPath;
use super::services::Services;
use crate::digest::Digest;
use crate::steps::stages::{Answer, StageError, Stop};
use crate::store::{
    Durability, Event, GateAnswer, Record as JournalRecord, RunClaim, RunId, StepOutcome, StepStatus, Store,
};

/// What to do with an effect that an earlier process started and did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupted {
    /// Stop and say so: a person decides.
    #[default]
    Ask,
    /// Run it again.
    Retry,
    /// Take it as failed without running it again.
    Skip,
}

/// What an earlier execution of the same run left in the journal.
#[derive(Default)]
struct Recall {
    ended: HashMap<StepPath, StepOutcome>,
    started: HashSet<StepPath>,
    answers: HashMap<StepPath, KnownAnswer>,
    /// Composite steps whose summary is journaled already.
    summarised: HashSet<StepPath>,
}

/// One execution.
pub(crate) struct Run<'s> {
    pub(crate) services: &'s Services,
    pub(crate) store: Store,
    pub(crate) id: RunId,
    pub(crate) plan: Digest,
    interrupted: Interrupted,
    recall: Mutex<Recall>,
    /// Events whose loss would only cost recomputation; written with the next durable one.
    buffered: Mutex<Vec<Event>>,
    pending: Mutex<Vec<PendingGate>>,
    failed_at: Mutex<Option<StepPath>>,
    acted: AtomicBool,
    rendered: AtomicBool,
    /// Places where something was done that must not be done twice.
    once_only: Mutex<Vec<StepPath>>,
    /// Nobody else executes this run meanwhile.
    _claim: RunClaim,
}

/// The attempt number under which a composite step's summary is journaled: it
/// is for the history only, the parts are what is recalled.
pub(crate) const SUMMARY: u32 = 0;

/// Lazy events are written at the latest when there are this many.
const MAX_BUFFERED: usize = 512;

impl<'s> Run<'s> {
    /// A run that has just been created.
    pub(crate) fn fresh(
        services: &'s Services,
        store: Store,
        claim: RunClaim,
        id: RunId,
        plan: Digest,
    ) -> Self {
        Self {
            services,
            store,
            id,
            plan,
            interrupted: Interrupted::Ask,
            recall: Mutex::default(),
            buffered: Mutex::default(),
            pending: Mutex::default(),
            failed_at: Mutex::default(),
            acted: AtomicBool::new(false),
            rendered: AtomicBool::new(false),
            once_only: Mutex::default(),
            _claim: claim,
        }
    }

    /// A run that goes on from its journal.
    pub(crate) fn recalled(
        services: &'s Services,
        store: Store,
        claim: RunClaim,
        id: RunId,
        plan: Digest,
        journal: &[JournalRecord],
        interrupted: Interrupted,
    ) -> Self {
        let run = Self { interrupted, ..Self::fresh(services, store, claim, id, plan) };
        lock(&run.recall).read(journal);
        run
    }

    /// Performs an effect, or answers from the journal what it gave before.
    ///
    /// `perform` gives the outcome to be journaled; `decode` turns an outcome,
    /// fresh or remembered, into the caller's result.
    pub(crate) fn once<T>(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        perform: impl FnOnce() -> StepOutcome,
        decode: impl FnOnce(&StepOutcome) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let (ended, started) = {
            let recall = lock(&self.recall);
            (recall.ended.get(path).cloned(), recall.started.contains(path))
        };
        if let Some(outcome) = ended {
            return self.located(path, decode(&outcome));
        }
        if started && !action.idempotent {
            match self.interrupted {
                Interrupted::Retry => {}
                Interrupted::Ask => {
                    self.fail_at(path);
                    return Err(Stop::Interrupted);
                }
                Interrupted::Skip => {
                    let mut outcome = StepOutcome::new(StepStatus::Interrupted);
                    outcome.error = Some(format!("Step '{path}' was interrupted and skipped on request"));
                    outcome.code = Some("interrupted".to_owned());
                    outcome.detail = json!({ "permanent": true });
                    self.append(vec![ended_event(path, outcome.clone())], Durability::Synced)?;
                    return self.located(path, decode(&outcome));
                }
            }
        }
        let preimage =
            canonical(&action.preimage).and_then(|bytes| self.store.put(&bytes).map_err(stopped))?;
        self.acted.store(true, Ordering::Relaxed);
        self.append(
            vec![Event::StepStarted {
                path: path.to_string(),
                attempt: path.attempt_number(),
                kind: action.kind.clone(),
                action: Some(preimage.digest),
                effect: true,
                idempotent: action.idempotent,
                decision: action.decision.clone(),
                detail: Value::Null,
            }],
            Durability::Synced,
        )?;
        let begun = Instant::now();
        let _shown = self.services.show_progress(path, &action.kind);
        let mut outcome = perform();
        if outcome.duration_us == 0 {
            outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        }
        self.append(vec![ended_event(path, outcome.clone())], Durability::Lazy)?;
        self.located(path, decode(&outcome))
    }

    /// Journals a pure step's outcome. It may be computed again, so it costs no sync.
    pub(crate) fn pure(
        &self,
        path: &StepPath,
        kind: &str,
        preimage: Value,
        outcome: &StepOutcome,
    ) -> Result<(), Stop> {
        let action = canonical(&preimage).and_then(|bytes| self.store.put(&bytes).map_err(stopped))?;
        self.lazily(Event::StepStarted {
            path: path.to_string(),
            attempt: path.attempt_number(),
            kind: kind.to_owned(),
            action: Some(action.digest),
            effect: false,
            idempotent: true,
            decision: Value::Null,
            detail: Value::Null,
        })?;
        self.lazily(ended_event(path, outcome.clone()))
    }

    /// Remembers where a failure came from, for a later retry.
    fn located<T>(&self, path: &StepPath, result: Result<T, Stop>) -> Result<T, Stop> {
        if matches!(result, Err(Stop::Failed(_) | Stop::Cancelled)) {
            self.fail_at(path);
        }
        result
    }

    /// Notes the place of the latest failure.
    pub(crate) fn fail_at(&self, path: &StepPath) {
        *lock(&self.failed_at) = Some(path.clone());
    }

    /// Notes a failure that came up at this place, unless it came from inside it.
    pub(crate) fn fail_near(&self, path: &StepPath) {
        let mut failed_at = lock(&self.failed_at);
        if !failed_at.as_ref().is_some_and(|known| known.is_within(path)) {
            *failed_at = Some(path.clone());
        }
    }

    /// The place of the latest failure.
    pub(crate) fn failed_at(&self) -> Option<StepPath> {
        lock(&self.failed_at).clone()
    }

    /// Effects that an earlier execution started and that nobody saw end.
    pub(crate) fn cut_off(&self) -> Vec<String> {
        let mut paths: Vec<_> = lock(&self.recall).started.iter().map(ToString::to_string).collect();
        paths.sort();
        paths
    }

    /// Whether this execution has begun any effect, as opposed to remembering it.
    pub(crate) fn has_acted(&self) -> bool {
        self.acted.load(Ordering::Relaxed)
    }

    /// Notes that something was done here that no retry may repeat.
    pub(crate) fn forbid_retry(&self, path: &StepPath) {
        lock(&self.once_only).push(path.clone());
    }

    /// Whether what was done inside this place may be tried again.
    pub(crate) fn may_retry(&self, path: &StepPath) -> bool {
        !lock(&self.once_only).iter().any(|place| place.is_within(path))
    }

    /// Notes that a person was shown something.
    pub(crate) fn shown(&self) {
        self.rendered.store(true, Ordering::Relaxed);
    }

    /// Whether a person was shown something.
    pub(crate) fn has_rendered(&self) -> bool {
        self.rendered.load(Ordering::Relaxed)
    }

    /// Whether the journal knows how this attempt ended.
    pub(crate) fn remembers(&self, path: &StepPath) -> bool {
        let recall = lock(&self.recall);
        recall.ended.keys().any(|known| known.is_within(path))
    }

    /// Keeps a value that execution found out and must find the same again; not
    /// an effect, so it needs no sync and may be found out anew after a crash.
    pub(crate) fn keep(
        &self,
        path: &StepPath,
        find: impl FnOnce() -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        if let Some(outcome) = self.remembered(path) {
            return Ok(outcome.value);
        }
        let value = find().inspect_err(|_| self.fail_at(path))?;
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.value = value.clone();
        self.lazily(ended_event(path, outcome))?;
        Ok(value)
    }

    /// The outcome of a composite step or decision that was journaled earlier.
    pub(crate) fn remembered(&self, path: &StepPath) -> Option<StepOutcome> {
        lock(&self.recall).ended.get(path).cloned()
    }

    /// Journals a step's summary for the history; it is recomputed, not recalled.
    pub(crate) fn summarise(
        &self,
        path: &StepPath,
        mut outcome: StepOutcome,
        kind: &str,
    ) -> Result<(), Stop> {
        if !lock(&self.recall).summarised.insert(path.clone()) {
            return Ok(());
        }
        outcome.detail = json!({ "kind": kind });
        self.lazily(Event::StepEnded { path: path.to_string(), attempt: SUMMARY, outcome: Box::new(outcome) })
    }

    /// Journals something whose loss would only cost recomputation.
    pub(crate) fn lazily(&self, event: Event) -> Result<(), Stop> {
        let full = {
            let mut buffered = lock(&self.buffered);
            buffered.push(event);
            buffered.len() >= MAX_BUFFERED
        };
        if full { self.append(Vec::new(), Durability::Lazy) } else { Ok(()) }
    }

    /// Journals events after all that was buffered.
    pub(crate) fn append(&self, events: Vec<Event>, durability: Durability) -> Result<(), Stop> {
        let mut all = self.take_buffered();
        all.extend(events);
        if all.is_empty() {
            return Ok(());
        }
        self.store.append(self.id, all, durability).map_err(stopped)
    }

    /// Takes what was held back.
    pub(crate) fn take_buffered(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.buffered))
    }

    /// The answer to a question at this place, if it was given.
    pub(crate) fn answer(&self, path: &StepPath) -> Option<KnownAnswer> {
        lock(&self.recall).answers.get(path).cloned()
    }

    /// Remembers an answer that was just given, so that the rest of this execution sees it.
    pub(crate) fn remember_answer(&self, path: &StepPath, answer: KnownAnswer) {
        lock(&self.recall).answers.insert(path.clone(), answer);
    }

    /// Registers a question that nobody could answer now.
    pub(crate) fn pend(&self, gate: PendingGate) {
        lock(&self.pending).push(gate);
    }

    /// Takes the questions that came up, in the order of their places in the plan.
    pub(crate) fn take_pending(&self) -> Vec<PendingGate> {
        std::mem::take(&mut *lock(&self.pending))
    }

    /// Forgets questions inside a place whose outcome no longer matters.
    pub(crate) fn drop_pending(&self, within: &StepPath) {
        lock(&self.pending).retain(|gate| !gate.path.is_within(within));
    }
}

impl Recall {
    fn read(&mut self, journal: &[JournalRecord]) {
        for record in journal {
            match &record.event {
                // An idempotent effect is repeated without asking.
                Event::StepStarted { path, effect, idempotent, .. } => {
                    if *effect && !*idempotent {
                        self.started.insert(path.as_str().into());
                    }
                }
                Event::StepEnded { path, attempt: SUMMARY, .. } => {
                    self.summarised.insert(path.as_str().into());
                }
                Event::StepEnded { path, outcome, .. } => {
                    self.ended.insert(path.as_str().into(), StepOutcome::clone(outcome));
                }
                Event::GateAnswered { path, binding, answer, by, .. } => {
                    let path = StepPath::from(path.as_str());
                    let answer = match answer {
                        GateAnswer::Approved => Answer::Approved { by: by.clone() },
                        GateAnswer::Response(value) => Answer::Response(value.clone()),
                        GateAnswer::Rejected => continue,
                    };
                    self.answers.insert(path, KnownAnswer { answer, binding: *binding });
                }
                Event::GateClosed { path, .. } => {
                    self.answers.remove(&StepPath::from(path.as_str()));
                }
                Event::RetryRequested { path, .. } => {
                    self.forget_failures(&path.as_deref().map_or_else(StepPath::root, StepPath::from));
                }
                Event::GateOpened { .. }
                | Event::RunStarted { .. }
                | Event::RunResumed { .. }
                | Event::RunPaused { .. }
                | Event::RunEnded { .. }
                | Event::Decision { .. }
                | Event::Note { .. }
                | Event::Unknown(_) => {}
            }
        }
        self.started.retain(|path| !self.ended.contains_key(path));
    }

    /// A retry takes up the work at the failed place; what succeeded there stays done.
    fn forget_failures(&mut self, at: &StepPath) {
        let failed: Vec<_> = self
            .ended
            .iter()
            .filter(|(path, outcome)| path.is_within(at) && outcome.status != StepStatus::Ok)
            .map(|(path, _)| path.clone())
            .collect();
        for path in failed {
            self.ended.remove(&path);
            self.started.remove(&path);
        }
        self.summarised.retain(|path| !at.is_within(path) && !path.is_within(at));
    }
}

/// All that decides an effect, as the journal keeps it.
pub(crate) struct ActionRecord {
    /// `native`, `http`, `component` …
    pub(crate) kind: String,
    /// The pre-image of the action digest.
    pub(crate) preimage: Value,
    /// What policy said to it.
    pub(crate) decision: Value,
    pub(crate) idempotent: bool,
}

/// The canonical JSON (RFC 8785) whose BLAKE3 is the action digest.
fn canonical(preimage: &Value) -> Result<Vec<u8>, Stop> {
    serde_json_canonicalizer::to_vec(preimage).map_err(stopped)
}

fn ended_event(path: &StepPath, outcome: StepOutcome) -> Event {
    Event::StepEnded { path: path.to_string(), attempt: path.attempt_number(), outcome: Box::new(outcome) }
}

pub(crate) fn stopped(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(StageError::permanent(error.to_string()).with_code("store"))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
