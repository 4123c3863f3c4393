//! Runs of which a part was written down elsewhere. What was done there was done, and what was permitted there is
//! not permitted here: questions are asked here, and no change to files that was made there is committed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use lobster_base::code::Code;
use lobster_base::sync::lock;
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::{Record, StepOutcome, StepStatus, StoreError};

use super::beginning::Beginning;
use super::path::StepPath;
use super::recall::Recall;
use super::run::Run;

impl Run<'_> {
    /// The same for a run that may have come from elsewhere: the records that did not begin here permit nothing, and
    /// decisions depend on what is here.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn doubting_imports(mut self, journal: &[Record]) -> Result<Self, StoreError> {
        let Some(imported) = self.store.imported_records(self.id)? else { return Ok(self) };
        let mut recall = Recall::of_imported(imported);
        recall.read(journal);
        self.recall = Mutex::new(recall);
        let beginning = Beginning::read(&self.store, self.id)?;
        let surroundings = beginning.and_then(|beginning| beginning.surroundings());
        self.surroundings = surroundings.unwrap_or_else(|| self.services.surroundings());
        Ok(self)
    }

    /// The outcome that was journaled earlier, if it holds whatever the action here is now.
    pub(crate) fn remembered_for_certain(&self, path: &StepPath) -> Option<Arc<StepOutcome>> {
        lock(&self.recall).certain(path)
    }

    /// Whether what this place gave is on record only where the run was imported from.
    pub(crate) fn is_from_elsewhere(&self, path: &StepPath) -> bool {
        lock(&self.recall).is_from_elsewhere(path)
    }

    /// Whether the plan was written down elsewhere: in the store that the run was imported from, or that one of its
    /// parents was.
    fn has_plan_from_elsewhere(&self) -> Result<bool, StoreError> {
        let (mut run, mut known) = (self.id, HashSet::new());
        while known.insert(run) {
            let summary = match self.store.run(run) {
                // A parent that was collected meanwhile may have come from anywhere.
                Err(StoreError::UnknownRun(_)) => return Ok(true),
                found => found?,
            };
            if self.store.imported_records(run)?.is_some() {
                return Ok(true);
            }
            match summary.parent {
                Some(parent) => run = parent,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Refuses to commit what these steps changed in files, or to take it back, if that is on record only elsewhere.
    /// `done` is the place of the commit: one that was made there is not made again.
    pub(crate) fn refuse_changes_from_elsewhere(
        &self,
        steps: &[StepPath],
        done: &StepPath,
    ) -> Result<(), Stop> {
        let Some(step) = steps.iter().find(|step| self.is_from_elsewhere(step)) else { return Ok(()) };
        if self.remembered(done).is_some_and(|outcome| outcome.status == StepStatus::Ok) {
            return Ok(());
        }
        let message = format!(
            "step {step}: what it changed in files was recorded where the run was imported from, and is not committed \
             here; `lobster fork {}` runs the step here",
            self.id.short()
        );
        Err(StageError::permanent(message).with_code(Code::Changes).into())
    }

    /// Refuses a change set that the plan itself names, as only that of an undo does, if others wrote the plan.
    pub(crate) fn refuse_plan_from_elsewhere(&self) -> Result<(), Stop> {
        // What is not journaled commits nothing.
        if !self.journals() || !self.has_plan_from_elsewhere().map_err(store_failure)? {
            return Ok(());
        }
        let message = "the undo was planned where the run was imported from, and is not done here".to_owned();
        Err(StageError::permanent(message).with_code(Code::Changes).into())
    }
}
