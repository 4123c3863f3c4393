//! `lobster why`: the first thing that differs between two executions of a step.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use super::preimage::{Difference, Part, differences, input_digest, named};
use super::recording::Recording;
use super::{contents, json_path};
use crate::digest::Digest;
use crate::engine::env::{ARG_PREFIX, ARGS_JSON, argument_vars};
use crate::envelope::Failure;
use crate::runtime::Runtime;
use crate::store::{BrokenChain, RunFilter, RunId, Store, StoreError};

/// Why a step did not do the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub step: String,
    /// The earlier run, and the one that is asked about.
    pub before: RunId,
    pub run: RunId,
    /// The action digests.
    pub action_before: Option<Digest>,
    pub action: Option<Digest>,
    /// Empty when the action is the same.
    pub differences: Vec<Difference>,
    /// Of an effect with the same action: where what it gave differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Difference>,
    /// Those of the two runs in which a person wrote the step's result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<RunId>,
    /// Journals that are not what was written, so that what is said of their runs may be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenChain>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{}", .0.message)]
    Run(Failure),
    #[error("no earlier run of {name:?} is recorded to compare with; name one with --vs")]
    NothingToCompare { name: String },
    #[error(
        "step '{step}' has no recorded action in run {run}; it is made of other steps: name one of those"
    )]
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
    pub fn sentence(&self) -> String {
        let place = |difference: &Difference| {
            let mut text = difference.part.noun().to_owned();
            for word in [&difference.name, &difference.path].into_iter().flatten() {
                text.push(' ');
                text.push_str(word);
            }
            if let Some(step) = &difference.made_by {
                text.push_str(&format!(" (made by step {step})"));
            }
            format!("{text}: {} → {}", shown(&difference.was), shown(&difference.is))
        };
        let mut sentence = match (self.differences.first(), &self.outcome) {
            (Some(first), _) => format!("{} differs by {}", self.step, place(first)),
            (None, Some(outcome)) => {
                format!("{} did the same and was given something else: {}", self.step, place(outcome))
            }
            (None, None) => format!("{} is the same in both runs", self.step),
        };
        for run in &self.edited {
            sentence.push_str(&format!("; its result in run {} was edited by hand", run.short()));
        }
        sentence
    }
}

/// A value in a line: short, and digests as digests.
fn shown(value: &Value) -> String {
    const MAX: usize = 60;
    let text = match value {
        Value::Null => return "nothing".to_owned(),
        Value::String(text) if text.parse::<Digest>().is_ok() => return format!("blake3:{}…", &text[..12]),
        other => crate::json::compact(other),
    };
    if text.chars().count() <= MAX { text } else { text.chars().take(MAX - 1).chain(['…']).collect() }
}

impl Runtime {
    /// Explains a step of `run` against the same step of `versus`: without one,
    /// of the run it was forked from, or of the latest earlier run of that name.
    ///
    /// # Errors
    /// When a run or step is not known, or there is nothing to compare with.
    pub fn why(&self, run: &str, step: &str, versus: Option<&str>) -> Result<Why, WhyError> {
        let store = self.store()?;
        let id = find(&store, run)?;
        let is = Recording::found(store.found_events(id)?)?;
        let step = is.meant(step)?;
        let (before, was) = match versus {
            Some(other) => {
                let other = find(&store, other)?;
                (other, Recording::found(store.found_events(other)?)?)
            }
            None => earlier(&store, id, &is, &step)?,
        };
        why(&store, (before, &was), (id, &is), &step)
    }
}

fn find(store: &Store, text: &str) -> Result<RunId, Failure> {
    store.find_run(text).map_err(|error| Failure::parse(error.to_string()))
}

/// The run to compare with when none is named.
fn earlier(store: &Store, id: RunId, is: &Recording, step: &str) -> Result<(RunId, Recording), WhyError> {
    let parent = store.run(id)?.parent;
    let filter =
        RunFilter { name: Some(is.name.clone()), before: Some(id), limit: 50, ..RunFilter::default() };
    let same_name = store.runs(&filter)?.into_iter().map(|run| run.id);
    for candidate in parent.into_iter().chain(same_name) {
        let recording = match store.found_events(candidate) {
            Ok(found) => Recording::found(found)?,
            Err(StoreError::UnknownRun(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        if recording.steps.contains_key(step) {
            return Ok((candidate, recording));
        }
    }
    Err(WhyError::NothingToCompare { name: is.name.clone() })
}

/// Compares the same step of two runs.
pub(super) fn why(
    store: &Store,
    (before, was): (RunId, &Recording),
    (run, is): (RunId, &Recording),
    step: &str,
) -> Result<Why, WhyError> {
    let preimage = |recording: &Recording, run| {
        recording.preimage(store, step).ok_or_else(|| WhyError::NoAction { step: step.to_owned(), run })
    };
    let (old, new) = (preimage(was, before)?, preimage(is, run)?);
    let mut found = differences(Some(store), &old, &new);
    name_arguments(store, (was, &old), (is, &new), &mut found);
    for difference in found.iter_mut().filter(|difference| difference.part == Part::Input) {
        let input = ["input", "stdin"].iter().find_map(|key| input_digest(&new[*key]));
        difference.made_by = input.and_then(|input| maker(store, is, step, &input));
    }
    let policy = |recording: &Recording| {
        let decided =
            recording.steps.get(step).and_then(|step| step.decision["policy"].as_str()?.parse().ok());
        decided.or(recording.policy)
    };
    let (old_policy, new_policy) = (policy(was), policy(is));
    if let (Some(old), Some(new)) = (old_policy, new_policy)
        && old != new
    {
        let text = |digest: Digest| Value::from(digest.to_string());
        found.push(Difference::new(Part::Policy, &text(old), &text(new)));
    }
    let action = |recording: &Recording| recording.steps.get(step).and_then(|step| step.action);
    let edited = |recording: &Recording| {
        let outcome = recording.steps.get(step).and_then(|step| step.outcome.as_ref());
        outcome.is_some_and(|outcome| outcome.is_edited())
    };
    let runs = [(before, was), (run, is)].into_iter().filter(|(_, recording)| edited(recording));
    Ok(Why {
        step: step.to_owned(),
        before,
        run,
        action_before: action(was),
        action: action(is),
        outcome: if action(was) == action(is) { outcome(store, was, is, step) } else { None },
        edited: runs.map(|(run, _)| run).collect(),
        differences: found,
        broken: was.broken.iter().chain(&is.broken).cloned().collect(),
    })
}

/// Puts the run's arguments in the place of the variables that hold them. Every
/// command gets all arguments, so what else differs is more likely to be why:
/// they come after it.
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
    if let (Ok(before), Ok(now)) = (was.arguments(store), is.arguments(store)) {
        let digests = |args| -> HashMap<String, Value> {
            let digest = |text: String| serde_json::json!(Digest::of(text.as_bytes()));
            argument_vars(args).into_iter().map(|(name, text)| (name, digest(text))).collect()
        };
        let (of_old, of_new) = (digests(&before), digests(&now));
        // A sub-workflow has arguments of its own, which the record names nowhere.
        let holds = |preimage: &Value, digests: &HashMap<String, Value>, name: &str| {
            preimage["env"].get(name) == digests.get(name)
        };
        let unnamed = variables.len();
        variables.retain(|difference| {
            let name = difference.name.as_deref().unwrap_or_default();
            !(holds(old, &of_old, name) && holds(new, &of_new, name))
        });
        if variables.len() < unnamed {
            named(Part::Argument, &before.into(), &now.into(), &mut named_ones);
        }
    }
    variables.sort_by_key(|difference| difference.name.as_deref() == Some(ARGS_JSON));
    let place = found.iter().position(|difference| difference.part >= Part::Directory).unwrap_or(found.len());
    found.splice(place..place, named_ones.into_iter().chain(variables));
}

/// Where what a step gave differs.
pub(super) fn outcome(store: &Store, was: &Recording, is: &Recording, step: &str) -> Option<Difference> {
    let (old, new) = (was.steps.get(step)?.outcome.as_ref()?, is.steps.get(step)?.outcome.as_ref()?);
    let status = |outcome: &crate::store::StepOutcome| Value::from(outcome.status.as_str());
    let named = |name: &str, path: Option<String>, was: Value, is: Value| {
        Some(Difference { name: Some(name.to_owned()), path, ..Difference::new(Part::Other, &was, &is) })
    };
    if old.status != new.status {
        return named("status", None, status(old), status(new));
    }
    for (name, old, new) in [("output", old.output, new.output), ("stdout", old.stdout, new.stdout)] {
        if old.map(|blob| blob.digest) == new.map(|blob| blob.digest) {
            continue;
        }
        let inside = old.zip(new).and_then(|(old, new)| contents::first(store, &old.digest, &new.digest));
        let digest = |blob: Option<crate::store::Blob>| {
            blob.map_or(Value::Null, |blob| Value::from(blob.digest.to_string()))
        };
        return match inside {
            Some(place) => {
                named(name, Some(place.path), place.was.unwrap_or_default(), place.is.unwrap_or_default())
            }
            None => named(name, None, digest(old), digest(new)),
        };
    }
    let place = json_path::first(&old.value, &new.value)?;
    named("value", Some(place.path), place.was.unwrap_or_default(), place.is.unwrap_or_default())
}

/// Inputs are looked for among outputs of at most this size by their value.
const MAX_SOUGHT: u64 = 4 << 20;

/// The latest step before `reader` whose output is this input.
fn maker(store: &Store, recording: &Recording, reader: &str, input: &Digest) -> Option<String> {
    let outputs = |outcome: &crate::store::StepOutcome| [outcome.output, outcome.stdout];
    let mut earlier: Vec<_> = recording.in_order();
    earlier.retain(|(path, _)| *path != reader);
    earlier.reverse();
    let gave = |blob_is: &dyn Fn(crate::store::Blob) -> bool| {
        let found = earlier.iter().find(|(_, step)| {
            step.outcome.as_ref().is_some_and(|outcome| outputs(outcome).into_iter().flatten().any(blob_is))
        });
        found.map(|(path, _)| (*path).to_owned())
    };
    if let Some(path) = gave(&|blob| blob.digest == *input) {
        return Some(path);
    }
    // `$step.json` is the same value in another spelling.
    let sought = contents::value(store, input)?;
    let unwrapped = |value: Value| match value {
        Value::Array(mut items) if items.len() == 1 => items.remove(0),
        other => other,
    };
    let sought = unwrapped(sought);
    gave(&|blob| {
        blob.len <= MAX_SOUGHT
            && contents::value(store, &blob.digest).is_some_and(|value| unwrapped(value) == sought)
    })
}
