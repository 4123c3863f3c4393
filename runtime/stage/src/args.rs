//! Parses the words of a stage into options and positional words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One option of a stage, for help, completion and the check for unknown options.
#[derive(Debug)]
pub struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// Placeholder of its value in help (`N`, `PATH`); `None` for a switch.
    pub value: Option<&'static str>,
    /// One line of help.
    pub help: &'static str,
}

/// Parsed words. Values are text, or `true` for an option without a value, but never numbers. A repeated option keeps
/// the last value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageArgs {
    /// Words that belong to no option, in order.
    #[serde(rename = "_", default)]
    pub positional: Vec<String>,
    /// Earlier values of options that were given several times. (`=` cannot be the name of an option.)
    #[serde(rename = "=", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earlier: BTreeMap<String, Vec<Value>>,
    /// Options by name, without dashes, in order of first appearance.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

impl StageArgs {
    /// All values of an option that may be given several times, in order.
    #[must_use]
    pub fn all_values(&self, name: &str) -> Vec<&Value> {
        self.earlier.get(name).into_iter().flatten().chain(self.get(name)).collect()
    }

    /// The unchanged value of an option: text, or `true`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.options.get(name)
    }

    /// The value of the first of several spellings that is present.
    #[must_use]
    pub fn first_value(&self, names: &[&str]) -> Option<&Value> {
        names.iter().find_map(|name| self.options.get(*name))
    }

    /// The value as text; an option without a value gives the text `true`.
    #[must_use]
    pub fn text_or_true(&self, name: &str) -> Option<String> {
        self.get(name).map(lobster_base::json::js_string)
    }

    /// The text of an option with a value; `None` without one.
    #[must_use]
    pub fn text_value(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// A switch: present and not the empty text. (`--desc=false` is on, as with the incumbent.)
    #[must_use]
    pub fn is_enabled(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.as_str() != Some(""))
    }

    /// The value as parsed by ECMAScript `Number()`: no value is 1, empty is 0, other text is NaN.
    #[must_use]
    pub fn number_value(&self, name: &str) -> Option<f64> {
        self.get(name).map(|value| match value {
            Value::String(text) => lobster_base::json::js_number(text),
            _ => 1.0,
        })
    }
}

/// JSON Schema of a command's arguments, as shown by `commands.list`.
#[must_use]
pub fn args_schema(properties: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<_, _> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    serde_json::json!({"type": "object", "properties": properties, "required": required})
}

/// Schema of an option: `kind` is its JSON type, `default` its value if it is missing (null: none).
#[must_use]
pub fn option_schema(kind: &str, description: &str, default: Value) -> Value {
    let mut schema = serde_json::json!({"type": kind, "description": description});
    if !default.is_null() {
        schema["default"] = default;
    }
    schema
}

/// Schema of the positional words, which `commands.list` calls `_`.
#[must_use]
pub fn words_schema(description: Option<&str>) -> Value {
    let mut schema = serde_json::json!({"type": "array", "items": {"type": "string"}});
    if let Some(description) = description {
        schema["description"] = description.into();
    }
    schema
}
