//! Carries out orders in this process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use lobster_component::Engine;

use super::layers::ThrownAway;
use super::{
    Executor, ExecutorError, Order, OrderId, Outcome, SessionEnd, Standing, Task, component, http, mcp,
    native,
};
use crate::progress::{Heard, Progress};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_credentials::login::HeldLogin;
use lobster_sandbox::Sandbox;
use lobster_stage::StageError;
use lobster_store::{OutputStream, Store};

/// Orders whose outcome is remembered after it was handed over.
const MAX_ENDED: usize = 256;

/// What errors call this executor.
const NAME: &str = "lobster";

/// Where an executor finds the values of secrets.
pub trait SecretSource: Send + Sync {
    /// The variables with their values. `secrets` are names by their variables.
    fn values(&self, secrets: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, StageError>;

    /// The login whose token a secret is, where this process can renew it.
    fn login(&self, secret: &str) -> Result<Option<Arc<HeldLogin>>, StageError>;
}

/// Who sees what an order does before it has ended.
pub trait Watcher: Send + Sync {
    /// This is heard of it.
    fn heard(&self, order: &OrderId, said: Heard);

    /// Its process printed this; secrets are redacted.
    fn printed(&self, _order: &OrderId, _stream: OutputStream, _bytes: &[u8]) {}
}

/// Tells those who follow a run of its orders, by their places.
struct InRun<'h>(&'h dyn Progress);

impl Watcher for InRun<'_> {
    fn heard(&self, order: &OrderId, heard: Heard) {
        self.0.heard(order.place(), &heard);
    }
}

/// What carrying out orders needs of the place where that happens.
pub struct Host<'h> {
    /// Where blobs are found and kept.
    pub store: &'h Store,
    /// What starts processes.
    pub sandbox: &'h Arc<Sandbox>,
    /// What loads components.
    pub components: &'h Engine,
    /// Where the values of secrets are found.
    pub secrets: &'h dyn SecretSource,
    /// The order that is carried out.
    pub order: &'h OrderId,
    /// Who sees what the order does.
    pub watcher: Option<&'h dyn Watcher>,
    /// The output of a process is stored in the name of its run while it comes.
    pub stores_output: bool,
    /// What throws away the layers of processes that have ended.
    pub(super) thrown_away: &'h ThrownAway,
}

/// Carries out orders in this process, in the thread that waits for them.
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
    /// Those that have ended, the oldest first.
    ended: VecDeque<OrderId>,
}

enum State {
    Taken(Box<Order>, CancelToken),
    Running(CancelToken),
    Ended(Box<Outcome>),
    Lost,
}

impl<'h> LocalExecutor<'h> {
    /// With the blobs of `store`, processes started by `sandbox`, and components of `components`.
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

    /// The same, with somebody who follows the run that orders are for.
    pub fn showing(self, progress: Option<&'h dyn Progress>) -> Self {
        match progress {
            Some(progress) => self.watched(InRun(progress)),
            None => self,
        }
    }

    /// The same, where the store is that of the runs that orders are for: the output of processes is stored there
    /// while it comes.
    pub fn storing_output(self) -> Self {
        Self { stores_output: true, ..self }
    }

    /// The same, with somebody who sees what orders do.
    pub fn watched(self, watcher: impl Watcher + 'h) -> Self {
        Self { watcher: Some(Box::new(watcher)), ..self }
    }

    fn unknown(id: &OrderId) -> ExecutorError {
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
                    // Whoever cancels the order ends it as whoever waits does.
                    let joined = cancel.child();
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
                    return Err(Self::unknown(id));
                }
            }
        };
        let watch = Watch { executor: self, id };
        let outcome = self.carry_out(&order, &own);
        watch.end(outcome.clone());
        Ok(outcome)
    }

    fn look(&self, id: &OrderId) -> Result<Standing, ExecutorError> {
        Ok(match lock(&self.orders).known.get(id) {
            None => Standing::Unknown,
            Some(State::Taken(..) | State::Running(_)) => Standing::Running,
            Some(State::Ended(outcome)) => Standing::Ended(outcome.clone()),
            Some(State::Lost) => Standing::Lost,
        })
    }

    fn cancel(&self, id: &OrderId, reason: CancelReason, forced: bool) -> Result<(), ExecutorError> {
        let token = match lock(&self.orders).known.get(id) {
            Some(State::Taken(_, token) | State::Running(token)) => token.clone(),
            Some(State::Ended(_) | State::Lost) => return Ok(()),
            None => return Err(Self::unknown(id)),
        };
        if forced {
            token.force(reason)
        } else {
            token.cancel(reason)
        }
        Ok(())
    }

    fn has_session(&self, session: &OrderId) -> Result<bool, ExecutorError> {
        Ok(self.sessions.has(session))
    }

    fn session_end(&self, session: &OrderId) -> SessionEnd {
        let (sessions, session) = (self.sessions.clone(), session.clone());
        Arc::new(move |cut_off| sessions.end(&session, cut_off))
    }
}

/// An order that is being carried out. If nobody says how it ended, it is lost.
struct Watch<'w, 'h> {
    executor: &'w LocalExecutor<'h>,
    id: &'w OrderId,
}

impl Watch<'_, '_> {
    fn end(&self, outcome: Outcome) {
        let mut orders = lock(&self.executor.orders);
        if outcome.http.is_some() {
            // An answer may be long, and may repeat a token: it is handed over and not kept.
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
