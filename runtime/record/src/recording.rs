//! A journal, read as what its run was and did.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::place::is_within;
use lobster_engine::envelope::Failure;
use lobster_engine::recall::{CUT_OFF, SUMMARY};
use lobster_engine::recorded_plan::recorded;
use lobster_engine::run::Task;
use lobster_engine::runtime::GIVEN_ARGS;
use lobster_language::plan::Plan;
use lobster_store::{
    Blob, BrokenChain, Event, GateAnswer, Record, RunId, RunStatus, StepOutcome, StepStatus, Store,
};

/// One attempt of a step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Where in the journal it ended, or started if it never did.
    pub(super) seq: u64,
    /// `native`, `component`, `http` …
    pub(super) kind: String,
    pub(super) action: Option<Digest>,
    pub(super) effect: bool,
    pub(super) decision: Value,
    pub(super) outcome: Option<Arc<StepOutcome>>,
}

/// Everything that a journal tells.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) run: RunId,
    pub(super) name: String,
    pub(super) task: Task,
    pub(super) mode: String,
    pub(super) cwd: String,
    /// A gate was answered from another directory, and what followed ran there.
    pub(super) moved: bool,
    /// The policy of the last process that executed it.
    pub(super) policy: Option<Digest>,
    /// lobster's own settings in the environment of the first.
    pub(super) settings: Option<Map<String, Value>>,
    /// The names of the arguments that it was given, if the record says so.
    pub(super) given_args: Option<BTreeSet<String>>,
    pub(super) steps: HashMap<String, Step>,
    /// How composite steps ended.
    pub(super) summaries: HashMap<String, (u64, Arc<StepOutcome>)>,
    /// What gates were answered, by their places.
    pub(super) answers: HashMap<String, (u64, GateAnswer)>,
    /// What policy refused, in its words.
    pub(super) denied: HashMap<String, Value>,
    /// Parallel steps of which one branch won: the others' steps count for nothing.
    pub(super) races: HashSet<String>,
    /// Until when steps wait, which events came, and where rounds beyond the most were asked for, by the places where
    /// that is kept.
    pub(super) waits: HashMap<String, Value>,
    pub(super) status: RunStatus,
    /// A person ended it, wherever it was.
    pub(super) called_off: bool,
    pub(super) output: Option<Blob>,
    pub(super) error: Option<String>,
    pub(super) last_seq: u64,
    /// The journal is not the chain that was written.
    pub(super) broken: Option<BrokenChain>,
}

impl Recording {
    /// Reads a journal.
    pub(super) fn read(journal: &[Record]) -> Result<Self, Failure> {
        let start = journal.first().and_then(|record| match &record.event {
            Event::RunStarted { name, plan, args, mode, cwd, detail, .. } => {
                Some((record.run, name, plan, args, mode, cwd, detail))
            }
            _ => None,
        });
        let Some((run, name, plan, args, mode, cwd, detail)) = start else {
            return Err(Failure::new(Code::Recording, "the journal does not begin with the start of a run"));
        };
        let mut recording = Self {
            run,
            name: name.clone(),
            task: Task { plan: *plan, args: *args },
            mode: mode.clone(),
            cwd: cwd.clone(),
            moved: false,
            policy: detail.get("policy").and_then(digest),
            settings: detail.get("settings").and_then(Value::as_object).cloned(),
            given_args: detail.get(GIVEN_ARGS).and_then(|names| serde_json::from_value(names.clone()).ok()),
            steps: HashMap::new(),
            summaries: HashMap::new(),
            answers: HashMap::new(),
            denied: HashMap::new(),
            races: HashSet::new(),
            waits: HashMap::new(),
            status: RunStatus::Running,
            called_off: false,
            output: None,
            error: None,
            last_seq: journal.len() as u64,
            broken: None,
        };
        journal.iter().for_each(|record| recording.take(record));
        Ok(recording)
    }

    /// Reads what is left of a journal, for showing it.
    pub(super) fn read_damaged((left, broken): (Vec<Record>, Option<BrokenChain>)) -> Result<Self, Failure> {
        Ok(Self { broken, ..Self::read(&left)? })
    }

    fn take(&mut self, record: &Record) {
        if let Some(status) = record.event.run_status() {
            self.status = status;
        }
        match &record.event {
            Event::StepStarted { path, kind, action, effect, decision, .. } => {
                let step = Step {
                    seq: record.seq,
                    kind: kind.clone(),
                    action: *action,
                    effect: *effect,
                    decision: decision.clone(),
                    outcome: None,
                };
                self.denied.remove(path);
                self.steps.insert(path.clone(), step);
            }
            Event::StepEnded { path, attempt: SUMMARY, outcome, .. } => {
                self.summaries.insert(path.clone(), (record.seq, Arc::clone(outcome)));
            }
            Event::StepEnded { path, begun: Some(begun), outcome, .. } => {
                let step = Step {
                    seq: record.seq,
                    kind: begun.kind.clone(),
                    action: Some(begun.action),
                    effect: begun.effect,
                    decision: begun.decision.clone(),
                    outcome: Some(Arc::clone(outcome)),
                };
                self.denied.remove(path);
                self.steps.insert(path.clone(), step);
            }
            // Nobody saw its end: for a replay it has begun and not ended.
            Event::StepEnded { outcome, .. }
                if outcome.status == StepStatus::Interrupted && outcome.detail[CUT_OFF] == true => {}
            Event::StepEnded { path, outcome, .. } => {
                if let Some(place) = path.strip_suffix("!winner") {
                    self.races.insert(place.to_owned());
                }
                if ["!wait", "!more", "!event"].iter().any(|kept| path.ends_with(kept)) {
                    self.waits.insert(path.clone(), outcome.value.clone());
                }
                if let Some(step) = self.steps.get_mut(path) {
                    step.seq = record.seq;
                    step.outcome = Some(Arc::clone(outcome));
                }
            }
            Event::Decision { path, decision } => {
                // A question comes to the journal too; its answer stands beside it.
                if decision["verdict"] == "deny" {
                    self.denied.insert(path.clone(), decision.clone());
                }
            }
            Event::RunEnded { output, error, detail, .. } => {
                self.called_off = detail["answer"].is_string();
                self.output = *output;
                self.error.clone_from(error);
            }
            Event::RunResumed { detail, .. } => {
                self.policy = detail.get("policy").and_then(digest).or(self.policy);
                self.moved |= detail.get("cwd").and_then(Value::as_str).is_some_and(|cwd| cwd != self.cwd);
            }
            Event::GateAnswered { path, answer, .. } => {
                self.answers.insert(path.clone(), (record.seq, answer.clone()));
            }
            Event::RunStarted { .. }
            | Event::RunPaused { .. }
            | Event::GateOpened { .. }
            | Event::GateClosed { .. }
            | Event::RetryRequested { .. }
            | Event::Note { .. }
            | Event::Unknown(_) => {}
        }
    }

    /// The plan that the run executed.
    pub(super) fn plan(&self, store: &Store) -> Result<Plan, Failure> {
        recorded(store, &self.task.plan)
    }

    /// The arguments it was given.
    pub(super) fn arguments(&self, store: &Store) -> Result<Map<String, Value>, Failure> {
        self.task.args.map_or_else(|| Ok(Map::new()), |digest| recorded(store, &digest))
    }

    /// What was decided about the step, and what its action digest is the digest of.
    pub(super) fn preimage(&self, store: &Store, path: &str) -> Option<Value> {
        let action = self.steps.get(path)?.action?;
        recorded(store, &action).ok()
    }

    /// The paths of all steps that did something, in the order of the journal.
    pub(super) fn in_order(&self) -> Vec<(&str, &Step)> {
        let mut steps: Vec<_> = self.steps.iter().map(|(path, step)| (path.as_str(), step)).collect();
        steps.sort_by_key(|(_, step)| step.seq);
        steps
    }

    /// The paths that a person may mean: the one itself, or the only one inside it.
    pub(super) fn meant(&self, text: &str) -> Result<String, Failure> {
        if self.steps.contains_key(text) {
            return Ok(text.to_owned());
        }
        let inside: Vec<_> =
            self.in_order().into_iter().map(|(path, _)| path).filter(|path| is_within(path, text)).collect();
        match inside.as_slice() {
            [only] => Ok((*only).to_owned()),
            [] if self.summaries.contains_key(text) => Err(Failure::parse(format!(
                "step '{text}' of run {} has no action of its own; `lobster diff` shows whether it changed",
                self.run.short()
            ))),
            [] => {
                let known: Vec<_> = self.in_order().into_iter().map(|(path, _)| path).take(30).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Failure::parse(format!(
                    "run {} recorded no step '{text}'; its steps: {known}",
                    self.run.short()
                )))
            }
            many => Err(Failure::parse(format!(
                "step '{text}' did several things; name one of them: {}",
                many.join(", ")
            ))),
        }
    }
}

fn digest(value: &Value) -> Option<Digest> {
    value.as_str()?.parse().ok()
}
