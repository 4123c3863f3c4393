//! WebAssembly components as steps, and inline JavaScript through the evaluator component.

mod action;
mod grants;
mod inline;
mod loading;
mod ordered;
mod recompute;

use lobster_base::code::Code;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lobster_component::{Grants, Input, Kind, Limits, OpenedDirs, RunError};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::action::ActionRecord;
use crate::binding::Asker;
use crate::env::Env;
use crate::kept_values::name_kept_values;
use crate::kinds::changes;
use crate::kinds::guarded::Maker;
use crate::kinds::pile::Pile;
use crate::overseer::{Profile, RecordedOutside};
use crate::path::StepPath;
use crate::record::{Json, Record, Scope};
use crate::reuse::Reuse;
use crate::run::Run;
use crate::value::InputValue as StepInput;
use crate::value::{Items, StoreHandle, Text};
use crate::workflow::Frame;
use lobster_base::cancel::CancelToken;
use lobster_base::credential::CredentialGrant;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_executor::RecordedCalls;
use lobster_executor::Scratch;
use lobster_executor::{self as execute, Keeper, Prepared, RunServices, command_arguments, failure_outcome};
use lobster_executor::{failed_outcome, note_changed_files, outcome_error};
use lobster_language::plan::{self, ChangesMode, Step, Work};
use lobster_stage::{Payload, StageError, Stop, store_failure};
use lobster_store::{Blob, StepOutcome, StepStatus, Store, StoreError};

use action::ReadDirs;
pub use action::tree_digest;
pub use grants::{component_proposal, denial_error, withhold_undeclared};
use inline::js_args;
#[cfg(test)]
pub(crate) use loading::JS_EVALUATOR;
pub(crate) use loading::of_stage;
use loading::{LoadedProgram, js_evaluator, load, not_loaded};
pub use loading::{js_evaluator_digest, store_component};
pub use lobster_executor::NO_CALLS;
pub use recompute::compute_recorded;

/// The kind of the actions of components.
pub const COMPONENT: &str = "component";

/// A component that is to run once.
pub(crate) struct Job {
    /// The name for people; `None` for the evaluator of `js`.
    pub(crate) name: Option<String>,
    pub(crate) program: LoadedProgram,
    pub(crate) args: Arguments,
    pub(crate) input: JobInput,
    pub(crate) grants: Grants,
    /// The directories of the grants, as opened for the decision.
    pub(crate) opened: Option<OpenedDirs>,
    pub(crate) limits: Limits,
    /// Granted secrets by their variables.
    pub(crate) secrets: BTreeMap<String, String>,
    /// Secrets that are added to the component's requests and never reach the component.
    pub(crate) credentials: Vec<CredentialGrant>,
    /// Grants that the component does not get, each with the file that refused it.
    pub(crate) withheld: Vec<String>,
    pub(crate) asker: Asker,
    pub(crate) reuse: Reuse,
    pub(crate) idempotent: bool,
    /// Mode for its changes to files.
    pub(crate) changes: ChangesMode,
    /// The pending changes of earlier steps, to which its own are added.
    pub(crate) pile: Arc<Pile>,
    /// True if its changes are not held back for later steps.
    pub(crate) settles: bool,
}

/// The arguments of a component.
pub(crate) struct Arguments {
    members: Members,
    /// The text that the component gets: the members in their order, and numbers as they were written.
    text: String,
}

/// Arguments by name. They may be large, so they are shared with the steps whose results they are.
#[derive(Default)]
pub(crate) struct Members(Vec<(String, Member)>);

/// One argument.
pub(crate) enum Member {
    Value(Arc<Value>),
    Object(Members),
}

impl Members {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        match self.0.iter().find(|(known, _)| known == name)? {
            (_, Member::Value(value)) => Some(value),
            (_, Member::Object(_)) => None,
        }
    }
}

impl From<Map<String, Value>> for Members {
    fn from(members: Map<String, Value>) -> Self {
        Self(members.into_iter().map(|(name, value)| (name, Member::Value(Arc::new(value)))).collect())
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, member)| (name, member)))
    }
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.as_ref().serialize(serializer),
            Self::Object(members) => members.serialize(serializer),
        }
    }
}

impl From<Members> for Arguments {
    fn from(members: Members) -> Self {
        Self { text: json::compact(&members), members }
    }
}

impl From<Map<String, Value>> for Arguments {
    fn from(members: Map<String, Value>) -> Self {
        Members::from(members).into()
    }
}

impl Job {
    /// The profile it runs with; a replay uses the recorded one.
    fn profile(&self) -> Profile {
        match (self.program.recorded, &self.name) {
            (Some((_, profile)), _) => profile,
            (None, Some(_)) => Profile::Component,
            (None, None) => Profile::Js,
        }
    }
}

/// The input of a component.
pub(crate) enum JobInput {
    Empty,
    Bytes(Payload),
    Items(Items),
}

/// The output of a component.
pub(crate) struct ComponentOutput {
    pub(crate) items: Option<Items>,
    pub(crate) bytes: Option<Text>,
}

/// A `component:` or `js:` step.
pub(crate) fn run_step(
    frame: &Frame<'_>,
    step: &Step,
    scope: &Scope<'_>,
    path: &StepPath,
    env: &Env,
    pile: &Arc<Pile>,
    cancel: &CancelToken,
) -> Result<Record, Stop> {
    let run = frame.run;
    let patience = loading::compile_patience(cancel);
    let (program, args) = match &step.work {
        Work::Component { component, args } => {
            let named = frame.fill_template(component, scope, path)?;
            let base = frame.workflow.file.parent().unwrap_or(Path::new("/"));
            let pinned = frame.workflow.components.get(component).filter(|_| *component == named);
            let loaded = load(run, path, base, &named, pinned, &patience).map_err(|error| {
                run.record_failure(path);
                not_loaded(&error, &format!("Workflow step {} component {named}", step.id), cancel)
            })?;
            let filled = fill_all(frame, &Value::Object(args.clone()), scope, path)?;
            (loaded, filled.as_object().cloned().unwrap_or_default().into())
        }
        Work::Js(code) => {
            let loaded = js_evaluator(run, path, &patience).map_err(|error| {
                run.record_failure(path);
                not_loaded(&error, &format!("Workflow step {} js", step.id), cancel)
            })?;
            (loaded, js_args(frame, code, step, scope, path)?)
        }
        _ => return Ok(Record::new(&step.id)),
    };
    let input = match &step.work {
        // The code gets its input among its arguments.
        Work::Js(_) => JobInput::Empty,
        _ => component_input(frame, step, scope, path)?,
    };
    let empty = plan::Grants::default();
    let wanted = step.extras.grants.as_ref().unwrap_or(&empty);
    let base = frame.workflow.file.parent().unwrap_or(Path::new("/"));
    let job = Job {
        name: match &step.work {
            Work::Component { component, .. } => Some(component.clone()),
            _ => None,
        },
        grants: grants::of_step(frame, wanted, base, env, scope, path)?,
        opened: None,
        secrets: env.secrets().clone(),
        credentials: env.credentials().to_vec(),
        limits: grants::step_limits(step),
        withheld: Vec::new(),
        asker: Asker::Step(step.id.clone()),
        reuse: Reuse::from_extras(&step.extras),
        idempotent: step.extras.idempotent,
        changes: frame.changes_of(step),
        pile: Arc::clone(pile),
        settles: false,
        program,
        args,
        input,
    };
    let done = run_component(run, path, job, cancel).map_err(|stop| add_step_name(step, stop))?;
    output_record(frame, step, done)
}

/// True if a step may read or keep values of the run, or if that cannot be known before its turn comes.
pub(crate) fn may_use_values(frame: &Frame<'_>, step: &Step, path: &StepPath, cancel: &CancelToken) -> bool {
    // Code in the evaluator reaches nothing outside.
    let Work::Component { component, .. } = &step.work else { return false };
    let Some(pinned) = frame.workflow.components.get(component) else { return true };
    let patience = loading::compile_patience(cancel);
    let base = frame.workflow.file.parent().unwrap_or(Path::new("/"));
    load(frame.run, path, base, component, Some(pinned), &patience)
        .map_or(true, |program| program.component.uses_values())
}

/// The record of a component's output for later steps.
pub(crate) fn output_record(frame: &Frame<'_>, step: &Step, output: ComponentOutput) -> Result<Record, Stop> {
    let mut record = Record::new(&step.id);
    match output {
        ComponentOutput { items: Some(items), .. } => {
            record.stdout = Some(frame.text_of(&items)?);
            record.json = if items.len() == 0 { Json::from_value(json!([])) } else { Json::of_items(items) };
        }
        ComponentOutput { bytes: Some(text), .. } => {
            record.stdout = Some(text);
            record.json = Json::of_stdout();
        }
        ComponentOutput { .. } => record.stdout = Some(Text::inline("")),
    }
    Ok(record)
}

/// The input of a component step; a list is passed item by item.
fn component_input(
    frame: &Frame<'_>,
    step: &Step,
    scope: &Scope<'_>,
    path: &StepPath,
) -> Result<JobInput, Stop> {
    if let Some(items) = frame.large_stdin(step, scope) {
        return Ok(JobInput::Items(items));
    }
    Ok(match frame.step_input(step, scope, path)? {
        StepInput::Nothing => JobInput::Empty,
        StepInput::Text(text) => JobInput::Bytes(text.to_payload().map_err(store_failure)?),
        StepInput::Json(value) => match &*value {
            Value::Array(items) => JobInput::Items(items.clone().into()),
            single => JobInput::Items(vec![single.clone()].into()),
        },
    })
}

/// Adds the step to a failure, whose own message names only the work.
fn add_step_name(step: &Step, stop: Stop) -> Stop {
    let kind = if matches!(step.work, Work::Js(_)) { "js" } else { "component" };
    match stop {
        Stop::Failed(error) => {
            let message = format!("Workflow step {} {kind}: {}", step.id, error.message);
            Stop::Failed(error.with_message(message))
        }
        other => other,
    }
}

/// Fills in the templates in all text inside a value.
pub(crate) fn fill_all(
    frame: &Frame<'_>,
    value: &Value,
    scope: &Scope<'_>,
    path: &StepPath,
) -> Result<Value, Stop> {
    Ok(match value {
        Value::String(text) => {
            let filled =
                frame.resolve_text(text, scope).map_err(|error| frame.expression_failure(path, &error))?;
            filled.load_value()?.map_or(Value::Null, Arc::unwrap_or_clone)
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

/// Runs a component once per run, or takes the outcome of the same pure action.
pub(crate) fn run_component(
    run: &Run<'_>,
    path: &StepPath,
    mut job: Job,
    cancel: &CancelToken,
) -> Result<ComponentOutput, Stop> {
    let decision = grants::admit(run, path, &mut job, cancel)?;
    if !(job.grants.read.is_empty() && job.grants.write.is_empty()) {
        job.pile.make_way_unlayered(run, path, cancel)?;
    }
    if let Some(overseer) = run.overseer() {
        for (index, dir) in job.grants.read.iter_mut().enumerate() {
            dir.host =
                overseer.granted_directory(path, index).unwrap_or_else(|| std::mem::take(&mut dir.host));
        }
    }
    // An action only names its secrets, so it does not identify an outcome that depends on one.
    let pure = job.grants.is_pure()
        && job.grants.write.is_empty()
        && job.secrets.is_empty()
        && job.credentials.is_empty();
    let preimage = action::build_preimage(run, path, &job)?;
    let action = preimage.digest;
    let read_dirs = run.is_journaled().then(|| ReadDirs::of_job(&job, &preimage)).flatten();
    let as_read = |mut outcome: StepOutcome| {
        if read_dirs.as_ref().is_some_and(|dirs| !dirs.is_unchanged(&run.services.files)) {
            note_changed_files(&mut outcome);
        }
        outcome
    };
    let store = run.store.clone();
    if !pure {
        let (mode, settles) = (changes::stricter_mode(run, job.changes), job.settles);
        let (pile, asker) = (Arc::clone(&job.pile), job.asker.clone());
        let granted: Vec<PathBuf> = job.grants.write.iter().map(|dir| dir.host.clone()).collect();
        let on_record = run.overseer().and_then(|overseer| overseer.recorded_outside(path));
        let record = ActionRecord {
            kind: COMPONENT.to_owned(),
            preimage,
            decision,
            idempotent: job.idempotent,
            on_record,
            variables: Arc::new(job.grants.env.clone().into_iter().collect()),
        };
        let reuse =
            if job.secrets.is_empty() && job.credentials.is_empty() { job.reuse } else { Reuse::Never };
        let perform = || match on_record {
            Some(outside) => execute_with_recorded_calls(run, job, action, outside, cancel),
            None => as_read(ordered::carry_out(run, path, job, action, cancel)),
        };
        let decode =
            |outcome: &StepOutcome| Ok((load_output(&store, outcome)?, changes::of_outcome(outcome)));
        let (output, set) = match reuse.covers(false) {
            true => run.perform_once_cached(path, &record, (action, reuse), perform, || true, decode)?,
            false => run.perform_once(path, &record, perform, decode)?,
        };
        if let Some(set) = set {
            let taken = changes::check_made(run, &set, Maker::Component, &granted)
                .map_err(Stop::Failed)
                .and_then(|()| pile.add_changes(run, path, set, mode, asker));
            taken.inspect_err(|_| run.record_failure(path))?;
            if settles && mode == ChangesMode::Review {
                pile.commit_waiting(run, cancel)?;
            }
        }
        return Ok(output);
    }
    let reuse = job.reuse;
    let cache = reuse.covers(true) && run.is_journaled();
    let compute = || {
        if cache
            && run.store.may_be_cached(&action)
            && let Some(outcome) = run.cached_outcome(&action, reuse)?
        {
            return Ok(outcome);
        }
        let begun = std::time::Instant::now();
        let _shown = run.services.show_progress(path, "component");
        let mut outcome = as_read(run_in_process(run, job, action, None, run.scratch(), cancel));
        outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        if cache && run.is_lasting(&outcome) {
            run.cache_outcome(action, &outcome, reuse);
        }
        Ok(outcome)
    };
    let outcome = run.compute_once(path, COMPONENT, preimage, decision, compute)?;
    load_output(&store, &outcome).inspect_err(|_| run.record_failure(path))
}

/// Executes an effect again with its recorded answers. A call that is not the next one in the record is a failure.
fn execute_with_recorded_calls(
    run: &Run<'_>,
    job: Job,
    action: Digest,
    outside: RecordedOutside,
    cancel: &CancelToken,
) -> StepOutcome {
    let calls = match outside {
        RecordedOutside::Nothing => Ok(RecordedCalls::without_calls()),
        RecordedOutside::Calls(record) => RecordedCalls::open(&run.store, &record),
    };
    let calls = match calls {
        Ok(calls) => Arc::new(Mutex::new(calls)),
        Err(error) => return failed_outcome(&StageError::permanent_from(error).with_code(Code::Diverged)),
    };
    let outcome = run_in_process(run, job, action, Some(Arc::clone(&calls)), run.scratch(), cancel);
    if Code::Diverged.matches_name(outcome.code.as_deref()) {
        return outcome;
    }
    match lobster_base::sync::lock(&calls).check_complete() {
        Ok(()) => outcome,
        Err(message) => failed_outcome(&StageError::permanent(message).with_code(Code::Diverged)),
    }
}

/// Runs a component in this process: a pure one, or an effect with recorded answers.
fn run_in_process(
    run: &Run<'_>,
    mut job: Job,
    action: Digest,
    recorded: Option<Arc<Mutex<RecordedCalls>>>,
    scratch: Option<Scratch>,
    cancel: &CancelToken,
) -> StepOutcome {
    let input = match open_input(&job.input) {
        Ok(input) => input,
        Err(error) => {
            return failed_outcome(&StageError::new(format!("cannot read the step's input: {error}")));
        }
    };
    let argv = match checked_argv(&job) {
        Ok(argv) => argv,
        Err(error) => return failure_outcome(&error, cancel),
    };
    // Only their text is used from here on.
    job.args.members = Members::default();
    let secrets = match run.services.secret_variables(&job.secrets) {
        Ok(variables) => variables,
        Err(error) => {
            return failed_outcome(&StageError::permanent_from(error).with_code(Code::Secret));
        }
    };
    let (enforcement, withheld) = (grants::enforcement_statement(&job), grants::told_withheld(&job));
    let described_limits = !job.profile().is_js();
    job.grants.env.retain(|(name, _)| !job.secrets.contains_key(name));
    job.grants.env.extend(secrets);
    let values = scratch.map_or(Keeper::Run(run.id), Keeper::Scratch);
    let services = Arc::new(RunServices::new(run.store.clone(), values));
    let work = Prepared {
        component: job.program.component,
        args: job.args.text,
        argv,
        input,
        grants: job.grants,
        opened: job.opened,
        // A recomputed component needs no host: it has recorded answers, or makes no calls.
        credentials: Vec::new(),
        limits: job.limits,
        described_limits,
        action,
        enforcement,
        withheld,
        recorded,
        services: Arc::clone(&services),
    };
    let mut outcome = execute::run_component(work, &run.store, cancel);
    match services.kept_values() {
        Ok(None) => {}
        Ok(Some(values)) => name_kept_values(&mut outcome, values),
        Err(error) => return values_not_kept(&error),
    }
    outcome
}

fn values_not_kept(error: &StoreError) -> StepOutcome {
    let message = format!("cannot keep the values of the step: {error}");
    failed_outcome(&StageError::new(message).with_code(Code::Store))
}

/// The command line of a program that is not a step, whose arguments are checked.
fn checked_argv(job: &Job) -> Result<Vec<String>, RunError> {
    let component = &job.program.component;
    if component.kind() == Kind::Step {
        return Ok(Vec::new());
    }
    // Arguments of recorded runs are accepted unchecked.
    if job.program.recorded.is_none() {
        component.check_args(&job.args.text)?;
    }
    Ok(command_arguments(job.args.members.get("argv")))
}

fn open_input(input: &JobInput) -> io::Result<Input> {
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
pub(crate) fn load_output(store: &Store, outcome: &StepOutcome) -> Result<ComponentOutput, Stop> {
    match outcome.status {
        StepStatus::Ok => {}
        StepStatus::Cancelled => return Err(Stop::Cancelled),
        _ => return Err(Stop::Failed(outcome_error(outcome))),
    }
    let items = outcome.output.map(|blob| items_of(store, blob, outcome)).transpose()?;
    Ok(ComponentOutput { items, bytes: outcome.stdout.map(|blob| Text::from_blob(store, blob)) })
}

/// Up to this many bytes of items are parsed at once; a longer list stays in the store.
const SMALL_ITEMS: u64 = 1 << 20;

fn items_of(store: &Store, blob: Blob, outcome: &StepOutcome) -> Result<Items, Stop> {
    let count = outcome.detail.get("items").and_then(Value::as_u64).unwrap_or(0);
    let stored = Items::Stored {
        store: StoreHandle(store.clone()),
        blob,
        count: usize::try_from(count).unwrap_or(usize::MAX),
    };
    if blob.len > SMALL_ITEMS { Ok(stored) } else { Ok(Items::Memory(stored.load_all()?)) }
}
