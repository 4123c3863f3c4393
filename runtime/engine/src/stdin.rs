//! The input of a step: its `stdin`, with references resolved.

use std::sync::Arc;

use serde_json::Value;

use super::path::StepPath;
use super::record::{Record, Scope};
use super::value::{InputValue, Items, Text};
use super::workflow::Frame;
use lobster_base::json;
use lobster_language::plan::{Stdin, Step};
use lobster_language::template::{self, ExprError, Resolved};
use lobster_stage::{Payload, Stop, store_failure};

impl Frame<'_> {
    /// The input of a step.
    pub(super) fn step_input(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
    ) -> Result<InputValue, Stop> {
        let text = match &step.stdin {
            Stdin::None => return Ok(InputValue::Nothing),
            Stdin::Literal(Value::String(text)) => return Ok(InputValue::Text(Text::inline(text.as_str()))),
            Stdin::Literal(value) => return Ok(InputValue::Json(Arc::new(value.clone()))),
            Stdin::Text(text) => text,
        };
        self.resolve_text(text, scope).map_err(|error| self.expression_failure(path, &error))
    }

    /// The value of a reference, or text with its references resolved.
    pub(super) fn resolve_text(&self, text: &str, scope: &Scope<'_>) -> Result<InputValue, ExprError> {
        // Whole results are passed on without a copy, and stdout without loading it.
        if let Some((field, record)) = self.whole_field(text, scope) {
            match field.as_str() {
                "stdout" => return Ok(record.stdout.clone().map_or(InputValue::Nothing, InputValue::Text)),
                "json" => {
                    // A result that cannot be read is reported below.
                    if let Ok(Some(value)) = record.json() {
                        return Ok(InputValue::from_value(Arc::clone(value)));
                    }
                }
                _ => {}
            }
        }
        Ok(match template::resolve_text(text, self.args, scope)? {
            Resolved::Missing => InputValue::Nothing,
            Resolved::Text(text) => InputValue::Text(Text::inline(text)),
            Resolved::Value(value) => InputValue::from_value(Arc::new(value.into_owned())),
        })
    }

    /// The record and the field that the text names, if it is nothing but one reference.
    fn whole_field<'s>(&self, text: &str, scope: &'s Scope<'_>) -> Option<(String, &'s Arc<Record>)> {
        let reference = template::strict_reference(&template::fill_args(text, self.args))?;
        let [field] = <[String; 1]>::try_from(reference.path).ok()?;
        Some((field, scope.get(&reference.id)?))
    }

    /// The items of a large list that a step reads, for steps that take them one by one.
    pub(super) fn large_stdin(&self, step: &Step, scope: &Scope<'_>) -> Option<Items> {
        let Stdin::Text(text) = &step.stdin else { return None };
        let (field, record) = self.whole_field(text, scope)?;
        // A result that cannot be read is reported when it is loaded.
        if field == "json" { record.large_list(&self.run.store).ok().flatten() } else { None }
    }

    /// The text of large JSON that a step reads, for steps that take bytes.
    pub(super) fn large_text(&self, step: &Step, scope: &Scope<'_>) -> Result<Option<Text>, Stop> {
        let Stdin::Text(text) = &step.stdin else { return Ok(None) };
        let Some((field, record)) = self.whole_field(text, scope) else { return Ok(None) };
        if field != "json" {
            return Ok(None);
        }
        // A result that cannot be read is reported when it is loaded.
        if let Ok(Some(text)) = record.large_text(&self.run.store) {
            return Ok(Some(text));
        }
        let items = record.large_list(&self.run.store).ok().flatten();
        items.map(|items| self.list_text(&items)).transpose()
    }

    pub(super) fn stdin_payload(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
    ) -> Result<Option<Payload>, Stop> {
        if let Some(text) = self.large_text(step, scope)? {
            return text.to_payload().map(Some).map_err(store_failure);
        }
        Ok(match self.step_input(step, scope, path)? {
            InputValue::Nothing => None,
            InputValue::Text(text) => Some(text.to_payload().map_err(store_failure)?),
            InputValue::Json(value) => Some(Payload::Bytes(json::compact(&*value).into_bytes().into())),
        })
    }

    /// Items as a step's stdout.
    pub(super) fn text_of(&self, items: &Items) -> Result<Text, Stop> {
        match items {
            Items::Memory(items) => Ok(Text::of_items(Arc::clone(items))),
            Items::Stored { .. } => self.list_text(items),
        }
    }

    /// A list as one JSON text, in the store.
    fn list_text(&self, items: &Items) -> Result<Text, Stop> {
        let mut writer = self.run.store.blob_writer();
        super::value::write_array(&mut writer, items)?;
        Ok(Text::from_blob(&self.run.store, writer.finish().map_err(store_failure)?))
    }
}
