//! Undos of a run's effects other than file changes: the `undo:` of each step.
//!
//! An undo run proposes them, the last first, each after an approval. It does not propose undos that an
//! earlier undo run has executed, or that need a missing output.

use std::collections::{BTreeMap, BTreeSet};

use lobster_base::place::is_within;
use lobster_engine::recorded_plan::load_recorded;
use lobster_engine::reversal::{self, Reversal, UndoInput};
use lobster_language::plan::{Approval, Extras, Plan, Stdin, Step, UndoneStep, Work, Workflow};
use lobster_language::workflow::refers_to;
use lobster_stage::StageError;
use lobster_store::{Event, Record, RunFilter, RunId, RunStatus, StepOutcome, StepStatus, Store, StoreError};
use serde_json::Value;

use crate::changes::UndoError;

/// Undo of one step.
#[derive(Clone, Debug)]
pub struct StepUndo {
    /// Place of the step in its run.
    pub step: String,
    /// The undo's command, as in the file.
    pub text: String,
    /// The workflow with the question and the undo.
    child: Workflow,
    reversal: Reversal,
}

/// A step whose undo cannot be proposed, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotProposed {
    /// Place of the step in its run.
    pub step: String,
    /// The reason, as a clause.
    pub why: String,
}

/// Undos of a run's steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepUndos {
    /// The last step first.
    pub(crate) proposed: Vec<StepUndo>,
    pub(crate) not_proposed: Vec<NotProposed>,
    /// Steps that an earlier undo run has undone.
    pub(crate) done: BTreeSet<String>,
    /// An unfinished run that undoes steps of this one.
    pub(crate) underway: Option<RunId>,
}

/// Journal entries of the steps that have an undo.
#[derive(Default)]
struct Read<'j> {
    /// In the order in which the steps began.
    kept: Vec<(&'j str, &'j Value)>,
    results: BTreeMap<&'j str, &'j Value>,
    effects: Vec<&'j str>,
    ended: BTreeMap<&'j str, &'j StepOutcome>,
}

impl<'j> Read<'j> {
    fn from_journal(journal: &'j [Record]) -> Self {
        let mut read = Self::default();
        for record in journal {
            match &record.event {
                Event::StepStarted { path, effect: true, .. } => read.effects.push(path),
                Event::StepEnded { path, outcome, attempt, .. } => {
                    if let Some(step) = path.strip_suffix(reversal::KEPT) {
                        read.kept.retain(|(known, _)| *known != step);
                        read.kept.push((step, &outcome.value));
                    } else if let Some(step) = path.strip_suffix(reversal::RESULT) {
                        read.results.insert(step, &outcome.value);
                    } else if *attempt != 0 || !read.ended.contains_key(path.as_str()) {
                        // A summary adds nothing to the effect's own end.
                        read.ended.insert(path, outcome);
                    }
                }
                _ => {}
            }
        }
        read
    }

    /// The result of a step, or the output of a failed step.
    fn step_result(&self, step: &str) -> Option<UndoInput> {
        let kept = self.results.get(step).and_then(|value| UndoInput::from_json(value));
        kept.or_else(|| {
            let attempts = self.ended.iter().filter(|(path, _)| {
                path.strip_prefix(step).is_some_and(|rest| {
                    rest.is_empty() || rest.strip_prefix('#').is_some_and(|n| n.parse::<u64>().is_ok())
                })
            });
            let stdout = attempts.filter_map(|(_, outcome)| outcome.stdout).next_back()?;
            Some(if stdout.len > reversal::MAX_RESULT {
                UndoInput::TooLong
            } else {
                UndoInput::Text(stdout.digest)
            })
        })
    }

    /// A sentence about the end of a step that did not succeed.
    fn failure_sentence(&self, step: &str) -> &'static str {
        match self.ended.get(step).map(|outcome| outcome.status) {
            _ if self.results.contains_key(step) => "",
            None | Some(StepStatus::Interrupted) => " Its end is not known.",
            Some(_) => " It failed.",
        }
    }
}

/// Undos of the selected steps of a run.
pub(crate) fn step_undos(
    store: &Store,
    run: RunId,
    journal: &[Record],
    is_meant: &dyn Fn(&str) -> bool,
) -> Result<StepUndos, UndoError> {
    let read = Read::from_journal(journal);
    let has_begun = |step: &str| read.effects.iter().any(|path| is_within(path, step));
    let meant: Vec<_> =
        read.kept.iter().filter(|(step, _)| is_meant(step) && has_begun(step)).rev().collect();
    let mut undos = StepUndos::default();
    if meant.is_empty() {
        return Ok(undos);
    }
    find_earlier(store, run, &mut undos)?;
    for (step, kept) in meant {
        if undos.done.contains(*step) {
            continue;
        }
        let reversal = reversal::load(store, kept)?;
        match propose_undo(store, run, step, reversal, &read)? {
            Ok(undo) => undos.proposed.push(undo),
            Err(why) => undos.not_proposed.push(NotProposed { step: (*step).to_owned(), why }),
        }
    }
    Ok(undos)
}

/// The question and the undo of one step, or a clause with the reason why it cannot be proposed.
fn propose_undo(
    store: &Store,
    run: RunId,
    step: &str,
    reversal: Reversal,
    read: &Read<'_>,
) -> Result<Result<StepUndo, String>, StageError> {
    let Some(undo) = reversal.workflow.steps.first() else { return Ok(Err("its record has none".into())) };
    let text = text_of(undo);
    let given = read.step_result(step);
    let stdin = match given.map(|given| given.into_stdin(store)).transpose()? {
        Some(Some(stdin)) => stdin,
        missing if refers_to(undo, &reversal.of) => {
            let why = match missing {
                None => "its undo needs the step's result, and the step did not end",
                Some(_) => "its undo needs the step's result, which is longer than 1 MiB",
            };
            return Ok(Err(why.to_owned()));
        }
        _ => Stdin::None,
    };
    let prompt = format!("Undo step {step} of run {}?{}", run.short_id(), read.failure_sentence(step));
    let approval = Approval {
        prompt: Some(prompt),
        items: Some(Vec::new()),
        preview: Some(text.clone()),
        ..Approval::default()
    };
    let gate = Step { stdin, approval: Some(approval), ..Step::new(&reversal.of, undo.span, Work::Nothing) };
    let mut child = reversal.workflow.clone();
    child.steps.insert(0, gate);
    Ok(Ok(StepUndo { step: step.to_owned(), text, child, reversal }))
}

/// The command of an undo in one line.
fn text_of(undo: &Step) -> String {
    let args = |args: &serde_json::Map<String, Value>| match args.is_empty() {
        true => String::new(),
        false => format!(" {}", Value::Object(args.clone())),
    };
    match &undo.work {
        Work::Shell(text) => format!("run: {}", text.trim_end()),
        Work::Exec(words) => format!("exec: {}", Value::from(words.clone())),
        Work::Component { component, args: given } => format!("component: {component}{}", args(given)),
        Work::Workflow { path, args: given } => format!("workflow: {path}{}", args(given)),
        // A file cannot specify these.
        Work::Nothing
        | Work::Pipeline(_)
        | Work::Mcp { .. }
        | Work::Js(_)
        | Work::Parallel { .. }
        | Work::ForEach { .. }
        | Work::Repeat { .. }
        | Work::Switch { .. }
        | Work::Input(_)
        | Work::Wait(_) => String::new(),
    }
}

impl StepUndo {
    /// The step of an undo's plan that executes it, and the workflow that it calls.
    pub(crate) fn plan_step(&self, run: RunId, known: &BTreeMap<String, Workflow>) -> (Step, Workflow) {
        // References cannot name such an id, so the texts of later steps cannot refer to it.
        let mut id = format!("undo:{}", self.step.replace(['/', '[', ']', '#', '|', '!', '%'], "."));
        while known.contains_key(&id) {
            id.push('+');
        }
        let work = Work::Workflow { path: id.clone(), args: self.reversal.args.clone() };
        let undoes = UndoneStep { run: run.to_string(), step: self.step.clone() };
        let step = Step {
            env: self.reversal.env.clone(),
            cwd: Some(self.reversal.cwd.display().to_string()),
            extras: Extras { undoes: Some(undoes), ..Extras::default() },
            ..Step::new(&id, self.child.steps[0].span, work)
        };
        (step, self.child.clone())
    }
}

/// Name of a run that undoes one of this name.
pub(crate) fn name_of_undo(name: &str) -> String {
    format!("undo of {name}")
}

/// Finds the steps undone by earlier undo runs, and an undo run that has not ended.
fn find_earlier(store: &Store, run: RunId, undos: &mut StepUndos) -> Result<(), StoreError> {
    let summary = store.run(run)?;
    let filter = RunFilter {
        name: Some(name_of_undo(&summary.name)),
        since: Some(summary.started_at),
        ..RunFilter::default()
    };
    for later in store.list_runs(&filter)? {
        // Without its plan it is unknown which steps it has undone, and they would be undone again.
        store.open_blob(&later.plan)?;
        let Ok(Plan::Workflow(workflow)) = load_recorded::<Plan>(store, &later.plan) else { continue };
        let of_run = |step: &Step| {
            let undone = step.extras.undoes.as_ref().filter(|undone| undone.run == run.to_string());
            undone.map(|undone| (step.id.clone(), undone.step.clone()))
        };
        let planned: Vec<_> = workflow.steps.iter().filter_map(of_run).collect();
        if planned.is_empty() {
            continue;
        }
        let (records, _) = store.found_events(later.id)?;
        let ended: BTreeSet<&str> = records
            .iter()
            .filter_map(|record| match &record.event {
                Event::StepEnded { path, outcome, .. } if outcome.status == StepStatus::Ok => {
                    Some(path.as_str())
                }
                _ => None,
            })
            .collect();
        let is_open = matches!(later.status, RunStatus::Running | RunStatus::Waiting);
        for (id, step) in planned {
            if ended.contains(id.as_str()) {
                undos.done.insert(step);
            } else if is_open {
                undos.underway = Some(later.id);
            }
        }
    }
    Ok(())
}
