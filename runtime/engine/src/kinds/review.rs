//! `changes: review`: a person sees the file changes of a step before they are committed.
//!
//! The question names the change set by its digest, so the gate's binding covers it, and after an approval exactly the
//! bytes that were shown are committed (invariant T4). Secrets are hidden when they are shown, never when they are
//! committed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lobster_changes::{Change, ChangeKind, ChangeSet, Entry, Reading, is_executable};
use lobster_stage::{Answer, Question, StageError, Stop, store_failure};
use lobster_store::{Blob, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::TextDiff;

use super::pile::{Total, step_names};
use crate::binding::{Asker, GateQuestion, Identity};
use crate::path::StepPath;
use crate::run::Run;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;

/// Largest text whose difference is computed; a longer one is shown by its size, since no person reads its difference
/// in a question.
const MAX_TEXT: u64 = 256 << 10;

/// Lines of one file's difference that a question shows; `lobster changes --patch` shows all.
const LINES_OF_FILE: usize = 80;

/// Lines of all differences that a question shows.
const LINES_OF_ALL: usize = 400;

/// Files that a question names one by one.
const MAX_FILES: usize = 500;

/// Longest line that is shown in full; a minified file has one line.
const MAX_LINE: usize = 400;

/// Unchanged lines around changed ones.
const CONTEXT: usize = 3;

/// The part of a question about a change set.
#[derive(Serialize, Deserialize)]
pub(crate) struct Shown {
    /// Number of files that change.
    count: usize,
    /// One line for each file, deletions first.
    files: Vec<String>,
    /// Number of lines that were left out.
    #[serde(default)]
    more: usize,
    /// Bytes that the store keeps for it, including the current contents of the files.
    #[serde(default)]
    kept: String,
    /// The folded difference.
    difference: String,
}

impl Shown {
    /// The change set as an item of a question: its digest, and the change to each file.
    fn question_item(&self, total: &Total) -> Value {
        let mut item = json!({ "changes": total.blob.digest, "files": self.files, "kept": self.kept });
        if self.more > 0 {
            item["more"] = json!(self.more);
        }
        item
    }

    /// Adds it to a question that also asks about something else.
    pub(crate) fn add_to_question(&self, question: &mut Question, total: &Total) {
        if let Question::Approval { items, preview, .. } = question {
            items.push(self.question_item(total));
            let own = preview.take().map(|text| text + "\n").unwrap_or_default();
            *preview = Some(own + &self.difference).filter(|text| !text.is_empty());
        }
    }
}

/// Renders the changes for a question at `gate`.
pub(crate) fn render_changes(run: &Run<'_>, gate: &StepPath, total: &Total) -> Result<Shown, Stop> {
    // Hidden text depends on the secrets that a process knows, and the answer may come in another process.
    let shown = run.record_value(&gate.gate("shown"), || {
        serde_json::to_value(show_changes(&run.store, &total.set, run.id.short_id()))
            .map_err(StageError::permanent_from)
    })?;
    serde_json::from_value(shown).map_err(store_failure)
}

/// Asks a person to commit the waiting changes; returns the change set that the person approved, if that is only a
/// part.
pub(crate) fn request_approval(
    run: &Run<'_>,
    gate: &StepPath,
    total: &Total,
    asker: Asker,
    cancel: &CancelToken,
) -> Result<Option<Digest>, Stop> {
    let shown = render_changes(run, gate, total)?;
    let noun = if shown.count == 1 { "path" } else { "paths" };
    let question = GateQuestion {
        question: Question::Approval {
            prompt: format!("Commit the changes of {} to {} {noun}?", step_names(&total.steps), shown.count),
            items: vec![shown.question_item(total)],
            preview: Some(shown.difference).filter(|text| !text.is_empty()),
            emit: false,
        },
        identity: Identity::default(),
        asker,
    };
    Ok(match run.ask_person(gate, question, cancel)? {
        Answer::Approved { part, .. } => part,
        Answer::Response(_) => None,
    })
}

/// The change set that a question shows, if any.
#[must_use]
pub fn changes_of_question(question: &Question) -> Option<Digest> {
    let Question::Approval { items, .. } = question else { return None };
    items.iter().rev().find_map(|item| item.get("changes")?.as_str()?.parse().ok())
}

fn show_changes(store: &Store, set: &ChangeSet, run: impl std::fmt::Display) -> Shown {
    let readings = set.in_reading_order();
    let files = readings.iter().take(MAX_FILES);
    let files = files.map(|reading| store.hide_secrets(&change_line(reading)).into_owned()).collect();
    let mut difference = String::new();
    let (mut room, mut folded) = (LINES_OF_ALL, 0);
    for reading in &readings {
        let path = path_of(reading);
        let Some(text) = difference_of(store, &path, reading.change) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        // A script is read under any name.
        if reading.is_generated && !is_script(store, reading.change) {
            let _ = writeln!(difference, "[… {path} is generated: {} lines of difference]", lines.len());
            continue;
        }
        let kept = lines.len().min(LINES_OF_FILE).min(room);
        if kept == 0 && !lines.is_empty() {
            folded += 1;
            continue;
        }
        room -= kept;
        for line in &lines[..kept] {
            difference.push_str(&shorten_line(line));
            difference.push('\n');
        }
        if kept < lines.len() {
            // Writing to a string does not fail.
            let _ = writeln!(difference, "[… {} more lines of this file]", lines.len() - kept);
        }
    }
    if folded > 0 {
        let _ = writeln!(difference, "[… {folded} more files]");
    }
    if difference.contains("[… ") {
        let _ = writeln!(difference, "`lobster changes {run} --patch` shows all of it");
    }
    let more = readings.len().saturating_sub(MAX_FILES);
    Shown { count: set.changes().count(), files, more, kept: in_bytes(kept_bytes(set)), difference }
}

/// The sizes of all contents, each counted once.
fn kept_bytes(set: &ChangeSet) -> u64 {
    let entries = set.changes().flat_map(|(_, change)| [&change.before, &change.after]);
    let sizes: BTreeMap<Digest, u64> = entries
        .filter_map(|entry| match entry {
            Some(Entry::File { digest, size, .. }) => Some((*digest, *size)),
            Some(Entry::Directory { .. } | Entry::Link { .. }) | None => None,
        })
        .collect();
    sizes.values().sum()
}

fn in_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut left, mut unit) = (bytes, 0);
    while left >= 10_240 && unit + 1 < UNITS.len() {
        (left, unit) = (left / 1024, unit + 1);
    }
    format!("{left} {}", UNITS[unit])
}

fn path_of(reading: &Reading<'_>) -> String {
    format!("{}/{}", reading.root, reading.change.path)
}

/// The change to a path, in one line.
fn change_line(reading: &Reading<'_>) -> String {
    let (path, change) = (path_of(reading), reading.change);
    if let Some(from) = reading.renamed_from {
        return format!("renamed {}/{from} -> {}", reading.root, change.path);
    }
    let mut text = format!("{} {path}", change.kind().as_str());
    let is_directory = |entry: &Option<Entry>| matches!(entry, Some(Entry::Directory { .. }));
    if is_directory(&change.after) || change.after.is_none() && is_directory(&change.before) {
        text.push('/');
    }
    let told = match (&change.before, &change.after) {
        (_, Some(Entry::Link { target, .. })) => format!(" -> {target}"),
        (_, Some(Entry::File { same_as: Some(other), .. })) => format!(" = {other}"),
        (Some(before), Some(after)) if before.mode() != after.mode() => {
            format!("  {:04o} -> {:04o}", before.mode(), after.mode())
        }
        (None, after @ Some(_)) if is_executable(after.as_ref()) => "  executable".to_owned(),
        _ => String::new(),
    };
    text + &told
}

/// The unified difference of a file; the sizes if it is not text.
fn difference_of(store: &Store, path: &str, change: &Change) -> Option<String> {
    let is_file = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { same_as: None, .. }));
    if change.kind() == ChangeKind::Mode || !is_file(&change.before) && !is_file(&change.after) {
        return None;
    }
    let side = |name: &str, entry: &Option<Entry>| match is_file(entry) {
        true => format!("{name}{path}"),
        false => "/dev/null".to_owned(),
    };
    let (old, new) = (side("a", &change.before), side("b", &change.after));
    let text = match (text_of(store, change.before.as_ref()), text_of(store, change.after.as_ref())) {
        (Some(before), Some(after)) => TextDiff::from_lines(&before, &after)
            .unified_diff()
            .context_radius(CONTEXT)
            .header(&old, &new)
            .to_string(),
        _ => format!("--- {old}\n+++ {new}\nnot shown: {}\n", describe_sizes(change)),
    };
    Some(store.hide_secrets(&text).into_owned())
}

/// True if the content names a program that runs it, or cannot be read.
fn is_script(store: &Store, change: &Change) -> bool {
    text_of(store, change.after.as_ref()).is_none_or(|text| text.starts_with("#!"))
}

/// The content as text, if it can be shown.
fn text_of(store: &Store, entry: Option<&Entry>) -> Option<String> {
    let Some(Entry::File { digest, size, .. }) = entry else { return Some(String::new()) };
    store.load_shown_text(&Blob { digest: *digest, len: *size }, MAX_TEXT)
}

fn describe_sizes(change: &Change) -> String {
    let size = |entry: &Option<Entry>| match entry {
        Some(Entry::File { size, .. }) => format!("{size} bytes"),
        _ => "nothing".to_owned(),
    };
    format!("{} -> {}", size(&change.before), size(&change.after))
}

fn shorten_line(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}[… {} more bytes]", &line[..end], line.len() - end),
        None => line.to_owned(),
    }
}
