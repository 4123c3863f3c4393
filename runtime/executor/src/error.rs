//! The reasons why an executor returned no outcome.

use lobster_base::code::Code;
use std::io;
use std::time::Duration;

use lobster_base::digest::Digest;
use lobster_stage::StageError;
use lobster_store::StoreError;

use super::Outcome;
use crate::outcome::failed_outcome;
use crate::unseen_end::UnseenEnd;

/// The reason why an executor returned no outcome. Every message names the executor, except for a secret that lobster
/// itself did not find.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// It could not be started.
    #[error("the executor {executor:?} cannot be started: {source}. Nothing was sent to it")]
    Missing {
        /// Its command.
        executor: String,
        /// The reason.
        source: io::Error,
    },
    /// It sent no hello in time.
    #[error("the executor {executor:?} did not say hello within {} ms. Nothing was sent to it", .patience.as_millis())]
    Silent {
        /// Its command.
        executor: String,
        /// The time limit.
        patience: Duration,
    },
    /// It speaks another version of the protocol.
    #[error(
        "the executor {executor:?} speaks version {theirs} of the protocol, this lobster speaks {ours}. \
         Nothing was sent to it"
    )]
    Version {
        /// Its command.
        executor: String,
        /// The executor's version.
        theirs: u64,
        /// The version of this lobster.
        ours: u64,
    },
    /// It was unusable before anything was sent to it.
    #[error("{0}. Nothing was sent to it")]
    Unsent(Box<ExecutorError>),
    /// It sent something that is not a message.
    #[error("the executor {executor:?} sent something that is not a message of the protocol: {said}")]
    Garbled {
        /// Its command.
        executor: String,
        /// The text that it sent, or the error in it.
        said: String,
    },
    /// It ended, or was killed, before the order ended.
    #[error("the executor {executor:?} {how} before the step ended")]
    Died {
        /// Its command.
        executor: String,
        /// `was killed by SIGKILL`, `ended with code 3`.
        how: String,
    },
    /// It sent other bytes than those it had named.
    #[error("the executor {executor:?} sent bytes with the digest {found} as the blob {digest}")]
    WrongBlob {
        /// Its command.
        executor: String,
        /// The name.
        digest: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// It named a blob that it does not have.
    #[error("the executor {executor:?} names the blob {digest} and cannot send it: {why}")]
    NoBlob {
        /// Its command.
        executor: String,
        /// The name.
        digest: Digest,
        /// The executor's own text.
        why: String,
    },
    /// It refuses this order.
    #[error("the executor {executor:?} refuses the order: {why}")]
    Refused {
        /// Its command.
        executor: String,
        /// The executor's own text.
        why: String,
    },
    /// A secret that the order needs was not found. Nothing was sent.
    #[error("{}", .0.message)]
    Secret(StageError),
    /// Its data cannot be kept.
    #[error("the data of the executor {executor:?} cannot be kept: {source}")]
    Store {
        /// Its command.
        executor: String,
        /// The reason.
        source: StoreError,
    },
}

impl ExecutorError {
    /// The name of this failure, for programs and for `lobster help`.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Missing { .. } => Code::ExecutorMissing,
            Self::Silent { .. } => Code::ExecutorSilent,
            Self::Version { .. } => Code::ExecutorVersion,
            Self::Unsent(error) => error.code(),
            Self::Garbled { .. } => Code::ExecutorGarbled,
            Self::Died { .. } => Code::ExecutorDied,
            Self::WrongBlob { .. } | Self::NoBlob { .. } => Code::ExecutorBlob,
            Self::Refused { .. } => Code::ExecutorRefused,
            Self::Secret(_) => Code::Secret,
            Self::Store { .. } => Code::Store,
        }
    }

    /// The outcome of an order that ended like this, as far as known.
    pub fn to_outcome(&self) -> Outcome {
        match self {
            // Nothing was sent.
            Self::Secret(error) => failed_outcome(error).into(),
            // No executor took the order. Another attempt would find the same program.
            Self::Missing { .. } | Self::Silent { .. } | Self::Version { .. } | Self::Unsent(_) => {
                let error = StageError::permanent(self.to_string()).with_code(self.code());
                failed_outcome(&error).into()
            }
            // It was performed and its output is lost, so `perform_once` records no end.
            Self::Store { .. } => {
                let error = StageError::new(self.to_string()).with_code(self.code());
                failed_outcome(&error).into()
            }
            Self::Garbled { .. }
            | Self::Died { .. }
            | Self::WrongBlob { .. }
            | Self::NoBlob { .. }
            | Self::Refused { .. } => {
                UnseenEnd::of_executor(self.code(), self.to_string()).to_outcome().into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lobster_store::StepStatus;

    use super::*;

    #[test]
    fn a_program_reads_the_code_of_the_executor_and_no_words() {
        let error = ExecutorError::Died { executor: "x".to_owned(), how: "ended with code 3".to_owned() };
        let step = error.to_outcome().step;
        assert_eq!(step.code.as_deref(), Some("unknown_end"));
        assert_eq!(step.detail["unknown_end"]["code"], "executor_died");
        let told = step.error.unwrap_or_default();
        assert!(told.contains("ended with code 3") && told.ends_with("(executor_died)"), "{told}");
    }

    #[test]
    fn what_was_not_sent_and_what_cannot_be_kept_are_no_unseen_ends() {
        let refused = ExecutorError::Refused { executor: "x".to_owned(), why: "no".to_owned() };
        let (source, none) = (StoreError::Full { path: "/store".into() }, io::ErrorKind::NotFound);
        for (error, code) in [
            (ExecutorError::Secret(StageError::new("none").with_code(Code::Secret)), "secret"),
            (ExecutorError::Store { executor: "x".to_owned(), source }, "store"),
            (ExecutorError::Missing { executor: "x".to_owned(), source: none.into() }, "executor_missing"),
            (ExecutorError::Silent { executor: "x".to_owned(), patience: Duration::ZERO }, "executor_silent"),
            (ExecutorError::Unsent(Box::new(refused)), "executor_refused"),
            (ExecutorError::Version { executor: "x".to_owned(), theirs: 2, ours: 1 }, "executor_version"),
        ] {
            let step = error.to_outcome().step;
            assert_eq!((step.status, step.code.as_deref()), (StepStatus::Failed, Some(code)));
            assert_eq!(UnseenEnd::of_outcome(&step), None);
        }
    }
}
