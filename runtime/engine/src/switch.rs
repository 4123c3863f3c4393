//! A choice: runs the steps of the one case that a value names.

use std::sync::Arc;

use serde_json::Value;

use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::workflow::{Enclosing, Frame};
use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_base::json;
use lobster_base::text;
use lobster_language::plan::{Step, Work};
use lobster_language::template::{self, ExprError, Lookup};
use lobster_stage::{StageError, Stop};

/// Most bytes of an unknown value that an error shows.
const MAX_SHOWN: usize = 200;

impl Frame<'_> {
    /// Runs the case that the value names, and skips the others. The record is that of the last completed step; the
    /// records of all cases are visible as well.
    pub(super) fn run_switch(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::Switch { on, cases, default } = &step.work else { return Ok(Record::new(&step.id)) };
        let value = self.value_of(step, on, scope, path)?;
        let named = value.as_ref().and_then(|value| cases.iter().position(|case| case.value == *value));
        let chosen = match (named.map(|index| &cases[index].steps), default) {
            (Some(steps), _) | (None, Some(steps)) => steps,
            (None, None) => {
                self.run.record_failure(path);
                let known: Vec<_> = cases.iter().map(|case| case.value.as_str()).collect();
                let value = value.as_deref().map_or_else(
                    || "there is no value".to_owned(),
                    |value| format!("the value is {:?}", text::clip_telling_rest(value, MAX_SHOWN)),
                );
                let message = format!(
                    "Workflow step {} switch: {value}, and the cases are {}. `default: []` does nothing for others.",
                    step.id,
                    known.join(", ")
                );
                return Err(StageError::permanent(message).with_code(Code::StepValue).into());
            }
        };
        let inside = enclosing.inside_step(step);
        let mut own = Scope::nested_in(scope);
        let last = self.run_sequence(chosen, &mut own, path, &inside, cancel)?;
        let mut record = Record::new(&step.id);
        if let Some(last) = last {
            record.stdout.clone_from(&last.stdout);
            record.json = match (&last.json, &last.response) {
                (Json::Absent, Some(response)) => Json::from_value(response.clone()),
                (json, _) => json.clone(),
            };
        }
        for steps in cases.iter().map(|case| &case.steps).chain(default) {
            for inner in steps {
                if !std::ptr::eq(steps, chosen) {
                    self.skip_step(inner, &mut Scope::default(), path)?;
                }
                // Steps after a step with `skip_rest` also have no record.
                let known = own.get_own(&inner.id).cloned();
                record.inner.push(known.unwrap_or_else(|| Arc::new(skipped_record(inner))));
            }
        }
        Ok(record)
    }

    /// The value as the name of a case; `None` if there is no value.
    fn value_of(
        &self,
        step: &Step,
        on: &str,
        scope: &Scope<'_>,
        path: &StepPath,
    ) -> Result<Option<String>, Stop> {
        let reference = template::strict_reference(&template::fill_args(on, self.args));
        if let Some(reference) = reference.filter(|it| matches!(it.look_up(scope), Ok(Lookup::NotJson))) {
            return Err(self.expression_failure(path, &ExprError::NotJson(reference)));
        }
        let found = self.resolve_text(on, scope).map_err(|error| self.expression_failure(path, &error))?;
        let found = found.load_value()?;
        Ok(match found.as_deref() {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.trim().to_owned()),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(json::compact(value)),
            Some(value @ (Value::Array(_) | Value::Object(_))) => {
                self.run.record_failure(path);
                let kind = if value.is_array() { "a list" } else { "an object" };
                let message = format!(
                    "Workflow step {} switch: the value is {kind}; name a field that is text, a number or true or false",
                    step.id
                );
                return Err(StageError::permanent(message).with_code(Code::StepValue).into());
            }
        })
    }
}

/// The record of a skipped step, and of the steps inside it that can be referred to.
pub(super) fn skipped_record(step: &Step) -> Record {
    let inner = match &step.work {
        Work::Switch { .. } => step.work.inner_steps(),
        _ => Vec::new(),
    };
    let inner = inner.into_iter().map(|inner| Arc::new(skipped_record(inner))).collect();
    Record { skipped: true, inner, ..Record::new(&step.id) }
}
