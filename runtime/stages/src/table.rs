//! `table`: shows items in columns.

use std::collections::HashSet;

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::text_arena::{Slot, TextArena};
use lobster_base::json::{compact, number_text};
use lobster_stage::{Flow, Host, Rendering, Sink, Stage, StageKind, StageSpec, Stop, args_schema};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "table",
    description: "Render items as a simple table",
    help: "Usage:\n  ... | table\n\nColumns are the fields of the first 20 items. Shows the items and passes none on.\n",
    flags: &[],
    args_schema: || args_schema(&[], &[]),
    examples: || serde_json::json!([{"args": {}, "description": "Show the items as a table"}]),
    side_effects: Some(&[]),
    kind: StageKind::Renderer,
    build: |_| Ok(Box::new(Table::default())),
};

/// Items whose fields become the columns; the incumbent uses the same number.
const SAMPLE: usize = 20;
/// The narrowest column.
const MIN_WIDTH: usize = 3;

#[derive(Default)]
struct Table {
    held: TextArena,
    items: Vec<Slot>,
}

impl Stage for Table {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(self.held.push_item(&item)?);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, _: &mut dyn Sink) -> Result<(), Stop> {
        let shown = match (self.items.is_empty(), self.column_names()?) {
            (true, _) => "(no results)\n".to_owned(),
            (false, Some(columns)) => self.render_grid(&columns)?,
            (false, None) => self.render_lines()?,
        };
        host.show_text(&shown, Rendering::Text)
    }
}

impl Table {
    /// The fields of the first items in order of appearance, or `None` if an item is not an object.
    fn column_names(&self) -> Result<Option<Vec<String>>, Stop> {
        let mut columns: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for slot in self.items.iter().take(SAMPLE) {
            let Value::Object(map) = self.held.parse_item(*slot)? else { return Ok(None) };
            for key in map.keys() {
                if seen.insert(key.clone()) {
                    columns.push(key.clone());
                }
            }
        }
        Ok(Some(columns))
    }

    fn render_grid(&self, columns: &[String]) -> Result<String, Stop> {
        let row = |slot: &Slot| -> Result<Vec<String>, Stop> {
            let item = self.held.parse_item(*slot)?;
            Ok(columns.iter().map(|name| item.get(name).map_or_else(String::new, cell_text)).collect())
        };
        let mut widths: Vec<_> = columns.iter().map(|name| name.width().max(MIN_WIDTH)).collect();
        for slot in &self.items {
            for (width, cell) in widths.iter_mut().zip(row(slot)?) {
                *width = cell.width().max(*width);
            }
        }
        let mut shown = String::new();
        push_row(&mut shown, columns, &widths);
        let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
        push_row(&mut shown, &rule, &widths);
        for slot in &self.items {
            push_row(&mut shown, &row(slot)?, &widths);
        }
        Ok(shown)
    }

    fn render_lines(&self) -> Result<String, Stop> {
        let mut shown = String::new();
        for slot in &self.items {
            shown.push_str(&cell_text(&self.held.parse_item(*slot)?));
            shown.push('\n');
        }
        Ok(shown)
    }
}

fn cell_text(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number_text(number),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => compact(value),
    };
    text.replace('\n', " ")
}

fn push_row(shown: &mut String, cells: &[String], widths: &[usize]) {
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if index > 0 {
            shown.push_str("  ");
        }
        shown.push_str(cell);
        shown.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width())));
    }
    shown.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::rendered_texts;

    #[test]
    fn columns_fit_what_they_hold() {
        for (items, text) in [
            (json!([]), "(no results)\n"),
            (json!([{}, {}]), "\n\n\n\n"),
            (json!([{"x": 1, "y": ""}]), "x    y  \n---  ---\n1       \n"),
            (json!([{"t": "😀"}, {"t": "abcdef"}]), "t     \n------\n😀    \nabcdef\n"),
            (json!([{"t": "漢字"}, {"t": "abcd"}]), "t   \n----\n漢字\nabcd\n"),
            (json!([1, null, "a\nb", {"k": [1]}]), "1\n\na b\n{\"k\":[1]}\n"),
            (
                json!([{"id": 1, "name": "alpha"}, {"id": 22, "extra": {"k": [1]}}, {"name": "li\nne", "flag": true}]),
                "id   name   extra      flag\n---  -----  ---------  ----\n1    alpha                 \n22          {\"k\":[1]}      \n     li ne             true\n",
            ),
        ] {
            assert_eq!(rendered_texts("table", items.clone()), [text], "{items}");
        }
    }

    /// Comparing each column with all columns before it would take minutes.
    #[test]
    fn many_columns_take_no_longer_each() {
        let item: serde_json::Map<String, Value> =
            (0..100_000).map(|n| (format!("c{n}"), json!(n))).collect();
        let begun = std::time::Instant::now();
        let text = rendered_texts("table", json!([item])).remove(0);
        assert!(text.starts_with("c0   c1   c2 ") && text.contains("c99999"), "{}", &text[..40]);
        assert!(begun.elapsed().as_secs() < 40, "{:?}", begun.elapsed());
    }

    #[test]
    fn fields_first_seen_after_the_sample_are_left_out() {
        let mut items: Vec<Value> = (0..20).map(|a| json!({"a": a})).collect();
        items.extend([json!({"late": 1}), json!(5)]);
        let text = rendered_texts("table", json!(items)).remove(0);
        assert!(text.starts_with("a  \n---\n0  \n"), "{text}");
        assert!(text.ends_with("19 \n   \n   \n"), "{text}");
    }
}
