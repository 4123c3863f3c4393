//! Reading a table.

use std::collections::HashSet;
use std::io::Read;

use csv::{ReaderBuilder, StringRecord, Trim};
use lobster_step::{Any, Output, StepError};
use serde_json::{Map, Value};

use crate::{Args, Dialect, Ragged, Types};

/// Where fields without a column go, if they are kept.
const EXTRA: &str = "_extra";

/// Put behind the input: if it does not come out as a row of its own, a quote is open.
const END: &str = "\n\u{1}end of the table\u{1}\n";

pub(crate) fn read(
    args: &Args,
    dialect: Dialect,
    input: impl Read,
    output: &mut Output<Any>,
) -> Result<(), StepError> {
    let mut builder = ReaderBuilder::new();
    builder
        .delimiter(dialect.delimiter)
        .has_headers(false)
        .flexible(true)
        .comment(dialect.comment)
        .trim(if args.trim { Trim::All } else { Trim::None });
    match dialect.quote {
        Some(quote) => builder.quote(quote),
        None => builder.quoting(false),
    };
    let mut reader = builder.from_reader(WithoutBom::new(input).chain(END.as_bytes()));
    let mut row = StringRecord::new();
    let mut columns = args.columns.clone();
    let mut first = args.header;
    loop {
        if !reader.read_record(&mut row).map_err(|error| failed(&error))? {
            return Ok(());
        }
        if let Some(last) = row.iter().next_back().filter(|last| last.contains(END.trim())) {
            if row.len() == 1 && last.trim() == END.trim() {
                return Ok(());
            }
            return Err(StepError::bad_input(format!(
                "a quote is not closed in the row that begins in line {}; `quote: \"\"` reads quotes as any character",
                row.position().map_or(0, csv::Position::line)
            )));
        }
        if std::mem::take(&mut first) {
            if columns.is_empty() {
                columns = header(&row)?;
            }
            if args.ragged == Ragged::Keep && columns.iter().any(|name| name == EXTRA) {
                return Err(StepError::bad_input(format!(
                    "a column is named `{EXTRA}`, where `ragged: keep` puts further fields; give `columns` to name them yourself"
                )));
            }
            continue;
        }
        if columns.is_empty() {
            let cells = row.iter().map(|field| cell(field, args.types)).collect();
            output.item(&Value::Array(cells))?;
            continue;
        }
        let line = row.position().map_or(0, csv::Position::line);
        output.item(&item(&row, &columns, args, line)?)?;
    }
}

fn header(row: &StringRecord) -> Result<Vec<String>, StepError> {
    let mut names: HashSet<&str> = HashSet::new();
    for name in row {
        if !names.insert(name) {
            return Err(StepError::bad_input(format!(
                "the header names the column `{name}` twice; give `columns` to name them yourself"
            )));
        }
    }
    Ok(row.iter().map(str::to_owned).collect())
}

fn item(row: &StringRecord, columns: &[String], args: &Args, line: u64) -> Result<Value, StepError> {
    let wrong = (row.len() < columns.len() && args.ragged == Ragged::Error)
        || (row.len() > columns.len() && args.ragged != Ragged::Keep);
    if wrong {
        return Err(StepError::bad_input(format!(
            "line {line} has {} fields where the header has {}; `ragged` tells what to do with such rows",
            row.len(),
            columns.len()
        )));
    }
    let mut item = Map::new();
    for (name, field) in columns.iter().zip(row) {
        item.insert(name.clone(), cell(field, args.types));
    }
    if row.len() > columns.len() {
        let extra = row.iter().skip(columns.len()).map(|field| cell(field, args.types)).collect();
        item.insert(EXTRA.to_owned(), Value::Array(extra));
    }
    Ok(Value::Object(item))
}

fn cell(field: &str, types: Types) -> Value {
    if types == Types::Text {
        return Value::String(field.to_owned());
    }
    match field {
        "" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => number(field).unwrap_or_else(|| Value::String(field.to_owned())),
    }
}

/// A number only if nothing is lost: JSON would write the same text again.
fn number(field: &str) -> Option<Value> {
    if !field.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    let value: Value = serde_json::from_str(field).ok()?;
    let written = value.to_string();
    (value.is_number() && written == field).then_some(value)
}

fn failed(error: &csv::Error) -> StepError {
    match error.kind() {
        csv::ErrorKind::Utf8 { pos, .. } => StepError::bad_input(format!(
            "line {} is not UTF-8; convert the file first",
            pos.as_ref().map_or(0, csv::Position::line)
        )),
        _ => StepError::new("io", error.to_string()),
    }
}

/// Drops a byte order mark, which spreadsheets like to write.
struct WithoutBom<R> {
    input: R,
    start: Option<std::vec::IntoIter<u8>>,
}

impl<R> WithoutBom<R> {
    fn new(input: R) -> Self {
        Self { input, start: None }
    }
}

impl<R: Read> Read for WithoutBom<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        const BOM: &[u8] = "\u{feff}".as_bytes();
        let start = match &mut self.start {
            Some(start) => start,
            None => {
                let mut head = Vec::new();
                Read::take(&mut self.input, BOM.len() as u64).read_to_end(&mut head)?;
                if head == BOM {
                    head.clear();
                }
                self.start.insert(head.into_iter())
            }
        };
        if start.len() > 0 {
            let count = start.len().min(buffer.len());
            for (slot, byte) in buffer.iter_mut().zip(start) {
                *slot = byte;
            }
            return Ok(count);
        }
        self.input.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_nothing() {
        let text = |field: &str| cell(field, Types::Infer);
        assert_eq!(text("12"), Value::from(12));
        assert_eq!(text("-0.5"), Value::from(-0.5));
        for kept in ["007", "1.50", "+1", "1e3", "12345678901234567890123", "NaN", " 1", "-"] {
            assert_eq!(text(kept), Value::from(kept));
        }
    }

    /// Comparing each name with all before it would take minutes.
    #[test]
    fn a_header_of_many_columns_is_read_at_once() {
        let mut names: Vec<String> = (0..200_000).map(|n| format!("column {n}")).collect();
        assert_eq!(header(&StringRecord::from(names.clone())).unwrap(), names);
        names.push("column 7".to_owned());
        assert!(header(&StringRecord::from(names)).is_err());
    }
}
