//! The undo of a step's effects, kept in the record of its run.
//!
//! A step's `undo:` depends on the arguments, the variables and the directory of the step. They are recorded before
//! the step does anything, and its result is recorded after it succeeded. So an undo needs neither the file nor the
//! values of other steps, however deep in the run the step was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_language::plan::{ArgSpec, Stdin, Step, Workflow};
use lobster_language::template;
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::workflow::{Enclosing, Frame};

/// Its path in the record, below the path of the step.
pub const KEPT: &str = "!undo-plan";

/// The path of the step's result in the record.
pub const RESULT: &str = "!undo-result";

/// Longest result that is passed to an undo.
pub const MAX_RESULT: u64 = 1 << 20;

/// The undo of one step of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reversal {
    /// The id of the step, by which its undo refers to its result.
    pub of: String,
    /// A file with one step: the undo.
    pub workflow: Workflow,
    /// The arguments of the step's file.
    pub args: Map<String, Value>,
    /// The variables of the step.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: PathBuf,
}

/// The result of a step, as its undo refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoInput {
    /// Its text.
    Text(Digest),
    /// Its value, if that is more than its text.
    Value(Digest),
    /// It is longer than [`MAX_RESULT`].
    TooLong,
}

impl UndoInput {
    /// Reads the recorded value of [`RESULT`].
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let digest = |key: &str| value.get(key)?.as_str()?.parse().ok();
        if value.get("too_long").is_some() {
            return Some(Self::TooLong);
        }
        digest("value").map(Self::Value).or_else(|| digest("text").map(Self::Text))
    }

    /// The `stdin` with which a step without work has the same result.
    ///
    /// # Errors
    /// If the result is no longer in the store.
    pub fn into_stdin(self, store: &Store) -> Result<Option<Stdin>, StageError> {
        let load = |digest: &Digest| store.load_blob(digest, MAX_RESULT).map_err(StageError::permanent_from);
        Ok(match self {
            Self::Text(digest) => {
                let text = String::from_utf8_lossy(&load(&digest)?).into_owned();
                Some(Stdin::Literal(Value::String(text)))
            }
            Self::Value(digest) => Some(Stdin::Literal(
                serde_json::from_slice(&load(&digest)?).map_err(StageError::permanent_from)?,
            )),
            Self::TooLong => None,
        })
    }
}

impl Frame<'_> {
    /// Records the undo of a step, before the step does anything.
    pub(super) fn keep_reversal(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
    ) -> Result<(), Stop> {
        let Some(undo) = step.extras.undo.as_deref().filter(|_| self.run.is_journaled()) else {
            return Ok(());
        };
        let env =
            self.step_env(step, scope, enclosing).map_err(|error| self.expression_failure(path, &error))?;
        let cwd = match &undo.cwd {
            Some(dir) => self.run.cwd.join(&*template::fill_args(dir, self.args)),
            None => self.step_cwd(step, enclosing),
        };
        self.run.record_value(&path.gate(&KEPT[1..]), || {
            let own = Step { cwd: None, ..undo.clone() };
            let reversal = Reversal {
                of: step.id.clone(),
                workflow: self.file_of(own),
                args: self.args.clone(),
                env: env.plan_vars().iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
                cwd,
            };
            let text = serde_json::to_vec(&reversal).map_err(StageError::permanent_from)?;
            Ok(json!({ "reversal": store_bytes(&self.run.store, &text)? }))
        })?;
        Ok(())
    }

    /// A file with only this step, and with the parts of the step's own file that the step may name.
    fn file_of(&self, step: Step) -> Workflow {
        let argument = |name: &String| ArgSpec { name: name.clone(), ..ArgSpec::default() };
        Workflow {
            args: self.args.keys().map(argument).collect(),
            env: Vec::new(),
            cwd: None,
            cost_limit: None,
            budget: None,
            triggers: lobster_language::triggers::Triggers::default(),
            notify: Vec::new(),
            changes: self.workflow.changes,
            least_changes: None,
            concurrency: None,
            steps: vec![step],
            name: None,
            description: None,
            file: self.workflow.file.clone(),
            source: self.workflow.source,
            secrets: self.workflow.secrets.clone(),
            children: BTreeMap::clone(&self.workflow.children),
            components: BTreeMap::clone(&self.workflow.components),
        }
    }

    /// Records the result of a step with an undo.
    pub(super) fn keep_result(&self, step: &Step, record: &Record, path: &StepPath) -> Result<(), Stop> {
        if step.extras.undo.is_none() || !self.run.is_journaled() {
            return Ok(());
        }
        let kept = |key: &str, text: &[u8]| match text.len() as u64 > MAX_RESULT {
            true => Ok(json!({ "too_long": true })),
            false => Ok(json!({ key: store_bytes(&self.run.store, text)? })),
        };
        let is_of_text = matches!(record.json, Json::OfStdout(_) | Json::Absent);
        let value = if is_of_text { None } else { record.json()?.cloned() };
        self.run.record_value(&path.gate(&RESULT[1..]), || match (&record.stdout, value) {
            (_, Some(value)) => {
                kept("value", &serde_json::to_vec(&*value).map_err(StageError::permanent_from)?)
            }
            (Some(text), None) if text.stored_len() > MAX_RESULT => Ok(json!({ "too_long": true })),
            (Some(text), None) => {
                let text = text.load().map_err(StageError::permanent_from)?;
                kept("text", text.as_bytes())
            }
            (None, None) => kept("text", b""),
        })?;
        Ok(())
    }
}

fn store_bytes(store: &Store, bytes: &[u8]) -> Result<Digest, StageError> {
    let blob =
        store.put_blob(bytes).map_err(|error| StageError::permanent_from(error).with_code(Code::Store))?;
    Ok(blob.digest)
}

/// The recorded undo of a step.
///
/// # Errors
/// If it cannot be read.
pub fn load(store: &Store, kept: &Value) -> Result<Reversal, Stop> {
    let digest = kept.get("reversal").and_then(Value::as_str).and_then(|hex| hex.parse::<Digest>().ok());
    let digest = digest
        .ok_or_else(|| Stop::Failed(StageError::permanent("the record does not include the step's undo")))?;
    super::recorded_plan::load_recorded(store, &digest)
        .map_err(|failure| store_failure(StageError::permanent(failure.message)))
}
