//! `lobster fork`: a new run that takes over every outcome of an earlier one
//! whose action is still the same.
//!
//! An action that comes out different is done anew; where what it gives turns
//! out equal after all, what follows has the same actions again and is taken
//! over: that is the early cut-off, and it needs no rule of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::recording::{Recording, is_within};
use super::verify::failure;
use crate::digest::Digest;
use crate::engine::gate::KnownAnswer;
use crate::engine::overseer::{Act, Known, Overseer};
use crate::engine::path::StepPath;
use crate::engine::run::{Interrupted, Run, lock, stopped};
use crate::engine::settle::output_of;
use crate::envelope::Failure;
use crate::json;
use crate::language::plan::Plan;
use crate::runtime::{Planned, RunRequest, RunResult, Runtime, Target};
use crate::steps::stages::Stop;
use crate::store::{Blob, Event, Record, RunId, StepOutcome, StepStatus, Store};

/// What to fork, and what to do otherwise.
#[derive(Clone, Debug, Default)]
pub struct ForkRequest {
    /// The run: an id, or the beginning or end of one.
    pub run: String,
    /// Steps that are done anew even if their actions are the same.
    pub from: Vec<String>,
    /// Arguments that replace the recorded ones.
    pub set: Map<String, Value>,
    /// Steps whose results are replaced by the bytes given.
    pub edit: Vec<(String, Vec<u8>)>,
    /// Another version of the workflow file.
    pub workflow: Option<PathBuf>,
}

/// What a fork would do, as far as it can be known beforehand.
#[derive(Clone, Debug, Serialize)]
pub struct ForkPlan {
    pub parent: RunId,
    /// Steps whose outcomes are taken over.
    pub reused: Vec<String>,
    /// Steps whose results were edited.
    pub edited: Vec<String>,
    /// Steps that will be done; those after the first only if what they read changes.
    pub done: Vec<String>,
    /// Whether more may follow that the earlier run never did.
    pub more: bool,
    #[serde(skip)]
    planned: Planned,
    #[serde(skip)]
    terms: Terms,
}

/// What a forked run keeps about itself in its first event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Terms {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    from: BTreeSet<String>,
    /// Blobs of the replaced results.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    edit: BTreeMap<String, Blob>,
}

impl Runtime {
    /// Says what a fork would do. Runs nothing and records no run.
    ///
    /// # Errors
    /// When the run, a step or an argument is not known, or the plan does not load.
    pub fn plan_fork(&self, request: &ForkRequest) -> Result<ForkPlan, Failure> {
        let store = self.store().map_err(failure)?;
        let parent = store.find_run(&request.run).map_err(|error| Failure::parse(error.to_string()))?;
        let journal = store.events(parent).map_err(failure)?;
        let recording = Recording::read(&journal)?;
        let planned = self.planned(&store, &recording, request)?;
        let terms = terms(&store, &recording, request)?;
        let fork = Arc::new(Fork::new(&store, &journal, &terms, Stage::Preview)?);
        let plan = Digest::of_json(&planned.plan).map_err(failure)?;
        let services = super::verify::services(self, &store, &recording);
        let mut run = Run::recalled(&services, store, None, parent, plan, &[], Interrupted::Ask);
        run.policy = self.services.policy_digest();
        let run = run.overseen(Arc::<Fork>::clone(&fork));
        let result = output_of(&run, &planned.plan, &planned.args);
        let told = std::mem::take(&mut *lock(&fork.told));
        Ok(ForkPlan {
            parent,
            reused: told.reused,
            edited: told.edited,
            done: told.done,
            more: result.is_err(),
            planned,
            terms,
        })
    }

    /// Runs a fork.
    pub fn fork(&self, plan: &ForkPlan) -> RunResult {
        self.run_fork(plan).unwrap_or_else(RunResult::from)
    }

    fn run_fork(&self, plan: &ForkPlan) -> Result<RunResult, Failure> {
        let store = self.store().map_err(failure)?;
        let journal = store.events(plan.parent).map_err(failure)?;
        let fork = Fork::new(&store, &journal, &plan.terms, Stage::Real)?;
        self.prepare_secrets(&plan.planned.plan, &plan.planned.args)?;
        let mut run = self.begin(&plan.planned, Some(plan.parent)).map_err(failure)?;
        let detail = serde_json::to_value(&plan.terms).map_err(failure)?;
        let note = Event::Note { path: None, text: FORK_NOTE.to_owned(), detail };
        run.lazily(note).map_err(|_| Failure::runtime("the fork could not be recorded"))?;
        run = run.overseen(Arc::new(fork));
        let envelope = crate::engine::execute(&run, &plan.planned.plan, &plan.planned.args);
        Ok(RunResult { run: Some(run.id), envelope, rendered: run.has_rendered() })
    }

    fn planned(
        &self,
        store: &Store,
        recording: &Recording,
        request: &ForkRequest,
    ) -> Result<Planned, Failure> {
        let mut args = recording.arguments(store)?;
        let recorded = recording.plan(store)?;
        let file = match (&request.workflow, recorded) {
            (Some(file), _) => file.clone(),
            (None, Plan::Workflow(workflow)) if request.set.is_empty() => {
                return Ok(Planned { plan: Plan::Workflow(workflow), args, name: recording.name.clone() });
            }
            (None, Plan::Workflow(workflow)) => {
                args.extend(request.set.clone());
                let bound =
                    crate::language::workflow::bind_args(&workflow, &Value::Object(args)).map_err(failure)?;
                return Ok(Planned {
                    plan: Plan::Workflow(workflow),
                    args: bound,
                    name: recording.name.clone(),
                });
            }
            (None, Plan::Pipeline(_)) if !request.set.is_empty() => {
                return Err(Failure::parse("a pipeline has no arguments to set"));
            }
            (None, plan @ Plan::Pipeline(_)) => {
                return Ok(Planned { plan, args, name: recording.name.clone() });
            }
        };
        args.extend(request.set.clone());
        self.plan(&RunRequest { target: Target::File(file), args: Some(Value::Object(args)) })
    }
}

fn terms(store: &Store, recording: &Recording, request: &ForkRequest) -> Result<Terms, Failure> {
    let from = request.from.iter().map(|step| known_place(recording, step)).collect::<Result<_, _>>()?;
    let mut edit = BTreeMap::new();
    for (step, bytes) in &request.edit {
        let path = recording.meant(step)?;
        let recorded = recording.steps.get(&path).and_then(|step| step.outcome.as_ref());
        let outcome = recorded
            .ok_or_else(|| Failure::parse(format!("step '{path}' has no recorded result to edit")))?;
        let blob = store.put(bytes).map_err(failure)?;
        edited(store, outcome, blob)
            .map_err(|error| Failure::parse(format!("step '{path}' cannot give that: {}", error.message)))?;
        edit.insert(path, blob);
    }
    Ok(Terms { from, edit })
}

/// A step that did something, itself or by the steps inside it.
fn known_place(recording: &Recording, step: &str) -> Result<String, Failure> {
    if recording.steps.keys().any(|path| is_within(path, step)) {
        return Ok(step.to_owned());
    }
    recording.meant(step)
}

/// The text of the note by which a fork remembers its terms.
const FORK_NOTE: &str = "fork";

/// The overseer of a forked run that goes on after a pause or a crash.
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
    let terms: Terms = serde_json::from_value(terms).map_err(failure)?;
    // A parent that was collected meanwhile has nothing left to give.
    let Ok(parents) = store.events(parent) else { return Ok(None) };
    let mut fork = Fork::new(store, &parents, &terms, Stage::Real)?;
    let used = Recording::read(journal)?;
    for (path, _) in used.in_order() {
        fork.used.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).insert(path.to_owned());
    }
    Ok(Some(Arc::new(fork)))
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Finding out what would be done; nothing is.
    Preview,
    Real,
}

struct Fork {
    stage: Stage,
    store: Store,
    recording: Recording,
    /// Steps that succeeded, by their actions.
    by_action: HashMap<Digest, Vec<String>>,
    answers: HashMap<StepPath, KnownAnswer>,
    terms: Terms,
    /// Outcomes that were taken already; each counts once.
    used: Mutex<HashSet<String>>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    reused: Vec<String>,
    edited: Vec<String>,
    done: Vec<String>,
}

impl Fork {
    fn new(store: &Store, parent: &[Record], terms: &Terms, stage: Stage) -> Result<Self, Failure> {
        let recording = Recording::read(parent)?;
        let mut by_action: HashMap<Digest, Vec<String>> = HashMap::new();
        for (path, step) in recording.in_order() {
            let ended_well = step.outcome.as_ref().is_some_and(|outcome| outcome.status == StepStatus::Ok);
            let again = terms.from.iter().any(|place| is_within(path, place));
            if let (Some(action), true, false) = (step.action, ended_well, again) {
                by_action.entry(action).or_default().push(path.to_owned());
            }
        }
        Ok(Self {
            stage,
            store: store.clone(),
            recording,
            by_action,
            answers: crate::engine::run::answers(parent),
            terms: terms.clone(),
            used: Mutex::default(),
            told: Mutex::default(),
        })
    }

    /// An outcome of the same action: at the same place if there is one.
    fn take(&self, act: &Act<'_>) -> Option<StepOutcome> {
        let mut used = lock(&self.used);
        let candidates = self.by_action.get(&act.digest)?;
        let free = |path: &&String| !used.contains(*path);
        let same_place = candidates.iter().find(|path| *path == act.path.as_str()).filter(free);
        let path = same_place.or_else(|| candidates.iter().find(free))?.clone();
        let outcome = self.recording.steps.get(&path)?.outcome.as_ref()?;
        used.insert(path);
        Some(StepOutcome { cached: true, ..StepOutcome::clone(outcome) })
    }

    fn known(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        if known.is_some() {
            return Ok(known);
        }
        let path = act.path.as_str();
        let tell = |list: fn(&mut Told) -> &mut Vec<String>| {
            let mut told = lock(&self.told);
            let list = list(&mut told);
            if !list.iter().any(|other| other == path) {
                list.push(path.to_owned());
            }
        };
        if let Some(blob) = self.terms.edit.get(path) {
            tell(|told| &mut told.edited);
            let recorded = self.recording.steps.get(path).and_then(|step| step.outcome.clone());
            let recorded = recorded.unwrap_or_else(|| StepOutcome::new(StepStatus::Ok).into());
            let edited = edited(&self.store, &recorded, *blob).map_err(|error| stopped(error.message))?;
            return Ok(Some(edited.into()));
        }
        if let Some(outcome) = self.take(act) {
            tell(|told| &mut told.reused);
            return Ok(Some(outcome.into()));
        }
        if self.stage == Stage::Real {
            return Ok(None);
        }
        tell(|told| &mut told.done);
        // As if it came out as before: what follows then is what cannot be avoided.
        match self.recording.steps.get(path).and_then(|step| step.outcome.clone()) {
            Some(outcome) => Ok(Some(outcome)),
            None => Err(Stop::Interrupted),
        }
    }
}

impl Overseer for Fork {
    fn journals(&self) -> bool {
        self.stage == Stage::Real
    }

    fn effect(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        self.known(act, known)
    }

    fn pure(&self, act: &Act<'_>, known: Known) -> Result<Known, Stop> {
        self.known(act, known)
    }

    fn wants_anew(&self, path: &StepPath) -> bool {
        self.terms.from.iter().any(|place| is_within(path.as_str(), place))
    }

    /// An answer holds for the very question, items, plan and policy that it was given to.
    fn answer(
        &self,
        path: &StepPath,
        binding: Digest,
        known: Option<KnownAnswer>,
    ) -> Result<Option<KnownAnswer>, Stop> {
        Ok(known.or_else(|| self.answers.get(path).filter(|answer| answer.binding == binding).cloned()))
    }
}

/// A recorded outcome with another result, in the form that the step's results have.
fn edited(store: &Store, recorded: &StepOutcome, blob: Blob) -> Result<StepOutcome, Failure> {
    let mut outcome = StepOutcome::new(StepStatus::Ok);
    outcome.exit = recorded.exit.map(|_| 0);
    outcome.detail = serde_json::json!({ "edited": true });
    let value = || {
        const MAX_EDITED: u64 = 256 << 20;
        let bytes = store.load(&blob.digest, MAX_EDITED).map_err(failure)?;
        json::parse(String::from_utf8_lossy(&bytes).trim())
            .map_err(|error| Failure::parse(format!("it is no JSON: {error}")))
    };
    if recorded.stdout.is_some() {
        outcome.stdout = Some(blob);
        outcome.stderr = Some(store.put(b"").map_err(failure)?);
    } else if recorded.output.is_some() {
        let items = match value()? {
            Value::Array(items) => items,
            single => vec![single],
        };
        let lines: String = items.iter().map(|item| json::compact(item) + "\n").collect();
        outcome.output = Some(store.put(lines.as_bytes()).map_err(failure)?);
        outcome.detail["items"] = items.len().into();
    } else {
        outcome.value = value()?;
    }
    Ok(outcome)
}
