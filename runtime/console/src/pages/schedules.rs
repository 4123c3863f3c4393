//! The schedules with the results of their ticks.

use lobster_runtime::json;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::{ScheduleRow, Tick};
use lobster_runtime::visible::harmless;
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply, acts};
use maud::{Markup, html};

use crate::shell::{self, RailPage};
use crate::words::{empty_placeholder, format_ms, relative_time, state_label, tone_class};

/// Schedules per page.
const PAGE: usize = 50;

/// Most ticks of one strip, and of the table below it.
const STRIP: usize = 90;
const TABLE: usize = 15;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let rows: Vec<ScheduleRow> = app
        .service
        .list_schedules()?
        .into_iter()
        .filter(|row| asked.may_read(Some(&row.workflow_name)))
        .collect();
    let (count, from) = (rows.len(), asked.query_number("from", 0)?);
    let mut all = Vec::new();
    for row in rows.into_iter().skip(from).take(PAGE) {
        let ticks = app.service.list_ticks(row.n, i64::MIN, STRIP)?;
        all.push((row, ticks));
    }
    let body = html! {
        div class="top" { div class="title" { h1 { "Schedules" } } }
        @if all.is_empty() { div class="card" { (empty_placeholder("Nothing is scheduled", "A workflow declares its schedule under `on: schedule:`; register it to list it here.", Some("lobster schedule register report.lobster"))) } }
        @else {
            p class="legend" { @for (word, what) in [("fired", "started"), ("caught_up", "started late"), ("backfilled", "backfilled"), ("missed", "missed"), ("paused", "skipped, paused or superseded")] { span class=(tone_class(word)) { i {} (what) } } }
        }
        div id="schedules" data-live="" class="stack" { @for (row, ticks) in &all { (render_schedule(asked, row, ticks, now)) } }
        @if count > all.len() {
            nav class="bar" aria-label="More schedules" {
                @if from > 0 { a class="button" href=(format!("/schedules?from={}", from.saturating_sub(PAGE))) { "Earlier schedules" } }
                @if from + all.len() < count { a class="button" rel="next" href=(format!("/schedules?from={}", from + PAGE)) { "More schedules" } }
                span class="muted small fig" { (from + 1) "–" (from + all.len()) " of " (count) ", by name" }
            }
        }
    };
    Ok(shell::full_page(app, asked, "Schedules", RailPage::Schedules, &body))
}

fn render_schedule(asked: &Asked, row: &ScheduleRow, ticks: &[Tick], now: i64) -> Markup {
    let address = format!("/schedules/{}/{}", row.workflow_name, row.name);
    html! {
        section class="card pad" data-key=(row.display_name()) {
            header {
                div class="title" { h2 { a href=(format!("/workflows/{}", row.workflow_name)) { (row.display_name()) } } code class="muted" { (describe_due(row)) } }
                div class="bar" {
                    @match (&row.paused, row.next) {
                        (Some((at, by)), _) => span class="muted" { "paused " (relative_time(*at, now)) @if let Some(by) = by { " by " (by) } },
                        (None, Some(next)) => span { "due " (relative_time(next, now)) },
                        (None, None) => span class="muted" { "never due again" },
                    }
                    @if asked.has_right(Verb::Operate, Some(&row.workflow_name)) {
                        @if row.paused.is_some() { form method="post" action=(format!("{address}/resume")) { button { "Resume" } } }
                        @else { form method="post" action=(format!("{address}/pause")) { button { "Pause" } } }
                    }
                }
            }
            @if ticks.is_empty() { p class="muted" { "No tick was due yet." } }
            @else {
                ol class="strip" aria-label=(summarize_ticks(ticks)) {
                    @for tick in ticks.iter().rev() {
                        @let title = format!("{} {}{}", iso(tick.due), tick.state, tick.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default());
                        li {
                            @match tick.run {
                                Some(run) => a href=(format!("/runs/{run}")) class=(tone_class(tick.state.as_str())) title=(title) tabindex="-1" { span class="hide" { (title) } },
                                None => span class=(format!("is-hollow {}", tone_class(tick.state.as_str()))) title=(title) { span class="hide" { (title) } },
                            }
                        }
                    }
                }
                details {
                    summary { "Ledger" }
                    div class="scroll" tabindex="0" { table class="table" {
                        thead { tr { th scope="col" { "Due" } th scope="col" { "Result" } th scope="col" { "Why" } th scope="col" { "Run" } } }
                        tbody { @for tick in ticks.iter().take(TABLE) { tr {
                            td { (relative_time(tick.due, now)) @if tick.count > 1 { " ×" (tick.count) } }
                            td { (state_label(tick.state.as_str(), false)) }
                            td { (harmless(tick.reason.as_deref().unwrap_or_default())) }
                            td { @if let Some(run) = tick.run { a href=(format!("/runs/{run}")) { code { (run.short_id()) } } } }
                        } } }
                    } }
                }
            }
        }
    }
}

/// The due times in a few words.
fn describe_due(row: &ScheduleRow) -> String {
    let spec = json::parse(&row.spec).unwrap_or_default();
    let due = &spec["due"];
    if let Some(ms) = due["every"]["ms"].as_i64() {
        return format!("every {}", format_ms(ms));
    }
    match (due["cron"]["pattern"].as_str(), due["cron"]["timezone"].as_str()) {
        (Some(pattern), Some(zone)) => format!("{pattern} in {zone}"),
        _ => String::new(),
    }
}

fn summarize_ticks(ticks: &[Tick]) -> String {
    let ran = ticks.iter().filter(|tick| tick.run.is_some()).count();
    format!("The last {} entries of its ledger: {ran} ran, {} did not", ticks.len(), ticks.len() - ran)
}

pub(crate) fn pause(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    acts::pause_schedule(app, asked)?;
    Ok(RouteReply::redirect_to("/schedules"))
}

pub(crate) fn resume(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    acts::resume_schedule(app, asked)?;
    Ok(RouteReply::redirect_to("/schedules"))
}
