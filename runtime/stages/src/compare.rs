//! How values compare: text by UTF-16 code unit, numbers exactly, and one
//! canonical text for all values that are equal.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use lobster_base::digest::Digest;
use lobster_base::json::{compact, number_text};

/// Order of text by UTF-16 code unit, as ECMAScript compares strings. It differs
/// from the order of bytes only where U+E000..U+FFFF meets what lies above.
pub(crate) fn text_order(a: &str, b: &str) -> Ordering {
    match a.bytes().zip(b.bytes()).find(|(x, y)| x != y) {
        Some((x, y)) if x >= 0xf0 && matches!(y, 0xee | 0xef) => Ordering::Less,
        Some((x, y)) if y >= 0xf0 && matches!(x, 0xee | 0xef) => Ordering::Greater,
        Some((x, y)) => x.cmp(&y),
        None => a.len().cmp(&b.len()),
    }
}

/// A JSON number that compares without losing digits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Num {
    Int(i64),
    /// Above `i64::MAX`.
    Big(u64),
    Float(f64),
}

impl Num {
    pub(crate) fn of(number: &Number) -> Self {
        match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Self::Int(int),
            (None, Some(big)) => Self::Big(big),
            (None, None) => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    /// The whole number that `text` spells in plain digits, else its `float`.
    pub(crate) fn from_text(text: &str, float: f64) -> Self {
        let text = text.trim();
        match (text.parse(), text.parse()) {
            (Ok(int), _) => Self::Int(int),
            (Err(_), Ok(big)) => Self::Big(big),
            (Err(_), Err(_)) => Self::Float(float),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "rounding keeps the order; equal results are compared exactly"
    )]
    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Big(big) => big as f64,
            Self::Float(float) => float,
        }
    }

    /// `None` only for NaN.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only reached when the float equals a 64-bit integer"
    )]
    pub(crate) fn order(self, other: Self) -> Option<Ordering> {
        let exact = |num: Self| match num {
            Self::Int(int) => i128::from(int),
            Self::Big(big) => i128::from(big),
            Self::Float(float) => float as i128,
        };
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            _ => match self.float().partial_cmp(&other.float())? {
                Ordering::Equal => Some(exact(self).cmp(&exact(other))),
                unequal => Some(unequal),
            },
        }
    }
}

/// What `dedupe` and `groupBy` hold values equal by: key order does not count,
/// `1` and `1.0` are one, `1` and `"1"` two, missing is not null.
pub(crate) fn identity(value: Option<&Value>) -> Digest {
    let mut text = String::with_capacity(64);
    match value {
        Some(value) => write_canonical(value, &mut text),
        None => text.push_str("missing"),
    }
    Digest::of(text.as_bytes())
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&compact(value)),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                write_canonical(item, out);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in fields {
                out.push_str(&compact(key));
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_have_one_identity_and_others_have_not() {
        let same = [json!({"a": 1, "b": [1.0]}), json!({"b": [1], "a": 1.0})];
        assert_eq!(identity(Some(&same[0])), identity(Some(&same[1])));
        let different = [
            json!(1),
            json!("1"),
            json!(null),
            json!("null"),
            json!("missing"),
            json!([]),
            json!({}),
            json!([1]),
            json!([[]]),
            json!({"a": 1}),
            json!([1, 2]),
            json!("[1,2]"),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
        ];
        let mut seen: Vec<_> = different.iter().map(|value| identity(Some(value))).collect();
        seen.push(identity(None));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), different.len() + 1);
    }

    #[test]
    fn numbers_compare_without_losing_digits() {
        let num = |value: Value| Num::of(value.as_number().unwrap());
        for (a, b, order) in [
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64), Ordering::Greater),
            (json!(u64::MAX), json!(i64::MAX), Ordering::Greater),
            (json!(u64::MAX), json!(1.8e19), Ordering::Greater),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992.0), Ordering::Greater),
            (json!(-1), json!(-0.5), Ordering::Less),
            (json!(1), json!(1.0), Ordering::Equal),
        ] {
            assert_eq!(num(a.clone()).order(num(b.clone())), Some(order), "{a} {b}");
        }
    }

    proptest! {
        #[test]
        fn text_order_is_that_of_utf16(a in "[a\u{7f}\u{80}é\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,4}", b in "[a\u{7f}\u{80}é\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,4}") {
            prop_assert_eq!(text_order(&a, &b), a.encode_utf16().cmp(b.encode_utf16()));
        }
    }
}
