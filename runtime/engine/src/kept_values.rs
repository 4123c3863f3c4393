//! Values that a component keeps for the rest of its run. They are part of the step's outcome: an execution that
//! reuses the outcome keeps them as well.

use lobster_base::json;
use lobster_base::sync::lock;
use lobster_store::{Blob, Durability, StepOutcome, StepStatus, StoreError};
use serde_json::{Value, json};

use super::run::Run;
use lobster_executor::follows_from_action;

/// The field of an outcome's detail with the blob of the values, a JSON object.
const KEPT_VALUES: &str = "kept_values";

/// Adds the blob of a step's values to its outcome.
pub(crate) fn name_kept_values(outcome: &mut StepOutcome, values: Blob) {
    outcome.detail[KEPT_VALUES] = json!(values.digest);
}

/// True if an outcome follows from its action alone and is complete: it succeeded, nothing outside the action decided
/// it, and its step kept no values.
pub(crate) fn is_all_of_its_action(outcome: &StepOutcome) -> bool {
    outcome.status == StepStatus::Ok
        && follows_from_action(outcome, false)
        && outcome.detail.get(KEPT_VALUES).is_none()
}

impl Run<'_> {
    /// Keeps the values in a blob for the rest of the run.
    fn keep_values(&self, text: &[u8]) -> Result<(), StoreError> {
        let values: std::collections::BTreeMap<String, Value> =
            json::parse_as(&String::from_utf8_lossy(text))
                .map_err(|source| StoreError::Json { what: "values that a step keeps", source })?;
        for (key, value) in values {
            match self.scratch() {
                Some(scratch) => drop(lock(&scratch).insert(key, value)),
                None => self.store.set_run_value(self.id, &key, &value, Durability::Lazy)?,
            }
        }
        Ok(())
    }

    /// Keeps the values of an outcome that is reused.
    pub(crate) fn keep_values_of(&self, outcome: &StepOutcome) -> Result<(), StoreError> {
        let digest = outcome.detail.get(KEPT_VALUES).and_then(|digest| digest.as_str()?.parse().ok());
        let Some(digest) = digest else { return Ok(()) };
        match self.store.load_blob(&digest, u64::MAX) {
            Ok(text) => self.keep_values(&text),
            // The bundle may be without the step's values, as without its output.
            Err(StoreError::MissingBlob(_)) if !self.is_journaled() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
