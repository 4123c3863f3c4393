//! Compares a replayed step with its record.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::super::preimage::{Difference, Part, differences};
use super::super::recording::RecordedAttempt;
use super::super::{contents, json_path};
use super::{Replay, to_json};
use lobster_engine::WORKFLOW_DIR;
use lobster_engine::kinds::component::COMPONENT;
use lobster_engine::overseer::Act;
use lobster_store::{Blob, StepOutcome};

impl Replay {
    /// Compares an action with the recorded one, which ended in `outcome`. Returns the reason if that is
    /// impossible here.
    pub(super) fn compare_action(
        &self,
        act: &Act<'_>,
        outcome: &Arc<StepOutcome>,
        effect: bool,
    ) -> Option<String> {
        let path = act.path.as_str();
        let other = || (!effect).then(|| "its action is not the recorded one".to_owned());
        let is_of =
            |step: &&RecordedAttempt| step.outcome.as_ref().is_some_and(|known| Arc::ptr_eq(known, outcome));
        let Some(step) = self.recording.steps.get(path).filter(is_of) else {
            // The record does not contain the step of this outcome.
            self.record_divergence(path, self.recording.last_seq, "action", Value::Null, to_json(act.digest));
            return other();
        };
        self.compare_values(path, step.seq, "kind", &step.kind.as_str(), &act.kind);
        self.compare_values(path, step.seq, "whether it is an effect", &step.effect, &effect);
        if act.kind != COMPONENT && !outcome.detail["host_calls"].is_null() {
            // Only a component calls the host, and no other step is executed on recorded calls.
            self.record_divergence(
                path,
                step.seq,
                "host calls",
                outcome.detail["host_calls"].clone(),
                Value::Null,
            );
        }
        let recorded = step.action.filter(|recorded| *recorded != act.digest)?;
        let Some(preimage) = self.recording.read_preimage(&self.store, path) else {
            let left_out = self.action_left_out(path);
            if left_out.is_none() {
                self.record_divergence(path, step.seq, "action", to_json(recorded), to_json(act.digest));
            }
            return left_out;
        };
        let mut found = differences(Some(&self.store), &preimage, &act.preimage.to_json());
        // A run that continued in another directory has that directory in its later actions. The location of
        // its file follows from it.
        let is_place = |difference: &Difference| match difference.part {
            Part::Directory => true,
            Part::Environment => difference.name.as_deref() == Some(WORKFLOW_DIR),
            _ => false,
        };
        found.retain(|difference| !(effect && self.recording.moved && is_place(difference)));
        let elsewhere = |part| matches!(part, Part::Environment | Part::Files);
        let first = found.first()?;
        if act.kind == COMPONENT && found.iter().all(|difference| elsewhere(difference.part)) {
            let name = first.name.as_deref().unwrap_or_default();
            let has = if first.part == Part::Files {
                "are not the same here as"
            } else {
                "does not have the same value here as"
            };
            return Some(format!("{} {name} {has} when the run was recorded", first.part.noun()));
        }
        let name = first.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let what = format!("{}{name}", first.part.noun());
        let values = (first.path.clone(), first.was.clone(), first.is.clone());
        self.record_difference(path, step.seq, &what, values);
        other()
    }

    pub(super) fn compare_outcome(
        &self,
        path: &str,
        step: &RecordedAttempt,
        recorded: &StepOutcome,
        replayed: &StepOutcome,
    ) {
        let seq = step.seq;
        self.compare_values(path, seq, "status", &recorded.status, &replayed.status);
        self.compare_values(path, seq, "error", &recorded.error, &replayed.error);
        self.compare_values(path, seq, "exit", &recorded.exit, &replayed.exit);
        // The number of polls for an answer depends on how long the answer took.
        if !step.effect {
            self.compare_values(path, seq, "fuel", &recorded.fuel, &replayed.fuel);
        }
        if step.effect && !self.live.contains(path) {
            self.compare_values(
                path,
                seq,
                "written files",
                &written_files(recorded),
                &written_files(replayed),
            );
        }
        let of_record = self.restore_cut(&recorded.value, &replayed.value);
        if let Some(place) = json_path::first_difference(&of_record, &replayed.value) {
            self.record_difference(path, step.seq, "value", place.into_parts());
        }
        self.compare_blobs(path, step.seq, "output", recorded.output, replayed.output);
        self.compare_blobs(path, step.seq, "stdout", recorded.stdout, replayed.stdout);
    }

    /// Compares values of the journal, in which texts may have been cut.
    pub(super) fn compare_values<T: PartialEq + Serialize>(
        &self,
        path: &str,
        seq: u64,
        what: &str,
        was: &T,
        is: &T,
    ) {
        if was == is {
            return;
        }
        let (was, is) = (to_json(was), to_json(is));
        if *self.restore_cut(&was, &is) != is {
            self.record_divergence(path, seq, what, was, is);
        }
    }

    pub(super) fn compare_blobs(
        &self,
        path: &str,
        seq: u64,
        what: &str,
        recorded: Option<Blob>,
        replayed: Option<Blob>,
    ) {
        if recorded == replayed {
            return;
        }
        let inside = recorded
            .zip(replayed)
            .and_then(|(was, is)| contents::first_difference(&self.store, &was.digest, &is.digest));
        match inside {
            Some(place) => self.record_difference(path, seq, what, place.into_parts()),
            None => {
                let digest = |blob: Option<Blob>| to_json(blob.map(|blob| blob.digest));
                self.record_divergence(path, seq, what, digest(recorded), digest(replayed));
            }
        }
    }
}

/// The files that a step changed. The first records have no list instead of an empty one.
fn written_files(outcome: &StepOutcome) -> Value {
    let files = outcome.detail["written"].clone();
    if files.is_null() { Value::Array(Vec::new()) } else { files }
}
