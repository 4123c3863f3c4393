//! `lobster fork`: a new run that reuses each outcome of an earlier run whose action is still the same.
//!
//! If an action changes, its step runs again. If its result turns out equal nevertheless, the actions of
//! later steps are unchanged and their outcomes are reused. This early cut-off needs no special rule.
//!
//! Answers of people are reused together with the outcomes that depend on them. A question is asked again
//! before the first effect after it that runs again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::changes::SUFFIX as COMMIT_SUFFIX;
use super::recording::Recording;
use crate::resume::sound_journal;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::place::is_within;
use lobster_base::sync::lock;
use lobster_engine::binding::{Binding, KnownAnswer};
use lobster_engine::envelope::Failure;
use lobster_engine::kinds::changes::{has_changes, is_still_committed};
use lobster_engine::overseer::{Act, Known, Overseer};
use lobster_engine::path::StepPath;
use lobster_engine::perform::output_of;
use lobster_engine::run::{Interrupted, Run, Task};
use lobster_engine::runtime::{Planned, RunRequest, RunResult, Runtime, Target, in_one_line, keep_task};
use lobster_executor::NativeProfile;
use lobster_executor::follows_from_action;
use lobster_language::plan::{Budget, Plan};
use lobster_models::cost::{PaidCall, paid_calls};
use lobster_models::pricing::Pricing;
use lobster_stage::{Stop, store_failure};
use lobster_store::{Blob, Event, Record, RunId, StepOutcome, StepStatus, Store, StoreError};

/// The run to fork, and the changes for the new run.
#[derive(Clone, Debug, Default)]
pub struct ForkRequest {
    /// The run: an id, or the beginning or end of one.
    pub run: String,
    /// Steps that run again even if their actions are unchanged.
    pub from: Vec<String>,
    /// Arguments that replace the recorded ones.
    pub set: Map<String, Value>,
    /// Steps whose results are replaced by the bytes given.
    pub edit: Vec<(String, Vec<u8>)>,
    /// Another version of the workflow file.
    pub workflow: Option<PathBuf>,
}

/// Preview of a fork, as far as it can be known beforehand.
#[derive(Clone, Debug, Serialize)]
pub struct ForkPlan {
    pub parent: RunId,
    /// Steps whose outcomes are reused.
    pub reused: Vec<String>,
    /// Steps whose results were edited.
    pub edited: Vec<String>,
    /// Questions that will be asked, even though the earlier run may have an answer.
    pub asked: Vec<String>,
    /// Steps that will run. If an effect among them gives another result, later steps that read it will also
    /// run.
    pub done: Vec<String>,
    /// The effects among them.
    pub effects: Vec<DoneAnew>,
    /// True if more steps may follow that the earlier run never reached.
    pub more: bool,
    /// Reason why it will fail, if that does not depend on the results of effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
    /// Limit for its own model calls, of which nothing is used at its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(skip)]
    planned: Planned,
    #[serde(skip)]
    terms: Terms,
}

/// An effect that a fork executes again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DoneAnew {
    pub step: String,
    /// Short description: the command, or another description of the effect.
    pub action: String,
    /// Model calls that the earlier run paid for at this step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PaidCall>,
}

/// Settings of a fork, kept in its first event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Terms {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    from: BTreeSet<String>,
    /// Blobs of the replaced results.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    edit: BTreeMap<String, Blob>,
}

/// Previews a fork, without running or recording anything.
///
/// # Errors
/// If the run, a step or an argument is not known, or if the plan does not load.
pub fn plan_fork(runtime: &Runtime, request: &ForkRequest) -> Result<ForkPlan, Failure> {
    let store = runtime.store()?;
    let parent = store.find_run(&request.run).map_err(|error| Failure::parse_error(error.to_string()))?;
    let journal = sound_journal(&store, parent)?;
    let recording = Recording::from_journal(&journal)?;
    let planned = plan_run(runtime, &store, &recording, request)?;
    let terms = resolve_terms(&store, &recording, request)?;
    let task = keep_task(&store, &planned)?;
    let (pricing, _) = Pricing::configured(|name| runtime.services.env.get(name));
    let fork = Arc::new(Fork::new(&store, &journal, &terms, task, Stage::Preview(pricing))?);
    let services = super::replay::replay_services(runtime, &store, &recording);
    let mut run = Run::from_journal(&services, store, None, parent, task, &[], Interrupted::Ask);
    run.policy = runtime.services.policy_digest();
    let run = run.with_overseer(Arc::<Fork>::clone(&fork));
    let result = output_of(&run, &planned.plan, &planned.args);
    let told = std::mem::take(&mut *lock(&fork.told));
    let fails = match &result {
        Err(Stop::Failed(error)) if told.effects.is_empty() => Some(error.message.clone()),
        _ => None,
    };
    Ok(ForkPlan {
        parent,
        reused: told.reused,
        edited: told.edited,
        asked: told.asked,
        done: told.done,
        effects: told.effects,
        more: result.is_err() && fails.is_none(),
        fails,
        budget: match &planned.plan {
            Plan::Workflow(workflow) => workflow.budget.clone(),
            Plan::Pipeline(_) => None,
        },
        planned,
        terms,
    })
}

/// Runs a fork.
pub fn execute_fork(runtime: &Runtime, plan: &ForkPlan) -> RunResult {
    run_fork(runtime, plan).unwrap_or_else(RunResult::from)
}

fn run_fork(runtime: &Runtime, plan: &ForkPlan) -> Result<RunResult, Failure> {
    let store = runtime.store()?;
    let journal = sound_journal(&store, plan.parent)?;
    runtime.prepare_secrets(&plan.planned.plan, &plan.planned.args)?;
    let mut run = runtime.begin_run(&plan.planned, Some(plan.parent))?;
    let fork = Fork::new(&store, &journal, &plan.terms, run.task, Stage::Real)?;
    let detail = serde_json::json!(plan.terms);
    let note = Event::Note { path: None, text: FORK_NOTE.to_owned(), detail };
    run.append_unsynced(note).map_err(|_| Failure::new(Code::Store, "the fork could not be recorded"))?;
    run = run.with_overseer(Arc::new(fork));
    let envelope = lobster_engine::execute_plan(&run, &plan.planned.plan, &plan.planned.args);
    Ok(RunResult { run: Some(run.id), envelope, rendered: run.has_rendered() })
}

fn plan_run(
    runtime: &Runtime,
    store: &Store,
    recording: &Recording,
    request: &ForkRequest,
) -> Result<Planned, Failure> {
    let mut args = recording.read_arguments(store)?;
    let recorded = recording.read_plan(store)?;
    let mut given = given_args(recording, &recorded, &args);
    let file = match (&request.workflow, recorded) {
        (Some(file), _) => file.clone(),
        (None, Plan::Workflow(workflow)) if request.set.is_empty() => {
            return Ok(Planned { plan: Plan::Workflow(workflow), args, given, name: recording.name.clone() });
        }
        (None, Plan::Workflow(workflow)) => {
            let before = given.clone();
            given.extend(request.set.keys().cloned());
            args.extend(request.set.clone());
            let args = lobster_language::workflow::bind_args(&workflow, &Value::Object(args))
                .map_err(|error| Failure::new(Code::WorkflowArguments, error.to_string()))?;
            let planned =
                Planned { plan: Plan::Workflow(workflow), args, given, name: recording.name.clone() };
            return refuse_undeclared(planned, request, &before);
        }
        (None, Plan::Pipeline(_)) if !request.set.is_empty() => {
            return Err(Failure::parse_error("a pipeline has no arguments to set"));
        }
        (None, plan @ Plan::Pipeline(_)) => {
            return Ok(Planned { plan, args, given, name: recording.name.clone() });
        }
    };
    // The other version of the file may have different defaults.
    args.retain(|name, _| given.contains(name));
    args.extend(request.set.clone());
    let planned =
        runtime.plan_run(&RunRequest { target: Target::File(file), args: Some(Value::Object(args)) })?;
    refuse_undeclared(planned, request, &given)
}

/// The same plan, unless an argument is set that neither the workflow nor the earlier run has.
fn refuse_undeclared(
    planned: Planned,
    request: &ForkRequest,
    before: &BTreeSet<String>,
) -> Result<Planned, Failure> {
    let set = request.set.keys().filter(|name| !before.contains(*name));
    planned.refuse_undeclared(set.map(String::as_str))?;
    Ok(planned)
}

/// The arguments that were given to the recorded run. Records of earlier versions do not contain this list;
/// there, an argument equal to its default is treated as not given.
fn given_args(recording: &Recording, plan: &Plan, args: &Map<String, Value>) -> BTreeSet<String> {
    if let Some(given) = &recording.given_args {
        return given.clone();
    }
    let Plan::Workflow(workflow) = plan else { return BTreeSet::new() };
    let is_default = |name: &str, value: &Value| {
        workflow.args.iter().any(|spec| spec.name == name && spec.default.as_ref() == Some(value))
    };
    args.iter().filter(|(name, value)| !is_default(name, value)).map(|(name, _)| name.clone()).collect()
}

fn resolve_terms(store: &Store, recording: &Recording, request: &ForkRequest) -> Result<Terms, Failure> {
    let from = request.from.iter().map(|step| known_place(recording, step)).collect::<Result<_, _>>()?;
    let mut edit = BTreeMap::new();
    for (step, bytes) in &request.edit {
        let path = recording.resolve_step(step)?;
        let recorded = recording.steps.get(&path).and_then(|step| step.outcome.as_ref());
        let outcome = recorded
            .ok_or_else(|| Failure::parse_error(format!("step '{path}' has no recorded result to edit")))?;
        let blob = store.put_blob(bytes)?;
        edited_outcome(store, outcome, blob).map_err(|error| {
            Failure::parse_error(format!("edit of '{path}' is invalid: {}", error.message))
        })?;
        edit.insert(path, blob);
    }
    Ok(Terms { from, edit })
}

/// A step that executed an action, itself or through the steps inside it.
fn known_place(recording: &Recording, step: &str) -> Result<String, Failure> {
    if recording.steps.keys().any(|path| is_within(path, step)) {
        return Ok(step.to_owned());
    }
    recording.resolve_step(step)
}

/// Name of the note with the settings of a fork.
pub const FORK_NOTE: &str = "fork";

/// The overseer of a fork that continues after a pause or a crash.
pub(crate) fn overseer_of_fork(
    store: &Store,
    journal: &[Record],
) -> Result<Option<Arc<dyn Overseer>>, Failure> {
    let parent = journal.first().and_then(|record| match &record.event {
        Event::RunStarted { parent, .. } => *parent,
        _ => None,
    });
    let terms = journal.iter().find_map(|record| match &record.event {
        Event::Note { path: None, text, detail } if text == FORK_NOTE => Some(detail.clone()),
        _ => None,
    });
    let (Some(parent), Some(terms)) = (parent, terms) else { return Ok(None) };
    let terms: Terms = serde_json::from_value(terms)
        .map_err(|error| Failure::new(Code::Recording, format!("the terms of the fork: {error}")))?;
    // A parent that has been collected meanwhile cannot provide anything.
    if matches!(store.run(parent), Err(StoreError::UnknownRun(_))) {
        return Ok(None);
    }
    let parents = sound_journal(store, parent)?;
    let task = Recording::from_journal(journal)?.task;
    let fork = Fork::new(store, &parents, &terms, task, Stage::Real)?;
    journal.iter().for_each(|record| fork.note_taken(record));
    Ok(Some(Arc::new(fork)))
}

enum Stage {
    /// Finds out which steps would run, and their prices, without running any.
    Preview(Pricing),
    Real,
}

struct Fork {
    stage: Stage,
    store: Store,
    recording: Recording,
    /// Places of successful steps by their actions. Only steps whose outcomes follow from the action are
    /// included.
    by_action: HashMap<Digest, Vec<String>>,
    answers: HashMap<StepPath, KnownAnswer>,
    terms: Terms,
    /// The plan and arguments of the fork.
    task: Task,
    taken: Mutex<Taken>,
    told: Mutex<Told>,
}

/// Outcomes of the earlier run that have been reused.
#[derive(Default)]
struct Taken {
    /// Their places in the earlier run; each is reused once.
    used: HashSet<String>,
    /// The same by the places of the fork that reused them.
    at: HashMap<String, String>,
}

impl Taken {
    fn mark_used(&mut self, from: String, at: &str) {
        self.at.insert(at.to_owned(), from.clone());
        self.used.insert(from);
    }
}

#[derive(Default)]
struct Told {
    reused: Vec<String>,
    edited: Vec<String>,
    done: Vec<String>,
    effects: Vec<DoneAnew>,
    asked: Vec<String>,
    /// Questions whose answers are reused unless an effect comes after them.
    answered: Vec<String>,
}

/// Adds each path only once.
fn add_once(list: &mut Vec<String>, path: &str) {
    if !list.iter().any(|other| other == path) {
        list.push(path.to_owned());
    }
}

impl Terms {
    /// True if this step must run again even though its action is the same.
    fn is_from(&self, path: &str) -> bool {
        self.from.iter().any(|place| is_within(path, place))
    }
}

impl Fork {
    fn new(
        store: &Store,
        parent: &[Record],
        terms: &Terms,
        task: Task,
        stage: Stage,
    ) -> Result<Self, Failure> {
        let recording = Recording::from_journal(parent)?;
        // File changes from another store are not committed here, so such a step runs again.
        let is_imported = store.imported_records(recording.run)?.is_some();
        let mut by_action: HashMap<Digest, Vec<String>> = HashMap::new();
        for (path, step) in recording.in_order() {
            let is_good = |outcome: &Arc<StepOutcome>| {
                outcome.status == StepStatus::Ok
                    && follows_from_action(outcome, step.effect)
                    && !(is_imported && (path.ends_with(COMMIT_SUFFIX) || has_changes(outcome)))
            };
            let is_good = step.outcome.as_ref().is_some_and(is_good);
            if let (Some(action), true, false) = (step.action, is_good, terms.is_from(path)) {
                by_action.entry(action).or_default().push(path.to_owned());
            }
        }
        Ok(Self {
            stage,
            store: store.clone(),
            recording,
            by_action,
            answers: lobster_engine::recall::recorded_answers(parent),
            terms: terms.clone(),
            task,
            taken: Mutex::default(),
            told: Mutex::default(),
        })
    }

    /// An outcome of the same action, preferably from the same place. Returns `None` for a step that must run
    /// again.
    fn reuse_outcome(&self, act: &Act<'_>) -> Option<StepOutcome> {
        if self.terms.is_from(act.path.as_str()) {
            return None;
        }
        let mut taken = lock(&self.taken);
        let path = self.free_place(&taken.used, &act.digest, act.path.as_str())?.clone();
        let outcome = self.recording.steps.get(&path)?.outcome.as_ref()?;
        // Changes that were undone or edited since are committed again, or are a conflict.
        if path.ends_with(COMMIT_SUFFIX) && !is_still_committed(&self.store, outcome) {
            return None;
        }
        taken.mark_used(path, act.path.as_str());
        Some(StepOutcome { cached: true, ..StepOutcome::clone(outcome) })
    }

    /// The place whose outcome is reused for this action at `place`: the same place if it is free.
    fn free_place(&self, used: &HashSet<String>, action: &Digest, place: &str) -> Option<&String> {
        let candidates = self.by_action.get(action)?;
        let free = |path: &&String| !used.contains(*path);
        let same_place = candidates.iter().find(|path| *path == place).filter(free);
        same_place.or_else(|| candidates.iter().find(free))
    }

    /// Records the outcomes that an earlier execution of the fork reused.
    fn note_taken(&self, record: &Record) {
        let (path, action, detail) = match &record.event {
            Event::StepStarted { path, action: Some(action), detail, .. } => (path, action, detail),
            Event::StepEnded { path, begun: Some(begun), .. } => (path, &begun.action, &begun.detail),
            _ => return,
        };
        if detail["reused"] != true {
            return;
        }
        let mut taken = lock(&self.taken);
        let from = match detail.get("from") {
            Some(from) => from.as_str().map(str::to_owned),
            // Records of earlier versions lack it, so it is determined by the same rule as then.
            None if self.terms.edit.contains_key(path) => None,
            None => self.free_place(&taken.used, action, path).cloned(),
        };
        if let Some(from) = from {
            taken.mark_used(from, path);
        }
    }

    fn known_outcome(&self, act: &Act<'_>, effect: bool, known: Known) -> Result<Known, Stop> {
        if known.is_some() {
            return Ok(known);
        }
        let path = act.path.as_str();
        if let Some(blob) = self.terms.edit.get(path) {
            add_once(&mut lock(&self.told).edited, path);
            let recorded = self.recording.steps.get(path).and_then(|step| step.outcome.clone());
            let recorded = recorded.unwrap_or_else(|| StepOutcome::new(StepStatus::Ok).into());
            let edited = edited_outcome(&self.store, &recorded, *blob)
                .map_err(|error| store_failure(error.message))?;
            return Ok(Some(edited.into()));
        }
        if let Some(outcome) = self.reuse_outcome(act) {
            add_once(&mut lock(&self.told).reused, path);
            return Ok(Some(outcome.into()));
        }
        let Stage::Preview(pricing) = &self.stage else { return Ok(None) };
        let mut told = lock(&self.told);
        add_once(&mut told.done, path);
        if !effect {
            // It is computed, because its result decides which other steps run again.
            return Ok(None);
        }
        let recorded = self.recording.steps.get(path).and_then(|step| step.outcome.clone());
        if !told.effects.iter().any(|other| other.step == path) {
            let calls =
                recorded.as_ref().map_or_else(Vec::new, |outcome| paid_calls(&outcome.value, pricing));
            told.effects.push(DoneAnew {
                step: path.to_owned(),
                action: in_short(&act.preimage.to_json()),
                calls,
            });
            for asked in std::mem::take(&mut told.answered) {
                add_once(&mut told.asked, &asked);
            }
        }
        // Assumes the same result as before, so that the preview shows the steps that will certainly run.
        recorded.map(Some).ok_or(Stop::Interrupted)
    }
}

impl Overseer for Fork {
    fn is_journaled(&self) -> bool {
        matches!(self.stage, Stage::Real)
    }

    fn replace_effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        self.known_outcome(act, true, known)
    }

    fn replace_pure(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        self.known_outcome(act, false, known)
    }

    fn native_profile(&self, path: &StepPath) -> Option<NativeProfile> {
        self.recording.read_preimage(&self.store, path.as_str()).as_ref().map(NativeProfile::of_action)
    }

    fn taken_from(&self, path: &StepPath) -> Option<String> {
        lock(&self.taken).at.get(path.as_str()).cloned()
    }

    fn earlier_decision(&self, path: &StepPath) -> Option<Value> {
        let place = path.as_str();
        self.recording.waits.get(place).filter(|_| !self.terms.is_from(place)).cloned()
    }

    fn wants_anew(&self, path: &StepPath) -> bool {
        self.terms.is_from(path.as_str())
    }

    /// An answer is valid only for the same question, items, plan, arguments and policy.
    fn replace_answer(
        &self,
        path: &StepPath,
        binding: &Binding,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop> {
        if known.is_some() {
            return Ok(known);
        }
        let same_args = self.recording.task.args == self.task.args;
        let given_to_this = |answer: &&KnownAnswer| {
            answer.binding == binding.digest || (same_args && answer.binding == binding.without_args)
        };
        let mut answer = self.answers.get(path);
        if let Stage::Preview(_) = self.stage {
            // Assumes the same answer as before.
            let mut told = lock(&self.told);
            let holds = answer.as_ref().is_some_and(given_to_this);
            add_once(if holds { &mut told.answered } else { &mut told.asked }, path.as_str());
        } else {
            answer = answer.filter(given_to_this);
        }
        Ok(answer.map(|answer| KnownAnswer {
            from: answer.from.or(Some(self.recording.run)),
            binding: binding.digest,
            ..answer.clone()
        }))
    }
}

/// An action in one line: the command, or its kind and the main details.
fn in_short(action: &Value) -> String {
    const MAX: usize = 100;
    let words: Vec<&str> =
        action["argv"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = match words.as_slice() {
        [_, "-c" | "-lc", text] => (*text).to_owned(),
        [] => {
            let kind = action["kind"].as_str().unwrap_or_default();
            match (action["component"].as_str(), action.get("detail"), action.get("tool")) {
                (Some(digest), _, _) => format!("{kind} blake3:{}…", digest.get(..12).unwrap_or(digest)),
                (_, Some(detail), _) => match detail["url"].as_str() {
                    Some(url) => {
                        let model = ["/body/model", "/body/args/model"]
                            .iter()
                            .find_map(|at| detail.pointer(at)?.as_str());
                        format!("{kind} {} at {url}", model.unwrap_or("default model"))
                    }
                    None => format!("{kind} {}", json::compact(detail)),
                },
                (_, _, Some(tool)) => {
                    format!("{kind} {} {}", json::js_string(tool), json::compact(&action["args"]))
                }
                _ => kind.to_owned(),
            }
        }
        words => words.join(" "),
    };
    in_one_line(&text, MAX)
}

/// A recorded outcome with another result, in the format of the step's results.
fn edited_outcome(store: &Store, recorded: &StepOutcome, blob: Blob) -> Result<StepOutcome, Failure> {
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.exit = recorded.exit.map(|_| 0);
    outcome.detail = serde_json::json!({ "edited": true });
    let value = || {
        const MAX_EDITED: u64 = 256 << 20;
        let bytes = store.load_blob(&blob.digest, MAX_EDITED)?;
        json::parse(String::from_utf8_lossy(&bytes).trim())
            .map_err(|error| Failure::parse_error(format!("it is not JSON: {error}")))
    };
    if recorded.stdout.is_some() {
        outcome.stdout = Some(blob);
        outcome.stderr = Some(store.put_blob(b"")?);
    } else if recorded.output.is_some() {
        let items = match value()? {
            Value::Array(items) => items,
            single => vec![single],
        };
        let lines: String = items.iter().map(|item| json::compact(item) + "\n").collect();
        outcome.output = Some(store.put_blob(lines.as_bytes())?);
        outcome.detail["items"] = items.len().into();
    } else {
        outcome.value = value()?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestState, workflow_text};

    #[test]
    fn records_that_do_not_say_what_was_taken_count_as_well() {
        let place = TestState::new();
        let run = place.run(&workflow_text("name: n\nsteps:\n  - id: notify\n    run: echo sent\n"));
        let store = place.runtime.store().unwrap();
        let parent = store.all_events(run.parse().unwrap()).unwrap();
        let task = Recording::from_journal(&parent).unwrap().task;
        for (detail, is_free) in [
            (serde_json::json!({ "reused": true }), false),
            (serde_json::json!({ "reused": true, "from": "notify" }), false),
            (serde_json::json!({ "reused": true, "from": null }), true),
            (Value::Null, true),
        ] {
            let fork = Fork::new(&store, &parent, &Terms::default(), task, Stage::Real).unwrap();
            let begins = |record: &&Record| matches!(record.event, Event::StepStarted { .. });
            let mut record = parent.iter().find(begins).unwrap().clone();
            let Event::StepStarted { path, action, detail: own, .. } = &mut record.event else {
                unreachable!()
            };
            "notify_a".clone_into(path);
            *own = detail.clone();
            let action = action.unwrap();
            fork.note_taken(&record);
            assert_eq!(
                fork.free_place(&lock(&fork.taken).used, &action, "notify_b").is_some(),
                is_free,
                "{detail}"
            );
        }
    }
}
