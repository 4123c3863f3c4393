//! Comparing two lists of items.

use std::collections::HashMap;

use lobster_step::{Any, Output, StepError};
use serde::Serialize;
use serde_json::Value;

use crate::pointer::key_of;

#[derive(Serialize)]
struct Change<'a> {
    change: &'static str,
    key: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'a Value>,
    /// From before to after, RFC 6902.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<json_patch::Patch>,
}

/// Removed items in the order of `before`, then changed and added ones in the order of `after`.
pub(crate) fn diff(
    before: &Value,
    after: &Value,
    key: Option<&str>,
    output: &mut Output<Any>,
) -> Result<(), StepError> {
    let old = index(before, "before", key)?;
    let new = index(after, "after", key)?;
    let known: HashMap<&str, &Keyed<'_>> = old.iter().map(|item| (item.text.as_str(), item)).collect();
    let kept: HashMap<&str, ()> = new.iter().map(|item| (item.text.as_str(), ())).collect();
    for item in old.iter().filter(|item| !kept.contains_key(item.text.as_str())) {
        let change =
            Change { change: "removed", key: item.key, before: Some(item.item), after: None, patch: None };
        output.item(&change)?;
    }
    for item in &new {
        let change = match known.get(item.text.as_str()) {
            Some(old) if canonical(old.item) == canonical(item.item) => continue,
            Some(old) => Change {
                change: "changed",
                key: item.key,
                before: Some(old.item),
                after: Some(item.item),
                patch: Some(json_patch::diff(old.item, item.item)),
            },
            None => {
                Change { change: "added", key: item.key, before: None, after: Some(item.item), patch: None }
            }
        };
        output.item(&change)?;
    }
    Ok(())
}

struct Keyed<'a> {
    /// The key in canonical form, so that it can be looked up.
    text: String,
    key: &'a Value,
    item: &'a Value,
}

fn index<'a>(side: &'a Value, name: &str, key: Option<&str>) -> Result<Vec<Keyed<'a>>, StepError> {
    let Value::Array(items) = side else {
        return Err(StepError::bad_input(format!("mode `items` compares lists, and `{name}` is none")));
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut keyed = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let found = key_of(item, key).ok_or_else(|| {
            StepError::bad_input(format!("item {} of `{name}` has no `{}`", at + 1, key.unwrap_or_default()))
        })?;
        let text = canonical(found);
        if let Some(earlier) = seen.insert(text.clone(), at) {
            // Whole items may repeat: that is no change.
            if key.is_none() {
                continue;
            }
            return Err(StepError::bad_input(format!(
                "items {} and {} of `{name}` have the same key {text}",
                earlier + 1,
                at + 1
            )));
        }
        keyed.push(Keyed { text, key: found, item });
    }
    Ok(keyed)
}

/// The same text for values that are the same: fields in the order of their
/// names, and numbers without regard to how they were written.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<_> =
                fields.iter().map(|(name, field)| format!("{name:?}:{}", canonical(field))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Number(number) => whole(number).map_or_else(|| number.to_string(), |whole| whole.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

/// `1.0` as `1`. Above 2^53 two whole numbers may be one float, so that those stay.
fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float =
        number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT)?;
    Some(float as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_the_same_is_written_the_same() {
        let same = [
            (json!({"a": 1, "b": [2.0]}), json!({"b": [2], "a": 1.0})),
            (json!(-0.0), json!(0)),
            (json!(1e3), json!(1000)),
        ];
        for (one, other) in same {
            assert_eq!(canonical(&one), canonical(&other));
        }
        let different = [
            (json!("1"), json!(1)),
            (json!(1.5), json!(1)),
            (json!([1, 2]), json!([2, 1])),
            (json!(null), json!("null")),
        ];
        for (one, other) in different {
            assert_ne!(canonical(&one), canonical(&other));
        }
        assert_ne!(
            canonical(&json!(9_007_199_254_740_993_u64)),
            canonical(&json!(9_007_199_254_740_992_u64))
        );
    }
}
