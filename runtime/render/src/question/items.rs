//! Items of a question: similar objects as a table, single objects field by field, anything else line
//! by line.

use lobster_runtime::json;
use serde_json::Value;

use crate::text::{cut, display_width, pad, wrap};
use lobster_runtime::visible::{harmless, one_line};

/// Space between two columns.
const GAP: usize = 2;

/// Least width of a column, unless its contents are narrower.
const LEAST: usize = 8;

/// The layout of items: lines above the first item, and the lines of each.
pub(super) struct Layout {
    /// The names of the columns, if it is a table.
    pub(super) head: Option<String>,
    pub(super) items: Vec<Vec<String>>,
    /// Number of fields that did not fit.
    pub(super) left_out: usize,
}

/// The first `count` items in lines of at most `columns`, one line each if possible: long cells end in `…`.
pub(super) fn brief_layout(items: &[Value], count: usize, columns: usize) -> Layout {
    let shown = &items[..count.min(items.len())];
    match are_objects(items) {
        true if items.len() == 1 => record_layout(shown, columns),
        true => {
            table_layout(shown, items, columns, false).unwrap_or_else(|| line_layout(shown, columns, false))
        }
        false => line_layout(shown, columns, false),
    }
}

/// All items with their whole contents.
pub(super) fn whole_layout(items: &[Value], columns: usize) -> Layout {
    match are_objects(items) {
        true if items.len() > 1 => {
            table_layout(items, items, columns, true).unwrap_or_else(|| record_layout(items, columns))
        }
        true => record_layout(items, columns),
        false => line_layout(items, columns, true),
    }
}

/// True if there are items, and all of them are objects with fields.
fn are_objects(items: &[Value]) -> bool {
    let has_fields = |item: &Value| item.as_object().is_some_and(|object| !object.is_empty());
    !items.is_empty() && items.iter().all(has_fields)
}

struct Column<'a> {
    name: &'a str,
    title: String,
    /// Number of items that have it.
    present: usize,
    numbers: bool,
    wide: usize,
}

/// A table of the items; `None` if a whole table would leave something out.
fn table_layout(shown: &[Value], all: &[Value], columns: usize, whole: bool) -> Option<Layout> {
    let mut fields = table_columns(shown, all);
    let total = fields.len();
    let room = |fields: &[Column<'_>]| columns.saturating_sub(GAP * fields.len().saturating_sub(1));
    let least = |fields: &[Column<'_>]| fields.iter().map(|field| field.wide.min(LEAST)).sum::<usize>();
    while least(&fields) > room(&fields) {
        if whole {
            return None;
        }
        // The rarest field is dropped; among equals, the last one.
        let rarest = fields.iter().enumerate().rev().min_by_key(|(_, field)| field.present)?.0;
        fields.remove(rarest);
    }
    if fields.is_empty() {
        return None;
    }
    let room = room(&fields);
    narrow_columns(&mut fields, room);
    // Cells of many short lines are harder to read than a list of fields.
    if whole && fields.iter().any(|field| field.wide < 12 && widest_cell(shown, field.name) > 4 * field.wide)
    {
        return None;
    }
    let row = |cells: Vec<String>| {
        let mut line = String::new();
        for (index, (cell, field)) in cells.iter().zip(&fields).enumerate() {
            let last = index + 1 == fields.len();
            line.push_str(&pad(cell, if last && !field.numbers { 0 } else { field.wide }, field.numbers));
            if !last {
                line.push_str(&" ".repeat(GAP));
            }
        }
        line.trim_end().to_owned()
    };
    let head = row(fields.iter().map(|field| cut(&field.title, field.wide).into_owned()).collect());
    let items = shown.iter().map(|item| {
        let cells = fields.iter().map(|field| {
            let cell = item.get(field.name).map(cell_text).unwrap_or_default();
            if whole { wrap(&cell, field.wide) } else { vec![cut(&cell, field.wide).into_owned()] }
        });
        let cells: Vec<Vec<String>> = cells.collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        (0..height)
            .map(|line| row(cells.iter().map(|cell| cell.get(line).cloned().unwrap_or_default()).collect()))
            .collect()
    });
    Some(Layout { head: Some(head), items: items.collect(), left_out: total - fields.len() })
}

/// The fields of all items in the order of their first appearance, as wide as their shown contents.
fn table_columns<'a>(shown: &[Value], all: &'a [Value]) -> Vec<Column<'a>> {
    let mut fields: Vec<Column<'a>> = Vec::new();
    let mut places: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for (name, value) in all.iter().filter_map(Value::as_object).flatten() {
        let at = *places.entry(name).or_insert_with(|| {
            let title = one_line(name).to_uppercase();
            let wide = display_width(&title).max(1);
            fields.push(Column { name, title, present: 0, numbers: true, wide });
            fields.len() - 1
        });
        fields[at].present += 1;
        fields[at].numbers &= value.is_number() || value.is_null();
    }
    for field in &mut fields {
        field.wide = field.wide.max(widest_cell(shown, field.name));
    }
    fields
}

fn widest_cell(items: &[Value], field: &str) -> usize {
    items
        .iter()
        .filter_map(|item| item.get(field))
        .map(|value| display_width(&cell_text(value)))
        .max()
        .unwrap_or(0)
}

/// Narrows the widest columns first until all fit.
fn narrow_columns(fields: &mut [Column<'_>], room: usize) {
    let total: usize = fields.iter().map(|field| field.wide).sum();
    if total <= room {
        return;
    }
    // Finds the largest possible column width by halving.
    let fits = |cap: usize| fields.iter().map(|field| field.wide.min(cap)).sum::<usize>() <= room;
    let (mut low, mut high) = (1, room);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    let mut spare = room.saturating_sub(fields.iter().map(|field| field.wide.min(low)).sum());
    for field in fields {
        let more = usize::from(field.wide > low && spare > 0);
        spare -= more;
        field.wide = field.wide.min(low + more);
    }
}

/// Each item field by field.
fn record_layout(items: &[Value], columns: usize) -> Layout {
    let names = items.iter().filter_map(Value::as_object).flat_map(|object| object.keys());
    let label = names.map(|name| display_width(&one_line(name))).max().unwrap_or(0).min(columns / 3).max(1);
    let record = |(index, item): (usize, &Value)| {
        let mut lines = Vec::new();
        if items.len() > 1 {
            lines.extend((index > 0).then(String::new));
            lines.push(format!("{}.", index + 1));
        }
        for (name, value) in item.as_object().into_iter().flatten() {
            let room = columns.saturating_sub(label + GAP);
            let text = match texts_of(value).filter(|_| display_width(&cell_text(value)) > room) {
                Some(texts) => texts.iter().flat_map(|text| wrap(&one_line(text), room)).collect(),
                None => wrap(&cell_lines(value), room),
            };
            for (at, line) in text.iter().enumerate() {
                let name = if at == 0 { cut(&one_line(name), label).into_owned() } else { String::new() };
                lines.push(
                    format!("{}{}{line}", pad(&name, label, false), " ".repeat(GAP)).trim_end().to_owned(),
                );
            }
        }
        lines
    };
    let items = items
        .iter()
        .enumerate()
        .map(record)
        .map(|lines| lines.iter().map(|line| cut(line, columns).into_owned()).collect());
    Layout { head: None, items: items.collect(), left_out: 0 }
}

fn line_layout(items: &[Value], columns: usize, whole: bool) -> Layout {
    let item = |item: &Value| match whole {
        true => wrap(&cell_lines(item), columns),
        false => vec![cut(&cell_text(item), columns).into_owned()],
    };
    Layout { head: None, items: items.iter().map(item).collect(), left_out: 0 }
}

/// The texts of a list that contains nothing else.
fn texts_of(value: &Value) -> Option<Vec<&str>> {
    let texts: Option<Vec<_>> = value.as_array()?.iter().map(Value::as_str).collect();
    texts.filter(|texts| !texts.is_empty())
}

/// A value on one line.
fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text),
        other => one_line(&json::compact(other)),
    }
}

/// A value with its own line breaks.
fn cell_lines(value: &Value) -> String {
    match value {
        Value::String(text) => harmless(text).into_owned(),
        other => cell_text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_long_list_of_texts_has_a_line_for_each() {
        let item = json!({"id": 1, "files": ["modified /srv/shop/cart.py", "deleted /srv/shop/old.py"]});
        assert_eq!(
            layout_lines(&whole_layout(&[item], 40)),
            ["id     1", "files  modified /srv/shop/cart.py", "       deleted /srv/shop/old.py"]
        );
        assert_eq!(layout_lines(&whole_layout(&[json!({"tags": ["a", "b"]})], 40)), ["tags  [\"a\",\"b\"]"]);
    }

    fn layout_lines(layout: &Layout) -> Vec<String> {
        layout.head.iter().cloned().chain(layout.items.iter().flatten().cloned()).collect()
    }

    #[test]
    fn a_list_of_objects_is_a_table() {
        let items = [
            json!({"file": "a.eml", "score": 0.97, "from": "Ravi Menon <ravi@northwind.example>"}),
            json!({"file": "long-name.eml", "score": 1, "new": {"a": [1]}}),
        ];
        assert_eq!(
            layout_lines(&brief_layout(&items, 9, 60)),
            [
                "FILE           SCORE  FROM                         NEW",
                "a.eml           0.97  Ravi Menon <ravi@northwind…",
                "long-name.eml      1                               {\"a\":[1]}",
            ]
        );
        let narrow = brief_layout(&items, 9, 26);
        assert_eq!((narrow.left_out, display_width(narrow.head.as_deref().unwrap()) <= 26), (1, true));
        // Everything is shown: the cells continue below.
        let shown = layout_lines(&whole_layout(&items, 60));
        assert!(shown.iter().any(|line| line.contains("example>")), "{shown:#?}");
        let shown = layout_lines(&whole_layout(&items, 20));
        assert!(shown.contains(&"1.".to_owned()), "{shown:#?}");
    }

    #[test]
    fn other_items_are_lines() {
        assert_eq!(
            layout_lines(&brief_layout(&[json!("a\nb"), json!([1, {}]), json!("long text here")], 9, 8)),
            ["a b", "[1,{}]", "long te…"]
        );
        assert_eq!(layout_lines(&whole_layout(&[json!("a\nb c d")], 3)), ["a", "b c", "d"]);
        assert_eq!(
            layout_lines(&brief_layout(&[json!({"n": 1, "name": "x\ny"})], 9, 20)),
            ["n     1", "name  x", "      y"]
        );
        assert_eq!(layout_lines(&brief_layout(&[json!({}), json!({})], 9, 20)), ["{}", "{}"]);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[a-z ]{0,30}",
            "\\PC{0,40}",
            any::<String>(),
            Just("\u{1b}[2J\u{202e}\u{200b}\r\n\t你好👩‍🚀☁\u{fe0f}1\u{fe0f}\u{20e3}".to_owned()),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((text.clone(), inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn no_line_is_wider_than_the_screen_and_none_commands_it(items in prop::collection::vec(any_value(), 0..8), columns in 20usize..140, count in 0usize..9) {
            for layout in [brief_layout(&items, count, columns), whole_layout(&items, columns)] {
                for line in layout_lines(&layout) {
                    prop_assert!(display_width(&line) <= columns, "{columns}: {line:?}");
                    let commands = |c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c) || "\u{200b}\u{2066}\u{feff}".contains(c);
                    prop_assert!(!line.contains(commands), "{line:?}");
                }
            }
            prop_assert_eq!(brief_layout(&items, count, columns).items.len(), count.min(items.len()));
            prop_assert_eq!(whole_layout(&items, columns).items.len(), items.len());
        }

        #[test]
        fn pieces_of_a_line_are_no_wider_together(text in "[a1 \u{fe0f}\u{20e3}\u{200d}👩☁好\u{301}]{0,24}", max in 2usize..12, margin in 0usize..4) {
            let margin = " ".repeat(margin);
            for line in wrap(&text, max) {
                prop_assert!(display_width(&format!("{margin}{line}")) <= margin.len() + max, "{max}: {line:?}");
            }
        }

        #[test]
        fn the_whole_view_leaves_nothing_out(words in prop::collection::vec("[a-z]{1,40}", 1..6), columns in 20usize..100) {
            let items: Vec<Value> = words.iter().map(|word| json!({"first": word, "second": 7, "third": word})).collect();
            let shown: String = layout_lines(&whole_layout(&items, columns)).concat().split_whitespace().collect();
            let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).count();
            let wanted = 2 * words.iter().map(|word| letters(word)).sum::<usize>();
            prop_assert!(letters(&shown) >= wanted, "{shown}");
        }
    }
}
