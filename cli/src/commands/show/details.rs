//! Lines below a step's row: its command, and the beginning of its output or the end of its error output.

use std::io::Read;

use anstyle::{AnsiColor, Style};
use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::replay::step_output::{end_of_output, kept_outputs};
use lobster_runtime::replay::timeline::Line;
use lobster_runtime::store::{Blob, BlobReader, RunId, StepStatus, Store};
use serde_json::Value;

use crate::exit::CommandError;
use crate::render::question::DIM;
use crate::render::table::Room;
use crate::render::text::cut;
use crate::render::{clip, one_line};

const BAD: Style = AnsiColor::Red.on_default();

/// Most lines of output, and of stderr.
const SHOWN: usize = 3;

/// Most bytes read of a stream.
const READ: u64 = 4096;

/// Most characters of a line, where the output has no width.
const LINE: usize = 160;

/// Longer actions are not read.
const MAX_ACTION: u64 = 1 << 20;

/// The recorded data of one run.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub(super) store: &'a Store,
    pub(super) run: RunId,
}

impl Recorded<'_> {
    fn open_blob(self, digest: &Digest) -> Result<BlobReader, CommandError> {
        Ok(self.store.open_blob(digest).map_err(|error| self.store.explain_error(self.run, error))?)
    }

    /// A blob, unless it is too long to show.
    fn load_blob(self, digest: &Digest) -> Result<Vec<u8>, CommandError> {
        let loaded = self.store.load_blob(digest, MAX_ACTION);
        Ok(loaded.map_err(|error| self.store.explain_error(self.run, error))?)
    }
}

/// The lines, without newlines, each with its style.
pub(super) fn of_step(record: Recorded<'_>, line: &Line, room: Room) -> Vec<(Style, String)> {
    let indent = "  ".repeat(line.depth + 1);
    let fit = |text: String| match room.columns {
        Some(columns) => cut(&text, columns.saturating_sub(1)).into_owned(),
        None => clip(&text, LINE).into_owned(),
    };
    let quote =
        |style: Style, sign: char, text: &str| (style, fit(format!("{indent}{sign} {}", one_line(text))));
    let cannot = |what: &str, error: &CommandError| {
        quote(BAD, '!', &format!("{what} cannot be shown: {}", error.message))
    };
    let mut lines = Vec::new();
    match native_command(record, line) {
        Ok(Some(command)) => lines.push(quote(DIM, '$', &command)),
        Ok(None) => {}
        Err(error) => lines.push(cannot("its command", &error)),
    }
    let Some(outcome) = line.outcome.as_ref().filter(|_| !line.summary) else {
        if line.outcome.is_none() {
            let said = last_of_unrecorded(record, &line.path);
            lines.extend(said.iter().map(|said| quote(Style::new(), '│', said)));
        }
        return lines;
    };
    if matches!(outcome.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused) {
        let stderr = outcome.stderr.map(|blob| record.load_blob(&blob.digest)).transpose();
        match stderr.map(|bytes| last_lines(&bytes.unwrap_or_default())) {
            Ok(said) => lines.extend(said.iter().map(|said| quote(BAD, '!', said))),
            Err(error) => lines.push(cannot("its stderr", &error)),
        }
        let error = outcome.error.iter().map(|error| error.lines().next().unwrap_or_default());
        lines.extend(error.map(|error| quote(BAD, '!', error)));
    } else if let Some(blob) = outcome.output.or(outcome.kept_stdout()) {
        match stream_head(record, blob) {
            Ok(said) => lines.extend(said.iter().map(|said| quote(Style::new(), '│', said))),
            Err(error) => lines.push(cannot("its output", &error)),
        }
    }
    lines
}

/// The command of a native step, as its author wrote it.
fn native_command(record: Recorded<'_>, line: &Line) -> Result<Option<String>, CommandError> {
    let Some(action) = line.action else { return Ok(None) };
    let action =
        json::parse(&String::from_utf8_lossy(&record.load_blob(&action)?)).map_err(CommandError::failed)?;
    let words: Vec<&str> =
        action["argv"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = match words.as_slice() {
        [] => return Ok(None),
        [_, "-c" | "-lc", text] => (*text).to_owned(),
        words => words.join(" "),
    };
    let mut lines = text.trim().lines();
    let Some(first) = lines.next() else { return Ok(None) };
    Ok(Some(if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }))
}

/// The first lines of a stream.
fn stream_head(record: Recorded<'_>, blob: Blob) -> Result<Vec<String>, CommandError> {
    let mut bytes = Vec::new();
    record.open_blob(&blob.digest)?.take(READ).read_to_end(&mut bytes)?;
    let is_whole = bytes.len() as u64 == blob.len;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut shown: Vec<String> = lines.by_ref().take(SHOWN).map(str::to_owned).collect();
    if lines.next().is_some() || (!is_whole && !shown.is_empty()) {
        shown.push("…".to_owned());
    }
    Ok(shown)
}

/// The last lines of a stream.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The last lines that a step has printed so far, or had printed when lobster died.
fn last_of_unrecorded(record: Recorded<'_>, path: &str) -> Vec<String> {
    let mut kept = kept_outputs(record.store, record.run, Some(path)).into_iter();
    let Some(mut output) = kept.rfind(|output| output.path == path) else { return Vec::new() };
    let end = end_of_output(&mut output, None, LINE * SHOWN);
    end.map(|(bytes, _)| last_lines(&bytes)).unwrap_or_default()
}
