//! Native processes as steps: the action, the policy decision, the process.

use lobster_base::code::Code;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::action::{ActionRecord, Preimage};
use crate::binding::Asker;
use crate::env::Env;
use crate::env::WORKFLOW_DIR;
use crate::kinds::guarded::Maker;
use crate::kinds::pile::Pile;
use crate::kinds::policy_gate::PYTHON_CACHE;
use crate::kinds::{blocked, changes, inputs};
use crate::overseer::Declared;
use crate::path::StepPath;
use crate::reuse::Reuse;
use crate::run::Run;
use crate::value::Text;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_base::program::Program;
use lobster_executor::{ActionDirectory, HostText, NativeProfile, NativeTask, Order, StdinSource, Task};
use lobster_executor::{failed_outcome as failed, outcome_error};
use lobster_language::plan::{ChangesMode, Extras};
use lobster_observe::telemetry::TRACEPARENT;
use lobster_policy::{LeastChanges, Shell};
use lobster_sandbox::{Enforcement, HeldRoot, JailSpec, ProcessLimits, Promise};
use lobster_stage::{
    MAX_OUTPUT, Payload, SANDBOX_BLOCKED, StageError, Stop, byte_limit, command_failure, store_failure,
};
use lobster_store::{Blob, INLINE_MAX, PARTIAL_STDOUT, RunId, StepOutcome, StepStatus, Store};

/// ~A step that prints more has most likely gone wrong, and filling the disk would take others down with it. => A step
/// that prints more most likely has a fault, and a full disk would also stop other programs.
const MAX_STDOUT: u64 = 512 << 20;
/// An error message quotes this much of what a failed command printed.
const MAX_DETAIL: usize = 16 << 10;

/// Time between SIGTERM and SIGKILL, unless the step's `stop_grace` sets another.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Time between SIGTERM and SIGKILL for a step with these fields.
pub(crate) fn stop_grace(extras: Option<&Extras>) -> Duration {
    extras.and_then(|extras| extras.stop_grace_ms).map_or(STOP_GRACE, Duration::from_millis)
}

/// In the detail of a failed outcome: lobster's own keys that were set and withheld from the process.
const WITHHELD: &str = "withheld";

/// One process of a step or stage.
pub(crate) struct Job {
    pub(crate) program: Program,
    pub(crate) stdin: Option<Payload>,
    pub(crate) env: Env,
    pub(crate) cwd: PathBuf,
    pub(crate) idempotent: bool,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) stop_grace: Duration,
    /// True if it hands a message or an order to another service. Stopping the process does not take that back.
    pub(crate) dispatches: bool,
    pub(crate) reuse: Reuse,
    /// Patterns of files that belong to the action.
    pub(crate) inputs: Vec<String>,
    pub(crate) max_output: Option<u64>,
    /// True if stdout is checked for JSON while it arrives.
    pub(crate) json: bool,
    pub(crate) asker: Asker,
    /// Error message for a missing shell.
    pub(crate) missing_shell: &'static str,
    /// Mode for its changes to files.
    pub(crate) changes: ChangesMode,
    /// The pending changes of earlier steps, to which its own are added.
    pub(crate) pile: Arc<Pile>,
    /// True if its changes are not held back for later steps.
    pub(crate) settles: bool,
}

/// The end of a process.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code, or `None` if a signal ended it.
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: Text,
    pub(crate) stderr: Text,
    /// True if stdout is JSON; `None` if it was not checked.
    pub(crate) plain_json: Option<bool>,
    /// Hints about grants that it seems to lack.
    pub(crate) blocked: Vec<String>,
    /// lobster's own keys that are set and were withheld from it.
    pub(crate) withheld: Vec<String>,
    /// Its changes to files, if they were kept apart.
    changes: Option<Blob>,
}

impl Finished {
    /// A failure with this message, with the hints about the sandbox and the withheld keys.
    pub(crate) fn failure_with_hints(&self, message: String) -> StageError {
        command_failure(message, &self.withheld, &self.blocked).or_code(Code::CommandFailed)
    }

    /// The explanation of a failed command: its stderr, else its stdout, else its own text.
    pub(crate) fn failure_detail(&self, shown: &str) -> Result<String, Stop> {
        for text in [&self.stderr, &self.stdout] {
            let text = text.load().map_err(store_failure)?;
            let text = text.trim();
            if !text.is_empty() {
                return Ok(clip_middle(text));
            }
        }
        Ok(shown.to_owned())
    }
}

/// Runs a process once per run: decision, journal, process, journal. If its changes to files were kept apart and it
/// succeeded, they are committed after it, or held back where they have to be.
pub(crate) fn run(run: &Run<'_>, path: &StepPath, job: Job, cancel: &CancelToken) -> Result<Finished, Stop> {
    let (mode, asker, settles) = (mode_of(run, &job), job.asker.clone(), job.settles);
    let pile = Arc::clone(&job.pile);
    pile.make_way(run, mode, &job.cwd, cancel)?;
    if job.dispatches {
        pile.make_way_for(run, &format!("{path} sends something"), cancel)?;
    }
    let done = run_process(run, path, job, mode, cancel)?;
    if let Some(set) = done.changes {
        pile.add_changes(run, path, set, mode, asker).inspect_err(|_| run.record_failure(path))?;
        if settles && mode == ChangesMode::Review {
            pile.commit_waiting(run, cancel)?;
        }
    }
    Ok(done)
}

/// Mode for the changes of the command: the strictest among its step's, the policy's for all steps, and the policy
/// rules' for the command.
pub(super) fn mode_of(run: &Run<'_>, job: &Job) -> ChangesMode {
    let least = changes::stricter_mode(run, job.changes);
    let rules = &run.services.policy.file().rules;
    match rules.iter().any(|rule| rule.changes != LeastChanges::Direct) {
        true => least.max(changes::mode_of(super::policy_gate::least_changes(run, job))),
        false => least,
    }
}

fn run_process(
    run: &Run<'_>,
    path: &StepPath,
    job: Job,
    mode: ChangesMode,
    cancel: &CancelToken,
) -> Result<Finished, Stop> {
    // An effect that is already in the journal needs no permission.
    if run.overseer().is_none()
        && let Some(outcome) = run.remembered_for_certain(path)
    {
        return load_finished(&run.store, &outcome).inspect_err(|_| run.record_failure(path));
    }
    let argv = action_argv(&job);
    let store = &run.store;
    for text in argv.iter().chain(job.env.plan_vars().values()) {
        let clear = run.services.secrets.check_clear("the command holds", text);
        clear.map_err(|error| {
            run.record_failure(path);
            StageError::permanent_from(error).with_code(Code::Secret)
        })?;
    }
    let (stdin, stdin_digest) = keep_input(run, job.stdin.as_ref())?;
    let mut record = ActionRecord {
        kind: "native".to_owned(),
        preimage: Preimage::from_json(&build_preimage(run, path, &job, &argv, stdin_digest)?)?,
        decision: Value::Null,
        idempotent: job.idempotent,
        on_record: None,
        variables: job.env.shared_granted(),
    };
    // Replay or fork supplies the result: no policy check.
    if let Some(outcome) = run.ask_overseer(path, &record)? {
        return load_finished(store, &outcome).inspect_err(|_| run.record_failure(path));
    }
    let mut decision = super::policy_gate::decide(run, path, &job, cancel)?;
    let layered = match mode {
        ChangesMode::Direct => Vec::new(),
        ChangesMode::Staged | ChangesMode::Review | ChangesMode::Preview => {
            changes::confine_to_layers(run, &job.cwd, &mut decision)
                .inspect_err(|_| run.record_failure(path))?
        }
    };
    record.decision = decision.statement.clone();
    let mut plain_json = None;
    let withheld: Vec<&str> = job.env.withheld_tokens().collect();
    let received = |name: &str| decision.env.iter().any(|(received, _)| received == name);
    let withheld = json!(withheld.into_iter().filter(|name| !received(name)).collect::<Vec<_>>());
    let pending = job.pile.total_changes(run)?.map(|total| total.blob).filter(|_| !layered.is_empty());
    let prepared = Prepared { argv, stdin, action: record.preimage.digest, layered, pending };
    let perform = || match build_order(run, path, &job, &prepared, &decision) {
        Ok(order) => {
            let mut outcome = execute_order(run, order, &decision, cancel, &mut plain_json);
            blocked::note_hints(run, &job, &prepared.argv, &decision, &mut outcome);
            if outcome.exit.is_some_and(|exit| exit != 0) && withheld != json!([]) {
                outcome.detail[WITHHELD] = withheld.clone();
            }
            outcome
        }
        Err(error) => failed(&error),
    };
    let decode = |outcome: &StepOutcome| load_finished(store, outcome);
    let done = if is_cached(&job) {
        let known_as = (cache_key(run, &job, &record, &decision)?, job.reuse);
        run.perform_once_cached(
            path,
            &record,
            known_as,
            perform,
            || inputs_stayed(run, &job, &record),
            decode,
        )?
    } else {
        run.perform_once(path, &record, perform, decode)?
    };
    Ok(Finished { plain_json, ..done })
}

/// True if a later step may reuse the outcome. An action only names its secrets, so it does not identify an outcome
/// that depends on one.
fn is_cached(job: &Job) -> bool {
    job.reuse.covers(false) && job.env.secrets().is_empty() && job.env.credentials().is_empty()
}

/// The key of an effect's outcome in the cache. An outcome is valid for its policy, for the shell that read the text,
/// and, if the policy builds the environment, for that environment without the home, which is new for each step. It is
/// also bound to its directory: the same action may find other files elsewhere.
fn cache_key(
    run: &Run<'_>,
    job: &Job,
    record: &ActionRecord,
    decision: &super::decided::Decided,
) -> Result<Digest, Stop> {
    let mut env = serde_json::Map::new();
    if !run.services.policy.is_open() {
        for (name, value) in decision.env.iter().filter(|(name, _)| name != "HOME" && name != PYTHON_CACHE) {
            let digest = Digest::of_bytes(value.as_encoded_bytes());
            env.insert(name.to_string_lossy().into_owned(), json!(digest));
        }
    }
    let policy = run.services.policy_digest();
    let cwd = HostText::from(job.cwd.clone());
    let mut key = json!({ "action": record.preimage.digest, "policy": policy, "env": env, "cwd": cwd });
    if let Some(shell) = &decision.shell {
        key["shell"] = json!(shell);
    }
    Digest::of_json(&key).map_err(store_failure)
}

/// True if the input files are as they were before the command ran; only then is it known what the command read.
fn inputs_stayed(run: &Run<'_>, job: &Job, record: &ActionRecord) -> bool {
    if job.inputs.is_empty() {
        return true;
    }
    let now = inputs::digest_files(&job.cwd, &job.inputs, &run.services.files);
    now.is_ok_and(|now| record.preimage.to_json()["inputs"] == Value::Object(now))
}

/// The files that belong to the action: its inputs and, if its outcome is to be reused, the programs that it would
/// start.
fn declared_files(run: &Run<'_>, path: &StepPath, job: &Job, argv: &[String]) -> Result<Declared, Stop> {
    if let Some(recorded) = run.overseer().and_then(|overseer| overseer.declared_files(path)) {
        return Ok(recorded);
    }
    let mut declared = Declared::default();
    if !job.inputs.is_empty() {
        let found = inputs::digest_files(&job.cwd, &job.inputs, &run.services.files).map_err(|error| {
            run.record_failure(path);
            StageError::permanent_from(error).with_code(Code::Inputs)
        })?;
        declared.inputs = Value::Object(found);
    }
    if is_cached(job) {
        declared.programs = program_digests(run, job, argv);
    }
    Ok(declared)
}

/// The digests of the programs that the command would start, as far as its text shows.
fn program_digests(run: &Run<'_>, job: &Job, argv: &[String]) -> Value {
    let mut paths = super::policy_gate::program_files(run, job);
    paths.extend(argv.first().filter(|program| program.contains('/')).cloned());
    let digest = |path: &String| run.services.files.digest(&job.cwd.join(path)).ok();
    paths.iter().map(|path| (path.clone(), json!(digest(path)))).collect()
}

fn load_finished(store: &Store, outcome: &StepOutcome) -> Result<Finished, Stop> {
    match outcome.status {
        // The reason why the call was not answered matters more than how the program ended.
        StepStatus::Failed if Code::McpLogin.matches_name(outcome.code.as_deref()) => {
            return Err(Stop::Failed(outcome_error(outcome)));
        }
        StepStatus::Ok | StepStatus::Failed if outcome.stdout.is_some() => {}
        StepStatus::Cancelled => return Err(Stop::Cancelled),
        _ => return Err(Stop::Failed(outcome_error(outcome))),
    }
    let text =
        |blob: Option<Blob>| blob.map_or_else(|| Text::inline(""), |blob| Text::from_blob(store, blob));
    let (stdout, stderr) = (text(outcome.stdout), text(outcome.stderr));
    let noted = |name: &str| -> Vec<String> {
        let noted = outcome.detail.get(name).and_then(Value::as_array).into_iter().flatten();
        noted.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (blocked, withheld) = (noted(SANDBOX_BLOCKED), noted(WITHHELD));
    Ok(Finished {
        exit: outcome.exit,
        stdout,
        stderr,
        plain_json: None,
        blocked,
        withheld,
        changes: changes::of_outcome(outcome),
    })
}

/// The program and arguments in the action. Without a policy the same words are started; under a policy the same shell
/// is started by its real path ([`Shell::command_line`]).
///
/// Shell text goes to `LOBSTER_SHELL`, called as the incumbent calls it, else to `/bin/sh`. That is not a login shell
/// (unless `LOBSTER_LOGIN_SHELL` is set): profiles would undo the step's `PATH` and print into its output.
pub(super) fn action_argv(job: &Job) -> Vec<String> {
    let text = match &job.program {
        Program::Argv(argv) => return argv.clone(),
        Program::Shell(text) => text.clone(),
    };
    let chosen = job.env.non_blank("LOBSTER_SHELL");
    let login = chosen.is_some() || job.env.non_blank("LOBSTER_LOGIN_SHELL").is_some();
    let shell = chosen.unwrap_or_else(|| "/bin/sh".to_owned());
    let name = shell.to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let flags: &[&str] = if name.ends_with("powershell") || name.ends_with("pwsh") {
        &["-NoProfile", "-Command"]
    } else if name.ends_with("cmd") {
        &["/d", "/s", "/c"]
    } else if login {
        &["-lc"]
    } else {
        &["-c"]
    };
    std::iter::once(shell).chain(flags.iter().map(|&flag| flag.to_owned())).chain([text]).collect()
}

/// The facts about a job besides the decision.
struct Prepared {
    /// The program and arguments in the action.
    argv: Vec<String>,
    stdin: StdinSource,
    action: Digest,
    /// The directories whose changes are kept apart.
    layered: Vec<PathBuf>,
    /// The pending changes that it finds in them.
    pending: Option<Blob>,
}

/// Puts a step's input into the store, and returns its part of the action. So the action can be executed wherever the
/// blobs are, and `why` can show what differs.
pub(super) fn keep_input(run: &Run<'_>, payload: Option<&Payload>) -> Result<(StdinSource, Value), Stop> {
    let store = &run.store;
    let (digest, kept) = match payload {
        None => return Ok((StdinSource::Empty, Value::Null)),
        Some(Payload::Bytes(bytes)) if bytes.len() <= INLINE_MAX => {
            let blob = store.put_blob(bytes).map_err(store_failure)?;
            (blob.digest, Some(blob).filter(|blob| blob.digest == Digest::of_bytes(bytes)))
        }
        Some(payload) => {
            let digest = Digest::of_reader(payload.open().map_err(store_failure)?).map_err(store_failure)?;
            let known = store.blob_len(&digest).map_err(store_failure)?.map(|len| Blob { digest, len });
            // A preview or a replay stores nothing.
            let kept = match known {
                None if run.is_journaled() => {
                    let mut writer = store.blob_writer();
                    io::copy(&mut payload.open().map_err(store_failure)?, &mut writer)
                        .map_err(|error| store_failure(writer.store_error(error)))?;
                    Some(writer.finish().map_err(store_failure)?)
                }
                known => known,
            };
            (digest, kept.filter(|blob| blob.digest == digest))
        }
    };
    let source = match kept {
        Some(Blob { len: 0, .. }) => StdinSource::Empty,
        Some(blob) => StdinSource::Blob(blob),
        // The store hides secrets, and the process has to read them.
        None => {
            let mut bytes = Vec::new();
            let mut reader = payload.map(Payload::open).transpose().map_err(store_failure)?;
            reader.as_mut().map_or(Ok(0), |reader| reader.read_to_end(&mut bytes)).map_err(store_failure)?;
            StdinSource::Secret(bytes.into())
        }
    };
    Ok((source, json!(digest)))
}

/// Everything that determines what the process does, without its secrets.
fn build_preimage(
    run: &Run<'_>,
    path: &StepPath,
    job: &Job,
    argv: &[String],
    stdin: Value,
) -> Result<Value, Stop> {
    let recorded = run.overseer().and_then(|overseer| overseer.native_profile(path));
    let profile = recorded.unwrap_or_default();
    let place = |path: &Path| match profile {
        NativeProfile::HostPaths => ActionDirectory::Host(path.to_owned()),
        NativeProfile::Places => ActionDirectory::from_paths(&run.cwd, path),
    };
    let variable = |(name, value): (&String, &String)| {
        let digest = || json!(Digest::of_bytes(value.as_bytes()));
        let shown = match place(Path::new(value)) {
            here @ ActionDirectory::Run(_) if name == WORKFLOW_DIR => here.to_json(),
            _ => digest(),
        };
        (name.clone(), shown)
    };
    let env: serde_json::Map<_, _> = job.env.plan_vars().iter().map(variable).collect();
    let mut action = json!({ "kind": "native", "argv": argv, "stdin": stdin, "env": env, "cwd": place(&job.cwd).to_json(), "limits": { "stdout": job.max_output } });
    if let Some(name) = profile.name() {
        action["profile"] = json!(name);
    }
    if job.changes != ChangesMode::Direct {
        action["changes"] = json!(job.changes);
    }
    // The process reads the pending changes, so they are part of the action.
    if let Some(total) = job.pile.total_changes(run)? {
        action["pending"] = json!(total.blob.digest);
    }
    if !job.env.secrets().is_empty() {
        action["secrets"] = run.named_secrets(path, job.env.secrets());
    }
    if !job.env.credentials().is_empty() {
        action["credentials"] = json!(job.env.credentials());
    }
    let Declared { inputs, programs } = declared_files(run, path, job, argv)?;
    for (name, part) in [("inputs", inputs), ("programs", programs)] {
        if !part.is_null() {
            action[name] = part;
        }
    }
    Ok(action)
}

/// The order for a job that has been decided.
fn build_order(
    run: &Run<'_>,
    path: &StepPath,
    job: &Job,
    prepared: &Prepared,
    decision: &super::decided::Decided,
) -> Result<Order, StageError> {
    let asked = byte_limit(&MAX_OUTPUT, |name| job.env.get(name))
        .map_err(|error| StageError::permanent_from(error).with_code(Code::Setting))?;
    let limits = [job.max_output, asked, decision.stdout_cap];
    let stdout_cap = limits.into_iter().flatten().min().unwrap_or(MAX_STDOUT);
    let stderr_cap = asked.map_or(decision.limits.stderr_cap, |asked| asked.min(decision.limits.stderr_cap));
    let mut env = decision.env.clone();
    env.retain(|(name, _)| !name.to_str().is_some_and(|name| job.env.secrets().contains_key(name)));
    // The judged shell runs, and it loads nothing that was not judged.
    let argv = match (&decision.shell, &job.program) {
        (Some(shell), Program::Shell(text)) => {
            env.retain(|(name, _)| !name.to_str().is_some_and(Shell::is_start_up_variable));
            shell.command_line(text)
        }
        _ => prepared.argv.clone(),
    };
    // The run's id separates calls from inside a run from the operator's own calls.
    env.retain(|(name, _)| name != RunId::VARIABLE);
    env.push((RunId::VARIABLE.into(), run.id.to_string().into()));
    // Spans that it exports itself belong below its own span, unless the step names another.
    if let Some(trace) = run.trace.filter(|_| !job.env.plan_vars().contains_key(TRACEPARENT)) {
        env.retain(|(name, _)| name != TRACEPARENT);
        env.push((TRACEPARENT.into(), trace.parent_for(&path.to_string(), path.attempt_number()).into()));
    }
    let held = decision.confinement.jail_spec().map(|spec| &spec.held);
    let task = NativeTask {
        argv,
        when_missing: matches!(job.program, Program::Shell(_)).then(|| job.missing_shell.to_owned()),
        stdin: prepared.stdin.clone(),
        env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        secrets: job.env.secrets().clone(),
        credentials: job.env.credentials().to_vec(),
        cwd: job.cwd.clone().into(),
        limits: ProcessLimits {
            stdout_cap,
            stderr_cap,
            term_grace: job.stop_grace,
            ..decision.limits.clone()
        },
        confinement: decision.confinement.clone(),
        roots: held.into_iter().flatten().map(HeldRoot::root_id).collect(),
        layered: prepared.layered.iter().cloned().map(Into::into).collect(),
        pending: prepared.pending,
        scan_json: job.json,
        outlives_timeout: job.dispatches && !job.idempotent,
    };
    Ok(Order { id: run.order_id(path), action: prepared.action, task: Task::Native(Box::new(task)) })
}

/// Executes the order, and meanwhile keeps the approved files from changing.
fn execute_order(
    run: &Run<'_>,
    order: Order,
    decision: &super::decided::Decided,
    cancel: &CancelToken,
    plain_json: &mut Option<bool>,
) -> StepOutcome {
    let trees = match decision.check_trees() {
        Ok(trees) => trees,
        Err(changed) => return failed(&StageError::permanent_from(changed).with_code(Code::ApprovalStale)),
    };
    let start = |cancel: &CancelToken| run.carry_out(order, cancel);
    let (mut outcome, changed) = match &decision.approved {
        Some(held) => held.run_guarded(cancel, start),
        None => (start(cancel), None),
    };
    let changed = changed.or_else(|| {
        let spec = decision.confinement.jail_spec()?;
        let approved = decision.approved.as_ref().filter(|_| ran_uncopied(&outcome.step, spec))?;
        approved.uncopied_change()
    });
    // An approved file was replaced, so its output is not that of the approved command.
    if let Some(changed) = changed {
        return failed(&StageError::permanent_from(changed).with_code(Code::ApprovalStale));
    }
    if let Some(trees) = trees {
        trees.judge_end(&decision.confinement, &mut outcome.step.enforcement);
    }
    let roots = decision.confinement.jail_spec().map_or(&[][..], |spec| &spec.write);
    let made = changes::of_outcome(&outcome.step);
    if let Some(Err(error)) = made.map(|set| changes::check_made(run, &set, Maker::Process, roots)) {
        return failed(&error);
    }
    *plain_json = outcome.plain_json;
    outcome.step
}

/// True if a process ended by itself on a system where approved files could not be replaced by copies.
fn ran_uncopied(outcome: &StepOutcome, spec: &JailSpec) -> bool {
    let enforcement = serde_json::from_value::<Enforcement>(outcome.enforcement.clone()).ok();
    let lacks = |promise| {
        enforcement.as_ref().is_some_and(|it| it.missing.iter().any(|missing| missing.promise == promise))
    };
    // With a mount namespace there are copies, except of files that the approval does not cover.
    let has_copies = !spec.uncovered.is_empty() && spec.uncopied.is_empty() && !lacks(Promise::FsMetadata);
    lacks(Promise::ApprovedFiles) && !has_copies && outcome.detail.get(PARTIAL_STDOUT).is_none()
}

/// Shortens text for a message to its beginning and its end.
fn clip_middle(text: &str) -> String {
    if text.len() <= MAX_DETAIL {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(MAX_DETAIL / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_DETAIL / 2);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipped_text_keeps_characters_whole() {
        let text = "é".repeat(MAX_DETAIL);
        let clipped = clip_middle(&text);
        assert!(clipped.len() < MAX_DETAIL + 64 && clipped.starts_with('é') && clipped.ends_with('é'));
    }
}
