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
            Some(old) if old.item == item.item => continue,
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
    /// The key as text, so that it can be looked up.
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
        let text = found.to_string();
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
