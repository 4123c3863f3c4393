//! Puts the policy between a step and the process it wants: the decision, the
//! question where a person decides, and the grant in the sandbox's terms.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::native::{Job, ShellText};
use crate::cancel::CancelToken;
use crate::digest::Digest;
use crate::engine::env::Env;
use crate::engine::gate::{GateQuestion, Identity};
use crate::engine::path::StepPath;
use crate::engine::run::{Run, stopped};
use crate::engine::services::Services;
use crate::model::channel::Provider;
use crate::policy::{
    AuditSync, Binding, Command, Control, Decision, DecisionEnv, Grant, HostPrograms, Limits, NetGrant,
    Overflow, POLICY_DENIED, PROPOSED_RULE, Policy, Proposal, Remember, SYSTEM_READ_ONLY, SandboxMode,
    Verdict, denial,
};
use crate::sandbox::{Confinement, HostPort, JailSpec, Mode, Net, ProcessLimits, Promise};
use crate::steps::stages::{Question, StageError, Stop};
use crate::store::{Durability, Event};

/// What the policy allows a process, in the sandbox's terms.
pub(crate) struct Decided {
    /// The decision as the journal keeps it.
    pub(crate) statement: Value,
    pub(crate) limits: ProcessLimits,
    pub(crate) confinement: Confinement,
    /// The complete environment of the process.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Most bytes of stdout, if the policy says so.
    pub(crate) stdout_cap: Option<u64>,
    /// A home of its own, gone with this value.
    _home: Option<tempfile::TempDir>,
}

/// Decides, and asks a person where the policy wants one.
pub(crate) fn decide(
    run: &Run<'_>,
    path: &StepPath,
    job: &Job,
    cancel: &CancelToken,
) -> Result<Decided, Stop> {
    let policy = &run.services.policy;
    let (proposal, place, decision) = judge(run, job);
    let statement = statement(policy, &decision);
    match decision.verdict {
        Verdict::Allow => {}
        Verdict::Deny => {
            let message =
                denial("the command", &decision.message, &decision.reason_code, decision.hint.as_deref());
            run.fail_at(path);
            journal_decision(run, path, json!(proposal), statement)?;
            return Err(Stop::Failed(StageError::permanent(message).with_code(POLICY_DENIED)));
        }
        Verdict::Ask => {
            let stdin = match &job.stdin {
                Some(payload) => Some(Digest::of_reader(payload.open()?)?),
                None => None,
            };
            // Whoever approves sees digests of all that decides what will run;
            // if any of it differs when the run goes on, the approval is stale.
            let binding = Binding::new(&proposal, &decision, &place, stdin, |path| {
                fs::File::open(path).and_then(Digest::of_reader)
            })?;
            let terms = decision.ask.clone().unwrap_or_default();
            let question = GateQuestion {
                question: Question::Approval {
                    prompt: format!("Policy asks before this runs: {}", decision.message),
                    items: vec![json!({
                        "command": proposal.command,
                        "cwd": proposal.cwd,
                        "commands": decision.commands,
                        "grant": decision.grant,
                        "programs": binding.programs,
                        "binding": binding.digest().map_err(stopped)?,
                    })],
                    preview: Some(match &proposal.command {
                        Command::Shell(text) => text.clone(),
                        Command::Argv(words) => words.join(" "),
                    }),
                    emit: false,
                },
                identity: Identity {
                    approvers: terms.approvers.clone(),
                    ttl_ms: decision.ask.as_ref().and_then(|ask| i64::try_from(ask.ttl.0.as_millis()).ok()),
                    ..Identity::default()
                },
                asker: job.asker.clone(),
            };
            let gate = path.gate("policy");
            if !run.is_answered(&gate.gate("approval")) {
                journal_decision(run, path, json!(proposal), statement.clone())?;
            }
            // The same command, bound to the same files and rights, was approved for the run.
            let approved = StepPath::root().gate(&format!("approved:{}", binding.digest().map_err(stopped)?));
            if terms.remember == Remember::Never || run.kept(&approved).is_none() {
                run.gate(&gate, question, cancel)?;
                // An answer that a fork took over approves nothing that it does itself.
                let given = run.is_answered(&gate.gate("approval"));
                if given && terms.remember != Remember::Never {
                    run.keep(&approved, || Ok(json!(path.as_str())))?;
                }
                if given
                    && terms.remember == Remember::Policy
                    && let Some(rule) = policy.rules_of_approval(&decision, proposal.cwd.as_deref(), &place)
                {
                    propose(run, path, &rule)?;
                }
            }
        }
    }
    decided(run.services, &decision, statement, &job.env)
}

/// What the policy says, before any person is asked.
fn judge(run: &Run<'_>, job: &Job) -> (Proposal, DecisionEnv, Decision) {
    let command = match &job.program {
        ShellText::Shell(text) => Command::Shell(text.clone()),
        ShellText::Argv(argv) => Command::Argv(argv.clone()),
    };
    let proposal = Proposal { command, cwd: Some(job.cwd.display().to_string()) };
    let place = decision_env(run.services, &run.cwd, &job.env);
    let decision = run.services.policy.decide(&proposal, &place);
    (proposal, place, decision)
}

/// The files of the programs that a command would start, as far as its text tells.
pub(super) fn programs(run: &Run<'_>, job: &Job) -> BTreeSet<String> {
    let (_, _, decision) = judge(run, job);
    let found = |name: &String| -> Option<String> {
        let path = if name.contains('/') {
            job.cwd.join(name)
        } else {
            let path = job.env.passed("PATH")?;
            let mut places = std::env::split_paths(&path).map(|dir| job.cwd.join(dir).join(name));
            places.find(|place| place.is_file())?
        };
        path.is_file().then(|| path.display().to_string())
    };
    let commands = decision.commands.iter();
    commands.filter_map(|command| command.program.clone().or_else(|| found(command.argv.first()?))).collect()
}

/// Notes a rule that an approval proposes. It stays a note until a person commits it.
fn propose(run: &Run<'_>, path: &StepPath, rule: &str) -> Result<(), Stop> {
    let note = Event::Note {
        path: Some(path.to_string()),
        text: "the approval proposes a rule for the policy".to_owned(),
        detail: json!({ PROPOSED_RULE: rule }),
    };
    run.append(vec![note], Durability::Lazy)
}

/// What a process may do that has been decided on.
pub(crate) fn decided(
    services: &Services,
    decision: &Decision,
    statement: Value,
    env: &Env,
) -> Result<Decided, Stop> {
    let policy = &services.policy;
    if policy.is_open() {
        return Ok(Decided {
            statement,
            limits: ProcessLimits::default(),
            confinement: Confinement::None,
            env: open_env(decision, env),
            stdout_cap: None,
            _home: None,
        });
    }
    let home = private_home().map_err(stopped)?;
    let limits = &policy.file().limits;
    let mut jail = jail(policy, &decision.grant, home.path());
    hide_store(&mut jail, &services.state_dir);
    Ok(Decided {
        statement,
        limits: process_limits(limits),
        confinement: Confinement::Jail(jail),
        env: granted_env(policy, &decision.grant, env, home.path()),
        stdout_cap: Some(match limits.stdout.on_overflow {
            Overflow::Kill => limits.stdout.cap.0,
            Overflow::Truncate => limits.stdout.spill.0,
        }),
        _home: Some(home),
    })
}

/// Journals a decision that starts nothing; one that does stands with its start.
pub(crate) fn journal_decision(
    run: &Run<'_>,
    path: &StepPath,
    proposal: Value,
    mut statement: Value,
) -> Result<(), Stop> {
    statement["proposal"] = proposal;
    let durability = match run.services.policy.file().audit.sync {
        AuditSync::None => Durability::Lazy,
        AuditSync::Decision | AuditSync::Every => Durability::Synced,
    };
    run.append(vec![Event::Decision { path: path.to_string(), decision: statement }], durability)
}

/// The facts that a decision may use. The workspace is the directory of the run,
/// not of whoever takes it up again.
pub(crate) fn decision_env(services: &Services, workspace: &Path, env: &Env) -> DecisionEnv {
    let vars: BTreeMap<String, String> = if services.policy.is_open() {
        env.vars()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())))
            .collect()
    } else {
        let mut vars = services.policy.file().sandbox.env.set.clone();
        // What a token holds is not for the policy to read.
        let granted = env.granted().iter().filter(|(name, value)| !env.is_reference(name, value));
        vars.extend(granted.map(|(name, value)| (name.clone(), value.clone())));
        vars
    };
    DecisionEnv {
        workspace: workspace.display().to_string(),
        home: services.env.get("HOME").unwrap_or_else(|| "/".to_owned()),
        tmp: "/tmp".to_owned(),
        state: services.state_dir.display().to_string(),
        protected: protected(services),
        vars,
        programs: Box::new(HostPrograms),
    }
}

/// What no step may change: the policies themselves, and where the audit is kept.
fn protected(services: &Services) -> Vec<String> {
    let audit = services.audit_places();
    let places = services.policy_files.iter().cloned().chain(audit.copy).chain(audit.anchor);
    places.map(|path| path.display().to_string()).collect()
}

/// What the history keeps of a decision: under the open policy an ordinary
/// command needs no more than its verdict.
pub(crate) fn statement(policy: &Policy, decision: &Decision) -> Value {
    if policy.is_open() && decision.verdict == Verdict::Allow {
        let mut programs: Vec<_> =
            decision.commands.iter().filter_map(|command| command.argv.first()).collect();
        programs.dedup();
        return json!({
            "verdict": "allow",
            "policy": policy.digest(),
            "reason_code": decision.reason_code,
            "programs": programs,
        });
    }
    serde_json::to_value(decision).unwrap_or(Value::Null)
}

/// A home that only this step sees.
fn private_home() -> std::io::Result<tempfile::TempDir> {
    let home = tempfile::Builder::new().prefix("lobster-home-").tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700))?;
    Ok(home)
}

fn process_limits(limits: &Limits) -> ProcessLimits {
    ProcessLimits {
        wall: Some(limits.timeout.0),
        cpu: Some(limits.cpu.0),
        memory: Some(limits.memory.0),
        processes: Some(limits.processes),
        file_size: Some(limits.file_size.0),
        open_files: Some(limits.open_files),
        ..ProcessLimits::default()
    }
}

fn jail(policy: &Policy, grant: &Grant, home: &Path) -> JailSpec {
    let defaults = JailSpec::default();
    let mut spec = JailSpec { read: Vec::new(), write: vec![home.to_owned()], ..defaults };
    for root in &grant.fs_read {
        match root.as_str() {
            "@system-ro" => {
                spec.read.extend(SYSTEM_READ_ONLY.iter().filter(|path| **path != "/proc").map(PathBuf::from))
            }
            "@tmp" | "@step-home" => {}
            path => spec.read.push(real(path)),
        }
    }
    for root in &grant.fs_write {
        if !root.starts_with('@') && Path::new(root).exists() {
            spec.write.push(real(root));
        }
    }
    spec.read.extend(grant.unix.iter().map(|path| real(path)));
    // Patterns are for the decision; the kernel hides what is named by its path.
    let named = |paths: &[String]| {
        paths
            .iter()
            .filter(|path| path.starts_with('/') && !path.contains('*'))
            .map(|path| real(path))
            .collect()
    };
    spec.deny = named(&grant.fs_deny);
    spec.protect = named(&grant.fs_protect);
    spec.net = match &grant.net {
        NetGrant::None => Net::None,
        NetGrant::HostNetwork => Net::Host,
        NetGrant::Hosts(hosts) => Net::Hosts(hosts.iter().filter_map(|host| HostPort::parse(host)).collect()),
    };
    let sandbox = &policy.file().sandbox;
    spec.tree_limits = sandbox.minimum.contains(&Control::TreeLimits);
    spec.mode = match sandbox.mode {
        SandboxMode::Strict => Mode::Strict,
        SandboxMode::Degrade => {
            Mode::Degrade { minimum: sandbox.minimum.iter().map(|control| promise(*control)).collect() }
        }
    };
    spec
}

/// The record holds what other runs read and wrote, and the tokens of open
/// questions: a step that may read around it finds nothing there.
fn hide_store(spec: &mut JailSpec, state_dir: &Path) {
    let store = state_dir.join("store");
    let store = fs::canonicalize(&store).unwrap_or(store);
    if spec.read.iter().chain(&spec.write).any(|root| store.starts_with(root)) {
        spec.deny.push(store);
    }
}

/// The path without links, as mounts need it.
fn real(path: &str) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path))
}

fn promise(control: Control) -> Promise {
    match control {
        Control::FsWrite => Promise::FsWrite,
        Control::FsRead => Promise::FsRead,
        Control::NetDeny => Promise::NetDeny,
        Control::NoNewPrivs => Promise::NoNewPrivs,
        Control::TreeKill => Promise::TreeKill,
        Control::EnvScrub => Promise::EnvScrub,
        Control::FdClose => Promise::FdClose,
        Control::Seccomp => Promise::KernelSurface,
        Control::TreeLimits => Promise::TreeLimits,
    }
}

/// Programs that are lobster under other names, and need its gateway's token.
const SHIMS: [&str; 2] = ["openclaw.invoke", "clawd.invoke"];

/// The environment without a policy: the inherited one, without lobster's own
/// tokens unless the command is lobster itself.
fn open_env(decision: &Decision, env: &Env) -> Vec<(OsString, OsString)> {
    let starts = |programs: &[&str]| {
        decision.commands.iter().any(|command| {
            let name = command.argv.first().and_then(|program| Path::new(program).file_name());
            name.and_then(|name| name.to_str()).is_some_and(|name| programs.contains(&name))
        })
    };
    let (all, gateway) = (starts(&["lobster"]), starts(&SHIMS));
    let gateways = Provider::OpenClaw.token_variables();
    let passes = |name: &OsStr| {
        all || !env.is_token(name) || gateway && name.to_str().is_some_and(|name| gateways.contains(&name))
    };
    let more = env.for_operator().filter(|(name, _)| passes(name));
    let vars: BTreeMap<&OsStr, &OsStr> = env.vars().chain(more).collect();
    vars.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The environment that a policy builds from nothing.
fn granted_env(policy: &Policy, grant: &Grant, env: &Env, home: &Path) -> Vec<(OsString, OsString)> {
    let passes = |name: &str| {
        if env.is_token(OsStr::new(name)) {
            // A pattern means variables of which nobody knows that they are tokens.
            return grant.env.iter().any(|exact| exact == name);
        }
        grant.env.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => pattern == name,
        })
    };
    let mut vars: BTreeMap<OsString, OsString> = env
        .for_operator()
        .filter(|(name, _)| name.to_str().is_some_and(passes))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    vars.insert("HOME".into(), home.into());
    for (name, value) in &policy.file().sandbox.env.set {
        let value = if value == "@step-home" { home.as_os_str().to_owned() } else { value.into() };
        vars.insert(name.into(), value);
    }
    // What the workflow itself sets is part of what was decided.
    let granted = env.granted().iter().filter(|(name, value)| !env.is_reference(name, value));
    vars.extend(granted.map(|(name, value)| (name.into(), value.into())));
    vars.into_iter().collect()
}
