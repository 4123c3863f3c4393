//! Checks requests of agents: they must not widen a grant, read past the policy, or run files that the
//! operator has not provided.

use std::path::{Path, PathBuf};

use lobster_runtime::language::pipeline::{self, Pipeline, StageCall};
use lobster_runtime::runtime::{Runtime, workflow_file};
use lobster_runtime::stage::StageKind;

use super::Options;
use super::builtin::RunArgs;

/// An accepted request of `run`.
pub(super) enum AgentRequest {
    Pipeline(String),
    File(PathBuf),
}

/// Limits of `run` in addition to the policy.
impl Options {
    /// Resolves the directory of a call.
    pub(super) fn resolve_cwd(&self, given: Option<&str>) -> Result<PathBuf, String> {
        let Some(given) = given.filter(|cwd| !cwd.trim().is_empty()) else { return Ok(self.root.clone()) };
        let real = self.root.join(given).canonicalize().ok();
        real.filter(|real| real.starts_with(&self.root) && real.is_dir())
            .ok_or_else(|| format!("cwd {given:?} is outside the server's directory, or no directory"))
    }

    /// Distinguishes a pipeline from a file like the incumbent's plugin, and checks that it may run.
    pub(super) fn check_request(
        &self,
        runtime: &Runtime,
        args: &RunArgs,
        cwd: &Path,
    ) -> Result<AgentRequest, String> {
        match (&args.pipeline, &args.file) {
            (Some(_), Some(_)) => Err("give `pipeline` or `file`, not both".to_owned()),
            (None, None) => Err("give `pipeline`, the text of one, or `file`, a workflow file".to_owned()),
            (None, Some(file)) => self.check_file(runtime, file, cwd).map(AgentRequest::File),
            (Some(text), None) if !text.contains('|') && workflow_file(&cwd.join(text.trim())).is_ok() => {
                self.check_file(runtime, text.trim(), cwd).map(AgentRequest::File)
            }
            (Some(_), None) if args.args.is_some() => {
                Err("`args` are for workflow files; a pipeline takes its arguments in its text".to_owned())
            }
            (Some(text), None) => {
                // A text that is not a pipeline fails with its own message when it is planned.
                if let Ok(pipeline) = pipeline::parse(text) {
                    self.check_pipeline(runtime, &pipeline, cwd)?;
                }
                Ok(AgentRequest::Pipeline(text.clone()))
            }
        }
    }

    fn check_file(&self, runtime: &Runtime, file: &str, cwd: &Path) -> Result<PathBuf, String> {
        let Some(real) = self.resolve_file(file, cwd, &self.workflows) else {
            return Err(format!(
                "file {file:?} is outside the server's directory and its workflow folders, or no file"
            ));
        };
        if self.workflows.iter().any(|dir| real.starts_with(dir)) {
            return Ok(real);
        }
        if !runtime.policy().is_open() {
            return Err(format!(
                "file {file:?} is not in a directory that the operator named with --workflows; a policy is in \
                 force, so files of other folders are not run"
            ));
        }
        Ok(real)
    }

    /// The resolved file, if it is in the server's directory or in these directories. The contents of
    /// other places are not revealed.
    fn resolve_file(&self, file: &str, cwd: &Path, folders: &[PathBuf]) -> Option<PathBuf> {
        let real = cwd.join(file).canonicalize().ok()?;
        let is_ours = folders.iter().chain([&self.root]).any(|dir| real.starts_with(dir));
        (is_ours && real.is_file()).then_some(real)
    }

    /// Checks that a pipeline written by an agent may run. The policy judges processes; this check
    /// covers actions inside lobster itself.
    fn check_pipeline(&self, runtime: &Runtime, pipeline: &Pipeline, cwd: &Path) -> Result<(), String> {
        for program in pipeline.stages.iter().filter_map(component_file) {
            if self.resolve_file(program, cwd, &self.components).is_none() {
                return Err(format!(
                    "component {program:?} is outside the server's directory and its component folders, or no file"
                ));
            }
        }
        if runtime.policy().is_open() {
            return Ok(());
        }
        for stage in &pipeline.stages {
            let name = stage.name.as_str();
            // Applies even to a command that the operator allows: the right to send does not include
            // the right to read.
            if let Some(option) = file_option(stage) {
                return Err(format!("`{name} {option}` would read a file past the policy; give the text"));
            }
            if self.allowed.iter().any(|allowed| allowed == name) {
                continue;
            }
            if let Some(option) = stage.args.options.keys().find(|option| option.starts_with("grant-")) {
                return Err(format!(
                    "`{name} --{option}` would grant rights; only a workflow of the operator's folders can"
                ));
            }
            let acts = runtime.registry().get(name).is_some_and(|spec| spec.kind == StageKind::Effect);
            if acts && !matches!(name, "exec" | "component" | "js" | "workflows.list") {
                return Err(format!(
                    "`{name}` acts beyond what the policy judges; the operator can allow it with --allow {name}"
                ));
            }
        }
        Ok(())
    }
}

/// The file of a component, which lobster reads itself. A component of the store has no file.
fn component_file(stage: &StageCall) -> Option<&str> {
    let file = stage.args.positional.first().filter(|_| stage.name == "component")?;
    (!file.starts_with("blake3:")).then_some(file)
}

/// The option by which a command would read a file itself.
fn file_option(stage: &StageCall) -> Option<String> {
    let options: &[&str] = match stage.name.as_str() {
        "template" => &["file"],
        "llm.invoke" | "llm_task.invoke" => &["file", "prompt-file", "system", "output-schema"],
        _ => &[],
    };
    let is_text = |option: &str| matches!(option, "system" | "output-schema");
    let reads = |option: &&&str| {
        let values = stage.args.all_values(option);
        // For some options, only a value that begins with @ is a path.
        values
            .iter()
            .any(|value| !is_text(option) || value.as_str().is_some_and(|text| text.trim().starts_with('@')))
    };
    options.iter().find(reads).map(|option| format!("--{option}"))
}
