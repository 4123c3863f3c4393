//! Declared arguments and their given values.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::codes;
use super::super::diagnostic::Diagnostic;
use super::super::plan::{ArgSpec, Workflow};
use super::super::source::{MappingEntry, Node};
use super::Lowering;
use super::fields::nearest_field;
use crate::mistyped::nearest_name;
use lobster_base::json;
use lobster_base::text::{self, Count};
use lobster_base::variable_name;

const SPEC_FIELDS: &[&str] = &["default", "description", "required", "type", "enum"];
const TYPES: &[&str] = &["string", "number", "integer", "boolean", "array", "object"];

/// Arguments that do not match the declarations of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    #[error("argument {name:?} is required{}", description.as_ref().map(|d| format!(" ({d})")).unwrap_or_default())]
    Missing { name: String, description: Option<String> },
    #[error("{file} has no argument `{name}`; {hint}")]
    Undeclared { file: String, name: String, hint: String },
    #[error("argument {name:?} must be of type {wanted}, not {given}")]
    Type { name: String, wanted: String, given: String },
    #[error("argument {name:?} must be one of {choices}, not {given}")]
    Choice { name: String, choices: String, given: String },
}

impl ArgsError {
    /// Code that explains the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        codes::ARGUMENT
    }
}

/// Arguments of a run: the defaults in file order, overlaid by the given values.
///
/// As in the incumbent, a list gives arguments named by index, a text gives one per character, other
/// scalars give none, and unknown names are accepted.
///
/// # Errors
/// A required argument has no value, or a given value has the wrong type or is not one of the choices.
pub fn bind_args(workflow: &Workflow, given: &Value) -> Result<Map<String, Value>, ArgsError> {
    let args = merge_args(workflow, given);
    for spec in &workflow.args {
        if let Some(value) = args.get(&spec.name).filter(|_| argument_names(given).contains(&spec.name)) {
            spec.check_value(value)?;
        }
    }
    // A null is no value: inserted into a path or a command, it would become the word.
    let is_missing = |spec: &&ArgSpec| args.get(&spec.name).is_none_or(Value::is_null);
    match workflow.args.iter().filter(|spec| spec.required).find(is_missing) {
        Some(spec) => Err(spec.missing_error()),
        None => Ok(args),
    }
}

/// Checks arguments against declarations alone, as [`bind_args`] will, before a run whose workflow is
/// read later is accepted.
///
/// # Errors
/// As [`bind_args`].
pub fn check_args(specs: &[ArgSpec], given: &Map<String, Value>) -> Result<(), ArgsError> {
    for spec in specs {
        match given.get(&spec.name) {
            Some(Value::Null) if spec.required => return Err(spec.missing_error()),
            Some(value) => spec.check_value(spec.read_text(value).as_ref().unwrap_or(value))?,
            None if spec.required && spec.default.is_none() => return Err(spec.missing_error()),
            None => {}
        }
    }
    Ok(())
}

/// Checks that each of the names is declared, or is named anywhere in `text`, the source of the
/// workflow. Another name is probably mistyped, and the run would ignore it.
///
/// # Errors
/// The first name that no part of the workflow reads.
pub fn check_declared<'n>(
    workflow: &Workflow,
    text: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<(), ArgsError> {
    let declared: Vec<&str> = workflow.args.iter().map(|spec| spec.name.as_str()).collect();
    let is_named = |name: &str| {
        let variable = variable_name::for_argument(name);
        text.contains(&format!("${{{name}}}"))
            || text.contains("LOBSTER_ARGS_JSON")
            // A name without letters and digits has no variable.
            || (!variable.is_empty() && text.contains(&format!("LOBSTER_ARG_{variable}")))
    };
    match names.into_iter().find(|name| !declared.contains(name) && !is_named(name)) {
        None => Ok(()),
        Some(name) => Err(ArgsError::Undeclared {
            file: workflow.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            name: name.to_owned(),
            hint: match (nearest_name(name, declared.iter().copied()), declared.as_slice()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => "it declares none under `args:`".to_owned(),
                (None, all) => format!("it declares {}", all.join(", ")),
            },
        }),
    }
}

/// The defaults overlaid by the given values, without checks.
#[must_use]
pub fn merge_args(workflow: &Workflow, given: &Value) -> Map<String, Value> {
    let mut args = Map::new();
    for spec in &workflow.args {
        if let Some(default) = &spec.default {
            args.insert(spec.name.clone(), default.clone());
        }
    }
    for (name, value) in object_entries(given) {
        let spec = workflow.args.iter().find(|spec| spec.name == name);
        let read = spec.and_then(|spec| spec.read_text(&value));
        args.insert(name, read.unwrap_or(value));
    }
    args
}

/// Messages about arguments that were given as text and are converted to the value in the text. There
/// is no message where only text can be given, as on a command line: `is_text` is true for the names of
/// such arguments.
#[must_use]
pub fn reread_arguments(workflow: &Workflow, given: &Value, is_text: impl Fn(&str) -> bool) -> Vec<String> {
    let said = |(name, value): (String, Value)| {
        let spec = workflow.args.iter().find(|spec| spec.name == name)?;
        let read = spec.read_text(&value)?;
        let kind = spec.kind.as_deref().unwrap_or_default();
        Some(format!("argument {name:?} is of type {kind} and was given as text; {value} is taken as {read}"))
    };
    object_entries(given).into_iter().filter(|(name, _)| !is_text(name)).filter_map(said).collect()
}

/// Names of the arguments in `given`.
#[must_use]
pub fn argument_names(given: &Value) -> BTreeSet<String> {
    object_entries(given).into_iter().map(|(name, _)| name).collect()
}

/// ECMA-262 `Object.entries`.
fn object_entries(given: &Value) -> Vec<(String, Value)> {
    match given {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, item)| (i.to_string(), item.clone())).collect()
        }
        Value::String(text) => {
            text.chars().enumerate().map(|(i, c)| (i.to_string(), c.to_string().into())).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

impl ArgSpec {
    /// Value of the text, if the argument is a number or a boolean and the text is exactly one: models
    /// pass arguments in this form.
    fn read_text(&self, value: &Value) -> Option<Value> {
        let text = value.as_str()?;
        let wanted = self.kind.as_deref().filter(|kind| ["number", "integer", "boolean"].contains(kind))?;
        if text.trim() != text {
            return None;
        }
        json::parse(text).ok().filter(|read| !read.is_null() && has_type(read, wanted))
    }

    fn missing_error(&self) -> ArgsError {
        ArgsError::Missing { name: self.name.clone(), description: self.description.clone() }
    }

    /// A given null means "no value" and is accepted for every type; a required argument is then
    /// missing.
    pub(super) fn check_value(&self, value: &Value) -> Result<(), ArgsError> {
        if value.is_null() {
            return Ok(());
        }
        if let Some(wanted) = &self.kind
            && !has_type(value, wanted)
        {
            let (name, wanted, given) = (self.name.clone(), wanted.clone(), abridge_value(value));
            return Err(ArgsError::Type { name, wanted, given });
        }
        match &self.choices {
            Some(choices)
                if !choices.iter().any(|choice| json::stable_text(choice) == json::stable_text(value)) =>
            {
                Err(ArgsError::Choice {
                    name: self.name.clone(),
                    choices: choices.iter().map(json::compact).collect::<Vec<_>>().join(", "),
                    given: abridge_value(value),
                })
            }
            _ => Ok(()),
        }
    }
}

fn has_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

/// A value shortened for a message.
fn abridge_value(value: &Value) -> String {
    text::clip(&json::compact(value), 60, Count::Chars).into_owned()
}

impl Lowering<'_> {
    pub(super) fn arg_specs(&mut self, root: &Node) -> Vec<ArgSpec> {
        let Some(node) = root.get_some("args") else { return Vec::new() };
        let Some(entries) = node.as_map() else {
            let message = format!("args is {} instead of a map and declares nothing", node.kind_name());
            self.warn(codes::ARGUMENT_SPEC, node.span, message);
            return Vec::new();
        };
        entries.iter().map(|entry| self.arg_spec(entry)).collect()
    }

    fn arg_spec(&mut self, MappingEntry { key, value, .. }: &MappingEntry) -> ArgSpec {
        let mut spec = ArgSpec { name: key.clone(), ..ArgSpec::default() };
        if value.as_map().is_none() {
            if !value.is_null() {
                let message =
                    format!("the declaration of argument {key:?} is {} instead of a map", value.kind_name());
                let warning = Diagnostic::warning(self.source, codes::ARGUMENT_SPEC, value.span, message);
                let written = self.source.text.get(value.span.start..value.span.end).unwrap_or_default();
                let single_line = !written.contains('\n');
                let warning =
                    warning.with_help(format!("for a default value, write `{key}: {{default: ...}}`"));
                self.warnings.push(if single_line {
                    warning.with_fix(value.span, format!("{{default: {written}}}"))
                } else {
                    warning
                });
            }
            return spec;
        }
        self.unknown_fields(value, SPEC_FIELDS, &format!("the declaration of argument {key:?}"));
        spec.default = value.get("default").map(Node::to_value);
        spec.description = value.get("description").and_then(Node::as_text).map(str::to_owned);
        spec.required = self.lower_required(key, value);
        spec.kind = self.arg_type(key, value);
        spec.choices = self.lower_choices(key, value);
        if let (Some(default), Some(node)) = (&spec.default, value.get("default"))
            && let Err(error) = spec.check_value(default)
        {
            self.warn(codes::ARGUMENT_SPEC, node.span, format!("the default does not fit: {error}"));
        }
        spec
    }

    fn lower_required(&mut self, name: &str, spec: &Node) -> bool {
        let Some(node) = spec.get_some("required") else { return false };
        node.as_bool().unwrap_or_else(|| {
            let message =
                format!("required of argument {name:?} is {} instead of true or false", node.kind_name());
            self.warn(codes::ARGUMENT_SPEC, node.span, message);
            false
        })
    }

    fn arg_type(&mut self, name: &str, spec: &Node) -> Option<String> {
        let node = spec.get_some("type")?;
        let known = node.as_text().filter(|text| TYPES.contains(text));
        if known.is_none() {
            let message = format!("the type of argument {name:?} is not known and is not checked");
            let warning = Diagnostic::warning(self.source, codes::ARGUMENT_SPEC, node.span, message);
            let meant = node.as_text().and_then(|text| match text {
                "bool" => Some("boolean"),
                "int" => Some("integer"),
                "str" | "text" => Some("string"),
                "float" => Some("number"),
                "list" => Some("array"),
                "map" | "dict" | "json" => Some("object"),
                _ => nearest_field(text, TYPES),
            });
            self.warnings.push(match meant {
                Some(meant) => {
                    warning.with_help(format!("did you mean `{meant}`?")).with_fix(node.span, meant)
                }
                None => warning.with_help(format!("types are {}", TYPES.join(", "))),
            });
        }
        known.map(str::to_owned)
    }

    fn lower_choices(&mut self, name: &str, spec: &Node) -> Option<Vec<Value>> {
        let node = spec.get_some("enum")?;
        let choices = node.as_list().filter(|items| !items.is_empty());
        if choices.is_none() {
            let message = format!("enum of argument {name:?} is not a list of values and is not checked");
            self.warn(codes::ARGUMENT_SPEC, node.span, message);
        }
        choices.map(|items| items.iter().map(Node::to_value).collect())
    }
}
