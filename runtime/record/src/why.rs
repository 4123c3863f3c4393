//! `lobster why`: the first difference between two executions of a step.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use super::contents;
use super::json_path::{self, DifferencePlace};
use super::preimage::{self, Difference, Part, differences, input_digest};
use super::recording::{RecordedAttempt, Recording};
use lobster_base::digest::Digest;
use lobster_base::place::step_id;
use lobster_engine::env::{ARG_PREFIX, ARGS_JSON, argument_vars};
use lobster_engine::envelope::Failure;
use lobster_engine::runtime::Runtime;
use lobster_language::plan::{Plan, Stdin};
use lobster_language::template;
use lobster_store::{Blob, BrokenChain, RunFilter, RunId, StepOutcome, StepStatus, Store, StoreError};

/// Reason why a step was executed differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub step: String,
    /// The earlier run, and the run to explain.
    pub before: RunId,
    pub run: RunId,
    /// The action digests.
    pub action_before: Option<Digest>,
    pub action: Option<Digest>,
    /// Empty if the action is the same.
    pub differences: Vec<Difference>,
    /// For an effect with the same action: the first difference between the results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Difference>,
    /// Runs among these two in which a person edited the step's result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<RunId>,
    /// Damaged journals, so statements about their runs may be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenChain>,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{}", .0.message)]
    Run(Failure),
    #[error(
        "no earlier run of {name:?} is recorded that executed step '{step}'; name a run to compare with by --vs"
    )]
    NothingToCompare { name: String, step: String },
    #[error("run {} did not execute step '{step}': its condition skipped it, or the run did not reach it", .run.short_id())]
    NotDone { step: String, run: RunId },
    #[error("the action of step '{step}' of run {} is no longer in the store", .run.short_id())]
    NoAction { step: String, run: RunId },
}

impl From<Failure> for WhyError {
    fn from(failure: Failure) -> Self {
        Self::Run(failure)
    }
}

impl Why {
    /// The answer in one line.
    #[must_use]
    pub fn to_sentence(&self) -> String {
        let did_the_same = self.action.is_some() && self.action == self.action_before;
        let mut sentence = match (self.differences.first(), &self.outcome) {
            (_, Some(outcome)) => {
                format!("{} did the same with a different result: {}", self.step, outcome.to_sentence())
            }
            (Some(first), None) if did_the_same => {
                format!("{} did the same under {}", self.step, first.to_sentence())
            }
            (Some(first), None) => format!("{} differs by {}", self.step, first.to_sentence()),
            (None, None) => format!("{} is the same in both runs", self.step),
        };
        for run in &self.edited {
            sentence.push_str(&format!("; its result in run {} was edited by hand", run.short_id()));
        }
        sentence
    }
}

/// Explains a step of `run` in comparison with the same step of `versus`. The default is the run it was
/// forked from, or the latest earlier run of that name.
///
/// # Errors
/// If a run or step is not known, or if there is nothing to compare with.
pub fn explain_step(runtime: &Runtime, run: &str, step: &str, versus: Option<&str>) -> Result<Why, WhyError> {
    let store = runtime.store()?;
    let id = find_run(&store, run)?;
    let is = Recording::read_damaged(store.found_events(id)?)?;
    let step = is.resolve_step(step)?;
    let was = match versus {
        Some(other) => Recording::read_damaged(store.found_events(find_run(&store, other)?)?)?,
        None => earlier_run(&store, id, &is, &step)?,
    };
    explain_difference(&store, (&was, &step), (&is, &step))
}

fn find_run(store: &Store, text: &str) -> Result<RunId, Failure> {
    store.find_run(text).map_err(|error| Failure::parse_error(error.to_string()))
}

/// Default run to compare with.
fn earlier_run(store: &Store, id: RunId, is: &Recording, step: &str) -> Result<Recording, WhyError> {
    let parent = store.run(id)?.parent;
    let filter =
        RunFilter { name: Some(is.name.clone()), before: Some(id), limit: 50, ..RunFilter::default() };
    let same_name = store.list_runs(&filter)?.into_iter().map(|run| run.id);
    for candidate in parent.into_iter().chain(same_name) {
        let recording = match store.found_events(candidate) {
            Ok(found) => Recording::read_damaged(found)?,
            Err(StoreError::UnknownRun(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        if recording.steps.contains_key(step) {
            return Ok(recording);
        }
    }
    Err(WhyError::NothingToCompare { name: is.name.clone(), step: step.to_owned() })
}

/// Compares a step of two runs.
pub(super) fn explain_difference(
    store: &Store,
    (was, old_step): (&Recording, &str),
    (is, step): (&Recording, &str),
) -> Result<Why, WhyError> {
    let found = |recording: &Recording, step: &str| {
        let (step, run) = (step.to_owned(), recording.run);
        match (recording.steps.get(&step), recording.read_preimage(store, &step)) {
            (Some(found), Some(preimage)) => Ok((found.clone(), preimage)),
            (None, _) => Err(WhyError::NotDone { step, run }),
            (Some(_), None) => Err(WhyError::NoAction { step, run }),
        }
    };
    let ((before, old), (now, new)) = (found(was, old_step)?, found(is, step)?);
    let mut differences = differences(Some(store), &old, &new);
    name_arguments(store, (was, &old), (is, &new), &mut differences);
    for difference in &mut differences {
        difference.made_by = match difference.part {
            Part::Input => {
                let input = ["input", "stdin"].iter().find_map(|key| input_digest(&new[*key]));
                input.and_then(|input| input_maker(store, is, step, &input))
            }
            // The input of a js step is an argument of the evaluator.
            Part::Argument if difference.name.as_deref() == Some("input") && now.kind == "component" => {
                maker_of(store, is, step, &new["args"]["input"])
            }
            _ => None,
        };
    }
    let policy = |step: &RecordedAttempt, recording: &Recording| {
        step.decision["policy"].as_str().and_then(|policy| policy.parse().ok()).or(recording.policy)
    };
    if let (Some(old), Some(new)) = (policy(&before, was), policy(&now, is))
        && old != new
    {
        let text = |digest: Digest| Value::from(digest.to_string());
        differences.push(Difference::new(Part::Policy, &text(old), &text(new)));
    }
    let edited = |step: &RecordedAttempt| step.outcome.as_ref().is_some_and(|outcome| outcome.is_edited());
    let edited = [(&before, was), (&now, is)].into_iter().filter(|(step, _)| edited(step));
    Ok(Why {
        step: step.to_owned(),
        before: was.run,
        run: is.run,
        action_before: before.action,
        action: now.action,
        outcome: if before.action == now.action { result_difference(store, &before, &now) } else { None },
        edited: edited.map(|(_, recording)| recording.run).collect(),
        differences,
        broken: was.broken.iter().chain(&is.broken).cloned().collect(),
    })
}

/// Replaces variables by the run's arguments that they contain. Every command gets all arguments, so other
/// differences are more likely the reason and come first.
fn name_arguments(
    store: &Store,
    (was, old): (&Recording, &Value),
    (is, new): (&Recording, &Value),
    found: &mut Vec<Difference>,
) {
    let is_variable = |difference: &Difference| {
        let name = difference.name.as_deref().unwrap_or_default();
        difference.part == Part::Environment && (name == ARGS_JSON || name.starts_with(ARG_PREFIX))
    };
    let mut variables: Vec<_> = found.extract_if(.., |difference| is_variable(difference)).collect();
    if variables.is_empty() {
        return;
    }
    let mut named_ones = Vec::new();
    if let (Ok(before), Ok(now)) = (was.read_arguments(store), is.read_arguments(store)) {
        let digests = |args| -> HashMap<String, Value> {
            let digest = |text: String| serde_json::json!(Digest::of_bytes(text.as_bytes()));
            argument_vars(args).into_iter().map(|(name, text)| (name, digest(text))).collect()
        };
        let (of_old, of_new) = (digests(&before), digests(&now));
        // A sub-workflow has its own arguments, which the record does not name.
        let holds = |preimage: &Value, digests: &HashMap<String, Value>, name: &str| {
            preimage["env"].get(name) == digests.get(name)
        };
        let unnamed = variables.len();
        variables.retain(|difference| {
            let name = difference.name.as_deref().unwrap_or_default();
            !(holds(old, &of_old, name) && holds(new, &of_new, name))
        });
        if variables.len() < unnamed {
            preimage::compare_members(Part::Argument, &before.into(), &now.into(), &mut named_ones);
        }
    }
    variables.sort_by_key(|difference| difference.name.as_deref() == Some(ARGS_JSON));
    let place = found.iter().position(|difference| difference.part >= Part::Directory).unwrap_or(found.len());
    found.splice(place..place, named_ones.into_iter().chain(variables));
}

/// The first difference between two results of a step.
pub(super) fn result_difference(
    store: &Store,
    was: &RecordedAttempt,
    is: &RecordedAttempt,
) -> Option<Difference> {
    let (old, new) = match (&was.outcome, &is.outcome) {
        (None, None) => return None,
        (Some(old), Some(new)) if old.status == new.status => (old, new),
        (old, new) => return Some(status_difference(old.as_deref(), new.as_deref())),
    };
    blob_difference(store, "output", old.output, new.output)
        .or_else(|| blob_difference(store, "stdout", old.stdout, new.stdout))
        .or_else(|| {
            json_path::first_difference(&old.value, &new.value).map(|place| named_difference("value", place))
        })
        .or_else(|| (old.error != new.error).then(|| named_whole("error", &old.error, &new.error)))
}

/// A difference in the end of a step. A step without an end was cut off.
pub(super) fn status_difference(was: Option<&StepOutcome>, is: Option<&StepOutcome>) -> Difference {
    let word = |outcome: Option<&StepOutcome>| {
        outcome.map_or(StepStatus::Interrupted, |outcome| outcome.status).as_str()
    };
    named_whole("status", word(was), word(is))
}

/// A difference between two results: a place inside them if the store has both.
pub(super) fn blob_difference(
    store: &Store,
    name: &str,
    was: Option<Blob>,
    is: Option<Blob>,
) -> Option<Difference> {
    let digest = |blob: Option<Blob>| blob.map(|blob| blob.digest);
    let (was, is) = (digest(was), digest(is));
    if was == is {
        return None;
    }
    let inside = was.zip(is).and_then(|(was, is)| contents::first_difference(store, &was, &is));
    Some(inside.map_or_else(|| named_whole(name, was, is), |place| named_difference(name, place)))
}

/// A place inside a result of a step or a run.
pub(super) fn named_difference(name: &str, place: DifferencePlace) -> Difference {
    Difference { name: Some(name.to_owned()), ..Difference::at(Part::Result, place) }
}

fn named_whole<T: Serialize>(name: &str, was: T, is: T) -> Difference {
    let value = |value| serde_json::to_value(value).unwrap_or_default();
    Difference { name: Some(name.to_owned()), ..Difference::new(Part::Result, &value(was), &value(is)) }
}

/// Inputs are compared by value only with outputs up to this size.
const MAX_SOUGHT: u64 = 4 << 20;

/// The step before `reader` whose output is this input: preferably a step that the plan names as its source,
/// otherwise the latest.
fn input_maker(store: &Store, recording: &Recording, reader: &str, input: &Digest) -> Option<String> {
    step_that_gave(store, recording, reader, |blob| blob.digest == *input)
        .or_else(|| maker_of(store, recording, reader, &contents::blob_value(store, input)?))
}

/// The latest step before `reader` with this value as output; `$step.json` is the same value in another
/// spelling.
fn maker_of(store: &Store, recording: &Recording, reader: &str, input: &Value) -> Option<String> {
    let unwrapped = |value: Value| match value {
        Value::Array(mut items) if items.len() == 1 => items.remove(0),
        other => other,
    };
    let sought = unwrapped(input.clone());
    step_that_gave(store, recording, reader, |blob| {
        blob.len <= MAX_SOUGHT
            && contents::blob_value(store, &blob.digest).is_some_and(|value| unwrapped(value) == sought)
    })
}

fn step_that_gave(
    store: &Store,
    recording: &Recording,
    reader: &str,
    is_it: impl Fn(Blob) -> bool,
) -> Option<String> {
    let mut earlier: Vec<_> = recording.in_order();
    earlier.retain(|(path, _)| *path != reader);
    earlier.reverse();
    // Several steps may have given the same bytes.
    let sources = stdin_sources(store, recording, reader);
    earlier.sort_by_key(|(path, _)| !sources.contains(&*step_id(path)));
    let found = earlier.iter().find(|(_, step)| {
        let outputs = step.outcome.as_ref().map(|outcome| [outcome.output, outcome.stdout]);
        outputs.into_iter().flatten().flatten().any(&is_it)
    });
    found.map(|(path, _)| (*path).to_owned())
}

/// The ids of the steps that the recorded plan names in the stdin of `reader`. Empty for a stage of a
/// pipeline, whose input comes from the previous stage.
fn stdin_sources(store: &Store, recording: &Recording, reader: &str) -> HashSet<String> {
    let Ok(Plan::Workflow(workflow)) = recording.read_plan(store) else { return HashSet::new() };
    let steps = workflow.all_steps();
    let step = steps.iter().find(|step| step.id == step_id(reader));
    let Some(Stdin::Text(text)) = step.map(|step| &step.stdin) else { return HashSet::new() };
    template::references_in(text).map(|(_, reference)| reference.id).collect()
}
