//! Validates items against a JSON Schema (drafts 4 to 2020-12).

use std::collections::BTreeMap;
use std::fmt::Write;

use jsonschema::{Registry, ValidationError, Validator};
use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// The schema. Its `$schema` names the draft; without it, 2020-12.
    schema: Value,
    /// Further schemas that `$ref` may name, by their URI. Nothing is fetched.
    #[serde(default)]
    schemas: BTreeMap<String, Value>,
    #[serde(default)]
    mode: Mode,
    /// Whether `format` is checked, not only noted.
    #[serde(default = "yes")]
    formats: bool,
    /// The most errors that are told of one item.
    #[serde(default = "some")]
    max_errors: usize,
}

fn yes() -> bool {
    true
}

fn some() -> usize {
    10
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Mode {
    /// Valid items go through, the first invalid one is an error.
    #[default]
    Fail,
    /// Valid items go through, invalid ones are dropped and logged.
    Filter,
    /// Invalid items go through, valid ones are dropped.
    Invert,
    /// For each item, whether it is valid and what is wrong.
    Report,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    valid: bool,
    errors: Vec<Problem>,
    item: &'a RawValue,
}

#[derive(Debug, Serialize)]
struct Problem {
    /// JSON pointer into the item.
    path: String,
    /// The schema's keyword that is not met.
    keyword: String,
    message: String,
    /// JSON pointer into the schema.
    schema: String,
}

pub struct Validate;

impl Step for Validate {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("json-schema", env!("CARGO_PKG_VERSION"), "Validates items against a JSON Schema")
            .memory(256 << 20)
            .example(
                "drop what does not fit",
                json!({ "schema": { "required": ["id"] }, "mode": "filter" }),
                "{\"id\":1}\n{}\n",
                "{\"id\":1}\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        let registry = registry(&args.schemas)?;
        let validator = jsonschema::options()
            .should_validate_formats(args.formats)
            .with_registry(&registry)
            .build(&args.schema)
            .map_err(|error| bad_schema(&error))?;
        // An item goes on as it was written: a number may have more digits than this step could hold.
        let items: Box<dyn Iterator<Item = Result<Box<RawValue>, StepError>>> = if input.is_items() {
            Box::new(input.items())
        } else {
            let text = input.text()?;
            let values: Vec<Result<Box<RawValue>, StepError>> = serde_json::Deserializer::from_str(&text)
                .into_iter()
                .map(|value| value.map_err(not_json))
                .collect();
            Box::new(values.into_iter())
        };
        for (at, item) in items.enumerate() {
            let item = item?;
            let value = serde_json::from_str(item.get()).map_err(not_json)?;
            let errors = problems(&validator, &value, args.max_errors);
            let valid = errors.is_empty();
            match args.mode {
                Mode::Report => output.item(&Report { valid, errors, item: &item })?,
                Mode::Fail if !valid => {
                    return Err(StepError::new("invalid", format!("item {}: {}", at + 1, told(&errors))));
                }
                Mode::Filter if !valid => {
                    lobster_step::host::info(&format!("dropped item {}: {}", at + 1, told(&errors)));
                }
                Mode::Invert if valid => {}
                Mode::Fail | Mode::Filter | Mode::Invert => output.item(&item)?,
            }
        }
        Ok(())
    }
}

fn not_json(error: serde_json::Error) -> StepError {
    StepError::bad_input(format!("the input is not JSON: {error}"))
}

fn registry(schemas: &BTreeMap<String, Value>) -> Result<Registry<'_>, StepError> {
    let mut builder = Registry::new();
    for (uri, schema) in schemas {
        builder = builder
            .add(uri.as_str(), schema)
            .map_err(|error| StepError::new("bad-schema", format!("schema {uri}: {error}")))?;
    }
    builder.prepare().map_err(|error| StepError::new("bad-schema", error.to_string()))
}

fn problems(validator: &Validator, item: &Value, limit: usize) -> Vec<Problem> {
    validator
        .iter_errors(item)
        .take(limit.max(1))
        .map(|error| Problem {
            path: error.instance_path().to_string(),
            keyword: error.kind().keyword().to_owned(),
            message: error.to_string(),
            schema: error.schema_path().to_string(),
        })
        .collect()
}

fn told(problems: &[Problem]) -> String {
    let mut text = String::new();
    for problem in problems {
        let place = if problem.path.is_empty() { "the item itself" } else { &problem.path };
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{separator}{place}: {}", problem.message);
    }
    text
}

fn bad_schema(error: &ValidationError<'_>) -> StepError {
    let at = error.instance_path().to_string();
    let place = if at.is_empty() { String::new() } else { format!("at {at}: ") };
    StepError::new("bad-schema", format!("{place}{error}"))
}

lobster_step::export_step!(Validate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Validate>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
