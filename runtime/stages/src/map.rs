//! `map`: reshapes items.

use serde_json::{Map as JsonMap, Value};

use super::describe::{Arg, schema_with_words};
use super::pick::list_element;
use super::template::Template;
use lobster_stage::{Flag, Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "map",
    description: "Transform items (wrap/unwrap/add fields)",
    help: "Usage:\n  ... | map --wrap NAME\n  ... | map --unwrap NAME\n  ... | map kind=note 'id={{id}}' ...\n\n\
           Assigned values are text; {{path}} is replaced by a field of the item, which may have been assigned \
           before.\n",
    flags: &[
        Flag { name: "wrap", value: Some("NAME"), help: "Put each item into an object under this name" },
        Flag { name: "unwrap", value: Some("NAME"), help: "Replace each item by this field of it" },
    ],
    args_schema: || {
        schema_with_words(
            &[
                Arg::text("wrap", "Name of the field to put the item in"),
                Arg::text("unwrap", "Name of the field to take out"),
            ],
            Some("Assignments: field=text, with {{path}} filled in"),
            false,
        )
    },
    examples: || serde_json::json!([{"args": {"_": ["id={{id}}", "kind=note"]}, "description": "Add two fields"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| Ok(Box::new(Map::new(args)?)),
};

struct Map {
    shape: Shape,
    assignments: Vec<(String, Template)>,
}

enum Shape {
    Same,
    Wrap(String),
    Unwrap(String),
}

impl Map {
    fn new(args: &StageArgs) -> Result<Self, StageError> {
        let name = |option| args.text_value(option).filter(|name| !name.is_empty()).map(str::to_owned);
        let shape = match (name("wrap"), name("unwrap")) {
            (Some(_), Some(_)) => {
                return Err(StageError::permanent("map cannot use both --wrap and --unwrap"));
            }
            (Some(name), None) => Shape::Wrap(name),
            (None, Some(name)) => Shape::Unwrap(name),
            (None, None) => Shape::Same,
        };
        let assignments = args
            .positional
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(name, text)| (name.trim(), text))
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, text)| (name.to_owned(), Template::without_filters(text)))
            .collect();
        Ok(Self { shape, assignments })
    }
}

impl Stage for Map {
    fn process_item(&mut self, item: Value, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let env = |name: &str| host.env_var(name);
        let shaped = match &self.shape {
            Shape::Unwrap(name) => {
                let inner = match &item {
                    Value::Object(map) => map.get(name).cloned(),
                    Value::Array(items) => list_element(items, name),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
                };
                return out.emit_item(inner.unwrap_or_default());
            }
            _ if self.assignments.is_empty() && matches!(self.shape, Shape::Same) => item,
            Shape::Same => match item {
                Value::Object(mut map) => {
                    for (name, template) in &self.assignments {
                        let source = Value::Object(map);
                        let text = template.fill_placeholders(&source, &env)?;
                        let Value::Object(back) = source else { return Ok(Flow::More) };
                        map = back;
                        map.insert(name.clone(), text.into());
                    }
                    Value::Object(map)
                }
                other => self.assign_fields("value", other, &env)?,
            },
            Shape::Wrap(wrapper) => self.assign_fields(wrapper, item, &env)?,
        };
        out.emit_item(shaped)
    }
}

impl Map {
    /// `{name: item}` with the assignments, whose templates see the item itself.
    fn assign_fields(
        &self,
        name: &str,
        item: Value,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Value, StageError> {
        let texts = self
            .assignments
            .iter()
            .map(|(name, template)| Ok((name.clone(), template.fill_placeholders(&item, env)?.into())))
            .collect::<Result<Vec<(String, Value)>, StageError>>()?;
        let mut map = JsonMap::new();
        map.insert(name.to_owned(), item);
        map.extend(texts);
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{failure_message, run};

    #[test]
    fn items_take_another_shape() {
        for (text, input, output) in [
            ("map", json!([1, {"a": 1}]), json!([1, {"a": 1}])),
            ("map --wrap w", json!([1, null]), json!([{"w": 1}, {"w": null}])),
            ("map --wrap w 'x={{a}}' w2=1", json!([{"a": 7}]), json!([{"w": {"a": 7}, "x": "7", "w2": "1"}])),
            (
                "map --unwrap x a=1",
                json!([{"x": {"y": 1}}, {"y": 1}, 5, "s"]),
                json!([{"y": 1}, null, null, null]),
            ),
            ("map --unwrap x.y", json!([{"x": {"y": 1}}]), json!([null])),
            ("map --unwrap 1", json!([[7, 8]]), json!([8])),
            ("map --wrap", json!([1]), json!([1])),
            ("map foo=bar", json!([5]), json!([{"value": 5, "foo": "bar"}])),
            ("map plain =x ' a =1' b=x=y c=", json!([{}]), json!([{"a": "1", "b": "x=y", "c": ""}])),
            ("map id=new 'old={{id}}'", json!([{"id": 1}]), json!([{"id": "new", "old": "new"}])),
            (
                "map 'n={{n}}' 'o={{ o }}' 'm={{m}}'",
                json!([{"n": 5, "o": {"x": [1]}}]),
                json!([{"n": "5", "o": "{\"x\":[1]}", "m": ""}]),
            ),
            (
                "map 'x={{.}}'",
                json!([1, "a", null, [1]]),
                json!([
                    {"value": 1, "x": "1"}, {"value": "a", "x": "a"}, {"value": null, "x": ""}, {"value": [1], "x": "[1]"}
                ]),
            ),
            (
                "map 'x={{a | upper}}' 'y={{toString}}'",
                json!([{"a": "b"}]),
                json!([{"a": "b", "x": "", "y": ""}]),
            ),
        ] {
            assert_eq!(run(text, input), output, "{text}");
        }
        assert_eq!(
            failure_message("map --wrap a --unwrap b", json!([])),
            "map cannot use both --wrap and --unwrap"
        );
    }
}
