//! `unevaluatedItems` and `unevaluatedProperties`: the parts of a value that the other keywords of a schema have
//! checked, including the schemas it refers to and its matching branches.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::validate::Check;
use super::{Additional, Items, Node};

impl<'s> Check<'s> {
    /// Checks the parts that no other keyword has checked.
    pub(super) fn check_unevaluated(&mut self, node: &'s Node, value: &Value, branch: bool) -> bool {
        match (value, &node.unevaluated_properties, &node.unevaluated_items) {
            (Value::Object(map), Some(rule), _) => {
                let mut seen = HashSet::new();
                self.evaluated_names(node, map, value, &mut seen);
                let others: Vec<_> = map.iter().filter(|(name, _)| !seen.contains(name.as_str())).collect();
                self.check_each(&others, |check, (name, value)| match rule {
                    Additional::Nothing => {
                        check.fail_with("must NOT have unevaluated properties", || format!("'{name}'"))
                    }
                    Additional::All(schema) => check.check_part(name, *schema, value, branch),
                })
            }
            (Value::Array(items), _, Some(rule)) => {
                let mut seen = vec![false; items.len()];
                self.evaluated_items(node, items, value, &mut seen);
                let others: Vec<_> = items.iter().enumerate().filter(|(at, _)| !seen[*at]).collect();
                self.check_each(&others, |check, (at, item)| match rule {
                    Additional::Nothing => {
                        check.fail_with("must NOT have unevaluated items", || format!("item {at}"))
                    }
                    Additional::All(schema) => check.check_part(at, *schema, item, branch),
                })
            }
            _ => true,
        }
    }

    fn evaluated_names<'v>(
        &self,
        node: &'s Node,
        map: &'v Map<String, Value>,
        value: &Value,
        seen: &mut HashSet<&'v str>,
    ) {
        if let Some(rules) = &node.object {
            let named = |name: &str| {
                rules.additional.is_some()
                    || rules.properties.iter().any(|(property, _)| property == name)
                    || rules.patterns.iter().any(|(pattern, _)| pattern.matches_text(name))
            };
            seen.extend(map.keys().map(String::as_str).filter(|name| named(name)));
        }
        for schema in self.matching_subschemas(node, value) {
            self.evaluated_names(schema, map, value, seen);
            if schema.unevaluated_properties.is_some() {
                seen.extend(map.keys().map(String::as_str));
            }
        }
    }

    fn evaluated_items(&self, node: &'s Node, items: &[Value], value: &Value, seen: &mut [bool]) {
        if let Some(rules) = &node.array {
            let first = match &rules.items {
                Items::Any => 0,
                Items::All(_) | Items::Tuple(_, Some(_)) => items.len(),
                Items::Tuple(schemas, None) => schemas.len().min(items.len()),
            };
            seen[..first].fill(true);
            if let Some(contains) = &rules.contains {
                for (seen, item) in seen.iter_mut().zip(items) {
                    *seen |= self.matches_silently(contains.schema, item);
                }
            }
        }
        for schema in self.matching_subschemas(node, value) {
            self.evaluated_items(schema, items, value, seen);
            if schema.unevaluated_items.is_some() {
                seen.fill(true);
            }
        }
    }

    /// The schemas that `node` applies to the same value, and that match it.
    fn matching_subschemas(&self, node: &'s Node, value: &Value) -> Vec<&'s Node> {
        let mut applied: Vec<usize> = node.reference.into_iter().chain(node.all_of.iter().copied()).collect();
        applied.extend([&node.any_of, &node.one_of].into_iter().flatten().flatten());
        if let Some(condition) = &node.condition {
            applied.push(condition.test);
            let fits = self.matches_silently(condition.test, value);
            applied.extend(if fits { condition.then } else { condition.otherwise });
        }
        let dependent = node.object.iter().flat_map(|rules| &rules.schema_with);
        applied.extend(dependent.filter(|(name, _)| value.get(name).is_some()).map(|(_, schema)| *schema));
        applied.retain(|schema| self.matches_silently(*schema, value));
        applied.into_iter().filter_map(|schema| self.schema.nodes.get(schema)).collect()
    }
}
