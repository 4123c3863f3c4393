//! Between the error of a step and the outcome that the record keeps of it.

use std::time::Duration;

use serde_json::{Value, json};

use lobster_base::code::FailureCode;
use lobster_stage::StageError;
use lobster_store::{StepOutcome, StepStatus};

/// The field of an outcome's detail with what a server said in `Retry-After`, in milliseconds.
const RETRY_AFTER: &str = "retryAfterMs";

/// The error that an outcome carries.
pub fn outcome_error(outcome: &StepOutcome) -> StageError {
    StageError {
        message: outcome.error.clone().unwrap_or_else(|| "the step failed without saying why".to_owned()),
        code: outcome.code.as_deref().map(FailureCode::read),
        source: None,
        permanent: outcome.detail.get("permanent").is_some_and(|flag| flag == &Value::Bool(true)),
        retry_after: outcome.detail.get(RETRY_AFTER).and_then(Value::as_u64).map(Duration::from_millis),
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
    if let Some(pause) = error.retry_after {
        let detail = outcome.detail.as_object_mut().map(std::mem::take);
        let mut detail = detail.unwrap_or_default();
        detail.insert(RETRY_AFTER.to_owned(), json!(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)));
        outcome.detail = detail.into();
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_after_it_was_recorded() {
        for permanent in [false, true] {
            for retry_after in [None, Some(Duration::from_millis(2500))] {
                let error = StageError { permanent, retry_after, ..StageError::new("x") };
                let again = outcome_error(&failed_outcome(&error));
                assert_eq!((again.permanent, again.retry_after), (permanent, retry_after));
            }
        }
    }
}
