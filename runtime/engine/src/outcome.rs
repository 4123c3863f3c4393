//! Between the error of a step and the outcome that the record keeps of it.

use serde_json::{Value, json};

use lobster_base::code::FailureCode;
use lobster_stage::StageError;
use lobster_store::{StepOutcome, StepStatus};

/// The error that an outcome carries.
pub fn outcome_error(outcome: &StepOutcome) -> StageError {
    StageError {
        message: outcome.error.clone().unwrap_or_else(|| "the step failed without saying why".to_owned()),
        code: outcome.code.as_deref().map(FailureCode::read),
        source: None,
        permanent: outcome.detail.get("permanent").is_some_and(|flag| flag == &Value::Bool(true)),
    }
}

/// The outcome that carries an error.
pub(crate) fn failed_outcome(error: &StageError) -> StepOutcome {
    let mut outcome = StepOutcome::new(StepStatus::Failed);
    outcome.error = Some(error.message.clone());
    outcome.code = error.code.as_ref().map(FailureCode::to_string);
    if error.permanent {
        outcome.detail = json!({ "permanent": true });
    }
    outcome
}
