//! Tools of other programs as steps: the action, what the operator and the
//! lock say to it, the call.

use lobster_base::code::Code;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, Tool};
use serde_json::{Map, Value, json};

use super::native::{Job, ShellText};
use super::policy_gate;
use crate::action::{ActionRecord, Preimage};
use crate::env::Env;
use crate::gate::Asker;
use crate::mcp::{CallProblem, Launch, Lock, PinnedTool, Reach, Session, Target, text_of, value_of};
use crate::path::StepPath;
use crate::pipeline::{failed_outcome as failed, outcome_error};
use crate::reuse::Reuse;
use crate::run::{Run, lock};
use crate::runtime::Runtime;
use crate::services::Services;
use crate::surroundings::Surroundings;
use crate::unseen::UnseenEnd;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::json;
use lobster_base::schema::Schema;
use lobster_base::text::{self, Count};
use lobster_policy::{Command, Proposal, Verdict, denial};
use lobster_stage::{McpServer, StageError, Stop, ToolCall};
use lobster_store::{StepOutcome, StepStatus};

/// Where a call is made.
pub(crate) struct Place<'p> {
    pub(crate) env: &'p Env,
    pub(crate) cwd: &'p Path,
    pub(crate) asker: Asker,
    pub(crate) cancel: &'p CancelToken,
}

/// Calls a tool once per run: decision, journal, call, journal.
pub(crate) fn call(run: &Run<'_>, path: &StepPath, call: &ToolCall, place: Place<'_>) -> Result<Value, Stop> {
    let record = ActionRecord {
        kind: "mcp".to_owned(),
        preimage: Preimage::of(
            &json!({ "kind": "mcp", "server": call.server, "tool": call.tool, "args": call.args }),
        )?,
        decision: Value::Null,
        idempotent: call.idempotent,
    };
    // What was done needs neither server nor permission any more.
    if run.overseer().is_none()
        && let Some(outcome) = run.remembered(path)
    {
        if !call.idempotent {
            run.forbid_retry(path);
        }
        return answer(&outcome).inspect_err(|_| run.record_failure(path));
    }
    if let Some(outcome) = run.ask_overseer(path, &record)? {
        return answer(&outcome).inspect_err(|_| run.record_failure(path));
    }
    let named = |error: StageError| {
        run.record_failure(path);
        Stop::Failed(error)
    };
    let target = Target::find(run.services, place.env, place.cwd, &call.server).map_err(named)?;
    if !target.allows(&call.tool) {
        let message =
            format!("mcp server {}: the operator does not allow its tool {:?}", target.name, call.tool);
        return Err(named(StageError::permanent(message).with_code(Code::PolicyDenied)));
    }
    let connected = lock(&run.servers).get(&call.server).filter(|session| !session.is_over()).cloned();
    let mut launch = None;
    if let (None, Reach::Program { argv, env }) = (&connected, &target.reach) {
        let job = Job {
            program: ShellText::Argv(argv.clone()),
            stdin: None,
            env: place.env.with(env.clone()),
            cwd: place.cwd.to_owned(),
            idempotent: false,
            dispatches: false,
            reuse: Reuse::Never,
            inputs: Vec::new(),
            max_output: None,
            json: false,
            asker: place.asker.clone(),
            missing_shell: "",
        };
        let decided = policy_gate::decide(run, path, &job, place.cancel)?;
        let sandbox = Arc::clone(&run.services.sandbox);
        launch = Some(Launch { sandbox, decided, cwd: job.cwd });
    }
    let decision = launch.as_ref().map_or(Value::Null, |launch| launch.decided.statement.clone());
    let record = ActionRecord { decision, ..record };
    let way = connected.map_or(Way::Start(launch.map(Box::new)), Way::Connected);
    let sent = Cell::new(false);
    let perform = || match perform(run, path, call, &target, way, place.cancel, &sent) {
        Ok(outcome) => outcome,
        Err(problem) => explain(&target, call, &problem, place.cancel, sent.get()),
    };
    run.perform_once(path, &record, perform, answer)
}

/// Whether the server says that calling the tool again does nothing more.
fn is_repeatable(tool: &Tool) -> bool {
    let says = |hint: Option<bool>| hint == Some(true);
    tool.annotations.as_ref().is_some_and(|hints| says(hints.read_only_hint) || says(hints.idempotent_hint))
}

/// How the server is reached.
enum Way {
    Connected(Arc<Session>),
    /// With what its program needs to start, if it is one.
    Start(Option<Box<Launch>>),
}

/// Connects if need be, holds the tool against the lock and the arguments against its schema, and calls it.
fn perform(
    run: &Run<'_>,
    path: &StepPath,
    call: &ToolCall,
    target: &Target,
    way: Way,
    cancel: &CancelToken,
    sent: &Cell<bool>,
) -> Result<StepOutcome, CallProblem> {
    let session = match way {
        Way::Connected(session) => session,
        Way::Start(launch) => {
            let session = Arc::new(Session::open(target, launch.map(|launch| *launch), cancel)?);
            lock(&run.servers).insert(call.server.clone(), Arc::clone(&session));
            session
        }
    };
    let tool = session.tool(&call.tool, cancel)?;
    let tool = match tool {
        Some(tool) => tool,
        None => {
            let mut known: Vec<String> = session.tools().iter().map(|tool| tool.name.to_string()).collect();
            known.truncate(30);
            let message = format!("it has no tool {:?}; it has {}", call.tool, known.join(", "));
            return Ok(failed(&refusal(target, &message, Code::McpToolUnknown)));
        }
    };
    let pin = PinnedTool::of(&tool);
    if let Err(error) = hold(run.services, target, call, &pin) {
        return Ok(failed(&error));
    }
    if let Err(message) = fits(&tool, &call.args) {
        let message = format!("the arguments do not fit what {:?} takes: {message}", call.tool);
        return Ok(failed(&refusal(target, &message, Code::McpArguments)));
    }
    let params = CallToolRequestParams::new(call.tool.clone()).with_arguments(call.args.clone());
    // From here on the tool may have done its work, whatever comes back.
    if !call.idempotent && !is_repeatable(&tool) {
        run.forbid_retry(path);
        sent.set(true);
    }
    let result = session.call(params, target.timeout, cancel)?;
    let said = || session.masked(&text_of(&result).unwrap_or_else(|| json::compact(&value_of(&result))));
    if result.is_error == Some(true) {
        let message = format!("tool {:?} failed: {}", call.tool, clipped(&said()));
        let error =
            StageError::new(format!("mcp server {}: {message}", target.name)).with_code(Code::McpToolError);
        return Ok(failed(&error));
    }
    let value = session.masked_value(value_of(&result));
    let size = json::compact(&value).len();
    if size > target.max_bytes {
        let message = format!("the answer has {size} bytes; max_bytes is {}", target.max_bytes);
        return Ok(failed(&refusal(target, &message, Code::McpAnswerLimit)));
    }
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.value = value;
    outcome.detail = json!({ "pin": pin.digest });
    Ok(outcome)
}

/// Whether the tool still is what a person has looked at.
fn hold(services: &Services, target: &Target, call: &ToolCall, now: &PinnedTool) -> Result<(), StageError> {
    let lock = Lock::read(&target.lock).map_err(StageError::permanent_from)?;
    let pinned = lock.as_ref().and_then(|lock| lock.servers.get(&target.name));
    let hint = "look at it, then `lobster mcp lock` takes it as it is now";
    match (pinned, pinned.and_then(|tools| tools.get(&call.tool))) {
        (_, Some(pinned)) => match pinned.difference(now) {
            None => Ok(()),
            Some(difference) => {
                let message = format!("the tool {:?} has changed: {difference} ({hint})", call.tool);
                Err(refusal(target, &message, Code::McpToolChanged))
            }
        },
        (Some(_), None) => {
            let message = format!("the tool {:?} is not in {} ({hint})", call.tool, target.lock.display());
            Err(refusal(target, &message, Code::McpToolChanged))
        }
        (None, None) if !services.policy.is_open() => {
            let message =
                format!("a policy is in force and {} does not pin its tools ({hint})", target.lock.display());
            Err(refusal(target, &message, Code::McpToolChanged))
        }
        (None, None) => {
            services.note(&format!(
                "note: the tools of mcp server {} are not pinned; `lobster mcp lock` pins them",
                target.name
            ));
            Ok(())
        }
    }
}

fn fits(tool: &Tool, args: &Map<String, Value>) -> Result<(), String> {
    let schema = Value::Object((*tool.input_schema).clone());
    let schema = Schema::compile_foreign(&schema)
        .map_err(|error| format!("the server's schema cannot be used: {error}"))?;
    match schema.first_error(&Value::Object(args.clone())) {
        None => Ok(()),
        Some(error) => Err(clipped(&error.to_string())),
    }
}

fn refusal(target: &Target, message: &str, code: Code) -> StageError {
    StageError::permanent(format!("mcp server {}: {message}", target.name)).with_code(code)
}

/// The outcome of a call without an answer; `sent` tells that the tool may have acted on
/// it, and that calling it again would do more.
fn explain(
    target: &Target,
    call: &ToolCall,
    problem: &CallProblem,
    cancel: &CancelToken,
    sent: bool,
) -> StepOutcome {
    let error = |message: String| StageError::new(format!("mcp server {}: {message}", target.name));
    if sent && let Some(why) = why_lost(problem, cancel) {
        return UnseenEnd::of_call(error(format!("tool {:?}: {}", call.tool, clipped(&why))).message)
            .outcome();
    }
    match problem {
        CallProblem::Cancelled => match cancel.reason() {
            Some(CancelReason::Timeout(message)) => {
                let mut outcome = failed(&StageError::new(message).with_code(Code::Timeout));
                outcome.status = StepStatus::TimedOut;
                outcome
            }
            _ => StepOutcome::new(StepStatus::Cancelled),
        },
        CallProblem::TimedOut(_) => {
            let mut outcome =
                failed(&error(format!("tool {:?}: {problem}", call.tool)).with_code(Code::Timeout));
            outcome.status = StepStatus::TimedOut;
            outcome
        }
        CallProblem::Failed(message) | CallProblem::Refused(message) => {
            failed(&error(clipped(message)).with_code(Code::McpServer))
        }
    }
}

/// Why there is no answer to a call that was sent, if that is what went wrong.
fn why_lost(problem: &CallProblem, cancel: &CancelToken) -> Option<String> {
    match problem {
        CallProblem::TimedOut(_) => Some(problem.to_string()),
        CallProblem::Failed(message) => Some(message.clone()),
        CallProblem::Cancelled => match cancel.reason() {
            Some(CancelReason::Timeout(message)) => Some(message),
            _ => None,
        },
        CallProblem::Refused(_) => None,
    }
}

fn answer(outcome: &StepOutcome) -> Result<Value, Stop> {
    match outcome.status {
        StepStatus::Ok => Ok(outcome.value.clone()),
        StepStatus::Cancelled => Err(Stop::Cancelled),
        _ => Err(Stop::Failed(outcome_error(outcome))),
    }
}

/// A server's words, short enough for a message.
fn clipped(text: &str) -> String {
    const MAX: usize = 4 << 10;
    text::clip(text, MAX, Count::Bytes).into_owned()
}

impl Runtime {
    /// The tools that a server has now, as a lock keeps them; for the operator,
    /// who need not be asked. Nothing is recorded.
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub fn mcp_tools(&self, server: &McpServer) -> Result<BTreeMap<String, PinnedTool>, StageError> {
        let services = &self.services;
        let target = Target::find(services, &services.env, &services.cwd, server)?;
        let launch = match &target.reach {
            Reach::Address { .. } => None,
            Reach::Program { argv, env } => {
                let env = services.env.with(env.clone());
                let cwd = Some(services.cwd.display().to_string());
                let proposal = Proposal { command: Command::Argv(argv.clone()), cwd };
                let place =
                    policy_gate::decision_env(services, &Surroundings::of(services), &services.cwd, &env);
                let decision = services.policy.decide(&proposal, &place);
                if decision.verdict == Verdict::Deny {
                    let hint = decision.hint.as_deref();
                    let message = denial("the command", &decision.message, &decision.reason_code, hint);
                    return Err(StageError::permanent(message).with_code(Code::PolicyDenied));
                }
                let statement = policy_gate::statement(&services.policy, &decision);
                // It belongs to no run, so it shares its network with nobody.
                let network = format!("mcp server {}", target.name);
                let decided = policy_gate::decided(services, &decision, statement, &env, &place, &network)
                    .map_err(|stop| match stop {
                        Stop::Failed(error) => error,
                        _ => StageError::permanent("it cannot be confined"),
                    })?;
                let sandbox = Arc::clone(&services.sandbox);
                Some(Launch { sandbox, decided, cwd: services.cwd.clone() })
            }
        };
        let session = Session::open(&target, launch, &services.cancel)
            .map_err(|problem| StageError::new(format!("mcp server {}: {problem}", target.name)))?;
        Ok(session.tools().iter().map(|tool| (tool.name.to_string(), PinnedTool::of(tool))).collect())
    }

    /// The operator's servers, and where their lock lies.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn mcp_servers(
        &self,
    ) -> Result<(std::path::PathBuf, crate::mcp::McpConfig), crate::mcp::ConfigError> {
        let (path, config) = crate::mcp::operators(&self.services, &self.services.cwd)?;
        Ok((path.with_file_name(Lock::FILE), config))
    }
}
