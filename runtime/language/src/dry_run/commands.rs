//! Checks of pipeline text before a run.

use super::super::pipeline::{self, Pipeline};
use super::super::template;
use super::{Commands, PlanError, Planner};

/// Position of a pipeline; the wording of the incumbent's messages depends on it.
#[derive(Clone, Copy)]
pub(super) struct PipelinePosition<'a> {
    /// Id of the step, or of the step around it.
    pub(super) id: &'a str,
    pub(super) nest: Option<Nest<'a>>,
}

#[derive(Clone, Copy)]
pub(super) enum Nest<'a> {
    Branch(&'a str),
    SubStep(&'a str),
}

impl PipelinePosition<'_> {
    fn describe_place(self) -> String {
        match self.nest {
            None => format!("Workflow step {} pipeline", self.id),
            Some(Nest::Branch(branch)) => format!("Parallel branch {branch} pipeline"),
            Some(Nest::SubStep(sub)) => format!("Workflow step {} for_each sub-step {sub} pipeline", self.id),
        }
    }

    pub(super) fn parse_pipeline(self, text: &str) -> Result<Pipeline, PlanError> {
        pipeline::parse(text)
            .map_err(|error| PlanError(format!("{} parse failed: {error}", self.describe_place())))
    }

    fn known_commands(self, pipeline: &Pipeline, commands: Commands<'_>) -> Result<(), PlanError> {
        let unknown =
            pipeline.stages.iter().find(|stage| !is_deferred(&stage.name) && !commands(&stage.name));
        match (unknown, self.nest) {
            (None, _) => Ok(()),
            (Some(stage), Some(Nest::SubStep(_))) => {
                Err(PlanError(format!("{}: unknown command: {}", self.describe_place(), stage.name)))
            }
            (Some(stage), _) => Err(PlanError(format!(
                "{} references unknown command: {}",
                self.describe_place(),
                stage.name
            ))),
        }
    }
}

/// True if the name of a stage comes from a result.
fn is_deferred(name: &str) -> bool {
    template::references_in(name).next().is_some()
}

impl Planner<'_> {
    /// Checks a pipeline; true if the name of a command depends on results.
    pub(super) fn check_pipeline(&self, place: PipelinePosition<'_>, shown: &str) -> Result<bool, PlanError> {
        let parsed = place.parse_pipeline(shown)?;
        place.known_commands(&parsed, self.commands)?;
        Ok(parsed.stages.iter().any(|stage| is_deferred(&stage.name)))
    }
}
