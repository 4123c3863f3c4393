//! Callbacks of a run: progress for a watching person, prompts, an operator's notification command.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::question::QuestionView;
use lobster_base::cancel::CancelToken;
pub use lobster_executor::{Heard, Progress};
use lobster_policy::Proposal;
use lobster_stage::Answer;
use lobster_store::RunStatus;

/// Prints lines to stderr for a person: warnings, retries, plans.
pub type Notes = Box<dyn Fn(&str) + Send + Sync>;
/// Shows the text of renderers to a person.
pub type Screen = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// Reports the end of work when dropped.
pub(crate) struct Shown<'s>(pub(crate) Option<(&'s dyn Progress, String)>);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some((progress, place)) = &self.0 {
            progress.work_ended(place);
        }
    }
}

/// A person at a terminal.
pub trait Prompter: Send + Sync {
    /// Asks a question, and repeats it until the answer is valid.
    ///
    /// # Errors
    /// If no answer arrives in time, or the run is cancelled meanwhile.
    fn prompt_person(&self, question: &Asked<'_>, cancel: &CancelToken) -> Result<Said, PromptError>;
}

/// A question that a person is asked now.
pub struct Asked<'a> {
    /// All that is shown to the person.
    pub view: &'a QuestionView,
    /// The command of a policy's question, unless it contains a secret.
    pub command: Option<AskedCommand>,
    /// Time limit for the answer.
    pub timeout: Option<Duration>,
    /// Parses the typed text, or returns the reason why it is not an answer. The word for an approval is `yes`.
    pub accept: &'a dyn Fn(&str) -> Result<Answer, String>,
}

/// A native command that the policy asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCommand {
    /// The command that would run.
    pub proposal: Proposal,
    /// The directory of the run.
    pub workspace: PathBuf,
}

/// The reply of a person.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The answer, as [`Asked::accept`] parsed it.
    Answer(Answer),
    /// A rejection: the run must not continue.
    No,
    /// No answer yet: the question is kept, and can be answered from anywhere.
    Later,
}

/// The reason why a prompt got no answer.
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
    /// Shell text for `/bin/sh`.
    pub command: String,
    /// Time limit, after which the command and its children are killed.
    pub timeout: Duration,
    /// The occasions that it is run for.
    pub occasions: Occasions,
}

/// The occasions that an operator wants to be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasions {
    /// A run waits for a person.
    pub question: bool,
    /// A run failed, or was interrupted.
    pub failed: bool,
    /// A run finished successfully.
    pub finished: bool,
    /// A run was cancelled, or its question was rejected.
    pub cancelled: bool,
}

impl Default for Occasions {
    fn default() -> Self {
        Self { question: true, failed: false, finished: false, cancelled: false }
    }
}

impl FromStr for Occasions {
    type Err = String;

    /// Parses names between commas, such as `question,failed`.
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
    /// The name of the event for a run that ended with this status, if the operator wants it.
    pub(crate) fn event_of(self, status: RunStatus) -> Option<&'static str> {
        match status {
            RunStatus::Ok => self.finished.then_some("run_finished"),
            RunStatus::Failed => self.failed.then_some("run_failed"),
            RunStatus::Cancelled => self.cancelled.then_some("run_cancelled"),
            _ => None,
        }
    }
}
