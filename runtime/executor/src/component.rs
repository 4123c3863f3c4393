//! Runs the components of orders, and components that are computed in the run's own process.

mod run_services;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::{Arc, Mutex};

use lobster_component::{
    Component, Grants, HostCallTrace, Input, Invocation, Limits, LoadError, MAX_PROGRAM, OpenedDirs,
    Outcome as Done, Patience, RunError, WritesError, Written, WrittenKind, cancelled_by,
};
use serde_json::{Value, json};

use super::layers::{Kept, explain_layer, keep_set};
use super::order_text::text_of;
use super::{ComponentInput, ComponentTask, Host, Outcome, StdinSource};
use crate::change_sets::CHANGES;
use crate::host_calls::{RecordedCalls, Recording};
use crate::outcome::{READ_STATE, READ_VALUES, failed_outcome};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::code::{Code, FailureCode};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_credentials::Credential;
use lobster_stage::StageError;
use lobster_store::{Blob, StepOutcome, StepStatus, Store, StoreError};
pub use run_services::{Keeper, RunServices};
use run_services::{SharedWriter, StoredOutput};

/// `detail.host_calls` of an effect that could call the outside world and made no calls.
pub const NO_CALLS: &str = "none";

/// A component that is about to run, with everything that it gets.
pub struct Prepared {
    pub component: Component,
    pub args: String,
    pub argv: Vec<String>,
    pub input: Input,
    /// The grants, with the values of secrets.
    pub grants: Grants,
    pub opened: Option<OpenedDirs>,
    /// The credentials, with the values of secrets, which never reach the component.
    pub credentials: Vec<Credential>,
    pub limits: Limits,
    pub described_limits: bool,
    /// The root of the randomness that it gets.
    pub action: Digest,
    /// The statement about its grants for its outcome.
    pub enforcement: Value,
    /// The part of an error message about withheld grants.
    pub withheld: Option<String>,
    /// Recorded answers that it gets instead of the world's. Its changes are not kept then.
    pub recorded: Option<Arc<Mutex<RecordedCalls>>>,
    pub services: Arc<RunServices>,
}

/// Executes the order of an action.
pub(super) fn perform(
    task: &ComponentTask,
    action: Digest,
    host: &Host<'_>,
    cancel: &CancelToken,
) -> Outcome {
    match prepare_component(task, action, host, cancel) {
        Err(outcome) => (*outcome).into(),
        Ok(work) => {
            let services = Arc::clone(&work.services);
            let step = run(work, host.store, cancel);
            match services.kept_values() {
                Ok(values) => Outcome { values, wrote: services.written_blobs(), ..step.into() },
                Err(error) => not_kept(&error).into(),
            }
        }
    }
}

/// Prepares the component that the order names; an obstacle becomes the outcome.
fn prepare_component(
    task: &ComponentTask,
    action: Digest,
    host: &Host<'_>,
    cancel: &CancelToken,
) -> Result<Prepared, Box<StepOutcome>> {
    let failed = |error: StageError| Box::new(failed_outcome(&error));
    let patience = Patience::new(cancelled_by(cancel));
    let component =
        load_component(task.program, host, &patience).map_err(|error| not_loaded(&error, task, cancel))?;
    let unread = |error: io::Error| failed(StageError::new(format!("cannot read the step's input: {error}")));
    let args = task.args.read_text(host.store).map_err(unread)?;
    let input = match &task.input {
        ComponentInput::Nothing => Input::Empty,
        ComponentInput::Bytes(source) => Input::Bytes(open_input(source, host.store).map_err(unread)?),
        ComponentInput::Items(source) => Input::Items(Box::new(
            BufReader::with_capacity(64 << 10, open_input(source, host.store).map_err(unread)?).lines(),
        )),
    };
    let values = match task.values {
        None => BTreeMap::new(),
        Some(values) => {
            let text = text_of(values, host.store).map_err(unread)?;
            json::parse_as(&text).map_err(|error| unread(io::Error::other(error)))?
        }
    };
    let secrets = host.secrets.secret_values(&task.secrets).map_err(failed)?;
    let credentials =
        super::credential_values::with_values(&task.credentials, host.secrets).map_err(failed)?;
    let mut grants = task.grants.to_grants();
    let judged = |dirs: &[super::ComponentDir]| dirs.iter().map(|dir| dir.judged.clone()).collect::<Vec<_>>();
    let opened = grants.open_known(&judged(&task.grants.read), &judged(&task.grants.write));
    grants.env.extend(secrets);
    Ok(Prepared {
        component,
        args,
        argv: task.argv.clone(),
        input,
        grants,
        opened: Some(opened),
        credentials,
        limits: task.limits,
        described_limits: task.described_limits,
        action,
        enforcement: task.enforcement.clone(),
        withheld: task.withheld.clone(),
        recorded: None,
        services: Arc::new(RunServices::new(host.store.clone(), Keeper::Order(values))),
    })
}

/// Loads a component of the store; its bytes are read only if they must be compiled.
fn load_component(program: Blob, host: &Host<'_>, patience: &Patience) -> Result<Component, LoadProblem> {
    let name = lobster_component::Digest::from_bytes(*program.digest.as_bytes());
    let bytes = || Ok(host.store.load_blob(&program.digest, MAX_PROGRAM)?.into());
    host.components.load_known(name, program.len, patience, bytes)
}

/// The reason why a component cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadProblem {
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Digest(#[from] lobster_base::digest::DigestSyntaxError),
    #[error("{0}")]
    Lock(#[from] crate::component_lock::ComponentLockError),
}

fn not_loaded(error: &LoadProblem, task: &ComponentTask, cancel: &CancelToken) -> Box<StepOutcome> {
    let why = format!("component blake3:{}: {error}", task.program.digest);
    Box::new(match error {
        LoadProblem::Load(LoadError::Cancelled { .. }) => stopped_by(cancel),
        LoadProblem::Load(LoadError::Timeout { .. }) => {
            failed_outcome(&StageError::new(why).with_code(Code::Timeout))
        }
        _ => failed_outcome(&StageError::permanent(why).with_code(Code::Component)),
    })
}

/// The bytes of an input.
pub fn open_input(source: &StdinSource, store: &Store) -> io::Result<Box<dyn Read + Send>> {
    Ok(match source {
        StdinSource::Empty => Box::new(io::empty()),
        StdinSource::Blob(blob) => Box::new(store.open_blob(&blob.digest).map_err(io::Error::other)?),
        StdinSource::Secret(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
    })
}

/// Runs a component until it ends, and keeps its output in `store`.
pub fn run(work: Prepared, store: &Store, cancel: &CancelToken) -> StepOutcome {
    let Prepared { component, withheld, recorded, mut enforcement, .. } = work;
    let output = Arc::new(Mutex::new(StoredOutput { writer: store.blob_writer(), items: None }));
    let stderr = Arc::new(Mutex::new(store.blob_writer().with_limit(work.limits.output)));
    let is_again = recorded.is_some();
    let is_pure = work.grants.is_pure();
    let recording = (!is_again && !is_pure && component.is_recordable(&work.grants))
        .then(|| Arc::new(Mutex::new(Recording::new(store))));
    let trace = match (recorded, &recording) {
        (Some(recorded), _) if !is_pure => Some(Box::new(recorded) as Box<dyn HostCallTrace>),
        (_, Some(recording)) => Some(Box::new(Arc::clone(recording)) as Box<dyn HostCallTrace>),
        (_, None) => None,
    };
    let result = component.run(Invocation {
        argv: work.argv,
        input: work.input,
        stderr: Box::new(SharedWriter(Arc::clone(&stderr))),
        grants: work.grants,
        opened: work.opened,
        credentials: work.credentials,
        limits: work.limits,
        described_limits: work.described_limits,
        seed: *work.action.as_bytes(),
        services: work.services,
        cancel: cancelled_by(cancel),
        trace,
        ..Invocation::new(work.args, Box::new(Arc::clone(&output)))
    });
    let mut outcome = match result {
        Ok(done) => {
            if !done.denied.is_empty() {
                enforcement["denied"] = json!(done.denied);
            }
            ended_outcome(done, is_again, store, cancel)
        }
        Err(error) => failure_outcome(&error, cancel),
    };
    if let (Some(error), Some(withheld)) = (&mut outcome.error, withheld) {
        error.push_str(&withheld);
    }
    outcome.enforcement = enforcement;
    match add_output(&mut outcome, output, stderr, recording) {
        Ok(()) => outcome,
        Err(error) => not_kept(&error),
    }
}

/// The outcome of a component that ended by itself. Its changes become a change set if it succeeded.
fn ended_outcome(done: Done, is_again: bool, store: &Store, cancel: &CancelToken) -> StepOutcome {
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.fuel = Some(done.fuel_used);
    outcome.peak_memory = Some(done.peak_memory);
    outcome.detail = json!({ "output_bytes": done.output_bytes, "host_call_count": done.host_calls });
    outcome.exit = Some(done.exit_code);
    if done.read_state {
        // The outcome depends on more than the action, so no other run may reuse it.
        outcome.detail[READ_STATE] = json!(true);
    }
    if done.read_values {
        outcome.detail[READ_VALUES] = json!(true);
    }
    if done.exit_code != 0 {
        let text = done.stderr_tail.trim();
        let said = if text.is_empty() { "it printed nothing on stderr" } else { text };
        outcome.status = StepStatus::Failed;
        outcome.error = Some(format!("component failed ({}): {said}", done.exit_code));
        return outcome;
    }
    if !done.writes.written_entries().is_empty() {
        outcome.detail["written"] = written_files(done.writes.written_entries());
    }
    if is_again || done.writes.written_entries().is_empty() {
        return outcome;
    }
    let kept = done.writes.change_set(&mut Kept::new(store)).map_err(|error| match error {
        WritesError::Stopped(reason) => Err(reason),
        WritesError::Layer(error) => Ok(explain_layer(&error)),
        other => Ok(StageError::permanent(other.to_string()).with_code(Code::Changes)),
    });
    match kept.and_then(|set| keep_set(store, &set).map_err(Ok)) {
        Ok(set) => outcome.detail[CHANGES] = json!(set),
        Err(Ok(error)) => {
            outcome.status = StepStatus::Failed;
            outcome.error = Some(format!("cannot put the step's files in place: {}", error.message));
            outcome.code = error.code.map(|code| code.to_string());
        }
        // None of the changes has become visible.
        Err(Err(reason)) => return failure_outcome(&reason, cancel),
    }
    outcome
}

/// Adds the component's output to the outcome.
fn add_output(
    outcome: &mut StepOutcome,
    output: Arc<Mutex<StoredOutput>>,
    stderr: Arc<Mutex<lobster_store::BlobWriter>>,
    recording: Option<Arc<Mutex<Recording>>>,
) -> Result<(), StoreError> {
    let sink = take_back(output)?;
    let blob = sink.writer.finish()?;
    match sink.items {
        Some(count) => {
            outcome.output = Some(blob);
            outcome.detail["items"] = json!(count);
        }
        None => outcome.stdout = Some(blob),
    }
    let stderr = take_back(stderr)?;
    if stderr.bytes_written() > 0 {
        outcome.stderr = Some(stderr.finish()?);
    }
    if let Some(recording) = recording.map(take_back).transpose()? {
        let record = recording.finish()?.map(|record| record.digest);
        outcome.detail["host_calls"] = record.map_or_else(|| json!(NO_CALLS), |digest| json!(digest));
    }
    Ok(())
}

/// The outcome of a component whose output is lost.
fn not_kept(error: &StoreError) -> StepOutcome {
    failed_outcome(&StageError::new(format!("cannot keep the output: {error}")).with_code(Code::Store))
}

/// The files that a step changed, for its outcome.
fn written_files(files: &[Written]) -> Value {
    files
        .iter()
        .map(|file| {
            let what = match &file.what {
                WrittenKind::File { digest, size } => {
                    json!({ "file": digest.to_hex().as_str(), "size": size })
                }
                WrittenKind::Directory => json!("directory"),
                WrittenKind::Link { target } => json!({ "link": target }),
                WrittenKind::Removed => json!("removed"),
            };
            json!({ "path": file.host, "what": what })
        })
        .collect()
}

/// Takes back a value that was lent to the component.
fn take_back<T>(shared: Arc<Mutex<T>>) -> Result<T, StoreError> {
    let unshared = Arc::try_unwrap(shared).map_err(|_| StoreError::OverLimit { limit: 0 })?;
    Ok(unshared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// The outcome of a component that was stopped.
pub(super) fn stopped_by(cancel: &CancelToken) -> StepOutcome {
    match cancel.reason() {
        Some(CancelReason::Timeout(message)) => {
            let mut outcome = failed_outcome(&StageError::new(message).with_code(Code::Timeout));
            outcome.status = StepStatus::TimedOut;
            outcome
        }
        _ => StepOutcome::new(StepStatus::Cancelled),
    }
}

/// The outcome of a component that failed before its end.
pub fn failure_outcome(error: &RunError, cancel: &CancelToken) -> StepOutcome {
    if matches!(error, RunError::Cancelled { .. }) {
        return stopped_by(cancel);
    }
    let retryable = matches!(error, RunError::Step(step) if step.retryable)
        || matches!(error, RunError::Timeout { .. } | RunError::HostCallTimeout { .. });
    let code = match error {
        RunError::Step(step) => FailureCode::of_component(&step.code),
        RunError::OutputFailed { .. } => Code::Store.into(),
        other => other.code().into(),
    };
    let failure = StageError { permanent: !retryable, ..StageError::new(error.to_string()) };
    failed_outcome(&failure.with_code(code))
}

/// The arguments of a command program as words: `argv: [a, b]`.
pub fn command_arguments(argv: Option<&Value>) -> Vec<String> {
    argv.and_then(Value::as_array).map_or_else(Vec::new, |words| words.iter().map(json::js_string).collect())
}
