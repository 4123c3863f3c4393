//! Failures of steps and stages, and other reasons why they stop.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lobster_base::code::{Code, FailureCode};
use lobster_store::StoreError;
use serde::{Deserialize, Serialize};

use crate::SANDBOX_BLOCKED;
use crate::registry::UnknownCommand;

/// Reason why a stage stops.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(StageError),
    /// A person has to answer first; the engine knows the question.
    Paused,
    /// The work was cancelled; the token has the reason.
    Cancelled,
    /// An effect had started in an earlier process, and its end is unknown; a person has to decide. Never absorbed by
    /// `on_error`.
    Interrupted,
}

impl Stop {
    /// The same reason; a failure is replaced.
    #[must_use]
    pub fn map_failure(self, replace: impl FnOnce(StageError) -> StageError) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(replace(error)),
            stop => stop,
        }
    }
}

impl From<StageError> for Stop {
    fn from(error: StageError) -> Self {
        Self::Failed(error)
    }
}

/// The store failed, so the run must stop: neither retries nor `on_error` help.
pub fn store_failure(error: impl Into<Box<dyn Error + Send + Sync>>) -> Stop {
    Stop::Failed(StageError::permanent_from(error).with_code(Code::Store))
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<StoreError>() {
            Ok(error) => store_failure(error),
            Err(error) => Self::Failed(StageError::from_error(error)),
        }
    }
}

/// A failure with its message; `code` is its name for programs (`policy_denied`, `timeout`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageError {
    /// The error message for people.
    pub message: String,
    /// `None` until a caller that knows the operation sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// True if another attempt cannot help, or would repeat an effect.
    #[serde(default)]
    pub permanent: bool,
    /// Time for which the failed service asks not to be called again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// The cause, in the process where it occurred; it is not recorded.
    #[serde(skip)]
    pub source: Option<SharedError>,
}

impl PartialEq for StageError {
    fn eq(&self, other: &Self) -> bool {
        (&self.message, &self.code, self.permanent) == (&other.message, &other.code, other.permanent)
    }
}

impl StageError {
    /// A failure that a retry may cure.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None, permanent: false, retry_after: None, source: None }
    }

    /// A failure that must not be retried.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { permanent: true, ..Self::new(message) }
    }

    /// A failure with the message of `error`, which becomes its source.
    pub fn from_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = error.into();
        let message = error.to_string();
        Self { source: Some(Arc::from(error)), ..Self::new(message) }
    }

    /// As [`StageError::from_error`], but it must not be retried.
    pub fn permanent_from(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { permanent: true, ..Self::from_error(error) }
    }

    /// The same failure with a code for programs.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<FailureCode>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same failure with another message; the first one stays available as its source.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: self.code.clone(),
            permanent: self.permanent,
            retry_after: self.retry_after,
            source: Some(Arc::new(self)),
        }
    }

    /// The failure before it was reworded.
    pub fn first_words(&self) -> &Self {
        let mut first = self;
        while let Some(inner) = first.source.as_deref().and_then(|source| source.downcast_ref::<Self>()) {
            first = inner;
        }
        first
    }

    /// The same failure, with a code if it has none yet.
    #[must_use]
    pub fn or_code(mut self, code: Code) -> Self {
        self.code.get_or_insert(FailureCode::Lobster(code));
        self
    }

    /// The code, if it is one of lobster's.
    pub fn known_code(&self) -> Option<Code> {
        self.code.as_ref().and_then(FailureCode::known_code)
    }

    /// True if it has this code.
    pub fn has_code(&self, code: Code) -> bool {
        self.known_code() == Some(code)
    }

    /// The first error of this type among its causes.
    pub fn caused_by<E: Error + 'static>(&self) -> Option<&E> {
        let mut error: Option<&(dyn Error + 'static)> = self.source();
        while let Some(at) = error {
            if let Some(found) = at.downcast_ref() {
                return Some(found);
            }
            error = source_of(at);
        }
        None
    }
}

/// An error that may be the cause of several failures.
pub type SharedError = Arc<dyn Error + Send + Sync>;

/// The source of an error, including those of the two types that hide the error they wrap.
fn source_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if let Some(wrapped) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        return Some(wrapped);
    }
    match error.downcast_ref::<SharedError>() {
        Some(shared) => Some(&**shared),
        None => error.source(),
    }
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<UnknownCommand> for StageError {
    fn from(unknown: UnknownCommand) -> Self {
        Self::permanent_from(unknown).with_code(Code::UnknownCommand)
    }
}

/// A failure of a command with this message, the keys of lobster's own that it did not receive, and the things that it
/// probably missed in its sandbox.
pub fn command_failure(mut message: String, withheld: &[String], hints: &[String]) -> StageError {
    let named: Vec<_> = withheld.iter().filter(|name| message.contains(*name)).collect();
    let shown = if named.is_empty() { withheld.iter().collect() } else { named };
    if let [first, rest @ ..] = shown.as_slice() {
        let rest: String = rest.iter().map(|name| format!(", {name}")).collect();
        message.push_str(&format!(
            "\nnot passed to this step: {first}{rest} (keys of lobster's own). `env: {{ {first}: ${first} }}` grants \
             one, LOBSTER_INHERIT_TOKENS=1 all"
        ));
    }
    if hints.is_empty() {
        return StageError::new(message);
    }
    for hint in hints {
        message.push_str(&format!("\n{SANDBOX_BLOCKED}: {hint}"));
    }
    StageError::new(message).with_code(Code::SandboxBlocked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read it: {source}")]
    struct Unreadable {
        source: SharedError,
    }

    /// The cause of a failure is found through any number of wrappers.
    #[test]
    fn the_cause_is_found_behind_every_wrapping() {
        let lost = || StoreError::LeftOut("fetch".to_owned());
        let shared = || -> SharedError { Arc::new(lost()) };
        let wrapped: [Box<dyn Error + Send + Sync>; 4] = [
            Box::new(lost()),
            Box::new(std::io::Error::other(lost())),
            Box::new(Unreadable { source: shared() }),
            Box::new(std::io::Error::other(Unreadable { source: Arc::new(std::io::Error::other(lost())) })),
        ];
        for error in wrapped {
            let failure =
                StageError::from_error(error).with_message("x: it failed").with_message("y: x: it failed");
            assert!(matches!(failure.caused_by(), Some(StoreError::LeftOut(_))), "{failure:?}");
            assert_eq!(
                failure.first_words().source().map(ToString::to_string),
                Some(failure.first_words().message.clone())
            );
        }
        let Stop::Failed(failure) = Stop::from(std::io::Error::other(lost())) else { panic!("it failed") };
        assert!(failure.has_code(Code::Store) && failure.permanent);
        let failure = StageError::new("no").or_code(Code::Model).or_code(Code::Failed);
        assert_eq!(failure.known_code(), Some(Code::Model));
    }
}
