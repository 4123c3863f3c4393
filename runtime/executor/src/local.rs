//! Executes orders in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use lobster_component::Engine;

use super::layers::ThrownAway;
use super::{
    Executor, ExecutorError, Order, OrderId, Outcome, SessionEnd, Task, component, http, mcp, native,
};
use crate::progress::{Heard, Progress};
use lobster_base::cancel::CancelToken;
use lobster_credentials::login::HeldLogin;
use lobster_sandbox::Sandbox;
use lobster_stage::StageError;
use lobster_store::{OutputStream, Store};

/// Source of the values of secrets, for an executor.
pub trait SecretSource: Send + Sync {
    /// The variables with their values. `secrets` has the names of secrets by their variables.
    fn secret_values(&self, secrets: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, StageError>;

    /// The login that provides a secret, if this process can renew its token.
    fn secret_login(&self, secret: &str) -> Result<Option<Arc<HeldLogin>>, StageError>;
}

/// Observer of an order before its end.
pub trait Watcher: Send + Sync {
    /// Reports output of the order.
    fn output_arrived(&self, order: &OrderId, said: Heard);

    /// Its process printed these bytes; secrets are redacted.
    fn bytes_printed(&self, _order: &OrderId, _stream: OutputStream, _bytes: &[u8]) {}
}

/// Reports progress of orders to the watcher of a run, by their paths.
struct InRun<'h>(&'h dyn Progress);

impl Watcher for InRun<'_> {
    fn output_arrived(&self, order: &OrderId, heard: Heard) {
        self.0.output_arrived(order.place(), &heard);
    }
}

/// The local resources that are needed to execute orders.
pub struct Host<'h> {
    /// The store of blobs.
    pub store: &'h Store,
    /// Starts processes.
    pub sandbox: &'h Arc<Sandbox>,
    /// Loads components.
    pub components: &'h Engine,
    /// Finds the values of secrets.
    pub secrets: &'h dyn SecretSource,
    /// The order that is being executed.
    pub order: &'h OrderId,
    /// The observer of the order.
    pub watcher: Option<&'h dyn Watcher>,
    /// True if the output of a process is stored under its run while it arrives.
    pub stores_output: bool,
    /// Removes the layers of processes that have ended.
    pub(super) thrown_away: &'h ThrownAway,
}

/// Executes orders in this process, in the thread that waits for them.
pub struct LocalExecutor<'h> {
    store: Store,
    sandbox: Arc<Sandbox>,
    components: Engine,
    secrets: &'h dyn SecretSource,
    watcher: Option<Box<dyn Watcher + 'h>>,
    stores_output: bool,
    sessions: mcp::Sessions,
    thrown_away: ThrownAway,
}

impl<'h> LocalExecutor<'h> {
    /// An executor with the blobs of `store`, processes started by `sandbox`, and components of `components`.
    pub fn new(
        store: Store,
        sandbox: Arc<Sandbox>,
        components: Engine,
        secrets: &'h dyn SecretSource,
    ) -> Self {
        Self {
            store,
            sandbox,
            components,
            secrets,
            watcher: None,
            stores_output: false,
            sessions: mcp::Sessions::default(),
            thrown_away: ThrownAway::default(),
        }
    }

    /// The same, with a watcher of the run.
    pub fn with_progress(self, progress: Option<&'h dyn Progress>) -> Self {
        match progress {
            Some(progress) => self.with_watcher(InRun(progress)),
            None => self,
        }
    }

    /// The same, for the store of the run itself: the output of processes is stored there while it arrives.
    pub fn storing_output(self) -> Self {
        Self { stores_output: true, ..self }
    }

    /// The same, with an observer of orders.
    pub fn with_watcher(self, watcher: impl Watcher + 'h) -> Self {
        Self { watcher: Some(Box::new(watcher)), ..self }
    }

    /// Executes an order; it is stopped when `cancel` is cancelled.
    pub(super) fn carry_out(&self, order: &Order, cancel: &CancelToken) -> Outcome {
        let host = Host {
            store: &self.store,
            sandbox: &self.sandbox,
            components: &self.components,
            secrets: self.secrets,
            order: &order.id,
            watcher: self.watcher.as_deref(),
            stores_output: self.stores_output,
            thrown_away: &self.thrown_away,
        };
        match &order.task {
            Task::Native(task) => native::perform(task, &host, cancel),
            Task::Component(task) => component::perform(task, order.action, &host, cancel),
            Task::Mcp(task) => mcp::perform(&order.id, task, &self.sessions, &host, cancel),
            Task::Http(task) => http::perform(task, &host, cancel),
        }
    }
}

impl Executor for LocalExecutor<'_> {
    fn execute(&self, order: Order, cancel: &CancelToken) -> Result<Outcome, ExecutorError> {
        Ok(self.carry_out(&order, cancel))
    }

    fn has_session(&self, session: &OrderId) -> Result<bool, ExecutorError> {
        Ok(self.sessions.has_session(session))
    }

    fn session_end(&self, session: &OrderId) -> SessionEnd {
        let (sessions, session) = (self.sessions.clone(), session.clone());
        Arc::new(move |cut_off| sessions.end_session(&session, cut_off))
    }
}
