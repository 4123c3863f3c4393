//! `groupBy`: groups the items that have the same key.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::compare::value_digest;
use super::describe::{Arg, command_schema};
use super::item_path::Path;
use super::text_arena::{Slot, TextArena};
use lobster_base::digest::Digest;
use lobster_base::json::js_string;
use lobster_stage::{Flag, Flow, Host, Sink, Stage, StageError, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "groupBy",
    description: "Group items by a key (stable group order)",
    help: "Usage:\n  ... | groupBy --key PATH\n\nEmits {key, items, count} for each group, in order of first appearance.\n\
           The group of items without the key has no field `key`.\n",
    flags: &[Flag { name: "key", value: Some("PATH"), help: "Path of the value to group by (required)" }],
    args_schema: || command_schema(&[Arg::text("key", "Dot path of the value to group by").required()]),
    examples: || serde_json::json!([{"args": {"key": "from"}, "description": "Messages by sender"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        let key = args.get("key").map(js_string).filter(|key| !key.trim().is_empty());
        let key = key.ok_or_else(|| StageError::permanent("groupBy requires --key"))?;
        Ok(Box::new(GroupBy {
            key: Path::new(&key),
            held: TextArena::default(),
            groups: Vec::new(),
            by_key: HashMap::new(),
        }))
    },
};

struct GroupBy {
    key: Path,
    held: TextArena,
    groups: Vec<Group>,
    by_key: HashMap<Digest, usize>,
}

struct Group {
    key: Option<Value>,
    items: Vec<Slot>,
}

impl Stage for GroupBy {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        let slot = self.held.push_item(&item)?;
        let key = self.key.get(&item);
        let index = *self.by_key.entry(value_digest(key.as_deref())).or_insert_with(|| {
            self.groups.push(Group { key: key.map(std::borrow::Cow::into_owned), items: Vec::new() });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(index) {
            group.items.push(slot);
        }
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        for group in std::mem::take(&mut self.groups) {
            if host.cancel_token().is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let mut item = Map::new();
            if let Some(key) = group.key {
                item.insert("key".to_owned(), key);
            }
            let count = group.items.len();
            let items = group
                .items
                .into_iter()
                .map(|slot| self.held.parse_item(slot))
                .collect::<Result<Vec<_>, _>>()?;
            item.insert("items".to_owned(), items.into());
            item.insert("count".to_owned(), count.into());
            if out.emit_item(Value::Object(item))? == Flow::Enough {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{failure_message, run};

    #[test]
    fn groups_stand_in_order_of_first_appearance() {
        assert_eq!(
            run("groupBy --key k", json!([{"k": 1}, {}, {"k": "1"}, {"k": {"a": 1, "b": 2}}, {"k": 1.0}, 5, {"k": {"b": 2, "a": 1}}]))
                .to_string(),
            concat!(
                r#"[{"key":1,"items":[{"k":1},{"k":1}],"count":2},{"items":[{},5],"count":2},"#,
                r#"{"key":"1","items":[{"k":"1"}],"count":1},"#,
                r#"{"key":{"a":1,"b":2},"items":[{"k":{"a":1,"b":2}},{"k":{"b":2,"a":1}}],"count":2}]"#
            )
        );
        assert_eq!(run("groupBy --key k", json!([])), json!([]));
        assert_eq!(run("groupBy --key", json!([{"true": 1}]))[0]["key"], json!(1));
    }

    #[test]
    fn the_key_is_required() {
        for text in ["groupBy", "groupBy id", "groupBy --key ' '", "groupBy --key="] {
            assert_eq!(failure_message(text, json!([])), "groupBy requires --key", "{text}");
        }
    }
}
