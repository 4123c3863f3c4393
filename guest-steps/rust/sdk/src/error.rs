//! How a step says that it failed.

use std::fmt;
use std::io;

/// Why a step cannot give a usable result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// A stable name for programs: lower-case words joined by dashes, `bad-input`.
    pub code: String,
    /// One sentence for people: what, where, why.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

impl StepError {
    /// An error that will happen again if the call is repeated.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retryable: false }
    }

    /// The input is not what the step takes.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self::new("bad-input", message)
    }

    /// The arguments are of the right shape but make no sense.
    pub fn bad_args(message: impl Into<String>) -> Self {
        Self::new("bad-args", message)
    }

    /// The same error, marked as one that may go away.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for StepError {}

/// An I/O error keeps the step error it may have been made from, so that
/// [`crate::Input`] and [`crate::Output`] can be passed through readers and
/// writers of other crates without losing the code.
impl From<io::Error> for StepError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(error) => Self::new("io", error.to_string()),
        }
    }
}

impl From<StepError> for io::Error {
    fn from(error: StepError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_error_survives_io() {
        let error = StepError::new("output-limit", "8 MiB were written").retryable();
        assert_eq!(StepError::from(io::Error::from(error.clone())), error);
        assert_eq!(StepError::from(io::Error::other("torn")), StepError::new("io", "torn"));
    }
}
