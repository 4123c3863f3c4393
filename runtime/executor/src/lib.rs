//! The interface through which effects leave the engine (invariant E6): an order goes to an executor, an outcome comes
//! back, and both are plain data with digests.
//!
//! An executor has no access to the run. It knows an order, the blobs that the order names, and the values of the
//! secrets that the order names; the permission for the order was decided before. So the same order can be executed in
//! this process ([`LocalExecutor`]), in another one ([`stdio`]), or on another machine.

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
    Keeper, LoadProblem, NO_CALLS, Prepared, RunServices, command_arguments, failure_outcome, open_input,
    run as run_component,
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
pub use order::{NativeTask, Order, OrderId, OrderToken, StdinSource, Task};
pub use order_text::OrderText;
pub use outcome::{
    failed_outcome, follows_from_action, has_changed_files, note_changed_files, outcome_error,
};
pub use place::{ActionDirectory, NativeProfile};
pub use progress::{Heard, Progress};
pub use unseen_end::{Lost, UnseenEnd, tell_idempotent};

use lobster_base::cancel::CancelToken;
use lobster_store::{Blob, StepOutcome};

/// Memory for the values of components in an execution without a record.
pub type Scratch = Arc<Mutex<HashMap<String, Value>>>;

/// The end of an order. Its output is in blobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The outcome for the journal.
    pub step: StepOutcome,
    /// True if stdout is JSON; only set if the order asked to check it while it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_json: Option<bool>,
    /// Blobs that a component wrote; its output may name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<Blob>,
    /// A JSON object: the values that a component keeps for the rest of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Blob>,
    /// The end of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpEnd>,
    /// True if a call was sent that may have had an effect, and may have another one if it is repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dispatched: bool,
}

impl From<StepOutcome> for Outcome {
    fn from(step: StepOutcome) -> Self {
        Self { step, plain_json: None, wrote: Vec::new(), values: None, http: None, dispatched: false }
    }
}

/// The state of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", content = "outcome", rename_all = "snake_case")]
pub enum OrderState {
    /// It is running, or about to run.
    Running,
    /// It ended with this outcome.
    Ended(Box<Outcome>),
    /// The executor does not know it, or has forgotten it after returning its outcome.
    Unknown,
    /// It began, and the process that executed it is gone, so its end was not seen.
    Lost,
}

/// Ends a session; with a reason, at once. It returns when the session has ended.
pub type SessionEnd = Arc<dyn Fn(Option<&str>) + Send + Sync>;

/// Executes orders.
///
/// An error of any method means that the end of the order was not seen: it may have been executed or not (invariant
/// E7).
pub trait Executor: Send + Sync {
    /// Executes an order once, and returns its end. If `cancel` is cancelled, the order is cancelled, and its outcome
    /// says that.
    ///
    /// # Errors
    /// If the executor cannot be reached or does not accept the order, or its end will not be seen.
    fn execute(&self, order: Order, cancel: &CancelToken) -> Result<Outcome, ExecutorError>;

    /// True if the session that an order opened can still be used.
    ///
    /// # Errors
    /// If the executor cannot be reached.
    fn has_session(&self, session: &OrderId) -> Result<bool, ExecutorError>;

    /// A function that ends the session of an order. It does nothing if the session does not exist.
    fn session_end(&self, session: &OrderId) -> SessionEnd;
}
