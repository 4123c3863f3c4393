//! Effects that a replay performs again (`--live`). They start under the policy like the effects of a run, but a replay
//! asks nobody: an effect that depends on a person's answer is refused. The audit lists each start and end.

use serde_json::{Value, json};

use super::super::changes::SUFFIX as COMMIT_SUFFIX;
use super::super::recording::Recording;
use super::Replay;
use lobster_base::code::Code;
use lobster_base::sync::lock;
use lobster_engine::author::Author;
use lobster_engine::envelope::Failure;
use lobster_engine::overseer::Act;
use lobster_engine::path::StepPath;
use lobster_engine::runtime::Runtime;
use lobster_stage::{StageError, Stop};
use lobster_store::{Durability, Event, StepOutcome, StoreError};

/// The note before an effect that a replay performs.
const STARTED: &str = "performed again by replay --live";

/// The note after it.
const ENDED: &str = "ended, performed again by replay --live";

/// The person or program that starts a replay, as the audit names it.
pub(super) fn describe_performer(runtime: &Runtime) -> Value {
    let services = &runtime.services;
    json!({ "actor": services.actor(), "author": Author::of_process(&services.env).detail })
}

/// Refuses to perform an effect again that came after an answer of a person, which is valid for one execution, or that
/// is a commit.
pub(super) fn refuse_unasked(recording: &Recording, step: &str) -> Result<(), Failure> {
    if step.ends_with(COMMIT_SUFFIX) {
        return Err(Failure::parse_error(format!(
            "'{step}' commits changes, which --live does not perform again"
        )));
    }
    let Some(performed) = recording.steps.get(step) else { return Ok(()) };
    // A policy's question is only about its own step, and the policy decides about this step again.
    let led_here = |place: &str, seq: u64| seq < performed.seq && !place.ends_with(POLICY_QUESTION);
    let mut answers = recording.answers.iter();
    let Some((place, _)) = answers.find(|(place, (seq, _))| led_here(place, *seq)) else { return Ok(()) };
    let why = format!("a person answered '{place}' before it");
    Err(Failure::new(Code::PolicyDenied, explain_refusal(recording, step, &why)))
}

/// The end of the path of a policy's question.
const POLICY_QUESTION: &str = "!policy!approval";

/// The message that an effect is not performed again.
fn explain_refusal(recording: &Recording, step: &str, why: &str) -> String {
    let run = recording.run.short_id();
    format!(
        "'{step}' is not performed again: {why}, and a replay asks nobody; `lobster fork {run} --from '{step}'` asks"
    )
}

impl Replay {
    /// Refuses an effect that a person has to approve.
    pub(super) fn refuse_question(&self, path: &StepPath) -> Result<(), Stop> {
        let path = path.as_str();
        if !self.live.contains(path) {
            return Ok(());
        }
        let message = explain_refusal(&self.recording, path, "the policy requires an approval");
        lock(&self.seen).refused.get_or_insert_with(|| message.clone());
        Err(Stop::Failed(StageError::permanent(message).with_code(Code::PolicyDenied)))
    }

    /// Records the start of an effect, with the policy's decision, in the journal of the run. It is durable before the
    /// effect starts.
    pub(super) fn record_start(&self, act: &Act<'_>, decision: &Value) -> Result<(), StoreError> {
        let mut detail = json!({ "performer": self.performer, "action": act.digest });
        if decision.is_object() {
            detail["decision"] = decision.clone();
            detail["decision"]["proposal"] = json!({ "command": { "argv": act.preimage.to_json()["argv"] } });
        }
        let note = Event::Note { path: Some(act.path.to_string()), text: STARTED.to_owned(), detail };
        self.store.append_events(self.recording.run, vec![note], Durability::Synced)
    }

    /// Records its end. The effect has happened, so a failure to record the end is not one of the step.
    pub(super) fn record_end(&self, path: &str, outcome: &StepOutcome) {
        let note = Event::Note {
            path: Some(path.to_owned()),
            text: ENDED.to_owned(),
            detail: json!({ "performer": self.performer, "status": outcome.status, "exit": outcome.exit }),
        };
        let recorded = self.store.append_events(self.recording.run, vec![note], Durability::Lazy);
        if let Err(error) = recorded {
            lock(&self.seen).hindered.get_or_insert_with(|| error.to_string());
        }
    }
}
