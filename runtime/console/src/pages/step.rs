//! One step of a run: its command, its output, its changes, and the sandbox's enforcement.

use std::io::Read as _;

use lobster_runtime::figures;
use lobster_runtime::json;
use lobster_runtime::replay::changes::changes_in;
use lobster_runtime::replay::place::is_within;
use lobster_runtime::replay::step_output::{end_of_output, kept_outputs};
use lobster_runtime::replay::{Standing, place_in_plan, read_standing};
use lobster_runtime::store::{Blob, Event, KeptOutput, RunFilter, RunId, RunSummary, StepOutcome};
use lobster_runtime::text::{Count, prefix};
use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, RouteReply, run_of};
use maud::{Markup, html};
use serde_json::Value;

use super::compare;
use super::run::{command_of, pretty_text};
use crate::cache::Cache;
use crate::chart::{self, Bar};
use crate::diff;
use crate::shell::{self, RailPage};
use crate::views;
use crate::words::{clip_line, format_ms, state_label, url_encode};

/// Most bytes of a stream that are shown.
const SHOWN: u64 = 32 << 10;

/// Most runs that are searched for earlier resource use of a step, and most records that one page reads for it.
const HISTORY: usize = 24;
const RECORDS: u64 = 20_000;

/// Cached resource use of steps, by run, number of records and path.
static USED: Cache<(RunId, u64, String), Option<Used>> = Cache::new(1 << 20);

/// Resource use of one attempt of a step.
#[derive(Clone, Copy)]
struct Used {
    duration_us: u64,
    fuel: Option<u64>,
    peak_memory: Option<u64>,
}

/// Largest action that is shown, in bytes.
const ACTION: u64 = 256 << 10;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let path = asked.query("path").unwrap_or_default();
    let run = app.store.run(id)?;
    let is_running = read_standing(&app.store, &run) == Standing::Running;
    let view = views::of_run(&app.store, id, is_running)?;
    let line = views::of_step(&app.store, id, (&view, path), is_running)?.ok_or_else(|| {
        Problem::not_found(format!(
            "run {} has no step {:?} in its record",
            id.short_id(),
            clip_line(path, 200)
        ))
    })?;
    let outcome = line.outcome.as_ref();
    let action = line.action.map(|digest| app.store.load_blob(&digest, ACTION));
    let pre_image: Value = action
        .as_ref()
        .and_then(|action| action.as_ref().ok())
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default();
    let command = command_of(&pre_image);
    let limit = |name: &str| pre_image["limits"][name].as_u64().filter(|limit| *limit > 0);
    let good = compare::last_good(app, asked, &run)?.filter(|_| line.action.is_some());
    let inside: Vec<_> = view
        .lines
        .iter()
        .filter(|other| other.path != path && is_within(&other.path, path))
        .take(200)
        .collect();
    let changed = changes_in(&app.store, &app.store.events_at(id, &view.changes)?);
    let place = views::load_plan(&app.store, &run.plan).and_then(|plan| place_in_plan(&plan, path));
    let waited: i64 =
        line.spans.iter().filter(|span| span.is_wait).filter_map(|span| Some(span.ended? - span.begun)).sum();
    let mut unrecorded = kept_outputs(&app.store, id, Some(path));
    unrecorded.retain(|output| outcome.is_none() && output.path == path);
    let heard = app.tidings.of_run(id).remove(path).filter(|_| outcome.is_none() && unrecorded.is_empty());
    let body = html! {
        header class="stack" id="head" data-live="" data-run=(id) {
            div class="crumbs" { a href="/runs" { "Runs" } "/" a href=(format!("/runs/{id}")) { (clip_line(&run.name, 60)) } "/" span { (clip_line(path, 160)) } }
            div class="title" { h1 { (clip_line(path, 160)) } (state_label(&clip_line(&line.state, 60), true)) }
            dl class="glance" {
                div { dt { "Kind" } dd { (line.kind) } }
                @if let Some(outcome) = outcome {
                    div { dt { "Took" } dd { @if outcome.cached { "nothing: cached" } @else { (figures::format_duration(outcome.duration_us)) } } }
                    @if let Some(exit) = outcome.exit { div { dt { "Exit" } dd { (exit) } } }
                    @if let Some(fuel) = outcome.fuel { div { dt { "Fuel" } dd { (figures::format_count(fuel)) @if let Some(limit) = limit("fuel") { span class="muted" { " of " (figures::format_count(limit)) } (chart::draw_meter(fuel, limit)) } } } }
                    @if let Some(memory) = outcome.peak_memory { div { dt { "Memory" } dd { (figures::format_bytes(memory)) @if let Some(limit) = limit("memory") { span class="muted" { " of " (figures::format_bytes(limit)) } (chart::draw_meter(memory, limit)) } } } }
                }
                @if waited > 0 { div { dt { "Waited for a person" } dd { (format_ms(waited)) } } }
                @if let Some(place) = &place { div { dt { "Defined at" } dd { code { (place.file) ":" (place.line) } } } }
            }
        }
        @if let Some(good) = &good { div class="bar" { a class="button" href=(compare::comparison_url(id, good.id, Some(path))) { "Compare with the last good run" } } }
        @if let Some(error) = outcome.and_then(|outcome| outcome.error.as_ref()) {
            div class="note is-bad" { strong { "Why it failed" } p class="prompt" { (harmless(error)) } @if let Some(code) = outcome.and_then(|outcome| outcome.code.as_ref()) { p class="small" { code { "lobster help " (code) } } } }
        }
        @if let Some(command) = &command {
            section { header { h2 { "Command" } } pre class="out" tabindex="0" { (lobster_runtime::visible::exact(command)) } }
        }
        div class="stack" id="streams" data-live="" {
            @for output in &mut unrecorded { (so_far(output)) }
            @if let Some(said) = heard { section { header { h2 { "So far" } } pre class="out" tabindex="0" { (harmless(&said.to_string())) } } }
            @if let Some(outcome) = outcome {
                @for (name, blob) in outcome_streams(outcome) { (render_stream(app, &id.to_string(), path, name, blob)) }
                @if !outcome.value.is_null() { section { header { h2 { "Result" } } pre class="out" tabindex="0" { (harmless(limit_text(&json::pretty(&outcome.value)))) } } }
            }
        }
        (render_history(app, asked, &run, path)?)
        @if let Err(error) = &changed {
            div class="note is-bad" { strong { "Its changes to files cannot be shown" } p { (harmless(&error.to_string())) } }
        }
        @for one in changed.iter().flatten().filter(|one| is_within(&one.step, path)) {
            section { header { h2 { "Changes to files" } } div class="card pad" { (diff::render_changes(&app.store, one)) } }
        }
        @if !inside.is_empty() {
            section {
                header { h2 { "Inner steps" } }
                table class="table card" { tbody { @for other in &inside {
                    tr { td { a href=(super::run::step_address(id, &other.path)) { (clip_line(&other.path, 120)) } } td { (state_label(&clip_line(&other.state, 60), false)) } }
                } } }
            }
        }
        @if let Some(outcome) = outcome { (render_enforcement(outcome)) }
        @if let Some(digest) = line.action {
            section {
                header { h2 { "Action" } code class="muted small" { "blake3:" (digest) } }
                details { summary { "Everything that determines the step" }
                    @match &action {
                        Some(Ok(bytes)) => pre class="out" tabindex="0" { (harmless(&pretty_text(bytes))) },
                        Some(Err(error)) => div class="note is-bad" { strong { "It is missing from the store" } p { (error.to_string()) } },
                        None => {}
                    }
                }
                @if !line.decision.is_null() { details { summary { "The policy's decision" } pre class="out" tabindex="0" { (harmless(&json::pretty(&line.decision))) } } }
            }
        }
    };
    let title = format!("{} · {}", clip_line(path, 60), clip_line(&run.name, 40));
    Ok(shell::full_page(app, asked, &title, RailPage::Runs, &body))
}

/// Reads the resource use of a step's last attempt in a run.
fn used_by(app: &App, run: RunId, path: &str) -> Result<Option<Used>, Problem> {
    let mut used = None;
    app.store.events_holding(run, &format!("\"path\":{}", json::compact(&path)), |record| {
        if let Event::StepEnded { path: of, outcome, .. } = record.event
            && of == path
            && !outcome.cached
        {
            let StepOutcome { duration_us, fuel, peak_memory, .. } = *outcome;
            used = Some(Used { duration_us, fuel, peak_memory });
        }
        used.is_none()
    })?;
    Ok(used)
}

/// Charts of the step's resource use in the latest runs of the same name, oldest first.
fn render_history(app: &App, asked: &Asked, run: &RunSummary, path: &str) -> Result<Markup, Problem> {
    let filter = RunFilter { name: Some(run.name.clone()), limit: HISTORY, ..RunFilter::default() };
    let others = app.store.list_runs(&filter)?;
    let ids: Vec<RunId> = others.iter().map(|other| other.id).collect();
    let starts = app.service.starts_of(&ids)?;
    let (mut found, mut left) = (Vec::new(), RECORDS);
    for other in others {
        if !asked.may_read(starts.get(&other.id).and_then(|start| start.workflow.as_deref())) {
            continue;
        }
        let key = (other.id, other.records, path.to_owned());
        let used = match USED.get(&key) {
            Some(known) => known,
            None if other.records > left => break,
            None => {
                left -= other.records;
                let used = used_by(app, other.id, path)?;
                USED.put(key, used, 200 + path.len());
                used
            }
        };
        found.extend(used.map(|used| (other.id, used)));
    }
    found.reverse();
    let chart = |title: &str, of: &dyn Fn(&Used) -> Option<u64>, say: &dyn Fn(u64) -> String| {
        let bars: Vec<Bar> = found
            .iter()
            .filter_map(|(id, used)| {
                let size = of(used)?;
                let says = format!("{} of run {}", say(size), id.short_id());
                let href = super::run::step_address(*id, path);
                Some(Bar { href, says, size, tone: if *id == run.id { "is-run" } else { "is-idle" } })
            })
            .collect();
        let most = bars.iter().map(|bar| bar.size).max().unwrap_or(0);
        html! {
            @if bars.len() > 2 && most > 0 {
                div class="card pad" {
                    (chart::draw_bars(&bars, &format!("{title} in {} runs; maximum {}", bars.len(), say(most))))
                    p class="muted small" { (title) ", newest run on the right; maximum " (say(most)) "." }
                }
            }
        }
    };
    Ok(html! {
        @if found.len() > 2 {
            section {
                header { h2 { "In the latest runs" } }
                div class="tiles wide" {
                    (chart("Time", &|used| Some(used.duration_us), &figures::format_duration))
                    (chart("Fuel", &|used| used.fuel, &figures::format_count))
                    (chart("Memory", &|used| used.peak_memory, &figures::format_bytes))
                }
            }
        }
    })
}

fn limit_text(text: &str) -> &str {
    prefix(text, usize::try_from(SHOWN).unwrap_or(usize::MAX), Count::Bytes)
}

/// The streams of an outcome, without duplicates.
pub(crate) fn outcome_streams(outcome: &StepOutcome) -> Vec<(&'static str, Blob)> {
    let all =
        [("stdout", outcome.kept_stdout()), ("output", outcome.output), ("stderr", outcome.kept_stderr())];
    let mut found: Vec<(&'static str, Blob)> = Vec::new();
    for (name, blob) in all {
        if let Some(blob) = blob.filter(|blob| blob.len > 0)
            && !found.iter().any(|(_, known)| known.digest == blob.digest)
        {
            found.push((name, blob));
        }
    }
    found
}

/// The end of a running step's output so far, with both streams in order of arrival.
fn so_far(output: &mut KeptOutput) -> Markup {
    let end = end_of_output(output, None, usize::try_from(SHOWN).unwrap_or(usize::MAX));
    html! {
        section {
            header { h2 { "So far" } @if let Ok((_, size)) = &end { span class="muted small" { (figures::format_bytes(*size)) } } }
            @match end {
                Err(error) => div class="note is-bad" { strong { "It cannot be read" } p { (error) } },
                Ok((bytes, size)) => {
                    pre class="out" tabindex="0" { (harmless(&String::from_utf8_lossy(&bytes))) }
                    @if size > SHOWN { p class="muted small" { "The last " (figures::format_bytes(SHOWN)) " of " (figures::format_bytes(size)) "." } }
                }
            }
        }
    }
}

fn render_stream(app: &App, run: &str, path: &str, name: &str, blob: Blob) -> Markup {
    let mut bytes = Vec::new();
    let read = app
        .store
        .open_blob(&blob.digest)
        .map_err(|error| error.to_string())
        .and_then(|reader| reader.take(SHOWN).read_to_end(&mut bytes).map_err(|error| error.to_string()));
    let href = format!("/runs/{run}/output?path={}&stream={name}", url_encode(path));
    html! {
        section {
            header { h2 { (name) } span class="muted small" { (figures::format_bytes(blob.len)) " · " a href=(href) download { "download" } } }
            @match read {
                Err(error) => div class="note is-bad" { strong { "It is missing from the store" } p { (error) } p { code { "lobster store verify" } " lists all that is missing." } },
                Ok(_) => {
                    pre class="out" tabindex="0" { (harmless(&String::from_utf8_lossy(&bytes))) }
                    @if blob.len > SHOWN { p class="muted small" { "The first " (figures::format_bytes(SHOWN)) " of " (figures::format_bytes(blob.len)) "." } }
                }
            }
        }
    }
}

/// The statement of enforcement: the requested rules, the mechanisms that enforced them, and what this machine cannot
/// enforce.
fn render_enforcement(outcome: &StepOutcome) -> Markup {
    let statement = &outcome.enforcement;
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let rows: Vec<_> =
        statement.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value)).collect();
    html! {
        @if !rows.is_empty() {
            section {
                header { h2 { "Enforced by the sandbox" } span class="muted" { (figures::summarize_enforcement(statement).unwrap_or_default()) } }
                dl class="card pad facts" {
                    @for (name, value) in rows {
                        dt { (name.replace('_', " ")) }
                        dd class=[(["missing", "lacking", "denied"].contains(&name.as_str())).then_some("warn")] {
                            @match value {
                                Value::Array(values) => @for value in values { span { (harmless(&one_of(value))) } },
                                Value::String(text) => (harmless(text)),
                                other => code { (harmless(&json::compact(other))) },
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One entry of a statement: a text, or a rule with the mechanisms that enforced it.
fn one_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(what), Value::Array(by)] => {
                let by: Vec<String> = by.iter().map(one_of).collect();
                format!("{what}: {}", by.join(", "))
            }
            _ => json::compact(value),
        },
        other => json::compact(other),
    }
}
