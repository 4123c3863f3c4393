//! Effects that began and whose end was not seen (invariant E7).
//!
//! Such an effect may have happened or not. The journal has it as interrupted, with everything known about the loss,
//! and a person decides if it is repeated or skipped. For a resumed run it has begun and not ended ([`CUT_OFF`]), so
//! an older lobster that reads the journal asks as well.

use lobster_base::code::{Code, FailureCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::path::StepPath;
use super::recall::Recall;
use lobster_store::{StepOutcome, StepStatus};

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
    pub(crate) fn of(lost: Lost) -> Self {
        Self { lost, signal: None, code: None, why: None, sent: false, idempotent: false }
    }

    /// A call that was sent and got no answer.
    pub(crate) fn of_call(why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), sent: true, ..Self::of(Lost::Answer) }
    }

    /// An order for which the executor returned no outcome.
    pub(crate) fn of_executor(code: Code, why: String) -> Self {
        Self { code: Some(code.into()), why: Some(why), ..Self::of(Lost::Executor) }
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
    pub(crate) fn outcome(&self) -> StepOutcome {
        let mut outcome = StepOutcome::new(StepStatus::Failed);
        self.mark(&mut outcome);
        outcome
    }

    /// Marks an outcome with it.
    pub(crate) fn mark(&self, outcome: &mut StepOutcome) {
        outcome.error = Some(self.reason());
        outcome.code = Some(Code::UnknownEnd.to_string());
        self.keep_in(outcome);
    }

    pub(super) fn keep_in(&self, outcome: &mut StepOutcome) {
        if outcome.detail.is_null() {
            outcome.detail = json!({});
        }
        outcome.detail[FIELD] = json!(self);
    }
}

/// Adds to an outcome with a lost end if the effect may be repeated.
pub(super) fn tell_idempotent(outcome: &mut StepOutcome, idempotent: bool) {
    if let Some(end) = outcome.detail.get_mut(FIELD) {
        end["idempotent"] = Value::Bool(idempotent);
    }
}

/// An effect of a run that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    pub(crate) path: String,
    pub(crate) end: UnseenEnd,
}

impl Recall {
    /// The recorded effects that began and did not end, in the order of their paths.
    pub(super) fn unseen(&self) -> Vec<Unseen> {
        let mut paths: Vec<_> = self.started.iter().collect();
        paths.sort();
        paths.into_iter().map(|path| Unseen { path: path.to_string(), end: self.unseen_end(path) }).collect()
    }

    /// The recorded facts about the end of an effect that began and did not end.
    pub(super) fn unseen_end(&self, path: &StepPath) -> UnseenEnd {
        let Some(outcome) = self.cut_off.get(path) else { return UnseenEnd::of(Lost::Lobster) };
        UnseenEnd::of_outcome(outcome)
            .unwrap_or_else(|| UnseenEnd { why: outcome.error.clone(), ..UnseenEnd::of(Lost::Stopped) })
    }
}

/// The question to a person about effects whose end was not seen.
pub(super) fn question(run: &str, unseen: &[Unseen]) -> String {
    let (they, it, did) = match unseen {
        [_] | [] => ("it", "it", "it had an effect"),
        _ => ("they", "them", "they had an effect"),
    };
    let told: Vec<_> = unseen
        .iter()
        .map(|one| format!("step '{}' was interrupted: {}", one.path, one.end.reason()))
        .collect();
    let mut told = match told.is_empty() {
        true => "a step was interrupted".to_owned(),
        false => told.join("; "),
    };
    if let Some(first) = told.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    format!(
        "{told}. It is not known if {did}, so nothing is repeated without asking. Check what {they} did, then \
         `lobster resume {run} --retry-interrupted` repeats {it}, `lobster resume {run} --skip-interrupted` \
         continues as if {they} had failed, and `lobster resume {run} --cancel` ends the run."
    )
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
                ..UnseenEnd::of(lost)
            };
            let outcome = end.outcome();
            assert_eq!(UnseenEnd::of_outcome(&outcome), Some(end.clone()));
            assert_eq!(outcome.code.as_deref(), Some(Code::UnknownEnd.as_str()));
            assert!(end.reason().split_whitespace().count() > 3);
        }
        // An unknown field from a later version is ignored; an unknown kind of loss only stays unexplained.
        let mut outcome = UnseenEnd::of_call("silence").outcome();
        outcome.detail[FIELD]["more"] = json!(1);
        assert!(UnseenEnd::of_outcome(&outcome).is_some_and(|end| end.sent));
    }

    #[test]
    fn the_question_names_each_step_and_the_three_ways_on() {
        let one = |path: &str, lost| Unseen { path: path.to_owned(), end: UnseenEnd::of(lost) };
        let asked = question("0badf00d", &[one("pay", Lost::Process), one("loop[2]/mail", Lost::Answer)]);
        for words in [
            "Step 'pay' was interrupted: its process was killed",
            "step 'loop[2]/mail' was interrupted: its call was sent",
            "It is not known if they had an effect",
            "0badf00d --retry-interrupted",
            "0badf00d --skip-interrupted",
            "0badf00d --cancel",
        ] {
            assert!(asked.contains(words), "{words}: {asked}");
        }
    }
}
