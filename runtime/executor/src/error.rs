//! Why an executor did not bring back an outcome.

use lobster_base::code::Code;
use std::io;
use std::time::Duration;

use lobster_base::digest::Digest;
use lobster_stage::StageError;
use lobster_store::StoreError;

use super::{OrderId, Outcome};
use crate::outcome::failed_outcome;
use crate::unseen_end::UnseenEnd;

/// Why an executor did not bring back an outcome. Every message names the executor, but for that of
/// a secret, which lobster itself did not find.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// It could not be started.
    #[error("the executor {executor:?} cannot be started: {source}. Nothing was sent to it")]
    Missing {
        /// Its command.
        executor: String,
        /// Why.
        source: io::Error,
    },
    /// It did not say hello in time.
    #[error("the executor {executor:?} did not say hello within {} ms. Nothing was sent to it", .patience.as_millis())]
    Silent {
        /// Its command.
        executor: String,
        /// How long it had.
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
        /// What it speaks.
        theirs: u64,
        /// What is spoken here.
        ours: u64,
    },
    /// It was of no use before it was sent anything.
    #[error("{0}. Nothing was sent to it")]
    Unsent(Box<ExecutorError>),
    /// It said something that is not a message.
    #[error("the executor {executor:?} said something that is not a message of the protocol: {said}")]
    Garbled {
        /// Its command.
        executor: String,
        /// What it said, or what is wrong with it.
        said: String,
    },
    /// It ended, or was killed, before the order did.
    #[error("the executor {executor:?} {how} before the step ended")]
    Died {
        /// Its command.
        executor: String,
        /// `was killed by SIGKILL`, `ended with code 3`.
        how: String,
    },
    /// What it sent is not what it had named.
    #[error("the executor {executor:?} sent bytes with the digest {found} as the blob {digest}")]
    WrongBlob {
        /// Its command.
        executor: String,
        /// The name.
        digest: Digest,
        /// What the bytes are.
        found: Digest,
    },
    /// It names a blob and does not have it.
    #[error("the executor {executor:?} names the blob {digest} and cannot give it: {why}")]
    NoBlob {
        /// Its command.
        executor: String,
        /// The name.
        digest: Digest,
        /// Its own words.
        why: String,
    },
    /// It does not carry out this order.
    #[error("the executor {executor:?} refuses the order: {why}")]
    Refused {
        /// Its command.
        executor: String,
        /// Its own words.
        why: String,
    },
    /// It knows nothing of the order.
    #[error("the executor {executor:?} does not know the order {id}")]
    Unknown {
        /// Its command.
        executor: String,
        /// The order.
        id: OrderId,
    },
    /// A secret that the order needs cannot be had. Nothing was sent.
    #[error("{}", .0.message)]
    Secret(StageError),
    /// What it sent cannot be kept.
    #[error("what the executor {executor:?} sent cannot be kept: {source}")]
    Store {
        /// Its command.
        executor: String,
        /// Why.
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
            Self::Unknown { .. } => Code::ExecutorLostOrder,
            Self::Secret(_) => Code::Secret,
            Self::Store { .. } => Code::Store,
        }
    }

    /// The outcome of an order that ended like this, as far as anybody saw.
    pub fn outcome(&self) -> Outcome {
        match self {
            // Nothing was sent.
            Self::Secret(error) => failed_outcome(error).into(),
            // Nobody was there who takes orders. Another attempt would find the same program.
            Self::Missing { .. } | Self::Silent { .. } | Self::Version { .. } | Self::Unsent(_) => {
                let error = StageError::permanent(self.to_string()).with_code(self.code());
                failed_outcome(&error).into()
            }
            // It was done and what it gave is lost: `perform_once` leaves it without an end.
            Self::Store { .. } => {
                let error = StageError::new(self.to_string()).with_code(self.code());
                failed_outcome(&error).into()
            }
            Self::Garbled { .. }
            | Self::Died { .. }
            | Self::WrongBlob { .. }
            | Self::NoBlob { .. }
            | Self::Refused { .. }
            | Self::Unknown { .. } => UnseenEnd::of_executor(self.code(), self.to_string()).outcome().into(),
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
        let step = error.outcome().step;
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
            let step = error.outcome().step;
            assert_eq!((step.status, step.code.as_deref()), (StepStatus::Failed, Some(code)));
            assert_eq!(UnseenEnd::of_outcome(&step), None);
        }
    }
}
