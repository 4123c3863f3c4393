//! The first page: what waits for a person, what runs, what failed lately, what is due.

use lobster_runtime::engine::{QuestionKind, QuestionView};
use lobster_runtime::store::service::StartState;
use lobster_runtime::store::{Gate, GateFilter, GateStatus, RunFilter, RunStatus};
use lobster_serve::http::{App, Asked, Problem, Reply, workflow_of_run};
use maud::{Markup, html};

use super::runs;
use crate::shell::{self, Place};
use crate::words::{empty, short, state, time};

/// Rows of each part.
const ROWS: usize = 20;

/// Failures are shown for so long, in milliseconds.
const LATELY: i64 = 3 * 86_400_000;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let now = app.store.clock_ms();
    let of = |status, since| -> Result<_, Problem> {
        let filter = RunFilter { status: Some(status), since, limit: ROWS, ..RunFilter::default() };
        runs::rows(app, asked, app.store.runs(&filter)?)
    };
    let running = of(RunStatus::Running, None)?;
    let failed = of(RunStatus::Failed, Some(now - LATELY))?;
    let (stuck, running): (Vec<_>, Vec<_>) = running.into_iter().partition(|row| row.state == "interrupted");
    let body = html! {
        div class="top" { div class="title" { h1 { "Now" } } }
        div class="split" {
            div class="stack" {
                (questions(app, asked, now)?)
                section id="running" data-live="" {
                    header { h2 { "Running" } a href="/runs?status=running" class="muted small" { "all" } }
                    div class="card calm" {
                        @if running.is_empty() { (empty("Nothing is running", "Start a workflow from its page, or in a terminal.", None)) }
                        @else { (runs::list(&running, now)) }
                    }
                }
                @if !stuck.is_empty() {
                    section id="stuck" {
                        header { h2 { "Interrupted" } }
                        div class="card calm" { (runs::list(&stuck, now)) }
                    }
                }
                section id="failed" data-live="" {
                    header { h2 { "Failed in the last three days" } a href="/runs?status=failed" class="muted small" { "all" } }
                    div class="card calm" {
                        @if failed.is_empty() { (empty("Nothing failed", "Runs that fail appear here with their error.", None)) }
                        @else { (runs::list(&failed, now)) }
                    }
                }
            }
            div class="stack" {
                (queued(app, asked, now)?)
                (due(app, asked, now)?)
            }
        }
    };
    Ok(shell::page(app, asked, "Now", Place::Now, &body))
}

fn questions(app: &App, asked: &Asked, now: i64) -> Result<Markup, Problem> {
    let filter = GateFilter { status: Some(GateStatus::Open), run: None, limit: 200 };
    let mut gates: Vec<Gate> = Vec::new();
    for gate in app.store.gates(&filter)? {
        if asked.may_read(workflow_of_run(app, gate.run)?.as_deref()) {
            gates.push(gate);
        }
    }
    Ok(html! {
        section id="questions" data-live="" {
            header { h2 { "Waiting for you" } }
            div class="card calm" {
                @if gates.is_empty() { (empty("No question is open", "A run that needs a person stops, and its question appears here.", None)) }
                ul class="rows" {
                    @for gate in &gates { li data-key=(gate.id) { (question(app, gate, now)) } }
                }
            }
        }
    })
}

fn question(app: &App, gate: &Gate, now: i64) -> Markup {
    let view = QuestionView::of_gate(&app.store, gate).ok();
    let prompt = view.as_ref().map(|view| view.prompt.clone()).unwrap_or_default();
    let kind = match view.as_ref().map(|view| view.kind) {
        Some(QuestionKind::Policy) => "policy asks",
        Some(QuestionKind::Input) => "input",
        Some(QuestionKind::Approval) | None => "approval",
    };
    let asks = view.as_ref().and_then(|view| view.facts.iter().find(|fact| fact.label == "asked by"));
    let asks = asks.and_then(|fact| fact.values.first().cloned()).unwrap_or_default();
    html! {
        a class="row" href=(format!("/questions/{}", gate.id)) {
            (state("waiting", false))
            span class="what" {
                span class="name clip" { (short(&prompt, 200)) }
                span class="muted small clip" {
                    (kind) " · " (short(&asks, 90))
                    @if let Some(view) = &view { @if view.count() > 1 { " · " (view.count()) " items" } }
                }
            }
            span class="when" {
                (time(gate.created_at, now))
                @if let Some(until) = gate.expires_at { br; "until " (time(until, now)) }
            }
        }
    }
}

fn queued(app: &App, asked: &Asked, now: i64) -> Result<Markup, Problem> {
    let mut rows = Vec::new();
    for start in app.service.starts(false, ROWS)? {
        let workflow = app.service.workflow_by_number(start.workflow)?.map(|workflow| workflow.name);
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
                            (state(start.state.as_str(), false))
                            span class="what" { span class="name clip" { (workflow) } span class="muted small clip" { (start.cause.replace('_', " ")) } }
                            span class="when" { (time(start.queued_at, now)) }
                        } }
                    }
                }
            }
        }
    })
}

fn due(app: &App, asked: &Asked, now: i64) -> Result<Markup, Problem> {
    let mut rows: Vec<_> = app
        .service
        .schedules()?
        .into_iter()
        .filter(|row| row.paused.is_none() && asked.may_read(Some(&row.workflow_name)))
        .filter_map(|row| Some((row.next?, row)))
        .collect();
    rows.sort_by_key(|(next, _)| *next);
    Ok(html! {
        section id="due" data-live="" {
            header { h2 { "Due next" } a href="/schedules" class="muted small" { "schedules" } }
            div class="card calm" {
                @if rows.is_empty() { (empty("Nothing is scheduled", "A workflow says when it starts under `on:`.", Some("lobster schedule register FILE"))) }
                @else {
                    table class="table" {
                        thead { tr { th scope="col" { "Workflow" } th scope="col" class="num" { "Due" } } }
                        tbody {
                            @for (next, row) in rows.iter().take(8) {
                                tr { td { a href=(format!("/workflows/{}", row.workflow_name)) { (row.title()) } } td class="num" { (time(*next, now)) } }
                            }
                        }
                    }
                }
            }
        }
    })
}
