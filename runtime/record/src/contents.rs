//! Finds the first difference between two blobs.

use serde_json::{Value, json};

use super::json_path::{self, DifferencePlace};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_store::Store;

/// Largest blob whose content is compared; larger ones are compared only as a whole.
const MAX_COMPARED: u64 = 32 << 20;

/// The content of a blob as a value: its JSON, its JSON Lines as an array, or its text.
pub(super) fn blob_value(store: &Store, digest: &Digest) -> Option<Value> {
    let bytes = store.load_blob(digest, MAX_COMPARED).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    if let Ok(value) = json::parse(text.trim()) {
        return Some(value);
    }
    let lines: Result<Vec<Value>, _> =
        text.lines().filter(|line| !line.trim().is_empty()).map(json::parse).collect();
    Some(match lines {
        Ok(items) if !items.is_empty() => Value::Array(items),
        _ => Value::String(text),
    })
}

/// The first difference between two blobs; `None` if one is missing, is too large or is not text.
pub(super) fn first_difference(store: &Store, was: &Digest, is: &Digest) -> Option<DifferencePlace> {
    let (was, is) = (blob_value(store, was)?, blob_value(store, is)?);
    if let (Value::String(was), Value::String(is)) = (&was, &is) {
        return Some(first_line(was, is));
    }
    json_path::first_difference(&was, &is)
}

fn first_line(was: &str, is: &str) -> DifferencePlace {
    let (mut old, mut new) = (was.lines(), is.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let line = |line: Option<&str>| line.map(|line| json!(line));
                return DifferencePlace { path: format!("line {number}"), was: line(a), is: line(b) };
            }
        }
    }
    DifferencePlace { path: "line ends".to_owned(), was: Some(json!(was.len())), is: Some(json!(is.len())) }
}
