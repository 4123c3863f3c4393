//! Checks of a step's pipeline before a run: the commands must exist and accept their arguments.

use super::super::diagnostic::Diagnostic;
use super::super::pipeline::{self, StageCall};
use super::super::plan::Step;
use super::super::source::Node;
use super::super::{codes, template};
use super::{Lowering, certain_failure};
use lobster_stage::{self as stage, Registry, StageArgs, StageError, StageSpec};
use serde_json::Value;

impl Lowering<'_> {
    /// Finds stages that can never run. A stage with a template in its text may be different at run
    /// time.
    pub(super) fn check_stages(&mut self, node: &Node, text: &str, commands: &Registry, id: &str) {
        // Text that cannot be parsed has already been reported, or may be valid at run time.
        let Ok(parsed) = pipeline::parse(text) else { return };
        let is_certain = !self.is_tolerated;
        let is_known =
            |call: &&StageCall| template::is_constant(&call.name) && !commands.is_of_host(&call.name);
        for call in parsed.stages.iter().filter(is_known) {
            // Even in a file with many warnings, the error that prevents a run is reported.
            if self.is_full() && (self.is_tolerated || certain_failure(self.warnings).is_some()) {
                return;
            }
            let name = node.part_span(self.source, call.span.start..call.span.start + call.name.len());
            let spec = match commands.resolve_command(&call.name) {
                Ok(spec) => spec,
                Err(unknown) => {
                    let message =
                        format!("Workflow step {id} pipeline references unknown command: {}", call.name);
                    let help = unknown.nearest.map(|name| format!("did you mean `{name}`?"));
                    let said =
                        self.add_failure_when_reached(codes::UNKNOWN_COMMAND, name, message, is_certain);
                    said.help = help
                        .or_else(|| Some("to run a program, use `run:`, or the command `exec`".to_owned()));
                    continue;
                }
            };
            if let Err(error) = take_arguments(spec, call) {
                let whole = node.part_span(self.source, call.span.clone());
                let message = format!("Workflow step {id} pipeline: {}", error.message);
                let said = self.add_failure_when_reached(codes::STAGE_ARGUMENTS, whole, message, is_certain);
                said.help = Some(format!("`lobster help {}` lists the arguments", call.name));
            }
            if self.is_full() {
                continue;
            }
            for warning in stage::argument_warnings(spec, &call.args) {
                let mut said = Diagnostic::warning(self.source, codes::STAGE_OPTION, name, warning.message);
                said.help = warning.help;
                self.warnings.push(said);
            }
        }
    }

    /// Warns of a secret that no stage uses: it would be granted without effect, and another key would
    /// be used.
    pub(super) fn lint_pipeline_secrets(&mut self, node: &Node, text: &str, step: &Step) {
        let (Some(written), Ok(parsed)) = (node.get("secrets"), pipeline::parse(text)) else { return };
        let mut stages = parsed.stages.iter();
        if text.contains("${") || stages.any(|stage| stage.name.contains('$')) {
            return;
        }
        for grant in &step.extras.secrets {
            let answers: Vec<_> = parsed
                .stages
                .iter()
                .map(|call| {
                    let takes = stage::takes_secret(&call.name, &call.args, &grant.variable);
                    takes.map_err(|takes| (call, takes))
                })
                .collect();
            if answers.iter().any(Result::is_ok) {
                continue;
            }
            let message = format!(
                "Workflow step {} secret {:?} reaches no stage of the pipeline as {}",
                step.id, grant.secret, grant.variable
            );
            let mut said = Diagnostic::warning(self.source, codes::IDLE_SECRET, written.span, message);
            let takers = answers.into_iter().filter_map(Result::err).find(|(_, takes)| !takes.is_empty());
            said.help = takers.map(|(stage, takes)| {
                format!(
                    "{} takes it as {}: `secrets: {{{}: {}}}`",
                    stage.name,
                    takes.join(" or "),
                    takes[0],
                    grant.secret
                )
            });
            self.warnings.push(said);
        }
    }
}

/// Checks that a command accepts the arguments as written, as far as they are known.
fn take_arguments(spec: &StageSpec, call: &StageCall) -> Result<(), StageError> {
    if template::is_constant(&call.raw) {
        return (spec.build)(&call.args).map(drop);
    }
    if !stage::is_ours(spec.name) {
        return Ok(());
    }
    // With any value.
    let written = call.args.options.keys().filter(|name| template::is_constant(name));
    let options = written.map(|name| (name.clone(), Value::Bool(true))).collect();
    stage::refuse_unknown(spec.name, spec.flags, &StageArgs { options, ..StageArgs::default() })
}
