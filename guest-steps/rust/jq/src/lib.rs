//! Runs a jq filter over its input, with the jaq interpreter.
//!
//! What the interpreter does otherwise than jq is mended here (`own.jq`, `value`,
//! `natives`, `matching`); what still differs is said in the description of `filter`.
//! `env` is empty and `now` is the argument of that name, so that the same call
//! always gives the same result.

mod matching;
mod natives;
mod program;
mod standard;
mod value;

use jaq_std::input::RcIter;
use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use program::Program;
use value::Json;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// The filter, as jq takes it, with these exceptions. Missing: modules, `$__loc__`,
    /// `?//`, `@base32`, `input_filename`, `input_line_number`,
    /// and look-around and back-references in regular expressions. Otherwise: `reduce`
    /// and `foreach` go on with every result of their update, not the last, and `sub`
    /// likewise; `env` is empty; `now` needs the argument of that name.
    filter: String,
    /// Values for variables: `{"limit": 3}` is `$limit`.
    #[serde(default)]
    vars: Map<String, Value>,
    /// Whether the filter runs once, over the list of all items.
    #[serde(default)]
    slurp: bool,
    /// Whether the filter runs once, over null; `input` and `inputs` give the items.
    #[serde(default)]
    null_input: bool,
    /// How an input of bytes is read.
    #[serde(default)]
    text: Text,
    /// What `now` is, in seconds since 1970. Without it, `now` is an error.
    now: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Text {
    /// JSON values, one after the other.
    #[default]
    Json,
    /// Each line is a text.
    Lines,
    /// All of it is one text.
    Raw,
}

pub struct Jq;

impl Step for Jq {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("jq", env!("CARGO_PKG_VERSION"), "Runs a jq filter over its input")
            .memory(256 << 20)
            .example(
                "pick and rename",
                json!({ "filter": "select(.age > $min) | {who: .name}", "vars": { "min": 30 } }),
                "{\"name\":\"Ada\",\"age\":36}\n{\"name\":\"Bo\",\"age\":7}\n",
                "{\"who\":\"Ada\"}\n",
            )
            .example(
                "sum of all items",
                json!({ "filter": "map(.n) | add", "slurp": true }),
                "{\"n\":1}\n{\"n\":2}\n",
                "3\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        if args.slurp && args.null_input {
            return Err(StepError::bad_args("`slurp` and `null_input` exclude each other"));
        }
        let program = Program::compile(&args.filter, &args.vars, args.now)?;
        let items = read(input, args.text)?;
        if args.null_input {
            return program.run(Json::null(), "", &RcIter::new(items), output);
        }
        if args.slurp {
            let all: Json = items.collect::<Result<_, _>>().map_err(StepError::bad_input)?;
            return program.run(all, "", &RcIter::new(std::iter::empty()), output);
        }
        // Shared: `input` inside the filter takes the next item away from this loop, as in jq.
        let items = RcIter::new(items);
        for (at, item) in (&items).enumerate() {
            let item = item.map_err(StepError::bad_input)?;
            program.run(item, &format!("input item {}: ", at + 1), &items, output)?;
        }
        Ok(())
    }
}

type Items<'a> = Box<dyn Iterator<Item = Result<Json, String>> + 'a>;

fn read(input: &mut Input<Any>, how: Text) -> Result<Items<'_>, StepError> {
    let value = |text: &str| {
        jaq_json::read::parse_single(text.as_bytes()).map(Json).map_err(|error| error.to_string())
    };
    if input.is_items() {
        let items = input.items::<Box<RawValue>>();
        return Ok(Box::new(items.map(move |item| value(item.map_err(|error| error.message)?.get()))));
    }
    let text = input.text()?;
    let values: Vec<Result<Json, String>> = match how {
        Text::Raw if text.is_empty() && input.is_absent() => Vec::new(),
        Text::Raw => vec![Ok(text.into())],
        Text::Lines => text.lines().map(|line| Ok(line.to_owned().into())).collect(),
        Text::Json => json_values(&text),
    };
    Ok(Box::new(values.into_iter()))
}

/// The JSON values of a text, up to the first error: the parser does not get past it.
fn json_values(text: &str) -> Vec<Result<Json, String>> {
    let mut values = Vec::new();
    for value in jaq_json::read::parse_many(text.as_bytes()) {
        let failed = value.is_err();
        values.push(value.map(Json).map_err(|error| not_json(text, &error.to_string())));
        if failed {
            break;
        }
    }
    values
}

/// `byte offset 6: value expected`, with the line and column instead.
fn not_json(text: &str, error: &str) -> String {
    let parts = error.strip_prefix("byte offset ").and_then(|rest| rest.split_once(": "));
    let place = parts.and_then(|(at, what)| Some((text.get(..at.parse::<usize>().ok()?)?, what)));
    let Some((before, what)) = place else { return format!("the input is not JSON: {error}") };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!(
        "the input is not JSON: line {line}, column {column}: {what}; `text` tells how to read other text"
    )
}

lobster_step::export_step!(Jq);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Jq>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
