//! Executes native orders: the process, its output, its end.

use lobster_base::code::Code;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::credential_values::{explain_failure, with_values};
use super::last_line::LastLine;
use super::layers::Layers;
use super::{Host, NativeTask, OrderId, Outcome, StdinSource, Watcher};
use crate::change_sets::CHANGES;

use crate::failed_outcome as failed;
use crate::progress::Heard;
use crate::unseen_end::{Lost, UnseenEnd};
use crate::upstream::{CREDENTIALS, StepUpstream};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::json::scan_thread::ScanThread;
use lobster_sandbox::{
    Confinement, Ended, EnforcementMode, Exit, ExitStatus, OutputSinks, ProcessLimits, Promise, RootId,
    SpawnError, SpawnRequest, Stdin,
};
use lobster_stage::{MAX_OUTPUT, SANDBOX_BLOCKED, StageError};
use lobster_store::{
    Blob, BlobWriter, OutputLog, OutputStream, PARTIAL_STDOUT, Redactor, StepOutcome, StepStatus, Store,
    StoreError,
};

/// Bytes of stderr that are kept of its beginning, and of its end.
const STDERR_END: usize = 128 << 10;

/// Runs the process until it ends.
pub(super) fn perform(task: &NativeTask, host: &Host<'_>, cancel: &CancelToken) -> Outcome {
    let mut env: Vec<(OsString, OsString)> = task
        .env
        .iter()
        .map(|(name, value)| (name.as_os_str().to_owned(), value.as_os_str().to_owned()))
        .collect();
    match host.secrets.secret_values(&task.secrets) {
        Ok(secrets) => env.extend(secrets.into_iter().map(|(name, value)| (name.into(), value.into()))),
        Err(error) => return failed(&error).into(),
    }
    let upstream = match with_values(&task.credentials, host.secrets)
        .and_then(|credentials| StepUpstream::open(credentials, &task.confinement))
    {
        Ok(upstream) => upstream,
        Err(error) => return failed(&error).into(),
    };
    if let Some(upstream) = &upstream {
        upstream.extend_environment(&mut env);
    }
    let mut layers = match Layers::for_task(task, host.store) {
        Ok(layers) => layers,
        Err(error) => return failed(&error).into(),
    };
    // Made only now, when everything that has to be hidden is known.
    let mut sinks = Sinks::new(task, host);
    let mut start = |layers: Option<&Layers>| {
        let request = spawn_request(task, env.clone(), host.store, layers)?;
        let upstream = upstream.as_ref().and_then(StepUpstream::in_jail);
        let request = SpawnRequest { upstream, ..request };
        host.sandbox.run(&request, &mut sinks, cancel).map_err(SpawnFailure::Spawn)
    };
    let mut result = match &layers {
        Some(layers) if layers.needs_copies() => {
            let why = "the file system of the state directory allows no marks of deleted files".to_owned();
            Err(SpawnFailure::Spawn(SpawnError::NoOverlay { why }))
        }
        layers => start(layers.as_ref()),
    };
    if let (Some(layers), Err(SpawnFailure::Spawn(SpawnError::NoOverlay { .. }))) = (&mut layers, &result)
        && takes_copies(&task.confinement)
    {
        // Nothing was started.
        result = layers
            .copy_directories(host.store)
            .map_err(SpawnFailure::Copy)
            .and_then(|()| start(Some(layers)));
    }
    match result {
        Ok(exit) => {
            let plain_json = sinks.scan.take().and_then(ScanThread::finish);
            let mut outcome = ended_outcome(task, host.store, exit, sinks, cancel);
            if let Some(upstream) = &upstream {
                outcome.add_detail(CREDENTIALS, upstream.describe_usage());
                explain_failure(&mut outcome, upstream.token_problem());
            }
            if let (Some(layers), StepStatus::Ok) = (&layers, outcome.status) {
                keep_changes(layers, host.store, &mut outcome);
            }
            if let Some(layers) = layers {
                host.thrown_away.remove_later(layers);
            }
            Outcome { plain_json, ..outcome.into() }
        }
        Err(SpawnFailure::Spawn(SpawnError::Sink { stream, source })) => {
            let why = sinks.stdout.store_error(source);
            let message = format!("cannot keep {stream} of the process: {why}");
            failed(&StageError::new(message).with_code(Code::Store)).into()
        }
        // Nothing was started, and it ends like a process that was stopped.
        Err(SpawnFailure::Spawn(SpawnError::Cancelled { .. })) => {
            let mut outcome = StepOutcome::new(StepStatus::Cancelled);
            stop_as_asked(&mut outcome, cancel);
            outcome.into()
        }
        Err(SpawnFailure::Spawn(SpawnError::SupervisorKilled)) => {
            UnseenEnd::of_loss(Lost::Supervisor).to_outcome().into()
        }
        Err(failure) => failed(&failure.to_stage_error(task)).into(),
    }
}

/// True if a process may work on copies where the kernel does not accept layers. A policy in strict mode is not
/// weakened silently.
fn takes_copies(confinement: &Confinement) -> bool {
    confinement.jail_spec().is_some_and(|spec| matches!(spec.mode, EnforcementMode::Degrade { .. }))
}

/// The process in the sandbox's terms.
fn spawn_request(
    task: &NativeTask,
    env: Vec<(OsString, OsString)>,
    store: &Store,
    layers: Option<&Layers>,
) -> Result<SpawnRequest, SpawnFailure> {
    let mut confinement = hold_roots(&task.confinement, &task.roots).map_err(SpawnFailure::Spawn)?;
    hide_store(&mut confinement, store);
    if let (Some(layers), Confinement::Jail(spec)) = (layers, &mut confinement) {
        layers.add_to_spec(spec);
    }
    Ok(SpawnRequest {
        argv: task.argv.iter().map(OsString::from).collect(),
        env,
        cwd: task.cwd.as_path().to_owned(),
        stdin: open_stdin(&task.stdin, store)?,
        limits: task.limits.clone(),
        confinement,
        upstream: None,
    })
}

/// Makes a change set of the changes of a process that succeeded. If that fails, the step fails, and none of its
/// changes are kept.
fn keep_changes(layers: &Layers, store: &Store, outcome: &mut StepOutcome) {
    match layers.change_set(store) {
        Ok(set) => outcome.add_detail(CHANGES, json!(set)),
        Err(error) => {
            let code = error.known_code().unwrap_or(Code::Changes);
            mark_stopped(outcome, StepStatus::Failed, error.message, code);
            outcome.detail["permanent"] = json!(true);
        }
    }
}

/// A confinement with the same roots that were judged.
pub(crate) fn hold_roots(confinement: &Confinement, roots: &[RootId]) -> Result<Confinement, SpawnError> {
    let mut confinement = confinement.clone();
    if let Confinement::Jail(spec) | Confinement::LandlockSeccomp(spec) = &mut confinement {
        spec.held = roots.iter().map(RootId::open).collect::<Result<_, _>>()?;
    }
    Ok(confinement)
}

/// Hides the store of the executor, which may differ from the store that the order comes from: it holds inputs and
/// outputs of other orders.
pub(crate) fn hide_store(confinement: &mut Confinement, store: &Store) {
    let (Confinement::Jail(spec) | Confinement::LandlockSeccomp(spec)) = confinement else { return };
    let dir = std::fs::canonicalize(store.dir()).unwrap_or_else(|_| store.dir().to_owned());
    let is_in = |roots: &[PathBuf]| roots.iter().any(|root| dir.starts_with(root));
    if (is_in(&spec.read) || is_in(&spec.write)) && !is_in(&spec.deny) {
        spec.deny.push(dir);
    }
}

fn open_stdin(source: &StdinSource, store: &Store) -> Result<Stdin, SpawnFailure> {
    let failed = |error: &dyn std::fmt::Display| SpawnFailure::Stdin(error.to_string());
    Ok(match source {
        StdinSource::Empty => Stdin::Empty,
        StdinSource::Blob(blob) => {
            Stdin::File(store.open_file(&blob.digest).map_err(|error| failed(&error))?)
        }
        StdinSource::Secret(bytes) => {
            // In memory: data that no store may keep is not written to a disk either.
            let fill = || -> io::Result<std::fs::File> {
                let flags = rustix::fs::MemfdFlags::CLOEXEC;
                let mut file = std::fs::File::from(rustix::fs::memfd_create("lobster-stdin", flags)?);
                file.write_all(bytes)?;
                io::Seek::rewind(&mut file)?;
                Ok(file)
            };
            Stdin::File(fill().map_err(|error| failed(&error))?)
        }
    })
}

fn ended_outcome(
    task: &NativeTask,
    store: &Store,
    exit: Exit,
    sinks: Sinks,
    cancel: &CancelToken,
) -> StepOutcome {
    let limits = &task.limits;
    let cut = exit.ended != Ended::ByItself;
    let mut hints = Vec::new();
    let kept = sinks.into_kept(cut).and_then(|Kept { stdout, stderr, is_short, log }| {
        if exit.status != ExitStatus::Code(0) {
            hints.extend(layer_hints(task, &stderr));
        }
        let mut parts = StepOutcome::new(StepStatus::Ok);
        if let Some(log) = log {
            log.finish(&mut parts, is_short)?;
        }
        Ok((stdout, store.put_blob(&stderr)?, parts.detail))
    });
    let mut parts = Value::Null;
    let mut outcome = match kept {
        Ok((stdout, stderr, detail)) => {
            parts = detail;
            let mut outcome = StepOutcome::new(StepStatus::Ok);
            (outcome.stdout, outcome.stderr) = (Some(stdout), Some(stderr));
            outcome
        }
        Err(error) => {
            failed(&StageError::new(format!("cannot keep the output: {error}")).with_code(Code::Store))
        }
    };
    outcome.duration_us = u64::try_from(exit.wall.as_micros()).unwrap_or(u64::MAX);
    outcome.peak_memory = Some(exit.max_rss);
    outcome.enforcement = serde_json::to_value(&exit.enforcement).unwrap_or(Value::Null);
    match exit.ended {
        Ended::ByItself => {
            match exit.status {
                ExitStatus::Code(code) => outcome.exit = Some(code),
                ExitStatus::Signal(signal) => outcome.detail = json!({ "signal": signal }),
            }
            if let Some(signal) = signal_from_outside(&exit, limits) {
                let signal = Some(signal.to_owned());
                UnseenEnd { signal, ..UnseenEnd::of_loss(Lost::Process) }.mark_outcome(&mut outcome);
            }
            if outcome.exit != Some(0) {
                outcome.status = StepStatus::Failed;
                if !hints.is_empty() {
                    outcome.add_detail(SANDBOX_BLOCKED, json!(hints));
                }
            }
        }
        Ended::TimedOut if !matches!(cancel.reason(), Some(CancelReason::Timeout(_))) => {
            let message = "the step passed the policy's time limit".to_owned();
            mark_stopped(&mut outcome, StepStatus::TimedOut, message, Code::Timeout);
        }
        Ended::Cancelled | Ended::TimedOut => stop_as_asked(&mut outcome, cancel),
        Ended::DiskLimit { limit } => {
            let message = format!(
                "the step added more than {limit} bytes to the directories it may write and was stopped; \
                 raise limits.disk of the policy, or let it write less"
            );
            mark_stopped(&mut outcome, StepStatus::Failed, message, Code::DiskLimit);
            outcome.detail["permanent"] = json!(true);
        }
        Ended::OutputCap { stream, cap } => {
            let message = format!(
                "Process output exceeded {cap} bytes on {stream}, and the command was stopped; \
                 raise limits.output or {}, or write to a file",
                MAX_OUTPUT.name
            );
            mark_stopped(&mut outcome, StepStatus::Failed, message, Code::ProcessOutputLimit);
            outcome.detail["permanent"] = json!(true);
        }
    }
    if let Value::Object(parts) = parts {
        parts.into_iter().for_each(|(name, what)| outcome.add_detail(&name, what));
    }
    if outcome.status == StepStatus::TimedOut && task.outlives_timeout {
        // The services that it called may continue to work for it.
        let why = outcome.error.take().unwrap_or_default();
        UnseenEnd::of_call(why).mark_outcome(&mut outcome);
    }
    outcome
}

/// The signal with which another process ended this one. SIGKILL comes from a person, from the kernel when memory runs
/// out, or from the process itself, which looks the same; the other signals ask a process to end. lobster's own kills,
/// and the kernel's for exceeded limits, have reasons of their own.
fn signal_from_outside(exit: &Exit, limits: &ProcessLimits) -> Option<&'static str> {
    let ExitStatus::Signal(number) = exit.status else { return None };
    let (_, name) = FROM_OUTSIDE.into_iter().find(|(signal, _)| *signal == number)?;
    let by_memory = exit.enforcement.denied.iter().any(|denial| denial.promise == Promise::TreeLimits);
    let by_cpu = limits.cpu.is_some_and(|limit| exit.cpu >= limit);
    (name != "SIGKILL" || !by_memory && !by_cpu).then_some(name)
}

/// What overlayfs refuses, with advice. It cannot rename a directory from the lower layer; some programs copy it
/// instead, others fail. It copies no file of a group that its user namespace does not know; that namespace only knows
/// the user's own group.
const LAYER_REFUSALS: [(&str, &str); 2] = [
    (
        "cross-device link",
        "a staged step cannot rename an existing directory: let it copy and remove it (mv does), or \
         run it with `changes: direct`",
    ),
    (
        "value too large for defined data type",
        "a staged step cannot change a file or directory that belongs to another user or to another group than the \
         user's own: `chgrp` it, or run the step with `changes: direct`",
    ),
];

/// Advice for what the layers of the step refused.
fn layer_hints(task: &NativeTask, stderr: &[u8]) -> Vec<&'static str> {
    if task.layered.is_empty() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(stderr).to_ascii_lowercase();
    LAYER_REFUSALS.iter().filter(|(words, _)| text.contains(words)).map(|(_, hint)| *hint).collect()
}

/// Turns an outcome into that of a stopped process.
fn mark_stopped(outcome: &mut StepOutcome, status: StepStatus, message: String, code: Code) {
    outcome.status = status;
    outcome.error = Some(message);
    outcome.code = Some(code.to_string());
    // Output from before the stop is kept for `logs`, not for later steps.
    outcome.detail = json!({ PARTIAL_STDOUT: outcome.stdout.take() });
}

/// The same, for the reason in `cancel`.
fn stop_as_asked(outcome: &mut StepOutcome, cancel: &CancelToken) {
    match cancel.reason() {
        Some(CancelReason::Timeout(message)) => {
            mark_stopped(outcome, StepStatus::TimedOut, message, Code::Timeout)
        }
        reason => {
            let message = reason.map(|reason| reason.message()).unwrap_or_default();
            mark_stopped(outcome, StepStatus::Cancelled, message, Code::Cancelled);
        }
    }
}

/// Signals that end a process in the middle of its work on request. A crash (SIGSEGV, SIGABRT) and a closed pipe are
/// the process's own ends.
const FROM_OUTSIDE: [(i32, &str); 5] =
    [(1, "SIGHUP"), (2, "SIGINT"), (3, "SIGQUIT"), (9, "SIGKILL"), (15, "SIGTERM")];

enum SpawnFailure {
    Stdin(String),
    Spawn(SpawnError),
    Copy(StageError),
}

impl SpawnFailure {
    fn to_stage_error(&self, task: &NativeTask) -> StageError {
        match self {
            Self::Stdin(error) => StageError::new(format!("cannot hand over stdin: {error}")),
            Self::Spawn(SpawnError::NotFound { program }) => {
                let message = match &task.when_missing {
                    Some(said) => format!("{said} ({} not found)", program.display()),
                    None => {
                        let program = task.argv.first().map(String::as_str).unwrap_or_default();
                        format!("exec command not found: {program}")
                    }
                };
                StageError::new(message).with_code(Code::ProgramNotFound)
            }
            Self::Spawn(error @ SpawnError::Replaced { .. }) => {
                StageError::permanent(error.to_string()).with_code(Code::ApprovalStale)
            }
            Self::Spawn(error @ SpawnError::NoOverlay { .. }) if !takes_copies(&task.confinement) => {
                let message = format!(
                    "{error}; or let the policy say `mode = \"degrade\"`, and the step works on a copy"
                );
                StageError::permanent(message).with_code(Code::Changes)
            }
            Self::Spawn(error @ (SpawnError::Layer { .. } | SpawnError::NoOverlay { .. })) => {
                StageError::permanent(error.to_string()).with_code(Code::Changes)
            }
            Self::Copy(error) => error.clone(),
            Self::Spawn(error) => StageError::new(error.to_string()),
        }
    }
}

/// Takes both streams of a process, without secrets, both for live storage and for the outcome.
struct Sinks<'h> {
    redactors: [Option<Redactor>; 2],
    stdout: BlobWriter,
    stderr: HeadAndTail,
    scan: Option<ScanThread>,
    log: Option<OutputLog>,
    watcher: Option<&'h dyn Watcher>,
    order: &'h OrderId,
    last_line: LastLine,
}

/// The kept output of both streams.
struct Kept {
    stdout: Blob,
    stderr: Vec<u8>,
    /// True if the middle of stderr was left out.
    is_short: bool,
    log: Option<OutputLog>,
}

impl<'h> Sinks<'h> {
    fn new(task: &NativeTask, host: &Host<'h>) -> Self {
        let (store, order) = (host.store, host.order);
        let redactors = [store.new_redactor(), store.new_redactor()];
        Self {
            scan: (task.scan_json && redactors[0].is_none()).then(ScanThread::default),
            redactors,
            stdout: store.verbatim_writer(),
            stderr: HeadAndTail::default(),
            log: host.stores_output.then(|| store.output_log(order.run, &order.path)),
            watcher: host.watcher,
            order,
            last_line: LastLine::default(),
        }
    }

    fn take_chunk(&mut self, stream: OutputStream, chunk: &[u8]) -> io::Result<()> {
        match &mut self.redactors[usize::from(stream == OutputStream::Stderr)] {
            None => self.keep_clean(stream, chunk),
            Some(redactor) => {
                let clean = redactor.push_lines(chunk);
                self.keep_clean(stream, &clean)
            }
        }
    }

    /// Keeps output that contains no secrets.
    fn keep_clean(&mut self, stream: OutputStream, clean: &[u8]) -> io::Result<()> {
        if clean.is_empty() {
            return Ok(());
        }
        if let Some(log) = &mut self.log {
            log.append_piece(stream, clean);
        }
        if let Some(watcher) = self.watcher {
            watcher.bytes_printed(self.order, stream, clean);
            if stream == OutputStream::Stderr
                && let Some(line) = self.last_line.push_bytes(clean)
            {
                watcher.output_arrived(self.order, Heard::Stderr(line));
            }
        }
        match stream {
            OutputStream::Stdout => self.stdout.write_all(clean),
            OutputStream::Stderr => {
                self.stderr.take_chunk(clean);
                Ok(())
            }
        }
    }

    /// The kept output of both streams; with `cut`, a stream may end in the middle of a secret.
    fn into_kept(mut self, cut: bool) -> Result<Kept, StoreError> {
        let redactors = std::mem::take(&mut self.redactors);
        for (stream, redactor) in [OutputStream::Stdout, OutputStream::Stderr].into_iter().zip(redactors) {
            let rest = redactor.map(|redactor| if cut { redactor.finish_cut() } else { redactor.finish() });
            let kept = rest.map_or(Ok(()), |rest| self.keep_clean(stream, &rest));
            kept.map_err(|error| self.stdout.store_error(error))?;
        }
        let is_short = self.stderr.dropped > 0;
        Ok(Kept { stdout: self.stdout.finish()?, stderr: self.stderr.into_bytes(), is_short, log: self.log })
    }
}

impl OutputSinks for Sinks<'_> {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        if let Some(scan) = &mut self.scan {
            scan.push(chunk);
        }
        self.take_chunk(OutputStream::Stdout, chunk)
    }

    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.take_chunk(OutputStream::Stderr, chunk)
    }
}

/// Keeps the beginning and the end of a stream, and notes the bytes that were left out.
#[derive(Default)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    dropped: u64,
}

impl HeadAndTail {
    fn take_chunk(&mut self, chunk: &[u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_long_stderr_is_left_out_and_counted() {
        let mut kept = HeadAndTail::default();
        for chunk in [vec![b'a'; STDERR_END - 1], vec![b'b'; 3], vec![b'c'; 2 * STDERR_END]] {
            kept.take_chunk(&chunk);
        }
        let bytes = kept.into_bytes();
        assert_eq!(&bytes[STDERR_END - 1..STDERR_END], b"b");
        assert!(bytes.ends_with(&vec![b'c'; STDERR_END]));
        let total = 3 * STDERR_END + 2;
        let note = format!("\n[… {} bytes left out …]\n", total - 2 * STDERR_END);
        assert_eq!(bytes.len(), 2 * STDERR_END + note.len());
    }
}
