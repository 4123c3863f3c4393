//! `head`: passes the first items.

use serde_json::Value;

use super::describe::{Arg, command_schema};
use lobster_base::json::raw::RawItem;
use lobster_stage::{Flag, Flow, Host, Sink, Stage, StageError, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "head",
    description: "Take first N items",
    help: "Usage:\n  ... | head --n 10\n\nStops the commands before it as soon as it has enough items.\n",
    flags: &[Flag { name: "n", value: Some("N"), help: "How many items (default 10)" }],
    args_schema: || command_schema(&[Arg::number("n", "How many items to take").with_default("10")]),
    examples: || serde_json::json!([{"args": {"n": 5}, "description": "Take the first five items"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        let n = args.number_value("n").unwrap_or(10.0);
        if !n.is_finite() || n < 0.0 {
            return Err(StageError::permanent("head --n must be a non-negative number"));
        }
        Ok(Box::new(Head { left: n }))
    },
};

/// Number of further items to pass; a fraction is rounded up to one item.
struct Head {
    left: f64,
}

impl Head {
    fn take_one(&mut self, give: impl FnOnce() -> Result<Flow, Stop>) -> Result<Flow, Stop> {
        if self.left <= 0.0 {
            return Ok(Flow::Enough);
        }
        self.left -= 1.0;
        let flow = give()?;
        Ok(if self.left <= 0.0 { Flow::Enough } else { flow })
    }
}

impl Stage for Head {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.take_one(|| out.emit_item(item))
    }

    fn process_raw(&mut self, item: RawItem<'_>, _: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.take_one(|| out.emit_raw(item))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{failure_message, run};

    #[test]
    fn takes_as_many_as_asked() {
        let items = json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        for (text, count) in [
            ("head", 10),
            ("head 2", 10),
            ("head --n 3", 3),
            ("head --n 1.5", 2),
            ("head --n", 1),
            ("head --n=", 0),
            ("head --n 0x2", 2),
        ] {
            let taken = run(text, items.clone());
            assert_eq!(taken.as_array().map(Vec::len), Some(count), "{text}");
        }
        for text in ["head --n -1", "head --n many", "head --n Infinity"] {
            assert_eq!(
                failure_message(text, items.clone()),
                "head --n must be a non-negative number",
                "{text}"
            );
        }
    }
}
