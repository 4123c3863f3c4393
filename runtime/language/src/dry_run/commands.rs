//! Pipeline text, looked at before a run.

use super::super::pipeline::{self, Pipeline};
use super::super::plan::{Step, Work, Workflow};
use super::super::template;
use super::{Commands, PlanError, Planner};

/// Finds pipelines that can never run in text that no argument or result can
/// change, at any depth and in sub-workflows.
///
/// # Errors
/// The first unknown command, or text that is not a pipeline.
pub fn check_commands(workflow: &Workflow, commands: Commands<'_>) -> Result<(), PlanError> {
    workflow.steps.iter().try_for_each(|step| step_commands(&step.id, None, step, commands))?;
    workflow.children.values().try_for_each(|child| check_commands(child, commands))
}

fn step_commands(
    id: &str,
    nest: Option<Nest<'_>>,
    step: &Step,
    commands: Commands<'_>,
) -> Result<(), PlanError> {
    if step.on_error.passes_over() {
        return Ok(()); // its failure is provided for
    }
    match &step.work {
        Work::Pipeline(text) if template::is_constant(text) => {
            let place = Place { id, nest };
            place.known_commands(&place.parse(text)?, commands)
        }
        Work::Parallel { branches, .. } => {
            branches.iter().try_for_each(|b| step_commands(&step.id, Some(Nest::Branch(&b.id)), b, commands))
        }
        Work::ForEach { steps, .. } => {
            steps.iter().try_for_each(|s| step_commands(&step.id, Some(Nest::SubStep(&s.id)), s, commands))
        }
        Work::Repeat { .. } | Work::Switch { .. } => {
            step.work.inside().into_iter().try_for_each(|s| step_commands(&s.id, None, s, commands))
        }
        Work::Pipeline(_)
        | Work::Nothing
        | Work::Shell(_)
        | Work::Exec(_)
        | Work::Workflow { .. }
        | Work::Component { .. }
        | Work::Js(_)
        | Work::Mcp { .. }
        | Work::Input(_)
        | Work::Wait(_) => Ok(()),
    }
}

/// Where a pipeline stands; the incumbent words its messages by that.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The step, or the step around it.
    pub(super) id: &'a str,
    pub(super) nest: Option<Nest<'a>>,
}

#[derive(Clone, Copy)]
pub(super) enum Nest<'a> {
    Branch(&'a str),
    SubStep(&'a str),
}

impl Place<'_> {
    fn subject(self) -> String {
        match self.nest {
            None => format!("Workflow step {} pipeline", self.id),
            Some(Nest::Branch(branch)) => format!("Parallel branch {branch} pipeline"),
            Some(Nest::SubStep(sub)) => format!("Workflow step {} for_each sub-step {sub} pipeline", self.id),
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<Pipeline, PlanError> {
        pipeline::parse(text).map_err(|error| PlanError(format!("{} parse failed: {error}", self.subject())))
    }

    fn known_commands(self, pipeline: &Pipeline, commands: Commands<'_>) -> Result<(), PlanError> {
        let unknown =
            pipeline.stages.iter().find(|stage| !is_deferred(&stage.name) && !commands(&stage.name));
        match (unknown, self.nest) {
            (None, _) => Ok(()),
            (Some(stage), Some(Nest::SubStep(_))) => {
                Err(PlanError(format!("{}: unknown command: {}", self.subject(), stage.name)))
            }
            (Some(stage), _) => {
                Err(PlanError(format!("{} references unknown command: {}", self.subject(), stage.name)))
            }
        }
    }
}

/// Whether the name of a stage comes from a result.
fn is_deferred(name: &str) -> bool {
    template::references_in(name).next().is_some()
}

impl Planner<'_> {
    /// Checks a pipeline; tells whether the name of a command depends on results.
    pub(super) fn pipeline(&self, place: Place<'_>, shown: &str) -> Result<bool, PlanError> {
        let parsed = place.parse(shown)?;
        place.known_commands(&parsed, self.commands)?;
        Ok(parsed.stages.iter().any(|stage| is_deferred(&stage.name)))
    }
}
