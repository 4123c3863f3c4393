//! How a step is done once: an effect is performed and journaled, or answered from
//! the journal; a pure step is computed and journaled.
//!
//! An effect ends in one of three ways (invariant E7): it was seen to end, it was
//! seen to fail, or it had begun and nobody saw its end. The third kind stands in
//! the journal with its reason and is left to a person ([`super::unseen`]).

use lobster_base::code::Code;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::action::{ActionRecord, Preimage};
use super::overseer::Act;
use super::path::StepPath;
use super::pipeline::outcome_error;
use super::recall::CUT_OFF;
use super::run::{Interrupted, Run, lock};
use super::unseen::{self, Lost, UnseenEnd};
use lobster_base::digest::Digest;
use lobster_policy::AuditSync;
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::{Begun, Durability, Event, StepOutcome, StepStatus};

impl Run<'_> {
    /// The outcome that an overseer knows for an effect, before anything is decided about it.
    pub(crate) fn ask_overseer(
        &self,
        path: &StepPath,
        action: &ActionRecord,
    ) -> Result<Option<Arc<StepOutcome>>, Stop> {
        self.ask_overseer_about(path, action, true)
    }

    fn ask_overseer_about(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        effect: bool,
    ) -> Result<Option<Arc<StepOutcome>>, Stop> {
        lock(&self.recall).forget_other(path, action.preimage.digest);
        let Some(overseer) = self.overseer() else { return Ok(None) };
        let known = self.remembered(path);
        let fresh = known.is_none();
        let act = Act { path, digest: action.preimage.digest, preimage: &action.preimage };
        let outcome = if effect { overseer.effect(&act, known) } else { overseer.pure(&act, known) };
        let Some(outcome) = outcome.inspect_err(|_| self.record_failure(path))? else { return Ok(None) };
        if fresh && overseer.journals() {
            let preimage = self.store.put(action.preimage.canonical.as_bytes()).map_err(store_failure)?;
            let detail = json!({ "reused": true });
            if effect {
                self.append_unsynced(started_event(path, action, preimage.digest, detail))?;
                self.append_unsynced(ended_event(path, Arc::clone(&outcome)))?;
            } else {
                self.append_unsynced(answered_event(
                    path,
                    action,
                    preimage.digest,
                    false,
                    detail,
                    Arc::clone(&outcome),
                ))?;
            }
            lock(&self.recall).ended.insert(path.clone(), Arc::clone(&outcome));
        }
        Ok(Some(outcome))
    }

    /// Performs an effect, or answers from the journal what it gave before.
    ///
    /// `perform` gives the outcome to be journaled; `decode` turns an outcome,
    /// fresh or remembered, into the caller's result.
    pub(crate) fn perform_once<T>(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        perform: impl FnOnce() -> StepOutcome,
        decode: impl FnOnce(&StepOutcome) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let outcome = self.outcome_of(path, action, perform);
        self.located(path, outcome.and_then(|outcome| decode(&outcome)))
    }

    fn outcome_of(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        perform: impl FnOnce() -> StepOutcome,
    ) -> Result<Arc<StepOutcome>, Stop> {
        if let Some(outcome) = self.ask_overseer(path, action)? {
            return Ok(outcome);
        }
        let (ended, started) = {
            let recall = lock(&self.recall);
            (recall.ended.get(path).cloned(), recall.started.contains(path))
        };
        // An overseer that was asked and knows nothing wants it done.
        if let Some(outcome) = ended.filter(|_| self.journals()) {
            return Ok(outcome);
        }
        if started && !action.idempotent && self.journals() {
            let end = self.note_unseen(path)?;
            match self.interrupted() {
                Interrupted::Retry => {}
                Interrupted::Ask => {
                    self.record_failure(path);
                    return Err(Stop::Interrupted);
                }
                Interrupted::Skip => {
                    let outcome = Arc::new(Self::skipped_unseen(path, &end));
                    self.append(vec![ended_event(path, Arc::clone(&outcome))], Durability::Synced)?;
                    return Ok(outcome);
                }
            }
        }
        self.confirm()?;
        let preimage = self.store.put(action.preimage.canonical.as_bytes()).map_err(store_failure)?;
        self.note_effect();
        self.append(vec![started_event(path, action, preimage.digest, Value::Null)], Durability::Synced)?;
        let begun = Instant::now();
        let _span =
            tracing::info_span!("effect", %path, kind = action.kind, action = %preimage.digest.short())
                .entered();
        let _shown = self.services.show_progress(path, &action.kind);
        let outside = self.store.leave_commit_group();
        let outcome = perform();
        drop(outside);
        let mut outcome = self.store.hide_outcome(outcome).map_err(store_failure)?;
        if outcome.status == StepStatus::Cancelled && self.services.cancel.is_cancelled() {
            // What the end of the run stopped half-way is not over, unlike what lost a race.
            outcome.detail[CUT_OFF] = Value::Bool(true);
            UnseenEnd { why: outcome.error.clone(), ..UnseenEnd::of(Lost::Stopped) }.keep_in(&mut outcome);
        }
        unseen::tell_idempotent(&mut outcome, action.idempotent);
        if outcome.duration_us == 0 {
            outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        }
        tracing::info!(status = outcome.status.as_str(), us = outcome.duration_us, "ended");
        if Code::Store.is(outcome.code.as_deref()) {
            // It was done and what it gave is lost. For the journal it has not
            // ended, so a person decides whether it may be done again.
            return Err(Stop::Failed(StageError { permanent: true, ..outcome_error(&outcome) }));
        }
        if Code::UnknownEnd.is(outcome.code.as_deref()) && !action.idempotent {
            return Err(self.stop_unseen(path, outcome)?);
        }
        let durability = match self.services.policy.file().audit.sync {
            AuditSync::Every => Durability::Synced,
            AuditSync::None | AuditSync::Decision => Durability::Lazy,
        };
        let mut outcome = Arc::new(outcome);
        self.append(vec![ended_event(path, Arc::clone(&outcome))], durability)?;
        if let Some(overseer) = self.overseer() {
            outcome = overseer.done(path, outcome);
        }
        Ok(outcome)
    }

    /// Computes a pure step unless its outcome is known, and journals it. It may
    /// be computed again, so that costs no sync.
    pub(crate) fn pure(
        &self,
        path: &StepPath,
        kind: &str,
        preimage: Preimage,
        decision: Value,
        compute: impl FnOnce() -> Result<StepOutcome, Stop>,
    ) -> Result<Arc<StepOutcome>, Stop> {
        let digest = preimage.digest;
        let action = ActionRecord { kind: kind.to_owned(), preimage, decision, idempotent: true };
        if let Some(outcome) = self.ask_overseer_about(path, &action, false)? {
            return Ok(outcome);
        }
        if !self.journals() {
            let ahead = self.overseer().and_then(|overseer| overseer.computed(&digest));
            let outcome = Arc::new(ahead.map_or_else(compute, Ok)?);
            return Ok(match self.overseer() {
                Some(overseer) => overseer.done(path, outcome),
                None => outcome,
            });
        }
        if let Some(outcome) = self.remembered(path) {
            return Ok(outcome);
        }
        let outside = self.store.leave_commit_group();
        let outcome = compute()?;
        drop(outside);
        let outcome = Arc::new(self.store.hide_outcome(outcome).map_err(store_failure)?);
        let journal = || -> Result<(), Stop> {
            let preimage = self.store.put(action.preimage.canonical.as_bytes()).map_err(store_failure)?;
            self.append_unsynced(answered_event(
                path,
                &action,
                preimage.digest,
                false,
                Value::Null,
                Arc::clone(&outcome),
            ))
        };
        self.located(path, journal())?;
        Ok(outcome)
    }

    /// Journals that an effect was not performed, and what it gave when it was.
    pub(super) fn note_reused(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        outcome: &Arc<StepOutcome>,
    ) -> Result<(), Stop> {
        let preimage = self.store.put(action.preimage.canonical.as_bytes()).map_err(store_failure)?;
        self.append_unsynced(answered_event(
            path,
            action,
            preimage.digest,
            true,
            Value::Null,
            Arc::clone(outcome),
        ))
    }
}

/// An effect is about to be performed.
fn started_event(path: &StepPath, action: &ActionRecord, digest: Digest, detail: Value) -> Event {
    Event::StepStarted {
        path: path.to_string(),
        attempt: path.attempt_number(),
        kind: action.kind.clone(),
        action: Some(digest),
        effect: true,
        idempotent: action.idempotent,
        decision: action.decision.clone(),
        detail,
    }
}

pub(super) fn ended_event(path: &StepPath, outcome: Arc<StepOutcome>) -> Event {
    Event::StepEnded { path: path.to_string(), attempt: path.attempt_number(), begun: None, outcome }
}

/// A step that touched nothing, from its beginning to its end: a pure one, or an
/// effect whose outcome was known.
fn answered_event(
    path: &StepPath,
    action: &ActionRecord,
    digest: Digest,
    effect: bool,
    detail: Value,
    outcome: Arc<StepOutcome>,
) -> Event {
    let begun = Begun {
        kind: action.kind.clone(),
        action: digest,
        effect,
        decision: action.decision.clone(),
        detail,
    };
    Event::StepEnded {
        path: path.to_string(),
        attempt: path.attempt_number(),
        begun: Some(Arc::new(begun)),
        outcome,
    }
}
