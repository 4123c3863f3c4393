//! Writing a table.

use std::collections::HashSet;
use std::io::Write;

use csv::{QuoteStyle, Terminator, Writer, WriterBuilder};
use lobster_step::{Any, Output, StepError};
use serde_json::{Map, Value};

use crate::{Args, Dialect};

pub(crate) fn write(
    args: &Args,
    dialect: Dialect,
    mut items: impl Iterator<Item = Result<Row, StepError>>,
    output: &mut Output<Any>,
) -> Result<(), StepError> {
    let terminator = match args.newline.as_str() {
        "\n" => Terminator::Any(b'\n'),
        "\r\n" => Terminator::CRLF,
        other => return Err(StepError::bad_args(format!("`newline` must be \\n or \\r\\n, not {other:?}"))),
    };
    let mut builder = WriterBuilder::new();
    builder.delimiter(dialect.delimiter).terminator(terminator).flexible(true);
    match dialect.quote {
        Some(quote) => builder.quote(quote),
        None => builder.quote_style(QuoteStyle::Never),
    };
    let mut table = Table { writer: builder.from_writer(output), guard: args.guard_formulas, plain: dialect };

    if args.columns.is_empty() {
        let items: Vec<Row> = items.by_ref().collect::<Result<_, _>>()?;
        let columns = columns_of(&items);
        table.header(args, &columns)?;
        for (at, item) in items.iter().enumerate() {
            table.row(item, &columns, at + 1)?;
        }
    } else {
        table.header(args, &args.columns)?;
        for (at, item) in items.enumerate() {
            table.row(&item?, &args.columns, at + 1)?;
        }
    }
    table.writer.flush().map_err(StepError::from)
}

/// An object, or a list for a table without column names; a text is a line of a table to read.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "an item must be an object, a list of cells, or a text (a line of the table)")]
pub(crate) enum Row {
    Line(String),
    Named(Map<String, Value>),
    Bare(Vec<Value>),
}

fn columns_of(items: &[Row]) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut columns = Vec::new();
    for item in items {
        let Row::Named(fields) = item else { continue };
        for name in fields.keys() {
            if seen.insert(name.as_str()) {
                columns.push(name.clone());
            }
        }
    }
    columns
}

struct Table<W: Write> {
    writer: Writer<W>,
    guard: bool,
    plain: Dialect,
}

impl<W: Write> Table<W> {
    fn header(&mut self, args: &Args, columns: &[String]) -> Result<(), StepError> {
        if !args.header || columns.is_empty() {
            return Ok(());
        }
        self.record(columns.iter().map(|name| self.text(name)).collect(), 0)
    }

    fn row(&mut self, item: &Row, columns: &[String], number: usize) -> Result<(), StepError> {
        let cells = match item {
            Row::Line(_) => {
                let message = format!("item {number} is a text, the items before are not");
                return Err(StepError::bad_input(message));
            }
            Row::Bare(cells) => cells.iter().map(|value| self.cell(value)).collect(),
            Row::Named(fields) => {
                columns.iter().map(|name| self.cell(fields.get(name).unwrap_or(&Value::Null))).collect()
            }
        };
        self.record(cells, number)
    }

    fn cell(&self, value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) => self.text(text),
            // Objects and lists have no place in a table: they go in as JSON.
            other => other.to_string(),
        }
    }

    fn text(&self, text: &str) -> String {
        let is_formula = self.guard && text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if is_formula { format!("'{text}") } else { text.to_owned() }
    }

    fn record(&mut self, cells: Vec<String>, number: usize) -> Result<(), StepError> {
        if self.plain.quote.is_none() {
            let special = |c: char| c == char::from(self.plain.delimiter) || c == '\n' || c == '\r';
            if let Some(cell) = cells.iter().find(|cell| cell.contains(special)) {
                return Err(StepError::bad_input(format!(
                    "item {number}: {cell:?} needs quotes, and `quote` is empty"
                )));
            }
        }
        self.writer.write_record(cells).map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => StepError::from(error),
            other => StepError::new("bad-output", format!("item {number}: {other:?}")),
        })
    }
}
