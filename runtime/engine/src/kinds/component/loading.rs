//! Loads the component of a step: from a file, the store, or this binary.

use lobster_base::code::Code;
use std::path::Path;

use lobster_component::{Component, LoadError, MAX_PROGRAM, Patience, cancelled_by, read_file};
use serde_json::Value;

use crate::overseer::{Profile, RecordedLimits, RecordedProgram};
use crate::path::StepPath;
use crate::run::Run;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::digest::Digest;
use lobster_executor::LoadProblem;
use lobster_executor::component_lock;
use lobster_stage::{ComponentProgram, StageError, Stop};
use lobster_store::{Store, StoreError};

/// The component that evaluates `js:` steps.
pub(crate) const JS_EVALUATOR: &[u8] = include_bytes!("../../../../../guest-steps/dist/js-eval.wasm");

/// A component that is about to run.
pub(crate) struct LoadedProgram {
    pub(crate) component: Component,
    /// Limits and profile of the recorded execution, if there is one.
    pub(crate) recorded: Option<(RecordedLimits, Profile)>,
}

/// The limits of compiling, within which a component is loaded until the step is cancelled.
pub(super) fn compile_patience(cancel: &CancelToken) -> Patience {
    Patience::new(cancelled_by(cancel))
}

/// The failure of a step whose component cannot be loaded.
pub(super) fn not_loaded(error: &LoadProblem, named: &str, cancel: &CancelToken) -> Stop {
    match error {
        LoadProblem::Load(LoadError::Cancelled { .. }) => match cancel.reason() {
            Some(CancelReason::Timeout(message)) => {
                let hint = "it was being compiled, which `lobster step compile FILE` does ahead";
                StageError::new(format!("{message}; {hint}")).with_code(Code::Timeout).into()
            }
            _ => Stop::Cancelled,
        },
        LoadProblem::Load(LoadError::Timeout { .. }) => {
            StageError::new(format!("{named}: {error}")).with_code(Code::Timeout).into()
        }
        _ => StageError::permanent(format!("{named}: {error}")).with_code(Code::Component).into(),
    }
}

/// Loads the component that a plan names: the pinned one, one of the store, or a file whose name only became known
/// during the run. A run loads each of them once. A replay takes the recorded one, even if the file has changed.
pub(super) fn load(
    run: &Run<'_>,
    path: &StepPath,
    base: &Path,
    named: &str,
    pinned: Option<&Digest>,
    patience: &Patience,
) -> Result<LoadedProgram, LoadProblem> {
    if let Some(recorded) = run.overseer().and_then(|overseer| overseer.recorded_program(path)) {
        return recorded_program(run, recorded, patience);
    }
    let key = match (pinned, named.strip_prefix("blake3:")) {
        (Some(digest), _) => digest.to_string(),
        (None, Some(hex)) => hex.to_owned(),
        (None, None) => base.join(named).display().to_string(),
    };
    let component = run.load_component(&key, || load_now(run, base, named, pinned, patience))?;
    Ok(LoadedProgram { component, recorded: None })
}

fn load_now(
    run: &Run<'_>,
    base: &Path,
    named: &str,
    pinned: Option<&Digest>,
    patience: &Patience,
) -> Result<Component, LoadProblem> {
    match (pinned, named.strip_prefix("blake3:")) {
        (Some(digest), _) => load_stored(run, digest, patience),
        (None, Some(hex)) => load_stored(run, &hex.parse::<Digest>()?, patience),
        (None, None) => {
            let path = base.join(named);
            let bytes = read_file(&path)?;
            let digest = store_component(&run.store, &bytes)?;
            component_lock::check(&path, &digest)?;
            load_kept(run, &digest, &bytes, patience)
        }
    }
}

/// Loads a component whose bytes have just been hashed.
fn load_kept(
    run: &Run<'_>,
    digest: &Digest,
    bytes: &[u8],
    patience: &Patience,
) -> Result<Component, LoadProblem> {
    let name = lobster_component::Digest::from_bytes(*digest.as_bytes());
    run.services.components().load_known(name, bytes.len() as u64, patience, || Ok(bytes.into()))
}

/// Loads a component of the store; its bytes are read only if they must be compiled.
fn load_stored(run: &Run<'_>, digest: &Digest, patience: &Patience) -> Result<Component, LoadProblem> {
    let size = run.store.blob_len(digest)?.ok_or(StoreError::MissingBlob(*digest))?;
    let name = lobster_component::Digest::from_bytes(*digest.as_bytes());
    let bytes = || Ok(run.store.load_blob(digest, MAX_PROGRAM)?.into());
    run.services.components().load_known(name, size, patience, bytes)
}

/// Loads a component by its digest alone. It stays loaded while the services live.
pub(super) fn recorded_program(
    run: &Run<'_>,
    recorded: RecordedProgram,
    patience: &Patience,
) -> Result<LoadedProgram, LoadProblem> {
    let RecordedProgram { component: digest, limits, profile } = recorded;
    let component = run.load_component(&digest.to_string(), || load_stored(run, &digest, patience))?;
    Ok(LoadedProgram { component, recorded: Some((limits, profile)) })
}

/// Keeps a component in the store, so that the run can be replayed without its file.
pub fn store_component(store: &Store, bytes: &[u8]) -> Result<Digest, StoreError> {
    let digest = Digest::of_bytes(bytes);
    if store.blob_len(&digest)?.is_none() {
        store.put_blob(bytes)?;
    }
    Ok(digest)
}

/// The evaluator, compiled once per machine. It is kept in the store, so that a lobster with another evaluator can
/// replay the run.
pub(super) fn js_evaluator(
    run: &Run<'_>,
    path: &StepPath,
    patience: &Patience,
) -> Result<LoadedProgram, LoadProblem> {
    if let Some(recorded) = run.overseer().and_then(|overseer| overseer.recorded_program(path)) {
        return recorded_program(run, recorded, patience);
    }
    let load = || -> Result<_, LoadProblem> {
        let digest = store_component(&run.store, JS_EVALUATOR)?;
        load_kept(run, &digest, JS_EVALUATOR, patience)
    };
    let component = run.load_component("js", load)?;
    Ok(LoadedProgram { component, recorded: None })
}

/// The digest by which the policy identifies the evaluator.
pub fn js_evaluator_digest() -> Digest {
    Digest::of_bytes(JS_EVALUATOR)
}

/// Loads the component of a pipeline stage.
pub(crate) fn of_stage(
    run: &Run<'_>,
    path: &StepPath,
    cwd: &Path,
    program: &ComponentProgram,
    pinned: Option<&Value>,
    cancel: &CancelToken,
) -> Result<LoadedProgram, Stop> {
    let patience = compile_patience(cancel);
    match program {
        ComponentProgram::Js => {
            js_evaluator(run, path, &patience).map_err(|error| not_loaded(&error, "js", cancel))
        }
        ComponentProgram::Named(named) => {
            let pinned = pinned.and_then(Value::as_str).and_then(|hex| hex.parse::<Digest>().ok());
            load(run, path, cwd, named, pinned.as_ref(), &patience)
                .map_err(|error| not_loaded(&error, &format!("component {named}"), cancel))
        }
    }
}
