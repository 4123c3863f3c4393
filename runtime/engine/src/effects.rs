//! How a step is done once: an effect is performed and journaled, or answered from
//! the journal; a pure step is computed and journaled.
//!
//! An effect ends in one of three ways (invariant E7): it was seen to end, it was
//! seen to fail, or it had begun and nobody saw its end. The third kind stands in
//! the journal with its reason and is left to a person ([`super::unseen`]).

use lobster_base::code::Code;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::action::{ActionRecord, Preimage};
use super::kept_values::is_all_of_its_action;
use super::outcome::outcome_error;
use super::overseer::Act;
use super::path::StepPath;
use super::recall::{CUT_OFF, Recall};
use super::reuse::Reuse;
use super::run::{Interrupted, Run, ended_event};
use super::unseen::{self, Lost, Unseen, UnseenEnd};
use crate::kinds::changes;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_policy::AuditSync;
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::{Begun, Blob, Durability, Event, StepOutcome, StepStatus, StoreError};

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
        let act = Act {
            path,
            kind: &action.kind,
            digest: action.preimage.digest,
            preimage: &action.preimage,
            on_record: action.on_record,
            variables: &action.variables,
        };
        let outcome = if effect { overseer.effect(&act, known) } else { overseer.pure(&act, known) };
        let Some(outcome) = outcome.inspect_err(|_| self.record_failure(path))? else { return Ok(None) };
        if fresh || !overseer.journals() {
            let kept = self.keep_values_of(&outcome).map_err(store_failure);
            kept.inspect_err(|_| self.record_failure(path))?;
        }
        if fresh && overseer.journals() {
            let preimage = self.store.put(action.preimage.canonical.as_bytes()).map_err(store_failure)?;
            let detail = json!({ "reused": true, "from": overseer.taken_from(path) });
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
        let (ended, started, begun) = {
            let recall = lock(&self.recall);
            (recall.ended.get(path).cloned(), recall.started.contains(path), recall.has_begun(path))
        };
        // An overseer that was asked and knows nothing wants it done.
        if let Some(outcome) = ended.filter(|_| self.journals()) {
            return Ok(outcome);
        }
        if begun && action.idempotent && self.journals() && self.store.has_left_output(self.id, path.as_str())
        {
            // It is repeated without asking, and its output stays in the record.
            self.note_unseen(path)?;
        }
        if started && !action.idempotent && self.journals() {
            let end = self.note_unseen(path)?;
            match self.interrupted() {
                Interrupted::Retry | Interrupted::RetryAnyway => {}
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
        if action.on_record.is_none() {
            self.check_performs(path)?;
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
        self.store.add_kept_output(self.id, path.as_str(), false, &mut outcome).map_err(store_failure)?;
        if outcome.status == StepStatus::Cancelled && self.cancel.is_cancelled() {
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
        self.store.forget_output(self.id, path.as_str(), false);
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
        let action = ActionRecord {
            kind: kind.to_owned(),
            preimage,
            decision,
            idempotent: true,
            on_record: None,
            variables: Arc::default(),
        };
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

impl Run<'_> {
    /// What an equal action gave, in this run or an earlier one, if all of it is still there.
    pub(crate) fn cached(&self, key: &Digest, reuse: Reuse) -> Result<Option<StepOutcome>, Stop> {
        if self.ignores_cache() {
            return Ok(None);
        }
        let known = self.store.cached_outcome(key, reuse.ttl_ms()).map_err(store_failure)?;
        let is_usable =
            |outcome: &StepOutcome| self.has_blobs(outcome) && changes::are_applicable(&self.store, outcome);
        let mut known = known.filter(is_usable);
        if let Some(outcome) = &mut known {
            outcome.cached = true;
            outcome.duration_us = 0;
        }
        Ok(known)
    }

    /// Remembers what an action gave, for this run and later ones.
    pub(crate) fn cache(&self, key: Digest, outcome: &StepOutcome, reuse: Reuse) {
        // What the cache does not know is done again.
        if let Err(error) = self.store.cache_outcome(key, outcome, reuse.ttl_ms()) {
            tracing::warn!("an outcome is not cached: {error}");
        }
    }

    /// An effect that is performed only if no equal one is known under `key`, and
    /// known afterwards if it went well and `is_settled` says that it holds.
    pub(crate) fn perform_once_cached<T>(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        (key, reuse): (Digest, Reuse),
        perform: impl FnOnce() -> StepOutcome,
        is_settled: impl FnOnce() -> bool,
        decode: impl FnOnce(&StepOutcome) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        if let Some(outcome) = self.reused(path, action, &key, reuse)? {
            return decode(&outcome).inspect_err(|_| self.record_failure(path));
        }
        let performed = Cell::new(false);
        let perform = || {
            performed.set(true);
            perform()
        };
        self.perform_once(path, action, perform, |outcome| {
            if performed.get() && self.is_lasting(outcome) && is_settled() {
                self.cache(key, outcome, reuse);
            }
            decode(outcome)
        })
    }

    /// What an equal effect gave. Nothing is started then: the journal has one
    /// record, which says that it was taken from the cache.
    ///
    /// An attempt that had begun and whose end nobody saw is not passed over.
    fn reused(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        key: &Digest,
        reuse: Reuse,
    ) -> Result<Option<Arc<StepOutcome>>, Stop> {
        let wanted_anew = self.overseer().is_some_and(|overseer| overseer.wants_anew(path));
        if !self.journals() || wanted_anew || self.is_cut_off(path) {
            return Ok(None);
        }
        if let Some(outcome) = self.ask_overseer(path, action)?.or_else(|| self.remembered(path)) {
            return Ok(Some(outcome));
        }
        let Some(outcome) = self.cached(key, reuse).inspect_err(|_| self.record_failure(path))? else {
            return Ok(None);
        };
        let outcome = Arc::new(outcome);
        self.note_reused(path, action, &outcome).inspect_err(|_| self.record_failure(path))?;
        Ok(Some(outcome))
    }

    /// Whether what an effect has just given may answer for it later.
    pub(crate) fn is_lasting(&self, outcome: &StepOutcome) -> bool {
        // The cache gives no values back, so what keeps some is done again.
        self.journals() && is_all_of_its_action(outcome)
    }

    /// Whether what an outcome gave can be had; each gave one or the other.
    fn has_blobs(&self, outcome: &StepOutcome) -> bool {
        if outcome.stdout.is_none() && outcome.output.is_none() {
            return false;
        }
        let named = [outcome.stdout, outcome.stderr, outcome.output].into_iter().flatten();
        let calls = outcome.detail.get("host_calls").and_then(|calls| calls.as_str()?.parse().ok());
        named
            .map(|blob: Blob| blob.digest)
            .chain(calls)
            .all(|digest| matches!(self.store.blob_len(&digest), Ok(Some(_))))
    }
}

impl Run<'_> {
    /// Effects that are on record as started and not as ended: those that an
    /// earlier execution left, and those of this one whose end was not seen or
    /// could not be recorded.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(crate) fn unseen(&self) -> Result<Vec<Unseen>, StoreError> {
        let buffered = self.take_buffered();
        if !buffered.is_empty() {
            self.store.append(self.id, buffered, Durability::Lazy)?;
        }
        let mut recall = Recall::default();
        recall.read(&self.store.events(self.id)?);
        Ok(recall.unseen())
    }

    /// Journals that the end of an effect was not seen, and stops for a person to decide.
    pub(super) fn stop_unseen(&self, path: &StepPath, mut outcome: StepOutcome) -> Result<Stop, Stop> {
        outcome.status = StepStatus::Interrupted;
        if outcome.detail.is_null() {
            outcome.detail = json!({});
        }
        outcome.detail[CUT_OFF] = Value::Bool(true);
        let said = outcome.error.clone().unwrap_or_else(|| "its end was not seen".to_owned());
        self.services.note(&format!(
            "warning: step '{path}': {said}. What it did is not known, so it is not done again by itself"
        ));
        self.append(vec![ended_event(path, Arc::new(outcome))], Durability::Synced)?;
        self.store.forget_output(self.id, path.as_str(), false);
        self.record_failure(path);
        Ok(Stop::Interrupted)
    }

    /// Journals how an effect was lost that an earlier execution began, unless the journal says so.
    pub(super) fn note_unseen(&self, path: &StepPath) -> Result<UnseenEnd, Stop> {
        let (end, is_noted) = {
            let recall = lock(&self.recall);
            (recall.unseen_end(path), recall.cut_off.contains_key(path))
        };
        if !is_noted {
            let mut outcome = StepOutcome { status: StepStatus::Interrupted, ..end.outcome() };
            outcome.detail[CUT_OFF] = Value::Bool(true);
            self.store.add_kept_output(self.id, path.as_str(), true, &mut outcome).map_err(store_failure)?;
            self.append(vec![ended_event(path, Arc::new(outcome))], Durability::Synced)?;
            self.store.forget_output(self.id, path.as_str(), true);
        }
        Ok(end)
    }

    /// The outcome of an effect whose end was not seen, and that a person wants skipped.
    pub(super) fn skipped_unseen(path: &StepPath, end: &UnseenEnd) -> StepOutcome {
        let mut outcome = StepOutcome::new(StepStatus::Interrupted);
        outcome.error =
            Some(format!("Step '{path}' was interrupted and skipped on request: {}", end.reason()));
        outcome.code = Some(Code::Interrupted.to_string());
        outcome.detail = json!({ "permanent": true });
        end.keep_in(&mut outcome);
        outcome
    }
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
