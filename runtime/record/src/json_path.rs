//! Finds differences between two JSON values.

use serde_json::Value;

/// A place where two values differ. `None` means that the place is missing from that value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DifferencePlace {
    /// `$.items[3].id`
    pub(super) path: String,
    pub(super) was: Option<Value>,
    pub(super) is: Option<Value>,
}

impl DifferencePlace {
    /// The path and both values; null if missing.
    pub(super) fn into_parts(self) -> (Option<String>, Value, Value) {
        (Some(self.path), self.was.unwrap_or_default(), self.is.unwrap_or_default())
    }
}

/// The first difference, in the order of the first value.
pub(super) fn first_difference(was: &Value, is: &Value) -> Option<DifferencePlace> {
    let mut found = Vec::new();
    collect_differences("$".to_owned(), was, is, 1, &mut found);
    found.pop()
}

/// At most `limit` differences.
pub(super) fn all_differences(was: &Value, is: &Value, limit: usize) -> Vec<DifferencePlace> {
    let mut found = Vec::new();
    collect_differences("$".to_owned(), was, is, limit, &mut found);
    found
}

fn collect_differences(
    path: String,
    was: &Value,
    is: &Value,
    limit: usize,
    found: &mut Vec<DifferencePlace>,
) {
    if found.len() >= limit || was == is {
        return;
    }
    let before = found.len();
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            for (name, old) in was {
                let path = member_path(&path, name);
                match is.get(name) {
                    Some(new) => collect_differences(path, old, new, limit, found),
                    None => push_place(found, limit, path, Some(old), None),
                }
            }
            for (name, new) in is.iter().filter(|(name, _)| !was.contains_key(*name)) {
                push_place(found, limit, member_path(&path, name), None, Some(new));
            }
        }
        (Value::Array(was), Value::Array(is)) => {
            for index in 0..was.len().max(is.len()) {
                let path = format!("{path}[{index}]");
                match (was.get(index), is.get(index)) {
                    (Some(old), Some(new)) => collect_differences(path, old, new, limit, found),
                    (old, new) => push_place(found, limit, path, old, new),
                }
            }
        }
        _ => {}
    }
    // Values of different kinds, or equal members with differently written numbers or in another order.
    if found.len() == before {
        push_place(found, limit, path, Some(was), Some(is));
    }
}

fn push_place(
    found: &mut Vec<DifferencePlace>,
    limit: usize,
    path: String,
    was: Option<&Value>,
    is: Option<&Value>,
) {
    if found.len() < limit {
        found.push(DifferencePlace { path, was: was.cloned(), is: is.cloned() });
    }
}

/// `$.name`, or `$["odd name"]` if the name is not an identifier.
fn member_path(path: &str, name: &str) -> String {
    let plain = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    if plain { format!("{path}.{name}") } else { format!("{path}[{}]", lobster_base::json::compact(&name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn difference_paths(was: Value, is: Value) -> Vec<String> {
        all_differences(&was, &is, 9).into_iter().map(|place| place.path).collect()
    }

    #[test]
    fn the_smallest_places_are_named() {
        assert_eq!(
            difference_paths(json!({"a": [1, {"b": 2}], "c": 1}), json!({"a": [1, {"b": 3}], "d": 1})),
            ["$.a[1].b", "$.c", "$.d"]
        );
        assert_eq!(difference_paths(json!([1, 2, 3]), json!([1])), ["$[1]", "$[2]"]);
        assert_eq!(
            difference_paths(json!({"odd name": 1, "": 2}), json!({"odd name": 2, "": 3})),
            ["$[\"odd name\"]", "$[\"\"]"]
        );
        assert_eq!(difference_paths(json!(1), json!("1")), ["$"]);
        assert_eq!(difference_paths(json!({"a": 1}), json!({"a": 1})), Vec::<String>::new());
        assert_eq!(
            first_difference(&json!([]), &json!([null])).map(|p| (p.was, p.is)),
            Some((None, Some(Value::Null)))
        );
    }
}
