//! The unseen end of an effect (invariant E7): the effect may have happened or not.

use lobster_base::code::{Code, FailureCode};
use lobster_store::{StepOutcome, StepStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The field of an outcome's detail that holds an [`UnseenEnd`].
const FIELD: &str = "unknown_end";

/// The part whose loss hid the end of the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Its process was killed from outside.
    Process,
    /// The supervisor of its process was killed from outside.
    Supervisor,
    /// A call was sent, and no answer arrived.
    Answer,
    /// lobster ended: it was killed, or its machine stopped.
    Lobster,
    /// The run was stopped, and the effect with it.
    Stopped,
    /// The executor outside this process returned no outcome.
    Executor,
}

/// Facts about an effect whose end was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenEnd {
    /// The part that was lost.
    pub lost: Lost,
    /// The signal that ended the process: `SIGKILL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The executor's error: `executor_died`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// The error that the waiting side got: `no answer within 500 ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// True if the effect certainly left lobster, as a call that was sent.
    #[serde(default)]
    pub sent: bool,
    /// True if its author declares that repeating it is the same as performing it once.
    #[serde(default)]
    pub idempotent: bool,
}

impl UnseenEnd {
    /// An effect that was lost in this way.
    pub fn of_loss(lost: Lost) -> Self {
        Self { lost, signal: None, code: None, why: None, sent: false, idempotent: false }
    }

    /// A call that was sent and got no answer.
    pub fn of_call(why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), sent: true, ..Self::of_loss(Lost::Answer) }
    }

    /// An order for which the executor returned no outcome.
    pub fn of_executor(code: Code, why: String) -> Self {
        Self { code: Some(code.into()), why: Some(why), ..Self::of_loss(Lost::Executor) }
    }

    /// Reads it from an outcome; `None` if the end was seen.
    #[must_use]
    pub fn of_outcome(outcome: &StepOutcome) -> Option<Self> {
        serde_json::from_value(outcome.detail.get(FIELD)?.clone()).ok()
    }

    /// A description of the loss, as the end of a sentence about the step.
    #[must_use]
    pub fn reason(&self) -> String {
        let signal = self.signal.as_ref().map(|signal| format!(" ({signal})")).unwrap_or_default();
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        // Older records have the code at the end of `why`.
        let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        match self.lost {
            Lost::Process => format!("its process was killed from outside{signal}"),
            Lost::Supervisor => "the supervisor of its process was killed from outside".to_owned(),
            Lost::Answer => format!("its call was sent and no answer came back{why}"),
            Lost::Lobster => "lobster ended while it was under way".to_owned(),
            Lost::Stopped => format!("it was stopped half-way{why}"),
            Lost::Executor => format!("its executor returned no outcome{why}{code}"),
        }
    }

    /// The outcome of an effect whose end was not seen; further facts may be added.
    pub fn to_outcome(&self) -> StepOutcome {
        let mut outcome = StepOutcome::new(StepStatus::Failed);
        self.mark_outcome(&mut outcome);
        outcome
    }

    /// Marks an outcome with it.
    pub fn mark_outcome(&self, outcome: &mut StepOutcome) {
        outcome.error = Some(self.reason());
        outcome.code = Some(Code::UnknownEnd.to_string());
        self.keep_in(outcome);
    }

    pub fn keep_in(&self, outcome: &mut StepOutcome) {
        outcome.add_detail(FIELD, json!(self));
    }
}

/// Adds to an outcome with a lost end if the effect may be repeated.
pub fn tell_idempotent(outcome: &mut StepOutcome, idempotent: bool) {
    if let Some(end) = outcome.detail.get_mut(FIELD) {
        end["idempotent"] = Value::Bool(idempotent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_journal_and_is_a_sentence() {
        for lost in
            [Lost::Process, Lost::Supervisor, Lost::Answer, Lost::Lobster, Lost::Stopped, Lost::Executor]
        {
            let end = UnseenEnd {
                signal: Some("SIGKILL".to_owned()),
                code: Some(Code::ExecutorDied.into()),
                why: Some("no answer".to_owned()),
                ..UnseenEnd::of_loss(lost)
            };
            let outcome = end.to_outcome();
            assert_eq!(UnseenEnd::of_outcome(&outcome), Some(end.clone()));
            assert_eq!(outcome.code.as_deref(), Some(Code::UnknownEnd.as_str()));
            assert!(end.reason().split_whitespace().count() > 3);
        }
        // An unknown field from a later version is ignored; an unknown kind of loss only stays unexplained.
        let mut outcome = UnseenEnd::of_call("silence").to_outcome();
        outcome.detail[FIELD]["more"] = json!(1);
        assert!(UnseenEnd::of_outcome(&outcome).is_some_and(|end| end.sent));
    }
}
