//! Native processes as steps: the action, the policy's word on it, the process.

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
use crate::execute::{HostText, NativeProfile, NativeTask, Order, Place, StdinSource, Task};
use crate::kinds::guarded::Maker;
use crate::kinds::pile::Pile;
use crate::kinds::policy_gate::PYTHON_CACHE;
use crate::kinds::{blocked, changes, inputs};
use crate::outcome::{failed_outcome as failed, outcome_error};
use crate::overseer::Declared;
use crate::path::StepPath;
use crate::reuse::Reuse;
use crate::run::Run;
use crate::value::Text;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_language::plan::{ChangesMode, Extras};
use lobster_observe::telemetry::TRACEPARENT;
use lobster_policy::{LeastChanges, Shell};
use lobster_sandbox::{Enforcement, HeldRoot, JailSpec, ProcessLimits, Promise};
use lobster_stage::{
    MAX_OUTPUT, Payload, SANDBOX_BLOCKED, StageError, Stop, byte_limit, explained, store_failure,
};
use lobster_store::{Blob, INLINE_MAX, PARTIAL_STDOUT, RunId, StepOutcome, StepStatus, Store};

/// Most bytes kept of a process's stdout unless the step or [`MAX_OUTPUT`] says otherwise. A
/// step that prints more has most likely gone wrong, and filling the disk would take others down
/// with it.
const MAX_STDOUT: u64 = 512 << 20;
/// An error message quotes this much of what a failed command printed.
const MAX_DETAIL: usize = 16 << 10;

/// How long the processes of a step have to end after SIGTERM, unless its `stop_grace` says otherwise.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// How long the processes of a step with these fields have to end after SIGTERM.
pub(crate) fn stop_grace(extras: Option<&Extras>) -> Duration {
    extras.and_then(|extras| extras.stop_grace_ms).map_or(STOP_GRACE, Duration::from_millis)
}

/// In the detail of a failed outcome: the keys of lobster's own that were set and did not reach the process.
const WITHHELD: &str = "withheld";

/// What to run: shell text, or a program and its arguments.
#[derive(Clone, Debug)]
pub(crate) enum ShellText {
    Shell(String),
    Argv(Vec<String>),
}

impl ShellText {
    /// The command as an error quotes it.
    pub(crate) fn display_text(&self) -> String {
        match self {
            Self::Shell(text) => text.clone(),
            Self::Argv(argv) => argv.join(" "),
        }
    }
}

/// One process that a step or stage wants.
pub(crate) struct Job {
    pub(crate) program: ShellText,
    pub(crate) stdin: Option<Payload>,
    pub(crate) env: Env,
    pub(crate) cwd: PathBuf,
    pub(crate) idempotent: bool,
    /// Between SIGTERM and SIGKILL.
    pub(crate) stop_grace: Duration,
    /// It hands a message or an order to somebody else, which stopping it does not take back.
    pub(crate) dispatches: bool,
    pub(crate) reuse: Reuse,
    /// Patterns of files that belong to the action.
    pub(crate) inputs: Vec<String>,
    pub(crate) max_output: Option<u64>,
    /// Whether to find out if stdout is JSON while it comes.
    pub(crate) json: bool,
    pub(crate) asker: Asker,
    /// What to say when the shell is not there.
    pub(crate) missing_shell: &'static str,
    /// What becomes of its changes to files.
    pub(crate) changes: ChangesMode,
    /// What waits of steps before it, and where its own changes wait.
    pub(crate) pile: Arc<Pile>,
    /// What it changes does not wait for steps after it.
    pub(crate) settles: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code, or `None` when a signal ended it.
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: Text,
    pub(crate) stderr: Text,
    /// Whether stdout is JSON, if it was looked at while it came.
    pub(crate) plain_json: Option<bool>,
    /// What it seems to have missed in the sandbox.
    pub(crate) blocked: Vec<String>,
    /// Keys of lobster's own that are set and that it did not receive.
    pub(crate) withheld: Vec<String>,
    /// What it changed in files, if that was kept apart.
    changes: Option<Blob>,
}

impl Finished {
    /// A failure with this message, and with what the sandbox and keys that were withheld had to do with it.
    pub(crate) fn failure(&self, message: String) -> StageError {
        explained(message, &self.withheld, &self.blocked).or_code(Code::CommandFailed)
    }

    /// What a failed command says for itself: its stderr, else its stdout, else its own text.
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

/// Runs a process once per run: decision, journal, process, journal. What it changed in
/// files is committed after it, if it was kept apart and the process succeeded, or waits where that has
/// to.
pub(crate) fn run(run: &Run<'_>, path: &StepPath, job: Job, cancel: &CancelToken) -> Result<Finished, Stop> {
    let (mode, asker, settles) = (mode_of(run, &job), job.asker.clone(), job.settles);
    let pile = Arc::clone(&job.pile);
    pile.make_way(run, mode, &job.cwd, cancel)?;
    if job.dispatches {
        pile.make_way_for(run, &format!("{path} sends something"), cancel)?;
    }
    let done = run_process(run, path, job, mode, cancel)?;
    if let Some(set) = done.changes {
        pile.take(run, path, set, mode, asker).inspect_err(|_| run.record_failure(path))?;
        if settles && mode == ChangesMode::Review {
            pile.settle(run, cancel)?;
        }
    }
    Ok(done)
}

/// What becomes of the changes that the command makes: what its step says, or what the policy demands of all
/// steps or by a rule for it, if that is more.
fn mode_of(run: &Run<'_>, job: &Job) -> ChangesMode {
    let least = changes::least(run, job.changes);
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
    // What was done needs no permission any more.
    if run.overseer().is_none()
        && let Some(outcome) = run.remembered_for_certain(path)
    {
        return finished(&run.store, &outcome).inspect_err(|_| run.record_failure(path));
    }
    let argv = argv(&job);
    let store = &run.store;
    for text in argv.iter().chain(job.env.granted().values()) {
        let clear = run.services.secrets.check_clear("the command holds", text);
        clear.map_err(|error| {
            run.record_failure(path);
            StageError::permanent_from(error).with_code(Code::Secret)
        })?;
    }
    let (stdin, stdin_digest) = keep_input(run, job.stdin.as_ref())?;
    let mut record = ActionRecord {
        kind: "native".to_owned(),
        preimage: Preimage::of(&preimage(run, path, &job, &argv, stdin_digest)?)?,
        decision: Value::Null,
        idempotent: job.idempotent,
        on_record: None,
        variables: job.env.shared_granted(),
    };
    // What does not run needs no permission.
    if let Some(outcome) = run.ask_overseer(path, &record)? {
        return finished(store, &outcome).inspect_err(|_| run.record_failure(path));
    }
    let mut decision = super::policy_gate::decide(run, path, &job, cancel)?;
    let layered = match mode {
        ChangesMode::Direct => Vec::new(),
        ChangesMode::Staged | ChangesMode::Review | ChangesMode::Preview => {
            changes::stage(run, &job.cwd, &mut decision).inspect_err(|_| run.record_failure(path))?
        }
    };
    record.decision = decision.statement.clone();
    let mut plain_json = None;
    let withheld: Vec<&str> = job.env.withheld_tokens().collect();
    let received = |name: &str| decision.env.iter().any(|(received, _)| received == name);
    let withheld = json!(withheld.into_iter().filter(|name| !received(name)).collect::<Vec<_>>());
    let pending = job.pile.total(run)?.map(|total| total.blob).filter(|_| !layered.is_empty());
    let prepared = Prepared { argv, stdin, action: record.preimage.digest, layered, pending };
    let perform = || match order(run, path, &job, &prepared, &decision) {
        Ok(order) => {
            let mut outcome = execute(run, order, &decision, cancel, &mut plain_json);
            blocked::note_hints(run, &job, &prepared.argv, &decision, &mut outcome);
            if outcome.exit.is_some_and(|exit| exit != 0) && withheld != json!([]) {
                outcome.detail[WITHHELD] = withheld.clone();
            }
            outcome
        }
        Err(error) => failed(&error),
    };
    let decode = |outcome: &StepOutcome| finished(store, outcome);
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

/// Whether the outcome may answer for a later step. What a secret decides
/// cannot be told by the action, which only names it.
fn is_cached(job: &Job) -> bool {
    job.reuse.covers(false) && job.env.secrets().is_empty() && job.env.credentials().is_empty()
}

/// The name under which the outcome of an effect is cached. An outcome holds for
/// the policy that it was had under, for the shell that read the text, and under
/// a policy that builds the environment for that environment; the home of a step is new each time.
/// And it holds where it was had: the same action may find other files elsewhere.
fn cache_key(
    run: &Run<'_>,
    job: &Job,
    record: &ActionRecord,
    decision: &super::decided::Decided,
) -> Result<Digest, Stop> {
    let mut env = serde_json::Map::new();
    if !run.services.policy.is_open() {
        for (name, value) in decision.env.iter().filter(|(name, _)| name != "HOME" && name != PYTHON_CACHE) {
            let digest = Digest::of(value.as_encoded_bytes());
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

/// Whether the input files are what they were before the command ran: only then
/// is it known what it read.
fn inputs_stayed(run: &Run<'_>, job: &Job, record: &ActionRecord) -> bool {
    if job.inputs.is_empty() {
        return true;
    }
    let now = inputs::digests(&job.cwd, &job.inputs, &run.services.files);
    now.is_ok_and(|now| record.preimage.value()["inputs"] == Value::Object(now))
}

/// The files that belong to the action: its inputs and, if its outcome is to be
/// reused, the programs that it would start.
fn declared(run: &Run<'_>, path: &StepPath, job: &Job, argv: &[String]) -> Result<Declared, Stop> {
    if let Some(recorded) = run.overseer().and_then(|overseer| overseer.declared(path)) {
        return Ok(recorded);
    }
    let mut declared = Declared::default();
    if !job.inputs.is_empty() {
        let found = inputs::digests(&job.cwd, &job.inputs, &run.services.files).map_err(|error| {
            run.record_failure(path);
            StageError::permanent_from(error).with_code(Code::Inputs)
        })?;
        declared.inputs = Value::Object(found);
    }
    if is_cached(job) {
        declared.programs = programs(run, job, argv);
    }
    Ok(declared)
}

/// The programs that the command would start, as far as its text tells, by what
/// is in their files.
fn programs(run: &Run<'_>, job: &Job, argv: &[String]) -> Value {
    let mut paths = super::policy_gate::programs(run, job);
    paths.extend(argv.first().filter(|program| program.contains('/')).cloned());
    let digest = |path: &String| run.services.files.digest(&job.cwd.join(path)).ok();
    paths.iter().map(|path| (path.clone(), json!(digest(path)))).collect()
}

fn finished(store: &Store, outcome: &StepOutcome) -> Result<Finished, Stop> {
    match outcome.status {
        // How the program ended says less than why it was not answered.
        StepStatus::Failed if Code::McpLogin.is(outcome.code.as_deref()) => {
            return Err(Stop::Failed(outcome_error(outcome)));
        }
        StepStatus::Ok | StepStatus::Failed if outcome.stdout.is_some() => {}
        StepStatus::Cancelled => return Err(Stop::Cancelled),
        _ => return Err(Stop::Failed(outcome_error(outcome))),
    }
    let text = |blob: Option<Blob>| blob.map_or_else(|| Text::inline(""), |blob| Text::stored(store, blob));
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

/// What the action is known by. Without a policy it is also what is started;
/// under one, the same shell is started by its real path ([`Shell::argv`]).
///
/// Shell text goes to `LOBSTER_SHELL`, called as the incumbent calls it, else to
/// `/bin/sh`. That is not a login shell (unless `LOBSTER_LOGIN_SHELL` is set):
/// profiles would undo the step's `PATH` and print into its output.
pub(super) fn argv(job: &Job) -> Vec<String> {
    let text = match &job.program {
        ShellText::Argv(argv) => return argv.clone(),
        ShellText::Shell(text) => text.clone(),
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

/// What is known of a job besides what was decided about it.
struct Prepared {
    /// What the action is known by.
    argv: Vec<String>,
    stdin: StdinSource,
    action: Digest,
    /// The directories whose changes are kept apart.
    layered: Vec<PathBuf>,
    /// The changes that it finds in them.
    pending: Option<Blob>,
}

/// Puts what a step reads into the store, and gives what its action is known by. So the action
/// can be carried out wherever the blobs are, and `why` can tell what in it differs.
pub(super) fn keep_input(run: &Run<'_>, payload: Option<&Payload>) -> Result<(StdinSource, Value), Stop> {
    let store = &run.store;
    let (digest, kept) = match payload {
        None => return Ok((StdinSource::Empty, Value::Null)),
        Some(Payload::Bytes(bytes)) if bytes.len() <= INLINE_MAX => {
            let blob = store.put(bytes).map_err(store_failure)?;
            (blob.digest, Some(blob).filter(|blob| blob.digest == Digest::of(bytes)))
        }
        Some(payload) => {
            let digest = Digest::of_reader(payload.open().map_err(store_failure)?).map_err(store_failure)?;
            let known = store.blob_len(&digest).map_err(store_failure)?.map(|len| Blob { digest, len });
            // Who only looks ahead, or back, keeps nothing.
            let kept = match known {
                None if run.journals() => {
                    let mut writer = store.blob_writer();
                    io::copy(&mut payload.open().map_err(store_failure)?, &mut writer)
                        .map_err(|error| store_failure(writer.error(error)))?;
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
        // The store hides secrets, and the process is to read them.
        None => {
            let mut bytes = Vec::new();
            let mut reader = payload.map(Payload::open).transpose().map_err(store_failure)?;
            reader.as_mut().map_or(Ok(0), |reader| reader.read_to_end(&mut bytes)).map_err(store_failure)?;
            StdinSource::Secret(bytes.into())
        }
    };
    Ok((source, json!(digest)))
}

/// Everything that decides what the process does, without its secrets.
fn preimage(run: &Run<'_>, path: &StepPath, job: &Job, argv: &[String], stdin: Value) -> Result<Value, Stop> {
    let recorded = run.overseer().and_then(|overseer| overseer.native_profile(path));
    let profile = recorded.unwrap_or_default();
    let place = |path: &Path| match profile {
        NativeProfile::HostPaths => Place::Host(path.to_owned()),
        NativeProfile::Places => Place::of(&run.cwd, path),
    };
    let variable = |(name, value): (&String, &String)| {
        let digest = || json!(Digest::of(value.as_bytes()));
        let shown = match place(Path::new(value)) {
            here @ Place::Run(_) if name == WORKFLOW_DIR => here.value(),
            _ => digest(),
        };
        (name.clone(), shown)
    };
    let env: serde_json::Map<_, _> = job.env.granted().iter().map(variable).collect();
    let mut action = json!({ "kind": "native", "argv": argv, "stdin": stdin, "env": env, "cwd": place(&job.cwd).value(), "limits": { "stdout": job.max_output } });
    if let Some(name) = profile.name() {
        action["profile"] = json!(name);
    }
    if job.changes != ChangesMode::Direct {
        action["changes"] = json!(job.changes);
    }
    // It reads what they left, so it is another action.
    if let Some(total) = job.pile.total(run)? {
        action["pending"] = json!(total.blob.digest);
    }
    if !job.env.secrets().is_empty() {
        action["secrets"] = run.named_secrets(path, job.env.secrets());
    }
    if !job.env.credentials().is_empty() {
        action["credentials"] = json!(job.env.credentials());
    }
    let Declared { inputs, programs } = declared(run, path, job, argv)?;
    for (name, part) in [("inputs", inputs), ("programs", programs)] {
        if !part.is_null() {
            action[name] = part;
        }
    }
    Ok(action)
}

/// The order for a job that was decided on.
fn order(
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
    // The shell that was judged runs, and loads nothing that was not.
    let argv = match (&decision.shell, &job.program) {
        (Some(shell), ShellText::Shell(text)) => {
            env.retain(|(name, _)| !name.to_str().is_some_and(Shell::is_start_up_variable));
            shell.argv(text)
        }
        _ => prepared.argv.clone(),
    };
    // So that what runs inside a run can be told from the operator's own calls.
    env.retain(|(name, _)| name != RunId::VARIABLE);
    env.push((RunId::VARIABLE.into(), run.id.to_string().into()));
    // What it exports itself goes below its own span, unless the step names another.
    if let Some(trace) = run.trace.filter(|_| !job.env.granted().contains_key(TRACEPARENT)) {
        env.retain(|(name, _)| name != TRACEPARENT);
        env.push((TRACEPARENT.into(), trace.parent_for(&path.to_string(), path.attempt_number()).into()));
    }
    let held = decision.confinement.spec().map(|spec| &spec.held);
    let task = NativeTask {
        argv,
        when_missing: matches!(job.program, ShellText::Shell(_)).then(|| job.missing_shell.to_owned()),
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

/// Has the order carried out, and holds on to what was approved meanwhile.
fn execute(
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
        Some(held) => held.guard(cancel, start),
        None => (start(cancel), None),
    };
    let changed = changed.or_else(|| {
        let spec = decision.confinement.spec()?;
        let approved = decision.approved.as_ref().filter(|_| ran_uncopied(&outcome.step, spec))?;
        approved.uncopied()
    });
    // Whatever it did or printed, it was not what was approved.
    if let Some(changed) = changed {
        return failed(&StageError::permanent_from(changed).with_code(Code::ApprovalStale));
    }
    if let Some(trees) = trees {
        trees.judge_end(&decision.confinement, &mut outcome.step.enforcement);
    }
    let roots = decision.confinement.spec().map_or(&[][..], |spec| &spec.write);
    let made = changes::of_outcome(&outcome.step);
    if let Some(Err(error)) = made.map(|set| changes::check_made(run, &set, Maker::Process, roots)) {
        return failed(&error);
    }
    *plain_json = outcome.plain_json;
    outcome.step
}

/// Whether a process ran to its own end where no copies of approved files could stand in their places.
fn ran_uncopied(outcome: &StepOutcome, spec: &JailSpec) -> bool {
    let enforcement = serde_json::from_value::<Enforcement>(outcome.enforcement.clone()).ok();
    let lacks = |promise| {
        enforcement.as_ref().is_some_and(|it| it.missing.iter().any(|missing| missing.promise == promise))
    };
    // Beside what an approval does not cover, copies stand wherever there is a mount namespace.
    let has_copies = !spec.uncovered.is_empty() && spec.uncopied.is_empty() && !lacks(Promise::FsMetadata);
    lacks(Promise::ApprovedFiles) && !has_copies && outcome.detail.get(PARTIAL_STDOUT).is_none()
}

/// Text short enough for a message: its beginning and its end.
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
