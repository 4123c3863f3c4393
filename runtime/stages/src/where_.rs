//! `where`: passes the items that fit a condition.
//!
//! Values compare as ECMAScript's `==` and `<` compare them, since conditions
//! in use depend on it (`unread=true`, `minutes>=30` on text); only integers
//! beyond 2^53 are compared exactly instead of rounded.

use std::cmp::Ordering;

use serde_json::Value;

use super::compare::text_order;
use super::item_path::Path;
use lobster_base::json::exact::Exact;
use lobster_base::json::js_string;
use lobster_base::json::raw::RawItem;
use lobster_stage::{
    Flow, Host, Mode, Sink, Stage, StageError, StageKind, StageSpec, Stop, args_schema, read_raw,
    words_schema,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "where",
    description: "Filter objects by a simple predicate",
    help: "Usage:\n  ... | where unread=true\n  ... | where 'minutes>=30'\n  ... | where sender.domain==example.com\n\n\
           Operators: = == != < <= > >=. The condition is one word: quote it if it holds spaces or |.\n\
           true, false, null and numbers are read as such, everything else is text.\n",
    flags: &[],
    args_schema: || args_schema(&[("_", words_schema(Some("First word: field, operator, value")))], &["_"]),
    examples: || serde_json::json!([{"args": {"_": ["minutes>=30"]}, "description": "Keep items of at least 30 minutes"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        let Some(text) = args.positional.first() else {
            return Err(StageError::permanent("where requires an expression (e.g. field=value)"));
        };
        let condition = Condition::parse(text)
            .ok_or_else(|| StageError::permanent(format!("Invalid where expression: {text}")))?;
        Ok(Box::new(Where { condition, text: text.clone(), has_items: false, has_field: false }))
    },
};

struct Where {
    condition: Condition,
    text: String,
    has_items: bool,
    /// True if an item had the field of the condition, or passed without it.
    has_field: bool,
}

impl Where {
    fn lets_through(&mut self, found: Option<&Value>) -> bool {
        let holds = self.condition.holds_for(found);
        self.has_items = true;
        self.has_field |= found.is_some() || holds;
        holds
    }
}

impl Stage for Where {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let found = self.condition.path.get(&item);
        if self.lets_through(found.as_deref()) { out.emit_item(item) } else { Ok(Flow::More) }
    }

    fn process_raw(
        &mut self,
        item: RawItem<'_>,
        host: &mut dyn Host,
        out: &mut dyn Sink,
    ) -> Result<Flow, Stop> {
        let Some(found) = self.condition.found_in(item) else {
            return self.process_item(read_raw(item)?, host, out);
        };
        if self.lets_through(found.as_ref()) { out.emit_raw(item) } else { Ok(Flow::More) }
    }

    fn end_input(&mut self, host: &mut dyn Host, _: &mut dyn Sink) -> Result<(), Stop> {
        if self.has_items && !self.has_field && host.output_mode() == Mode::Human {
            host.print_note(&format!("[WARN] where {}: no item has this field", self.text));
        }
        Ok(())
    }
}

struct Condition {
    path: Path,
    operator: Operator,
    right: Literal,
}

#[derive(Clone, Copy)]
enum Operator {
    Is,
    IsNot,
    AtMost,
    AtLeast,
    Less,
    More,
}

/// In the order they are tried, so that `a===1` is `a == "=1"`.
const OPERATORS: [(&str, Operator); 7] = [
    ("==", Operator::Is),
    ("=", Operator::Is),
    ("!=", Operator::IsNot),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<", Operator::Less),
    (">", Operator::More),
];

enum Literal {
    Null,
    Bool(bool),
    Number(Exact),
    Text(String),
}

impl Condition {
    fn parse(text: &str) -> Option<Self> {
        let field = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let rest = text.trim_start_matches(field);
        let path = &text[..text.len() - rest.len()];
        if path.is_empty() {
            return None;
        }
        let rest = rest.trim_start();
        let (operator, value) = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, value_after(rest.strip_prefix(sign)?)?)))?;
        Some(Self { path: Path::of_field(path), operator, right: Literal::from_text(value) })
    }

    /// The field's value found in the text of an item; `None` if the item must be parsed to know.
    fn found_in(&self, item: RawItem<'_>) -> Option<Option<Value>> {
        match item.find_field(self.path.only_name()?)? {
            Some(value) => Some(Some(value.parse_value().ok()?)),
            None => Some(None),
        }
    }

    fn holds_for(&self, left: Option<&Value>) -> bool {
        let order = || left.and_then(|left| compare_loosely(left, &self.right));
        match self.operator {
            Operator::Is => self.right.loosely_equals(left),
            Operator::IsNot => !self.right.loosely_equals(left),
            Operator::Less => order() == Some(Ordering::Less),
            Operator::More => order() == Some(Ordering::Greater),
            Operator::AtMost => matches!(order(), Some(Ordering::Less | Ordering::Equal)),
            Operator::AtLeast => matches!(order(), Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// The value after an operator: at least one character, on one line. Blanks before it are ignored unless
/// there is nothing else.
fn value_after(text: &str) -> Option<&str> {
    let value = text.trim_start();
    let last = || text.char_indices().next_back().map(|(at, _)| &text[at..]);
    let value = if value.is_empty() { last()? } else { value };
    (!value.contains(['\n', '\r', '\u{2028}', '\u{2029}'])).then_some(value)
}

impl Literal {
    fn from_text(text: &str) -> Self {
        match text {
            "null" => Self::Null,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            _ if text.trim().is_empty() => Self::Text(text.to_owned()),
            _ => match Exact::of_text(text) {
                number if number.is_nan() => Self::Text(text.to_owned()),
                number => Self::Number(number),
            },
        }
    }

    fn to_number(&self) -> Exact {
        match self {
            Self::Null => Exact::Int(0),
            Self::Bool(bool) => Exact::Int((*bool).into()),
            Self::Number(number) => *number,
            Self::Text(text) => Exact::of_text(text),
        }
    }

    /// ECMA-262 `IsLooselyEqual`; missing is `undefined`.
    fn loosely_equals(&self, left: Option<&Value>) -> bool {
        let Some(left) = left.filter(|left| !left.is_null()) else {
            return matches!(self, Self::Null);
        };
        match (left, self) {
            (_, Self::Null) => false,
            (Value::String(left), Self::Text(right)) => left == right,
            (Value::Array(_) | Value::Object(_), Self::Text(right)) => js_string(left) == *right,
            _ => left_number(left).is_equal(self.to_number()),
        }
    }
}

/// ECMA-262 `IsLessThan` in both directions; `None` if one side is not a number.
fn compare_loosely(left: &Value, right: &Literal) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Literal::Text(right)) => Some(text_order(left, right)),
        (Value::Array(_) | Value::Object(_), Literal::Text(right)) => {
            Some(text_order(&js_string(left), right))
        }
        _ => left_number(left).compare_to(right.to_number()),
    }
}

fn left_number(value: &Value) -> Exact {
    match value {
        Value::Null => Exact::Int(0),
        Value::Bool(bool) => Exact::Int((*bool).into()),
        Value::Number(number) => Exact::of_number(number),
        Value::String(text) => Exact::of_text(text),
        Value::Array(_) | Value::Object(_) => Exact::of_text(&js_string(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{failure_message, run};
    use super::*;

    fn condition_holds(left: Value, condition: &str) -> bool {
        Condition::parse(condition).is_some_and(|c| c.holds_for(c.path.get(&json!({"a": left})).as_deref()))
    }

    #[test]
    fn comparison_is_loose() {
        for left in [json!(1), json!("1"), json!(true), json!([1])] {
            assert!(condition_holds(left.clone(), "a=1"), "{left}");
        }
        for left in [json!("0x10"), json!("16"), json!([16]), json!(16.0)] {
            assert!(condition_holds(left.clone(), "a == 16"), "{left}");
            assert!(condition_holds(left.clone(), "a=0x10"), "{left}");
        }
        for left in [json!(""), json!(0), json!(false)] {
            assert!(
                condition_holds(left.clone(), "a=0") && condition_holds(left.clone(), "a=false"),
                "{left}"
            );
        }
        for (left, condition, expected) in [
            (json!(null), "a=0", false),
            (json!(null), "a=null", true),
            (json!(0), "a=null", false),
            (json!("true"), "a=true", false),
            (json!(1), "a=true", true),
            (json!("1"), "a=true", true),
            (json!("2"), "a>0", true),
            (json!(null), "a>=0", true),
            (json!(null), "a<=0", true),
            (json!(null), "a>=null", true),
            (json!(0), "a>=null", true),
            (json!("b"), "a>a", true),
            (json!("B"), "a<a", true),
            (json!("10"), "a>9", true),
            (json!("10"), "a<x", true),
            (json!("2026-01-02"), "a>2026-01-01", true),
            (json!({}), "a=[object Object]", true),
            (json!([1, 2]), "a=1,2", true),
            (json!("x"), "a<5", false),
            (json!("x"), "a>=5", false),
            (json!(0), "a= ", true),
            (json!(">5"), "a=>5", true),
            (json!("=1"), "a===1", true),
            (json!("="), "a==", true),
            (json!("\"x\""), "a=\"x\"", true),
            (json!("x"), "a=x ", false),
            (json!(9_007_199_254_740_993_i64), "a=9007199254740993", true),
            (json!(9_007_199_254_740_993_i64), "a=9007199254740992", false),
            (json!("12345678901234567891"), "a>12345678901234567890", true),
            (json!(f64::MAX), "a<Infinity", true),
        ] {
            assert_eq!(condition_holds(left.clone(), condition), expected, "{left} {condition}");
        }
    }

    #[test]
    fn missing_is_unequal_to_all_and_has_no_order() {
        let items = json!([5, "s", null, {}, {"a": 1}, {"a": null}, {"x": [2]}]);
        assert_eq!(run("where a!=1", items.clone()), json!([5, "s", null, {}, {"a": null}, {"x": [2]}]));
        assert_eq!(run("where a<9", items.clone()), json!([{"a": 1}, {"a": null}]));
        assert_eq!(run("where a=null", items.clone()), json!([5, "s", null, {}, {"a": null}, {"x": [2]}]));
        assert_eq!(run("where x.0=2", items.clone()), json!([{"x": [2]}]));
        assert_eq!(run("where constructor!=null", items), json!([]));
        assert_eq!(run("where '0>=0'", json!([1, 2, 3])), json!([]));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["a=", "a-b=1", "a", "=1", " a=1", "a=x\ny", "a=\n", "é=1", "a!1"] {
            let stage = format!("where '{text}'");
            assert_eq!(failure_message(&stage, json!([])), format!("Invalid where expression: {text}"));
        }
        assert_eq!(failure_message("where name = ada", json!([])), "Invalid where expression: name");
        assert_eq!(failure_message("where", json!([])), "where requires an expression (e.g. field=value)");
    }
}
