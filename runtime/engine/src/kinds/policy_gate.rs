//! Puts the policy between a step and its process: the decision, the question if a person decides, and the grant in
//! the sandbox's terms.

use lobster_base::code::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bound_files;
use super::bound_trees::{Trees, system_roots};
use super::decided::Decided;
use super::decision_env::decision_env;
use super::git_settings;
use super::jail_spec::{command_jail, real_path};
use super::native::{Job, mode_of};
use super::own_places::{self, homes_directory};
use super::passed;
use super::pile::Total;
use crate::binding::{GateQuestion, Identity, VARIABLES};
use crate::env::Env;
use crate::path::StepPath;
use crate::question::{NOT_COMPARED, PASSED, TREES, WAITING_CHANGES};
use crate::recall::APPROVED;
use crate::run::Run;
use crate::services::Services;
use lobster_base::cancel::CancelToken;
use lobster_base::credential::CredentialGrant;
use lobster_base::digest::Digest;
use lobster_base::locked_directory::LockedDirectory;
use lobster_language::plan::ChangesMode;
use lobster_models::channel::Provider;
use lobster_policy::{
    AuditSync, Binding, BoundFile, BoundTree, Command, Decision, DecisionEnv, Grant, HostPrograms,
    LeastChanges, Limits, Overflow, PROPOSED_RULE, Policy, Proposal, Remember, Resolve, Verdict,
    catalogued_git, changed_files, denial_message, expand_set_value,
};
use lobster_sandbox::{Confinement, HeldPlaceholders, JailSpec, Net, ProcessLimits};
use lobster_stage::{Question, StageError, Stop, store_failure};
use lobster_store::{Durability, Event, GateFilter, HOME_PREFIX};

/// Decides, and asks a person if the policy says so.
pub(crate) fn decide(
    run: &Run<'_>,
    path: &StepPath,
    job: &Job,
    cancel: &CancelToken,
) -> Result<Decided, Stop> {
    let policy = &run.services.policy;
    let (proposal, place, decision) = policy_decision(run, job);
    let mut statement = decision_statement(policy, &decision);
    let shell =
        (!policy.is_open() && matches!(proposal.command, Command::Shell(_))).then(|| place.shell.clone());
    if let Some(shell) = &shell {
        statement["shell"] = json!(shell);
    }
    let mut approved = None;
    match decision.verdict {
        Verdict::Allow => {}
        Verdict::Deny => {
            run.record_failure(path);
            journal_decision(run, path, json!(proposal), statement)?;
            return Err(Stop::Failed(command_denied(&decision)));
        }
        Verdict::Ask => {
            run.check_asks(path)?;
            approved =
                Some(request_approval(run, path, job, (&proposal, &place, &decision), &statement, cancel)?);
        }
    }
    // A preview starts nothing, and leaves nothing in the state directory.
    let starts = run.is_journaled() || run.performs_unjournaled(path);
    let homes = if starts { homes_directory(&run.services.state_dir) } else { std::env::temp_dir() };
    let network = run.id.to_string();
    let env = passed::restore_terminal(run, &job.env);
    let mut decided = prepare_rights(run.services, &decision, statement, &env, &place, &network, &homes)?;
    decided.shell = shell;
    admit_credentials(run, job, &mut decided).inspect_err(|_| run.record_failure(path))?;
    if let Some((files, trees)) = approved.filter(|_| run.is_journaled()) {
        if decided.confinement.jail_spec().is_some() {
            keep_caches_out(&mut decided.env);
        }
        let held =
            decided.hold_files(&files, trees, (&*run.services.sandbox, run.services.state_dir.as_path()));
        held.inspect_err(|_| run.record_failure(path))?;
    }
    if !policy.is_open()
        && let Some(git) = catalogued_git(&decision)
    {
        git_settings::add_overrides(&run.services.sandbox, git, &job.cwd, &mut decided, cancel)
            .inspect_err(|_| run.record_failure(path))?;
    }
    Ok(decided)
}

/// Asks a person to approve the command, unless an equal one was approved for the run. Returns the files and trees
/// that the approval covers.
fn request_approval(
    run: &Run<'_>,
    path: &StepPath,
    job: &Job,
    (proposal, place, decision): (&Proposal, &DecisionEnv, &Decision),
    statement: &Value,
    cancel: &CancelToken,
) -> Result<(Vec<BoundFile>, Trees), Stop> {
    refuse_many_commands(decision).inspect_err(|_| run.record_failure(path))?;
    let stdin = match &job.stdin {
        Some(payload) => Some(Digest::of_reader(payload.open()?)?),
        None => None,
    };
    // The question shows digests of everything that determines what will run. If any of it differs when the run
    // resumes, the approval is stale.
    let mut binding = Binding::new(proposal, decision, place, stdin, |path| {
        fs::File::open(path).and_then(Digest::of_reader)
    })?;
    let policy = &run.services.policy;
    let mut files = bound_files::find_executed(policy, place, proposal, decision).map_err(|error| {
        run.record_failure(path);
        Stop::Failed(StageError::permanent_from(error).with_code(Code::ApprovalFiles))
    })?;
    // A changed file is not copied, so that the step gets the one in its layer.
    let waiting = waiting_changes(run, job, decision)?;
    waiting.iter().for_each(|total| total.remove_changed(&mut files));
    let services = (&**policy, &*run.services.sandbox);
    let trees = Trees::list_granted(services, &run.services.state_dir, decision, place, run.is_journaled());
    files.sort();
    (binding.files, binding.trees) = (files, trees.to_bound());
    binding.waiting_changes = waiting.as_ref().map(|total| total.blob.digest);
    binding.credentials = job.env.credentials().to_vec();
    let passed = passed::digest_passed(run, &decision.grant, &job.env);
    binding.env.extend(passed.clone());
    let terms = decision.ask.clone().unwrap_or_default();
    let seen = (waiting.as_ref(), &passed);
    let item = describe_item((&**policy, place), (proposal, decision), &binding, &trees, seen)?;
    let question = GateQuestion {
        question: Question::Approval {
            prompt: format!("Policy asks before this runs: {}", decision.message),
            items: vec![item],
            preview: Some(proposal.command.display_text()),
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
    // True if the same command, bound to the same files and rights, was approved for the whole run.
    let approved = StepPath::root().gate(&format!("{APPROVED}{}", binding.digest().map_err(store_failure)?));
    if terms.remember == Remember::Never || run.recorded_value(&approved).is_none() {
        let asked = run.ask_person(&gate, question, cancel);
        asked.map_err(|stop| {
            naming_changes(run, &gate.gate("approval"), stop, (&binding.files[..], &trees, &passed))
        })?;
        // A fork does not approve its own commands by an answer that it took over.
        let given = run.is_answered(&gate.gate("approval"));
        if given && terms.remember != Remember::Never {
            run.record_value(&approved, || Ok(json!(path.as_str())))?;
        }
        if given
            && terms.remember == Remember::Policy
            && let Some(rule) =
                run.services.policy.rules_of_approval(decision, proposal.cwd.as_deref(), place)
        {
            record_proposal(run, path, &rule)?;
        }
    }
    Ok((binding.files, trees))
}

/// The item of a question: the command, everything that the answer covers, and what it does not cover.
fn describe_item(
    (policy, place): (&Policy, &DecisionEnv),
    (proposal, decision): (&Proposal, &Decision),
    binding: &Binding,
    trees: &Trees,
    (waiting, passed): (Option<&Total>, &BTreeMap<String, Digest>),
) -> Result<Value, Stop> {
    let mut item = json!({
        "command": proposal.command,
        "cwd": proposal.cwd,
        "commands": decision.commands,
        "grant": decision.grant,
        "programs": binding.programs,
        "binding": binding.digest().map_err(store_failure)?,
    });
    if !binding.credentials.is_empty() {
        item["credentials"] = shown_credentials(&binding.credentials);
    }
    if !binding.files.is_empty() {
        item[FILES] = json!(binding.files);
    }
    if !binding.trees.is_empty() {
        item[TREES] = json!(binding.trees);
    }
    if let Some(total) = waiting {
        item[WAITING_CHANGES] = json!(total.name_changes());
    }
    if !trees.gaps.is_empty() {
        item["not_covered"] = json!(trees.gaps);
    }
    if !policy.is_open() {
        let system = system_roots(decision).into_iter();
        item[PASSED] = json!(passed);
        item[NOT_COMPARED] = system.chain([METADATA]).collect();
    }
    // The question's text does not show the variables.
    if decision.reasons.iter().any(|reason| reason.code == "variable") {
        let others = place.given.iter().filter(|(name, _)| !name.starts_with("LOBSTER_"));
        item[VARIABLES] = json!(others.collect::<BTreeMap<_, _>>());
    }
    Ok(item)
}

/// The uncommitted changes of earlier steps that the command finds below its layers. They are never changed, so the
/// digest of their set and those of the trees identify what it reads.
fn waiting_changes(run: &Run<'_>, job: &Job, decision: &Decision) -> Result<Option<Total>, Stop> {
    let Some(total) = job.pile.total_changes(run)? else { return Ok(None) };
    // A command that may write nowhere has no layer, and finds the files as they are.
    let mut writes = decision.grant.fs_write.iter();
    let has_layer = run.services.policy.is_open() || writes.any(|root| !root.starts_with('@'));
    let is_seen = has_layer && mode_of(run, job) != ChangesMode::Direct;
    Ok(is_seen.then_some(total))
}

/// Most commands that one question shows, as many as a person can read and approve.
const MAX_COMMANDS: usize = 50;

/// Refuses a text with more commands than one question shows.
fn refuse_many_commands(decision: &Decision) -> Result<(), Stop> {
    let commands: BTreeSet<&Vec<String>> = decision.commands.iter().map(|command| &command.argv).collect();
    if commands.len() <= MAX_COMMANDS {
        return Ok(());
    }
    let message = format!(
        "a person has to approve it, and one question shows {MAX_COMMANDS} different commands at most; this text \
         starts {}",
        commands.len()
    );
    let hint = "split it into several steps, put the commands into a script, or allow some of them by a rule";
    Err(Stop::Failed(policy_denied("the command", &message, "too-many-commands", Some(hint))))
}

/// The error of something that the policy denies.
pub(super) fn policy_denied(subject: &str, message: &str, reason: &str, hint: Option<&str>) -> StageError {
    StageError::permanent(denial_message(subject, message, reason, hint)).with_code(Code::PolicyDenied)
}

/// The error of a denied command.
pub(super) fn command_denied(decision: &Decision) -> StageError {
    policy_denied("the command", &decision.message, &decision.reason_code, decision.hint.as_deref())
}

/// Credentials as a question shows them.
pub(crate) fn shown_credentials(grants: &[CredentialGrant]) -> Value {
    let shown = |grant: &CredentialGrant| {
        let mut text = format!("{} for https://{}", grant.secret, grant.host);
        for (what, bounds) in [("methods", &grant.methods), ("paths", &grant.paths)] {
            if !bounds.is_empty() {
                let _ = write!(text, ", {what} {}", bounds.join(" "));
            }
        }
        json!(text)
    };
    grants.iter().map(shown).collect()
}

/// Lets a command use its credentials if the policy lets it reach their hosts, or if the operator has bound the
/// secrets to these hosts. In a jail it reaches them only through its loopback interface.
fn admit_credentials(run: &Run<'_>, job: &Job, decided: &mut Decided) -> Result<(), Stop> {
    let grants = job.env.credentials();
    if grants.is_empty() {
        return Ok(());
    }
    decided.statement["credentials"] = shown_credentials(grants);
    let Confinement::Jail(spec) = &mut decided.confinement else { return Ok(()) };
    for grant in grants {
        let is_bound = run.services.secrets.bound_to(&grant.secret).is_some();
        let (name, port) = (grant.host.name.as_str(), grant.host.port);
        let is_reached = match &spec.net {
            Net::None => false,
            Net::Hosts(hosts) => hosts.iter().any(|host| host.covers(name, port)),
            Net::Host => true,
        };
        if !is_bound && !is_reached {
            let message =
                format!("the command may not reach {name}:{port}, so it may not use {} there", grant.secret);
            let hint = format!(
                "say hosts = [\"{}\"] under [secrets.{}], or grant the command net = {{ hosts = [\"{name}:{port}\"] }}",
                grant.host, grant.secret
            );
            return Err(policy_denied("the credential", &message, "credential-host", Some(&hint)).into());
        }
    }
    if spec.ports.is_some() {
        return Err(StageError::permanent(
            "the policy grants the command ports of the run's own network (listen, connect), and the step has \
             credentials, which need a network of its own; it can have one of them: split the step",
        )
        .with_code(Code::PolicyDenied)
        .into());
    }
    if spec.net == Net::None {
        spec.net = Net::Hosts(Vec::new());
    }
    Ok(())
}

/// What no digest of a tree covers, although a command can read it.
const METADATA: &str = "times of files, and their number of names";

/// Field of a question's item with the files that the answer covers.
const FILES: &str = "files";

/// Keeps the caches of interpreters out of the trees: cached code would run instead of the approved code.
fn keep_caches_out(env: &mut Vec<(OsString, OsString)>) {
    let Some(home) = env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home)) else {
        return;
    };
    env.retain(|(name, _)| name != PYTHON_CACHE);
    env.push((PYTHON_CACHE.into(), home.join(".pycache").into()));
}

/// The variable with Python's directory for compiled modules, which are otherwise stored next to their sources.
pub(super) const PYTHON_CACHE: &str = "PYTHONPYCACHEPREFIX";

/// The error of a stale answer, with the changed files and variables.
fn naming_changes(
    run: &Run<'_>,
    gate: &StepPath,
    stop: Stop,
    (now, trees, passed): (&[BoundFile], &Trees, &BTreeMap<String, Digest>),
) -> Stop {
    let Stop::Failed(error) = stop else { return stop };
    if !error.has_code(Code::ApprovalStale) {
        return Stop::Failed(error);
    }
    let asked = run.store.list_approvals(&GateFilter { run: Some(run.id), ..GateFilter::default() });
    let asked = asked.into_iter().flatten().rfind(|asked| asked.path == gate.as_str());
    let item = asked.and_then(|asked| {
        let mut places = ["/question/items/0", "/items/0"].iter();
        places.find_map(|place| asked.question.pointer(place)).cloned()
    });
    let mut item = item.unwrap_or_default();
    let mut changes = serde_json::from_value::<Vec<BoundTree>>(item[TREES].take())
        .map_or_else(|_| Vec::new(), |asked| trees.changes_since(&asked));
    if changes.is_empty() {
        // The files outside the trees.
        changes = serde_json::from_value::<Vec<BoundFile>>(item[FILES].take())
            .map_or_else(|_| Vec::new(), |asked| changed_files(&asked, now));
    }
    changes.extend(passed::list_changes(item[PASSED].take(), passed));
    if changes.is_empty() {
        return Stop::Failed(error);
    }
    let message = format!("{} Changed since the question: {}.", error.message, changes.join(", "));
    Stop::Failed(error.with_message(message))
}

/// The policy's decision, before any person is asked.
fn policy_decision(run: &Run<'_>, job: &Job) -> (Proposal, DecisionEnv, Decision) {
    let proposal = Proposal { command: job.program.clone(), cwd: Some(job.cwd.display().to_string()) };
    let place = decision_env(&run.services.policy, &run.surroundings, &run.cwd, &job.env);
    let decision = run.services.policy.decide(&proposal, &place);
    (proposal, place, decision)
}

/// The least separation that the policy's rules for the command demand for its changes to files.
pub(super) fn least_changes(run: &Run<'_>, job: &Job) -> LeastChanges {
    policy_decision(run, job).2.changes
}

/// The program files that a command would start, as far as its text shows.
pub(super) fn program_files(run: &Run<'_>, job: &Job) -> BTreeSet<String> {
    let (_, _, decision) = policy_decision(run, job);
    let found = |name: &String| -> Option<String> {
        let path = if name.contains('/') {
            job.cwd.join(name)
        } else {
            let path = job.env.get_passed("PATH")?;
            let mut places = std::env::split_paths(&path).map(|dir| job.cwd.join(dir).join(name));
            places.find(|place| place.is_file())?
        };
        path.is_file().then(|| path.display().to_string())
    };
    let commands = decision.commands.iter();
    commands.filter_map(|command| command.program.clone().or_else(|| found(command.argv.first()?))).collect()
}

/// Notes the rule that an approval proposes. It has no effect until a person commits it.
fn record_proposal(run: &Run<'_>, path: &StepPath, rule: &str) -> Result<(), Stop> {
    let note = Event::Note {
        path: Some(path.to_string()),
        text: "the approval proposes a rule for the policy".to_owned(),
        detail: json!({ PROPOSED_RULE: rule }),
    };
    run.append_events(vec![note], Durability::Lazy)
}

/// The rights of a process after the decision. `network` names the network that it shares with other steps of its run,
/// if it is granted ports. Its home is created in `homes`.
pub(crate) fn prepare_rights(
    services: &Services,
    decision: &Decision,
    statement: Value,
    env: &Env,
    place: &DecisionEnv,
    network: &str,
    homes: &Path,
) -> Result<Decided, Stop> {
    let policy = &services.policy;
    if policy.is_open() {
        return Ok(Decided {
            statement,
            limits: ProcessLimits::default(),
            confinement: Confinement::None,
            env: open_env(decision, env),
            stdout_cap: None,
            approved: None,
            trees: None,
            placeholders: HeldPlaceholders::default(),
            shell: None,
            _home: None,
        });
    }
    let home = LockedDirectory::new(homes, HOME_PREFIX).map_err(|error| {
        let message = format!("no home for the step can be made in {}: {error}", homes.display());
        store_failure(std::io::Error::new(error.kind(), message))
    })?;
    let limits = &policy.file().limits;
    let mut jail =
        command_jail(policy, &decision.grant, home.path(), place, network).map_err(Stop::Failed)?;
    // The decision protects the paths that were known when the run began; paths that became known later are protected
    // here.
    jail.protect.extend(services.protected_paths().iter().map(real_path));
    let own = services.own_places();
    own_places::protect(&mut jail, &own, &services.state_dir).map_err(Stop::Failed)?;
    let mut env = granted_env(policy, &decision.grant, env, place, home.path());
    show_programs(decision, &mut env, &mut jail, home.path()).map_err(store_failure)?;
    check_programs(policy, decision, place, &env, &jail).map_err(Stop::Failed)?;
    Ok(Decided {
        statement,
        limits: process_limits(limits),
        confinement: Confinement::Jail(jail),
        env,
        stdout_cap: Some(match limits.stdout.on_overflow {
            Overflow::Kill => limits.stdout.cap.0,
            Overflow::Truncate => limits.stdout.spill.0,
        }),
        approved: None,
        trees: None,
        placeholders: HeldPlaceholders::default(),
        shell: None,
        _home: Some(home),
    })
}

/// Journals a decision that starts nothing. A decision that starts a process is journaled with the start.
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
    run.append_events(vec![Event::Decision { path: path.to_string(), decision: statement }], durability)
}

/// The history's form of a decision. Under the open policy, an ordinary command needs no more than its verdict.
pub(crate) fn decision_statement(policy: &Policy, decision: &Decision) -> Value {
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

fn process_limits(limits: &Limits) -> ProcessLimits {
    ProcessLimits {
        wall: Some(limits.timeout.0),
        cpu: Some(limits.cpu.0),
        memory: Some(limits.memory.0),
        processes: Some(limits.processes),
        file_size: Some(limits.file_size.0),
        open_files: Some(limits.open_files),
        disk: Some(limits.disk.0),
        ..ProcessLimits::default()
    }
}

/// Programs that are lobster under other names, and that need the token of its gateway.
const SHIMS: [&str; 2] = ["openclaw.invoke", "clawd.invoke"];

/// The environment without a policy: the inherited one, without lobster's own tokens unless the command is lobster
/// itself.
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
    let vars: BTreeMap<&OsStr, &OsStr> = env.child_vars().chain(more).collect();
    vars.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The environment that a policy builds from nothing.
fn granted_env(
    policy: &Policy,
    grant: &Grant,
    env: &Env,
    place: &DecisionEnv,
    home: &Path,
) -> Vec<(OsString, OsString)> {
    let mut vars = passed::list_passed(grant, env);
    vars.insert("HOME".into(), home.into());
    for (name, value) in &policy.file().sandbox.env.set {
        let value = match value.as_str() {
            "@step-home" => home.as_os_str().to_owned(),
            value => expand_set_value(value, place).into(),
        };
        vars.insert(name.into(), value);
    }
    // Variables that the workflow sets were part of the decision.
    vars.extend(env.granted_values().into_iter().map(|(name, value)| (name.into(), value.into())));
    if let Some(path) = vars.remove(OsStr::new("PATH")) {
        vars.extend(absolute_entries(&path).map(|path| ("PATH".into(), path)));
    }
    vars.into_iter().collect()
}

/// A search path without its relative entries, which mean another directory in each place; `None` if no entry is left.
fn absolute_entries(path: &OsStr) -> Option<OsString> {
    let entries = std::env::split_paths(path).filter(|dir| dir.is_absolute());
    std::env::join_paths(entries).ok().filter(|path| !path.is_empty())
}

/// Shows a step the judged programs, wherever they are installed, under the names by which it starts them. A name that
/// is not on its search path is placed in its home. Files that a program reads need a grant.
fn show_programs(
    decision: &Decision,
    env: &mut [(OsString, OsString)],
    jail: &mut JailSpec,
    home: &Path,
) -> std::io::Result<()> {
    let Some((_, path)) = env.iter_mut().find(|(name, _)| name == "PATH") else { return Ok(()) };
    let mut dirs: Vec<PathBuf> = std::env::split_paths(path).collect();
    let own = home.join(".lobster-programs");
    for command in &decision.commands {
        let (Some(name), Some(judged)) = (command.argv.first(), command.program.as_ref().map(PathBuf::from))
        else {
            continue;
        };
        let is_judged = |file: &PathBuf| HostPrograms.real_path(file).as_ref() == Some(&judged);
        let named = if name.contains('/') {
            Some(PathBuf::from(name)).filter(is_judged)
        } else {
            dirs.iter().map(|dir| dir.join(name)).find(is_judged)
        };
        if named.is_none() && !name.contains('/') && judged.is_absolute() {
            fs::create_dir_all(&own)?;
            let _ = fs::remove_file(own.join(name));
            std::os::unix::fs::symlink(&judged, own.join(name))?;
            if !dirs.contains(&own) {
                dirs.push(own.clone());
            }
        }
        for file in [Some(judged.clone()), named].into_iter().flatten().filter(|file| file.is_absolute()) {
            if !jail.read.iter().chain(&jail.write).any(|root| file.starts_with(root)) {
                jail.read.push(file);
            }
        }
    }
    if dirs.contains(&own) {
        *path = std::env::join_paths(dirs).map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// Refuses a command whose name leads to another file at its start than when it was judged.
fn check_programs(
    policy: &Policy,
    decision: &Decision,
    place: &DecisionEnv,
    env: &[(OsString, OsString)],
    jail: &JailSpec,
) -> Result<(), StageError> {
    let Some((_, path)) = env.iter().find(|(name, _)| name == "PATH") else { return Ok(()) };
    let is_seen = |file: &PathBuf| jail.read.iter().chain(&jail.write).any(|root| file.starts_with(root));
    for command in &decision.commands {
        let (Some(name), Some(judged)) = (command.argv.first(), &command.program) else { continue };
        if name.contains('/') {
            continue;
        }
        let mut files = std::env::split_paths(path).filter_map(|dir| HostPrograms.real_path(&dir.join(name)));
        let Some(found) = files.find(is_seen) else { continue };
        if found != Path::new(judged) && !policy.trusts_program(name, &found, place) {
            let message = format!("PATH finds {name} at {}, but {judged} was judged", found.display());
            let hint = "put its directory first in the PATH of [sandbox.env] set, or pin the program under [programs]";
            return Err(policy_denied("the command", &message, "program-path", Some(hint)));
        }
    }
    Ok(())
}
