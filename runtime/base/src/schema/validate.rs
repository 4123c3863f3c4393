//! Checks values against [`Node`]s, keyword by keyword in the order of Ajv.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use super::{
    Additional, ArrayRules, Contains, Dialect, Items, Node, NumberRules, ObjectRules, Pattern, Schema,
    SchemaError, StringRules, Type, Types, Unique,
};
use crate::json::exact::Exact;
use crate::json::{float_text, stable_text};

/// Most schemas against which one value and its parts are checked, including repetitions: about a second's work. With
/// references, a short schema could otherwise take arbitrarily long.
const FOREIGN_STEPS: u64 = 10_000_000;

pub(super) fn find_errors(schema: &Schema, value: &Value, all: bool) -> Vec<SchemaError> {
    let steps = match schema.dialect {
        Dialect::Ajv => u64::MAX,
        Dialect::Foreign => FOREIGN_STEPS,
    };
    errors_within(schema, value, all, steps)
}

pub(super) fn errors_within(schema: &Schema, value: &Value, all: bool, steps: u64) -> Vec<SchemaError> {
    let left = Cell::new(steps);
    let mut check = Check { schema, all, left: &left, path: String::new(), errors: Vec::new() };
    check.check_node(schema.root, value, false);
    if left.get() == 0 {
        // Errors found after that are meaningless: a `not` may have taken the end of the steps for a mismatch.
        let message = format!("checking it takes more than {steps} steps");
        return vec![SchemaError { pointer: String::new(), message }];
    }
    check.errors
}

pub(super) struct Check<'s> {
    pub(super) schema: &'s Schema,
    /// Number of schemas that may still be checked.
    left: &'s Cell<u64>,
    /// Continue after an error.
    all: bool,
    /// JSON Pointer of the current value.
    path: String,
    errors: Vec<SchemaError>,
}

/// Runs checks in order and stops after the first failure, unless all errors are wanted.
macro_rules! in_order {
    ($self:ident, $($check:expr),+ $(,)?) => {{
        let mut fits = true;
        $(if fits || $self.all { fits &= $check; })+
        fits
    }};
}

impl<'s> Check<'s> {
    /// True if `value` matches. `branch`: errors found here may be irrelevant, so the errors of parts are kept
    /// separate from those of the whole.
    fn check_node(&mut self, index: usize, value: &Value, branch: bool) -> bool {
        let schema = self.schema;
        let Some(node) = schema.nodes.get(index) else { return true };
        if self.left.get() == 0 {
            return false;
        }
        self.left.set(self.left.get() - 1);
        if node.never {
            return self.add_error("boolean schema is false");
        }
        let fits_type = |types: &&'s Types| !types.allowed.iter().any(|t| t.matches_value(value));
        let wrong_type = node.types.as_ref().filter(fits_type);
        if let Some(types) = wrong_type.filter(|types| types.first) {
            self.add_error(format!("must be {}", types.text));
            if !self.all {
                return false;
            }
        }
        let type_fits = wrong_type.is_none();
        let late = wrong_type.filter(|types| !types.first);
        let rest = in_order!(
            self,
            self.check_general(node, value, branch),
            self.check_typed(node, value, late, branch),
            self.check_unevaluated(node, value, branch),
        );
        rest && type_fits
    }

    /// Checks the keywords for all types.
    fn check_general(&mut self, node: &'s Node, value: &Value, branch: bool) -> bool {
        in_order!(
            self,
            node.reference.is_none_or(|schema| self.check_node(schema, value, branch)),
            node.constant.as_ref().is_none_or(|constant| {
                json_equal(constant, value) || self.add_error("must be equal to constant")
            }),
            node.choices.as_ref().is_none_or(|choices| {
                choices.iter().any(|choice| json_equal(choice, value))
                    || self.fail_with("must be equal to one of the allowed values", || {
                        choices.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
                    })
            }),
            node.not.is_none_or(
                |schema| !self.matches_silently(schema, value) || self.add_error("must NOT be valid")
            ),
            node.any_of.as_ref().is_none_or(|schemas| self.any_of(schemas, value)),
            node.one_of.as_ref().is_none_or(|schemas| self.one_of(schemas, value)),
            self.check_each(&node.all_of, |check, schema| check.check_node(*schema, value, branch)),
            node.condition.as_ref().is_none_or(|condition| {
                let (clause, name) = match self.matches_silently(condition.test, value) {
                    true => (condition.then, "then"),
                    false => (condition.otherwise, "else"),
                };
                clause.is_none_or(|schema| {
                    self.check_node(schema, value, branch)
                        || self.add_error(format!("must match \"{name}\" schema"))
                })
            }),
        )
    }

    /// Checks the keywords of each type in order, each group together with the mismatch of its type: number, string,
    /// array, object.
    fn check_typed(
        &mut self,
        node: &'s Node,
        value: &Value,
        wrong_type: Option<&Types>,
        branch: bool,
    ) -> bool {
        let rank = |t: Type| match t {
            Type::Null | Type::Boolean | Type::Integer | Type::Number => 0,
            Type::String => 1,
            Type::Array => 2,
            Type::Object => 3,
        };
        let of_value = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Array(_) => 2,
            Value::Object(_) => 3,
        };
        let first = wrong_type.filter(|types| types.allowed.iter().any(|t| rank(*t) < of_value));
        let last = wrong_type.filter(|_| first.is_none());
        in_order!(
            self,
            first.is_none_or(|types| self.add_error(format!("must be {}", types.text))),
            self.check_own_type(node, value, branch),
            last.is_none_or(|types| self.add_error(format!("must be {}", types.text))),
        )
    }

    /// Checks the keywords of the value's own type.
    fn check_own_type(&mut self, node: &'s Node, value: &Value, branch: bool) -> bool {
        match value {
            Value::Number(number) => {
                node.number.as_ref().is_none_or(|rules| self.check_number(rules, number))
            }
            Value::String(text) => node.string.as_ref().is_none_or(|rules| self.check_string(rules, text)),
            Value::Array(items) => {
                node.array.as_ref().is_none_or(|rules| self.check_array(rules, items, branch))
            }
            Value::Object(map) => {
                node.object.as_ref().is_none_or(|rules| self.check_object(rules, map, value, branch))
            }
            Value::Null | Value::Bool(_) => true,
        }
    }

    fn any_of(&mut self, schemas: &[usize], value: &Value) -> bool {
        let before = self.errors.len();
        let mut fits = false;
        for schema in schemas {
            fits |= self.check_node(*schema, value, true);
            if fits {
                self.errors.truncate(before);
                return true;
            }
        }
        self.add_error("must match a schema in anyOf")
    }

    fn one_of(&mut self, schemas: &[usize], value: &Value) -> bool {
        let before = self.errors.len();
        let mut fitting = 0;
        for schema in schemas {
            fitting += usize::from(self.check_node(*schema, value, true));
            if fitting > 1 {
                break;
            }
        }
        if fitting == 1 {
            self.errors.truncate(before);
            return true;
        }
        self.add_error("must match exactly one schema in oneOf")
    }

    fn check_number(&mut self, rules: &NumberRules, number: &Number) -> bool {
        let exact = Exact::of_number(number);
        let fits = |limit: Option<Exact>, holds: fn(Ordering) -> bool| {
            limit.is_none_or(|limit| exact.compare_to(limit).is_some_and(holds))
        };
        let limits = [
            (rules.maximum, "<=", fits(rules.maximum, Ordering::is_le)),
            (rules.minimum, ">=", fits(rules.minimum, Ordering::is_ge)),
            (rules.exclusive_maximum, "<", fits(rules.exclusive_maximum, Ordering::is_lt)),
            (rules.exclusive_minimum, ">", fits(rules.exclusive_minimum, Ordering::is_gt)),
        ];
        let number = number.as_f64().unwrap_or(f64::NAN);
        let multiple = |of: f64| of != 0.0 && (number / of).fract() == 0.0;
        in_order!(
            self,
            self.check_each(&limits, |check, (limit, sign, fits)| {
                *fits
                    || check.add_error(format!(
                        "must be {sign} {}",
                        limit.map(Exact::to_text).unwrap_or_default()
                    ))
            }),
            rules.multiple_of.is_none_or(|of| {
                multiple(of) || self.add_error(format!("must be multiple of {}", float_text(of)))
            }),
        )
    }

    fn check_string(&mut self, rules: &StringRules, text: &str) -> bool {
        let counted = rules.max_length.is_some() || rules.min_length.is_some();
        let length = if counted { text.chars().count() } else { 0 };
        in_order!(
            self,
            self.at_most(rules.max_length, length, "characters"),
            self.at_least(rules.min_length, length, "characters"),
            rules.pattern.as_ref().is_none_or(|pattern| {
                pattern.matches_text(text)
                    || self.add_error(format!("must match pattern \"{}\"", pattern.source))
            }),
        )
    }

    fn check_array(&mut self, rules: &'s ArrayRules, items: &[Value], branch: bool) -> bool {
        in_order!(
            self,
            self.at_most(rules.max_items, items.len(), "items"),
            self.at_least(rules.min_items, items.len(), "items"),
            self.check_items(&rules.items, items, branch),
            rules.contains.as_ref().is_none_or(|contains| self.check_contains(contains, items, branch)),
            rules.unique.as_ref().is_none_or(|unique| match find_duplicates(unique, items) {
                None => true,
                Some((a, b)) => {
                    self.add_error(format!(
                        "must NOT have duplicate items (items ## {a} and {b} are identical)"
                    ))
                }
            }),
        )
    }

    fn check_items(&mut self, rules: &Items, items: &[Value], branch: bool) -> bool {
        let indexed: Vec<_> = items.iter().enumerate().collect();
        match rules {
            Items::Any => true,
            Items::All(schema) => {
                self.check_each(&indexed, |check, (at, item)| check.check_part(at, *schema, item, branch))
            }
            Items::Tuple(schemas, rest) => {
                let (tuple, after) = indexed.split_at(indexed.len().min(schemas.len()));
                let pairs: Vec<_> = tuple.iter().zip(schemas).collect();
                in_order!(
                    self,
                    match rest {
                        Some(Additional::Nothing) if !after.is_empty() => {
                            self.add_error(format!("must NOT have more than {} items", schemas.len()))
                        }
                        None | Some(Additional::Nothing) => true,
                        Some(Additional::All(schema)) => {
                            self.check_each(after, |check, (at, item)| {
                                check.check_part(at, *schema, item, branch)
                            })
                        }
                    },
                    self.check_each(&pairs, |check, ((at, item), schema)| check
                        .check_part(at, **schema, item, branch)),
                )
            }
        }
    }

    fn check_contains(&mut self, rule: &Contains, items: &[Value], branch: bool) -> bool {
        let before = self.errors.len();
        let most = rule.most.unwrap_or(f64::INFINITY);
        let mut fitting = 0;
        for (at, item) in items.iter().enumerate() {
            fitting += usize::from(self.check_part(&at, rule.schema, item, true));
            if rule.most.is_none() && as_float(fitting) >= rule.least {
                break;
            }
        }
        if (rule.least..=most).contains(&as_float(fitting)) {
            self.errors.truncate(before);
            return true;
        }
        if !branch && !self.all {
            self.errors.truncate(before);
        }
        let least = float_text(rule.least);
        self.add_error(match rule.most {
            None => format!("must contain at least {least} valid item(s)"),
            Some(most) => {
                format!("must contain at least {least} and no more than {} valid item(s)", float_text(most))
            }
        })
    }

    fn check_object(
        &mut self,
        rules: &'s ObjectRules,
        map: &Map<String, Value>,
        value: &Value,
        branch: bool,
    ) -> bool {
        in_order!(
            self,
            self.at_most(rules.max_properties, map.len(), "properties"),
            self.at_least(rules.min_properties, map.len(), "properties"),
            self.check_each(&rules.required, |check, name| {
                map.contains_key(name) || check.add_error(format!("must have required property '{name}'"))
            }),
            rules.names.is_none_or(|schema| self.check_names(schema, map)),
            rules
                .additional
                .as_ref()
                .is_none_or(|additional| self.check_additional(additional, rules, map, branch)),
            self.check_each(&rules.needed_with, |check, (name, needed)| check
                .check_needed(map, name, needed)),
            self.check_each(&rules.schema_with, |check, (name, schema)| {
                !map.contains_key(name) || check.check_node(*schema, value, branch)
            }),
            self.check_each(&rules.properties, |check, (name, schema)| {
                map.get(name).is_none_or(|value| check.check_part(name, *schema, value, branch))
            }),
            self.check_each(&rules.patterns, |check, (pattern, schema)| {
                let fields: Vec<_> = map.iter().filter(|(name, _)| pattern.matches_text(name)).collect();
                check.check_each(&fields, |check, (name, value)| {
                    check.check_part(name, *schema, value, branch)
                })
            }),
        )
    }

    fn check_names(&mut self, schema: usize, map: &Map<String, Value>) -> bool {
        let names: Vec<_> = map.keys().collect();
        self.check_each(&names, |check, name| {
            check.check_node(schema, &Value::String((*name).clone()), true)
                || check.add_error("property name must be valid")
        })
    }

    fn check_additional(
        &mut self,
        additional: &Additional,
        rules: &ObjectRules,
        map: &Map<String, Value>,
        branch: bool,
    ) -> bool {
        let known = |name: &String| {
            rules.properties.iter().any(|(property, _)| property == name)
                || rules.patterns.iter().any(|(pattern, _)| pattern.matches_text(name))
        };
        let others: Vec<_> = map.iter().filter(|(name, _)| !known(name)).collect();
        self.check_each(&others, |check, (name, value)| match additional {
            Additional::Nothing => {
                check.fail_with("must NOT have additional properties", || format!("'{name}'"))
            }
            Additional::All(schema) => check.check_part(name, *schema, value, branch),
        })
    }

    fn check_needed(&mut self, map: &Map<String, Value>, name: &str, needed: &[String]) -> bool {
        if !map.contains_key(name) {
            return true;
        }
        let what = if needed.len() == 1 { "property" } else { "properties" };
        let list = needed.join(", ");
        self.check_each(needed, |check, other| {
            map.contains_key(other)
                || check.add_error(format!("must have {what} {list} when property {name} is present"))
        })
    }

    fn at_most(&mut self, limit: Option<f64>, count: usize, what: &str) -> bool {
        limit.is_none_or(|limit| {
            as_float(count) <= limit
                || self.add_error(format!("must NOT have more than {} {what}", float_text(limit)))
        })
    }

    fn at_least(&mut self, limit: Option<f64>, count: usize, what: &str) -> bool {
        limit.is_none_or(|limit| {
            as_float(count) >= limit
                || self.add_error(format!("must NOT have fewer than {} {what}", float_text(limit)))
        })
    }

    /// Goes through `list` until a check fails, or through all of it if all errors are wanted.
    pub(super) fn check_each<T>(&mut self, list: &[T], mut check: impl FnMut(&mut Self, &T) -> bool) -> bool {
        let mut fits = true;
        for item in list {
            fits &= check(self, item);
            if !fits && !self.all {
                break;
            }
        }
        fits
    }

    /// Checks a part of the current value, given by its key or index.
    pub(super) fn check_part(
        &mut self,
        name: &impl ToString,
        schema: usize,
        value: &Value,
        branch: bool,
    ) -> bool {
        let outer = self.path.len();
        self.path.push('/');
        self.path.push_str(&name.to_string().replace('~', "~0").replace('/', "~1"));
        let fits = self.check_node(schema, value, branch);
        self.path.truncate(outer);
        fits
    }

    /// True if `value` matches; no errors are kept.
    pub(super) fn matches_silently(&self, schema: usize, value: &Value) -> bool {
        let (path, errors) = (String::new(), Vec::new());
        let mut check = Check { schema: self.schema, all: false, left: self.left, path, errors };
        check.check_node(schema, value, true)
    }

    /// Fails with Ajv's message, which lacks details; for foreign schemas they are added in brackets.
    pub(super) fn fail_with(&mut self, message: &str, detail: impl FnOnce() -> String) -> bool {
        self.add_error(match self.schema.dialect {
            Dialect::Ajv => message.to_owned(),
            Dialect::Foreign => format!("{message} ({})", detail()),
        })
    }

    fn add_error(&mut self, message: impl Into<String>) -> bool {
        self.errors.push(SchemaError { pointer: self.path.clone(), message: message.into() });
        false
    }
}

impl Type {
    fn matches_value(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null)
            | (Self::Boolean, Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::String, Value::String(_))
            | (Self::Array, Value::Array(_))
            | (Self::Object, Value::Object(_)) => true,
            (Self::Integer, Value::Number(number)) => {
                number.as_f64().is_some_and(|float| float.fract() == 0.0)
            }
            _ => false,
        }
    }
}

impl Pattern {
    /// A text that would take too many steps does not match.
    pub(super) fn matches_text(&self, text: &str) -> bool {
        self.regex.is_match(text).unwrap_or(false)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no value has 2^53 parts")]
fn as_float(count: usize) -> f64 {
    count as f64
}

/// True if two values are equal as JSON: the order of keys is ignored, and `1` equals `1.0`.
fn json_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Exact::of_number(a).is_equal(Exact::of_number(b)),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| json_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| json_equal(a, b)))
        }
        _ => a == b,
    }
}

/// The pair of equal items that Ajv finds first, in its order.
fn find_duplicates(unique: &Unique, items: &[Value]) -> Option<(usize, usize)> {
    let counts = |item: &Value| match unique {
        Unique::AnyType => true,
        Unique::Scalars(types) => types.iter().any(|t| t.matches_value(item)),
    };
    let mut last = HashMap::new();
    let mut pairs = Vec::new();
    for (at, item) in items.iter().enumerate().filter(|(_, item)| counts(item)) {
        if let Some(before) = last.insert(stable_text(item), at) {
            pairs.push((before, at));
        }
    }
    match unique {
        Unique::AnyType => pairs.last().copied(),
        Unique::Scalars(_) => pairs.into_iter().max().map(|(before, at)| (at, before)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Schema;

    /// Recorded from Ajv 8.20 with `strict: false`: the first error without `allErrors`, and all errors with it.
    const RECORDED: &str = include_str!("ajv.json");

    #[test]
    fn errors_are_those_of_ajv() {
        let cases: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
        assert!(cases.len() > 200);
        let mut wrong = Vec::new();
        for case in &cases {
            let schema = Schema::compile(&case["schema"])
                .unwrap_or_else(|error| panic!("{}: {error}", case["schema"]));
            let first = schema.first_error(&case["value"]).map(|error| error.to_string());
            let all: Vec<_> = schema.all_errors(&case["value"]).iter().map(ToString::to_string).collect();
            if json!(first) != case["first"] || json!(all) != case["all"] {
                wrong.push(format!("{case}\n  we: {first:?} {all:?}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {}:\n{}",
            wrong.len(),
            cases.len(),
            wrong[..wrong.len().min(12)].join("\n")
        );
    }
}
