//! Agents of `lobster serve`: the same protocol, over the service's own guard, roles and workers.
//!
//! A call of a workflow's tool is a start like any other: the registered version runs in a separate
//! process when it is its turn. The run continues if the server or the agent's session ends; only a
//! call that the agent cancels cancels it. No tool answers a question.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use lobster_runtime::call::Call;
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::code::{Code, FailureCode};
use lobster_runtime::digest::Digest;
use lobster_runtime::engine::{Caller, Progress};
use lobster_runtime::envelope::{Envelope, Failure};
use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::service::StartState;
use lobster_runtime::store::{Event, RunId, RunStatus, RunSummary, StoreError, is_resumed_by_service};
use lobster_serve::access::Verb;
use lobster_serve::http::acts::{Cause, enqueue_for};
use lobster_serve::http::{Agents, Answering, App, Asked, MAX_BODY, workflow_of_run};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use serde_json::{Value, json};

use super::Options;
use super::builtin::BuiltinTool;
use super::call::CallAnswer;
use super::catalogue::ToolProgram;
use super::endpoint::{Body, Endpoint};
use super::gates::Approvals;
use super::history::History;
use super::http::SESSION_IDLE;
use super::server::McpServer;
use super::shared::Shared;

/// Time after which a call is answered although its run continues: clients give up on silent calls.
pub(super) const PATIENCE: Duration = Duration::from_secs(45);

/// Time between two looks at a run.
const PAUSE: Duration = Duration::from_millis(50);

/// Most records of a journal that are reported at once.
const RECORDS: usize = 200;

/// The interface of a service for its agents.
pub struct Front {
    endpoint: Arc<Endpoint>,
    shared: Arc<Shared>,
    is_looked_after: AtomicBool,
}

impl Front {
    /// Serves the registered workflows of the runtime's store.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn new(runtime: &Runtime, say: fn(&str)) -> Result<Self, Failure> {
        let runtime = runtime.for_call(Call {
            cwd: runtime.state_dir().to_owned(),
            caller: Caller::default(),
            cancel: CancelToken::new(),
            notes: Box::new(|line| tracing::warn!("{line}")),
            progress: None,
        });
        let registered = runtime.store()?.service()?;
        let options = Options {
            workflows: Vec::new(),
            components: Vec::new(),
            run: false,
            allowed: Vec::new(),
            root: runtime.state_dir().to_owned(),
            approvals: Approvals::Operator,
            timeout: None,
            all_runs: false,
            say,
        };
        let shared = Arc::new(Shared::new(runtime, options, Some(registered)));
        // The service has already checked the host name and the origin.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_max_request_body_bytes(MAX_BODY);
        let of_sessions = Arc::clone(&shared);
        let endpoint = Endpoint::new(SESSION_IDLE, config, move || {
            let session = CancelToken::new();
            let server = McpServer::new(Arc::clone(&of_sessions), CancelToken::new());
            (server.with_session(session.clone()), session)
        });
        Ok(Self { endpoint: Arc::new(endpoint), shared, is_looked_after: AtomicBool::new(false) })
    }

    /// Starts the background tasks with the first request.
    fn look_after(&self) {
        if !self.is_looked_after.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.endpoint.sweep_abandoned());
            tokio::spawn(Arc::clone(&self.shared).watch_tools());
        }
    }
}

impl Agents for Front {
    fn answer_request(&self, app: Arc<App>, asked: Asked) -> Answering {
        self.look_after();
        let endpoint = Arc::clone(&self.endpoint);
        Box::pin(async move {
            let owner = asked.actor.as_ref().map(|actor| actor.credential.clone());
            let mut request = Request::new(Full::new(asked.body.clone()));
            *request.method_mut() = asked.method.clone();
            *request.uri_mut() = asked.target.parse().unwrap_or_default();
            *request.headers_mut() = asked.headers.clone();
            request.extensions_mut().insert(Agent { app, asked: Arc::new(asked) });
            let response: Response<Body> = endpoint.handle_request::<Full<Bytes>>(request, owner).await;
            Ok(response)
        })
    }
}

/// An agent of the service, as authenticated for this request.
#[derive(Clone)]
pub(super) struct Agent {
    pub(super) app: Arc<App>,
    asked: Arc<Asked>,
}

impl Agent {
    /// The agent that made a request; `None` without a service.
    pub(super) fn from_context(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.extensions.get::<http::request::Parts>()?.extensions.get::<Self>().cloned()
    }

    /// Its name in the history.
    pub(super) fn name(&self) -> Option<String> {
        self.asked.caller_name().map(str::to_owned)
    }

    /// True if it may use a tool, and so may see it.
    pub(super) fn may_use(&self, program: &ToolProgram) -> bool {
        match program {
            ToolProgram::Registered { name } => self.asked.has_right(Verb::Operate, Some(name)),
            // The arguments of the call name the run.
            ToolProgram::Builtin(BuiltinTool::Cancel) => self.asked.actor.as_ref().is_some_and(|actor| {
                lobster_serve::access::is_allowed(actor, Verb::Operate, lobster_serve::access::Object::List)
            }),
            ToolProgram::Builtin(_) => true,
            ToolProgram::Workflow { .. } | ToolProgram::Component { .. } => false,
        }
    }

    /// True if it may see a run.
    pub(super) fn may_see(&self, run: RunId) -> bool {
        workflow_of_run(&self.app, run).is_ok_and(|workflow| self.asked.may_read(workflow.as_deref()))
    }

    /// A run of the service that has not begun.
    pub(super) fn start_that_waits(&self, run: &str) -> Option<Value> {
        let id: RunId = run.parse().ok()?;
        if self.app.store.run(id).is_ok() || !self.may_see(id) {
            return None;
        }
        let start = self.app.service.start_of(id).ok()??;
        let (id, status) = (id.to_string(), start.state.as_str());
        Some(json!({ "ok": true, "runId": id, "status": status, "actor": start.actor, "error": start.why }))
    }

    /// Cancels a run.
    ///
    /// # Errors
    /// The reason why it cannot be cancelled.
    pub(super) fn cancel_run(&self, run: &str) -> Result<Value, String> {
        let unknown = || format!("there is no run {run:?} of yours");
        let service = &self.app.service;
        let id = match run.parse::<RunId>() {
            Ok(id) if service.start_of(id).is_ok_and(|start| start.is_some()) => id,
            _ => self.app.store.find_run(run).map_err(|_| unknown())?,
        };
        let workflow = workflow_of_run(&self.app, id).map_err(|problem| problem.detail)?;
        if !self.asked.has_right(Verb::Operate, workflow.as_deref()) {
            return Err(unknown());
        }
        let why = format!("{} had it cancelled", self.asked.caller_name().unwrap_or("an agent"));
        let is_done = service
            .cancel_start(id, &why, self.asked.caller_name(), &self.asked.caller_origin())
            .map_err(|error| error.to_string())?;
        if !is_done {
            return Err(format!("run {id} has ended, or the service did not start it"));
        }
        self.app.waker.wake();
        Ok(json!({ "ok": true, "runId": id.to_string() }))
    }
}

/// A run requested by an agent.
pub(super) struct WantedStart {
    pub(super) agent: Agent,
    pub(super) name: String,
    /// The listed version.
    pub(super) listed: Digest,
    pub(super) args: Value,
}

/// Starts the run and returns its result, or its state at the end of the time.
pub(super) async fn run(
    wanted: WantedStart,
    detail: Value,
    time: Option<Duration>,
    (taken_back, session): (CancelToken, Option<CancelToken>),
    progress: Option<Box<dyn Progress>>,
) -> CallAnswer {
    let agent = wanted.agent.clone();
    let run = match run_blocking(move || queue_run(wanted, detail)).await {
        Ok(Some(run)) => run,
        Ok(None) => return CallAnswer { run: None, envelope: Value::Null, changed: true },
        Err(failure) => return CallAnswer::failed(None, failure),
    };
    let begun = Instant::now();
    let mut told = 0;
    let mut heard = BTreeMap::new();
    let mut is_cancelled = false;
    loop {
        let (looking, after) = (agent.clone(), progress.is_some().then_some(told));
        let look = match run_blocking(move || poll_run(&looking, run, after)).await {
            Ok(look) => look,
            Err(failure) => return CallAnswer::failed(Some(run), failure),
        };
        if let Some(progress) = &progress {
            told = report_events(&**progress, &look.events, told);
            for (place, now) in agent.app.tidings.new_progress(run, &mut heard) {
                progress.output_arrived(&place, &now);
            }
        }
        if let Some(envelope) = look.envelope {
            return CallAnswer { run: Some(run), envelope, changed: false };
        }
        if taken_back.is_cancelled() && !is_cancelled {
            is_cancelled = true;
            // Connections closed by the server, and an ended session, do not cancel the run.
            if agent.app.is_ending() || session.as_ref().is_some_and(CancelToken::is_cancelled) {
                return still_going(run, look.stands);
            }
            let cancelling = agent.clone();
            let _ = tokio::task::spawn_blocking(move || cancelling.cancel_run(&run.to_string())).await;
        }
        if time.is_some_and(|time| begun.elapsed() >= time) {
            return still_going(run, look.stands);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let broken = |error| Err(Failure::new(Code::Failed, format!("lobster broke off: {error}")));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(broken)
}

fn still_going(run: RunId, stands: &'static str) -> CallAnswer {
    let envelope = json!({
        "protocolVersion": 1, "ok": true, "status": stands, "output": [],
        "requiresApproval": null, "requiresInput": null,
        "note": "the run continues; `show` shows its state, and `cancel` cancels it",
    });
    CallAnswer { run: Some(run), envelope, changed: false }
}

/// Queues the run; `None` if the registered version is not the listed one.
fn queue_run(wanted: WantedStart, mut detail: Value) -> Result<Option<RunId>, Failure> {
    let WantedStart { agent, name, listed, args } = wanted;
    let found = agent.app.service.find_workflow(&name).map_err(|error| store_failure(&error))?;
    let Some(workflow) = found.filter(|workflow| workflow.digest == listed) else { return Ok(None) };
    detail["workflow"] = json!(name);
    let cause = Cause { name: "mcp", detail };
    let run = enqueue_for(&agent.app, &agent.asked, workflow, args, cause);
    run.map(Some).map_err(|problem| Failure::parse_error(problem.detail))
}

fn store_failure(error: &StoreError) -> Failure {
    Failure::new(Code::Failed, error.to_string())
}

/// The current state of a run.
struct Look {
    /// The answer to the caller, if there is nothing more to wait for.
    envelope: Option<Value>,
    stands: &'static str,
    events: Vec<(u64, Event)>,
}

fn poll_run(agent: &Agent, run: RunId, after: Option<u64>) -> Result<Look, Failure> {
    let shop = &agent.app.store;
    let summary = match shop.run(run) {
        Ok(summary) => summary,
        Err(StoreError::UnknownRun(_)) => {
            let start = agent.app.service.start_of(run).map_err(|error| store_failure(&error))?;
            let over = start.filter(|start| start.state.is_over()).map(|start| match start.state {
                StartState::Withdrawn => Envelope::Cancelled,
                _ => {
                    let why = start.why.unwrap_or_else(|| "the run did not begin".to_owned());
                    Envelope::Failed(Failure::new(Code::Failed, why))
                }
            });
            let envelope = over.and_then(|envelope| envelope.to_value().ok());
            return Ok(Look { envelope, stands: "queued", events: Vec::new() });
        }
        Err(error) => return Err(store_failure(&error)),
    };
    let events = match after {
        None => Vec::new(),
        Some(after) => shop.events_after(run, after, RECORDS).map_err(|error| store_failure(&error))?,
    };
    let stands = if summary.status == RunStatus::Waiting { "waiting" } else { "running" };
    let envelope = envelope_of(agent, &summary).map_err(|why| Failure::new(Code::Failed, why))?;
    let events = events.into_iter().map(|record| (record.seq, record.event)).collect();
    Ok(Look { envelope, stands, events })
}

/// The answer of a run that has ended, or asks a person.
fn envelope_of(agent: &Agent, summary: &RunSummary) -> Result<Option<Value>, String> {
    let shop = &agent.app.store;
    let text = |error: StoreError| error.to_string();
    let history = || History { store: shop.clone(), of: None, agent: None };
    match summary.status {
        RunStatus::Running => Ok(None),
        // It may also wait for a time or an event.
        RunStatus::Waiting if history().open_gate(summary)?.is_none() => Ok(None),
        RunStatus::Ok | RunStatus::Waiting => history().run_envelope(summary).map(Some),
        RunStatus::Cancelled => Ok(Envelope::Cancelled.to_value().ok()),
        RunStatus::Failed => {
            let last = shop.events_after(summary.id, summary.records.saturating_sub(1), 1).map_err(text)?;
            let end = last.first().and_then(|record| match &record.event {
                Event::RunEnded { detail, .. } => Some(detail),
                _ => None,
            });
            if end.is_some_and(is_resumed_by_service) {
                // The service resumes it.
                return Ok(None);
            }
            let code = end.and_then(|end| end["code"].as_str().map(FailureCode::from_name));
            let why = summary.error.clone().unwrap_or_else(|| "the run failed".to_owned());
            let failure = Failure::new(code.unwrap_or(Code::Failed.into()), why);
            Ok(Envelope::Failed(failure).to_value().ok())
        }
    }
}

/// Reports new starts and ends; returns the number of the last record.
fn report_events(progress: &dyn Progress, events: &[(u64, Event)], mut told: u64) -> u64 {
    for (number, event) in events {
        told = *number;
        match event {
            Event::StepStarted { path, kind, .. } => progress.work_started(path, kind),
            Event::StepEnded { path, .. } if !path.contains('!') => progress.work_ended(path),
            _ => {}
        }
    }
    told
}
