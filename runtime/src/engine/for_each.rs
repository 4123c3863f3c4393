//! Loops over the items of an array.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::value::Text;
use super::workflow::{Enclosing, Frame, Input};
use crate::cancel::CancelToken;
use crate::json;
use crate::language::plan::{Step, Work};
use crate::steps::stages::{StageError, Stop};

impl Frame<'_> {
    /// Runs the sub-steps once for each item, in order.
    pub(super) fn for_each(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::ForEach { over, batch_size, pause_ms, .. } = &step.work else {
            return Ok(Record::new(&step.id));
        };
        let items = self.items(step, over, scope, path)?;
        let Value::Array(items) = &*items else { return Ok(Record::new(&step.id)) };
        let inside = Enclosing {
            env: enclosing.env.iter().chain(&step.env).cloned().collect(),
            cwd: step.cwd.clone().or_else(|| enclosing.cwd.clone()),
            reinject_args: true,
        };
        let mut rounds = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if let Some(pause) = pause_ms.filter(|pause| *pause > 0)
                && index > 0
                && (index as u64).is_multiple_of(*batch_size)
                && !self.run.remembers(&path.round(index))
                && cancel.wait(Duration::from_millis(pause))
            {
                return Err(Stop::Cancelled);
            }
            rounds.push(self.round(step, scope, path, &inside, index, item, cancel)?);
        }
        let value = Value::Array(rounds);
        Ok(Record {
            stdout: Some(Text::inline(json::compact(&value))),
            json: Json::value(value),
            ..Record::new(&step.id)
        })
    }

    #[expect(clippy::too_many_arguments, reason = "one round of a loop is described by all of these")]
    fn round(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        inside: &Enclosing,
        index: usize,
        item: &Value,
        cancel: &CancelToken,
    ) -> Result<Value, Stop> {
        let Work::ForEach { item_var, index_var, steps, .. } = &step.work else { return Ok(Value::Null) };
        let mut own = Scope::within(scope);
        own.insert(Arc::new(Record {
            stdout: Some(Text::inline(index.to_string())),
            json: Json::value(json!(index)),
            ..Record::new(index_var)
        }));
        // The item last: it is what a question at the beginning of the round is about.
        own.insert(Arc::new(Record {
            stdout: Some(Text::inline(item.as_str().map_or_else(|| json::compact(item), str::to_owned))),
            json: Json::value(item.clone()),
            ..Record::new(item_var)
        }));
        self.sequence(steps, &mut own, &path.round(index), inside, cancel)?;
        let mut round = Map::new();
        round.insert(item_var.clone(), item.clone());
        round.insert(index_var.clone(), json!(index));
        for sub in steps {
            let Some(record) = own.get_own(&sub.id).filter(|record| !record.skipped) else { continue };
            let value = match record.json()? {
                Some(value) => Value::clone(value),
                None => match (&record.response, &record.stdout) {
                    (Some(response), _) => response.clone(),
                    (None, Some(text)) => {
                        Value::String(text.load().map_err(super::run::stopped)?.to_string())
                    }
                    (None, None) => continue,
                },
            };
            round.insert(sub.id.clone(), value);
        }
        Ok(Value::Object(round))
    }

    /// What the loop goes over; anything but an array is an error that names the kind.
    fn items(&self, step: &Step, over: &str, scope: &Scope<'_>, path: &StepPath) -> Result<Arc<Value>, Stop> {
        let kind = match self.resolve(over, scope).map_err(|error| self.failed(path, &error))? {
            Input::Json(value) if value.is_array() => return Ok(value),
            Input::Json(value) if value.is_object() => "object",
            Input::Json(value) if value.is_boolean() => "boolean",
            Input::Json(_) => "number",
            Input::Text(_) => "string",
            Input::Nothing => "undefined",
        };
        self.run.fail_at(path);
        Err(StageError::permanent(format!("Workflow step {} for_each: expected array, got {kind}", step.id))
            .into())
    }
}
