//! JSON Schema, draft-07, with the results of Ajv 8 in its non-strict mode: people see its first error and its wording
//! when a response does not match, and clients of the incumbent compare them.
//!
//! Schemas of components and MCP tools are read by [`Schema::compile_foreign`]: it accepts any draft from 06 to
//! 2020-12, and checking one value ends after a limited number of steps.
//!
//! Types are not coerced, defaults not applied, unknown keywords and all formats ignored. Nothing is ever fetched: a
//! reference must lead into the schema itself.

mod compile;
mod evaluated;
#[cfg(test)]
mod suite;
mod validate;

use std::fmt;

use serde_json::Value;

use crate::json::exact::Exact;

/// A schema that is ready to check values.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: usize,
    dialect: Dialect,
}

/// Interpretation of a schema's keywords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// As Ajv reads draft-07.
    Ajv,
    /// Any draft; messages contain details.
    Foreign,
}

/// Position and reason of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// JSON Pointer (RFC 6901) into the value; empty for the value itself.
    pub pointer: String,
    /// For example `must be string`.
    pub message: String,
}

impl fmt::Display for SchemaError {
    /// `/user/name: must be string`; the pointer of the whole value is `/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "{pointer}: {}", self.message)
    }
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// The reason why it is invalid: it does not match the draft-07 meta-schema, requires another draft, refers to a
    /// missing schema or only to itself, or contains a pattern that is not a regular expression.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        compile::compile_ajv(schema)
    }

    /// Reads a schema of any draft from 06 to 2020-12, from any author: checking a value takes a limited number of
    /// steps, after which the value does not match.
    ///
    /// `$dynamicRef` and `$recursiveRef` are treated as `$ref`; a schema in which they could lead to another place is
    /// rejected.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub fn compile_foreign(schema: &Value) -> Result<Self, String> {
        compile::compile_foreign(schema)
    }

    /// The first error in `value`, as Ajv reports it; `None` if it matches.
    #[must_use]
    pub fn first_error(&self, value: &Value) -> Option<SchemaError> {
        validate::find_errors(self, value, false).into_iter().next()
    }

    /// All errors in `value`, in the order of Ajv with `allErrors`.
    #[must_use]
    pub fn all_errors(&self, value: &Value) -> Vec<SchemaError> {
        validate::find_errors(self, value, true)
    }
}

/// One schema with its keywords, in the groups and the order in which Ajv checks them. Other schemas are given by
/// their index in [`Schema::nodes`].
#[derive(Debug, Default)]
struct Node {
    /// The schema `false`.
    never: bool,
    types: Option<Types>,
    reference: Option<usize>,
    constant: Option<Value>,
    choices: Option<Vec<Value>>,
    not: Option<usize>,
    any_of: Option<Vec<usize>>,
    one_of: Option<Vec<usize>>,
    all_of: Vec<usize>,
    condition: Option<Condition>,
    number: Option<NumberRules>,
    string: Option<StringRules>,
    array: Option<ArrayRules>,
    object: Option<ObjectRules>,
    unevaluated_items: Option<Additional>,
    unevaluated_properties: Option<Additional>,
}

#[derive(Debug)]
struct Types {
    allowed: Vec<Type>,
    /// In the schema's own spelling, for messages: `string` or `string,null`.
    text: String,
    /// True if the types are checked before everything else. A single type with its own keywords is checked together
    /// with these.
    first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

#[derive(Debug)]
struct Condition {
    test: usize,
    then: Option<usize>,
    otherwise: Option<usize>,
}

#[derive(Debug, Default)]
struct NumberRules {
    maximum: Option<Exact>,
    minimum: Option<Exact>,
    exclusive_maximum: Option<Exact>,
    exclusive_minimum: Option<Exact>,
    multiple_of: Option<f64>,
}

#[derive(Debug, Default)]
struct StringRules {
    max_length: Option<f64>,
    min_length: Option<f64>,
    pattern: Option<Pattern>,
}

/// An ECMA-262 regular expression, translated.
#[derive(Debug)]
struct Pattern {
    source: String,
    regex: fancy_regex::Regex,
}

#[derive(Debug, Default)]
struct ArrayRules {
    max_items: Option<f64>,
    min_items: Option<f64>,
    items: Items,
    contains: Option<Contains>,
    unique: Option<Unique>,
}

/// Number of items that must match a schema.
#[derive(Debug)]
struct Contains {
    schema: usize,
    least: f64,
    most: Option<f64>,
}

#[derive(Debug, Default)]
enum Items {
    #[default]
    Any,
    All(usize),
    /// Schemas of the first items, and the rule for those after them.
    Tuple(Vec<usize>, Option<Additional>),
}

/// The pair of equal items that is reported: Ajv searches items of known scalar types in another way.
#[derive(Debug)]
enum Unique {
    AnyType,
    Scalars(Vec<Type>),
}

#[derive(Debug, Default)]
struct ObjectRules {
    max_properties: Option<f64>,
    min_properties: Option<f64>,
    required: Vec<String>,
    names: Option<usize>,
    additional: Option<Additional>,
    needed_with: Vec<(String, Vec<String>)>,
    schema_with: Vec<(String, usize)>,
    properties: Vec<(String, usize)>,
    patterns: Vec<(Pattern, usize)>,
}

#[derive(Debug)]
enum Additional {
    Nothing,
    All(usize),
}
