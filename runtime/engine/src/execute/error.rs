//! Why an executor did not bring back an outcome.

use lobster_base::code::Code;
use std::io;
use std::time::Duration;

use lobster_base::digest::Digest;
use lobster_language::codes;
use lobster_stage::StageError;
use lobster_store::StoreError;

use super::{OrderId, Outcome};
use crate::outcome::failed_outcome;
use crate::unseen::{Lost, UnseenEnd};

/// Why the end of an order was not seen. Every message names the executor.
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
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => codes::EXECUTOR_MISSING,
            Self::Silent { .. } => codes::EXECUTOR_SILENT,
            Self::Version { .. } => codes::EXECUTOR_VERSION,
            Self::Garbled { .. } => codes::EXECUTOR_GARBLED,
            Self::Died { .. } => codes::EXECUTOR_DIED,
            Self::WrongBlob { .. } | Self::NoBlob { .. } => codes::EXECUTOR_BLOB,
            Self::Refused { .. } => codes::EXECUTOR_REFUSED,
            Self::Unknown { .. } => codes::EXECUTOR_LOST_ORDER,
            Self::Secret(_) => Code::Secret.as_str(),
            Self::Store { .. } => Code::Store.as_str(),
        }
    }

    /// The outcome of an order that ended like this, as far as anybody saw.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Secret(error) => return failed_outcome(error).into(),
            Self::Store { .. } => {
                let error = StageError::new(self.to_string()).with_code(Code::Store);
                return failed_outcome(&error).into();
            }
            _ => {}
        }
        let why = format!("{self} ({})", self.code());
        let end = UnseenEnd { why: Some(why), ..UnseenEnd::of(Lost::Executor) };
        end.outcome().into()
    }
}
