//! Descriptions of a command's arguments for `commands.list`.

use serde_json::{Value, json};

use lobster_stage::{Flag, args_schema, option_schema, words_schema};

/// One argument as `commands.list` shows it.
pub(super) struct Arg {
    pub(super) name: &'static str,
    /// The JSON type.
    pub(super) kind: &'static str,
    pub(super) about: &'static str,
    /// JSON text of the default.
    pub(super) default: Option<&'static str>,
    pub(super) required: bool,
}

impl Arg {
    pub(super) const fn text(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "string", about, default: None, required: false }
    }

    pub(super) const fn number(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "number", about, default: None, required: false }
    }

    pub(super) const fn switch(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "boolean", about, default: None, required: false }
    }

    pub(super) const fn with_default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    pub(super) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// Its name and its schema.
    pub(super) fn to_property(&self) -> (&'static str, Value) {
        let default = self.default.and_then(|text| lobster_base::json::parse(text).ok()).unwrap_or_default();
        (self.name, option_schema(self.kind, self.about, default))
    }
}

/// An option with a value, as `help` shows it.
pub(super) const fn option(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, value: Some(value), help }
}

/// The schema of a command's arguments, ending with the positional words.
pub(super) fn command_schema(args: &[Arg]) -> Value {
    schema_with_words(args, None, false)
}

/// The same for a command that describes its positional words, and may require them.
pub(super) fn schema_with_words(args: &[Arg], words: Option<&str>, needs_words: bool) -> Value {
    let required = args.iter().filter(|arg| arg.required).map(|arg| arg.name);
    let required: Vec<&str> = required.chain(needs_words.then_some("_")).collect();
    let mut properties: Vec<(&str, Value)> = args.iter().map(Arg::to_property).collect();
    properties.push(("_", words_schema(words)));
    args_schema(&properties, &required)
}

/// Examples as `commands.list` shows them, from pairs of JSON text and description.
pub(super) fn example_list(pairs: &[(&str, &str)]) -> Value {
    pairs
        .iter()
        .map(|(args, about)| json!({"args": lobster_base::json::parse(args).unwrap_or_default(), "description": about}))
        .collect()
}
