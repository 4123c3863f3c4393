//! Compares two JSON values, two lists of items or two texts, and applies patches.
//!
//! The two sides are `before` and `after`. Either may be given as an argument;
//! what is not comes from the input.

mod items;
mod merge;
mod pointer;

use std::io::Write;

use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    mode: Mode,
    /// The older side. Without it, it comes from the input.
    before: Option<Value>,
    /// The newer side. Without it, it comes from the input.
    after: Option<Value>,
    /// `items`: what tells items apart, a field name or a JSON pointer. Without it, the whole item.
    key: Option<String>,
    /// `apply`: a list is a JSON Patch, an object a merge patch.
    patch: Option<Value>,
    /// `text`: unchanged lines around a change.
    #[serde(default = "three")]
    context: usize,
    /// `text`: what the sides are called.
    #[serde(default = "names")]
    names: [String; 2],
}

fn three() -> usize {
    3
}

fn names() -> [String; 2] {
    ["before".to_owned(), "after".to_owned()]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Mode {
    /// The JSON Patch (RFC 6902) from before to after, one item.
    Patch,
    /// The merge patch (RFC 7396) from before to after, one item.
    Merge,
    /// What was added, removed and changed between two lists, an item each.
    Items,
    /// A unified diff of two texts; JSON is compared as indented text.
    Text,
    /// Each input item with the patch applied.
    Apply,
}

pub struct Diff;

impl Step for Diff {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("diff", env!("CARGO_PKG_VERSION"), "Compares JSON, lists or texts; applies patches")
            .fuel(20_000_000_000)
            .memory(256 << 20)
            .example(
                "what is new since last time",
                json!({ "mode": "items", "key": "id", "before": [{ "id": 1 }] }),
                "{\"id\":1}\n{\"id\":2}\n",
                "{\"change\":\"added\",\"key\":2,\"after\":{\"id\":2}}\n",
            )
            .example(
                "a JSON Patch of two items",
                json!({ "mode": "patch" }),
                "{\"a\":1}\n{\"a\":2}\n",
                "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        if args.mode == Mode::Apply {
            return apply(&args, input, output);
        }
        if args.patch.is_some() {
            return Err(StepError::bad_args("`patch` belongs to mode `apply`"));
        }
        let (mode, key, context, names) = (args.mode, args.key.clone(), args.context, args.names.clone());
        let (before, after) = sides(args, input)?;
        match mode {
            Mode::Patch => output.item(&json_patch::diff(&before, &after)),
            Mode::Merge => output.item(&merge::diff(&before, &after)),
            Mode::Items => items::diff(&before, &after, key.as_deref(), output),
            Mode::Text => {
                let (before, after) = (as_text(&before), as_text(&after));
                let diff = TextDiff::from_lines(&before, &after);
                let mut unified = diff.unified_diff();
                unified.context_radius(context).header(&names[0], &names[1]);
                Ok(output.write_all(unified.to_string().as_bytes())?)
            }
            Mode::Apply => Ok(()),
        }
    }
}

/// The two sides, each from its argument or from the input.
fn sides(args: Args, input: &mut Input<Any>) -> Result<(Value, Value), StepError> {
    let of_items = args.mode == Mode::Items;
    match (args.before, args.after) {
        (Some(before), Some(after)) => Ok((before, after)),
        (Some(before), None) => Ok((before, one_side(input, of_items)?)),
        (None, Some(after)) => Ok((one_side(input, of_items)?, after)),
        (None, None) => {
            let mut items = input.items::<Value>();
            let two = (items.next().transpose()?, items.next().transpose()?, items.next().transpose()?);
            let (Some(before), Some(after), None) = two else {
                return Err(StepError::bad_input(
                    "without `before` and `after` the input must be two items, the older first",
                ));
            };
            Ok((before, after))
        }
    }
}

/// The input as one side: the list of all items, or the only item, or the text.
fn one_side(input: &mut Input<Any>, of_items: bool) -> Result<Value, StepError> {
    let mut items: Vec<Value> = input.items().collect::<Result<_, _>>()?;
    if of_items {
        return Ok(Value::Array(items));
    }
    match (items.pop(), items.is_empty()) {
        (Some(item), true) => Ok(item),
        (None, _) => Err(StepError::bad_input("the input is empty; it should be one item or a text")),
        (Some(_), false) => {
            Err(StepError::bad_input(format!("the input has {} items; it should be one", items.len() + 1)))
        }
    }
}

fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => format!("{other:#}\n"),
    }
}

fn apply(args: &Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
    if args.after.is_some() || args.before.is_some() {
        return Err(StepError::bad_args("mode `apply` patches the input; it takes no `before` or `after`"));
    }
    let patch = args.patch.as_ref().ok_or_else(|| StepError::bad_args("mode `apply` needs `patch`"))?;
    let operations: Option<json_patch::Patch> = match patch {
        Value::Array(_) => Some(
            serde_json::from_value(patch.clone())
                .map_err(|error| StepError::bad_args(format!("`patch` is no JSON Patch: {error}")))?,
        ),
        Value::Object(_) => None,
        _ => {
            return Err(StepError::bad_args(
                "`patch` must be a list (JSON Patch) or an object (merge patch)",
            ));
        }
    };
    for (at, item) in input.items::<Value>().enumerate() {
        let mut item = item?;
        match &operations {
            Some(operations) => json_patch::patch(&mut item, operations)
                .map_err(|error| StepError::new("patch-failed", format!("item {}: {error}", at + 1)))?,
            None => json_patch::merge(&mut item, patch),
        }
        output.item(&item)?;
    }
    Ok(())
}

lobster_step::export_step!(Diff);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Diff>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
