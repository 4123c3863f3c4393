//! Calls that outlast a client's patience: the MCP Tasks extension (SEP-2663).
//!
//! A call of a client that supports tasks is answered like any other if it ends within a second. If
//! not, the client gets a handle and the run continues; with the handle the client asks for its state,
//! answers its questions and cancels it. Handles are stored with the run, so a restarted server still
//! knows its result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::code::Code;
use lobster_runtime::envelope::Failure;
use lobster_runtime::replay::{self, Standing};
use lobster_runtime::store::{Event, RunFilter, RunId, RunStatus, RunSummary, Store, StoreError, iso};
use lobster_runtime::sync::lock;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CreateTaskResult, DetailedTask, ErrorData, InputRequiredResult, JsonObject,
    ProtocolVersion, Task, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use super::answers::Brought;
use super::call::{self, CallAnswer, CallPlace, tool_refusal};
use super::catalogue::CatalogueEntry;
use super::history::History;
use super::server::{McpServer, Prepared};
use super::service::Agent;
use super::shared::Shared;

/// Time that a call is waited for before its client gets a handle.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Interval at which a client should ask.
const POLL_MS: u64 = 500;

/// Time that the answer of a finished task is kept in memory; after that it is read from the record.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// Most tasks in memory; the others are in the record.
const MOST: usize = 1_000;

/// Most runs that are searched for a task of an earlier server.
const LOOKED_THROUGH: usize = 2_000;

/// The key of the handle in a run's record, next to the data about the caller.
const HANDLE: &str = "task";

/// The tasks of a server.
#[derive(Default)]
pub(super) struct Tasks {
    live: Mutex<BTreeMap<String, Arc<Live>>>,
}

/// A task of this server.
struct Live {
    id: String,
    created_ms: i64,
    cancel: CancelToken,
    place: CallPlace,
    entry: Arc<CatalogueEntry>,
    state: watch::Sender<State>,
}

#[derive(Clone)]
enum State {
    Working,
    Asks(Box<InputRequiredResult>),
    Done { answer: Box<CallToolResponse>, at: Instant, at_ms: i64 },
}

impl Live {
    fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), State::Done { .. })
    }

    fn is_forgotten(&self) -> bool {
        matches!(*self.state.borrow(), State::Done { at, .. } if at.elapsed() > KEPT)
    }

    /// Stores the result of the work: an answer, or a question to the client's user.
    fn set(&self, response: CallToolResponse) {
        let state = match response {
            CallToolResponse::InputRequired(asked) => State::Asks(Box::new(asked)),
            answer => State::Done { answer: Box::new(answer), at: Instant::now(), at_ms: now_ms() },
        };
        self.state.send_replace(state);
    }

    fn to_detailed(&self) -> DetailedTask {
        let (payload, at_ms) = match &*self.state.borrow() {
            State::Working => (TaskPayload::Working, now_ms()),
            State::Asks(asked) => {
                let input_requests = asked.input_requests.clone().unwrap_or_default();
                (TaskPayload::InputRequired { input_requests }, now_ms())
            }
            State::Done { at_ms, .. } if self.cancel.is_cancelled() => (TaskPayload::Cancelled, *at_ms),
            State::Done { answer, at_ms, .. } => (payload_of(answer), *at_ms),
        };
        DetailedTask::new(working_task(&self.id, self.created_ms, at_ms), payload)
    }
}

fn payload_of(answer: &CallToolResponse) -> TaskPayload {
    let result = match answer {
        CallToolResponse::Complete(result) => serde_json::to_value(result).ok(),
        _ => None,
    };
    match result {
        Some(Value::Object(result)) => TaskPayload::Completed { result },
        _ => TaskPayload::Failed { error: error_object("the answer cannot be written") },
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn error_object(message: &str) -> JsonObject {
    JsonObject::from_iter([("code".to_owned(), json!(-32603)), ("message".to_owned(), json!(message))])
}

fn working_task(id: &str, created_ms: i64, updated_ms: i64) -> Task {
    Task::new(id, TaskStatus::Working, iso(created_ms), iso(updated_ms)).with_poll_interval_ms(POLL_MS)
}

/// True if this client understands handles. Some clients with an older protocol claim so and then take
/// a handle for an answer without content, so the protocol must be one that has handles.
pub(super) fn are_known_to(context: &RequestContext<RoleServer>) -> bool {
    let declared = context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks());
    declared && context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

impl McpServer {
    /// Does the work. Returns a handle if it is not done at once and the client knows handles.
    pub(super) async fn work_or_task(
        &self,
        call: Prepared,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        if !are_known_to(context) {
            return self.perform_call(call, context).await;
        }
        self.work_as(Uuid::new_v4().simple().to_string(), call, context).await
    }

    /// The same for a run that continues, whose record has the handle.
    pub(super) async fn go_on_or_task(
        &self,
        run: RunId,
        call: Prepared,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let handle = self.shared.runtime.store().and_then(|store| handle_of(&store, run));
        match handle {
            Ok(Some(handle)) if are_known_to(context) => self.work_as(handle, call, context).await,
            _ => self.work_or_task(call, context).await,
        }
    }

    async fn work_as(
        &self,
        id: String,
        mut call: Prepared,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        call.place.caller.detail[HANDLE] = json!(id);
        let live = Arc::new(Live {
            id,
            created_ms: now_ms(),
            cancel: self.shared.ending.child_token(),
            place: call.place.clone(),
            entry: Arc::clone(&call.entry),
            state: watch::Sender::new(State::Working),
        });
        self.go_on(
            &live,
            context,
            |server, context| async move { server.perform_call(call, &context).await },
        );
        let mut state = live.state.subscribe();
        let is_taken_back = tokio::select! {
            _ = state.wait_for(|state| !matches!(state, State::Working)) => false,
            () = tokio::time::sleep(AT_ONCE) => false,
            () = context.ct.cancelled() => true,
        };
        if is_taken_back {
            live.cancel.cancel(CancelReason::Lost("cancelled by the client".to_owned()));
            let _ = state.wait_for(|state| !matches!(state, State::Working)).await;
        }
        match &*live.state.borrow() {
            State::Done { answer, .. } => return (**answer).clone(),
            State::Asks(asked) => return (**asked).clone().into(),
            State::Working => {}
        }
        self.shared.tasks.add_task(&live);
        CallToolResponse::Task(CreateTaskResult::new(working_task(&live.id, live.created_ms, now_ms())))
    }

    /// Works for a task independently of this session, which may end earlier.
    fn go_on<F>(
        &self,
        live: &Arc<Live>,
        context: &RequestContext<RoleServer>,
        work: impl FnOnce(Arc<Self>, RequestContext<RoleServer>) -> F,
    ) where
        F: Future<Output = CallToolResponse> + Send + 'static,
    {
        let server = Arc::new(Self::new(Arc::clone(&self.shared), live.cancel.clone()));
        // The end of the request does not end the task.
        let mut context = context.clone();
        context.ct = Default::default();
        let (work, live) = (work(server, context), Arc::clone(live));
        let work = tokio::spawn(work);
        tokio::spawn(async move {
            let broken = |error: tokio::task::JoinError| {
                tool_refusal("runtime_error", format!("lobster broke off: {error}")).into()
            };
            live.set(work.await.unwrap_or_else(broken));
        });
    }

    /// Handles `tasks/get`.
    pub(super) async fn detailed_task(
        &self,
        id: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<DetailedTask, ErrorData> {
        let actor = self.identify_caller(context, "tasks").actor;
        if let Some(live) = self.find_live(&id, &actor) {
            return Ok(live.to_detailed());
        }
        let (shared, wanted, agent) = (Arc::clone(&self.shared), id.clone(), Agent::from_context(context));
        let found = read_record(move || recorded_task(&shared, &wanted, actor, agent)).await?;
        found.ok_or_else(|| unknown_task(&id))
    }

    /// A task in memory, if this caller may ask for it.
    fn find_live(&self, id: &str, actor: &Option<String>) -> Option<Arc<Live>> {
        let live = lock(&self.shared.tasks.live).get(id).cloned()?;
        (self.shared.options.all_runs || live.place.caller.actor == *actor).then_some(live)
    }

    /// Handles `tasks/update`: the user's answers to the task's questions.
    pub(super) fn answer_questions(
        &self,
        id: &str,
        responses: BTreeMap<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let actor = self.identify_caller(context, "tasks").actor;
        let live = self.find_live(id, &actor).ok_or_else(|| unknown_task(id))?;
        let mut asked = None;
        live.state.send_if_modified(|state| match state {
            State::Asks(question) => {
                asked = question.request_state.clone();
                *state = State::Working;
                true
            }
            State::Working | State::Done { .. } => false,
        });
        let Some(token) = asked else {
            return Err(ErrorData::invalid_params(format!("the task {id} asks nothing now"), None));
        };
        let (entry, place) = (Arc::clone(&live.entry), live.place.clone());
        self.go_on(&live, context, |server, context| async move {
            match server.resume_with_answer(token, Some(&responses), entry, place, &context).await {
                Ok(Brought::Work(_, call)) => server.perform_call(call, &context).await,
                Ok(Brought::Done(response)) => response,
                Err(error) => tool_refusal("parse_error", error.message).into(),
            }
        });
        Ok(())
    }

    /// Handles `tasks/cancel`.
    pub(super) async fn call_off(
        &self,
        id: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let actor = self.identify_caller(context, "tasks").actor;
        let live = self.find_live(&id, &actor);
        if let Some(live) = &live
            && !live.is_over()
        {
            live.cancel.cancel(CancelReason::Requested("cancelled by the client".to_owned()));
        }
        // A run that waits for an answer has no process to cancel.
        let (shared, wanted, agent) = (Arc::clone(&self.shared), id.clone(), Agent::from_context(context));
        let ended = read_record(move || {
            let store = shared.runtime.store().map_err(|error| error.to_string())?;
            let run = run_of(&store, &wanted, actor.filter(|_| !shared.options.all_runs).as_deref())?;
            if let (Some(agent), Some(run)) = (&agent, &run) {
                // A run that has ended is unchanged.
                let _ = agent.cancel_run(&run.id.to_string());
                return Ok(true);
            }
            if let Some(run) = run.as_ref().filter(|run| run.status == RunStatus::Waiting) {
                let _ = replay::cancel_run(&shared.runtime, &run.id.to_string());
            }
            Ok(run.is_some())
        });
        let is_known = ended.await?;
        if let Some(live) = live {
            if matches!(*live.state.borrow(), State::Asks(_)) {
                live.set(tool_refusal("cancelled", "cancelled by the client").into());
            }
            return Ok(());
        }
        if is_known { Ok(()) } else { Err(unknown_task(&id)) }
    }
}

/// Reads the store on a thread of its own.
async fn read_record<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, ErrorData> {
    let done = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string()).flatten();
    done.map_err(|message| ErrorData::internal_error(message, None))
}

fn unknown_task(id: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no task {id:?} of yours"), None)
}

impl Tasks {
    fn add_task(&self, live: &Arc<Live>) {
        let mut all = lock(&self.live);
        all.retain(|_, live| !live.is_forgotten());
        if all.len() >= MOST {
            // The record has the finished tasks as well.
            all.retain(|_, live| !live.is_over());
        }
        all.insert(live.id.clone(), Arc::clone(live));
    }
}

/// The run that was started for a task, of this actor if there is one.
fn run_of(store: &Store, id: &str, actor: Option<&str>) -> Result<Option<RunSummary>, String> {
    let text = |error: StoreError| error.to_string();
    let filter = RunFilter { limit: LOOKED_THROUGH, ..RunFilter::default() };
    let runs = store.list_runs(&filter).map_err(text)?;
    let ours = runs.into_iter().filter(|run| actor.is_none() || run.actor.as_deref() == actor);
    for run in ours {
        if handle_of(store, run.id).map_err(text)?.as_deref() == Some(id) {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn handle_of(store: &Store, run: RunId) -> Result<Option<String>, StoreError> {
    let first = store.events_after(run, 0, 1)?;
    Ok(first.first().and_then(|record| match &record.event {
        Event::RunStarted { detail, .. } => detail["caller"][HANDLE].as_str().map(str::to_owned),
        _ => None,
    }))
}

/// A task from the record: of an earlier server, or finished long ago.
fn recorded_task(
    shared: &Shared,
    id: &str,
    actor: Option<String>,
    agent: Option<Agent>,
) -> Result<Option<DetailedTask>, String> {
    let store = shared.runtime.store().map_err(|error| error.to_string())?;
    let of = actor.filter(|_| !shared.options.all_runs);
    let Some(run) = run_of(&store, id, of.as_deref())? else { return Ok(None) };
    let is_of_service = agent.is_some();
    let history = History { store, of, agent };
    let payload = match replay::read_standing(&history.store, &run) {
        Standing::Cancelled => TaskPayload::Cancelled,
        // Another process continues it, or ends it.
        Standing::Running | Standing::Cancelling => TaskPayload::Working,
        // The service starts another process for it.
        Standing::Interrupted if is_of_service && run.status == RunStatus::Running => TaskPayload::Working,
        Standing::Interrupted => failed_payload(&format!(
            "{}; `lobster resume {}` continues it",
            run.error.as_deref().unwrap_or("the run was interrupted: the process that executed it has ended"),
            run.id.short_id()
        )),
        Standing::Failed => failed_payload(run.error.as_deref().unwrap_or("the run failed")),
        Standing::Waiting if history.open_gate(&run)?.is_none() => TaskPayload::Working,
        Standing::Ok | Standing::Waiting => {
            payload_of(&call::tool_result(history.run_envelope(&run)?, false).into())
        }
    };
    let ended_ms = run.ended_at.unwrap_or(run.started_at);
    Ok(Some(DetailedTask::new(working_task(id, run.started_at, ended_ms), payload)))
}

/// A failed call is also an answer: errors of the protocol are errors of the server.
fn failed_payload(message: &str) -> TaskPayload {
    let failed = CallAnswer::failed(None, Failure::new(Code::Failed, message));
    payload_of(&failed.into_result().into())
}
