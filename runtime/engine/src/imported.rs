//! Runs whose record was partly written in another store. The effects there were performed, but permissions from there
//! are not valid here: questions are asked here, and file changes made there are not committed.

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
    /// The same for a run that may come from another store: records that did not begin here permit nothing, and
    /// decisions depend on the facts here.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn doubting_imports(mut self, journal: &[Record]) -> Result<Self, StoreError> {
        let Some(imported) = self.store.imported_records(self.id)? else { return Ok(self) };
        let mut recall = Recall::of_imported(imported);
        recall.read_journal(journal);
        self.recall = Mutex::new(recall);
        let beginning = Beginning::from_journal(&self.store, self.id)?;
        let surroundings = beginning.and_then(|beginning| beginning.surroundings());
        self.surroundings = surroundings.unwrap_or_else(|| self.services.surroundings());
        Ok(self)
    }

    /// The journaled outcome, if it is valid regardless of the current action.
    pub(crate) fn remembered_for_certain(&self, path: &StepPath) -> Option<Arc<StepOutcome>> {
        lock(&self.recall).certain_outcome(path)
    }

    /// True if the outcome of this path is recorded only in the store from which the run was imported.
    pub(crate) fn is_from_elsewhere(&self, path: &StepPath) -> bool {
        lock(&self.recall).is_from_elsewhere(path)
    }

    /// True if the plan was recorded elsewhere: in the store from which the run or one of its parents was imported.
    fn has_plan_from_elsewhere(&self) -> Result<bool, StoreError> {
        let (mut run, mut known) = (self.id, HashSet::new());
        while known.insert(run) {
            let summary = match self.store.run(run) {
                // A parent that is gone from the store may have come from anywhere.
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

    /// Refuses to commit or to undo these steps' changes to files, if they are recorded only elsewhere. `done` is the
    /// path of the commit: a commit that was made there is not repeated.
    pub(crate) fn refuse_changes_from_elsewhere(
        &self,
        steps: &[StepPath],
        done: &StepPath,
    ) -> Result<(), Stop> {
        let Some(step) = steps.iter().find(|step| self.is_from_elsewhere(step)) else { return Ok(()) };
        if self.recorded_outcome(done).is_some_and(|outcome| outcome.status == StepStatus::Ok) {
            return Ok(());
        }
        let message = format!(
            "step {step}: its changes to files were recorded where the run was imported from, and are not committed \
             here; `lobster fork {}` runs the step here",
            self.id.short_id()
        );
        Err(StageError::permanent(message).with_code(Code::Changes).into())
    }

    /// Refuses a change set that the plan itself names, as only the plan of an undo does, if the plan was written
    /// elsewhere.
    pub(crate) fn refuse_plan_from_elsewhere(&self) -> Result<(), Stop> {
        // Only a run that journals commits anything.
        if !self.is_journaled() || !self.has_plan_from_elsewhere().map_err(store_failure)? {
            return Ok(());
        }
        let message = "the undo was planned where the run was imported from, and is not done here".to_owned();
        Err(StageError::permanent(message).with_code(Code::Changes).into())
    }
}
