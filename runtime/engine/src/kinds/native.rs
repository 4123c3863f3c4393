//! Native processes as steps: the action, the policy's word on it, the process.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::action::{ActionRecord, Preimage};
use crate::env::Env;
use crate::gate::Asker;
use crate::kinds::policy_gate::APPROVAL_STALE;
use crate::kinds::{blocked, inputs};
use crate::overseer::Declared;
use crate::path::StepPath;
use crate::pipeline::{failed_outcome as failed, outcome_error};
use crate::reuse::Reuse;
use crate::run::Run;
use crate::unseen::{Lost, UnseenEnd};
use crate::value::Text;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::digest::Digest;
use lobster_base::json::aside::ScanAside;
use lobster_policy::Shell;
use lobster_sandbox::{
    Ended, Exit, ExitStatus, OutputSinks, ProcessLimits, Promise, SpawnError, SpawnRequest, Stdin,
};
use lobster_stage::{
    DISK_LIMIT, OUTPUT_LIMIT, OUTPUT_VARIABLE, PROGRAM_NOT_FOUND, Payload, SANDBOX_BLOCKED, STORE_FAILED,
    StageError, Stop, byte_limit, explained, stopped,
};
use lobster_store::{Blob, BlobWriter, INLINE_MAX, Redactor, StepOutcome, StepStatus, Store, StoreError};

/// Most bytes kept of a process's stdout unless the step or [`OUTPUT_VARIABLE`] says otherwise. A
/// step that prints more has most likely gone wrong, and filling the disk would take others down
/// with it.
const MAX_STDOUT: u64 = 512 << 20;
/// Of stderr, the beginning and the end are kept, this much of each.
const STDERR_END: usize = 128 << 10;
/// An error message quotes this much of what a failed command printed.
const MAX_DETAIL: usize = 16 << 10;

/// The variable that tells a process which run it belongs to.
const RUN_ID: &str = "LOBSTER_RUN_ID";

/// What to run: shell text, or a program and its arguments.
#[derive(Clone, Debug)]
pub(crate) enum ShellText {
    Shell(String),
    Argv(Vec<String>),
}

impl ShellText {
    /// The command as an error quotes it.
    pub(crate) fn shown(&self) -> String {
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
}

impl Finished {
    /// A failure with this message, and with what the sandbox had to do with it.
    pub(crate) fn failure(&self, message: String) -> StageError {
        explained(message, &self.blocked)
    }

    /// What a failed command says for itself: its stderr, else its stdout, else its own text.
    pub(crate) fn failure_detail(&self, shown: &str) -> Result<String, Stop> {
        for text in [&self.stderr, &self.stdout] {
            let text = text.load().map_err(stopped)?;
            let text = text.trim();
            if !text.is_empty() {
                return Ok(clip_middle(text));
            }
        }
        Ok(shown.to_owned())
    }
}

/// Runs a process once per run: decision, journal, process, journal.
pub(crate) fn run(run: &Run<'_>, path: &StepPath, job: Job, cancel: &CancelToken) -> Result<Finished, Stop> {
    // What was done needs no permission any more.
    if run.overseer().is_none()
        && let Some(outcome) = run.remembered(path)
    {
        return finished(&run.store, &outcome).inspect_err(|_| run.fail_at(path));
    }
    let argv = argv(&job);
    let store = &run.store;
    for text in argv.iter().chain(job.env.granted().values()) {
        let clear = run.services.secrets.check_clear("the command holds", text);
        clear.map_err(|error| {
            run.fail_at(path);
            StageError::permanent(error.to_string()).with_code("secret")
        })?;
    }
    let mut record = ActionRecord {
        kind: "native".to_owned(),
        preimage: Preimage::of(&preimage(run, path, &job, &argv)?)?,
        decision: Value::Null,
        idempotent: job.idempotent,
    };
    // What does not run needs no permission.
    if let Some(outcome) = run.foreseen(path, &record)? {
        return finished(store, &outcome).inspect_err(|_| run.fail_at(path));
    }
    let decision = super::policy_gate::decide(run, path, &job, cancel)?;
    record.decision = decision.statement.clone();
    let mut plain_json = None;
    let perform = || execute(run, &job, argv, &decision, cancel, &mut plain_json);
    let decode = |outcome: &StepOutcome| finished(store, outcome);
    let done = if is_cached(&job) {
        let known_as = (cache_key(run, &record, &decision)?, job.reuse);
        run.once_in_all(path, &record, known_as, perform, || inputs_stayed(run, &job, &record), decode)?
    } else {
        run.once(path, &record, perform, decode)?
    };
    Ok(Finished { plain_json, ..done })
}

/// Whether the outcome may answer for a later step. What a secret decides
/// cannot be told by the action, which only names it.
fn is_cached(job: &Job) -> bool {
    job.reuse.covers(false) && job.env.secrets().is_empty()
}

/// The name under which the outcome of an effect is cached. An outcome holds for
/// the policy that it was had under, for the shell that read the text, and under
/// a policy that builds the environment for that environment; the home of a step is new each time.
fn cache_key(
    run: &Run<'_>,
    record: &ActionRecord,
    decision: &super::policy_gate::Decided,
) -> Result<Digest, Stop> {
    let mut env = serde_json::Map::new();
    if !run.services.policy.is_open() {
        for (name, value) in decision.env.iter().filter(|(name, _)| name != "HOME") {
            let digest = Digest::of(value.as_encoded_bytes());
            env.insert(name.to_string_lossy().into_owned(), json!(digest));
        }
    }
    let policy = run.services.policy_digest();
    let mut key = json!({ "action": record.preimage.digest, "policy": policy, "env": env });
    if let Some(shell) = &decision.shell {
        key["shell"] = json!(shell);
    }
    Digest::of_json(&key).map_err(stopped)
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
            run.fail_at(path);
            StageError::permanent(error.to_string()).with_code("inputs")
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
    let digest = |path: &String| run.services.files.of(&job.cwd.join(path)).ok();
    paths.iter().map(|path| (path.clone(), json!(digest(path)))).collect()
}

fn finished(store: &Store, outcome: &StepOutcome) -> Result<Finished, Stop> {
    match outcome.status {
        StepStatus::Ok | StepStatus::Failed if outcome.stdout.is_some() => {}
        StepStatus::Cancelled => return Err(Stop::Cancelled),
        _ => return Err(Stop::Failed(outcome_error(outcome))),
    }
    let text = |blob: Option<Blob>| blob.map_or_else(|| Text::inline(""), |blob| Text::stored(store, blob));
    let (stdout, stderr) = (text(outcome.stdout), text(outcome.stderr));
    let blocked = outcome.detail.get(SANDBOX_BLOCKED).and_then(Value::as_array).into_iter().flatten();
    let blocked = blocked.filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Finished { exit: outcome.exit, stdout, stderr, plain_json: None, blocked })
}

/// What the action is known by. Without a policy it is also what is started;
/// under one, the same shell is started by its real path ([`Shell::argv`]).
///
/// Shell text goes to `LOBSTER_SHELL`, called as the incumbent calls it, else to
/// `/bin/sh`. That is no login shell (unless `LOBSTER_LOGIN_SHELL` is set):
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

/// Everything that decides what the process does, without its secrets.
fn preimage(run: &Run<'_>, path: &StepPath, job: &Job, argv: &[String]) -> Result<Value, Stop> {
    let stdin = match &job.stdin {
        None => Value::Null,
        // Kept, so that `why` can tell what in it differs.
        Some(Payload::Bytes(bytes)) if bytes.len() <= INLINE_MAX => {
            json!(run.store.put(bytes).map_err(stopped)?.digest)
        }
        Some(payload) => json!(Digest::of_reader(payload.open().map_err(stopped)?).map_err(stopped)?),
    };
    let env: serde_json::Map<_, _> = job
        .env
        .granted()
        .iter()
        .map(|(name, value)| (name.clone(), json!(Digest::of(value.as_bytes()))))
        .collect();
    let mut action = json!({ "kind": "native", "argv": argv, "stdin": stdin, "env": env, "cwd": job.cwd, "limits": { "stdout": job.max_output } });
    if !job.env.secrets().is_empty() {
        action["secrets"] = run.named_secrets(path, job.env.secrets());
    }
    let Declared { inputs, programs } = declared(run, path, job, argv)?;
    for (name, part) in [("inputs", inputs), ("programs", programs)] {
        if !part.is_null() {
            action[name] = part;
        }
    }
    Ok(action)
}

fn execute(
    run: &Run<'_>,
    job: &Job,
    argv: Vec<String>,
    decision: &super::policy_gate::Decided,
    cancel: &CancelToken,
    plain_json: &mut Option<bool>,
) -> StepOutcome {
    let asked = match byte_limit(OUTPUT_VARIABLE, |name| job.env.get(name)) {
        Ok(asked) => asked,
        Err(error) => return failed(&StageError::permanent(error.to_string()).with_code("setting")),
    };
    let limits = [job.max_output, asked, decision.stdout_cap];
    let stdout_cap = limits.into_iter().flatten().min().unwrap_or(MAX_STDOUT);
    let stderr_cap = asked.map_or(decision.limits.stderr_cap, |asked| asked.min(decision.limits.stderr_cap));
    let mut env = decision.env.clone();
    match run.services.secret_variables(job.env.secrets()) {
        Ok(secrets) => {
            env.retain(|(name, _)| !name.to_str().is_some_and(|name| job.env.secrets().contains_key(name)));
            env.extend(secrets.into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        Err(error) => return failed(&StageError::permanent(error.to_string()).with_code("secret")),
    }
    // The shell that was judged runs, and loads nothing that was not.
    let argv = match (&decision.shell, &job.program) {
        (Some(shell), ShellText::Shell(text)) => {
            env.retain(|(name, _)| !name.to_str().is_some_and(Shell::is_loading_variable));
            shell.argv(text)
        }
        _ => argv,
    };
    // So that what runs inside a run can be told from the operator's own calls.
    env.retain(|(name, _)| name != RUN_ID);
    env.push((RUN_ID.into(), run.id.to_string().into()));
    // Made now that all that is to be hidden is known.
    let stdout = run.store.blob_writer();
    let scan = (job.json && stdout.is_verbatim()).then(ScanAside::default);
    let mut sinks = Sinks { stdout, stderr: HeadAndTail::default(), redactor: run.store.redactor(), scan };
    let start = |cancel: &CancelToken| {
        let stdin = stdin(job).map_err(SpawnFailure::Stdin)?;
        let request = SpawnRequest {
            argv: argv.iter().map(OsString::from).collect(),
            env,
            cwd: job.cwd.clone(),
            stdin,
            limits: ProcessLimits { stdout_cap, stderr_cap, ..decision.limits.clone() },
            confinement: decision.confinement.clone(),
        };
        run.services.sandbox.run(&request, &mut sinks, cancel).map_err(SpawnFailure::Spawn)
    };
    let (result, changed) = match &decision.approved {
        Some(held) => held.guard(cancel, start),
        None => (start(cancel), None),
    };
    let uncopied =
        |exit: &Exit| exit.enforcement.missing.iter().any(|it| it.promise == Promise::ApprovedFiles);
    let changed = changed.or_else(|| {
        let exit = result.as_ref().ok().filter(|exit| uncopied(exit))?;
        decision.approved.as_ref().filter(|_| exit.ended == Ended::ByItself)?.uncopied()
    });
    // Whatever it did or printed, it was not what was approved.
    if let Some(changed) = changed {
        return failed(&StageError::permanent(changed.to_string()).with_code(APPROVAL_STALE));
    }
    match result {
        Ok(exit) => {
            *plain_json = sinks.scan.take().and_then(ScanAside::finish);
            ended(run, job, exit, sinks, decision, cancel)
        }
        Err(SpawnFailure::Spawn(SpawnError::Sink { stream, source })) => {
            let why = sinks.stdout.error(source);
            failed(
                &StageError::new(format!("cannot keep {stream} of the process: {why}"))
                    .with_code(STORE_FAILED),
            )
        }
        Err(SpawnFailure::Spawn(SpawnError::SupervisorKilled)) => UnseenEnd::of(Lost::Supervisor).outcome(),
        Err(failure) => failed(&failure.explain(job, &argv)),
    }
}

fn ended(
    run: &Run<'_>,
    job: &Job,
    exit: Exit,
    sinks: Sinks,
    decision: &super::policy_gate::Decided,
    cancel: &CancelToken,
) -> StepOutcome {
    let (confinement, limits) = (&decision.confinement, &decision.limits);
    let cut = exit.ended != Ended::ByItself;
    let mut hints = Vec::new();
    let kept = sinks.finish(cut).and_then(|(stdout, stderr)| {
        if let (false, Some(spec)) = (exit.status == ExitStatus::Code(0), confinement.spec()) {
            hints = blocked::hints(&stderr, &job.cwd, spec, &exit.enforcement);
        }
        Ok((stdout, run.store.put(&stderr)?))
    });
    let mut outcome = match kept {
        Ok((stdout, stderr)) => {
            let mut outcome = StepOutcome::new(StepStatus::Ok);
            (outcome.stdout, outcome.stderr) = (Some(stdout), Some(stderr));
            outcome
        }
        Err(error) => {
            failed(&StageError::new(format!("cannot keep the output: {error}")).with_code(STORE_FAILED))
        }
    };
    outcome.duration_us = u64::try_from(exit.wall.as_micros()).unwrap_or(u64::MAX);
    outcome.peak_memory = Some(exit.max_rss);
    outcome.enforcement = serde_json::to_value(&exit.enforcement).unwrap_or(Value::Null);
    let stop = |outcome: &mut StepOutcome, status, message: String, code: &str| {
        outcome.status = status;
        outcome.error = Some(message);
        outcome.code = Some(code.to_owned());
        // What came before the end is kept for `logs`, not for later steps.
        outcome.detail = json!({ "partial_stdout": outcome.stdout.take() });
    };
    match exit.ended {
        Ended::ByItself => {
            match exit.status {
                ExitStatus::Code(code) => outcome.exit = Some(code),
                ExitStatus::Signal(signal) => outcome.detail = json!({ "signal": signal }),
            }
            if let Some(signal) = signal_from_outside(&exit, limits) {
                let signal = Some(signal.to_owned());
                UnseenEnd { signal, ..UnseenEnd::of(Lost::Process) }.mark(&mut outcome);
            }
            if outcome.exit != Some(0) {
                outcome.status = StepStatus::Failed;
                if !hints.is_empty() {
                    if outcome.detail.is_null() {
                        outcome.detail = json!({});
                    }
                    outcome.detail[SANDBOX_BLOCKED] = json!(hints);
                }
            }
        }
        Ended::Cancelled | Ended::TimedOut => match cancel.reason() {
            Some(CancelReason::Timeout(message)) => {
                stop(&mut outcome, StepStatus::TimedOut, message, "timeout")
            }
            _ if exit.ended == Ended::TimedOut => {
                stop(
                    &mut outcome,
                    StepStatus::TimedOut,
                    "the step passed the policy's time limit".to_owned(),
                    "timeout",
                );
            }
            reason => {
                let message = reason.map(|reason| reason.message()).unwrap_or_default();
                stop(&mut outcome, StepStatus::Cancelled, message, "cancelled");
            }
        },
        Ended::DiskLimit { limit } => {
            let message = format!(
                "the step added more than {limit} bytes to the directories it may write and was stopped; \
                 raise limits.disk of the policy, or let it write less"
            );
            stop(&mut outcome, StepStatus::Failed, message, DISK_LIMIT);
            outcome.detail["permanent"] = json!(true);
        }
        Ended::OutputCap { stream, cap } => {
            let message = format!(
                "Process output exceeded {cap} bytes on {stream}, and the command was stopped; \
                 raise limits.output or {OUTPUT_VARIABLE}, or write to a file"
            );
            stop(&mut outcome, StepStatus::Failed, message, OUTPUT_LIMIT);
            outcome.detail["permanent"] = json!(true);
        }
    }
    if outcome.status == StepStatus::TimedOut && job.dispatches && !job.idempotent {
        // Whom it spoke to may still do what it was told.
        let why = outcome.error.take().unwrap_or_default();
        UnseenEnd::of_call(why).mark(&mut outcome);
    }
    outcome
}

/// The signal with which somebody else ended the process. SIGKILL comes from a person,
/// from the kernel when memory runs out, or from itself, which looks the same; the
/// others ask a process to end. lobster's own kills have reasons of their own, and
/// so have the kernel's by the step's limits.
fn signal_from_outside(exit: &Exit, limits: &ProcessLimits) -> Option<&'static str> {
    let ExitStatus::Signal(number) = exit.status else { return None };
    if exit.ended != Ended::ByItself {
        return None;
    }
    let (_, name) = FROM_OUTSIDE.into_iter().find(|(signal, _)| *signal == number)?;
    let by_memory = exit.enforcement.denied.iter().any(|denial| denial.promise == Promise::TreeLimits);
    let by_cpu = limits.cpu.is_some_and(|limit| exit.cpu >= limit);
    (name != "SIGKILL" || !by_memory && !by_cpu).then_some(name)
}

/// Signals that end a process in the middle of its work because somebody wants that.
/// A crash (SIGSEGV, SIGABRT) and a pipe that nobody reads are ends of its own.
const FROM_OUTSIDE: [(i32, &str); 5] =
    [(1, "SIGHUP"), (2, "SIGINT"), (3, "SIGQUIT"), (9, "SIGKILL"), (15, "SIGTERM")];

enum SpawnFailure {
    Stdin(io::Error),
    Spawn(SpawnError),
}

impl SpawnFailure {
    fn explain(&self, job: &Job, argv: &[String]) -> StageError {
        let shell = matches!(job.program, ShellText::Shell(_));
        match self {
            Self::Stdin(error) => StageError::new(format!("cannot hand over stdin: {error}")),
            Self::Spawn(SpawnError::NotFound { program }) if shell => {
                StageError::new(format!("{} ({} not found)", job.missing_shell, program.display()))
                    .with_code(PROGRAM_NOT_FOUND)
            }
            Self::Spawn(SpawnError::NotFound { .. }) => {
                let program = argv.first().map(String::as_str).unwrap_or_default();
                StageError::new(format!("exec command not found: {program}")).with_code(PROGRAM_NOT_FOUND)
            }
            Self::Spawn(error @ SpawnError::Replaced { .. }) => {
                StageError::permanent(error.to_string()).with_code(APPROVAL_STALE)
            }
            Self::Spawn(error) => StageError::new(error.to_string()),
        }
    }
}

fn stdin(job: &Job) -> io::Result<Stdin> {
    Ok(match &job.stdin {
        None => Stdin::Empty,
        Some(Payload::File(path)) => Stdin::File(std::fs::File::open(path)?),
        Some(Payload::Bytes(bytes)) if bytes.is_empty() => Stdin::Empty,
        Some(Payload::Bytes(bytes)) => {
            let place = std::env::temp_dir();
            let mut file = tempfile::tempfile_in(&place).map_err(|error| {
                let place = place.display();
                io::Error::new(
                    error.kind(),
                    format!("no temporary file can be made in {place} (TMPDIR): {error}"),
                )
            })?;
            file.write_all(bytes)?;
            io::Seek::rewind(&mut file)?;
            Stdin::File(file)
        }
    })
}

struct Sinks {
    stdout: BlobWriter,
    stderr: HeadAndTail,
    /// Of stderr: what is left out of its middle must not leave halves of a secret.
    redactor: Option<Redactor>,
    scan: Option<ScanAside>,
}

impl Sinks {
    /// What is kept of both; `cut` tells that they may end anywhere.
    fn finish(mut self, cut: bool) -> Result<(Blob, Vec<u8>), StoreError> {
        if let Some(redactor) = self.redactor.take() {
            self.stderr.take(&if cut { redactor.finish_cut() } else { redactor.finish() });
        }
        let stdout = if cut { self.stdout.finish_cut()? } else { self.stdout.finish()? };
        Ok((stdout, self.stderr.into_bytes()))
    }
}

impl OutputSinks for Sinks {
    fn stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        if let Some(scan) = &mut self.scan {
            scan.push(chunk);
        }
        self.stdout.write_all(chunk)
    }

    fn stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.redactor {
            Some(redactor) => {
                let clean = redactor.push(chunk);
                self.stderr.take(&clean);
            }
            None => self.stderr.take(chunk),
        }
        Ok(())
    }
}

/// Keeps the beginning and the end of a stream, and says what it left out.
#[derive(Default)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    dropped: u64,
}

impl HeadAndTail {
    fn take(&mut self, chunk: &[u8]) {
        let room = STDERR_END.saturating_sub(self.head.len()).min(chunk.len());
        let (first, rest) = chunk.split_at(room);
        self.head.extend_from_slice(first);
        // Only the last STDERR_END bytes of a long chunk can survive.
        let skip = rest.len().saturating_sub(STDERR_END);
        self.tail.extend(&rest[skip..]);
        let over = self.tail.len().saturating_sub(STDERR_END);
        self.tail.drain(..over);
        self.dropped += (skip + over) as u64;
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.head;
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes left out …]\n", self.dropped).as_bytes());
        }
        bytes.extend(self.tail);
        bytes
    }
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
    fn the_middle_of_a_long_stderr_is_left_out_and_counted() {
        let mut kept = HeadAndTail::default();
        for chunk in [vec![b'a'; STDERR_END - 1], vec![b'b'; 3], vec![b'c'; 2 * STDERR_END]] {
            kept.take(&chunk);
        }
        let bytes = kept.into_bytes();
        assert_eq!(&bytes[STDERR_END - 1..STDERR_END], b"b");
        assert!(bytes.ends_with(&vec![b'c'; STDERR_END]));
        let total = 3 * STDERR_END + 2;
        let note = format!("\n[… {} bytes left out …]\n", total - 2 * STDERR_END);
        assert_eq!(bytes.len(), 2 * STDERR_END + note.len());
    }

    #[test]
    fn clipped_text_keeps_characters_whole() {
        let text = "é".repeat(MAX_DETAIL);
        let clipped = clip_middle(&text);
        assert!(clipped.len() < MAX_DETAIL + 64 && clipped.starts_with('é') && clipped.ends_with('é'));
    }
}
