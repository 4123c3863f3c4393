//! `lobster diff`: compares two runs step by step.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use super::json_path;
use super::preimage::{Difference, Part};
use super::recording::{RecordedAttempt, Recording};
use super::why::{
    blob_difference, explain_difference, named_difference, result_difference, status_difference,
};
use lobster_base::place::{is_within, step_id};
use lobster_engine::envelope::Failure;
use lobster_engine::path::StepPath;
use lobster_engine::runtime::Runtime;
use lobster_store::{BrokenChain, RunId, RunStatus, StepOutcome, StepStatus, Store};

/// Result of comparing two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDiff {
    pub before: RunId,
    pub after: RunId,
    pub status_before: RunStatus,
    pub status_after: RunStatus,
    /// True if both executed the same plan with the same arguments.
    pub same_plan: bool,
    pub same_args: bool,
    /// Number of steps with the same action and result in both runs.
    pub same: u64,
    /// The other steps, in the order of the later run.
    pub steps: Vec<StepDifference>,
    /// First difference between the outputs of the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Difference>,
    /// Damaged journals, so statements about their runs may be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenChain>,
}

/// A step that differs between the two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepDifference {
    pub step: String,
    pub change: StepChange,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Difference>,
}

/// Kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepChange {
    /// Only in the first run.
    Removed,
    /// Only in the first run, because the second run did not reach it.
    NotReached,
    /// Only in the second.
    Added,
    /// It has a different action.
    Action,
    /// It has the same action and a different result.
    Outcome,
}

impl RunDiff {
    /// True if all steps and outputs are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.steps.is_empty() && self.output.is_none() && self.status_before == self.status_after
    }
}

/// Compares two runs.
///
/// # Errors
/// If one of them is not known or cannot be read.
pub fn compare_runs(runtime: &Runtime, before: &str, after: &str) -> Result<RunDiff, Failure> {
    let store = runtime.store()?;
    let load = |text: &str| {
        let id = store.find_run(text).map_err(|error| Failure::parse_error(error.to_string()))?;
        Recording::read_damaged(store.found_events(id)?)
    };
    Ok(compare_recordings(&store, &load(before)?, &load(after)?))
}

/// Steps of a run by their places; of a step with several attempts, the last one.
type Places<'r> = HashMap<String, (&'r str, &'r RecordedAttempt)>;

fn steps_by_place(recording: &Recording) -> Places<'_> {
    let place = |path: &str| StepPath::from(path).any_attempt().as_str().to_owned();
    recording.in_order().into_iter().map(|(path, step)| (place(path), (path, step))).collect()
}

fn compare_recordings(store: &Store, was: &Recording, is: &Recording) -> RunDiff {
    let mut comparison = Comparison {
        store,
        was,
        is,
        old: steps_by_place(was),
        new: steps_by_place(is),
        same: 0,
        found: Vec::new(),
        gone: Vec::new(),
    };
    comparison.compare_steps();
    comparison.compare_answers();
    comparison.compare_other_steps();
    let Comparison { same, mut found, gone, .. } = comparison;
    found.sort_by_key(|(seq, _)| *seq);
    RunDiff {
        before: was.run,
        after: is.run,
        status_before: was.status,
        status_after: is.status,
        same_plan: was.task.plan == is.task.plan,
        same_args: was.task.args == is.task.args,
        same,
        steps: found.into_iter().map(|(_, step)| step).chain(gone).collect(),
        output: blob_difference(store, "output", was.output, is.output),
        broken: was.broken.iter().chain(&is.broken).cloned().collect(),
    }
}

struct Comparison<'r> {
    store: &'r Store,
    was: &'r Recording,
    is: &'r Recording,
    old: Places<'r>,
    new: Places<'r>,
    same: u64,
    /// Differences, with their positions in the later journal.
    found: Vec<(u64, StepDifference)>,
    /// Steps that the later journal does not have.
    gone: Vec<StepDifference>,
}

impl Comparison<'_> {
    fn note_difference(&mut self, seq: u64, step: &str, change: StepChange, first: Option<Difference>) {
        self.found.push((seq, StepDifference { step: step.to_owned(), change, first }));
    }

    /// Compares steps with an action.
    fn compare_steps(&mut self) {
        for (place, (path, now)) in std::mem::take(&mut self.new) {
            match self.old.remove(&place) {
                None => {
                    let first = skipped_end(self.was, &place)
                        .map(|then| status_difference(Some(then), now.outcome.as_deref()));
                    let change = if first.is_some() { StepChange::Outcome } else { StepChange::Added };
                    self.note_difference(now.seq, &place, change, first);
                }
                Some((before, old)) if old.action != now.action => {
                    let why = explain_difference(self.store, (self.was, before), (self.is, path)).ok();
                    let first = why.and_then(|why| why.differences.into_iter().next());
                    self.note_difference(now.seq, &place, StepChange::Action, first);
                }
                Some((_, old)) => match result_difference(self.store, old, now) {
                    Some(first) => self.note_difference(now.seq, &place, StepChange::Outcome, Some(first)),
                    None => self.same += 1,
                },
            }
        }
        let mut gone: Vec<_> = std::mem::take(&mut self.old).into_iter().collect();
        gone.sort_by_key(|(_, (_, step))| step.seq);
        for (place, (_, old)) in gone {
            let first =
                skipped_end(self.is, &place).map(|now| status_difference(old.outcome.as_deref(), Some(now)));
            let change = match first {
                Some(_) => StepChange::Outcome,
                None if self.is.status == RunStatus::Ok => StepChange::Removed,
                None => StepChange::NotReached,
            };
            self.gone.push(StepDifference { step: place, change, first });
        }
    }

    /// Compares the answers of people.
    fn compare_answers(&mut self) {
        for (path, (seq, now)) in &self.is.answers {
            let Some((_, old)) = self.was.answers.get(path) else { continue };
            let value = |answer| serde_json::to_value(answer).unwrap_or_default();
            if let Some(place) = json_path::first_difference(&value(old), &value(now)) {
                let asker = path.split('!').next().unwrap_or(path);
                self.note_difference(
                    *seq,
                    asker,
                    StepChange::Outcome,
                    Some(named_difference("answer", place)),
                );
            }
        }
    }

    /// Compares steps without their own action. A composite step is the same unless its status differs,
    /// because the steps inside are compared themselves.
    fn compare_other_steps(&mut self) {
        let (old, new) = (step_definitions(self.was, self.store), step_definitions(self.is, self.store));
        let acted = [steps_by_place(self.was), steps_by_place(self.is)];
        let mut others: Vec<_> = self.is.summaries.iter().collect();
        // An inner step ends before its outer step.
        others.sort_by_key(|(_, (seq, _))| *seq);
        for (path, (seq, now)) in others {
            let listed = self.found.iter().map(|(_, step)| step).chain(&self.gone);
            if acted.iter().any(|places| places.contains_key(path))
                || listed.into_iter().any(|other| is_within(&other.step, path))
            {
                continue;
            }
            let Some((_, then)) = self.was.summaries.get(path) else { continue };
            let id = step_id(path);
            let changed =
                old.get(&*id).zip(new.get(&*id)).and_then(|(old, new)| json_path::first_difference(old, new));
            if then.status != now.status {
                self.note_difference(
                    *seq,
                    path,
                    StepChange::Outcome,
                    Some(status_difference(Some(then), Some(now))),
                );
            } else if let Some(place) = changed {
                let first = Difference { part: Part::Definition, name: None, ..named_difference("", place) };
                self.note_difference(*seq, path, StepChange::Action, Some(first));
            } else if now.status == StepStatus::Ok
                && !acted.iter().flat_map(|places| places.keys()).any(|inner| is_within(inner, path))
            {
                self.same += 1;
            }
        }
    }
}

/// The end of a step that its condition skipped.
fn skipped_end<'r>(recording: &'r Recording, place: &str) -> Option<&'r StepOutcome> {
    let (_, outcome) = recording.summaries.get(place)?;
    (outcome.status == StepStatus::Skipped).then_some(outcome)
}

/// Definitions of the plan's steps by their ids, without inner steps.
fn step_definitions(recording: &Recording, store: &Store) -> HashMap<String, Value> {
    fn collect_definitions(value: &Value, found: &mut HashMap<String, Value>) {
        match value {
            Value::Object(fields) => {
                if let (Some(Value::String(id)), Some(_)) = (fields.get("id"), fields.get("work")) {
                    found.insert(id.clone(), without_steps(value));
                }
                fields.values().for_each(|value| collect_definitions(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| collect_definitions(value, found)),
            _ => {}
        }
    }
    /// Also removes the position in the file.
    fn without_steps(value: &Value) -> Value {
        let kept = |(name, value): (&String, &Value)| {
            let is_step = |value: &Value| value.get("work").is_some();
            let steps = value.as_array().is_some_and(|items| items.iter().any(is_step));
            (name != "span" && !steps && !is_step(value)).then(|| (name.clone(), without_steps(value)))
        };
        match value {
            Value::Object(fields) => Value::Object(fields.iter().filter_map(kept).collect()),
            Value::Array(items) => items.iter().map(without_steps).collect(),
            other => other.clone(),
        }
    }
    let mut found = HashMap::new();
    let plan = recording.read_plan(store).ok().and_then(|plan| serde_json::to_value(plan).ok());
    collect_definitions(&plan.unwrap_or_default(), &mut found);
    found
}
