//! `lobster diff`: what two runs did differently, step by step.

use serde::Serialize;

use super::preimage::Difference;
use super::recording::Recording;
use super::why::{outcome, why};
use crate::envelope::Failure;
use crate::runtime::Runtime;
use crate::store::{BrokenChain, RunId, RunStatus, Store};

/// How two runs compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDiff {
    pub before: RunId,
    pub after: RunId,
    pub status_before: RunStatus,
    pub status_after: RunStatus,
    /// Whether both executed the same plan with the same arguments.
    pub same_plan: bool,
    pub same_args: bool,
    /// Steps that did and gave the same in both.
    pub same: u64,
    /// The others, in the order of the later run.
    pub steps: Vec<StepDifference>,
    /// Journals that are not what was written, so that what is said of their runs may be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenChain>,
}

/// One step that is not the same in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepDifference {
    pub step: String,
    pub change: StepChange,
    /// The first thing that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Difference>,
}

/// In which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepChange {
    /// Only in the first run.
    Removed,
    /// Only in the second.
    Added,
    /// It did something else.
    Action,
    /// It did the same and was given something else.
    Outcome,
}

impl Runtime {
    /// Compares two runs.
    ///
    /// # Errors
    /// When one of them is not known or cannot be read.
    pub fn diff(&self, before: &str, after: &str) -> Result<RunDiff, Failure> {
        let store = self.store().map_err(super::verify::failure)?;
        let load = |text: &str| {
            let id = store.find_run(text).map_err(|error| Failure::parse(error.to_string()))?;
            Recording::found(store.found_events(id).map_err(super::verify::failure)?)
        };
        diff(&store, &load(before)?, &load(after)?)
    }
}

fn diff(store: &Store, was: &Recording, is: &Recording) -> Result<RunDiff, Failure> {
    let mut same = 0;
    let mut steps = Vec::new();
    for (path, step) in is.in_order() {
        let Some(old) = was.steps.get(path) else {
            steps.push(StepDifference { step: path.to_owned(), change: StepChange::Added, first: None });
            continue;
        };
        if old.action != step.action {
            let first = why(store, (was.run, was), (is.run, is), path)
                .ok()
                .and_then(|why| why.differences.into_iter().next());
            steps.push(StepDifference { step: path.to_owned(), change: StepChange::Action, first });
        } else if let Some(first) = outcome(store, was, is, path) {
            steps.push(StepDifference {
                step: path.to_owned(),
                change: StepChange::Outcome,
                first: Some(first),
            });
        } else {
            same += 1;
        }
    }
    for (path, _) in was.in_order().into_iter().filter(|(path, _)| !is.steps.contains_key(*path)) {
        steps.push(StepDifference { step: path.to_owned(), change: StepChange::Removed, first: None });
    }
    Ok(RunDiff {
        before: was.run,
        after: is.run,
        status_before: was.status,
        status_after: is.status,
        same_plan: was.task.plan == is.task.plan,
        same_args: was.task.args == is.task.args,
        same,
        steps,
        broken: was.broken.iter().chain(&is.broken).cloned().collect(),
    })
}
