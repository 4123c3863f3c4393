//! `lobster changes`

use std::io::{self, Write};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use lobster_runtime::json;
use lobster_runtime::replay::changes::{
    Change, ChangeKind, ChangeSet, Entry, Reading, Resolution, StepChanges, changes_in, changes_of_run,
    is_executable, record_unseen_ends,
};
use lobster_runtime::replay::place::is_within;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{Blob, RunId, Store};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::exit::{CommandError, CommandResult, finish};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::question::{BOLD, DIM};
use crate::render::table::Room;
use crate::render::{harmless, one_line, print_to_stderr, units};
use crate::which;

/// Shows the changes to files that a run made or proposed.
///
/// Only steps with `changes: staged` or `changes: review` record their changes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster changes @                        the files, deletions first
  lobster changes @ fix --patch
  lobster changes @ --json | jq -r '.[].changes[].path'")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// Only this step and the steps inside it, named as in `lobster show`.
    step: Option<String>,
    /// Prints the number of changed lines in each file.
    #[arg(long, conflicts_with_all = ["json", "patch"])]
    stat: bool,
    /// Prints the change sets as a JSON array, with the digests of all contents.
    #[arg(long, conflicts_with = "patch")]
    json: bool,
    /// Prints a unified diff.
    #[arg(long)]
    patch: bool,
}

/// Larger contents are shown by their sizes.
const MAX_TEXT: u64 = 1 << 20;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let id = which::run_or_ask(&store, args.run.as_deref(), "changes")?;
    // If an end cannot be recorded now, the recorded changes are shown.
    let _ = record_unseen_ends(&store, id);
    let (journal, broken) = prepare::found_journal(&store, id)?;
    let mut found = changes_in(&store, &journal).map_err(CommandError::failed)?;
    found.retain(|changes| args.step.as_ref().is_none_or(|step| is_within(&changes.step, step)));
    let mut out = PagedOutput::for_reader(args.json);
    if args.json {
        let all = found.iter().map(|changes| changes_as_json(&store, changes));
        let all: Vec<Value> = all.chain(broken.map(|broken| json!({ "broken": broken }))).collect();
        writeln!(out, "{}", json::pretty(&all))?;
        return finish(out);
    }
    if found.is_empty() {
        let what = args.step.as_ref().map_or("The run".to_owned(), |step| format!("Step {}", one_line(step)));
        writeln!(
            out,
            "{what} has no recorded changes to files; only steps with `changes: staged` or `changes: review` \
             record them."
        )?;
        return finish(out);
    }
    let room = Room::of_stdout();
    for changes in &found {
        print_step(&mut out, &store, changes, args, room)?;
    }
    finish(out)
}

/// Converts typed paths to the form of change sets: absolute, with the directory above resolved.
pub(crate) fn resolve_paths(typed: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let here = std::env::current_dir()?;
    let place = |path: &PathBuf| {
        let path = here.join(path);
        // The last component may be a link, and the directories above may be missing.
        let above = path.ancestors().skip(1).find_map(|above| Some((above, above.canonicalize().ok()?)));
        match above.and_then(|(above, real)| Some(real.join(path.strip_prefix(above).ok()?))) {
            Some(real) => real,
            None => path,
        }
    };
    Ok(typed.iter().map(place).collect())
}

/// The treatment of files that were changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Conflicts {
    /// Leaves these files as they are now.
    Keep,
    /// Overwrites them.
    Overwrite,
    /// Puts both changes of a text together.
    Merge,
}

impl From<Conflicts> for Resolution {
    fn from(said: Conflicts) -> Self {
        match said {
            Conflicts::Keep => Self::Keep,
            Conflicts::Overwrite => Self::Overwrite,
            Conflicts::Merge => Self::Merge,
        }
    }
}

/// Most files listed after a preview.
const TOLD: usize = 20;

/// Reports the changes of a preview on stderr. Unreadable changes are left out: the run was already reported.
pub(crate) fn tell_preview(runtime: &Runtime, run: RunId) {
    let Ok(store) = runtime.store() else { return };
    let Ok(found) = changes_of_run(&store, run) else { return };
    let sets: Vec<&ChangeSet> = found.iter().map(|part| &part.set).collect();
    let all = ChangeSet::compose(&sets);
    let readings = all.in_reading_order();
    let count = units::count_noun(all.changes().count() as u64, "change");
    print_to_stderr(&format!("Preview: {count} to files, and none was made."));
    for reading in readings.iter().take(TOLD) {
        print_to_stderr(&format!("  {}", change_line(&store, reading, true)));
    }
    if readings.len() > TOLD {
        print_to_stderr(&format!("  … {} more", readings.len() - TOLD));
    }
    if !readings.is_empty() {
        print_to_stderr(&format!("  `lobster changes {} --patch` shows the difference", run.short_id()));
    }
}

fn print_step(
    out: &mut impl Write,
    store: &Store,
    changes: &StepChanges,
    args: &Args,
    room: Room,
) -> io::Result<()> {
    let count = changes.set.changes().count() as u64;
    let state = if changes.committed { "" } else { ", not committed" };
    let head = format!("{}: {}{state}", one_line(&changes.step), units::count_noun(count, "change"));
    writeln!(out, "{}", room.paint(BOLD, &head))?;
    for reading in changes.set.in_reading_order() {
        writeln!(out, "  {}", change_line(store, &reading, args.stat))?;
        if args.patch && reading.renamed_from.is_none() {
            print_patch(out, store, reading.change, room)?;
        }
    }
    Ok(())
}

/// One change in one line. Secrets in names and targets are masked.
pub(crate) fn change_line(store: &Store, reading: &Reading<'_>, counts_lines: bool) -> String {
    store.hide_secrets(&line_in_clear(store, reading, counts_lines)).into_owned()
}

fn line_in_clear(store: &Store, reading: &Reading<'_>, counts_lines: bool) -> String {
    let (root, change) = (one_line(&reading.root.to_string()), reading.change);
    if let Some(from) = reading.renamed_from {
        let [from, to] = [from, &change.path].map(|path| one_line(&path.to_string()));
        return format!("renamed   {root}/{from} -> {to}");
    }
    let kind = change.kind().as_str();
    let mut text = format!("{kind:<8}  {root}/{}", one_line(&change.path.to_string()));
    match (&change.before, &change.after) {
        (_, Some(Entry::Link { target, .. })) => {
            text.push_str(&format!(" -> {}", one_line(&target.to_string())))
        }
        (_, Some(Entry::File { same_as: Some(other), .. })) => {
            text.push_str(&format!(" = {}", one_line(&other.to_string())));
        }
        (Some(before), Some(after)) if before.mode() != after.mode() => {
            text.push_str(&format!("  {:04o} -> {:04o}", before.mode(), after.mode()));
        }
        (None, after @ Some(_)) if is_executable(after.as_ref()) => text.push_str("  executable"),
        (_, Some(Entry::Directory { .. })) | (Some(Entry::Directory { .. }), None) => text.push('/'),
        _ => {}
    }
    if counts_lines {
        match text_contents(store, change) {
            Some((before, after)) => {
                let diff = TextDiff::from_lines(&before, &after);
                let count = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count();
                text.push_str(&format!("  +{} -{}", count(ChangeTag::Insert), count(ChangeTag::Delete)));
            }
            None => text.push_str(&format_sizes(change)),
        }
    }
    text
}

/// The sizes of contents that are not text, or too long to show.
fn format_sizes(change: &Change) -> String {
    let size = |entry: &Option<Entry>| match entry {
        Some(Entry::File { size, .. }) => Some(*size),
        _ => None,
    };
    match (size(&change.before), size(&change.after)) {
        (None, None) => String::new(),
        (Some(before), None) => format!("  {} removed", units::format_bytes(before)),
        (None, Some(after)) => format!("  {}", units::format_bytes(after)),
        (Some(before), Some(after)) => {
            format!("  {} -> {}", units::format_bytes(before), units::format_bytes(after))
        }
    }
}

/// Both contents, if they are text that can be shown. Secrets in them are masked.
fn text_contents(store: &Store, change: &Change) -> Option<(String, String)> {
    let text = |entry: &Option<Entry>| match entry {
        Some(Entry::File { digest, size, .. }) => {
            store.load_shown_text(&Blob { digest: *digest, len: *size }, MAX_TEXT)
        }
        Some(Entry::Link { .. }) | None => Some(String::new()),
        Some(Entry::Directory { .. }) => None,
    };
    let is_file = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { .. }));
    if !is_file(&change.before) && !is_file(&change.after) {
        return None;
    }
    Some((text(&change.before)?, text(&change.after)?))
}

/// Prints the changes of a file as a unified diff.
fn print_patch(out: &mut impl Write, store: &Store, change: &Change, room: Room) -> io::Result<()> {
    let is_whole = matches!(change.kind(), ChangeKind::Mode)
        || matches!(&change.after, Some(Entry::File { same_as: Some(_), .. }));
    if is_whole {
        return Ok(());
    }
    let Some((before, after)) = text_contents(store, change) else {
        let sizes = format_sizes(change);
        if !sizes.is_empty() {
            writeln!(out, "    {}", room.paint(DIM, &format!("not shown:{sizes}")))?;
        }
        return Ok(());
    };
    let path = one_line(&change.path.to_string());
    let side = |name: &str, entry: &Option<Entry>| {
        if matches!(entry, Some(Entry::File { .. })) {
            format!("{name}/{path}")
        } else {
            "/dev/null".to_owned()
        }
    };
    let diff = TextDiff::from_lines(&before, &after);
    let mut shown = diff.unified_diff();
    let text = shown
        .context_radius(CONTEXT)
        .header(&side("a", &change.before), &side("b", &change.after))
        .to_string();
    for line in store.hide_secrets(&text).lines() {
        let style = match line.as_bytes().first() {
            _ if line.starts_with("+++") || line.starts_with("---") => BOLD,
            Some(b'+') => Style::new().fg_color(Some(AnsiColor::Green.into())),
            Some(b'-') => Style::new().fg_color(Some(AnsiColor::Red.into())),
            Some(b'@') => Style::new().fg_color(Some(AnsiColor::Cyan.into())),
            _ => Style::new(),
        };
        writeln!(out, "{}", room.paint(style, &harmless(line)))?;
    }
    Ok(())
}

fn changes_as_json(store: &Store, changes: &StepChanges) -> Value {
    let change = |(root, change): (&lobster_runtime::replay::changes::ByteText, &Change)| {
        json!({
            "root": root,
            "path": change.path,
            "kind": change.kind(),
            "before": change.before,
            "after": change.after,
        })
    };
    let mut object = json!({
        "step": changes.step,
        "committed": changes.committed,
        "digest": changes.digest,
        "changes": changes.set.changes().map(change).collect::<Vec<_>>(),
    });
    store.hide_in(&mut object);
    object
}
