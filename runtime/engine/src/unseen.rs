//! Effects that had begun and whose end nobody saw (invariant E7).
//!
//! Such an effect may have happened or not. It stands in the journal as interrupted,
//! with what is known of how it was lost, and a person decides whether it is repeated
//! or skipped. For whoever goes on with the run it has begun and not ended
//! ([`CUT_OFF`]), so an older lobster that reads the journal asks as well.

use lobster_base::code::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::path::StepPath;
use super::recall::{CUT_OFF, Recall};
use super::run::{Run, lock};
use lobster_stage::Stop;
use lobster_store::{Durability, Event, StepOutcome, StepStatus, StoreError};

/// The field of an outcome's detail that holds an [`UnseenEnd`].
const FIELD: &str = "unknown_end";

/// What was lost, and with it the end of the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Somebody killed its process.
    Process,
    /// Somebody killed what watched over its process.
    Supervisor,
    /// A call was sent, and no answer came back.
    Answer,
    /// lobster ended: it was killed, or its machine stopped.
    Lobster,
    /// The run was told to stop, and stopped the effect half-way.
    Stopped,
    /// What carried it out outside this process did not bring back its outcome.
    Executor,
}

/// What is known of an effect whose end was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenEnd {
    /// What was lost.
    pub lost: Lost,
    /// The signal that ended the process: `SIGKILL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// What the one who waited was told: `no answer within 500 ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether it is known that the effect went out: a call that was sent.
    #[serde(default)]
    pub sent: bool,
    /// Whether its author says that doing it twice is the same as once.
    #[serde(default)]
    pub idempotent: bool,
}

impl UnseenEnd {
    /// The end of an effect that was lost with this.
    pub(crate) fn of(lost: Lost) -> Self {
        Self { lost, signal: None, why: None, sent: false, idempotent: false }
    }

    /// A call that was sent and has no answer.
    pub(crate) fn of_call(why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), sent: true, ..Self::of(Lost::Answer) }
    }

    /// What an outcome says of it; none if its end was seen.
    #[must_use]
    pub fn of_outcome(outcome: &StepOutcome) -> Option<Self> {
        serde_json::from_value(outcome.detail.get(FIELD)?.clone()).ok()
    }

    /// What happened, as the end of a sentence about the step.
    #[must_use]
    pub fn reason(&self) -> String {
        let signal = self.signal.as_ref().map(|signal| format!(" ({signal})")).unwrap_or_default();
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        match self.lost {
            Lost::Process => format!("its process was killed from outside{signal}"),
            Lost::Supervisor => "the supervisor of its process was killed from outside".to_owned(),
            Lost::Answer => format!("its call was sent and no answer came back{why}"),
            Lost::Lobster => "lobster ended while it was under way".to_owned(),
            Lost::Stopped => format!("it was stopped half-way{why}"),
            Lost::Executor => format!("its executor brought back no outcome{why}"),
        }
    }

    /// The outcome of an effect whose end was not seen; what else is known of it may be added.
    pub(crate) fn outcome(&self) -> StepOutcome {
        let mut outcome = StepOutcome::new(StepStatus::Failed);
        self.mark(&mut outcome);
        outcome
    }

    /// Says so in an outcome.
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

/// Adds to an outcome that tells of a lost end whether the effect may be repeated.
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
    /// What the journal says of effects that began and did not end, in the order of their names.
    pub(super) fn unseen(&self) -> Vec<Unseen> {
        let mut paths: Vec<_> = self.started.iter().collect();
        paths.sort();
        paths.into_iter().map(|path| Unseen { path: path.to_string(), end: self.unseen_end(path) }).collect()
    }

    /// What is known of the end of an effect that began and did not end.
    pub(super) fn unseen_end(&self, path: &StepPath) -> UnseenEnd {
        let Some(outcome) = self.cut_off.get(path) else { return UnseenEnd::of(Lost::Lobster) };
        UnseenEnd::of_outcome(outcome)
            .unwrap_or_else(|| UnseenEnd { why: outcome.error.clone(), ..UnseenEnd::of(Lost::Stopped) })
    }
}

impl Run<'_> {
    /// Effects that are on record as started and not as ended: those that an
    /// earlier execution left, and those of this one whose end was not seen or
    /// could not be recorded.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(crate) fn unseen(&self) -> Result<Vec<Unseen>, StoreError> {
        let buffered = self.take_buffered();
        if !buffered.is_empty() {
            self.store.append(self.id, buffered, Durability::Lazy)?;
        }
        let mut recall = Recall::default();
        recall.read(&self.store.events(self.id)?);
        Ok(recall.unseen())
    }

    /// Journals that the end of an effect was not seen, and stops for a person to decide.
    pub(super) fn stop_unseen(&self, path: &StepPath, mut outcome: StepOutcome) -> Result<Stop, Stop> {
        outcome.status = StepStatus::Interrupted;
        if outcome.detail.is_null() {
            outcome.detail = json!({});
        }
        outcome.detail[CUT_OFF] = Value::Bool(true);
        let said = outcome.error.clone().unwrap_or_else(|| "its end was not seen".to_owned());
        self.services.note(&format!(
            "warning: step '{path}': {said}. What it did is not known, so it is not done again by itself"
        ));
        self.append(vec![ended(path, outcome)], Durability::Synced)?;
        self.record_failure(path);
        Ok(Stop::Interrupted)
    }

    /// Journals how an effect was lost that an earlier execution began, unless the journal says so.
    pub(super) fn note_unseen(&self, path: &StepPath) -> Result<UnseenEnd, Stop> {
        let (end, is_noted) = {
            let recall = lock(&self.recall);
            (recall.unseen_end(path), recall.cut_off.contains_key(path))
        };
        if !is_noted {
            let mut outcome = StepOutcome { status: StepStatus::Interrupted, ..end.outcome() };
            outcome.detail[CUT_OFF] = Value::Bool(true);
            self.append(vec![ended(path, outcome)], Durability::Synced)?;
        }
        Ok(end)
    }

    /// The outcome of an effect whose end was not seen, and that a person wants skipped.
    pub(super) fn skipped_unseen(path: &StepPath, end: &UnseenEnd) -> StepOutcome {
        let mut outcome = StepOutcome::new(StepStatus::Interrupted);
        outcome.error =
            Some(format!("Step '{path}' was interrupted and skipped on request: {}", end.reason()));
        outcome.code = Some(Code::Interrupted.to_string());
        outcome.detail = json!({ "permanent": true });
        end.keep_in(&mut outcome);
        outcome
    }
}

fn ended(path: &StepPath, outcome: StepOutcome) -> Event {
    Event::StepEnded {
        path: path.to_string(),
        attempt: path.attempt_number(),
        begun: None,
        outcome: outcome.into(),
    }
}

/// What a person is asked about effects whose end was not seen.
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
        "{told}. Whether {did} is not known, so nothing is repeated unasked. Look at what {they} did, then \
         `lobster resume {run} --retry-interrupted` repeats {it}, `lobster resume {run} --skip-interrupted` goes on \
         as if {they} had failed, and `lobster resume {run} --cancel` ends the run."
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
                why: Some("no answer".to_owned()),
                ..UnseenEnd::of(lost)
            };
            let outcome = end.outcome();
            assert_eq!(UnseenEnd::of_outcome(&outcome), Some(end.clone()));
            assert_eq!(outcome.code.as_deref(), Some(Code::UnknownEnd.as_str()));
            assert!(end.reason().split_whitespace().count() > 3);
        }
        // A later lobster's field is no obstacle; a later kind of loss is only not understood.
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
            "Whether they had an effect is not known",
            "0badf00d --retry-interrupted",
            "0badf00d --skip-interrupted",
            "0badf00d --cancel",
        ] {
            assert!(asked.contains(words), "{words}: {asked}");
        }
    }
}
