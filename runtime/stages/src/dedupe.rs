//! `dedupe`: passes each item once. Only digests of earlier items are kept.

use std::collections::HashSet;

use serde_json::Value;

use super::compare::value_digest;
use super::describe::{Arg, command_schema, option};
use super::item_path::Path;
use lobster_base::digest::Digest;
use lobster_stage::{Flow, Host, Sink, Stage, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "dedupe",
    description: "Remove duplicate items, keeping first occurrence (stable)",
    help: "Usage:\n  ... | dedupe\n  ... | dedupe --key id\n\n\
           Values are equal when their JSON is, in any order of fields. 1 and \"1\" differ, so do null and a missing key.\n",
    flags: &[option("key", "PATH", "Compare the value at this path, not the whole item")],
    args_schema: || command_schema(&[Arg::text("key", "Dot path of the value to compare")]),
    examples: || serde_json::json!([{"args": {"key": "id"}, "description": "One item for each id"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| Ok(Box::new(Dedupe { key: args.text_value("key").map(Path::new), seen: HashSet::new() })),
};

struct Dedupe {
    key: Option<Path>,
    seen: HashSet<Digest>,
}

impl Stage for Dedupe {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let identity = match &self.key {
            Some(path) => value_digest(path.get(&item).as_deref()),
            None => value_digest(Some(&item)),
        };
        if self.seen.insert(identity) { out.emit_item(item) } else { Ok(Flow::More) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::run;

    #[test]
    fn the_first_of_equals_stays() {
        assert_eq!(
            run("dedupe", json!([1, "1", 1.0, {"x": 1, "y": 2}, {"y": 2, "x": 1}, null, null])),
            json!([1, "1", {"x": 1, "y": 2}, null])
        );
        assert_eq!(
            run("dedupe --key id", json!([{"id": 1}, {}, 5, 5, null, {"id": null}])),
            json!([{"id": 1}, {}, {"id": null}])
        );
        assert_eq!(
            run("dedupe --key", json!([{"true": 1}, {"true": 1, "b": 2}])),
            json!([{"true": 1}, {"true": 1, "b": 2}])
        );
    }
}
