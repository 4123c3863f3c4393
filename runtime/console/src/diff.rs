//! Changes to files, as a page shows them.

use std::time::Duration;

use lobster_runtime::figures::format_bytes;
use lobster_runtime::replay::changes::{Change, Entry, StepChanges};
use lobster_runtime::store::{Blob, Store};
use lobster_runtime::visible::{harmless, one_line};
use maud::{Markup, html};
use similar::TextDiff;

/// Longest content that is shown, in bytes; for longer ones, only the size is shown.
const MAX_TEXT: u64 = 256 << 10;

/// Time limit for finding the shortest difference.
const PATIENCE: Duration = Duration::from_millis(300);

/// Most files of one step that are shown, and most lines of each.
const FILES: usize = 50;
const LINES: usize = 400;

pub(crate) fn render_changes(store: &Store, changes: &StepChanges) -> Markup {
    let all: Vec<_> = changes.set.changes().collect();
    html! {
        div class="stack" {
            p class="muted" {
                (lobster_runtime::figures::count_noun(all.len() as u64, "change"))
                @if changes.committed { ", committed" } @else { ", not committed" }
            }
            @for (root, change) in all.iter().take(FILES) {
                @let path = format!("{root}/{}", change.path);
                @let path = store.hide_secrets(&path);
                details open[all.len() <= 5] {
                    summary { (change.kind().as_str()) " " code { (one_line(&path)) } }
                    (render_patch(store, change))
                }
            }
            @if all.len() > FILES { p class="muted" { "… and " (all.len() - FILES) " more; " code { "lobster changes" } " lists all." } }
        }
    }
}

fn render_patch(store: &Store, change: &Change) -> Markup {
    let (Some(before), Some(after)) =
        (shown_text(store, change.before.as_ref()), shown_text(store, change.after.as_ref()))
    else {
        return html! { p class="muted" { "Not shown: " (describe_size(store, change.before.as_ref())) " → " (describe_size(store, change.after.as_ref())) } };
    };
    compare_texts(&before, &after)
}

/// The difference between two texts, line by line.
pub(crate) fn compare_texts(before: &str, after: &str) -> Markup {
    // Texts with nothing in common get a rough difference instead of a slow one.
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(before, after);
    let shown = diff.unified_diff().context_radius(3).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    html! {
        pre class="out diff" tabindex="0" {
            @for line in lines.iter().take(LINES) {
                @let class = match line.as_bytes().first() { Some(b'+') => "add", Some(b'-') => "del", Some(b'@') => "hunk", _ => "" };
                span class=[(!class.is_empty()).then_some(class)] { (harmless(line)) "\n" }
            }
            @if lines.len() > LINES { span class="hunk" { "… " (lines.len() - LINES) " more lines" } }
        }
    }
}

fn describe_size(store: &Store, entry: Option<&Entry>) -> String {
    match entry {
        Some(Entry::File { size, .. }) => format_bytes(*size),
        Some(Entry::Directory { .. }) => "a directory".to_owned(),
        Some(Entry::Link { target, .. }) => {
            format!("a link to {}", one_line(&store.hide_secrets(&target.to_string())))
        }
        None => "nothing".to_owned(),
    }
}

/// The content of a file, if it can be shown.
fn shown_text(store: &Store, entry: Option<&Entry>) -> Option<String> {
    match entry {
        Some(Entry::File { digest, size, .. }) => {
            store.load_shown_text(&Blob { digest: *digest, len: *size }, MAX_TEXT)
        }
        Some(Entry::Link { .. }) | None => Some(String::new()),
        Some(Entry::Directory { .. }) => None,
    }
}
