//! One call: a recorded run on its own thread, with its cancellation, its progress and its answer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lobster_runtime::call::Call;
use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::code::Code;
use lobster_runtime::engine::{Caller, Heard, Progress};
use lobster_runtime::envelope::{Envelope, Failure};
use lobster_runtime::json;
use lobster_runtime::language::pipeline::{Pipeline, StageCall};
use lobster_runtime::language::plan::Plan;
use lobster_runtime::replay::{self, ResumeRequest};
use lobster_runtime::runtime::{Planned, RunRequest, RunResult, Runtime, Target};
use lobster_runtime::stage::StageArgs;
use lobster_runtime::store::{Event, RunId};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use rmcp::{RoleServer, model::CallToolResult, model::ContentBlock};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::bounded::bound_envelope;
use super::catalogue::workflow_digest;
use super::service::WantedStart;
use super::turns::CallTurn;
use lobster_runtime::digest::Digest;

/// Limits of a call in the incumbent's plugin, in milliseconds and bytes.
pub(super) const TIMEOUT_MS: u64 = 20_000;
pub(super) const MAX_ANSWER: usize = 512_000;
pub(super) const MIN_TIMEOUT_MS: u64 = 200;
pub(super) const MIN_ANSWER: usize = 1024;

/// Time without news after which the client gets a message that the call continues.
const SILENCE: Duration = Duration::from_secs(10);

/// Most progress messages that wait for a slow client; further ones are dropped.
const PROGRESS_AHEAD: usize = 64;

/// The work of a call.
pub(super) enum Work {
    Pipeline {
        text: String,
    },
    /// With a digest, the file must still be the listed one.
    File {
        file: PathBuf,
        args: Value,
        pinned: Option<Digest>,
    },
    Component {
        digest: Digest,
        name: String,
        args: Map<String, Value>,
        input: Option<Value>,
    },
    Resume(ResumeRequest),
    /// A run that the service starts.
    Start(Box<WantedStart>),
}

impl Work {
    /// The tool and its arguments, for the history.
    fn history_entry(&self) -> (String, Value) {
        let (name, asked) = match self {
            Self::Pipeline { text } => ("run", json!({ "pipeline": text })),
            Self::File { file, args, .. } => ("run", json!({ "file": file, "args": args })),
            Self::Component { name, args, .. } => (name.as_str(), json!(args)),
            Self::Resume(_) => ("resume", Value::Null),
            Self::Start(_) => ("start", Value::Null),
        };
        (format!("mcp {name}"), asked)
    }
}

/// Limits of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimits {
    pub(super) time: Option<Duration>,
    pub(super) answer: usize,
}

/// The result of a call.
pub(super) struct CallAnswer {
    pub(super) run: Option<RunId>,
    /// The envelope.
    pub(super) envelope: Value,
    /// The plan differs from the listed one.
    pub(super) changed: bool,
}

impl CallAnswer {
    /// A failure; without a run, nothing has run.
    pub(super) fn failed(run: Option<RunId>, failure: Failure) -> Self {
        let envelope = Envelope::Failed(failure).to_value().unwrap_or(Value::Null);
        Self { run, envelope, changed: false }
    }

    /// The request to a person, if the run stopped at one.
    pub(super) fn pending_request(&self) -> Option<&Map<String, Value>> {
        ["requiresApproval", "requiresInput"]
            .iter()
            .find_map(|key| self.envelope.get(*key).and_then(Value::as_object))
    }

    /// The protocol's form: the envelope as data and as text.
    pub(super) fn into_result(self) -> CallToolResult {
        let failed = self.envelope.get("ok") != Some(&Value::Bool(true));
        let mut envelope = self.envelope;
        if let (Some(run), Value::Object(map)) = (self.run, &mut envelope) {
            map.insert("runId".to_owned(), json!(run.to_string()));
        }
        tool_result(envelope, failed)
    }
}

/// A result with the same value as data and as text.
pub(super) fn tool_result(value: Value, failed: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(json::pretty(&value))];
    let mut result = if failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(value);
    result
}

/// A failure without a run.
pub(super) fn tool_refusal(code: &str, message: impl Into<String>) -> CallToolResult {
    let error = json!({ "type": code, "message": message.into() });
    tool_result(json!({ "protocolVersion": 1, "ok": false, "error": error }), true)
}

/// Does the work on this thread.
pub(super) fn perform_work(runtime: &Runtime, work: Work, limits: CallLimits) -> CallAnswer {
    let (name, asked) = work.history_entry();
    let ran = match plan_work(runtime, work) {
        Ok(Ready::Run(planned)) => runtime.run_planned(&planned),
        Ok(Ready::Resume(request)) => replay::answer_and_resume(runtime, &request),
        Ok(Ready::Changed) => return CallAnswer { run: None, envelope: Value::Null, changed: true },
        // It does not become a run; the operator finds it as a refused call.
        Err(failure) => {
            let refused = runtime.record_refusal(&name, &failure.message, &asked);
            RunResult { run: refused.ok(), ..RunResult::from(failure) }
        }
    };
    CallAnswer { run: ran.run, envelope: bound_envelope(ran.envelope, limits.answer), changed: false }
}

enum Ready {
    Run(Box<Planned>),
    Resume(Box<ResumeRequest>),
    Changed,
}

fn plan_work(runtime: &Runtime, work: Work) -> Result<Ready, Failure> {
    let (request, pinned) = match work {
        Work::Resume(request) => return Ok(Ready::Resume(Box::new(request))),
        // Its runs execute in separate processes.
        Work::Start(_) => return Err(Failure::new(Code::Failed, "the service alone starts this")),
        Work::Component { digest, name, args, input } => {
            let pipeline = component_pipeline(digest, &name, args, input);
            return runtime.plan_pipeline(pipeline, &name).map(|planned| Ready::Run(Box::new(planned)));
        }
        Work::Pipeline { text } => (RunRequest { target: Target::Pipeline(text), args: None }, None),
        Work::File { file, args, pinned } => {
            (RunRequest { target: Target::File(file), args: Some(args) }, pinned)
        }
    };
    let planned = runtime.plan_run(&request)?;
    if let (Some(pinned), Plan::Workflow(workflow)) = (pinned, &planned.plan)
        && workflow_digest(workflow) != pinned
    {
        return Ok(Ready::Changed);
    }
    runtime.tell_reread(&planned, &request, |_| false);
    Ok(Ready::Run(Box::new(planned)))
}

/// A pipeline that runs a component, named by its digest, as its only stage without any grant.
fn component_pipeline(
    digest: Digest,
    name: &str,
    args: Map<String, Value>,
    input: Option<Value>,
) -> Pipeline {
    let mut stage = StageArgs { positional: vec![format!("blake3:{digest}")], ..StageArgs::default() };
    if !args.is_empty() {
        stage.options.insert("args-json".to_owned(), json!(json::compact(&args)));
    }
    if let Some(input) = input {
        stage.options.insert("input-json".to_owned(), json!(json::compact(&input)));
    }
    let call =
        StageCall { name: "component".to_owned(), args: stage, raw: format!("component {name}"), span: 0..0 };
    Pipeline { stages: vec![call] }
}

/// The end of one call: by the session, by the client, or by its own time limit.
pub(super) struct Ending {
    pub(super) cancel: CancelToken,
    watcher: JoinHandle<()>,
}

impl Ending {
    /// A token below the session's that also ends when the client cancels its request.
    pub(super) fn new(session: &CancelToken, context: &RequestContext<RoleServer>) -> Self {
        let cancel = session.child_token();
        let (request, token) = (context.ct.clone(), cancel.clone());
        let watcher = tokio::spawn(async move {
            request.cancelled().await;
            token.cancel(CancelReason::Lost("cancelled by the client".to_owned()));
        });
        Self { cancel, watcher }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Runs the work on a thread, and stops it at the end of its time, which began with the wait for a turn.
pub(super) async fn run(
    base: &Runtime,
    place: CallPlace,
    work: Work,
    limits: CallLimits,
    cancel: CancelToken,
    progress: Option<Box<dyn Progress>>,
    (turn, begun): (CallTurn, Instant),
) -> CallAnswer {
    let runtime = base.for_call(Call {
        cwd: place.cwd,
        caller: place.caller,
        cancel: cancel.clone(),
        notes: Box::new(|line| tracing::info!("{line}")),
        progress,
    });
    let mut thread = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        perform_work(&runtime, work, limits)
    });
    let done = match limits.time {
        None => thread.await,
        Some(time) => match tokio::time::timeout_at((begun + time).into(), &mut thread).await {
            Ok(done) => done,
            Err(_) => {
                let message = format!("lobster timed out after {} ms", time.as_millis());
                cancel.cancel(CancelReason::Timeout(message));
                thread.await
            }
        },
    };
    done.unwrap_or_else(|error| {
        CallAnswer::failed(None, Failure::new(Code::Failed, format!("lobster broke off: {error}")))
    })
}

/// The directory and the caller of a call.
#[derive(Clone)]
pub(super) struct CallPlace {
    pub(super) cwd: PathBuf,
    pub(super) caller: Caller,
}

/// Reports the progress of a call to a client.
pub(super) struct Reporter {
    pub(super) sink: mpsc::Sender<String>,
}

impl Progress for Reporter {
    fn work_started(&self, place: &str, kind: &str) {
        // A slow client misses some of it.
        let _ = self.sink.try_send(format!("{} ({kind})", place_name(place)));
    }

    fn work_ended(&self, place: &str) {
        let _ = self.sink.try_send(format!("{} done", place_name(place)));
    }

    fn output_arrived(&self, place: &str, heard: &Heard) {
        // Stderr of programs is for people.
        if let Heard::Answering(_) = heard {
            let _ = self.sink.try_send(format!("{}: {heard}", place_name(place)));
        }
    }

    fn events_recorded(&self, events: &[Event]) {
        // Results of an earlier run are reported as well: a call with only such steps is not silent.
        for event in events {
            if let Event::StepEnded { path, begun: Some(begun), outcome, .. } = event
                && outcome.cached
            {
                let _ = self.sink.try_send(format!("{} ({}) reused", place_name(path), begun.kind));
            }
        }
    }
}

fn place_name(place: &str) -> &str {
    if place.is_empty() { "pipeline" } else { place }
}

/// Sends progress for one request, if its caller asked for it.
pub(super) struct Forwarder {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    sent: std::sync::Arc<AtomicU64>,
}

impl Forwarder {
    pub(super) fn new(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { token, peer: context.peer.clone(), sent: std::sync::Arc::default() })
    }

    /// Returns a receiver of reports, and the task that passes them on until it is dropped.
    pub(super) fn start_forwarding(&self) -> (Box<dyn Progress>, JoinHandle<()>) {
        let (sink, mut source) = mpsc::channel::<String>(PROGRESS_AHEAD);
        let (peer, token, sent) = (self.peer.clone(), self.token.clone(), self.sent.clone());
        let task = tokio::spawn(async move {
            let (begun, mut last) = (Instant::now(), "pipeline".to_owned());
            loop {
                let message = match tokio::time::timeout(SILENCE, source.recv()).await {
                    Ok(None) => return,
                    Ok(Some(message)) => {
                        last.clone_from(&message);
                        message
                    }
                    // Clients give up on silent calls.
                    Err(_) => format!("{last}; {} s since the call began", begun.elapsed().as_secs()),
                };
                let count = sent.fetch_add(1, Ordering::Relaxed) + 1;
                let param =
                    ProgressNotificationParam::new(token.clone(), as_float(count)).with_message(message);
                if peer.notify_progress(param).await.is_err() {
                    return;
                }
            }
        });
        (Box::new(Reporter { sink }), task)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no call takes 2^53 steps")]
fn as_float(count: u64) -> f64 {
    count as f64
}
