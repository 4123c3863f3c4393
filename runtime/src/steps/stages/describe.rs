//! What `commands.list` says of a command's arguments.

use serde_json::{Map, Value, json};

/// One argument as `commands.list` shows it.
pub(super) struct Arg {
    pub(super) name: &'static str,
    /// The JSON type.
    pub(super) kind: &'static str,
    pub(super) about: &'static str,
    /// JSON text of the default.
    pub(super) default: Option<&'static str>,
}

impl Arg {
    pub(super) const fn text(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "string", about, default: None }
    }

    pub(super) const fn number(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "number", about, default: None }
    }

    pub(super) const fn switch(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: "boolean", about, default: None }
    }

    pub(super) const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// The JSON Schema of a command's arguments, ending with the positionals.
pub(super) fn args_schema(args: &[Arg], required: &[&str]) -> Value {
    let mut properties: Map<String, Value> = args
        .iter()
        .map(|arg| {
            let mut property = json!({"type": arg.kind, "description": arg.about});
            if let Some(default) = arg.default.and_then(|text| crate::json::parse(text).ok()) {
                property["default"] = default;
            }
            (arg.name.to_owned(), property)
        })
        .collect();
    properties.insert("_".to_owned(), json!({"type": "array", "items": {"type": "string"}}));
    json!({"type": "object", "properties": properties, "required": required})
}

/// The schema of a command whose only arguments are positionals.
pub(super) fn positional_schema(about: &str) -> Value {
    json!({
        "type": "object",
        "properties": {"_": {"type": "array", "items": {"type": "string"}, "description": about}},
        "required": ["_"],
    })
}

/// Examples as `commands.list` shows them, from pairs of JSON text and description.
pub(super) fn examples(pairs: &[(&str, &str)]) -> Value {
    pairs
        .iter()
        .map(|(args, about)| json!({"args": crate::json::parse(args).unwrap_or_default(), "description": about}))
        .collect()
}
