//! Comparison of values: text by UTF-16 code unit, and one canonical text for all values that are equal.

use std::cmp::Ordering;

use serde_json::Value;

use lobster_base::digest::Digest;
use lobster_base::json::compact;
use lobster_base::json::exact::Exact;

/// Order of text by UTF-16 code unit, as ECMAScript compares strings. It differs from the order of bytes
/// only between U+E000..U+FFFF and characters above U+FFFF.
pub(crate) fn text_order(a: &str, b: &str) -> Ordering {
    match a.bytes().zip(b.bytes()).find(|(x, y)| x != y) {
        Some((x, y)) if x >= 0xf0 && matches!(y, 0xee | 0xef) => Ordering::Less,
        Some((x, y)) if y >= 0xf0 && matches!(x, 0xee | 0xef) => Ordering::Greater,
        Some((x, y)) => x.cmp(&y),
        None => a.len().cmp(&b.len()),
    }
}

/// Digest by which `dedupe` and `groupBy` compare values: key order is ignored, `1` and `1.0` are equal,
/// `1` and `"1"` differ, missing and null differ.
pub(crate) fn value_digest(value: Option<&Value>) -> Digest {
    let mut text = String::with_capacity(64);
    match value {
        Some(value) => write_canonical(value, &mut text),
        None => text.push_str("missing"),
    }
    Digest::of_bytes(text.as_bytes())
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&compact(value)),
        Value::Number(number) => out.push_str(&Exact::of_number(number).to_text()),
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
        let same = [
            (json!({"a": 1, "b": [1.0]}), json!({"b": [1], "a": 1.0})),
            (json!(1_u64 << 60), json!(1_152_921_504_606_846_976.0)),
        ];
        for (one, other) in same {
            assert_eq!(value_digest(Some(&one)), value_digest(Some(&other)), "{one}");
        }
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
        let mut seen: Vec<_> = different.iter().map(|value| value_digest(Some(value))).collect();
        seen.push(value_digest(None));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), different.len() + 1);
    }

    proptest! {
        #[test]
        fn text_order_is_that_of_utf16(a in "[a\u{7f}\u{80}é\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,4}", b in "[a\u{7f}\u{80}é\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,4}") {
            prop_assert_eq!(text_order(&a, &b), a.encode_utf16().cmp(b.encode_utf16()));
        }
    }
}
