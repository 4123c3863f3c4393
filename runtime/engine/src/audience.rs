//! Those whom a run talks to: a person who looks on, one who is asked, an operator's command.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::question::QuestionView;
use lobster_base::cancel::CancelToken;
use lobster_policy::Proposal;
use lobster_stage::Answer;
use lobster_store::{Event, RunStatus, StepOutcome};

/// Lines for the person on stderr: warnings, retries, plans.
pub type Notes = Box<dyn Fn(&str) + Send + Sync>;
/// Where renderers show their text to a person.
pub type Screen = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// Tells a person what is going on. What is told is on its way to the journal or to the
/// store, never a second truth: whoever misses it finds it there.
pub trait Progress: Send + Sync {
    /// Something that may take long begins at a place in the run.
    fn started(&self, place: &str, kind: &str);
    /// It is over.
    fn ended(&self, place: &str);
    /// A loop begins with so many rounds.
    fn rounds(&self, _place: &str, _count: usize) {}
    /// A step of the workflow came to this, with all its attempts and all that is inside it.
    fn step_ended(&self, _place: &str, _outcome: &StepOutcome) {}
    /// The run journals these.
    fn recorded(&self, _events: &[Event]) {}
    /// This is heard from a place where something is under way.
    fn heard(&self, _place: &str, _heard: &Heard) {}
}

/// What is heard of an effect before it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// So many characters of a model's answer have come; never which.
    Answering(u64),
    /// The last line that its process wrote to stderr; secrets are replaced.
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

/// Tells that something is over when it goes.
pub(crate) struct Shown<'s>(pub(crate) Option<(&'s dyn Progress, String)>);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some((progress, place)) = &self.0 {
            progress.ended(place);
        }
    }
}

/// Somebody at a terminal.
pub trait Prompter: Send + Sync {
    /// Puts a question, and asks again until the answer is one.
    ///
    /// # Errors
    /// When nobody answers in time, or the run is cancelled meanwhile.
    fn ask(&self, question: &Asked<'_>, cancel: &CancelToken) -> Result<Said, PromptError>;
}

/// A question that a person is asked now.
pub struct Asked<'a> {
    /// All that the person is shown.
    pub view: &'a QuestionView,
    /// The command that the policy asks about, if it does and no secret stands in it.
    pub command: Option<AskedCommand>,
    /// How long to wait for an answer.
    pub timeout: Option<Duration>,
    /// Turns what was typed into an answer, or says why it is none. A yes is `yes`.
    pub accept: &'a dyn Fn(&str) -> Result<Answer, String>,
}

/// A native command that the policy asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCommand {
    /// What would run.
    pub proposal: Proposal,
    /// The directory of the run.
    pub workspace: PathBuf,
}

/// What a person said.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The answer, as [`Asked::accept`] took it.
    Answer(Answer),
    /// The run shall not go on.
    No,
    /// Nothing yet: the question is kept, and can be answered from anywhere.
    Later,
}

/// Why a prompt came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("Timed out waiting for input ({}ms)", .0.as_millis())]
    TimedOut(Duration),
    #[error("cancelled")]
    Cancelled,
}

/// An operator's command.
#[derive(Clone, Debug)]
pub struct Notify {
    /// Text for `/bin/sh`.
    pub command: String,
    /// It is killed, with all it started, after so long.
    pub timeout: Duration,
    /// What it is told of.
    pub occasions: Occasions,
}

/// What an operator wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasions {
    /// A run waits for a person.
    pub question: bool,
    /// A run failed, or was cut off.
    pub failed: bool,
    /// A run did what it was to do.
    pub finished: bool,
    /// Somebody called a run off, or said no.
    pub cancelled: bool,
}

impl Default for Occasions {
    fn default() -> Self {
        Self { question: true, failed: false, finished: false, cancelled: false }
    }
}

impl FromStr for Occasions {
    type Err = String;

    /// Names between commas, such as `question,failed`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut occasions = Self { question: false, ..Self::default() };
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "question" => occasions.question = true,
                "failed" => occasions.failed = true,
                "finished" => occasions.finished = true,
                "cancelled" => occasions.cancelled = true,
                other => {
                    return Err(format!("{other:?} is none of question, failed, finished and cancelled"));
                }
            }
        }
        Ok(occasions)
    }
}

impl Occasions {
    /// The name of the event that an end of this kind is, if it is wanted.
    pub(crate) fn event_of(self, status: RunStatus) -> Option<&'static str> {
        match status {
            RunStatus::Ok => self.finished.then_some("run_finished"),
            RunStatus::Failed => self.failed.then_some("run_failed"),
            RunStatus::Cancelled => self.cancelled.then_some("run_cancelled"),
            _ => None,
        }
    }
}
