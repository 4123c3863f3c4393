//! JSON Schemas of tools: the arguments of a workflow or a step, and the envelope that every call returns.

use lobster_runtime::component::Description;
use lobster_runtime::json;
use lobster_runtime::language::plan::ArgSpec;
use serde_json::{Map, Value, json};

pub(super) type ToolSchema = Map<String, Value>;

/// The schema of the arguments of a workflow's tool.
pub(super) fn of_workflow(args: &[ArgSpec]) -> ToolSchema {
    let properties: Map<String, Value> =
        args.iter().map(|spec| (spec.name.clone(), Value::Object(of_argument(spec)))).collect();
    let required: Vec<&str> =
        args.iter().filter(|spec| spec.required && spec.default.is_none()).map(|s| s.name.as_str()).collect();
    closed_object(properties, &required)
}

fn of_argument(spec: &ArgSpec) -> ToolSchema {
    let mut schema = ToolSchema::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            schema.insert(key.to_owned(), value);
        }
    };
    set("type", spec.kind.clone().map(Value::from));
    set("description", spec.description.clone().map(Value::from));
    set("enum", spec.choices.clone().map(Value::from));
    set("default", spec.default.clone());
    schema
}

/// The schema of an object with these properties and no others.
pub(super) fn closed_object(properties: Map<String, Value>, required: &[&str]) -> ToolSchema {
    let mut schema = ToolSchema::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema.insert("additionalProperties".into(), json!(false));
    schema
}

/// The layout of the arguments of a component's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The step's arguments next to `input`.
    Flat,
    /// The step's arguments under `args`: they are not a plain object, or have their own `input`.
    Nested,
}

/// The schema of the arguments of a component's tool.
pub(super) fn of_component(description: Option<&Description>) -> (ToolSchema, Layout) {
    let Some(description) = description else {
        let argv =
            json!({"type": "array", "items": {"type": "string"}, "description": "The program's words."});
        let properties = Map::from_iter([("argv".to_owned(), argv), ("input".to_owned(), any_input())]);
        return (closed_object(properties, &[]), Layout::Flat);
    };
    let args = json::parse(&description.args_schema).unwrap_or_else(|_| json!({"type": "object"}));
    let input = description.input_schema.as_deref().and_then(|text| json::parse(text).ok());
    let input = input.map_or_else(any_input, |item| match is_closed(&item) {
        true => json!({"type": "array", "items": item, "description": "The items the step reads."}),
        false => json!({"type": "array", "description": "The items the step reads."}),
    });
    match args {
        Value::Object(mut args) if is_plain(&args) => {
            let properties = args.entry("properties").or_insert_with(|| json!({}));
            if let Value::Object(properties) = properties {
                properties.insert("input".into(), input);
            }
            (args, Layout::Flat)
        }
        args => {
            let properties = Map::from_iter([("args".to_owned(), args), ("input".to_owned(), input)]);
            (closed_object(properties, &[]), Layout::Nested)
        }
    }
}

fn any_input() -> Value {
    json!({"description": "Input of the step: a text, or an array of items."})
}

/// True for an object schema whose meaning does not change when a property is added.
fn is_plain(schema: &ToolSchema) -> bool {
    let combined = ["$ref", "oneOf", "anyOf", "allOf", "not", "if", "patternProperties", "maxProperties"];
    schema.get("type") == Some(&json!("object"))
        && !combined.iter().any(|key| schema.contains_key(*key))
        && schema.get("properties").is_none_or(|all| all.is_object() && all.get("input").is_none())
}

/// True if a schema refers only to itself, so that it can be part of another one.
fn is_closed(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            !["$ref", "$dynamicRef", "$id", "$anchor"].iter().any(|key| map.contains_key(*key))
                && map.values().all(is_closed)
        }
        Value::Array(items) => items.iter().all(is_closed),
        _ => true,
    }
}

/// The schema of the envelope, with items of this schema in its output.
pub(super) fn envelope(item: Option<&Value>) -> ToolSchema {
    let output = match item.filter(|item| is_closed(item)) {
        Some(item) => json!({"type": "array", "items": item}),
        None => json!({"type": "array"}),
    };
    let request = json!({"type": ["object", "null"]});
    let properties = json!({
        "protocolVersion": {"type": "integer"},
        "ok": {"type": "boolean"},
        "status": {"enum": ["ok", "needs_approval", "needs_input", "cancelled", "waiting"]},
        "output": output,
        "requiresApproval": request,
        "requiresInput": request,
        "error": {"type": "object"},
        "runId": {"type": "string", "description": "The id of the recorded run; `show` shows what it did."},
        "note": {"type": "string"},
    });
    let fields = [("type", json!("object")), ("properties", properties), ("required", json!(["ok"]))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The schema of the envelope of a call whose run continues by itself.
pub(super) fn envelope_of_service() -> ToolSchema {
    let mut schema = envelope(None);
    if let Some(known) =
        schema.get_mut("properties").and_then(|all| all["status"].get_mut("enum")?.as_array_mut())
    {
        known.extend(["queued", "running"].map(Value::from));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_description(args: Value, input: Option<Value>) -> Description {
        Description {
            name: "x".into(),
            version: "1".into(),
            summary: String::new(),
            args_schema: args.to_string(),
            input_schema: input.map(|schema| schema.to_string()),
            output_schema: None,
            wants: Vec::new(),
            fuel: None,
            memory: None,
            output: None,
            timeout_ms: None,
            examples: Vec::new(),
        }
    }

    #[test]
    fn a_steps_arguments_stand_beside_its_input_unless_they_clash() {
        let plain = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let (schema, layout) =
            of_component(Some(&sample_description(plain, Some(json!({"type": "string"})))));
        assert_eq!(layout, Layout::Flat);
        assert_eq!(schema["properties"]["input"]["items"], json!({"type": "string"}));
        assert_eq!(schema["required"], json!(["n"]));
        let clash = json!({"type": "object", "properties": {"input": {}}});
        let (schema, layout) = of_component(Some(&sample_description(clash.clone(), None)));
        assert_eq!((layout, &schema["properties"]["args"]), (Layout::Nested, &clash));
        let open = json!({"$ref": "#/$defs/a"});
        let (schema, _) = of_component(Some(&sample_description(json!({"type": "object"}), Some(open))));
        assert!(schema["properties"]["input"].get("items").is_none());
    }

    #[test]
    fn a_workflows_arguments_keep_what_was_declared() {
        let spec = ArgSpec {
            name: "folder".into(),
            default: None,
            required: true,
            kind: Some("string".into()),
            choices: Some(vec![json!("inbox"), json!("sent")]),
            description: Some("Which one.".into()),
        };
        let schema = of_workflow(&[spec]);
        assert_eq!(
            Value::Object(schema),
            json!({
                "type": "object",
                "properties": {"folder": {"type": "string", "description": "Which one.", "enum": ["inbox", "sent"]}},
                "required": ["folder"],
                "additionalProperties": false,
            })
        );
    }
}
