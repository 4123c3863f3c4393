//! What a run has committed in files, and the undo of it when a step with `on_error: undo` fails.

use std::sync::Mutex;

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_changes::ChangeSet;
use lobster_stage::{StageError, Stop};

use super::execute::keep_set;
use super::kinds::changes;
use super::path::StepPath;
use super::run::Run;

/// Kept while a run is executed; the record has the same.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// In the order of the commits.
    sets: Mutex<Vec<Digest>>,
    /// The failed step that wants it undone.
    undo_for: Mutex<Option<StepPath>>,
}

impl Committed {
    /// Notes a commit that succeeded.
    pub(crate) fn note(&self, set: Digest) {
        lock(&self.sets).push(set);
    }

    /// Notes that this step has failed, and that all of it is to be undone if the run fails.
    pub(crate) fn undo_for(&self, step: &StepPath) {
        lock(&self.undo_for).get_or_insert_with(|| step.clone());
    }

    /// Forgets a failure that something around it passed over.
    pub(crate) fn forget_undo_within(&self, path: &StepPath) {
        lock(&self.undo_for).take_if(|step| step.is_within(path));
    }
}

impl Run<'_> {
    /// Undoes what a failed run has committed, if one of its steps said so. All its steps have ended.
    pub(crate) fn undo_committed(&self, failure: Stop) -> Stop {
        let Stop::Failed(error) = failure else { return failure };
        let (step, sets) = (lock(&self.committed.undo_for).take(), lock(&self.committed.sets).clone());
        let Some(step) = step.filter(|_| !sets.is_empty()) else { return Stop::Failed(error) };
        let place = self.failed_at();
        let undone = self.commit_inverse(&step, &sets);
        // Whatever became of the undo: the run failed at the step.
        if let Some(place) = place {
            self.record_failure(&place);
        }
        match undone {
            Ok(0) => Stop::Failed(error),
            Ok(count) => {
                let noun = if count == 1 { "change" } else { "changes" };
                self.services.note(&format!(
                    "on_error: undo of step {step}: undid {count} {noun} of this run to files"
                ));
                Stop::Failed(error)
            }
            Err(Stop::Failed(why)) => {
                let message = format!("{}; and the undo of the run failed: {}", error.message, why.message);
                Stop::Failed(StageError { message, ..error })
            }
            Err(stop) => stop,
        }
    }

    fn commit_inverse(&self, step: &StepPath, sets: &[Digest]) -> Result<usize, Stop> {
        let load = |digest: &Digest| changes::load(&self.store, digest);
        let sets: Vec<ChangeSet> = sets.iter().map(load).collect::<Result<_, _>>().map_err(Stop::Failed)?;
        let inverse = ChangeSet::compose(&sets.iter().collect::<Vec<_>>()).inverse();
        if inverse.is_empty() {
            return Ok(0);
        }
        let blob =
            keep_set(&self.store, &inverse).map_err(|error| Stop::Failed(error.or_code(Code::Changes)))?;
        changes::take_back(self, &step.gate("undo"), blob.digest)?;
        Ok(inverse.changes().count())
    }
}
