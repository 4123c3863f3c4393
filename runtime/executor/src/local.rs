//! Executes orders in this process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use lobster_component::Engine;

use super::layers::ThrownAway;
use super::{
    Executor, ExecutorError, Order, OrderId, OrderState, Outcome, SessionEnd, Task, component, http, mcp,
    native,
};
use crate::progress::{Heard, Progress};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_credentials::login::HeldLogin;
use lobster_sandbox::Sandbox;
use lobster_stage::StageError;
use lobster_store::{OutputStream, Store};

/// Orders whose outcome is remembered after it was returned.
const MAX_ENDED: usize = 256;

/// The name of this executor in errors.
const NAME: &str = "lobster";

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
    orders: Mutex<Orders>,
    sessions: mcp::Sessions,
    thrown_away: ThrownAway,
}

#[derive(Default)]
struct Orders {
    known: HashMap<OrderId, State>,
    /// The ended orders, the oldest first.
    ended: VecDeque<OrderId>,
}

enum State {
    Taken(Box<Order>, CancelToken),
    Running(CancelToken),
    Ended(Box<Outcome>),
    Lost,
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
            orders: Mutex::default(),
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

    fn unknown_order(id: &OrderId) -> ExecutorError {
        ExecutorError::Unknown { executor: NAME.to_owned(), id: id.clone() }
    }

    fn carry_out(&self, order: &Order, cancel: &CancelToken) -> Outcome {
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
    fn submit(&self, order: Order) -> Result<(), ExecutorError> {
        let mut orders = lock(&self.orders);
        if matches!(orders.known.get(&order.id), Some(State::Taken(..) | State::Running(_))) {
            return Ok(());
        }
        orders.ended.retain(|ended| *ended != order.id);
        orders.known.insert(order.id.clone(), State::Taken(Box::new(order), CancelToken::new()));
        Ok(())
    }

    fn wait(&self, id: &OrderId, cancel: &CancelToken) -> Result<Outcome, ExecutorError> {
        let (order, own) = {
            let mut orders = lock(&self.orders);
            match orders.known.remove(id) {
                Some(State::Taken(order, own)) => {
                    // A cancelled order and a cancelled wait both stop it.
                    let joined = cancel.child_token();
                    if let Some(reason) = own.reason() {
                        joined.cancel(reason);
                    }
                    orders.known.insert(id.clone(), State::Running(joined.clone()));
                    (order, joined)
                }
                Some(State::Ended(outcome)) => {
                    orders.known.insert(id.clone(), State::Ended(outcome.clone()));
                    return Ok(*outcome);
                }
                other => {
                    orders.known.extend(other.map(|state| (id.clone(), state)));
                    return Err(Self::unknown_order(id));
                }
            }
        };
        let watch = Watch { executor: self, id };
        let outcome = self.carry_out(&order, &own);
        watch.record_end(outcome.clone());
        Ok(outcome)
    }

    fn order_standing(&self, id: &OrderId) -> Result<OrderState, ExecutorError> {
        Ok(match lock(&self.orders).known.get(id) {
            None => OrderState::Unknown,
            Some(State::Taken(..) | State::Running(_)) => OrderState::Running,
            Some(State::Ended(outcome)) => OrderState::Ended(outcome.clone()),
            Some(State::Lost) => OrderState::Lost,
        })
    }

    fn cancel(&self, id: &OrderId, reason: CancelReason, forced: bool) -> Result<(), ExecutorError> {
        let token = match lock(&self.orders).known.get(id) {
            Some(State::Taken(_, token) | State::Running(token)) => token.clone(),
            Some(State::Ended(_) | State::Lost) => return Ok(()),
            None => return Err(Self::unknown_order(id)),
        };
        if forced {
            token.force_cancel(reason)
        } else {
            token.cancel(reason)
        }
        Ok(())
    }

    fn has_session(&self, session: &OrderId) -> Result<bool, ExecutorError> {
        Ok(self.sessions.has_session(session))
    }

    fn session_end(&self, session: &OrderId) -> SessionEnd {
        let (sessions, session) = (self.sessions.clone(), session.clone());
        Arc::new(move |cut_off| sessions.end_session(&session, cut_off))
    }
}

/// An order that is being executed. If its end is not reported, the order is lost.
struct Watch<'w, 'h> {
    executor: &'w LocalExecutor<'h>,
    id: &'w OrderId,
}

impl Watch<'_, '_> {
    fn record_end(&self, outcome: Outcome) {
        let mut orders = lock(&self.executor.orders);
        if outcome.http.is_some() {
            // An answer may be long, and may repeat a token, so it is returned and not kept.
            orders.known.remove(self.id);
            return;
        }
        orders.known.insert(self.id.clone(), State::Ended(Box::new(outcome)));
        orders.ended.push_back(self.id.clone());
        if orders.ended.len() > MAX_ENDED
            && let Some(oldest) = orders.ended.pop_front()
        {
            orders.known.remove(&oldest);
        }
    }
}

impl Drop for Watch<'_, '_> {
    fn drop(&mut self) {
        let mut orders = lock(&self.executor.orders);
        if let Some(state @ State::Running(_)) = orders.known.get_mut(self.id) {
            *state = State::Lost;
        }
    }
}
