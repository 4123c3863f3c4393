//! Contents of a journal: the run, and the steps that it executed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::place::is_within;
use lobster_engine::envelope::Failure;
use lobster_engine::recall::{CUT_OFF, SUMMARY};
use lobster_engine::recorded_plan::load_recorded;
use lobster_engine::run::Task;
use lobster_engine::runtime::GIVEN_ARGS;
use lobster_language::plan::Plan;
use lobster_store::{
    Blob, BrokenChain, Event, GateAnswer, Record, RunId, RunStatus, StepOutcome, StepStatus, Store,
};

/// One attempt of a step.
#[derive(Clone, Debug)]
pub(super) struct RecordedAttempt {
    /// Position in the journal of its end, or of its start if it has no end.
    pub(super) seq: u64,
    /// `native`, `component`, `http` …
    pub(super) kind: String,
    pub(super) action: Option<Digest>,
    pub(super) effect: bool,
    pub(super) decision: Value,
    pub(super) outcome: Option<Arc<StepOutcome>>,
}

/// Everything that a journal contains.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) run: RunId,
    pub(super) name: String,
    pub(super) task: Task,
    pub(super) mode: String,
    pub(super) cwd: String,
    /// True if a gate was answered from another directory, in which the later steps ran.
    pub(super) moved: bool,
    /// The policy of the last process that executed the run.
    pub(super) policy: Option<Digest>,
    /// lobster's own settings in the environment of the first process.
    pub(super) settings: Option<Map<String, Value>>,
    /// The names of the given arguments, if the record has them.
    pub(super) given_args: Option<BTreeSet<String>>,
    pub(super) steps: HashMap<String, RecordedAttempt>,
    /// Summaries of composite steps.
    pub(super) summaries: HashMap<String, (u64, Arc<StepOutcome>)>,
    /// Answers to gates, by their places.
    pub(super) answers: HashMap<String, (u64, GateAnswer)>,
    /// Refusals by the policy, by their places.
    pub(super) denied: HashMap<String, Value>,
    /// Parallel steps with a winning branch; the steps of the other branches are ignored.
    pub(super) races: HashSet<String>,
    /// Wait times, received events and requested extra rounds, by their places.
    pub(super) waits: HashMap<String, Value>,
    pub(super) status: RunStatus,
    /// True if a person cancelled it, at any point.
    pub(super) called_off: bool,
    pub(super) output: Option<Blob>,
    pub(super) error: Option<String>,
    pub(super) last_seq: u64,
    /// Damage of the journal's hash chain.
    pub(super) broken: Option<BrokenChain>,
}

impl Recording {
    /// Reads a journal.
    pub(super) fn from_journal(journal: &[Record]) -> Result<Self, Failure> {
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
            policy: detail.get("policy").and_then(parse_digest),
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
        journal.iter().for_each(|record| recording.add_record(record));
        Ok(recording)
    }

    /// Reads the remains of a journal in order to show them.
    pub(super) fn read_damaged((left, broken): (Vec<Record>, Option<BrokenChain>)) -> Result<Self, Failure> {
        Ok(Self { broken, ..Self::from_journal(&left)? })
    }

    fn add_record(&mut self, record: &Record) {
        if let Some(status) = record.event.run_status() {
            self.status = status;
        }
        match &record.event {
            Event::StepStarted { path, kind, action, effect, decision, .. } => {
                let step = RecordedAttempt {
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
                let step = RecordedAttempt {
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
            // Its end was never observed, so a replay treats it as started but not ended.
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
                // A question also has a record in the journal, with its answer.
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
                self.policy = detail.get("policy").and_then(parse_digest).or(self.policy);
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

    /// The plan of the run.
    pub(super) fn read_plan(&self, store: &Store) -> Result<Plan, Failure> {
        load_recorded(store, &self.task.plan)
    }

    /// The arguments of the run.
    pub(super) fn read_arguments(&self, store: &Store) -> Result<Map<String, Value>, Failure> {
        self.task.args.map_or_else(|| Ok(Map::new()), |digest| load_recorded(store, &digest))
    }

    /// The pre-image of a step's action.
    pub(super) fn read_preimage(&self, store: &Store, path: &str) -> Option<Value> {
        let action = self.steps.get(path)?.action?;
        load_recorded(store, &action).ok()
    }

    /// The paths of all steps with an action, in the order of the journal.
    pub(super) fn in_order(&self) -> Vec<(&str, &RecordedAttempt)> {
        let mut steps: Vec<_> = self.steps.iter().map(|(path, step)| (path.as_str(), step)).collect();
        steps.sort_by_key(|(_, step)| step.seq);
        steps
    }

    /// The path of the step that a person means: the step itself, or the only step inside it.
    pub(super) fn resolve_step(&self, text: &str) -> Result<String, Failure> {
        if self.steps.contains_key(text) {
            return Ok(text.to_owned());
        }
        let inside: Vec<_> =
            self.in_order().into_iter().map(|(path, _)| path).filter(|path| is_within(path, text)).collect();
        match inside.as_slice() {
            [only] => Ok((*only).to_owned()),
            [] if self.summaries.contains_key(text) => Err(Failure::parse_error(format!(
                "step '{text}' of run {} has no action of its own; `lobster diff` shows whether it changed",
                self.run.short_id()
            ))),
            [] => {
                let known: Vec<_> = self.in_order().into_iter().map(|(path, _)| path).take(30).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Failure::parse_error(format!(
                    "run {} recorded no step '{text}'; its steps: {known}",
                    self.run.short_id()
                )))
            }
            many => Err(Failure::parse_error(format!(
                "step '{text}' has several actions; name one of these: {}",
                many.join(", ")
            ))),
        }
    }
}

pub(super) fn parse_digest(value: &Value) -> Option<Digest> {
    value.as_str()?.parse().ok()
}
