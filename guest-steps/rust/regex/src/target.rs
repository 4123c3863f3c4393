//! Which texts of an item are meant.

use lobster_step::StepError;
use serde_json::Value;

pub(crate) enum Target<'a> {
    /// All texts, at any depth; not the names of fields.
    All,
    /// One field of an object.
    Field(&'a str),
    /// A JSON pointer (RFC 6901).
    Pointer(&'a str),
}

impl<'a> Target<'a> {
    pub(crate) fn new(field: Option<&'a str>) -> Self {
        match field {
            None => Self::All,
            Some(pointer) if pointer.starts_with('/') => Self::Pointer(pointer),
            Some(field) => Self::Field(field),
        }
    }

    /// Calls `see` for each text. An item without the field has none.
    pub(crate) fn visit(
        &self,
        item: &Value,
        see: &mut dyn FnMut(&str) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        match self {
            Self::All => visit(item, see),
            Self::Field(field) => item.get(field).map_or(Ok(()), |value| visit(value, see)),
            Self::Pointer(pointer) => item.pointer(pointer).map_or(Ok(()), |value| visit(value, see)),
        }
    }

    /// The value that holds the texts, and the name of its field, if it is one.
    pub(crate) fn value<'i>(&'i self, item: &'i mut Value) -> (Option<&'i str>, Option<&'i mut Value>) {
        match self {
            Self::All => (None, Some(item)),
            Self::Field(field) => (Some(field), item.get_mut(field)),
            Self::Pointer(pointer) => (pointer.rsplit('/').next(), item.pointer_mut(pointer)),
        }
    }
}

fn visit(value: &Value, see: &mut dyn FnMut(&str) -> Result<(), StepError>) -> Result<(), StepError> {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().try_for_each(|item| visit(item, see)),
        Value::Object(fields) => fields.values().try_for_each(|field| visit(field, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Sends every text of a value through `change`.
pub(crate) fn rewrite(value: &mut Value, change: &mut dyn FnMut(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rewrite(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
