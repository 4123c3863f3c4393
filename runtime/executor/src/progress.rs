//! Live progress of a run, for a person.

use std::fmt;

use serde::{Deserialize, Serialize};

use lobster_store::{Event, StepOutcome};

/// Reports live progress to a person. All of it is also written to the journal or the store, so nothing is lost if it
/// is missed.
pub trait Progress: Send + Sync {
    /// Work that may take long begins at a place in the run.
    fn work_started(&self, place: &str, kind: &str);
    /// The work at this place has ended.
    fn work_ended(&self, place: &str);
    /// A loop of `count` rounds begins.
    fn loop_started(&self, _place: &str, _count: usize) {}
    /// A step of the workflow ended with this outcome, which includes all its attempts and all its sub-steps.
    fn step_ended(&self, _place: &str, _outcome: &StepOutcome) {}
    /// The run journals these events.
    fn events_recorded(&self, _events: &[Event]) {}
    /// Output arrived from the running effect at this place.
    fn output_arrived(&self, _place: &str, _heard: &Heard) {}
}

/// Output of an effect that has not ended yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// Number of characters that have arrived of a model's answer; the text itself is not shown.
    Answering(u64),
    /// The last line of a process on stderr, with secrets replaced.
    Stderr(String),
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answering(characters) => write!(f, "{characters} characters of the answer so far"),
            Self::Stderr(line) => f.write_str(line),
        }
    }
}
