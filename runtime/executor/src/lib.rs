//! The port through which effects leave the engine (invariant E6): an order goes to an
//! executor, an outcome comes back, and both are plain data over digests.
//!
//! An executor has no handle to the run. It knows an order, the blobs that the order
//! names, and the values of the secrets that the order names; whether the order may be
//! carried out was decided before. So the same order can be carried out in this process
//! ([`LocalExecutor`]), in another one ([`stdio`]), or on another machine.

pub mod change_sets;
mod component;
pub mod component_lock;
mod component_task;
mod credential_values;
mod error;
mod host_calls;
mod host_text;
mod http;
mod http_task;
mod last_line;
mod layers;
mod local;
mod mcp;
mod mcp_task;
mod native;
mod order;
mod order_text;
mod outcome;
mod place;
mod progress;
pub mod stdio;
mod strict_blob;
mod unseen_end;
mod upstream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use component::{
    Keeper, LoadProblem, NO_CALLS, Prepared, RunServices, command_arguments, failure, open as open_input,
    run as run_component, told_by,
};
pub use component_task::{ComponentDir, ComponentGrants, ComponentInput, ComponentTask};
pub use error::ExecutorError;
pub use host_calls::RecordedCalls;
pub use host_text::{HostPath, HostText};
pub use http_task::{HttpEnd, HttpKey, HttpTask};
pub use layers::{Kept, keep_set};
pub use local::{Host, LocalExecutor, SecretSource, Watcher};
pub use mcp::LOCK_HINT;
pub use mcp_task::{McpPin, McpProgram, McpReach, McpTask};
pub use native::{hide_store, hold_roots};
pub use order::{NativeTask, Order, OrderId, OrderToken, StdinSource, Task};
pub use order_text::OrderText;
pub use outcome::{
    READ_STATE, READ_VALUES, failed_outcome, follows_from_action, has_changed_files, note_changed_files,
    outcome_error,
};
pub use place::{NativeProfile, Place};
pub use progress::{Heard, Progress};
pub use unseen_end::{Lost, UnseenEnd, tell_idempotent};

use lobster_base::cancel::CancelToken;
use lobster_store::{Blob, StepOutcome};

/// Values that components keep where there is no run to keep them for.
pub type Scratch = Arc<Mutex<HashMap<String, Value>>>;

/// How an order ended. What it printed are blobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What the journal keeps of it.
    pub step: StepOutcome,
    /// Whether stdout is JSON, where the order asked to look at it while it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_json: Option<bool>,
    /// Blobs that a component wrote: its output may name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<Blob>,
    /// A JSON object: the values that a component keeps for the rest of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Blob>,
    /// How a request ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpEnd>,
    /// A call went out that may have done its work, and more if it is made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dispatched: bool,
}

impl From<StepOutcome> for Outcome {
    fn from(step: StepOutcome) -> Self {
        Self { step, plain_json: None, wrote: Vec::new(), values: None, http: None, dispatched: false }
    }
}

/// What has become of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", content = "outcome", rename_all = "snake_case")]
pub enum Standing {
    /// It is being carried out, or about to be.
    Running,
    /// It ended like this.
    Ended(Box<Outcome>),
    /// The executor has never heard of it, or has forgotten it after handing over its outcome.
    Unknown,
    /// It was begun, and what carried it out is gone: nobody has seen its end.
    Lost,
}

/// Ends a session; with a reason, at once. It returns when the session has ended.
pub type SessionEnd = Arc<dyn Fn(Option<&str>) + Send + Sync>;

/// Carries out orders.
///
/// An error of any method means that the end of the order was not seen: it may have been
/// carried out or not (invariant E7).
pub trait Executor: Send + Sync {
    /// Takes an order. It is carried out once, however often it is waited for.
    ///
    /// # Errors
    /// When the executor cannot be reached or does not take it.
    fn submit(&self, order: Order) -> Result<(), ExecutorError>;

    /// Waits for the end of an order. When `cancel` is cancelled, the order is, and its
    /// outcome says so.
    ///
    /// # Errors
    /// When its end will not be seen.
    fn wait(&self, id: &OrderId, cancel: &CancelToken) -> Result<Outcome, ExecutorError>;

    /// What has become of an order whose caller may have died.
    ///
    /// # Errors
    /// When the executor cannot be reached.
    fn look(&self, id: &OrderId) -> Result<Standing, ExecutorError>;

    /// Ends an order. Its outcome, which tells why, is there to be waited for.
    ///
    /// # Errors
    /// When the executor cannot be reached.
    fn cancel(
        &self,
        id: &OrderId,
        reason: lobster_base::cancel::CancelReason,
        forced: bool,
    ) -> Result<(), ExecutorError>;

    /// Whether the session that an order opened is still of use.
    ///
    /// # Errors
    /// When the executor cannot be reached.
    fn has_session(&self, session: &OrderId) -> Result<bool, ExecutorError>;

    /// What ends the session that an order opens. Ending one that is not there does nothing.
    fn session_end(&self, session: &OrderId) -> SessionEnd;
}
