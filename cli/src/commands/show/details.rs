//! Below a step's row: its command, and the first of what it gave or the last of what it
//! complained.

use std::io::Read;

use anstyle::{AnsiColor, Style};
use lobster_runtime::replay::timeline::Line;
use lobster_runtime::store::{Blob, StepStatus, Store};
use serde_json::Value;

use crate::render::question::DIM;
use crate::render::table::Room;
use crate::render::text::cut;
use crate::render::{clip, one_line};

const BAD: Style = AnsiColor::Red.on_default();

/// Lines of output, and of stderr.
const SHOWN: usize = 3;

/// Of a stream this much is read.
const READ: u64 = 4096;

/// Where nothing has an edge, lines are cut there.
const LINE: usize = 160;

/// Longer actions are not read.
const MAX_ACTION: u64 = 1 << 20;

/// The lines, without a line break, each with its style.
pub(super) fn of_step(store: &Store, line: &Line, room: Room) -> Vec<(Style, String)> {
    let indent = "  ".repeat(line.depth + 1);
    let fit = |text: String| match room.columns {
        Some(columns) => cut(&text, columns.saturating_sub(1)).into_owned(),
        None => clip(&text, LINE).into_owned(),
    };
    let mut lines = Vec::new();
    if let Some(command) = command(store, line) {
        lines.push((DIM, fit(format!("{indent}$ {}", one_line(&command)))));
    }
    let Some(outcome) = line.outcome.as_ref().filter(|_| !line.summary) else { return lines };
    let failed = match outcome.status {
        StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused => true,
        StepStatus::Ok
        | StepStatus::Skipped
        | StepStatus::Interrupted
        | StepStatus::Cancelled
        | StepStatus::Waiting => false,
    };
    if failed {
        let said = outcome.stderr.map(|blob| last(store, blob)).unwrap_or_default();
        let error = outcome.error.iter().map(|error| error.lines().next().unwrap_or_default().to_owned());
        lines.extend(
            said.into_iter().chain(error).map(|said| (BAD, fit(format!("{indent}! {}", one_line(&said))))),
        );
    } else if let Some(blob) = outcome.output.or(outcome.stdout) {
        lines.extend(
            first(store, blob)
                .into_iter()
                .map(|said| (Style::new(), fit(format!("{indent}│ {}", one_line(&said))))),
        );
    }
    lines
}

/// The command of a native step, as its author wrote it.
fn command(store: &Store, line: &Line) -> Option<String> {
    let bytes = store.load(&line.action?, MAX_ACTION).ok()?;
    let action: Value = serde_json::from_slice(&bytes).ok()?;
    let words: Vec<&str> = action["argv"].as_array()?.iter().filter_map(Value::as_str).collect();
    let text = match words.as_slice() {
        [] => return None,
        [_, "-c" | "-lc", text] => (*text).to_owned(),
        words => words.join(" "),
    };
    let mut lines = text.trim().lines();
    let first = lines.next()?.to_owned();
    Some(if lines.next().is_some() { format!("{first} …") } else { first })
}

/// The first lines of a stream.
fn first(store: &Store, blob: Blob) -> Vec<String> {
    let mut bytes = Vec::new();
    let Ok(reader) = store.open_blob(&blob.digest) else { return Vec::new() };
    if reader.take(READ).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let is_whole = bytes.len() as u64 == blob.len;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut shown: Vec<String> = lines.by_ref().take(SHOWN).map(str::to_owned).collect();
    if lines.next().is_some() || (!is_whole && !shown.is_empty()) {
        shown.push("…".to_owned());
    }
    shown
}

/// The last lines of a stream, if it is not too long to be read for them.
fn last(store: &Store, blob: Blob) -> Vec<String> {
    let Ok(bytes) = store.load(&blob.digest, MAX_ACTION) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN)..].iter().map(|line| (*line).to_owned()).collect()
}
