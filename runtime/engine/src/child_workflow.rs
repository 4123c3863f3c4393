//! Steps that run a workflow file.

use std::path::Path;
use std::sync::Arc;

use lobster_base::cancel::CancelToken;
use lobster_base::sync::lock;
use lobster_language as language;
use lobster_language::diagnostic::Diagnostic;
use lobster_language::plan::{Step, Workflow};
use lobster_stage::{StageError, Stop};
use serde_json::{Map, Value};

use super::budget;
use super::env::Env;
use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::value::Text;
use super::workflow::{Enclosing, Frame};

impl Frame<'_> {
    /// Runs the steps of another file as one step.
    #[expect(clippy::too_many_arguments, reason = "a child inherits all of these")]
    pub(super) fn run_child(
        &self,
        step: &Step,
        file: &str,
        args: &Map<String, Value>,
        scope: &Scope<'_>,
        path: &StepPath,
        env: &Env,
        cwd: &Path,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let filled = self.fill_template(file, scope, path)?;
        let location = self.workflow.file.parent().unwrap_or(Path::new("/")).join(&filled);
        let resolved = std::fs::canonicalize(&location).unwrap_or_else(|_| location.clone());
        if self.active.contains(&resolved) {
            return Err(StageError::permanent(format!(
                "Workflow step {} creates a cycle: {} is already being executed",
                step.id,
                resolved.display()
            ))
            .into());
        }
        let loaded;
        let workflow = match self.workflow.children.get(&filled).filter(|_| filled == file) {
            Some(child) => child,
            None => {
                loaded = self.load_child(step, &location, path)?;
                &loaded
            }
        };
        let provided: Map<String, Value> = args
            .iter()
            .map(|(name, value)| {
                Ok((
                    name.clone(),
                    match value {
                        Value::String(text) => Value::String(self.fill_template(text, scope, path)?),
                        other => other.clone(),
                    },
                ))
            })
            .collect::<Result<_, Stop>>()?;
        let bound = language::workflow::bind_args(workflow, &Value::Object(provided))
            .map_err(|error| StageError::permanent(format!("Workflow step {} {error}", step.id)))?;
        let mut active = self.active.clone();
        active.push(resolved);
        let cost = crate::perform::cost_tracker(self.run, workflow, path, Some((&self.cost, &step.id)))?;
        let frame = Frame {
            run: self.run,
            workflow,
            args: &bound,
            env: env.clone(),
            cwd: cwd.to_owned(),
            path: path.clone(),
            active,
            cost: Arc::clone(&cost),
            account: budget::of_child(self.run, workflow, path, &enclosing.account),
            least_changes: self
                .workflow
                .changes
                .map_or(self.least_changes, |mode| mode.max(self.least_changes)),
            pile: Arc::clone(&enclosing.pile),
        };
        let last = frame.run_steps(cancel);
        let spent = lock(&cost).clone();
        lock(&self.cost).absorb_child(&step.id, &spent);
        let last = last?;
        let items = match last {
            Some(record) => record.into_output()?.to_vec()?,
            None => Vec::new(),
        };
        let value = match <[Value; 1]>::try_from(items) {
            Ok([only]) => only,
            Err(many) => Value::Array(many),
        };
        let value = Arc::new(value);
        let stdout = match &*value {
            Value::Array(items) if items.is_empty() => Text::inline(""),
            _ => Text::of_value(Arc::clone(&value)),
        };
        Ok(Record { stdout: Some(stdout), json: Json::Value(value), ..Record::new(&step.id) })
    }

    /// Reads a child workflow whose path became known only during the run; the run records its text.
    fn load_child(&self, step: &Step, location: &Path, path: &StepPath) -> Result<Workflow, Stop> {
        let kept = self.run.record_value(&path.gate("plan"), || {
            let source = crate::runtime::read_source(location).map_err(|error| {
                if error.kind() == std::io::ErrorKind::NotFound {
                    StageError::permanent(format!(
                        "Workflow step {} workflow file not found: {}",
                        step.id,
                        crate::runtime::tidy_path(location).display()
                    ))
                } else {
                    StageError::permanent(format!("{}: {error}", location.display()))
                }
            })?;
            let refuse = |error: &Diagnostic| StageError::permanent(error.one_line_with_snippet());
            let loaded = language::workflow::load_to_run(
                &source,
                &|path| crate::runtime::read_source(path),
                self.run.registry(),
            );
            let (workflow, said) = loaded.map_err(|error| refuse(&error))?;
            if let Some(error) = language::workflow::certain_failure(&said) {
                return Err(refuse(error));
            }
            serde_json::to_value(workflow).map_err(StageError::permanent_from)
        })?;
        let workflow: Workflow = serde_json::from_value(kept).map_err(StageError::permanent_from)?;
        if self.run.overseer().is_none() {
            let found = self.run.services.learn_secrets(crate::secrets::grants_of_file(&workflow));
            found.map_err(crate::secrets::SecretError::into_failure)?;
        }
        Ok(workflow)
    }
}
