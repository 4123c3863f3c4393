//! The first page: open questions, running runs, recent failures, due ticks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::header;
use lobster_runtime::digest::Digest;
use lobster_runtime::engine::{QuestionKind, QuestionView};
use lobster_runtime::replay::Standing;
use lobster_runtime::store::service::StartState;
use lobster_runtime::store::{Gate, GateFilter, GateStatus, RunFilter, RunId, RunStatus};
use lobster_serve::http::{App, Asked, Problem, RouteReply, acts};
use maud::{Markup, html};

use super::runs;
use crate::cache::Cache;
use crate::shell::{self, RailPage};
use crate::words::{clip_line, empty_placeholder, relative_time, state_label};

/// Most rows of each part.
const ROWS: usize = 20;

/// Most questions that are shown, and most that are counted.
const QUESTIONS: usize = 50;
const COUNTED: usize = 200;

/// Most schedules that are searched for those that the caller may read.
const DUE: usize = 200;

/// Time for which failures are shown, in milliseconds.
const LATELY: i64 = 3 * 86_400_000;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let of = |status, since| -> Result<_, Problem> {
        let filter = RunFilter { status: Some(status), since, limit: ROWS, ..RunFilter::default() };
        runs::readable_rows(app, asked, app.store.list_runs(&filter)?, None)
    };
    let is_stuck = |row: &runs::Row| row.state == Standing::Interrupted;
    let (mut stuck, running): (Vec<_>, Vec<_>) =
        of(RunStatus::Running, None)?.into_iter().partition(is_stuck);
    let (cut_off, failed): (Vec<_>, Vec<_>) =
        of(RunStatus::Failed, Some(now - LATELY))?.into_iter().partition(is_stuck);
    stuck.extend(of(RunStatus::Waiting, None)?.into_iter().filter(is_stuck));
    stuck.extend(cut_off);
    stuck.sort_by_key(|row| std::cmp::Reverse((row.run.started_at, row.run.id)));
    let body = html! {
        div class="top" { div class="title" { h1 { "Now" } } }
        div class="split" {
            div class="stack" {
                (render_approvals(app, asked, now)?)
                section id="running" data-live="" {
                    header { h2 { "Running" } a href="/runs?status=running" class="muted small" { "all" } }
                    div class="card calm" {
                        @if running.is_empty() { (empty_placeholder("Nothing is running", "Start a workflow from its page, or in a terminal.", None)) }
                        @else { (runs::render_list(&running, now)) }
                    }
                }
                @if !stuck.is_empty() {
                    section id="stuck" {
                        header { h2 { "Interrupted" } }
                        div class="card calm" { (runs::render_list(&stuck, now)) }
                    }
                }
                section id="failed" data-live="" {
                    header { h2 { "Failed in the last three days" } a href="/runs?status=failed" class="muted small" { "all" } }
                    div class="card calm" {
                        @if failed.is_empty() { (empty_placeholder("Nothing failed", "Runs that fail appear here with their error.", None)) }
                        @else { (runs::render_list(&failed, now)) }
                    }
                }
            }
            div class="stack" {
                (render_queue(app, asked, now)?)
                (render_due(app, asked, now)?)
                @if could_have_passkey(app, asked)? {
                    p class="muted small js-only" { a href="/passkeys" { "Add a passkey" } ", and this device logs you in." }
                }
            }
        }
    };
    Ok(shell::full_page(app, asked, "Now", RailPage::Now, &body))
}

/// True if the viewer has no passkey, may add one, and the address of the server is a name.
fn could_have_passkey(app: &App, asked: &Asked) -> Result<bool, Problem> {
    let host = asked.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let has_name = host.parse::<SocketAddr>().is_err() && host.parse::<IpAddr>().is_err();
    Ok(has_name && acts::may_add_passkey(app, asked) && acts::passkeys_of(app, asked)?.is_empty())
}

fn render_approvals(app: &App, asked: &Asked, now: i64) -> Result<Markup, Problem> {
    let asking = app.store.runs_that_ask(COUNTED)?;
    let starts = app.service.starts_of(&asking)?;
    let may = |run: &RunId| asked.may_read(starts.get(run).and_then(|start| start.workflow.as_deref()));
    let open = asking.iter().filter(|run| may(run)).count();
    let filter = GateFilter { status: Some(GateStatus::Open), run: None, limit: QUESTIONS };
    let mut gates = app.store.list_approvals(&filter)?;
    gates.retain(|gate| may(&gate.run));
    Ok(html! {
        section id="questions" data-live="" {
            header { h2 { "Waiting for you" } }
            div class="card calm" {
                @if gates.is_empty() { (empty_placeholder("No question is open", "A run that needs a person stops, and its question appears here.", None)) }
                ul class="rows" {
                    @for gate in &gates { li data-key=(gate.id) { (render_approval(app, gate, now)) } }
                }
                @if open > gates.len() {
                    p class="muted small pad" { "and " (open - gates.len()) @if asking.len() == COUNTED { " or more" } " that came earlier; they move up when these are answered. " code { "lobster approvals" } " lists all." }
                }
            }
        }
    })
}

/// The data of a question in the list.
struct Asks {
    kind: &'static str,
    prompt: String,
    by: String,
    items: usize,
}

/// Cached list data of questions, by question and binding, for which it never changes.
static ASKED: Cache<(String, Digest), Arc<Asks>> = Cache::new(1 << 20);

fn asked_in(app: &App, gate: &Gate) -> Arc<Asks> {
    let key = (gate.id.clone(), gate.binding);
    if let Some(known) = ASKED.get(&key) {
        return known;
    }
    let view = QuestionView::of_gate(&app.store, gate).ok();
    let kind = match view.as_ref().map(|view| view.kind) {
        Some(QuestionKind::Policy) => "policy asks",
        Some(QuestionKind::Input) => "input",
        Some(QuestionKind::Approval) | None => "approval",
    };
    let by = view.as_ref().and_then(|view| view.facts.iter().find(|fact| fact.label == "asked by"));
    let asks = Arc::new(Asks {
        kind,
        prompt: view.as_ref().map(|view| clip_line(&view.prompt, 200)).unwrap_or_default(),
        by: by.and_then(|fact| fact.values.first()).map(|by| clip_line(by, 90)).unwrap_or_default(),
        items: view.as_ref().map_or(0, QuestionView::item_count),
    });
    if view.is_some() {
        ASKED.put(key, Arc::clone(&asks), 200 + asks.prompt.len() + asks.by.len());
    }
    asks
}

fn render_approval(app: &App, gate: &Gate, now: i64) -> Markup {
    let asks = asked_in(app, gate);
    html! {
        a class="row" href=(format!("/questions/{}", gate.id)) {
            (state_label("waiting", false))
            span class="what" {
                span class="name clip" { (asks.prompt) }
                span class="muted small clip" {
                    (asks.kind) " · " (asks.by)
                    @if asks.items > 1 { " · " (asks.items) " items" }
                }
            }
            span class="when" {
                (relative_time(gate.created_at, now))
                @if let Some(until) = gate.expires_at { br; "until " (relative_time(until, now)) }
            }
        }
    }
}

fn render_queue(app: &App, asked: &Asked, now: i64) -> Result<Markup, Problem> {
    let mut rows = Vec::new();
    let starts = app.service.list_starts(false, ROWS)?;
    let ids: Vec<RunId> = starts.iter().map(|start| start.run).collect();
    let mut names = app.service.starts_of(&ids)?;
    for start in starts {
        let workflow = names.remove(&start.run).and_then(|start| start.workflow);
        if asked.may_read(workflow.as_deref()) && start.state == StartState::Queued {
            rows.push((start, workflow.unwrap_or_default()));
        }
    }
    Ok(html! {
        @if !rows.is_empty() {
            section id="queue" data-live="" {
                header { h2 { "In the queue" } }
                ul class="card rows" {
                    @for (start, workflow) in &rows {
                        li { a class="row" href=(format!("/runs/{}", start.run)) {
                            (state_label(start.state.as_str(), false))
                            span class="what" { span class="name clip" { (workflow) } span class="muted small clip" { (start.cause.replace('_', " ")) } }
                            span class="when" { (relative_time(start.queued_at, now)) }
                        } }
                    }
                }
            }
        }
    })
}

fn render_due(app: &App, asked: &Asked, now: i64) -> Result<Markup, Problem> {
    let rows: Vec<_> = app
        .service
        .next_schedules(DUE)?
        .into_iter()
        .filter(|row| asked.may_read(Some(&row.workflow_name)))
        .filter_map(|row| Some((row.next?, row)))
        .collect();
    Ok(html! {
        section id="due" data-live="" {
            header { h2 { "Due next" } a href="/schedules" class="muted small" { "schedules" } }
            div class="card calm" {
                @if rows.is_empty() { (empty_placeholder("Nothing is due", "A workflow declares under `on:` when it starts. Paused schedules are not due.", Some("lobster schedule register FILE"))) }
                @else {
                    table class="table" {
                        thead { tr { th scope="col" { "Workflow" } th scope="col" class="num" { "Due" } } }
                        tbody {
                            @for (next, row) in rows.iter().take(8) {
                                tr { td { a href=(format!("/workflows/{}", row.workflow_name)) { (row.display_name()) } } td class="num" { (relative_time(*next, now)) } }
                            }
                        }
                    }
                }
            }
        }
    })
}
