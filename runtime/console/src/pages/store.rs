//! The content and the integrity of the store.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use lobster_runtime::figures::{format_bytes, format_count};
use lobster_runtime::json;
use lobster_runtime::store::{Store, StoreError, StoreStats, iso};
use lobster_runtime::visible::harmless;
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use lobster_serve::program::{Behalf, Said};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::shell::{self, RailPage};
use crate::words::relative_time;

/// Time limit for reading the whole store.
const PATIENCE: Duration = Duration::from_secs(300);

/// The choice of this server's retention setting.
const RETENTION: &str = "retention";

/// The ages that can be chosen, with their labels.
const AGES: [(&str, &str); 5] = [
    (RETENTION, "the setting LOBSTER_RETENTION of this server"),
    ("7d", "a week ago"),
    ("30d", "30 days ago"),
    ("90d", "90 days ago"),
    ("365d", "a year ago"),
];

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    render_page(app, asked, &html! {}, AGES[0].0)
}

/// Time and result of the last count of a store.
static COUNTED: Cache<PathBuf, (i64, StoreStats)> = Cache::new(8);

/// True while the store is being counted again.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// Age after which a count is repeated, in milliseconds.
const FRESH: i64 = 10_000;

/// Returns the content of the store with the time of counting. Counting reads the whole store, so repeated visits see
/// the last count while a new one is made.
fn counted_last(app: &App) -> Result<(i64, StoreStats), Problem> {
    let Some(known) = COUNTED.get(&app.store.dir().to_owned()) else { return Ok(count_anew(&app.store)?) };
    if app.store.clock_ms() - known.0 > FRESH && !IS_COUNTING.swap(true, Ordering::AcqRel) {
        let store = app.store.clone();
        let counting = std::thread::Builder::new().name("count".to_owned()).spawn(move || {
            let counted = count_anew(&store);
            IS_COUNTING.store(false, Ordering::Release);
            counted.map(drop)
        });
        if counting.is_err() {
            IS_COUNTING.store(false, Ordering::Release);
        }
    }
    Ok(known)
}

fn count_anew(store: &Store) -> Result<(i64, StoreStats), StoreError> {
    let counted = (store.clock_ms(), store.stats()?);
    COUNTED.put(store.dir().to_owned(), counted.clone(), 1);
    Ok(counted)
}

/// The page with a report of the last action, and the age that was chosen for it.
fn render_page(app: &App, asked: &Asked, report: &Markup, chosen: &str) -> Result<RouteReply, Problem> {
    let (at, stats) = counted_last(app)?;
    let now = app.store.clock_ms();
    let is_admin = asked.has_right(Verb::Administer, None);
    let body = html! {
        div class="top" { div class="title" { h1 { "Store" } } code class="muted" { (app.store.dir().display()) } }
        div class="tiles" {
            a class="card tile" href="/runs" { b { (format_count(stats.runs)) } span { "runs" } }
            div class="card tile" { b { (format_count(stats.records)) } span { "records" } }
            a class="card tile" href="/" { b { (format_count(stats.open_gates)) } span { "open questions" } }
            div class="card tile" { b { (format_count(stats.cached_outcomes)) } span { "cached outcomes" } }
            div class="card tile" { b { (format_bytes(stats.blob_bytes)) } span { (format_count(stats.blobs)) " blobs" } }
        }
        @if now - at > FRESH { p class="muted small" { "Counted " (relative_time(at, now)) "; it is being counted again." } }
        (report)
        div class="split" {
            section {
                h2 { "Integrity" }
                div class="card pad" {
                    p { "Reads every record and every blob, follows each chain of digests, and lists what is damaged or missing. It changes nothing." }
                    @if is_admin { form method="post" action="/store/verify" { button class="primary" { "Verify now" } } }
                    @else { p class="muted" { "Only an admin can verify it." } }
                }
            }
            section {
                h2 { "Old runs" }
                div class="card pad" {
                    p { "Waiting, running and pinned runs stay. The runs to be removed are listed first." }
                    @if is_admin {
                        form method="post" action="/store/collect" class="bar" {
                            label for="older-than" { "Ended more than" }
                            select id="older-than" name="older-than" {
                                @for (value, text) in AGES { option value=(value) selected[value == chosen] { (text) } }
                            }
                            button name="act" value="look" { "What would go?" }
                        }
                    } @else { p class="muted" { "Only an admin can remove them." } }
                }
            }
            section {
                h2 { "Copies" }
                div class="card pad" {
                    p { "A copy is a state directory with all that was committed before, questions and users' state included. It is made beside the store: take it to another disk." }
                    @if is_admin { form method="post" action="/store/backup" { button { "Copy now" } } }
                    @else { p class="muted" { "Only an admin can make a copy." } }
                }
            }
            section {
                h2 { "In a terminal" }
                div class="card pad" { @for command in ["store gc --keep 500 --max-size 2G --dry-run", "store backup DIR", "store salvage DIR"] { pre class="cmd" { "lobster " (command) } } }
            }
        }
    };
    Ok(shell::full_page(app, asked, "Store", RailPage::Store, &body))
}

/// Runs a command of lobster.
fn have_done(app: &App, asked: &Asked, words: &[&str]) -> Result<Said, Problem> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let behalf = Behalf::of_person(asked.caller_name().unwrap_or_default(), None);
    app.start_process(app.build_command(&behalf, "/", &words))?.wait_for_exit(PATIENCE, || false).ok_or_else(|| {
        let command = words.iter().filter(|word| *word != "--json").cloned().collect::<Vec<_>>().join(" ");
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "slow",
            format!("the store is too large for a page, and the command continues in the background; in a terminal, `lobster {command}` shows its result"),
        )
    })
}

/// Records who requests an action before it is done.
fn record_request(app: &App, asked: &Asked, verb: &str, detail: Value) -> Result<(), Problem> {
    let store = app.store.dir().display().to_string();
    Ok(app.service.record_deed(verb, &store, (asked.caller_name(), &asked.caller_origin()), detail)?)
}

/// A report that can be unfolded.
fn render_report(is_good: bool, title: &str, said: &Said) -> Markup {
    let report =
        json::parse(&said.out).map(|report| json::pretty(&report)).unwrap_or_else(|_| said.failure_reason());
    html! {
        div class=(if is_good { "note is-ok" } else { "note is-bad" }) role="status" {
            strong { (title) }
            details open[!is_good] { summary { "The report" } pre class="out" tabindex="0" { (harmless(&report)) } }
        }
    }
}

pub(crate) fn verify(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let said = have_done(app, asked, &["store", "verify", "--json"])?;
    let is_whole = said.code == Some(0);
    let title = if is_whole { "The store is whole" } else { "The store is damaged" };
    render_page(app, asked, &render_report(is_whole, title, &said), AGES[0].0)
}

/// Shows which runs would be removed, and removes them after that.
pub(crate) fn collect(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let age = asked.field("older-than").unwrap_or_default();
    let Some((age, text)) = AGES.into_iter().find(|(value, _)| *value == age) else {
        return Err(Problem::bad_request("choose an age from the list"));
    };
    let removes = match asked.field("act") {
        Some("look") => false,
        Some("remove") => true,
        _ => return Err(Problem::bad_request("list the runs first, then remove them")),
    };
    let mut words = vec!["store", "gc"];
    if age == RETENTION {
        words.push("--retention");
    } else {
        words.extend(["--older-than", age]);
    }
    if removes {
        record_request(app, asked, "remove-runs", json!({ "olderThan": age }))?;
    } else {
        words.push("--dry-run");
    }
    let said = have_done(app, asked, &words)?;
    if said.code != Some(0) {
        return render_page(app, asked, &render_report(false, "Nothing was removed", &said), age);
    }
    if removes {
        count_anew(&app.store)?;
    }
    // The command prints its result on one line.
    let line = said.out.trim();
    let what = line.strip_prefix(if removes { "removed " } else { "would remove " }).unwrap_or(line);
    let report = html! {
        div class=(if removes { "note is-ok" } else { "note is-wait" }) role="status" {
            strong { @if removes { "Removed: " (what) } @else { "Would go: " (what) } }
            p class="muted" { (text) }
            @if !removes {
                form method="post" action="/store/collect" {
                    input type="hidden" name="older-than" value=(age);
                    button name="act" value="remove" class="danger" { "Remove them" }
                }
            }
        }
    };
    render_page(app, asked, &report, age)
}

/// Makes a copy of the store next to it.
pub(crate) fn backup(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let state = app.store.dir().parent().unwrap_or_else(|| app.store.dir());
    let copies = copies_dir(state);
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&copies);
    made.map_err(|why| {
        let why = format!("{} cannot be made: {why}", copies.display());
        Problem::failed(why)
    })?;
    let target = copies.join(iso(app.store.clock_ms()).replace(':', "-"));
    let target = target.display().to_string();
    record_request(app, asked, "copy-store", json!({ "to": target }))?;
    let said = have_done(app, asked, &["store", "backup", "--json", "--", &target])?;
    let title = match said.code {
        Some(0) => format!("A copy is in {target}"),
        _ if Path::new(&target).exists() => format!("A copy without the damaged parts is in {target}"),
        _ => "No copy was made".to_owned(),
    };
    render_page(app, asked, &render_report(said.code == Some(0), &title, &said), AGES[0].0)
}

/// The directory of copies of a state directory: `.lobster-copies` for `.lobster`.
fn copies_dir(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push("-copies");
    state.with_file_name(name)
}
