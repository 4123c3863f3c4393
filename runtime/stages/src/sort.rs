//! `sort`: orders items in bounded memory: items are held as compact text, not values.
//!
//! The order: null and missing come last, in both directions. Numbers are ordered by value, everything
//! else by its text. Between numbers and texts, a text precedes the first number whose own text is
//! greater. So the result depends only on the items and not on their order in the input, except that
//! equal items keep it.

use std::cmp::Ordering;

use serde_json::Value;

use super::compare::text_order;
use super::describe::{Arg, command_schema};
use super::item_path::Path;
use super::text_arena::{Slot, TextArena};
use lobster_base::json::exact::Exact;
use lobster_base::json::js_string;
use lobster_stage::{Flag, Flow, Host, Sink, Stage, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "sort",
    description: "Sort items (stable) by a key or by stringified value",
    help: "Usage:\n  ... | sort\n  ... | sort --key PATH [--desc]\n\n\
           Numbers are ordered by value, everything else by its text; null and missing keys come last, even with --desc.\n",
    flags: &[
        Flag { name: "key", value: Some("PATH"), help: "Order by the value at this path" },
        Flag { name: "desc", value: None, help: "Descending order" },
    ],
    args_schema: || {
        let key = Arg::text("key", "Dot path of the value to order by");
        command_schema(&[key, Arg::switch("desc", "Order from great to small")])
    },
    examples: || serde_json::json!([{"args": {"key": "updatedAt", "desc": true}, "description": "Newest first"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        let key = args.text_value("key").filter(|key| !key.is_empty()).map(Path::new);
        Ok(Box::new(Sort { key, descending: args.is_enabled("desc"), ..Sort::default() }))
    },
};

#[derive(Default)]
struct Sort {
    key: Option<Path>,
    descending: bool,
    items: TextArena,
    texts: TextArena,
    by_number: Vec<Entry<Exact>>,
    by_text: Vec<Entry<Slot>>,
    last: Vec<Slot>,
}

struct Entry<K> {
    key: K,
    item: Slot,
    /// Position in the input.
    place: usize,
}

impl Stage for Sort {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        let slot = self.items.push_item(&item)?;
        let key = match &self.key {
            Some(path) => path.get(&item),
            None => Some(std::borrow::Cow::Borrowed(&item)),
        };
        let place = self.by_number.len() + self.by_text.len();
        match key.as_deref() {
            None | Some(Value::Null) => self.last.push(slot),
            Some(Value::Number(number)) => {
                self.by_number.push(Entry { key: Exact::of_number(number), item: slot, place })
            }
            Some(Value::String(text)) => {
                let key = self.texts.push_text(text)?;
                self.by_text.push(Entry { key, item: slot, place });
            }
            Some(other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_))) => {
                let key = self.texts.push_text(&js_string(other))?;
                self.by_text.push(Entry { key, item: slot, place });
            }
        }
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let mut order = self.sorted_slots();
        if self.descending {
            order.reverse();
        }
        order.append(&mut self.last);
        for slot in order {
            if host.cancel_token().is_cancelled() {
                return Err(Stop::Cancelled);
            }
            if out.emit_item(self.items.parse_item(slot)?)? == Flow::Enough {
                break;
            }
        }
        Ok(())
    }
}

impl Sort {
    /// All items with a key, ascending. If the order will be reversed, equal items are in reverse input
    /// order here.
    fn sorted_slots(&mut self) -> Vec<Slot> {
        let descending = self.descending;
        let tie = |a: usize, b: usize| if descending { b.cmp(&a) } else { a.cmp(&b) };
        let texts = &self.texts;
        let mut numbers = std::mem::take(&mut self.by_number);
        let mut words = std::mem::take(&mut self.by_text);
        numbers.sort_unstable_by(|a, b| {
            a.key.compare_to(b.key).unwrap_or(Ordering::Equal).then_with(|| tie(a.place, b.place))
        });
        words.sort_unstable_by(|a, b| {
            text_order(texts.slot_text(a.key), texts.slot_text(b.key)).then_with(|| tie(a.place, b.place))
        });
        let mut order = Vec::with_capacity(numbers.len() + words.len() + self.last.len());
        let mut words = words.into_iter().peekable();
        let mut numbers = numbers.into_iter().peekable();
        while let Some(number) = numbers.next() {
            let number_text = if words.peek().is_some() { number.key.to_text() } else { String::new() };
            while let Some(word) = words.next_if(|word| {
                let by_text = text_order(texts.slot_text(word.key), &number_text);
                by_text.then_with(|| tie(word.place, number.place)) == Ordering::Less
            }) {
                order.push(word.item);
            }
            order.push(number.item);
            // Words with the same text as this number go next to it, not after the next number.
            let is_last_of_its_value =
                numbers.peek().is_none_or(|next| next.key.compare_to(number.key) != Some(Ordering::Equal));
            while is_last_of_its_value
                && let Some(word) = words.next_if(|word| texts.slot_text(word.key) == number_text)
            {
                order.push(word.item);
            }
        }
        order.extend(words.map(|word| word.item));
        order
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::testing::run;
    use super::*;

    #[test]
    fn order_is_by_value_then_text_and_null_is_last() {
        for (text, input, output) in [
            ("sort", json!([10, 9, 2, 33, -1, 1.5]), json!([-1, 1.5, 2, 9, 10, 33])),
            ("sort", json!([9, "10", 2, "a"]), json!(["10", 2, 9, "a"])),
            ("sort", json!([true, false, null, true]), json!([false, true, true, null])),
            ("sort", json!([[10], [9], [1, 5]]), json!([[1, 5], [10], [9]])),
            ("sort --desc", json!([1, null, 3, 2]), json!([3, 2, 1, null])),
            ("sort --desc=false", json!([1, 2]), json!([2, 1])),
            ("sort --desc=", json!([2, 1]), json!([1, 2])),
            (
                "sort",
                json!([9_007_199_254_740_993_i64, 9_007_199_254_740_992_i64]),
                json!([9_007_199_254_740_992_i64, 9_007_199_254_740_993_i64]),
            ),
            ("sort --key length", json!(["ccc", "a", "bb"]), json!(["a", "bb", "ccc"])),
            ("sort --key", json!([2, 1]), json!([1, 2])),
            ("sort", json!(["\u{ffff}", "😀", "a"]), json!(["a", "😀", "\u{ffff}"])),
            (
                "sort --key k",
                json!([{"k": 3}, {"k": null}, {"k": 1}, {}, {"k": "2"}, {"k": 10}]),
                json!([{"k": 1}, {"k": "2"}, {"k": 3}, {"k": 10}, {"k": null}, {}]),
            ),
            (
                "sort --key k --desc",
                json!([{"k": 1, "i": 1}, {"k": 2}, {"k": "1", "i": 2}, {"i": 3}, {"k": 1, "i": 4}]),
                json!([{"k": 2}, {"k": 1, "i": 1}, {"k": "1", "i": 2}, {"k": 1, "i": 4}, {"i": 3}]),
            ),
        ] {
            assert_eq!(run(text, input.clone()), output, "{text} {input}");
        }
    }

    proptest! {
        /// The result does not depend on the input order, and `--desc` reverses it completely.
        #[test]
        fn the_result_depends_on_the_items_alone(
            mut items in proptest::collection::vec(prop_oneof![
                (-20..20).prop_map(|n| json!(n)),
                (-20..20).prop_map(|n| json!(f64::from(n) / 4.0)),
                "[0-9a]{0,3}".prop_map(|s| json!(s)),
            ], 0..12),
            seed in any::<u64>(),
        ) {
            let texts = |v: Value| v.as_array().unwrap().iter().map(js_string).collect::<Vec<_>>();
            let sorted = texts(run("sort", json!(items)));
            let mut down = texts(run("sort --desc", json!(items)));
            down.reverse();
            prop_assert_eq!(&sorted, &down);
            let len = items.len().max(1);
            for i in 0..items.len() {
                items.swap(i, (seed as usize).wrapping_mul(i + 7) % len);
            }
            prop_assert_eq!(&sorted, &texts(run("sort", json!(items))));
        }
    }
}
