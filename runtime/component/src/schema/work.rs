//! Limits on the work that a schema can cause. A description is trusted as little as its program, and
//! neither fuel nor time ends a check by the host. A schema whose definitions each refer to the next
//! one twice doubles the work with each of them, and a chain of a thousand needs a thousand nested
//! calls.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Most subschemas that one part of a value and all parts above it may be checked against.
const MAX_WORK: u64 = 10_000;

/// Longest chain of subschemas from the whole value to its innermost part.
const MAX_DEPTH: u64 = 1_000;

/// Most subschemas in a schema that has references.
const MAX_PARTS: usize = 2_000;

/// Deepest nesting of values, which the parsers enforce: the innermost array holds one more level.
const LEVELS: usize = crate::MAX_NESTING + 1;

/// Assumed cost of a reference to an external schema, which must be one of the known drafts.
const DRAFT: Cost = Cost { work: 1_000, depth: 100 };

/// Returns the reason if checks against `schema` could take too much work.
pub(super) fn reject_expensive(schema: &Value) -> Result<(), String> {
    let mut parts = Parts::default();
    parts.collect_from(schema, true);
    if parts.count as u64 > MAX_WORK || parts.refers && parts.count > MAX_PARTS {
        return Err(format!("it has {} parts, which are too many to check values against", parts.count));
    }
    if !parts.refers {
        return Ok(());
    }
    if parts.renames {
        return Err("it has both references and an inner $id; give the parts names in $defs".to_owned());
    }
    let mut walk = Walk { root: schema, parts: &parts, known: HashMap::new() };
    let cost = walk.subschema_cost(schema, LEVELS, 0);
    if cost.work > MAX_WORK || cost.depth > MAX_DEPTH {
        return Err(
            "its references multiply: checking one value could take longer than is acceptable".to_owned()
        );
    }
    Ok(())
}

/// Parts of a schema at any depth.
#[derive(Default)]
struct Parts<'a> {
    count: usize,
    refers: bool,
    renames: bool,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
}

impl<'a> Parts<'a> {
    fn collect_from(&mut self, value: &'a Value, root: bool) {
        match value {
            Value::Object(map) => {
                self.count += 1;
                self.refers |= REFERENCES.iter().any(|name| map.contains_key(*name));
                self.renames |=
                    !root && ["$id", "id"].iter().any(|id| map.get(*id).is_some_and(Value::is_string));
                for name in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = map.get(name).and_then(Value::as_str) {
                        self.anchors.entry(name).or_default().push(value);
                    }
                }
                map.values().for_each(|part| self.collect_from(part, false));
            }
            Value::Array(list) => {
                self.count += list.iter().filter(|part| part.is_boolean()).count();
                list.iter().for_each(|part| self.collect_from(part, false));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords whose subschemas apply to the same value.
const SAME: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// Keywords whose subschemas apply to parts of the value; several may apply to the same part.
const PARTS: [&str; 9] = [
    "patternProperties",
    "additionalProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
];

#[derive(Clone, Copy)]
struct Cost {
    work: u64,
    depth: u64,
}

const TOO_MUCH: Cost = Cost { work: u64::MAX, depth: u64::MAX };

struct Walk<'a> {
    root: &'a Value,
    parts: &'a Parts<'a>,
    /// By address of the part and the levels that a value may still have below it.
    known: HashMap<(*const Value, usize), Cost>,
}

impl<'a> Walk<'a> {
    /// `chain` is the number of subschemas above.
    fn subschema_cost(&mut self, schema: &'a Value, levels: usize, chain: u64) -> Cost {
        let Value::Object(map) = schema else { return Cost { work: 1, depth: 1 } };
        if chain > MAX_DEPTH {
            return TOO_MUCH;
        }
        let key = (std::ptr::from_ref(schema), levels);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let mut cost = Cost { work: 1, depth: 0 };
        let mut add = |more: Cost| {
            cost = Cost { work: cost.work.saturating_add(more.work), depth: cost.depth.max(more.depth) };
        };
        for part in self.same_value_parts(map) {
            add(match part {
                Part::Here(part) => self.subschema_cost(part, levels, chain + 1),
                Part::Elsewhere => DRAFT,
            });
        }
        if let Some(below) = levels.checked_sub(1) {
            for part in PARTS.iter().filter_map(|name| map.get(*name)).flat_map(subschemas) {
                add(self.subschema_cost(part, below, chain + 1));
            }
            // Each property is one of the costs.
            let named = map.get("properties").and_then(Value::as_object);
            let costs: Vec<_> = named
                .into_iter()
                .flat_map(Map::values)
                .map(|p| self.subschema_cost(p, below, chain + 1))
                .collect();
            let work = costs.iter().map(|cost| cost.work).max().unwrap_or(0);
            add(Cost { work, depth: costs.iter().map(|cost| cost.depth).max().unwrap_or(0) });
        }
        cost.depth = cost.depth.saturating_add(1);
        self.known.insert(key, cost);
        cost
    }

    fn same_value_parts(&self, map: &'a Map<String, Value>) -> Vec<Part<'a>> {
        let mut parts: Vec<_> =
            SAME.iter().filter_map(|name| map.get(*name)).flat_map(subschemas).map(Part::Here).collect();
        for target in REFERENCES.iter().filter_map(|name| map.get(*name)?.as_str()) {
            match target.strip_prefix('#') {
                None => parts.push(Part::Elsewhere),
                Some(place) if place.is_empty() || place.starts_with('/') => {
                    parts.extend(self.root.pointer(&percent_decoded(place)).map(Part::Here));
                }
                Some(name) => {
                    let named = self.parts.anchors.get(name).into_iter().flatten();
                    parts.extend(named.map(|part| Part::Here(part)));
                }
            }
        }
        parts
    }
}

/// Target of a reference.
enum Part<'a> {
    Here(&'a Value),
    Elsewhere,
}

/// The value of a keyword is a schema, a list of schemas or a map of schemas.
fn subschemas(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => std::iter::once(value).chain(map.values()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![value],
    }
}

/// A reference is a part of a URL, where `%25` is a percent sign.
fn percent_decoded(place: &str) -> String {
    percent_decode_str(place).decode_utf8_lossy().into_owned()
}
