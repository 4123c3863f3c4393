//! Merge patches (RFC 7396).

use serde_json::{Map, Value};

/// The merge patch that turns `before` into `after`. Null in an object of
/// `after` cannot be expressed: the standard uses it for removal.
pub(crate) fn diff(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, new) in after {
        match before.get(name) {
            Some(old) if old == new => {}
            Some(old) => drop(patch.insert(name.clone(), diff(old, new))),
            None => drop(patch.insert(name.clone(), new.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_leads_from_before_to_after() {
        let cases = [
            (json!({"a": 1, "b": {"c": 2, "d": 3}}), json!({"b": {"c": 2, "d": 4}, "e": []})),
            (json!({"a": [1]}), json!({"a": [1, 2]})),
            (json!({"a": 1}), json!([1])),
            (json!({"a": {"b": 1}}), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": {"b": 1}})),
            (json!({}), json!({})),
        ];
        for (before, after) in cases {
            let mut patched = before.clone();
            json_patch::merge(&mut patched, &diff(&before, &after));
            assert_eq!(patched, after, "from {before}");
        }
    }
}
