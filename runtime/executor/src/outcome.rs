//! Converts between the error of a step and its recorded outcome.

use std::time::Duration;

use serde_json::{Value, json};

use lobster_base::code::FailureCode;
use lobster_base::text;
use lobster_stage::StageError;
use lobster_store::{StepOutcome, StepStatus};

/// The field of an outcome's detail with the server's `Retry-After`, in milliseconds.
const RETRY_AFTER: &str = "retryAfterMs";

/// The field of an outcome's detail which is set if its step read values of the run or blobs.
pub(crate) const READ_STATE: &str = "read_state";

/// The field which is set if the step read values of the run.
pub(crate) const READ_VALUES: &str = "read_values";

/// The field which is set if files of the step's action changed while the step ran.
const FILES_CHANGED: &str = "files_changed";

/// Marks an outcome whose files changed while the step ran.
pub fn note_changed_files(outcome: &mut StepOutcome) {
    outcome.detail[FILES_CHANGED] = Value::Bool(true);
}

/// True if files of the step's action changed while the step ran. The action then does not identify what the step
/// read.
#[must_use]
pub fn has_changed_files(outcome: &StepOutcome) -> bool {
    outcome.detail.get(FILES_CHANGED).is_some()
}

/// True if the outcome follows from the action alone. Then another run may reuse it, together with its kept values.
#[must_use]
pub fn follows_from_action(outcome: &StepOutcome, effect: bool) -> bool {
    let read = |what: &str| outcome.detail.get(what).is_some();
    // An effect is not repeated because it read a blob, or because files changed meanwhile.
    !read(READ_VALUES) && (effect || !(read(READ_STATE) || has_changed_files(outcome)))
}

/// The error in an outcome.
pub fn outcome_error(outcome: &StepOutcome) -> StageError {
    StageError {
        message: outcome.error.clone().unwrap_or_else(|| "the step failed without saying why".to_owned()),
        code: outcome.code.as_deref().map(FailureCode::from_name),
        source: None,
        permanent: outcome.detail.get("permanent").is_some_and(|flag| flag == &Value::Bool(true)),
        retry_after: outcome.detail.get(RETRY_AFTER).and_then(Value::as_u64).map(Duration::from_millis),
    }
}

/// Most bytes of a failure's message that are kept. The messages of programs and servers may have any length, and they
/// appear in the journal, the envelope and the summaries of enclosing steps.
const MAX_MESSAGE: usize = 64 << 10;

/// The outcome for an error.
pub fn failed_outcome(error: &StageError) -> StepOutcome {
    let mut outcome = StepOutcome::new(StepStatus::Failed);
    outcome.error = Some(text::clip_telling_rest(&error.message, MAX_MESSAGE).into_owned());
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
    fn a_message_is_kept_as_far_as_it_helps() {
        for (length, is_whole) in [(10, true), (MAX_MESSAGE, true), (30 << 20, false)] {
            let message = "é".repeat(length / 2);
            let kept = failed_outcome(&StageError::new(&*message)).error.unwrap();
            assert_eq!(kept == message, is_whole, "{length}");
            assert!(kept.len() < MAX_MESSAGE + 64 && kept.starts_with(&message[..10]));
        }
    }

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
