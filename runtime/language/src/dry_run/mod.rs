//! The plan of a workflow, printed for people before a run.
//!
//! Nothing is run and no file is read: sub-workflows were loaded with the workflow. Certain failures
//! are errors here, and values that depend on results are marked as such.

mod commands;
mod describe;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use lobster_base::visible::bar_further_lines;
use serde_json::{Map, Value};

use super::condition::Fact;
use super::plan::{Stdin, Step, Work, Workflow};
use super::template::{self, ExprError, Reference};
use super::workflow::bind_args;

/// True if a pipeline command of this name exists.
pub type Commands<'a> = &'a dyn Fn(&str) -> bool;

/// Reason why a workflow cannot run although its file is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

/// Plan of a workflow with these arguments (from [`bind_args`]), with a final newline.
///
/// # Errors
/// A step that may run is certain to fail: an unknown pipeline command, a pipeline that cannot be
/// parsed, a reference to a step that is not an earlier one, or arguments that a sub-workflow does not
/// accept.
pub fn dry_run(
    workflow: &Workflow,
    args: &Map<String, Value>,
    commands: Commands<'_>,
) -> Result<String, PlanError> {
    let count = workflow.steps.len();
    let plural = if count == 1 { "" } else { "s" };
    let mut out = format!("[DRY RUN] Would execute {count} step{plural}:\n\n");
    if let Some(concurrency) = workflow.concurrency {
        out.push_str(&format!("  at most {concurrency} at once\n\n"));
    }
    let mut planner = Planner { workflow, args, commands, known: HashMap::new(), ended: HashSet::new() };
    let mut lines = Vec::new();
    for (number, index) in workflow.execution_order().into_iter().enumerate() {
        planner.top_step(number + 1, &workflow.steps[index], &mut lines)?;
    }
    for line in lines {
        out.push_str(&line);
        out.push('\n');
    }
    Ok(out)
}

/// Part of the plan after the top-level step `done`, without the heading. Further lines of a text have a bar, so that
/// they cannot look like steps.
///
/// # Errors
/// As [`dry_run`].
pub fn remaining_plan(
    workflow: &Workflow,
    args: &Map<String, Value>,
    commands: Commands<'_>,
    done: &str,
) -> Result<String, PlanError> {
    let mut planner = Planner { workflow, args, commands, known: HashMap::new(), ended: HashSet::new() };
    let mut lines = Vec::new();
    for (number, index) in workflow.execution_order().into_iter().enumerate() {
        let step = &workflow.steps[index];
        planner.top_step(number + 1, step, &mut lines)?;
        if step.id == done {
            lines.clear();
            // The result of `done` itself is not known yet.
            planner.ended = planner.known.keys().filter(|id| *id != done).cloned().collect();
        }
    }
    Ok(lines.iter().flat_map(|line| [bar_further_lines(line), "\n".to_owned()]).collect())
}

/// Expected outcome of a step.
#[derive(Clone, Debug)]
enum Expectation {
    /// It will be skipped.
    Skipped,
    /// It is reached; `surely` is true if its condition does not depend on results.
    Runs { surely: bool, shape: Shape },
    /// A variable of a loop.
    Variable,
}

/// Parts of a step's result that follow from its definition.
#[derive(Clone, Copy, Debug)]
struct Shape {
    gate: bool,
    may_fail: bool,
    has_output: bool,
    input: bool,
}

impl Shape {
    fn from_step(step: &Step) -> Self {
        Self {
            gate: step.approval.is_some(),
            may_fail: step.on_error.passes_over(),
            has_output: step.work != Work::Nothing || !matches!(step.stdin, Stdin::None),
            input: matches!(step.work, Work::Input(_)),
        }
    }
}

struct Planner<'a> {
    workflow: &'a Workflow,
    args: &'a Map<String, Value>,
    commands: Commands<'a>,
    /// Steps that can be referred to.
    known: HashMap<String, Expectation>,
    /// Steps among them that precede the printed part of the plan: their results are not marked as
    /// unknown.
    ended: HashSet<String>,
}

impl Planner<'_> {
    /// Fact about the value of a reference.
    fn reference_fact(&self, reference: &Reference) -> Result<Fact, PlanError> {
        let Some(expectation) = self.known.get(&reference.id) else {
            return Err(PlanError(ExprError::UnknownStep(reference.clone()).to_string()));
        };
        let (first, sole) = (reference.path[0].as_str(), reference.path.len() == 1);
        let none = Fact::Known(None);
        let truth =
            |value: bool| if sole { Fact::Known(Some(Value::Bool(value))) } else { Fact::Known(None) };
        Ok(match (expectation, first) {
            (_, "id") if sole => Fact::Known(Some(Value::String(reference.id.clone()))),
            (Expectation::Skipped, "skipped") => truth(true),
            (Expectation::Skipped, _) => none,
            (Expectation::Variable, "json" | "stdout") => Fact::Unknown,
            (Expectation::Variable, _) => none,
            (Expectation::Runs { surely: false, .. }, "skipped") => Fact::Unknown,
            // The plan follows the path on which all approvals are given.
            (Expectation::Runs { surely: true, shape }, "approved") if shape.gate && !shape.may_fail => {
                truth(true)
            }
            (Expectation::Runs { shape, .. }, "approved" | "approvedBy" | "initiatedBy") if shape.gate => {
                Fact::Unknown
            }
            (Expectation::Runs { shape, .. }, "error" | "errorMessage") if shape.may_fail => Fact::Unknown,
            (Expectation::Runs { shape, .. }, "json" | "stdout") if shape.has_output && !shape.input => {
                Fact::Unknown
            }
            (Expectation::Runs { shape, .. }, "response" | "subject") if shape.input => Fact::Unknown,
            (Expectation::Runs { .. }, _) => none,
        })
    }

    /// True if the step runs; `None` if that depends on results.
    fn will_run(&self, step: &Step) -> Result<Option<bool>, PlanError> {
        let runs = step.when.evaluate_partially(&|reference| self.reference_fact(reference))?;
        let may_be_skipped = |need: &String| {
            let sure = matches!(self.known.get(need), Some(Expectation::Runs { surely: true, .. }));
            !sure && !step.asks_about(need)
        };
        let is_open = step.needs.iter().flatten().any(may_be_skipped);
        Ok(runs.filter(|runs| !runs || !is_open))
    }

    /// A needed step that will be skipped, so that this step is skipped as well.
    fn skipped_need<'s>(&self, step: &'s Step) -> Option<&'s String> {
        let is_skipped = |need: &&String| matches!(self.known.get(*need), Some(Expectation::Skipped));
        step.needs.iter().flatten().find(|need| is_skipped(need) && !step.asks_about(need))
    }

    fn mark_visited(&mut self, step: &Step, runs: Option<bool>) {
        let expectation = match runs {
            Some(false) => Expectation::Skipped,
            runs => Expectation::Runs { surely: runs.is_some(), shape: Shape::from_step(step) },
        };
        self.known.insert(step.id.clone(), expectation);
        // Only the winner of `wait: any`, or the steps of the chosen case, have a result, and it is not
        // known which.
        if let Work::Parallel { .. } | Work::Switch { .. } = &step.work
            && runs != Some(false)
        {
            for inside in step.work.inner_steps() {
                self.mark_visited(inside, None);
            }
        }
    }

    /// Text with arguments and approvals filled in; other references stay unchanged.
    fn fill_known(&self, text: &str) -> String {
        let filled = template::fill_args(text, self.args);
        let mut out = String::new();
        let mut copied = 0;
        for (range, reference) in template::references_in(&filled) {
            let is_approval = reference.path == ["approved"];
            let Some(value) = is_approval.then(|| self.reference_fact(&reference).ok()).flatten() else {
                continue;
            };
            let text = match value {
                Fact::Known(Some(value)) => value.to_string(),
                Fact::Known(None) => "false".to_owned(),
                Fact::Unknown => continue,
            };
            out.push_str(&filled[copied..range.start]);
            out.push_str(&text);
            copied = range.end;
        }
        out.push_str(&filled[copied..]);
        out
    }

    /// True if text depends on results of known steps.
    fn depends_on_results(&self, text: &str) -> bool {
        template::references_in(text).any(|(_, reference)| self.known.contains_key(&reference.id))
    }

    /// True if a text refers to a result that does not exist yet.
    fn depends_on_later_results(&self, text: &str) -> bool {
        let mut references = template::references_in(text);
        references.any(|(_, it)| self.known.contains_key(&it.id) && !self.ended.contains(&it.id))
    }

    /// The only reference of a text, which must name a known step.
    fn only_reference(&self, text: &str, place: &str) -> Result<Option<Reference>, PlanError> {
        let Some(reference) = template::strict_reference(&template::fill_args(text, self.args)) else {
            return Ok(None);
        };
        if self.known.contains_key(&reference.id) {
            return Ok(Some(reference));
        }
        Err(PlanError(format!("{place}: {}", ExprError::UnknownStep(reference))))
    }

    /// Plans the sub-workflow that a step calls.
    fn plan_child(&self, step: &Step, path: &str, given: &Map<String, Value>) -> Result<String, PlanError> {
        let Some(child) = self.workflow.children.get(path) else {
            return Ok(if template::is_constant(path) {
                "[file cannot be used now — it must be there when the step runs]".to_owned()
            } else {
                "[file not checked — its path depends on arguments or results]".to_owned()
            });
        };
        let failed =
            |reason: String| PlanError(format!("Workflow step {} workflow {path}: {reason}", step.id));
        let given: Map<String, Value> = given
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) => (name.clone(), Value::String(self.fill_known(text))),
                other => (name.clone(), other.clone()),
            })
            .collect();
        let args = bind_args(child, &Value::Object(given)).map_err(|error| failed(error.to_string()))?;
        dry_run(child, &args, self.commands).map_err(|error| failed(error.0))?;
        Ok(describe::summarize_contents(child))
    }
}

impl From<PlanError> for String {
    fn from(error: PlanError) -> Self {
        error.0
    }
}
