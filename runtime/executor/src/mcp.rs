//! Calls tools of MCP servers, and keeps the sessions that calls share.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use rmcp::model::{CallToolRequestParams, Tool};
use serde_json::{Map, Value, json};

use super::component::stopped_by;
use super::credential_values::with_values;
use super::native::{hide_store, hold_roots};
use super::{Host, McpPin, McpReach, McpTask, OrderId, Outcome};
use crate::failed_outcome as failed;
use crate::unseen_end::UnseenEnd;
use crate::upstream::StepUpstream;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::code::Code;
use lobster_base::json;
use lobster_base::schema::Schema;
use lobster_base::sync::lock;
use lobster_mcp_client::{CallProblem, Launch, PinnedTool, ServerTerms, Session, Way, text_of, value_of};
use lobster_models::http::{self, Secret};
use lobster_stage::StageError;
use lobster_store::{StepOutcome, StepStatus};

/// Advice in the refusal of a tool that differs from the pinned one.
pub const LOCK_HINT: &str = "look at it, then `lobster mcp lock` pins its current state";

/// Advice if a server requires a login.
const LOGIN_HINT: &str = "`lobster mcp login NAME` logs in at a server of lobster.mcp.toml";

/// The open sessions, by the orders that opened them.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<OrderId, Arc<Session>>>>);

impl Sessions {
    /// True if the session is open and can be used.
    pub(super) fn has_session(&self, id: &OrderId) -> bool {
        lock(&self.0).get(id).is_some_and(|session| !session.is_over())
    }

    /// Ends a session. If it is cut off, waiting calls get the reason; otherwise they may finish first.
    pub(super) fn end_session(&self, id: &OrderId, cut_off: Option<&str>) {
        let session = lock(&self.0).remove(id);
        if let (Some(session), Some(why)) = (&session, cut_off) {
            session.cut_off(why);
        }
        // Outside the lock: dropping it waits for the server to end.
        drop(session);
    }
}

/// Executes the order `id`.
pub(super) fn perform(
    id: &OrderId,
    task: &McpTask,
    sessions: &Sessions,
    host: &Host<'_>,
    cancel: &CancelToken,
) -> Outcome {
    let mut sent = false;
    let step = match call_tool(id, task, sessions, host, cancel, &mut sent) {
        Ok(outcome) => outcome,
        Err(problem) => {
            sent &= !matches!(problem, CallProblem::Unauthorized { .. });
            unanswered_outcome(task, &problem, cancel, sent)
        }
    };
    Outcome { dispatched: sent, ..step.into() }
}

/// Connects if necessary, compares the tool with its pin and the arguments with its schema, and calls it.
fn call_tool(
    id: &OrderId,
    task: &McpTask,
    sessions: &Sessions,
    host: &Host<'_>,
    cancel: &CancelToken,
    sent: &mut bool,
) -> Result<StepOutcome, CallProblem> {
    let session = match &task.reach {
        Some(reach) if task.session == *id => {
            let terms =
                ServerTerms { name: task.server.clone(), timeout: task.timeout, max_bytes: task.max_bytes };
            let session = Arc::new(Session::open(&terms, resolve_way(reach, host)?, cancel)?);
            lock(&sessions.0).insert(id.clone(), Arc::clone(&session));
            session
        }
        _ => {
            let known = lock(&sessions.0).get(&task.session).cloned();
            known.ok_or_else(|| CallProblem::Failed("the server has closed the connection".to_owned()))?
        }
    };
    let Some(tool) = session.find_tool(&task.tool, cancel)? else {
        let mut known: Vec<String> =
            session.listed_tools().iter().map(|tool| tool.name.to_string()).collect();
        known.truncate(30);
        let message = format!("it has no tool {:?}; it has {}", task.tool, known.join(", "));
        return Ok(failed(&refusal_error(task, &message, Code::McpToolUnknown)));
    };
    let now = PinnedTool::from_tool(&tool);
    if let Err(message) = check_pin(task, &now) {
        return Ok(failed(&refusal_error(task, &message, Code::McpToolChanged)));
    }
    if let Err(message) = check_arguments(&tool, &task.args) {
        let message = format!("the arguments do not fit what {:?} takes: {message}", task.tool);
        return Ok(failed(&refusal_error(task, &message, Code::McpArguments)));
    }
    let params = CallToolRequestParams::new(task.tool.clone()).with_arguments(task.args.clone());
    // From here on the tool may have had effects, whatever the result.
    *sent = !task.idempotent && !is_repeatable(&tool);
    let result = session.call_tool(params, task.timeout, cancel)?;
    let said = || session.mask_token(&text_of(&result).unwrap_or_else(|| json::compact(&value_of(&result))));
    if result.is_error == Some(true) {
        let message = format!("tool {:?} failed: {}", task.tool, clip_text(&said()));
        let error =
            StageError::new(format!("mcp server {}: {message}", task.server)).with_code(Code::McpToolError);
        return Ok(failed(&error));
    }
    let value = session.masked_value(value_of(&result));
    let size = json::compact(&value).len();
    if size > task.max_bytes {
        let message = format!("the answer has {size} bytes; max_bytes is {}", task.max_bytes);
        return Ok(failed(&refusal_error(task, &message, Code::McpAnswerLimit)));
    }
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.value = value;
    outcome.detail = json!({ "pin": now.digest });
    Ok(outcome)
}

/// The way to the server from here.
fn resolve_way(reach: &McpReach, host: &Host<'_>) -> Result<Way, CallProblem> {
    let values = host.secrets.secret_values(reach.secrets());
    let values = values.map_err(|error| CallProblem::Failed(error.message))?;
    match reach {
        McpReach::Address { url, token, secrets, credential } => {
            let url = http::parse_url(url).filter(http::is_http);
            let url = url.ok_or_else(|| CallProblem::Failed("no http(s) address".to_owned()))?;
            let token = match values.first() {
                Some((_, value)) => Secret::new(value),
                None if secrets.is_empty() => token.as_ref().and_then(|token| Secret::new(token.reveal())),
                None => None,
            };
            Ok(Way::Address { url, token, credential: credential.clone() })
        }
        McpReach::Program(program) => {
            let mut confinement = hold_roots(&program.confinement, &program.roots)
                .map_err(|error| CallProblem::Failed(error.to_string()))?;
            hide_store(&mut confinement, host.store);
            let text = |text: &super::HostText| text.as_os_str().to_owned();
            let upstream = with_values(&program.credentials, host.secrets)
                .and_then(|credentials| StepUpstream::open(credentials, &program.confinement))
                .map_err(|error| CallProblem::Failed(error.message))?;
            let given = program.env.iter().map(|(name, value)| (text(name), text(value)));
            let secret = values.into_iter().map(|(name, value)| (name.into(), value.into()));
            let mut env: Vec<(OsString, OsString)> = given.chain(secret).collect();
            if let Some(upstream) = &upstream {
                upstream.extend_environment(&mut env);
            }
            Ok(Way::Program(Box::new(Launch {
                sandbox: Arc::clone(host.sandbox),
                argv: program.argv.clone(),
                env,
                cwd: program.cwd.as_path().to_owned(),
                limits: program.limits.clone(),
                confinement,
                upstream: upstream.as_ref().and_then(StepUpstream::in_jail),
                held: Box::new(upstream),
            })))
        }
    }
}

/// True if the server declares that calling the tool again has no further effect.
fn is_repeatable(tool: &Tool) -> bool {
    let says = |hint: Option<bool>| hint == Some(true);
    tool.annotations.as_ref().is_some_and(|hints| says(hints.read_only_hint) || says(hints.idempotent_hint))
}

/// Checks that the tool is still as a person reviewed it.
fn check_pin(task: &McpTask, now: &PinnedTool) -> Result<(), String> {
    match &task.pin {
        McpPin::Any => Ok(()),
        McpPin::Refused(why) => Err(why.clone()),
        McpPin::Pinned(pinned) => match pinned.describe_difference(now) {
            None => Ok(()),
            Some(difference) => {
                Err(format!("the tool {:?} has changed: {difference} ({LOCK_HINT})", task.tool))
            }
        },
    }
}

fn check_arguments(tool: &Tool, args: &Map<String, Value>) -> Result<(), String> {
    let schema = Value::Object((*tool.input_schema).clone());
    let schema = Schema::compile_foreign(&schema)
        .map_err(|error| format!("the server's schema cannot be used: {error}"))?;
    match schema.first_error(&Value::Object(args.clone())) {
        None => Ok(()),
        Some(error) => Err(clip_text(&error.to_string())),
    }
}

fn refusal_error(task: &McpTask, message: &str, code: Code) -> StageError {
    StageError::permanent(format!("mcp server {}: {message}", task.server)).with_code(code)
}

/// The outcome of a call without an answer. `sent` means that the tool may have acted on it, and that calling it again
/// may do more.
fn unanswered_outcome(
    task: &McpTask,
    problem: &CallProblem,
    cancel: &CancelToken,
    sent: bool,
) -> StepOutcome {
    let error = |message: String| StageError::new(format!("mcp server {}: {message}", task.server));
    if sent && let Some(why) = why_lost(problem, cancel) {
        return UnseenEnd::of_call(error(format!("tool {:?}: {}", task.tool, clip_text(&why))).message)
            .to_outcome();
    }
    match problem {
        CallProblem::Cancelled => stopped_by(cancel),
        CallProblem::TimedOut(_) => {
            let mut outcome =
                failed(&error(format!("tool {:?}: {problem}", task.tool)).with_code(Code::Timeout));
            outcome.status = StepStatus::TimedOut;
            outcome
        }
        CallProblem::Unauthorized { .. } => {
            let error =
                StageError::permanent(format!("mcp server {}: {problem} ({LOGIN_HINT})", task.server));
            failed(&error.with_code(Code::McpLogin))
        }
        CallProblem::Failed(message) | CallProblem::Refused(message) => {
            failed(&error(clip_text(message)).with_code(Code::McpServer))
        }
    }
}

/// The reason why a call that was sent has no answer, if that was the failure.
fn why_lost(problem: &CallProblem, cancel: &CancelToken) -> Option<String> {
    match problem {
        CallProblem::TimedOut(_) => Some(problem.to_string()),
        CallProblem::Failed(message) => Some(message.clone()),
        CallProblem::Cancelled => match cancel.reason() {
            Some(CancelReason::Timeout(message)) => Some(message),
            _ => None,
        },
        CallProblem::Refused(_) | CallProblem::Unauthorized { .. } => None,
    }
}

/// A text of the server's, shortened for a message.
fn clip_text(text: &str) -> String {
    const MAX: usize = 4 << 10;
    if text.len() <= MAX { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(MAX)]) }
}
