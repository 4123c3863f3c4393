//! Tools of MCP servers as steps: the action, the checks by the operator's configuration and the lock, the order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::mcp_servers::CalledServer;
use super::native::{Job, stop_grace};
use super::own_places::homes_directory;
use super::pile::Pile;
use super::{Decided, decision_env, policy_gate};
use crate::action::{ActionRecord, Preimage};
use crate::binding::Asker;
use crate::env::Env;
use crate::mcp::{Lock, PinnedTool, Reach, Target, is_for};
use crate::path::StepPath;
use crate::reuse::Reuse;
use crate::run::Run;
use crate::runtime::Runtime;
use crate::services::Services;
use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::program::Program;
use lobster_executor::{
    LOCK_HINT, McpPin, McpProgram, McpReach, McpTask, Order, OrderId, Outcome, SecretSource, Task,
};
use lobster_executor::{failed_outcome as failed, outcome_error};
use lobster_language::plan::ChangesMode;
use lobster_mcp_client::{Launch, ServerTerms, Session, Way};
use lobster_models::http::Secret;
use lobster_policy::{Command, Proposal, Verdict};
use lobster_sandbox::HeldRoot;
use lobster_stage::{MCP_TOKEN, McpServer, StageError, Stop, ToolCall};
use lobster_store::{StepOutcome, StepStatus};

/// The step or stage that makes a call.
pub(crate) struct CallSite<'p> {
    pub(crate) env: &'p Env,
    pub(crate) cwd: &'p Path,
    pub(crate) asker: Asker,
    pub(crate) cancel: &'p CancelToken,
    /// True if the call is the whole step. Then a secret that the server does not take is a mistake.
    pub(crate) is_whole_step: bool,
}

/// Calls a tool once per run: decision, journal, call, journal.
pub(crate) fn call_tool(
    run: &Run<'_>,
    path: &StepPath,
    call: &ToolCall,
    place: CallSite<'_>,
) -> Result<Value, Stop> {
    let mut action = json!({ "kind": "mcp", "server": call.server, "tool": call.tool, "args": call.args });
    if place.is_whole_step && !place.env.secrets().is_empty() {
        action["secrets"] = run.named_secrets(path, place.env.secrets());
    }
    if !place.env.credentials().is_empty() {
        action["credentials"] = json!(place.env.credentials());
    }
    let record = ActionRecord {
        kind: "mcp".to_owned(),
        preimage: Preimage::from_json(&action)?,
        decision: Value::Null,
        idempotent: call.idempotent,
        on_record: None,
        variables: Arc::default(),
    };
    // An effect that is already in the journal needs neither server nor permission.
    if run.overseer().is_none()
        && let Some(outcome) = run.remembered_for_certain(path)
    {
        if !call.idempotent {
            run.forbid_retry(path);
        }
        return answer_value(&outcome).inspect_err(|_| run.record_failure(path));
    }
    if let Some(outcome) = run.ask_overseer(path, &record)? {
        return answer_value(&outcome).inspect_err(|_| run.record_failure(path));
    }
    let mut target = find_target(run.services, call, &place).map_err(|error| {
        run.record_failure(path);
        Stop::Failed(error)
    })?;
    let env = place.env.with_more_credentials(&target.credentials);
    let place = CallSite { env: &env, ..place };
    let secrets = target.reach.secrets();
    let held = held_with(&target, place.env);
    let session = run.servers.newest_session(&call.server, &held).filter(|session| run.has_session(session));
    let mut decided = None;
    if let (None, Reach::Program { argv, env, .. }) = (&session, &target.reach) {
        let job = Job {
            program: Program::Argv(argv.clone()),
            stdin: None,
            env: place.env.with_vars(env.clone()).holding_secrets(secrets),
            cwd: place.cwd.to_owned(),
            idempotent: false,
            stop_grace: stop_grace(None),
            dispatches: false,
            reuse: Reuse::Never,
            inputs: Vec::new(),
            max_output: None,
            json: false,
            asker: place.asker.clone(),
            missing_shell: "",
            changes: ChangesMode::Direct,
            pile: Pile::of_run(ChangesMode::Direct),
            settles: true,
        };
        decided = Some(policy_gate::decide(run, path, &job, place.cancel)?.outliving_its_check());
    }
    let decision = decided.as_ref().map_or(Value::Null, |decided| decided.statement.clone());
    let record = ActionRecord { decision, ..record };
    let action = record.preimage.digest;
    let perform = || {
        let send = |target: &Target, session, decided| {
            let task = build_task(run, path, call, target, session, decided, &place)?;
            let order = Order { id: run.order_id(path), action, task: Task::Mcp(Box::new(task)) };
            Ok(run.carry_out(order, place.cancel))
        };
        let mut outcome = send(&target, session, decided);
        // A token may expire early. A call that was refused for that reason did nothing.
        if outcome.as_ref().is_ok_and(is_refused_login) {
            outcome = match target.renew_login(run.services) {
                Ok(true) => send(&target, None, None),
                Ok(false) => outcome,
                Err(error) => Err(error),
            };
        }
        if outcome.as_ref().is_ok_and(|outcome| outcome.dispatched) {
            run.forbid_retry(path);
        }
        describe_call(outcome.map_or_else(|error| failed(&error), |outcome| outcome.step), call, &target)
    };
    run.perform_once(path, &record, perform, answer_value)
}

/// Adds the server and the tool to the outcome.
fn describe_call(mut outcome: StepOutcome, call: &ToolCall, target: &Target) -> StepOutcome {
    if !outcome.detail.is_object() {
        outcome.detail = json!({});
    }
    outcome.detail["request"] = json!({ "server": target.name, "tool": call.tool });
    if let Reach::Address { url, .. } = &target.reach {
        outcome.detail["request"]["address"] = json!(url.host_str());
        outcome.detail["request"]["port"] = json!(url.port_or_known_default());
    }
    outcome
}

/// The server of a call, if the server and the operator accept the call.
fn find_target(services: &Services, call: &ToolCall, place: &CallSite<'_>) -> Result<Target, StageError> {
    let target = Target::find_server(services, place.env, place.cwd, &call.server)?;
    if !target.allows_tool(&call.tool) {
        let message =
            format!("mcp server {}: the operator does not allow its tool {:?}", target.name, call.tool);
        return Err(StageError::permanent(message).with_code(Code::PolicyDenied));
    }
    if let Some(variable) = target.refused_secret(place.env).filter(|_| place.is_whole_step) {
        let message = format!(
            "mcp server {}: it takes no secret as {variable}; its token is granted as the variable of its `token_env`, \
             or as {MCP_TOKEN} where it has none",
            target.name
        );
        return Err(StageError::permanent(message).with_code(Code::Secret));
    }
    if let (true, Reach::Address { url, .. }) = (place.is_whole_step, &target.reach)
        && let Some(grant) = place.env.credentials().iter().find(|grant| !is_for(grant, url))
    {
        let message = format!(
            "mcp server {}: the step has a credential for {}, and the server is at {}",
            target.name,
            grant.host,
            url.host_str().unwrap_or_default()
        );
        return Err(StageError::permanent(message).with_code(Code::Secret));
    }
    Ok(target)
}

/// True if the server rejected the token and so did nothing.
fn is_refused_login(outcome: &Outcome) -> bool {
    !outcome.dispatched && outcome.step.code.as_deref() == Some(Code::McpLogin.as_str())
}

/// The secrets of a session, by their variables or by the host to which they are added. A step may not use a session
/// that has more secrets than the step is granted.
fn held_with(target: &Target, env: &Env) -> BTreeMap<String, String> {
    let mut held = target.reach.secrets();
    held.extend(env.credentials().iter().map(|grant| (json!(grant).to_string(), grant.secret.clone())));
    // A session keeps the token that it was opened with, so a renewed token opens another session.
    if let Reach::Address { token: Some(token), login, secret, .. } = &target.reach
        && (login.is_some() || secret.is_some())
    {
        held.insert("login".to_owned(), Digest::of_bytes(token.reveal().as_bytes()).to_string());
    }
    held
}

/// The call as part of an order. The first call opens a session, whose needs are held from then on.
fn build_task(
    run: &Run<'_>,
    path: &StepPath,
    call: &ToolCall,
    target: &Target,
    session: Option<OrderId>,
    decided: Option<Decided>,
    place: &CallSite<'_>,
) -> Result<McpTask, StageError> {
    let pin = tool_pin(run.services, target, call)?;
    let (session, reach) = match session {
        Some(session) => (session, None),
        None => {
            let session = run.order_id(path);
            if let Some(decided) = &decided {
                let checked = decided.check_trees();
                checked.map_err(|error| StageError::permanent_from(error).with_code(Code::ApprovalStale))?;
            }
            let reach = server_reach(target, decided.as_ref(), place)?;
            let server = CalledServer::new(run.session_end(&session), decided)
                .map_err(|error| StageError::new(format!("cannot start a thread: {error}")))?;
            run.servers.hold_session(&call.server, &held_with(target, place.env), session.clone(), server);
            (session, Some(reach))
        }
    };
    Ok(McpTask {
        server: target.name.clone(),
        session,
        reach,
        tool: call.tool.clone(),
        args: call.args.clone(),
        pin,
        idempotent: call.idempotent,
        max_bytes: target.max_bytes,
        timeout: target.timeout,
    })
}

/// The way to a server, in an order's terms.
fn server_reach(
    target: &Target,
    decided: Option<&Decided>,
    place: &CallSite<'_>,
) -> Result<McpReach, StageError> {
    Ok(match (&target.reach, decided) {
        (Reach::Program { argv, secrets, .. }, Some(decided)) => {
            let variable = |(name, value): &(OsString, OsString)| (name.clone().into(), value.clone().into());
            let is_secret = |name: &OsString| name.to_str().is_some_and(|name| secrets.contains_key(name));
            let held = decided.confinement.jail_spec().map(|spec| &spec.held);
            McpReach::Program(Box::new(McpProgram {
                argv: argv.clone(),
                env: decided.env.iter().filter(|(name, _)| !is_secret(name)).map(variable).collect(),
                secrets: secrets.clone(),
                credentials: place.env.credentials().to_vec(),
                cwd: place.cwd.to_owned().into(),
                limits: decided.limits.clone(),
                confinement: decided.confinement.clone(),
                roots: held.into_iter().flatten().map(HeldRoot::root_id).collect(),
            }))
        }
        // A program is started only after a decision.
        (Reach::Program { .. }, None) => {
            let message = format!("mcp server {}: there is no decision about how to start it", target.name);
            return Err(StageError::permanent(message).with_code(Code::McpServer));
        }
        (Reach::Address { url, token, secret, credential, .. }, _) => McpReach::Address {
            url: url.as_str().to_owned(),
            token: token.as_ref().filter(|_| secret.is_none()).map(|token| token.reveal().to_owned().into()),
            secrets: secret.iter().cloned().collect(),
            credential: credential.clone(),
        },
    })
}

/// The tools that a person has reviewed, or the rule without a review.
fn tool_pin(services: &Services, target: &Target, call: &ToolCall) -> Result<McpPin, StageError> {
    let lock = Lock::read(&target.lock).map_err(|error| StageError::permanent(error.to_string()))?;
    let pinned = lock.as_ref().and_then(|lock| lock.servers.get(&target.name));
    Ok(match (pinned, pinned.and_then(|tools| tools.get(&call.tool))) {
        (_, Some(pinned)) => McpPin::Pinned(Box::new(pinned.clone())),
        (Some(_), None) => McpPin::Refused(format!(
            "the tool {:?} is not in {} ({LOCK_HINT})",
            call.tool,
            target.lock.display()
        )),
        (None, None) if !services.policy.is_open() => McpPin::Refused(format!(
            "a policy is in force and {} does not pin its tools ({LOCK_HINT})",
            target.lock.display()
        )),
        (None, None) => {
            services.print_note(&format!(
                "note: the tools of mcp server {} are not pinned; `lobster mcp lock` pins them",
                target.name
            ));
            McpPin::Any
        }
    })
}

/// An environment, overridden with the values of secrets.
fn with_secrets(env: &[(OsString, OsString)], secrets: Vec<(String, String)>) -> Vec<(OsString, OsString)> {
    let is_secret = |name: &OsString| secrets.iter().any(|(variable, _)| name == variable.as_str());
    let mut all: Vec<_> = env.iter().filter(|(name, _)| !is_secret(name)).cloned().collect();
    all.extend(secrets.into_iter().map(|(name, value)| (name.into(), value.into())));
    all
}

pub(crate) fn answer_value(outcome: &StepOutcome) -> Result<Value, Stop> {
    match outcome.status {
        StepStatus::Ok => Ok(outcome.value.clone()),
        StepStatus::Cancelled => Err(Stop::Cancelled),
        _ => Err(Stop::Failed(outcome_error(outcome))),
    }
}

impl Runtime {
    /// The current tools of a server, as a lock keeps them. The operator asks, so there is no approval. Nothing is
    /// recorded.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub fn mcp_tools(&self, server: &McpServer) -> Result<BTreeMap<String, PinnedTool>, StageError> {
        let services = &self.services;
        let target = Target::find_server(services, &services.env, &services.cwd, server)?;
        let mut home = None;
        let secrets = services.secret_values(&target.reach.secrets())?;
        let way = match &target.reach {
            Reach::Address { url, token, credential, .. } => {
                let secret = secrets.first().and_then(|(_, value)| Secret::new(value));
                let (token, credential) = (secret.or_else(|| token.clone()), credential.clone());
                Way::Address { url: url.clone(), token, credential }
            }
            Reach::Program { argv, env, .. } => {
                let env = services.env.with_vars(env.clone());
                let cwd = Some(services.cwd.display().to_string());
                let proposal = Proposal { command: Command::Argv(argv.clone()), cwd };
                let place = decision_env(&services.policy, &services.surroundings(), &services.cwd, &env);
                let decision = services.policy.decide(&proposal, &place);
                if decision.verdict == Verdict::Deny {
                    return Err(policy_gate::command_denied(&decision));
                }
                let statement = policy_gate::decision_statement(&services.policy, &decision);
                // It belongs to no run, so it has a network of its own.
                let network = format!("mcp server {}", target.name);
                let homes = homes_directory(&services.state_dir);
                let decided = policy_gate::prepare_rights(
                    services, &decision, statement, &env, &place, &network, &homes,
                )
                .map_err(|stop| match stop {
                    Stop::Failed(error) => error,
                    _ => StageError::permanent("it cannot be confined"),
                })?;
                let launch = Launch {
                    sandbox: Arc::clone(&services.sandbox),
                    argv: argv.clone(),
                    env: with_secrets(&decided.env, secrets),
                    cwd: services.cwd.clone(),
                    limits: decided.limits.clone(),
                    confinement: decided.confinement.clone(),
                    upstream: None,
                    held: Box::new(()),
                };
                home = Some(decided);
                Way::Program(Box::new(launch))
            }
        };
        let terms =
            ServerTerms { name: target.name.clone(), timeout: target.timeout, max_bytes: target.max_bytes };
        let session = Session::open(&terms, way, &services.cancel)
            .map_err(|problem| StageError::new(format!("mcp server {}: {problem}", target.name)))?;
        let tools = session.listed_tools();
        drop(session);
        // The home is removed after the server has ended.
        drop(home);
        let tools: BTreeMap<_, _> =
            tools.iter().map(|tool| (tool.name.to_string(), PinnedTool::from_tool(tool))).collect();
        // The lock is a file that is committed.
        services
            .secrets
            .check_clear("what it says about its tools holds", &json!(tools).to_string())
            .map_err(|error| StageError::permanent(format!("mcp server {}: {error}", target.name)))?;
        Ok(tools)
    }

    /// The operator's servers, and the path of their lock.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn mcp_servers(
        &self,
    ) -> Result<(std::path::PathBuf, crate::mcp::McpConfig), crate::mcp::ConfigError> {
        let (path, config) = crate::mcp::read_operator_config(&self.services, &self.services.cwd)?;
        Ok((path.with_file_name(Lock::FILE), config))
    }
}
