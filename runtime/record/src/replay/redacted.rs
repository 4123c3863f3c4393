//! Handles gaps in the record that were left by redaction.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::super::bundle::CUT;
use super::super::recording::RecordedAttempt;
use super::{Replay, Visit};
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::place::is_within;
use lobster_base::sync::lock;
use lobster_engine::overseer::RecordedEnd;
use lobster_engine::path::StepPath;
use lobster_executor::outcome_error;
use lobster_stage::{StageError, Stop};
use lobster_store::{RunStatus, StepOutcome, StepStatus, StoreError};

/// Wording of errors and reports for redacted results, and for steps that read them.
const WAS_REDACTED: &str = "result was redacted";
pub(super) const NEEDS_REDACTED: &str = "it needs redacted data";

impl Replay {
    /// True if a failure at this place is caused by a gap in the record.
    pub(super) fn depends_on_redacted(&self, path: &str, error: &StageError) -> bool {
        // Without its action, the program of a step may not be available.
        let lacks_action = || {
            matches!(error.known_code(), Some(Code::Store | Code::Component))
                && self.recorded_inside(path).iter().any(|(inside, _)| self.action_left_out(inside).is_some())
        };
        self.mentions_redacted(error) || lacks_action()
    }

    /// True if a failure names something that was left out of the record.
    pub(super) fn mentions_redacted(&self, error: &StageError) -> bool {
        !self.redacted.is_empty()
            && error.has_code(Code::Store)
            && match error.caused_by::<StoreError>() {
                Some(StoreError::LeftOut(_)) => true,
                other => other
                    .and_then(StoreError::unreadable_blob)
                    .is_some_and(|blob| self.left_out.contains(&blob)),
            }
    }

    /// The recorded end of a step that needs redacted data; an error if the record ends before.
    pub(super) fn end_on_record(&self, path: &str) -> Result<RecordedEnd, Stop> {
        let inside = self.recorded_inside(path);
        let own = inside.iter().any(|(inside, _)| self.redacted.contains(*inside));
        let why = if own { format!("its {WAS_REDACTED}") } else { NEEDS_REDACTED.to_owned() };
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

    /// Recorded steps at a place and inside it, in the order of the journal.
    fn recorded_inside(&self, place: &str) -> Vec<(&str, &RecordedAttempt)> {
        let steps = self.recording.steps.iter().map(|(path, step)| (path.as_str(), step));
        let inside = steps.filter(|(path, _)| path.starts_with(place) && is_within(path, place));
        let mut inside: Vec<_> = inside.collect();
        inside.sort_by_key(|(_, step)| step.seq);
        inside
    }

    /// True if the record has only the digest of a value.
    pub(super) fn is_cut(&self, recorded: &Value) -> bool {
        !self.redacted.is_empty() && cut_digest(recorded).is_some()
    }

    /// A value of the journal, in which texts that were cut out are replaced by those in `replayed`, if they
    /// can be equal. Blobs are left out as a whole, so nothing in them is cut.
    pub(super) fn restore_cut<'v>(&self, recorded: &'v Value, replayed: &'v Value) -> Cow<'v, Value> {
        if self.redacted.is_empty() { Cow::Borrowed(recorded) } else { fill_cut(recorded, replayed) }
    }

    /// Reason why a step whose action was left out cannot be computed.
    pub(super) fn action_left_out(&self, path: &str) -> Option<String> {
        let action = self.recording.steps.get(path)?.action?;
        self.left_out.contains(&action).then(|| "its input was redacted".to_owned())
    }
}

/// The digest of a text or value that was cut out.
fn cut_digest(recorded: &Value) -> Option<&str> {
    match recorded {
        Value::String(text) => text.strip_prefix(CUT),
        Value::Object(map) if map.len() == 1 => map.get("redacted")?.as_str(),
        _ => None,
    }
}

fn fill_cut<'v>(recorded: &'v Value, replayed: &'v Value) -> Cow<'v, Value> {
    match (recorded, replayed) {
        (recorded, replayed) if can_be_cut_to(replayed, recorded) => Cow::Borrowed(replayed),
        (Value::Object(was), Value::Object(is)) => {
            let member = |(name, was): (&String, &Value)| {
                let filled = is.get(name).map_or(Cow::Borrowed(was), |is| fill_cut(was, is));
                (name.clone(), filled.into_owned())
            };
            Cow::Owned(Value::Object(was.iter().map(member).collect()))
        }
        (Value::Array(was), Value::Array(is)) => {
            let item = |(index, was): (usize, &Value)| {
                let filled = is.get(index).map_or(Cow::Borrowed(was), |is| fill_cut(was, is));
                filled.into_owned()
            };
            Cow::Owned(Value::Array(was.iter().enumerate().map(item).collect()))
        }
        _ => Cow::Borrowed(recorded),
    }
}

/// True if a cut can stand for this value: it has the same digest, or the value itself contains a cut.
fn can_be_cut_to(replayed: &Value, recorded: &Value) -> bool {
    let Some(digest) = cut_digest(recorded).and_then(|digest| digest.parse::<Digest>().ok()) else {
        return false;
    };
    let text = match replayed {
        Value::String(text) => text.clone(),
        other => json::compact(other),
    };
    let is_made_of_cut = || text.contains(CUT) || text.contains(r#""redacted":"#);
    Digest::of_bytes(text.as_bytes()) == digest
        || Digest::of_json(replayed).is_ok_and(|whole| whole == digest)
        || is_made_of_cut()
}
