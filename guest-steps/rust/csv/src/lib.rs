//! CSV and TSV (RFC 4180 and its relatives) to JSON items and back.
//!
//! Bytes in, items out; or items in, bytes out: the input decides. Items that are
//! texts are the lines of a table, and read like bytes.

mod format;
mod parse;

use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use serde::Deserialize;
use serde_json::json;

use format::Row;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// What separates fields: one ASCII character, or `tab`.
    pub delimiter: String,
    /// The quote character; empty for none.
    pub quote: String,
    /// Whether the first line names the columns.
    pub header: bool,
    /// Names of the columns, in order. Reading: for data without a header line, or
    /// instead of it. Writing: which columns, in which order; without it, every
    /// key in the order of first appearance, for which all items are kept in memory.
    pub columns: Vec<String>,
    /// Reading: what numbers, `true`, `false` and empty fields become.
    pub types: Types,
    /// Reading: what to do with a row of another length than the header.
    pub ragged: Ragged,
    /// Reading: whether white space around fields is dropped.
    pub trim: bool,
    /// Reading: lines that begin with this character are skipped.
    pub comment: String,
    /// Writing: `\n` or `\r\n`.
    pub newline: String,
    /// Writing: put an apostrophe before text that a spreadsheet would take for a
    /// formula (it begins with `=`, `+`, `-`, `@`, tab or carriage return), in the header too.
    pub guard_formulas: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            delimiter: ",".to_owned(),
            quote: "\"".to_owned(),
            header: true,
            columns: Vec::new(),
            types: Types::Text,
            ragged: Ragged::Error,
            trim: false,
            comment: String::new(),
            newline: "\n".to_owned(),
            guard_formulas: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Types {
    /// Every field stays text.
    Text,
    /// JSON numbers and booleans become what they look like, empty fields null.
    /// A number that JSON would write otherwise (`007`, `1.50`, a long id) stays text.
    Infer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Ragged {
    /// Fail and say which line.
    Error,
    /// Missing fields are left out; more fields than columns are an error.
    Short,
    /// Missing fields are left out, extra ones go to a list under `_extra`.
    Keep,
}

pub struct Csv;

impl Step for Csv {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("csv", env!("CARGO_PKG_VERSION"), "CSV or TSV bytes to items, items to CSV or TSV")
            .memory(256 << 20)
            .example(
                "a table to items",
                json!({ "types": "infer" }),
                "name,age\nAda,36\n",
                "{\"name\":\"Ada\",\"age\":36}\n",
            )
            .example(
                "items to a table",
                json!({ "delimiter": "tab" }),
                "{\"name\":\"Ada\",\"age\":36}\n",
                "name\tage\nAda\t36\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        let dialect = Dialect::new(&args)?;
        if !input.is_items() {
            return parse::read(&args, dialect, input, output);
        }
        let mut items = input.items::<Row>().peekable();
        if matches!(items.peek(), Some(Ok(Row::Line(_)))) {
            let table = lines(items)?;
            return parse::read(&args, dialect, table.as_bytes(), output);
        }
        format::write(&args, dialect, items, output)
    }
}

/// The table whose lines the items are, as a command gives them.
fn lines(items: impl Iterator<Item = Result<Row, StepError>>) -> Result<String, StepError> {
    let mut table = String::new();
    for (at, item) in items.enumerate() {
        let Row::Line(line) = item? else {
            let message = format!("item {} is no text, where the items before are lines of a table", at + 1);
            return Err(StepError::bad_input(message));
        };
        table.push_str(&line);
        table.push('\n');
    }
    Ok(table)
}

/// The single characters of a dialect, checked.
#[derive(Clone, Copy, Debug)]
struct Dialect {
    delimiter: u8,
    quote: Option<u8>,
    comment: Option<u8>,
}

impl Dialect {
    fn new(args: &Args) -> Result<Self, StepError> {
        let delimiter = if args.delimiter == "tab" { "\t" } else { &args.delimiter };
        let dialect = Self {
            delimiter: one("delimiter", delimiter)?
                .ok_or_else(|| StepError::bad_args("`delimiter` is empty"))?,
            quote: one("quote", &args.quote)?,
            comment: one("comment", &args.comment)?,
        };
        if dialect.quote == Some(dialect.delimiter) {
            return Err(StepError::bad_args("`quote` and `delimiter` are the same character"));
        }
        Ok(dialect)
    }
}

fn one(name: &str, text: &str) -> Result<Option<u8>, StepError> {
    match text.as_bytes() {
        [] => Ok(None),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(Some(*byte)),
        _ => Err(StepError::bad_args(format!("`{name}` must be one ASCII character, not {text:?}"))),
    }
}

lobster_step::export_step!(Csv);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Csv>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
