//! `pick`: keeps some of the fields.

use serde_json::{Map, Value};

use lobster_stage::{
    Flow, Host, Sink, Stage, StageError, StageKind, StageSpec, Stop, args_schema, words_schema,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "pick",
    description: "Project fields from objects",
    help: "Usage:\n  ... | pick id,subject,from\n\nNames are fields of the item itself, not paths. Items that \
           are not objects pass unchanged.\n",
    flags: &[],
    args_schema: || {
        args_schema(&[("_", words_schema(Some("First word: comma-separated field names")))], &["_"])
    },
    examples: || serde_json::json!([{"args": {"_": ["id,subject"]}, "description": "Keep two fields"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        let list = args.positional.first().map_or("", String::as_str);
        let mut fields: Vec<String> = Vec::new();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !fields.iter().any(|field| field == name) {
                fields.push(name.to_owned());
            }
        }
        if fields.is_empty() {
            return Err(StageError::permanent("pick requires a comma-separated field list"));
        }
        Ok(Box::new(Pick { fields }))
    },
};

struct Pick {
    fields: Vec<String>,
}

impl Stage for Pick {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let picked: Map<_, _> = match item {
            Value::Object(mut map) => self
                .fields
                .iter()
                .filter_map(|name| Some((name.clone(), std::mem::take(map.get_mut(name)?))))
                .collect(),
            Value::Array(items) => self
                .fields
                .iter()
                .filter_map(|name| Some((name.clone(), list_element(&items, name)?)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return out.emit_item(item),
        };
        out.emit_item(Value::Object(picked))
    }
}

/// An element of a list by name: its indices and `length` act as fields.
pub(super) fn list_element(items: &[Value], name: &str) -> Option<Value> {
    match name {
        "length" => Some(items.len().into()),
        _ => items.get(name.parse::<usize>().ok().filter(|index| index.to_string() == name)?).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{failure_message, run};

    #[test]
    fn keeps_what_is_there_in_the_order_asked() {
        let items = json!([{"id": 1, "n": null, "z": 2}, {"id": 2, "sub": {"x": 1}}, 5, null, [7, 8]]);
        let picked = run("pick ' n , id,,sub.x,id' other", items.clone());
        assert_eq!(picked.to_string(), r#"[{"n":null,"id":1},{"id":2},5,null,{}]"#);
        assert_eq!(run("pick length,0,00", items)[4], json!({"length": 2, "0": 7}));
        for text in ["pick", "pick ,", "pick --fields id"] {
            assert_eq!(failure_message(text, json!([])), "pick requires a comma-separated field list");
        }
    }
}
