//! The grants of a component: those of its step, as far as its description asks for them and the policy allows the
//! step to give them. Each refusal names the file that refused.

use lobster_base::code::Code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lobster_component::{Capability, Ceilings, Description, DirGrant, Grants, Limits, OpenedDirs, SetBy};
use serde_json::{Map, Value, json};

use super::Job;
use crate::binding::{GateQuestion, Identity};
use crate::env::Env;
use crate::kinds::{decision_env, journal_decision, passed, restore_terminal, shown_credentials};
use crate::overseer::{Profile, RecordedLimits};
use crate::path::StepPath;
use crate::question::PASSED;
use crate::record::Scope;
use crate::run::Run;
use crate::workflow::Frame;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_language::plan::{self, Step};
use lobster_policy::{COMPONENT_SUBJECT, ComponentDecision, ComponentProposal, Verdict, denial_message};
use lobster_stage::{Question, StageError, Stop};

/// The step's grants in the component's terms. Directories are relative to the workflow file.
pub(super) fn of_step(
    frame: &Frame<'_>,
    wanted: &plan::Grants,
    base: &Path,
    env: &Env,
    scope: &Scope<'_>,
    path: &StepPath,
) -> Result<Grants, Stop> {
    let dirs = |dirs: &[plan::DirGrant]| -> Result<Vec<DirGrant>, Stop> {
        dirs.iter()
            .map(|dir| {
                let from = frame.fill_template(&dir.from, scope, path)?;
                Ok(DirGrant { host: base.join(&from), guest: dir.to.clone().unwrap_or(from) })
            })
            .collect()
    };
    let env = restore_terminal(frame.run, env);
    Ok(Grants {
        read: dirs(&wanted.read)?,
        write: dirs(&wanted.write)?,
        env: wanted.env.iter().filter_map(|name| Some((name.clone(), env.get_passed(name)?))).collect(),
        net: wanted.net.clone(),
        clock: wanted.clock,
        random: wanted.random,
    })
}

/// The limits of the step, or the defaults. The policy and the component's description can only lower them.
pub(super) fn step_limits(step: &Step) -> Limits {
    let wall = step.timeout_ms.map(Duration::from_millis);
    Limits::of_step(match &step.extras.limits {
        Some(plan::StepLimits { fuel, memory, output }) => {
            Ceilings { fuel: *fuel, memory: *memory, output: *output, wall }
        }
        None => Ceilings { wall, ..Ceilings::default() },
    })
}

/// Narrows the grants of a job to those that its component may have, and asks a person if the policy says so. Returns
/// the decision for the journal, or `None` without grants.
pub(super) fn admit(
    run: &Run<'_>,
    path: &StepPath,
    job: &mut Job,
    cancel: &CancelToken,
) -> Result<Value, Stop> {
    let component = job.program.component.clone();
    let description = match &job.name {
        Some(_) => component.describe().ok().flatten(),
        None => None,
    };
    if let Some(description) = description {
        job.withheld = match job.profile() {
            Profile::ByKind => withhold_kinds(description, &mut job.grants, &mut job.secrets),
            Profile::ByName | Profile::JsByName | Profile::Component | Profile::Js => {
                withhold_undeclared(description, &mut job.grants, &mut job.secrets)
            }
        };
    }
    let recorded = job.program.recorded;
    match &recorded {
        // A replay runs under the limits of the recorded run and decides nothing.
        Some((limits, _)) => recorded_limits(limits, &mut job.limits),
        None => policy_limits(run, &mut job.limits),
    }
    // An effect that is already in the journal needs no permission.
    let known = run.remembered_for_certain(path).is_some();
    let is_recorded = recorded.is_some() && !run.performs_unjournaled(path);
    if is_recorded || run.overseer().is_none() && known {
        return Ok(Value::Null);
    }
    decide_grants(run, path, job, cancel)
}

/// Withholds files, variables and hosts that a component's description does not ask for. Returns each of them with the
/// reason.
pub fn withhold_undeclared(
    description: &Description,
    grants: &mut Grants,
    secrets: &mut BTreeMap<String, String>,
) -> Vec<String> {
    let mut withheld = description.withhold_unwanted(grants);
    secrets.retain(|name, _| {
        let wanted = description.wants_variable(name);
        if !wanted {
            withheld.push(format!("secret {name}"));
        }
        wanted
    });
    withheld.into_iter().map(undeclared_note).collect()
}

/// Like [`withhold_undeclared`], but compares only kinds of grants, for replays of runs from that time.
fn withhold_kinds(
    description: &Description,
    grants: &mut Grants,
    secrets: &mut BTreeMap<String, String>,
) -> Vec<String> {
    let wants = |fits: fn(&Capability) -> bool| description.wants.iter().any(|want| fits(&want.capability));
    let mut withheld = Vec::new();
    let mut refuse = |what: String| withheld.push(undeclared_note(what));
    if !wants(|want| matches!(want, Capability::Read(_) | Capability::Write(_))) {
        grants.read.drain(..).for_each(|dir| refuse(format!("read {}", dir.guest)));
    }
    if !wants(|want| matches!(want, Capability::Write(_))) {
        grants.write.drain(..).for_each(|dir| refuse(format!("write {}", dir.guest)));
    }
    if !wants(|want| matches!(want, Capability::Env(_))) {
        grants.env.drain(..).for_each(|(name, _)| refuse(format!("env {name}")));
        std::mem::take(secrets).into_keys().for_each(|name| refuse(format!("secret {name}")));
    }
    if !wants(|want| matches!(want, Capability::Net(_))) {
        grants.net.drain(..).for_each(|host| refuse(format!("net {host}")));
    }
    withheld
}

fn undeclared_note(what: String) -> String {
    what + ": the component's description does not ask for it"
}

/// The part of a failure's message about withheld grants. There was none when only kinds were compared, and replays
/// must produce the same words.
pub(super) fn told_withheld(job: &Job) -> Option<String> {
    let told = !job.withheld.is_empty() && job.profile() != Profile::ByKind;
    told.then(|| format!(" (withheld: {})", job.withheld.join("; ")))
}

pub(super) fn policy_limits(run: &Run<'_>, limits: &mut Limits) {
    let policy = &run.services.policy;
    if policy.is_open() {
        return;
    }
    let (all, own) = (&policy.file().limits, &policy.file().components.limits);
    let ceilings = Ceilings {
        fuel: own.fuel,
        memory: Some(own.memory.map_or(all.memory.0, |bytes| bytes.0.min(all.memory.0))),
        output: own.output.map(|bytes| bytes.0),
        wall: Some(own.timeout.map_or(all.timeout.0, |span| span.0.min(all.timeout.0))),
    };
    *limits = limits.lowered_to(ceilings, SetBy::Policy);
}

pub(super) fn recorded_limits(recorded: &RecordedLimits, limits: &mut Limits) {
    // Limits lower than the step's own were lowered by the policy at that time.
    let ceilings =
        Ceilings { fuel: recorded.fuel, memory: recorded.memory, output: recorded.output, wall: None };
    *limits = limits.lowered_to(ceilings, SetBy::Policy);
    limits.fuel = recorded.fuel.unwrap_or(limits.fuel);
    limits.memory = recorded.memory.unwrap_or(limits.memory);
    limits.output = recorded.output.unwrap_or(limits.output);
    limits.tables = recorded.tables.unwrap_or(limits.tables);
}

fn decide_grants(run: &Run<'_>, path: &StepPath, job: &mut Job, cancel: &CancelToken) -> Result<Value, Stop> {
    job.grants.check_guest_paths().map_err(|error| {
        run.record_failure(path);
        Stop::Failed(StageError::permanent(error.to_string()).with_code(error.code()))
    })?;
    // The directories are opened before the decision, and the run uses the same ones.
    let opened = job.grants.open_dirs();
    let proposal = component_proposal(job.program.component.digest().into(), &job.grants, &opened);
    let decided = decide_about(run, path, job, (&proposal, &opened), cancel)?;
    job.opened = Some(opened);
    Ok(decided)
}

fn decide_about(
    run: &Run<'_>,
    path: &StepPath,
    job: &Job,
    (proposal, opened): (&ComponentProposal, &OpenedDirs),
    cancel: &CancelToken,
) -> Result<Value, Stop> {
    if proposal.is_empty() {
        return Ok(Value::Null);
    }
    let place = decision_env(&run.services.policy, &run.surroundings, &run.cwd, &run.services.env);
    let holds = |dir: &str, wanted: &dyn Fn(&str) -> bool| matching_path(opened, dir, wanted);
    let decision = run.services.policy.decide_component(proposal, &place, &holds);
    let statement = serde_json::to_value(&decision).unwrap_or(Value::Null);
    let mut proposed = json!({ "command": component_name(job), "grants": proposal });
    // An approval is bound to the values, as it is for a command.
    let values = passed::digest_granted(&job.grants.env, &run.services.env);
    if !values.is_empty() {
        proposed[PASSED] = json!(values);
    }
    if !job.credentials.is_empty() {
        proposed["credentials"] = shown_credentials(&job.credentials);
    }
    match decision.verdict {
        Verdict::Allow => {}
        Verdict::Deny => {
            run.record_failure(path);
            journal_decision(run, path, proposed, statement)?;
            return Err(Stop::Failed(denial_error(&decision)));
        }
        Verdict::Ask => {
            run.check_asks(path)?;
            let gate = path.gate("policy");
            if !run.is_answered(&gate.gate("approval")) {
                journal_decision(run, path, proposed.clone(), statement.clone())?;
            }
            let question = GateQuestion {
                question: Question::Approval {
                    prompt: format!(
                        "Policy asks before {} gets its grants: {}",
                        component_name(job),
                        decision.message
                    ),
                    items: vec![proposed],
                    preview: None,
                    emit: false,
                },
                identity: Identity::default(),
                asker: job.asker.clone(),
            };
            run.ask_person(&gate, question, cancel)?;
        }
    }
    Ok(statement)
}

/// The question to the policy: directories by the real paths of the opened ones. A directory that could not be opened
/// ends the run later, unless the policy refuses it first.
pub fn component_proposal(component: Digest, grants: &Grants, opened: &OpenedDirs) -> ComponentProposal {
    let real = |(dir, opened): (&DirGrant, Option<&Path>)| match opened {
        Some(real) => real.display().to_string(),
        None => std::fs::canonicalize(&dir.host).unwrap_or_else(|_| dir.host.clone()).display().to_string(),
    };
    ComponentProposal {
        component,
        read: grants.read.iter().zip(opened.read_paths()).map(real).collect(),
        write: grants.write.iter().zip(opened.write_paths()).map(real).collect(),
        env: grants.env.iter().map(|(name, _)| name.clone()).collect(),
        net: grants.net.clone(),
        clock: grants.clock,
        random: grants.random,
    }
}

fn component_name(job: &Job) -> String {
    let digest = job.program.component.digest().to_hex();
    match &job.name {
        Some(name) => format!("component {name} (blake3:{})", &digest[..12]),
        None => "js".to_owned(),
    }
}

pub fn denial_error(decision: &ComponentDecision) -> StageError {
    let message =
        denial_message(COMPONENT_SUBJECT, &decision.message, &decision.reason_code, decision.hint.as_deref());
    StageError::permanent(message).with_code(Code::PolicyDenied)
}

/// Most names below one granted directory that are searched. A larger directory is refused, since it cannot be
/// checked.
const MAX_NAMES: usize = 1_000_000;

/// The first path at or below a directory that matches. Links are not followed, and components do not follow them
/// either. An opened directory is read through its handle, not its name.
fn matching_path(opened: &OpenedDirs, dir: &str, wanted: &dyn Fn(&str) -> bool) -> Option<String> {
    let way = opened.way_to(Path::new(dir)).unwrap_or_else(|| PathBuf::from(dir));
    let mut pending = vec![(dir.to_owned(), way)];
    let mut seen = 0_usize;
    while let Some((path, way)) = pending.pop() {
        seen += 1;
        if wanted(&path) || seen > MAX_NAMES {
            return Some(path);
        }
        if !std::fs::symlink_metadata(&way).is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        for entry in std::fs::read_dir(&way).into_iter().flatten().flatten() {
            let name = entry.file_name();
            pending.push((Path::new(&path).join(&name).display().to_string(), way.join(name)));
        }
    }
    None
}

/// The grants and their enforcement, for the outcome. Grants that were not given are not listed.
pub(super) fn enforcement_statement(job: &Job) -> Value {
    let grants = &job.grants;
    let dirs = |dirs: &[DirGrant]| -> Vec<String> {
        dirs.iter().map(|dir| format!("{} at {}", dir.host.display(), dir.guest)).collect()
    };
    let mut granted = Map::new();
    let mut grant = |what: &str, is_granted: bool, value: &dyn Fn() -> Value| {
        if is_granted {
            granted.insert(what.to_owned(), value());
        }
    };
    grant("read", !grants.read.is_empty(), &|| json!(dirs(&grants.read)));
    grant("write", !grants.write.is_empty(), &|| json!(dirs(&grants.write)));
    grant("env", !grants.env.is_empty(), &|| grants.env.iter().map(|(name, _)| name.as_str()).collect());
    grant("net", !grants.net.is_empty(), &|| json!(grants.net));
    grant("clock", grants.clock, &|| Value::Bool(true));
    grant("random", grants.random, &|| Value::Bool(true));
    grant("secrets", !job.secrets.is_empty(), &|| json!(job.secrets));
    grant("credentials", !job.credentials.is_empty(), &|| json!(job.credentials));
    let mut statement = json!({
        "asked": "component",
        "mechanism": "wasm",
        "pure": grants.is_pure(),
        "granted": granted,
        "limits": { "fuel": job.limits.fuel, "memory": job.limits.memory, "output": job.limits.output },
    });
    if !job.withheld.is_empty() {
        statement["withheld"] = json!(job.withheld);
    }
    statement
}
