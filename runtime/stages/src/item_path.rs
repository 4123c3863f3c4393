//! Dot paths into an item: `user.name`, `list.0`, `name.length`.

use std::borrow::Cow;

use serde_json::Value;

/// A path, parsed once and looked up in many items. It cannot name keys that contain a dot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    segments: Vec<Segment>,
    into_text: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Segment {
    name: String,
    index: Option<usize>,
}

impl Path {
    /// Drops empty segments, so `..a` is `a` and `.` the item itself; text has a `length` and characters.
    pub(crate) fn new(text: &str) -> Self {
        Self {
            segments: text.split('.').filter(|name| !name.is_empty()).map(parse_segment).collect(),
            into_text: true,
        }
    }

    /// The path of a `where` expression: empty segments are (missing) fields and text has no parts.
    pub(crate) fn of_field(text: &str) -> Self {
        Self { segments: text.split('.').map(parse_segment).collect(), into_text: false }
    }

    /// The name, if the path names a field of the item itself.
    pub(crate) fn only_name(&self) -> Option<&str> {
        match self.segments.as_slice() {
            [only] => Some(&only.name),
            _ => None,
        }
    }

    /// The value at this path. `None` means missing, which is not null.
    pub(crate) fn get<'v>(&self, item: &'v Value) -> Option<Cow<'v, Value>> {
        let mut at = item;
        let mut segments = self.segments.iter();
        while let Some(segment) = segments.next() {
            at = match at {
                Value::Object(map) => map.get(&segment.name)?,
                Value::Array(items) => match segment.index {
                    Some(index) => items.get(index)?,
                    None if segment.name == "length" => {
                        return final_value(items.len().into(), segments.len());
                    }
                    None => return None,
                },
                Value::String(text) if self.into_text => {
                    return self.in_text(text, segment, segments.as_slice());
                }
                Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => return None,
            };
        }
        Some(Cow::Borrowed(at))
    }

    fn in_text<'v>(&self, text: &str, segment: &Segment, rest: &[Segment]) -> Option<Cow<'v, Value>> {
        let part = match segment.index {
            Some(index) => {
                let unit = text.encode_utf16().nth(index)?;
                Value::String(String::from_utf16_lossy(&[unit]))
            }
            None if segment.name == "length" => {
                return final_value(text.encode_utf16().count().into(), rest.len());
            }
            None => return None,
        };
        let rest = Self { segments: rest.to_vec(), into_text: true };
        rest.get(&part).map(|value| Cow::Owned(value.into_owned()))
    }
}

/// A number has no parts.
fn final_value<'v>(value: Value, segments_left: usize) -> Option<Cow<'v, Value>> {
    (segments_left == 0).then_some(Cow::Owned(value))
}

fn parse_segment(name: &str) -> Segment {
    let canonical = name == "0" || !name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit());
    Segment { name: name.to_owned(), index: canonical.then(|| name.parse().ok()).flatten() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_reach_fields_items_and_lengths() {
        let item = json!({"a": {"b": [1, {"c": null}]}, "s": "h😀", "length": 9, "0": "zero"});
        for (path, value) in [
            ("a.b.0", Some(json!(1))),
            ("a.b.1.c", Some(json!(null))),
            ("a.b.length", Some(json!(2))),
            ("a.b.00", None),
            ("a.b.-1", None),
            ("a.b.length.x", None),
            ("a.b.1.c.d", None),
            ("..a..b.0", Some(json!(1))),
            ("s.length", Some(json!(3))),
            ("s.0", Some(json!("h"))),
            ("s.0.0.length", Some(json!(1))),
            ("s.1", Some(json!("\u{fffd}"))),
            ("s.9", None),
            ("length", Some(json!(9))),
            ("0", Some(json!("zero"))),
            ("constructor", None),
        ] {
            assert_eq!(Path::new(path).get(&item).map(Cow::into_owned), value, "{path}");
        }
        assert_eq!(Path::new(".").get(&item).map(Cow::into_owned), Some(item.clone()));
    }

    #[test]
    fn where_paths_keep_empty_segments_and_stop_at_text() {
        let item = json!({"": {"a": 1}, "s": "text", "l": [5]});
        for (path, value) in [
            (".a", Some(json!(1))),
            ("s.length", None),
            ("l.0", Some(json!(5))),
            ("l.length", Some(json!(1))),
        ] {
            assert_eq!(Path::of_field(path).get(&item).map(Cow::into_owned), value, "{path}");
        }
    }
}
