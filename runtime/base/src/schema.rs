//! JSON Schema, draft-07, with the answers of Ajv 8 in its non-strict mode:
//! which error comes first and how it is worded is what people see when a
//! response does not fit, and what clients of the incumbent match on.
//!
//! Schemas that others wrote, those of components and of MCP tools, are read
//! by [`Schema::compile_foreign`]: any draft from 06 to 2020-12, and checking
//! one value ends after a bounded number of steps.
//!
//! Types are not coerced, defaults not applied, unknown keywords and all
//! formats ignored. Nothing is ever fetched: a reference leads into the schema
//! itself or is refused.

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

/// How the keywords of a schema are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// As Ajv reads draft-07.
    Ajv,
    /// Any draft; messages name what they are about.
    Foreign,
}

/// Where a value does not fit and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// JSON Pointer (RFC 6901) into the value; empty for the value itself.
    pub pointer: String,
    /// As in `must be string`.
    pub message: String,
}

impl fmt::Display for SchemaError {
    /// `/user/name: must be string`, the whole value being `/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "{pointer}: {}", self.message)
    }
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// Why it is none: it does not fit the draft-07 meta-schema, asks for
    /// another draft, refers to what is not there or only to itself, or holds
    /// a pattern that is not a regular expression.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        compile::compile(schema)
    }

    /// Reads a schema of any draft from 06 to 2020-12, whatever its author's
    /// intent: checking a value takes a bounded number of steps, after which
    /// the value does not fit.
    ///
    /// `$dynamicRef` and `$recursiveRef` lead where `$ref` would; a schema in
    /// which that could be another place is refused.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub fn compile_foreign(schema: &Value) -> Result<Self, String> {
        compile::compile_foreign(schema)
    }

    /// The first thing wrong with `value`, as Ajv reports it; `None` if it fits.
    #[must_use]
    pub fn first_error(&self, value: &Value) -> Option<SchemaError> {
        validate::errors(self, value, false).into_iter().next()
    }

    /// Everything wrong with `value`, in the order of Ajv with `allErrors`.
    #[must_use]
    pub fn all_errors(&self, value: &Value) -> Vec<SchemaError> {
        validate::errors(self, value, true)
    }
}

/// One schema with its keywords, in the groups and the order Ajv checks them
/// in. Other schemas are named by their place in [`Schema::nodes`].
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
    /// As the schema spells them, for messages: `string` or `string,null`.
    text: String,
    /// Whether they are looked at before all else. A single type with keywords
    /// of its own is looked at together with these.
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

/// A regular expression of ECMA-262, translated.
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

/// How many items must fit a schema.
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
    Tuple(Vec<usize>, Rest),
}

/// What may follow the items of a tuple.
#[derive(Debug)]
enum Rest {
    Any,
    Nothing,
    All(usize),
}

/// Which pair of equal items is named: Ajv looks through items of known scalar
/// types in another way.
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
