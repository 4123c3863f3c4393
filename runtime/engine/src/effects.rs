//! Executes each step once: an effect is performed and journaled, or answered from the journal; a pure step is
//! computed and journaled.
//!
//! An effect ends in one of three ways (invariant E7): its success was seen, its failure was seen, or it began and its
//! end was not seen. In the third case the journal records the reason, and a person decides ([`super::unseen`]).

use lobster_base::code::Code;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::action::{ActionRecord, Preimage};
use super::kept_values::is_all_of_its_action;
use super::overseer::Act;
use super::path::StepPath;
use super::recall::{CUT_OFF, Recall};
use super::reuse::Reuse;
use super::run::{Interrupted, Run, ended_event};
use super::unseen::{self, Lost, Unseen, UnseenEnd};
use crate::kinds::changes;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_executor::outcome_error;
use lobster_policy::AuditSync;
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::{Begun, Blob, Durability, Event, StepOutcome, StepStatus, StoreError};

/// An action as the overseer sees it.
fn describe_action<'a>(path: &'a StepPath, action: &'a ActionRecord) -> Act<'a> {
    Act {
        path,
        kind: &action.kind,
        digest: action.preimage.digest,
        preimage: &action.preimage,
        on_record: action.on_record,
        variables: &action.variables,
    }
}

impl Run<'_> {
    /// The outcome of an effect that the overseer supplies, before any decision about the effect.
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
        let known = self.recorded_outcome(path);
        let fresh = known.is_none();
        let act = describe_action(path, action);
        let outcome =
            if effect { overseer.replace_effect(&act, known) } else { overseer.replace_pure(&act, known) };
        let Some(outcome) = outcome.inspect_err(|_| self.record_failure(path))? else { return Ok(None) };
        if fresh || !overseer.is_journaled() {
            let kept = self.keep_values_of(&outcome).map_err(store_failure);
            kept.inspect_err(|_| self.record_failure(path))?;
        }
        if fresh && overseer.is_journaled() {
            let detail = json!({ "reused": true, "from": overseer.taken_from(path) });
            if effect {
                let preimage = self.keep_preimage(action)?;
                self.append_unsynced(started_event(path, action, preimage, detail))?;
                self.append_unsynced(ended_event(path, Arc::clone(&outcome)))?;
            } else {
                self.append_answered(path, action, false, detail, &outcome)?;
            }
            lock(&self.recall).ended.insert(path.clone(), Arc::clone(&outcome));
        }
        Ok(Some(outcome))
    }

    /// Performs an effect, or takes its outcome from the journal.
    ///
    /// `perform` returns the outcome for the journal; `decode` turns an outcome, new or recorded, into the caller's
    /// result.
    pub(crate) fn perform_once<T>(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        perform: impl FnOnce() -> StepOutcome,
        decode: impl FnOnce(&StepOutcome) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let outcome = self.outcome_of(path, action, perform);
        self.locate_failure(path, outcome.and_then(|outcome| decode(&outcome)))
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
        // The overseer had no outcome, so the effect has to be performed.
        if let Some(outcome) = ended.filter(|_| self.is_journaled()) {
            return Ok(outcome);
        }
        if begun
            && action.idempotent
            && self.is_journaled()
            && self.store.has_left_output(self.id, path.as_str())
        {
            // It is repeated without a question, and its output stays in the record.
            self.note_unseen(path)?;
        }
        if started && !action.idempotent && self.is_journaled() {
            let end = self.note_unseen(path)?;
            match self.interrupted() {
                Interrupted::Retry | Interrupted::RetryAnyway => {}
                Interrupted::Ask => {
                    self.record_failure(path);
                    return Err(Stop::Interrupted);
                }
                Interrupted::Skip => {
                    let outcome = Arc::new(Self::skipped_unseen(path, &end));
                    self.append_events(vec![ended_event(path, Arc::clone(&outcome))], Durability::Synced)?;
                    return Ok(outcome);
                }
            }
        }
        if action.on_record.is_none() {
            self.check_performs(path)?;
        }
        self.confirm_answers()?;
        let preimage = self.keep_preimage(action)?;
        self.note_effect();
        self.append_events(vec![started_event(path, action, preimage, Value::Null)], Durability::Synced)?;
        if let Some(overseer) = self.overseer().filter(|_| action.on_record.is_none()) {
            let recorded = overseer.record_performed(&describe_action(path, action), &action.decision);
            recorded.inspect_err(|_| self.record_failure(path))?;
        }
        let begun = Instant::now();
        let _span =
            tracing::info_span!("effect", %path, kind = action.kind, action = %preimage.short()).entered();
        let _shown = self.services.show_progress(path, &action.kind);
        let outside = self.store.leave_commit_group();
        let outcome = perform();
        drop(outside);
        let mut outcome = self.store.hide_outcome(outcome).map_err(store_failure)?;
        self.store.add_kept_output(self.id, path.as_str(), false, &mut outcome).map_err(store_failure)?;
        if outcome.status == StepStatus::Cancelled && self.cancel.is_cancelled() {
            // An effect that was stopped with its run is unfinished, unlike one that lost a race.
            outcome.detail[CUT_OFF] = Value::Bool(true);
            UnseenEnd { why: outcome.error.clone(), ..UnseenEnd::of_loss(Lost::Stopped) }
                .keep_in(&mut outcome);
        }
        unseen::tell_idempotent(&mut outcome, action.idempotent);
        if outcome.duration_us == 0 {
            outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        }
        tracing::info!(status = outcome.status.as_str(), us = outcome.duration_us, "ended");
        if Code::Store.matches_name(outcome.code.as_deref()) {
            // The effect was performed, but its output is lost. In the journal it has not ended, so a person decides
            // if it may be performed again.
            return Err(Stop::Failed(StageError { permanent: true, ..outcome_error(&outcome) }));
        }
        if Code::UnknownEnd.matches_name(outcome.code.as_deref()) && !action.idempotent {
            return Err(self.stop_unseen(path, outcome)?);
        }
        let durability = match self.services.policy.file().audit.sync {
            AuditSync::Every => Durability::Synced,
            AuditSync::None | AuditSync::Decision => Durability::Lazy,
        };
        let mut outcome = Arc::new(outcome);
        self.append_events(vec![ended_event(path, Arc::clone(&outcome))], durability)?;
        self.store.forget_output(self.id, path.as_str(), false);
        if let Some(overseer) = self.overseer() {
            outcome = overseer.report_outcome(path, outcome);
        }
        Ok(outcome)
    }

    /// Computes a pure step unless its outcome is known, and journals it. It can be computed again, so the journal
    /// need not be synced.
    pub(crate) fn compute_once(
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
        if !self.is_journaled() {
            let ahead = self.overseer().and_then(|overseer| overseer.computed_outcome(&digest));
            let outcome = Arc::new(ahead.map_or_else(compute, Ok)?);
            return Ok(match self.overseer() {
                Some(overseer) => overseer.report_outcome(path, outcome),
                None => outcome,
            });
        }
        if let Some(outcome) = self.recorded_outcome(path) {
            return Ok(outcome);
        }
        let outside = self.store.leave_commit_group();
        let outcome = compute()?;
        drop(outside);
        let outcome = Arc::new(self.store.hide_outcome(outcome).map_err(store_failure)?);
        let journaled = self.append_answered(path, &action, false, Value::Null, &outcome);
        self.locate_failure(path, journaled)?;
        Ok(outcome)
    }

    /// Keeps the canonical text of an action; returns its name in the store.
    fn keep_preimage(&self, action: &ActionRecord) -> Result<Digest, Stop> {
        let kept = self.store.put_blob(action.preimage.canonical.as_bytes()).map_err(store_failure)?;
        Ok(kept.digest)
    }

    /// Journals start and end of a step that performed nothing: a pure step, or an effect whose outcome was known.
    fn append_answered(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        effect: bool,
        detail: Value,
        outcome: &Arc<StepOutcome>,
    ) -> Result<(), Stop> {
        let begun = Begun {
            kind: action.kind.clone(),
            action: self.keep_preimage(action)?,
            effect,
            decision: action.decision.clone(),
            detail,
        };
        self.append_unsynced(Event::StepEnded {
            path: path.to_string(),
            attempt: path.attempt_number(),
            begun: Some(Arc::new(begun)),
            outcome: Arc::clone(outcome),
        })
    }
}

/// The event before an effect is performed.
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
    /// The outcome of an equal action, in this run or an earlier one, if all its blobs still exist.
    pub(crate) fn cached_outcome(&self, key: &Digest, reuse: Reuse) -> Result<Option<StepOutcome>, Stop> {
        if self.cache_disabled {
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

    /// Caches the outcome of an action for this run and later ones.
    pub(crate) fn cache_outcome(&self, key: Digest, outcome: &StepOutcome, reuse: Reuse) {
        // An action that is not in the cache is performed again.
        if let Err(error) = self.store.cache_outcome(key, outcome, reuse.ttl_ms()) {
            tracing::warn!("an outcome is not cached: {error}");
        }
    }

    /// Performs an effect unless the outcome of an equal one is cached under `key`. Its own outcome is cached if it
    /// succeeded and `is_settled` returns true.
    pub(crate) fn perform_once_cached<T>(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        (key, reuse): (Digest, Reuse),
        perform: impl FnOnce() -> StepOutcome,
        is_settled: impl FnOnce() -> bool,
        decode: impl FnOnce(&StepOutcome) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        if let Some(outcome) = self.reuse_cached(path, action, &key, reuse)? {
            return decode(&outcome).inspect_err(|_| self.record_failure(path));
        }
        let performed = Cell::new(false);
        let perform = || {
            performed.set(true);
            perform()
        };
        self.perform_once(path, action, perform, |outcome| {
            if performed.get() && self.is_lasting(outcome) && is_settled() {
                self.cache_outcome(key, outcome, reuse);
            }
            decode(outcome)
        })
    }

    /// The cached outcome of an equal effect. Nothing is started then: the journal gets one record, which names the
    /// cache as the source.
    ///
    /// An attempt that began and whose end was not seen is not skipped this way.
    fn reuse_cached(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        key: &Digest,
        reuse: Reuse,
    ) -> Result<Option<Arc<StepOutcome>>, Stop> {
        let wanted_anew = self.overseer().is_some_and(|overseer| overseer.wants_anew(path));
        if !self.is_journaled() || wanted_anew || self.is_cut_off(path) {
            return Ok(None);
        }
        if let Some(outcome) = self.ask_overseer(path, action)?.or_else(|| self.recorded_outcome(path)) {
            return Ok(Some(outcome));
        }
        let Some(outcome) = self.cached_outcome(key, reuse).inspect_err(|_| self.record_failure(path))?
        else {
            return Ok(None);
        };
        let outcome = Arc::new(outcome);
        self.append_answered(path, action, true, Value::Null, &outcome)
            .inspect_err(|_| self.record_failure(path))?;
        Ok(Some(outcome))
    }

    /// True if the outcome of an effect may answer for later ones.
    pub(crate) fn is_lasting(&self, outcome: &StepOutcome) -> bool {
        // The cache does not restore values, so a step that keeps some is performed again.
        self.is_journaled() && is_all_of_its_action(outcome)
    }

    /// True if the blobs of an outcome exist; each outcome has a stdout or an output.
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
    /// Effects that are recorded as started and not as ended: effects of an earlier execution, and effects of this one
    /// whose end was not seen or could not be recorded.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub(crate) fn unseen_effects(&self) -> Result<Vec<Unseen>, StoreError> {
        let buffered = self.take_buffered();
        if !buffered.is_empty() {
            self.store.append_events(self.id, buffered, Durability::Lazy)?;
        }
        let mut recall = Recall::default();
        recall.read_journal(&self.store.all_events(self.id)?);
        Ok(recall.unseen_effects())
    }

    /// Journals that the end of an effect was not seen, and stops so that a person can decide.
    pub(super) fn stop_unseen(&self, path: &StepPath, mut outcome: StepOutcome) -> Result<Stop, Stop> {
        outcome.status = StepStatus::Interrupted;
        outcome.add_detail(CUT_OFF, Value::Bool(true));
        let said = outcome.error.clone().unwrap_or_else(|| "its end was not seen".to_owned());
        self.services.print_note(&format!(
            "warning: step '{path}': {said}. It may have had effects, so lobster does not repeat it without a decision"
        ));
        self.append_events(vec![ended_event(path, Arc::new(outcome))], Durability::Synced)?;
        self.store.forget_output(self.id, path.as_str(), false);
        self.record_failure(path);
        Ok(Stop::Interrupted)
    }

    /// Journals how the end of an effect from an earlier execution was lost, unless the journal already has it.
    pub(super) fn note_unseen(&self, path: &StepPath) -> Result<UnseenEnd, Stop> {
        let (end, is_noted) = {
            let recall = lock(&self.recall);
            (recall.unseen_end(path), recall.cut_off.contains_key(path))
        };
        if !is_noted {
            let mut outcome = StepOutcome { status: StepStatus::Interrupted, ..end.to_outcome() };
            outcome.detail[CUT_OFF] = Value::Bool(true);
            self.store.add_kept_output(self.id, path.as_str(), true, &mut outcome).map_err(store_failure)?;
            self.append_events(vec![ended_event(path, Arc::new(outcome))], Durability::Synced)?;
            self.store.forget_output(self.id, path.as_str(), true);
        }
        Ok(end)
    }

    /// The outcome of an effect whose end was not seen and that a person decided to skip.
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
