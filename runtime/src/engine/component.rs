//! WebAssembly components as steps, and inline JavaScript through the evaluator component.

mod lent;

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lobster_component::{
    Component, DirGrant, Grants, HostCallTrace, Input, Invocation, Limits, LoadError, RunError, Written,
    WrittenKind,
};
use serde_json::{Map, Value, json};

use super::env::Env;
use super::host_calls::Recording;
use super::path::StepPath;
use super::pipeline::{failed_outcome, outcome_error};
use super::record::{Json, Record, Scope};
use super::run::{ActionRecord, Run, stopped};
use super::value::{Items, StoreHandle, Text};
use super::workflow::{Frame, Input as StepInput};
use crate::cancel::{CancelReason, CancelToken};
use crate::digest::Digest;
use crate::json;
use crate::language::plan::{self, Step, Work};
use crate::steps::stages::{ComponentProgram, Payload, StageError, Stop};
use crate::store::{Blob, INLINE_MAX, StepOutcome, StepStatus, Store, StoreError};

use lent::{RunServices, SharedWriter, Sink};

/// The component that evaluates `js:` steps.
pub(super) const JS_EVALUATOR: &[u8] = include_bytes!("../../../guest-steps/dist/js-eval.wasm");

/// Version of how the engine runs components; part of every action, so that a
/// change that could change outcomes never meets old cache entries.
const PROFILE: &str = "component@1";

/// A component to be run once.
pub(crate) struct Job {
    pub(crate) component: Component,
    pub(crate) args: Map<String, Value>,
    pub(crate) input: JobInput,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    /// Reuse the outcome of the same pure action, if it is known.
    pub(crate) cache: bool,
    pub(crate) idempotent: bool,
}

/// What a component reads.
pub(crate) enum JobInput {
    Empty,
    Bytes(Payload),
    Items(Items),
}

/// What a component gave.
pub(crate) struct Output {
    pub(crate) items: Option<Items>,
    pub(crate) bytes: Option<Text>,
}

/// A `component:` or `js:` step.
pub(super) fn step(
    frame: &Frame<'_>,
    step: &Step,
    scope: &Scope<'_>,
    path: &StepPath,
    env: &Env,
    cancel: &CancelToken,
) -> Result<Record, Stop> {
    let run = frame.run;
    let (component, args) = match &step.work {
        Work::Component { component, args } => {
            let named = frame.fill(component, scope, path)?;
            let base = frame.workflow.file.parent().unwrap_or(Path::new("/"));
            let pinned = frame.workflow.components.get(component).filter(|_| *component == named);
            let loaded = load(run, path, base, &named, pinned).map_err(|error| {
                run.fail_at(path);
                StageError::permanent(format!("Workflow step {} component {named}: {error}", step.id))
                    .with_code("component")
            })?;
            let filled = fill_all(frame, &Value::Object(args.clone()), scope, path)?;
            (loaded, filled.as_object().cloned().unwrap_or_default())
        }
        Work::Js(code) => {
            (js_evaluator(run, path).map_err(stopped)?, js_args(frame, code, step, scope, path)?)
        }
        _ => return Ok(Record::new(&step.id)),
    };
    let input = match (&step.work, frame.stdin(step, scope, path)?) {
        (Work::Js(_), _) | (_, StepInput::Nothing) => JobInput::Empty,
        (_, StepInput::Text(text)) => JobInput::Bytes(text.payload().map_err(stopped)?),
        (_, StepInput::Json(value)) => match &*value {
            Value::Array(items) => JobInput::Items(items.clone().into()),
            single => JobInput::Items(vec![single.clone()].into()),
        },
    };
    let empty = plan::Grants::default();
    let wanted = step.extras.grants.as_ref().unwrap_or(&empty);
    let base = frame.workflow.file.parent().unwrap_or(Path::new("/"));
    let job = Job {
        grants: grants(frame, wanted, base, env, scope, path)?,
        limits: limits(step),
        cache: step.extras.cache.unwrap_or(true),
        idempotent: step.extras.idempotent,
        component,
        args,
        input,
    };
    let done = run_component(run, path, job, cancel).map_err(|stop| naming(step, stop))?;
    let mut record = Record::new(&step.id);
    match done {
        Output { items: Some(items), .. } => {
            let text = match &items {
                Items::Memory(items) => Text::inline(super::workflow::items_text(items)),
                Items::Stored { .. } => {
                    let mut writer = run.store.blob_writer();
                    super::value::write_array(&mut writer, &items)?;
                    Text::stored(&run.store, writer.finish().map_err(stopped)?)
                }
            };
            record.stdout = Some(text);
            record.json = if items.len() == 0 { Json::value(json!([])) } else { Json::of_items(items) };
        }
        Output { bytes: Some(text), .. } => {
            record.stdout = Some(text);
            record.json = Json::of_stdout();
        }
        Output { .. } => record.stdout = Some(Text::inline("")),
    }
    Ok(record)
}

/// The failure with the step that it belongs to: the program's own words name only its work.
fn naming(step: &Step, stop: Stop) -> Stop {
    let kind = if matches!(step.work, Work::Js(_)) { "js" } else { "component" };
    match stop {
        Stop::Failed(error) => Stop::Failed(StageError {
            message: format!("Workflow step {} {kind}: {}", step.id, error.message),
            ..error
        }),
        other => other,
    }
}

/// What `js:` code sees: `input`, `args`, and the earlier steps it mentions.
fn js_args(
    frame: &Frame<'_>,
    code: &str,
    step: &Step,
    scope: &Scope<'_>,
    path: &StepPath,
) -> Result<Map<String, Value>, Stop> {
    let input = match frame.stdin(step, scope, path)? {
        StepInput::Nothing => Value::Null,
        StepInput::Text(text) => {
            let text = text.load().map_err(stopped)?;
            json::parse(text.trim()).unwrap_or_else(|_| Value::String(text.to_string()))
        }
        StepInput::Json(value) => Value::clone(&value),
    };
    let mut steps = Map::new();
    // In a fixed order: what the code sees, and the fuel it takes, must not vary.
    let mut visible = scope.visible();
    visible.retain(|record| code.contains(&record.id));
    visible.sort_by(|a, b| a.id.cmp(&b.id));
    for record in visible {
        let value = match (record.json()?, &record.response, &record.stdout) {
            (Some(value), _, _) => Value::clone(value),
            (None, Some(response), _) => response.clone(),
            (None, None, Some(text)) => Value::String(text.load().map_err(stopped)?.to_string()),
            (None, None, None) => Value::Null,
        };
        steps.insert(record.id.clone(), value);
    }
    let bound = json!({ "code": code, "input": input, "args": frame.args, "steps": steps, "as": "value" });
    Ok(bound.as_object().cloned().unwrap_or_default())
}

/// Fills in templates in all text inside a value.
pub(super) fn fill_all(
    frame: &Frame<'_>,
    value: &Value,
    scope: &Scope<'_>,
    path: &StepPath,
) -> Result<Value, Stop> {
    Ok(match value {
        Value::String(text) => {
            match frame.resolve(text, scope).map_err(|error| frame.failed(path, &error))? {
                StepInput::Nothing => Value::Null,
                StepInput::Text(text) => Value::String(text.load().map_err(stopped)?.to_string()),
                StepInput::Json(value) => Value::clone(&value),
            }
        }
        Value::Array(items) => Value::Array(
            items.iter().map(|item| fill_all(frame, item, scope, path)).collect::<Result<_, _>>()?,
        ),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| Ok((key.clone(), fill_all(frame, value, scope, path)?)))
                .collect::<Result<_, Stop>>()?,
        ),
        other => other.clone(),
    })
}

/// Loads what a plan names: the component it pinned, a component of the store,
/// or a file whose name became known only now.
/// A run loads each of them once; a replay takes the recorded one, whatever the file has become.
fn load(
    run: &Run<'_>,
    path: &StepPath,
    base: &Path,
    named: &str,
    pinned: Option<&Digest>,
) -> Result<Component, LoadProblem> {
    if let Some(recorded) = run.overseer().and_then(|overseer| overseer.component(path)) {
        return stored_component(run, recorded);
    }
    let key = match (pinned, named.strip_prefix("blake3:")) {
        (Some(digest), _) => digest.to_string(),
        (None, Some(hex)) => hex.to_owned(),
        (None, None) => base.join(named).display().to_string(),
    };
    run.loaded(&key, || load_now(run, base, named, pinned))
}

fn load_now(
    run: &Run<'_>,
    base: &Path,
    named: &str,
    pinned: Option<&Digest>,
) -> Result<Component, LoadProblem> {
    let named_digest = named.strip_prefix("blake3:").map(str::parse::<Digest>).transpose()?;
    let bytes = match pinned.copied().or(named_digest) {
        Some(digest) => {
            if let Some(held) = held(run, digest)? {
                return Ok(held);
            }
            run.store.load(&digest, MAX_COMPONENT)?
        }
        None => {
            let path = base.join(named);
            let bytes = std::fs::read(&path).map_err(|source| LoadError::Read { path, source })?;
            keep(&run.store, &bytes)?;
            bytes
        }
    };
    Ok(run.services.components().load_bytes(&bytes)?)
}

/// A component that this process has loaded before, if the store still has it
/// for those who replay the run.
fn held(run: &Run<'_>, digest: Digest) -> Result<Option<Component>, StoreError> {
    let Some(component) =
        run.services.components().held(lobster_component::Digest::from_bytes(*digest.as_bytes()))
    else {
        return Ok(None);
    };
    Ok(run.store.blob_len(&digest)?.map(|_| component))
}

/// A component by its digest alone. It stays loaded while the services live.
fn stored_component(run: &Run<'_>, digest: Digest) -> Result<Component, LoadProblem> {
    run.loaded(&digest.to_string(), || {
        Ok(run.services.components().load_bytes(&run.store.load(&digest, MAX_COMPONENT)?)?)
    })
}

/// Keeps a component in the store, so that the run can be replayed without its file.
pub(crate) fn keep(store: &Store, bytes: &[u8]) -> Result<Digest, StoreError> {
    let digest = Digest::of(bytes);
    if store.blob_len(&digest)?.is_none() {
        store.put(bytes)?;
    }
    Ok(digest)
}

/// The evaluator, compiled once per machine. It is kept in the store, so that
/// the run can be replayed by a lobster that has another one.
fn js_evaluator(run: &Run<'_>, path: &StepPath) -> Result<Component, LoadProblem> {
    if let Some(recorded) = run.overseer().and_then(|overseer| overseer.component(path)) {
        return stored_component(run, recorded);
    }
    run.loaded("js", || {
        keep(&run.store, JS_EVALUATOR)?;
        Ok(run.services.components().load_bytes(JS_EVALUATOR)?)
    })
}

/// The component of a pipeline's stage.
pub(super) fn of_stage(
    run: &Run<'_>,
    path: &StepPath,
    cwd: &Path,
    program: &ComponentProgram,
    pinned: Option<&Value>,
) -> Result<Component, Stop> {
    match program {
        ComponentProgram::Js => js_evaluator(run, path).map_err(stopped),
        ComponentProgram::Named(named) => {
            let pinned = pinned.and_then(Value::as_str).and_then(|hex| hex.parse::<Digest>().ok());
            load(run, path, cwd, named, pinned.as_ref()).map_err(|error| {
                StageError::permanent(format!("component {named}: {error}")).with_code("component").into()
            })
        }
    }
}

/// Largest component that is loaded, in bytes. The largest seen is 70 MB.
const MAX_COMPONENT: u64 = 512 << 20;

/// Why a component cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadProblem {
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Digest(#[from] crate::digest::DigestSyntaxError),
}

/// The step's grants in the component's terms. Directories stand relative to the workflow file.
fn grants(
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
                let from = frame.fill(&dir.from, scope, path)?;
                Ok(DirGrant { host: base.join(&from), guest: dir.to.clone().unwrap_or(from) })
            })
            .collect()
    };
    Ok(Grants {
        read: dirs(&wanted.read)?,
        write: dirs(&wanted.write)?,
        env: wanted.env.iter().filter_map(|name| Some((name.clone(), env.get(name)?))).collect(),
        net: wanted.net.clone(),
        clock: wanted.clock,
        random: wanted.random,
    })
}

/// The defaults, or less if the step says so; the component's own wishes can only lower them further.
fn limits(step: &Step) -> Limits {
    let mut limits = Limits::default();
    if let Some(own) = &step.extras.limits {
        limits.fuel = own.fuel.map_or(limits.fuel, |fuel| fuel.min(limits.fuel));
        limits.memory = own.memory.map_or(limits.memory, |memory| memory.min(limits.memory));
        limits.output = own.output.map_or(limits.output, |output| output.min(limits.output));
    }
    if let Some(ms) = step.timeout_ms {
        limits.wall = limits.wall.min(Duration::from_millis(ms));
    }
    limits
}

/// Runs a component once per run, or takes the outcome of the same pure action.
pub(crate) fn run_component(
    run: &Run<'_>,
    path: &StepPath,
    job: Job,
    cancel: &CancelToken,
) -> Result<Output, Stop> {
    let pure = job.grants.is_pure() && job.grants.write.is_empty();
    let preimage = preimage(run, &job)?;
    let action = Digest::of_json(&preimage).map_err(stopped)?;
    let store = run.store.clone();
    if !pure {
        let record = ActionRecord {
            kind: "component".to_owned(),
            preimage,
            decision: Value::Null,
            idempotent: job.idempotent,
        };
        return run.once(
            path,
            &record,
            || execute(run, job, action, cancel),
            |outcome| output(&store, outcome),
        );
    }
    let cache = job.cache && run.overseer().is_none_or(|overseer| overseer.journals());
    let compute = || {
        let known = if cache { run.cached(&action)? } else { None };
        if let Some(mut outcome) = known.filter(|outcome| has_blobs(&store, outcome)) {
            outcome.cached = true;
            outcome.duration_us = 0;
            return Ok(outcome);
        }
        let begun = std::time::Instant::now();
        let _shown = run.services.show_progress(path, "component");
        let mut outcome = execute(run, job, action, cancel);
        outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        if cache && outcome.status == StepStatus::Ok && outcome.detail.get("read_state").is_none() {
            run.cache(action, outcome.clone());
        }
        Ok(outcome)
    };
    let outcome = run.pure(path, "component", preimage, compute)?;
    output(&store, &outcome).inspect_err(|_| run.fail_at(path))
}

fn has_blobs(store: &Store, outcome: &StepOutcome) -> bool {
    [&outcome.stdout, &outcome.output]
        .into_iter()
        .flatten()
        .all(|blob| matches!(store.blob_len(&blob.digest), Ok(Some(_))))
}

/// Everything that decides what the component does.
fn preimage(run: &Run<'_>, job: &Job) -> Result<Value, Stop> {
    let input = match &job.input {
        JobInput::Empty => Value::Null,
        // Small inputs are kept, so that `why` can tell what in them differs.
        JobInput::Bytes(Payload::Bytes(bytes)) if bytes.len() <= INLINE_MAX => {
            json!({ "bytes": run.store.put(bytes).map_err(stopped)?.digest })
        }
        JobInput::Bytes(payload) => json!({ "bytes": Digest::of_reader(payload.open()?)? }),
        JobInput::Items(Items::Stored { blob, .. }) => json!({ "items": blob.digest }),
        JobInput::Items(Items::Memory(items)) => {
            let lines: String = items.iter().map(|item| json::compact(item) + "\n").collect();
            let small = lines.len() <= INLINE_MAX;
            let digest = if small {
                run.store.put(lines.as_bytes()).map_err(stopped)?.digest
            } else {
                Digest::of(lines.as_bytes())
            };
            json!({ "items": digest })
        }
    };
    let tree = |dirs: &[DirGrant]| -> Result<Value, Stop> {
        let digest = |dir: &DirGrant| match tree_digest(&dir.host) {
            // The component's start says so; a replay elsewhere has other means.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        };
        dirs.iter().map(|dir| Ok(json!({ "to": dir.guest, "tree": digest(dir)? }))).collect()
    };
    let env: Map<_, _> = job
        .grants
        .env
        .iter()
        .map(|(name, value)| (name.clone(), json!(Digest::of(value.as_bytes()))))
        .collect();
    let limits = &job.limits;
    Ok(json!({
        "kind": "component",
        "profile": PROFILE,
        "component": job.component.digest().to_hex().as_str(),
        "args": job.args,
        "input": input,
        "grants": {
            "read": tree(&job.grants.read)?,
            "write": tree(&job.grants.write)?,
            "env": env,
            "net": job.grants.net,
            "clock": job.grants.clock,
            "random": job.grants.random,
        },
        "limits": {
            "fuel": limits.fuel, "memory": limits.memory, "tables": limits.tables,
            "instances": limits.instances, "output": limits.output,
        },
    }))
}

/// One digest over the names and contents of everything below a directory.
fn tree_digest(dir: &Path) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut pending = vec![(dir.to_owned(), String::new())];
    while let Some((dir, prefix)) = pending.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&dir)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))?
            .collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                hasher.update(format!("dir {name}\0").as_bytes());
                pending.push((entry.path(), name));
            } else if kind.is_symlink() {
                let to = std::fs::read_link(entry.path())?;
                hasher.update(format!("link {name}\0{}\0", to.display()).as_bytes());
            } else if kind.is_file() {
                let digest = Digest::of_reader(std::fs::File::open(entry.path())?)?;
                hasher.update(format!("file {name}\0{digest}\0").as_bytes());
            }
        }
    }
    Ok(hasher.finalize().into())
}

fn execute(run: &Run<'_>, job: Job, action: Digest, cancel: &CancelToken) -> StepOutcome {
    let sink = Arc::new(Mutex::new(Sink { writer: run.store.blob_writer(), items: None }));
    let stderr = Arc::new(Mutex::new(run.store.blob_writer().limit(job.limits.output)));
    let mut invocation = Invocation::new(json::compact(&job.args), Box::new(Arc::clone(&sink)));
    invocation.input = match input(&job.input) {
        Ok(input) => input,
        Err(error) => {
            return failed_outcome(&StageError::new(format!("cannot read the step's input: {error}")));
        }
    };
    invocation.argv = command_arguments(&job.args);
    invocation.stderr = Box::new(SharedWriter(Arc::clone(&stderr)));
    let mut enforcement = statement(&job);
    invocation.grants = job.grants;
    invocation.limits = job.limits;
    invocation.seed = *action.as_bytes();
    invocation.services =
        Arc::new(RunServices { store: run.store.clone(), run: run.id, scratch: run.scratch() });
    let recording = (!invocation.grants.is_pure() && is_recordable(&job.component))
        .then(|| Arc::new(Mutex::new(Recording::new(&run.store))));
    invocation.trace = recording.clone().map(|recording| Box::new(recording) as Box<dyn HostCallTrace>);
    let token = cancel.clone();
    invocation.cancel = Arc::new(move || token.reason().map(|reason| reason.message()));
    let result = job.component.run(invocation);
    let mut outcome = match result {
        Ok(done) => {
            let mut outcome = StepOutcome::new(StepStatus::Ok);
            outcome.fuel = Some(done.fuel_used);
            outcome.peak_memory = Some(done.peak_memory);
            outcome.detail = json!({ "output_bytes": done.output_bytes, "host_call_count": done.host_calls });
            outcome.exit = Some(done.exit_code);
            if done.read_state {
                // It depends on more than its action says, so no other run may reuse it.
                outcome.detail["read_state"] = json!(true);
            }
            if !done.denied.is_empty() {
                enforcement["denied"] = json!(done.denied);
            }
            if done.exit_code == 0 {
                // Writes become visible now that the step has succeeded.
                outcome.detail["written"] = written(done.writes.list());
                if let Err(error) = done.writes.commit() {
                    outcome.status = StepStatus::Failed;
                    outcome.error = Some(format!("cannot put the step's files in place: {error}"));
                }
            } else {
                let text = done.stderr_tail.trim();
                let said = if text.is_empty() { "it said nothing on stderr" } else { text };
                outcome.status = StepStatus::Failed;
                outcome.error = Some(format!("component failed ({}): {said}", done.exit_code));
            }
            outcome
        }
        Err(error) => failure(&error, cancel),
    };
    outcome.enforcement = enforcement;
    let kept = take(sink).and_then(|sink| {
        let blob = sink.writer.finish()?;
        match sink.items {
            Some(count) => {
                outcome.output = Some(blob);
                outcome.detail["items"] = json!(count);
            }
            None => outcome.stdout = Some(blob),
        }
        outcome.stderr = Some(take(stderr)?.finish()?);
        if let Some(record) = recording.map(take).transpose()?.map(Recording::finish).transpose()?.flatten() {
            outcome.detail["host_calls"] = json!(record.digest);
        }
        Ok(())
    });
    match kept {
        Ok(()) => outcome,
        Err(error) => {
            failed_outcome(&StageError::new(format!("cannot keep the output: {error}")).with_code("store"))
        }
    }
}

/// Whether everything that the component learns from outside is an answer to a
/// call. What arrives on a socket is not.
fn is_recordable(component: &Component) -> bool {
    let raw = ["wasi:sockets/tcp@", "wasi:sockets/udp@"];
    !component.inspect().imports.iter().any(|import| raw.iter().any(|raw| import.starts_with(raw)))
}

/// The files that a step changed, for its outcome.
fn written(files: &[Written]) -> Value {
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

/// Takes back what was lent to the component.
fn take<T>(shared: Arc<Mutex<T>>) -> Result<T, StoreError> {
    let unshared = Arc::try_unwrap(shared).map_err(|_| StoreError::OverLimit { limit: 0 })?;
    Ok(unshared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn failure(error: &RunError, cancel: &CancelToken) -> StepOutcome {
    if matches!(error, RunError::Cancelled { .. }) {
        return match cancel.reason() {
            Some(CancelReason::Timeout(message)) => {
                let mut outcome = failed_outcome(&StageError::new(message).with_code("timeout"));
                outcome.status = StepStatus::TimedOut;
                outcome
            }
            _ => StepOutcome::new(StepStatus::Cancelled),
        };
    }
    let retryable = matches!(error, RunError::Step(step) if step.retryable)
        || matches!(error, RunError::Timeout { .. } | RunError::HostCallTimeout { .. });
    let code = match error {
        RunError::Step(step) => step.code.clone(),
        other => other.name().to_owned(),
    };
    let error = StageError { message: error.to_string(), code: Some(code), permanent: !retryable };
    failed_outcome(&error)
}

/// What was asked and what enforced it, for the outcome.
fn statement(job: &Job) -> Value {
    json!({
        "asked": "component",
        "mechanism": "wasm",
        "pure": job.grants.is_pure(),
        "granted": {
            "read": job.grants.read.iter().map(|dir| format!("{} at {}", dir.host.display(), dir.guest)).collect::<Vec<_>>(),
            "write": job.grants.write.iter().map(|dir| format!("{} at {}", dir.host.display(), dir.guest)).collect::<Vec<_>>(),
            "env": job.grants.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "net": job.grants.net,
            "clock": job.grants.clock,
            "random": job.grants.random,
        },
        "limits": { "fuel": job.limits.fuel, "memory": job.limits.memory, "output": job.limits.output },
        "missing": [],
    })
}

/// A command program gets its arguments as words: `argv: [a, b]`.
fn command_arguments(args: &Map<String, Value>) -> Vec<String> {
    args.get("argv")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |words| words.iter().map(json::js_string).collect())
}

fn input(input: &JobInput) -> io::Result<Input> {
    Ok(match input {
        JobInput::Empty => Input::Empty,
        JobInput::Bytes(payload) => Input::Bytes(payload.open()?),
        JobInput::Items(Items::Memory(items)) => {
            let items = Arc::clone(items);
            let mut next = 0;
            Input::Items(Box::new(std::iter::from_fn(move || {
                let item = items.get(next)?;
                next += 1;
                Some(Ok(json::compact(item)))
            })))
        }
        JobInput::Items(Items::Stored { store, blob, .. }) => {
            let reader = store.0.open_blob(&blob.digest).map_err(io::Error::other)?;
            Input::Items(Box::new(BufReader::with_capacity(64 << 10, reader).lines()))
        }
    })
}

/// An outcome as items or text.
fn output(store: &Store, outcome: &StepOutcome) -> Result<Output, Stop> {
    match outcome.status {
        StepStatus::Ok => {}
        StepStatus::Cancelled => return Err(Stop::Cancelled),
        _ => return Err(Stop::Failed(outcome_error(outcome))),
    }
    let items = outcome.output.map(|blob| items_of(store, blob, outcome)).transpose()?;
    Ok(Output { items, bytes: outcome.stdout.map(|blob| Text::stored(store, blob)) })
}

/// Up to this many bytes of items are parsed at once; more stay in the store.
const SMALL_ITEMS: u64 = 1 << 20;

fn items_of(store: &Store, blob: Blob, outcome: &StepOutcome) -> Result<Items, Stop> {
    let count = outcome.detail.get("items").and_then(Value::as_u64).unwrap_or(0);
    let stored = Items::Stored {
        store: StoreHandle(store.clone()),
        blob,
        count: usize::try_from(count).unwrap_or(usize::MAX),
    };
    if blob.len > SMALL_ITEMS { Ok(stored) } else { Ok(Items::Memory(stored.load()?)) }
}

/// Where compiled code is kept, under the store.
pub(crate) fn code_cache(state_dir: &Path) -> PathBuf {
    state_dir.join("store").join("code")
}
