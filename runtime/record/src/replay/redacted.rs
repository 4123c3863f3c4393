//! Where the record has gaps, because something of it was redacted.

use lobster_base::code::Code;
use std::sync::Arc;

use serde_json::Value;

use super::super::bundle::CUT;
use super::super::recording::{Step, is_within};
use super::{Replay, Visit};
use lobster_base::sync::lock;
use lobster_engine::outcome::outcome_error;
use lobster_engine::overseer::RecordedEnd;
use lobster_engine::path::StepPath;
use lobster_stage::{StageError, Stop};
use lobster_store::{RunStatus, StepOutcome, StepStatus, StoreError};

/// How errors and reports speak of what was left out, and of a step that reads it.
const WAS_REDACTED: &str = "gave was redacted";
pub(super) const NEEDS_REDACTED: &str = "it needs what was redacted";

impl Replay {
    /// Whether a failure at this place comes from what was left out of the record.
    pub(super) fn depends_on_redacted(&self, path: &str, error: &StageError) -> bool {
        // Without its action, a step's program may not be had.
        let lacks_action = || {
            matches!(error.known_code(), Some(Code::Store | Code::Component))
                && self.recorded_inside(path).iter().any(|(inside, _)| self.action_left_out(inside).is_some())
        };
        self.mentions_redacted(error) || lacks_action()
    }

    /// Whether a failure names what was left out of the record.
    pub(super) fn mentions_redacted(&self, error: &StageError) -> bool {
        !self.redacted.is_empty()
            && error.is(Code::Store)
            && match error.caused_by::<StoreError>() {
                Some(StoreError::LeftOut(_)) => true,
                other => other.and_then(StoreError::blob).is_some_and(|blob| self.left_out.contains(&blob)),
            }
    }

    /// How a step ended that needs what was left out; an error where the record ends before.
    pub(super) fn end_on_record(&self, path: &str) -> Result<RecordedEnd, Stop> {
        let inside = self.recorded_inside(path);
        let own = inside.iter().any(|(inside, _)| self.redacted.contains(*inside));
        let why = if own { format!("what it {WAS_REDACTED}") } else { NEEDS_REDACTED.to_owned() };
        self.not_computed(path, why);
        for (inside, _) in &inside {
            lock(&self.seen).visited.entry((*inside).to_owned()).or_insert(Visit::Skipped);
        }
        if let Some((_, summary)) = self.recording.summaries.get(path) {
            return Ok(match summary.status {
                StepStatus::Skipped => RecordedEnd::Skipped,
                StepStatus::Ok => RecordedEnd::Done(None),
                StepStatus::Failed
                | StepStatus::TimedOut
                | StepStatus::Cancelled
                | StepStatus::Refused
                | StepStatus::Waiting
                | StepStatus::Interrupted => RecordedEnd::Failed(outcome_error(summary)),
            });
        }
        let place = StepPath::from(path).any_attempt();
        let outcome = inside.iter().rev().find_map(|(inside, step)| {
            let own = StepPath::from(*inside).any_attempt() == place;
            let is_done = |outcome: &&Arc<StepOutcome>| own && outcome.status == StepStatus::Ok;
            step.outcome.as_ref().filter(is_done).map(Arc::clone)
        });
        match outcome {
            None if self.recording.status != RunStatus::Ok => Err(self.record_ends(path)),
            outcome => Ok(RecordedEnd::Done(outcome)),
        }
    }

    /// What the record has at a place and inside it, in the order of the journal.
    fn recorded_inside(&self, place: &str) -> Vec<(&str, &Step)> {
        let steps = self.recording.steps.iter().map(|(path, step)| (path.as_str(), step));
        let inside = steps.filter(|(path, _)| path.starts_with(place) && is_within(path, place));
        let mut inside: Vec<_> = inside.collect();
        inside.sort_by_key(|(_, step)| step.seq);
        inside
    }

    /// Whether something stands in the record only as its digest.
    pub(super) fn is_cut(&self, recorded: &Value) -> bool {
        let cut = match recorded {
            Value::String(text) => text.starts_with(CUT),
            Value::Object(map) => map.len() == 1 && map.contains_key("redacted"),
            _ => false,
        };
        cut && !self.redacted.is_empty()
    }

    /// Why a step cannot be computed whose action was left out.
    pub(super) fn action_left_out(&self, path: &str) -> Option<String> {
        let action = self.recording.steps.get(path)?.action?;
        self.left_out.contains(&action).then(|| "what it reads was redacted".to_owned())
    }
}
