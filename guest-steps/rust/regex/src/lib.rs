//! Finds, extracts, replaces and redacts by regular expressions.
//!
//! The expressions are those of Rust's `regex`: no look-around and no
//! back-references, and in return time linear in the text, whatever the pattern.

mod redact;
mod rules;
mod secret;
mod target;

use std::io::Write;

use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use regex::{Captures, Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use redact::Redactor;
pub use rules::Kind;
use target::Target;

/// Bytes a compiled pattern may take; `a{1000}{1000}` is refused instead of filling the memory.
const PATTERN_SIZE: usize = 8 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    mode: Mode,
    /// The expression; all modes but `redact` need it.
    pattern: Option<String>,
    /// Letters: `i` ignore case, `m` ^ and $ at lines, `s` dot matches line breaks, `x` white space is ignored.
    #[serde(default)]
    flags: String,
    /// `replace`: what a match becomes; `$1` and `${name}` are groups, `$$` is a dollar sign.
    replacement: Option<String>,
    /// Items: only this field, a name or a JSON pointer. Without it, a text item
    /// itself, or all texts inside an object or list.
    field: Option<String>,
    /// `filter`: keep what does not match.
    #[serde(default)]
    invert: bool,
    /// `extract`: the most matches of one item; `replace`: of one text. 0 is all.
    #[serde(default)]
    limit: usize,
    /// `redact`: which kinds; all without it.
    kinds: Option<Vec<Kind>>,
    /// `redact`: kinds of your own, name to expression.
    #[serde(default)]
    custom: Map<String, Value>,
    /// `redact`: number what is redacted, the same text always the same number: `[email-1]`.
    #[serde(default)]
    numbered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Mode {
    /// Keeps the items (or lines) that match.
    Filter,
    /// Gives each match with its groups.
    Extract,
    /// Replaces matches.
    Replace,
    /// Replaces secrets and personal data by `[kind]`.
    Redact,
}

/// One match.
#[derive(Serialize)]
struct Match<'a> {
    #[serde(rename = "match")]
    text: &'a str,
    /// The number of the item (from 0) or of the line (from 1, for bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Groups by number, from 1.
    groups: Vec<Option<&'a str>>,
    /// Groups by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    named: Map<String, Value>,
}

pub struct RegexStep;

impl Step for RegexStep {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("regex", env!("CARGO_PKG_VERSION"), "Finds, extracts, replaces and redacts text")
            .memory(256 << 20)
            .example(
                "numbers out of a text",
                json!({ "mode": "extract", "pattern": "#(?<nr>\\d+)" }),
                "see #12\n",
                "{\"match\":\"#12\",\"line\":1,\"groups\":[\"12\"],\"named\":{\"nr\":\"12\"}}\n",
            )
            .example(
                "no addresses in a log",
                json!({ "mode": "redact", "kinds": ["email"], "numbered": true }),
                "ada@example.com wrote to bo@example.org, ada@example.com again\n",
                "[email-1] wrote to [email-2], [email-1] again\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        args.check()?;
        let target = Target::new(args.field.as_deref());
        if args.mode == Mode::Redact {
            let mut redactor = Redactor::new(args.kinds.as_deref(), &args.custom, args.numbered)?;
            redact(input, output, &target, &mut redactor)?;
            redactor.log();
            return Ok(());
        }
        let regex = args.regex()?;
        match args.mode {
            Mode::Filter => filter(&args, &regex, &target, input, output),
            Mode::Extract => extract(&args, &regex, &target, input, output),
            Mode::Replace | Mode::Redact => {
                let replacement = args.replacement.as_deref().unwrap_or_default();
                rewrite(input, output, &target, |text| {
                    regex.replacen(text, args.limit, replacement).into_owned()
                })
            }
        }
    }
}

impl Args {
    /// An argument that the mode would ignore is a misunderstanding.
    fn check(&self) -> Result<(), StepError> {
        let wrong =
            |name: &str, mode: &str| Err(StepError::bad_args(format!("`{name}` belongs to mode `{mode}`")));
        if self.mode == Mode::Redact && self.pattern.is_some() {
            return Err(StepError::bad_args("mode `redact` takes `kinds` and `custom`, not `pattern`"));
        }
        if self.mode != Mode::Redact && (self.kinds.is_some() || !self.custom.is_empty() || self.numbered) {
            return wrong("kinds`, `custom` and `numbered", "redact");
        }
        if self.mode != Mode::Replace && self.replacement.is_some() {
            return wrong("replacement", "replace");
        }
        if self.mode == Mode::Replace && self.replacement.is_none() {
            return Err(StepError::bad_args("mode `replace` needs `replacement`; it may be empty"));
        }
        if self.mode != Mode::Filter && self.invert {
            return wrong("invert", "filter");
        }
        Ok(())
    }

    fn regex(&self) -> Result<Regex, StepError> {
        let pattern = self.pattern.as_deref().ok_or_else(|| StepError::bad_args("`pattern` is missing"))?;
        let mut builder = RegexBuilder::new(pattern);
        builder.size_limit(PATTERN_SIZE);
        for flag in self.flags.chars() {
            match flag {
                'i' => builder.case_insensitive(true),
                'm' => builder.multi_line(true),
                's' => builder.dot_matches_new_line(true),
                'x' => builder.ignore_whitespace(true),
                other => {
                    return Err(StepError::bad_args(format!(
                        "there is no flag `{other}`; there are i, m, s and x"
                    )));
                }
            };
        }
        builder.build().map_err(|error| StepError::new("bad-pattern", error.to_string()))
    }
}

fn filter(
    args: &Args,
    regex: &Regex,
    target: &Target<'_>,
    input: &mut Input<Any>,
    output: &mut Output<Any>,
) -> Result<(), StepError> {
    if !input.is_items() {
        for line in input.text()?.split_inclusive('\n') {
            if regex.is_match(line.trim_end_matches(['\r', '\n'])) != args.invert {
                output.write_all(line.as_bytes())?;
            }
        }
        return Ok(());
    }
    for item in input.items::<Value>() {
        let item = item?;
        let mut found = false;
        target.visit(&item, &mut |text| {
            found |= regex.is_match(text);
            Ok(())
        })?;
        if found != args.invert {
            output.item(&item)?;
        }
    }
    Ok(())
}

fn extract(
    args: &Args,
    regex: &Regex,
    target: &Target<'_>,
    input: &mut Input<Any>,
    output: &mut Output<Any>,
) -> Result<(), StepError> {
    let most = if args.limit == 0 { usize::MAX } else { args.limit };
    if !input.is_items() {
        let text = input.text()?;
        let (mut line, mut counted) = (1, 0);
        for captures in regex.captures_iter(&text).take(most) {
            let start = captures.get_match().start();
            line += text[counted..start].matches('\n').count();
            counted = start;
            output.item(&Match { line: Some(line), ..a_match(regex, &captures) })?;
        }
        return Ok(());
    }
    for (at, item) in input.items::<Value>().enumerate() {
        let mut left = most;
        target.visit(&item?, &mut |text| {
            for captures in regex.captures_iter(text).take(left) {
                left -= 1;
                output.item(&Match { item: Some(at), ..a_match(regex, &captures) })?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn a_match<'a>(regex: &Regex, captures: &Captures<'a>) -> Match<'a> {
    let named = regex.capture_names().flatten().map(|name| {
        let text = captures.name(name).map_or(Value::Null, |found| found.as_str().into());
        (name.to_owned(), text)
    });
    Match {
        text: captures.get_match().as_str(),
        item: None,
        line: None,
        groups: captures.iter().skip(1).map(|group| group.map(|found| found.as_str())).collect(),
        named: named.collect(),
    }
}

fn redact(
    input: &mut Input<Any>,
    output: &mut Output<Any>,
    target: &Target<'_>,
    redactor: &mut Redactor,
) -> Result<(), StepError> {
    if !input.is_items() {
        return Ok(output.write_all(redactor.redact(&input.text()?).as_bytes())?);
    }
    for item in input.items::<Value>() {
        let mut item = item?;
        if let (name, Some(value)) = target.value(&mut item) {
            redactor.redact_value(name, value);
        }
        output.item(&item)?;
    }
    Ok(())
}

/// Sends every targeted text through `change`.
fn rewrite(
    input: &mut Input<Any>,
    output: &mut Output<Any>,
    target: &Target<'_>,
    mut change: impl FnMut(&str) -> String,
) -> Result<(), StepError> {
    if !input.is_items() {
        return Ok(output.write_all(change(&input.text()?).as_bytes())?);
    }
    for item in input.items::<Value>() {
        let mut item = item?;
        if let (_, Some(value)) = target.value(&mut item) {
            target::rewrite(value, &mut change);
        }
        output.item(&item)?;
    }
    Ok(())
}

lobster_step::export_step!(RegexStep);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<RegexStep>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
