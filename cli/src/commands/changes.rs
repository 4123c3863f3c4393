//! `lobster changes`

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::replay::changes::{Change, ChangeKind, Entry, StepChanges, changes_of_run};
use lobster_runtime::replay::place::is_within;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::Store;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::pager::Output;
use crate::render::question::{BOLD, DIM};
use crate::render::table::Room;
use crate::render::{harmless, one_line, units};
use crate::which;

/// Shows the changes to files that a run made or proposed.
///
/// Only steps with `changes: staged` or `changes: review` record their changes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster changes @                        the files, deletions first
  lobster changes @ fix --patch            what changed in them, as a diff
  lobster changes @ --json | jq -r '.[].changes[].path'")]
pub(crate) struct Args {
    /// The run: an id, @ for the last run, @- for the one before, or NAME@- for the last run of that name.
    run: Option<String>,
    /// Only this step and the steps inside it. The path of the step as `lobster show` prints it.
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

/// Larger contents are told by their sizes.
const MAX_TEXT: u64 = 1 << 20;

/// Lines around a change.
const CONTEXT: usize = 3;

/// Files that programs write and nobody reads line by line: they come last.
const GENERATED: [&str; 9] = [
    "Cargo.lock",
    "Gemfile.lock",
    "composer.lock",
    "go.sum",
    "package-lock.json",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
    "yarn.lock",
];

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let id = which::run_or_ask(&store, args.run.as_deref(), "show the changes of")?;
    let mut found = changes_of_run(&store, id).map_err(CommandError::failed)?;
    found.retain(|changes| args.step.as_ref().is_none_or(|step| is_within(&changes.step, step)));
    let mut out = Output::for_reader(args.json);
    if args.json {
        let all: Vec<Value> = found.iter().map(object).collect();
        writeln!(out, "{}", json::pretty(&all))?;
        out.flush()?;
        return Ok(Exit::OK);
    }
    if found.is_empty() {
        let what = args.step.as_ref().map_or("The run".to_owned(), |step| format!("Step {}", one_line(step)));
        writeln!(
            out,
            "{what} has no recorded changes to files; only steps with `changes: staged` or `changes: review` \
             record them."
        )?;
        out.flush()?;
        return Ok(Exit::OK);
    }
    let room = Room::of_stdout();
    for changes in &found {
        print_step(&mut out, &store, changes, args, room)?;
    }
    out.flush()?;
    Ok(Exit::OK)
}

/// Deletions first, then modes, links and contents; what programs wrote for themselves last.
pub(crate) fn in_reading_order<'c>(
    changes: impl Iterator<Item = (String, &'c Change)>,
) -> Vec<(String, &'c Change)> {
    let mut changes: Vec<_> = changes.collect();
    changes.sort_by_cached_key(|(root, change)| {
        let path = change.path.to_string();
        let is_generated = GENERATED.contains(&path.rsplit('/').next().unwrap_or_default());
        let rank = match change.kind() {
            ChangeKind::Delete => 0,
            ChangeKind::Mode => 1,
            ChangeKind::Create if is_executable(change.after.as_ref()) => 2,
            ChangeKind::Link => 3,
            ChangeKind::Modify => 4,
            ChangeKind::Create => 5,
        };
        (is_generated, rank, root.clone(), path)
    });
    changes
}

fn is_executable(entry: Option<&Entry>) -> bool {
    matches!(entry, Some(Entry::File { mode, .. }) if mode & 0o111 != 0)
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
    let head = format!("{}: {}{state}", one_line(&changes.step), units::counted(count, "change"));
    writeln!(out, "{}", room.paint(BOLD, &head))?;
    for (root, change) in
        in_reading_order(changes.set.changes().map(|(root, change)| (root.to_string(), change)))
    {
        writeln!(out, "  {}", line(store, &root, change, args.stat))?;
        if args.patch {
            print_patch(out, store, change, room)?;
        }
    }
    Ok(())
}

/// One change in one line.
pub(crate) fn line(store: &Store, root: &str, change: &Change, counts_lines: bool) -> String {
    let mark = match change.kind() {
        ChangeKind::Create => "new     ",
        ChangeKind::Modify => "modified",
        ChangeKind::Delete => "deleted ",
        ChangeKind::Mode => "mode    ",
        ChangeKind::Link => "link    ",
    };
    let mut text = format!("{mark}  {}/{}", one_line(root), one_line(&change.path.to_string()));
    match (&change.before, &change.after) {
        (_, Some(Entry::Link { target })) => text.push_str(&format!(" -> {}", one_line(&target.to_string()))),
        (_, Some(Entry::File { same_as: Some(other), .. })) => {
            text.push_str(&format!(" = {}", one_line(&other.to_string())));
        }
        (Some(before), Some(after)) if mode(before) != mode(after) => {
            text.push_str(&format!("  {:04o} -> {:04o}", mode(before), mode(after)));
        }
        (None, after @ Some(_)) if is_executable(after.as_ref()) => text.push_str("  executable"),
        (_, Some(Entry::Directory { .. })) | (Some(Entry::Directory { .. }), None) => text.push('/'),
        _ => {}
    }
    if counts_lines {
        match texts(store, change) {
            Some((before, after)) => {
                let diff = TextDiff::from_lines(&before, &after);
                let count = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count();
                text.push_str(&format!("  +{} -{}", count(ChangeTag::Insert), count(ChangeTag::Delete)));
            }
            None => text.push_str(&sizes(change)),
        }
    }
    text
}

fn mode(entry: &Entry) -> u32 {
    match entry {
        Entry::File { mode, .. } | Entry::Directory { mode } => *mode,
        Entry::Link { .. } => 0o777,
    }
}

/// The sizes of contents that are not text, or too long to be shown.
fn sizes(change: &Change) -> String {
    let size = |entry: &Option<Entry>| match entry {
        Some(Entry::File { size, .. }) => Some(*size),
        _ => None,
    };
    match (size(&change.before), size(&change.after)) {
        (None, None) => String::new(),
        (Some(before), None) => format!("  {} removed", units::bytes(before)),
        (None, Some(after)) => format!("  {}", units::bytes(after)),
        (Some(before), Some(after)) => format!("  {} -> {}", units::bytes(before), units::bytes(after)),
    }
}

/// Both contents, if they are text that can be shown. Secrets in them are hidden.
fn texts(store: &Store, change: &Change) -> Option<(String, String)> {
    let text = |entry: &Option<Entry>| match entry {
        Some(Entry::File { digest, size, .. }) => text_of(store, digest, *size),
        Some(Entry::Link { .. }) | None => Some(String::new()),
        Some(Entry::Directory { .. }) => None,
    };
    let is_file = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { .. }));
    if !is_file(&change.before) && !is_file(&change.after) {
        return None;
    }
    Some((text(&change.before)?, text(&change.after)?))
}

fn text_of(store: &Store, digest: &Digest, size: u64) -> Option<String> {
    if size > MAX_TEXT {
        return None;
    }
    let text = String::from_utf8(store.load(digest, MAX_TEXT).ok()?).ok()?;
    (!text.contains('\0')).then(|| store.hide(&text).into_owned())
}

/// What changed in a file, as a unified diff.
fn print_patch(out: &mut impl Write, store: &Store, change: &Change, room: Room) -> io::Result<()> {
    let is_whole = matches!(change.kind(), ChangeKind::Mode)
        || matches!(&change.after, Some(Entry::File { same_as: Some(_), .. }));
    if is_whole {
        return Ok(());
    }
    let Some((before, after)) = texts(store, change) else {
        let sizes = sizes(change);
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
    for line in text.lines() {
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

fn object(changes: &StepChanges) -> Value {
    let change = |(root, change): (&lobster_runtime::replay::changes::ByteText, &Change)| {
        json!({
            "root": root,
            "path": change.path,
            "kind": change.kind(),
            "before": change.before,
            "after": change.after,
        })
    };
    json!({
        "step": changes.step,
        "committed": changes.committed,
        "digest": changes.digest,
        "changes": changes.set.changes().map(change).collect::<Vec<_>>(),
    })
}
