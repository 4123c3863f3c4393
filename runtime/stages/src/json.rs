//! `json`: shows all items as one JSON list.

use serde_json::Value;

use super::text_arena::{Slot, TextArena};
use lobster_base::json::pretty;
use lobster_stage::{Flow, Host, Rendering, Sink, Stage, StageKind, StageSpec, Stop, args_schema};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "json",
    description: "Render pipeline output as JSON",
    help: "Usage:\n  ... | json\n\nShows the items and passes none on.\n",
    flags: &[],
    args_schema: || args_schema(&[], &[]),
    examples: || serde_json::json!([{"args": {}, "description": "Show the items as JSON"}]),
    side_effects: Some(&[]),
    kind: StageKind::Renderer,
    build: |_| Ok(Box::new(Json::default())),
};

#[derive(Default)]
struct Json {
    held: TextArena,
    items: Vec<Slot>,
}

impl Stage for Json {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(self.held.push_item(&item)?);
        Ok(Flow::More)
    }

    /// Shows nothing before all items are there: a later failure must not leave half a document.
    fn end_input(&mut self, host: &mut dyn Host, _: &mut dyn Sink) -> Result<(), Stop> {
        let mut shown = String::from("[");
        for (index, slot) in std::mem::take(&mut self.items).into_iter().enumerate() {
            shown.push_str(if index == 0 { "\n  " } else { ",\n  " });
            shown.push_str(&pretty(&self.held.parse_item(slot)?).replace('\n', "\n  "));
        }
        shown.push_str(if shown.len() == 1 { "]\n" } else { "\n]\n" });
        host.show_text(&shown, Rendering::List)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::rendered_texts;
    use lobster_base::json::pretty;

    #[test]
    fn the_text_is_that_of_the_whole_list() {
        for items in [json!([]), json!([1]), json!([{"a": [1, {"b": {}}], "s": "x\ny"}, null, [], "é"])] {
            assert_eq!(rendered_texts("json", items.clone()), [format!("{}\n", pretty(&items))]);
        }
        assert_eq!(rendered_texts("json | json", json!([1])), ["[\n  1\n]\n", "[]\n"]);
    }
}
