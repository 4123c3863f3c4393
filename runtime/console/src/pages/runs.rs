//! The list of runs. A row identifies its run by workflow, title and arguments, and never contains a payload.

use std::collections::HashMap;

use lobster_runtime::digest::Digest;
use lobster_runtime::replay::{Standing, Standings, runs_with_standing};
use lobster_runtime::store::service::ListedStart;
use lobster_runtime::store::{RunFilter, RunId, RunSummary};
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use maud::{Markup, PreEscaped, html};

use crate::shell::{self, RailPage};
use crate::words::{
    clip_line, empty_placeholder, format_ms, running_time, time_in_list, tone_class, url_encode,
};

/// Default number of rows of a page.
const ROWS: usize = 50;

const MOST: usize = 500;

/// Most characters of the arguments, and of an error, in a row.
const SHOWN: usize = 140;

/// A run with the data of its row.
pub(crate) struct Row {
    pub(crate) run: RunSummary,
    start: Option<ListedStart>,
    pub(crate) state: Standing,
    args: String,
}

/// Makes the rows of the runs that the caller may read. `known` is the common state of all runs, if they were selected
/// by it.
pub(crate) fn readable_rows(
    app: &App,
    asked: &Asked,
    runs: Vec<RunSummary>,
    known: Option<Standing>,
) -> Result<Vec<Row>, Problem> {
    let digests: Vec<Digest> = runs.iter().filter_map(|run| run.args).collect();
    let args: HashMap<Digest, String> = app
        .store
        .small_blobs(&digests)
        .unwrap_or_default()
        .into_iter()
        .map(|(digest, bytes)| (digest, format_arguments(&String::from_utf8_lossy(&bytes))))
        .collect();
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    let mut starts = app.service.starts_of(&ids)?;
    let standings = Standings::of_runs(&app.store, if known.is_some() { &[] } else { &runs });
    let mut rows = Vec::with_capacity(runs.len());
    for run in runs {
        let start = starts.remove(&run.id);
        if !asked.may_read(start.as_ref().and_then(|start| start.workflow.as_deref())) {
            continue;
        }
        let state = known.unwrap_or_else(|| standings.standing(&run));
        let known = |digest| args.get(&digest).cloned().unwrap_or_else(|| recorded_arguments(app, &digest));
        let args = run.args.map(known).unwrap_or_default();
        rows.push(Row { run, start, state, args });
    }
    Ok(rows)
}

/// Largest arguments that are shown, in bytes.
const ARGUMENTS: u64 = 1 << 20;

/// The arguments of a run in one line, or why they cannot be read.
pub(crate) fn recorded_arguments(app: &App, digest: &Digest) -> String {
    match app.store.load_blob(digest, ARGUMENTS) {
        Ok(bytes) => format_arguments(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("(cannot be read: {error})"),
    }
}

/// Formats arguments on one line: `day=2026-05-01 limit=20`.
fn format_arguments(text: &str) -> String {
    let Ok(serde_json::Value::Object(args)) = lobster_runtime::json::parse(text) else {
        return clip_line(text, SHOWN);
    };
    let one = |(name, value): (&String, &serde_json::Value)| {
        let value = value.as_str().map_or_else(|| lobster_runtime::json::compact(value), str::to_owned);
        format!("{name}={}", clip_line(&value, 60))
    };
    clip_line(&args.iter().map(one).collect::<Vec<_>>().join("  "), SHOWN)
}

/// Number of rows above which a list omits what its addresses and its heading already contain.
const LONG: usize = 100;

/// Most bytes of markup for the rows of a list.
const ROOM: usize = 96_000;

/// Rows as a list. There may be hundreds, so their markup is small: the style identifies parts by their position.
pub(crate) fn render_list(rows: &[Row], now: i64) -> Markup {
    List::from_rows(rows, None, now).markup
}

/// The rows that fit, with their number.
struct List {
    markup: Markup,
    rows: usize,
}

impl List {
    /// `state` is the state in the heading.
    fn from_rows(rows: &[Row], state: Option<Standing>, now: i64) -> Self {
        let is_long = rows.len() > LONG;
        let said = state.filter(|_| is_long && rows.iter().all(|row| Some(row.state) == state));
        let mut list = String::new();
        let mut shown = 0;
        for row in rows {
            let PreEscaped(item) = render_item(row, (is_long, said.is_some()), now);
            if shown > 0 && list.len() + item.len() > ROOM {
                break;
            }
            list.push_str(&item);
            shown += 1;
        }
        let class = if said.is_some() { "rows lean alike" } else { "rows lean" };
        Self { markup: html! { ul class=(class) { (PreEscaped(list)) } }, rows: shown }
    }
}

fn render_item(row: &Row, (is_long, is_said): (bool, bool), now: i64) -> Markup {
    let run = &row.run;
    let error = run.error.as_deref().filter(|_| row.state == Standing::Failed);
    html! {
        li {
            a href=(format!("/runs/{}", run.id)) {
                @if !is_said { b class=(tone_class(row.state.as_str())) { (row.state.as_str()) } }
                p {
                    (clip_line(&run.name, 90))
                    @if !row.args.is_empty() { i { (row.args) } }
                    @if let Some(error) = error {
                        em { (clip_line(if is_long { short_reason(error) } else { error }, SHOWN)) }
                    } @else if !is_long || row.args.is_empty() {
                        small {
                            (run.id.short_id())
                            @if let Some(start) = &row.start { " · " (start.cause.replace('_', " ")) }
                            @if let Some(actor) = &run.actor { " · " (clip_line(actor, 40)) }
                        }
                    }
                }
                (time_in_list(run.started_at, now))
                @match run.ended_at {
                    Some(end) => (format_ms(end - run.started_at)),
                    None => (running_time(run.started_at, now)),
                }
            }
        }
    }
}

/// The failed step's own message: `no such file` in `workflow command failed (1): no such file`.
fn short_reason(error: &str) -> &str {
    let said = error.strip_prefix("workflow command failed (").and_then(|rest| rest.split_once("): "));
    said.map(|(_, said)| said).filter(|said| !said.trim().is_empty()).unwrap_or(error)
}

/// The state and the name that the request filters by.
fn asked_for(asked: &Asked) -> Result<(Option<Standing>, Option<&str>), Problem> {
    let [status, name] = ["status", "name"].map(|part| asked.query(part).filter(|value| !value.is_empty()));
    let status = status.map(str::parse::<Standing>).transpose();
    Ok((status.map_err(|error| Problem::bad_request(error.to_string()))?, name))
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let (status, name) = asked_for(asked)?;
    let filter = RunFilter {
        status: None,
        name: name.map(str::to_owned),
        since: None,
        before: asked
            .query("before")
            .filter(|text| !text.is_empty())
            .map(|text| app.store.find_run(text))
            .transpose()?,
        limit: asked.query_number("limit", ROWS)?.clamp(1, MOST),
    };
    let found = match status {
        None => app.store.list_runs(&filter)?,
        Some(_) => runs_with_standing(&app.store, &filter, status)?.into_iter().map(|(run, _)| run).collect(),
    };
    let next = found.last().filter(|_| found.len() == filter.limit).map(|run| run.id);
    let is_long = found.len() > LONG;
    shell::full_or_streamed_page(app, asked, "Runs", RailPage::Runs, is_long, move |app, asked| {
        render_page(app, asked, found, next)
    })
}

/// The page of these runs. `next` is the last of them if there are more.
fn render_page(
    app: &App,
    asked: &Asked,
    found: Vec<RunSummary>,
    next: Option<RunId>,
) -> Result<Markup, Problem> {
    let (status, name) = asked_for(asked)?;
    let rows = readable_rows(app, asked, found, status)?;
    let now = app.store.clock_ms();
    let list = List::from_rows(&rows, status, now);
    // Rows that do not fit are on the next page.
    let next = if list.rows < rows.len() { rows.get(list.rows - 1).map(|row| row.run.id) } else { next };
    let address = |status: Option<Standing>, before: Option<String>| {
        let mut parts = Vec::new();
        parts.extend(status.map(|status| format!("status={status}")));
        parts.extend(name.map(|name| format!("name={}", url_encode(name))));
        parts.extend(before.map(|before| format!("before={before}")));
        format!("/runs?{}", parts.join("&"))
    };
    Ok(html! {
        div class="top" { div class="title" { h1 { "Runs" } } }
        div class="filters" {
            nav class="chips" aria-label="State" {
                @for one in [None].into_iter().chain(Standing::ALL.map(Some)) {
                    a href=(address(one, None)) aria-current=[(status == one).then_some("true")] {
                        (one.map_or("all", Standing::as_str))
                    }
                }
            }
            form method="get" action="/runs" class="bar" role="search" {
                @if let Some(status) = status { input type="hidden" name="status" value=(status.as_str()); }
                label class="hide" for="name" { "Name of the workflow" }
                input type="search" id="name" name="name" value=(name.unwrap_or_default()) placeholder="Name of the workflow";
                button { "Filter" }
            }
        }
        section class="card" id="runs" data-live="" {
            h2 class="hide" { @match status { Some(status) => { "Runs with the state " (status.as_str()) }, None => "Runs" } ", newest first" }
            @if rows.is_empty() {
                @if status.is_some() || name.is_some() {
                    (empty_placeholder("No run matches", "Choose another state or name, or list all runs.", None))
                } @else {
                    (empty_placeholder("Nothing has run yet", "Runs of this store appear here, including those started in a terminal.", Some("lobster run examples/inbox-triage/triage.lobster")))
                }
            } @else { (list.markup) }
        }
        nav class="bar" aria-label="More runs" {
            @if asked.query("before").is_some_and(|before| !before.is_empty()) { a class="button" href=(address(status, None)) { "Newest" } }
            @if let Some(next) = next { a class="button" rel="next" href=(address(status, Some(next.to_string()))) { "Older runs" } }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_row(state: Standing, name: &str, args: &str, error: &str) -> Row {
        let status = state.as_str().parse().unwrap();
        let run = RunSummary {
            id: "01a21578-e049-71b5-904e-546e8bee79f0".parse().unwrap(),
            name: name.to_owned(),
            kind: "workflow".to_owned(),
            status,
            mode: "tool".to_owned(),
            actor: None,
            cwd: "/".to_owned(),
            parent: None,
            plan: Digest::of_bytes(b""),
            args: None,
            started_at: 1_790_000_000_000,
            ended_at: Some(1_790_000_012_345),
            output: None,
            error: (!error.is_empty()).then(|| error.to_owned()),
            pinned: false,
            records: 4,
        };
        Row {
            run,
            start: None,
            state,
            args: format_arguments(&serde_json::json!({ "day": args }).to_string()),
        }
    }

    /// Bytes that a page takes around its rows at most.
    const AROUND: usize = 4_000;

    #[test]
    fn pages_of_the_most_rows_stay_below_100_kb() {
        let now = 1_790_000_100_000;
        let error = "workflow command failed (1): no line 95980";
        let rows = |state, text: &str| -> Vec<Row> {
            (0..MOST)
                .map(|_| {
                    sample_row(state, "workflow 7", text, if state == Standing::Failed { error } else { "" })
                })
                .collect()
        };
        for (state, filter) in [
            (Standing::Ok, None),
            (Standing::Ok, Some(Standing::Ok)),
            (Standing::Failed, Some(Standing::Failed)),
        ] {
            let list = List::from_rows(&rows(state, "95  n=95980"), filter, now);
            assert_eq!(list.rows, MOST, "{state}");
            assert!(list.markup.0.len() + AROUND < 100_000, "{state}: {}", list.markup.0.len());
        }
        // For any texts, rows that do not fit are on the next page.
        for text in ["x".repeat(150), "<&\">".repeat(150), "\u{1f980}".repeat(150), "\u{202e}\n".repeat(150)]
        {
            let rows: Vec<Row> =
                (0..MOST).map(|_| sample_row(Standing::Failed, &text, &text, &text)).collect();
            let list = List::from_rows(&rows, None, now);
            assert!((50..MOST).contains(&list.rows), "{}", list.rows);
            assert!(list.markup.0.len() + AROUND < 100_000, "{}", list.markup.0.len());
        }
    }

    #[test]
    fn a_long_list_says_what_its_heading_does_not() {
        let mut rows: Vec<Row> = (0..=LONG).map(|_| sample_row(Standing::Failed, "a", "", "boom")).collect();
        let word = ">failed<";
        assert!(!List::from_rows(&rows, Some(Standing::Failed), 0).markup.0.contains(word));
        assert!(List::from_rows(&rows, None, 0).markup.0.contains(word));
        rows[3].state = Standing::Interrupted;
        assert!(List::from_rows(&rows, Some(Standing::Failed), 0).markup.0.contains(word));
        assert!(List::from_rows(&rows[..LONG], Some(Standing::Failed), 0).markup.0.contains(word));
    }

    #[test]
    fn the_reason_is_what_the_step_said() {
        for (error, said) in [
            ("workflow command failed (1): no such file", "no such file"),
            ("workflow command failed (1): ", "workflow command failed (1): "),
            ("workflow command failed (timeout)", "workflow command failed (timeout)"),
            ("no: workflow command failed (1): x", "no: workflow command failed (1): x"),
        ] {
            assert_eq!(short_reason(error), said);
        }
    }
}
