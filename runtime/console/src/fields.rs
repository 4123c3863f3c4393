//! Forms made from a JSON Schema or from a workflow's declared arguments, and the typed values as JSON.

use lobster_runtime::json;
use lobster_runtime::language::plan::ArgSpec;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

/// Prefix of the fields' names, which keeps them apart from the form's other parts.
const PREFIX: &str = "f.";

/// The field of a value without properties.
pub(crate) const WHOLE: &str = "value";

/// Most properties that get their own fields; beyond that, the value is one JSON field.
const MOST: usize = 40;

/// Makes the schema of declared arguments.
pub(crate) fn schema_of(args: &[ArgSpec]) -> Value {
    let mut properties = Map::new();
    for spec in args {
        let kind = match (&spec.kind, &spec.default) {
            (Some(kind), _) => Some(kind.as_str()),
            (None, Some(Value::String(_))) if spec.choices.is_none() => Some("string"),
            (None, _) => None,
        };
        let field = [
            ("type", kind.map(Value::from)),
            ("enum", spec.choices.clone().map(Value::from)),
            ("default", spec.default.clone()),
            ("description", spec.description.clone().map(Value::from)),
        ];
        let field = field.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        properties.insert(spec.name.clone(), Value::Object(field));
    }
    let required: Vec<&str> =
        args.iter().filter(|spec| spec.required).map(|spec| spec.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// The properties that each get a field.
fn field_properties(schema: &Value) -> Option<&Map<String, Value>> {
    let properties = schema.get("properties")?.as_object()?;
    let is_object = schema.get("type").is_none_or(|kind| kind == "object");
    (is_object && !properties.is_empty() && properties.len() <= MOST).then_some(properties)
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().into_iter().flatten().any(|required| required == name)
}

/// The fields of a schema. `typed` returns the earlier input, and `given` is the proposed value.
pub(crate) fn render_fields(schema: &Value, given: &Value, typed: &dyn Fn(&str) -> Option<String>) -> Markup {
    match field_properties(schema) {
        Some(properties) => html! {
            @for (name, field) in properties {
                @let key = format!("{PREFIX}{name}");
                @let value = given.get(name).or_else(|| field.get("default"));
                (render_input(&key, name, field, value, is_required(schema, name), typed(&key)))
            }
        },
        None => {
            let name = schema.get("title").and_then(Value::as_str).unwrap_or("Answer");
            let value = Some(given).filter(|given| !given.is_null()).or_else(|| schema.get("default"));
            render_input(WHOLE, name, schema, value, true, typed(WHOLE))
        }
    }
}

/// The kind of input for a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Boolean,
    Choice,
    Json,
}

fn field_kind(schema: &Value) -> Kind {
    if schema.get("enum").is_some_and(Value::is_array) {
        return Kind::Choice;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => Kind::Text,
        Some("number" | "integer") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Json,
    }
}

/// A value in the form of its field.
fn typed_form(kind: Kind, value: &Value) -> String {
    match (kind, value) {
        (Kind::Text, Value::String(text)) => text.clone(),
        (Kind::Json, value) => json::pretty(value),
        (_, value) => json::compact(value),
    }
}

fn render_input(
    key: &str,
    name: &str,
    schema: &Value,
    value: Option<&Value>,
    required: bool,
    typed: Option<String>,
) -> Markup {
    let kind = field_kind(schema);
    let shown = typed.or_else(|| value.map(|value| typed_form(kind, value))).unwrap_or_default();
    let about = schema.get("description").and_then(Value::as_str);
    let id = format!("id-{key}");
    let hint = about.map(|_| format!("about-{key}"));
    html! {
        div class="field" {
            label for=(id) {
                (name) @if !required { span class="muted" { " (optional)" } }
                @if kind == Kind::Json { span class="muted" { " as JSON" } }
            }
            @match kind {
                Kind::Choice => {
                    @let choices = schema["enum"].as_array().map(Vec::as_slice).unwrap_or_default();
                    select id=(id) name=(key) required[required] aria-describedby=[hint.as_deref()] {
                        @if !required || shown.is_empty() { option value="" { "—" } }
                        @for choice in choices {
                            @let text = json::compact(choice);
                            option value=(text) selected[text == shown] { (choice.as_str().map_or_else(|| text.clone(), str::to_owned)) }
                        }
                    }
                }
                Kind::Boolean => {
                    select id=(id) name=(key) required[required] aria-describedby=[hint.as_deref()] {
                        @if !required || shown.is_empty() { option value="" { "—" } }
                        option value="true" selected[shown == "true"] { "yes" }
                        option value="false" selected[shown == "false"] { "no" }
                    }
                }
                Kind::Number => {
                    input id=(id) name=(key) value=(shown) inputmode="decimal" autocomplete="off" required[required] aria-describedby=[hint.as_deref()];
                }
                Kind::Text if shown.contains('\n') || schema["maxLength"].as_u64().is_some_and(|max| max > 200) => {
                    textarea id=(id) name=(key) required[required] aria-describedby=[hint.as_deref()] { "\n" (shown) }
                }
                Kind::Text => {
                    input id=(id) name=(key) value=(shown) autocomplete="off" required[required] aria-describedby=[hint.as_deref()];
                }
                Kind::Json => {
                    textarea id=(id) name=(key) class="code" spellcheck="false" required[required] aria-describedby=[hint.as_deref()] { "\n" (shown) }
                }
            }
            @if let (Some(about), Some(hint)) = (about, &hint) { p id=(hint) { (about) } }
        }
    }
}

/// Converts the input to JSON.
///
/// # Errors
/// Returns the field that cannot be read, with the reason.
pub(crate) fn value_of(schema: &Value, typed: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    let Some(properties) = field_properties(schema) else {
        let value = parse_value(field_kind(schema), &typed(WHOLE).unwrap_or_default())?;
        return value.ok_or_else(|| "the answer is missing".to_owned());
    };
    let mut object = Map::new();
    for (name, field) in properties {
        let text = typed(&format!("{PREFIX}{name}")).unwrap_or_default();
        let kind = field_kind(field);
        // An empty required text is an empty string.
        let is_text = kind == Kind::Text && is_required(schema, name);
        let value = if is_text {
            Ok(Some(Value::String(text.replace("\r\n", "\n"))))
        } else {
            parse_value(kind, &text)
        };
        if let Some(value) = value.map_err(|why| format!("{name}: {why}"))? {
            object.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(object))
}

fn parse_value(kind: Kind, text: &str) -> Result<Option<Value>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    match kind {
        // Browsers send line ends as two characters.
        Kind::Text => Ok(Some(Value::String(text.replace("\r\n", "\n")))),
        Kind::Number => match json::parse(text.trim()) {
            Ok(value @ Value::Number(_)) => Ok(Some(value)),
            _ => Err(format!("{} is not a number", json::compact(&json!(text.trim())))),
        },
        Kind::Boolean | Kind::Choice | Kind::Json => {
            json::parse(text).map(Some).map_err(|error| format!("this is not JSON: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(schema: &Value, typed: &[(&str, &str)]) -> Result<Value, String> {
        value_of(schema, &|key| {
            typed.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn what_is_typed_becomes_what_was_asked_for() {
        let schema = json!({ "type": "object", "required": ["name", "n"], "properties": {
            "name": { "type": "string" }, "n": { "type": "integer" }, "on": { "type": "boolean" },
            "size": { "enum": ["s", 2, null] }, "more": {} } });
        assert_eq!(
            read_back(
                &schema,
                &[("f.name", ""), ("f.n", " 12 "), ("f.on", "false"), ("f.size", "2"), ("f.more", "[1]")]
            ),
            Ok(json!({ "name": "", "n": 12, "on": false, "size": 2, "more": [1] }))
        );
        assert_eq!(read_back(&schema, &[("f.n", "1")]), Ok(json!({ "name": "", "n": 1 })));
        assert!(read_back(&schema, &[("f.n", "1; rm")]).unwrap_err().starts_with("n: "));
        assert_eq!(read_back(&json!({ "type": "string" }), &[(WHOLE, "a\r\nb")]), Ok(json!("a\nb")));
        assert!(read_back(&json!({}), &[(WHOLE, "")]).is_err());
    }

    #[test]
    fn a_form_gives_back_what_it_proposes() {
        let schema = json!({ "type": "object", "properties": {
            "text": { "type": "string" }, "list": { "type": "array" }, "flag": { "type": "boolean" }, "n": { "type": "number" } } });
        let given = json!({ "text": "<b>&\"'", "list": [1, { "a": "b" }], "flag": true, "n": 1.5 });
        let markup = render_fields(&schema, &given, &|_| None).into_string();
        assert!(markup.contains("&lt;b&gt;&amp;&quot;") && !markup.contains("<b>"), "{markup}");
        let typed: Vec<(String, String)> = given
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                (format!("{PREFIX}{name}"), typed_form(field_kind(&schema["properties"][name]), value))
            })
            .collect();
        let back = value_of(&schema, &|key| {
            typed.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
        });
        assert_eq!(back, Ok(given));
    }
}
