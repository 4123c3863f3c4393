//! One workflow: its graph, a form that starts it, its latest runs.

use std::path::Path;

use axum::http::StatusCode;
use lobster_runtime::graph::Graph;
use lobster_runtime::schema::Schema;
use lobster_runtime::store::service::Registered;
use lobster_runtime::visible::harmless;
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply, acts};
use lobster_serve::workflows::{self, Content};
use maud::{Markup, html};
use serde_json::{Map, json};

use super::runs::{self, Row};
use crate::chart::{self, Bar};
use crate::fields;
use crate::shell::{self, RailPage};
use crate::words::{empty_placeholder, format_ms, relative_time, tone_class};

/// Most runs of the history.
const HISTORY: usize = 60;

fn find_workflow(app: &App, asked: &Asked) -> Result<Registered, Problem> {
    let name = asked.param("workflow");
    app.service
        .find_workflow(name)?
        .ok_or_else(|| Problem::not_found(format!("no workflow {name:?} is registered")))
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    render_page(app, asked, None)
}

fn render_page(app: &App, asked: &Asked, wrong: Option<&str>) -> Result<RouteReply, Problem> {
    let registered = find_workflow(app, asked)?;
    let content = Content::from_registered(&registered);
    let now = app.store.clock_ms();
    let typed = |name: &str| asked.field(name).map(str::to_owned);
    let candidate = workflows::read_candidate(&app.runtime, Path::new(&registered.path));
    let rows = runs::readable_rows(app, asked, app.service.runs_of(registered.n, HISTORY)?, None)?;
    let schema = fields::schema_of(&content.args);
    let may_write = asked.has_right(Verb::Register, Some(&registered.name))
        && app.files.place_of(Path::new(&registered.path)).is_some();
    let body = html! {
        div class="crumbs" { a href="/workflows" { "Workflows" } "/" span { (registered.name) } }
        div class="top" {
            div class="title" { h1 { (registered.name) } }
            @if may_write { a class="button" href=(format!("/workflows/{}/edit", registered.name)) { "Edit" } }
        }
        @if let Some(about) = &content.description { p class="lead prompt" { (harmless(about)) } }
        @match &candidate {
            Err(why) => div class="note is-bad" { strong { "The file cannot start" } p class="prompt small" { (harmless(why)) } },
            Ok(candidate) if candidate.digest != registered.digest => div class="note is-wait" {
                strong { "The file has changed since it was registered" }
                p { "Its runs are refused until it is registered again: " code { "lobster schedule register " (registered.path) } }
                @if asked.has_right(Verb::Register, Some(&registered.name)) {
                    form method="post" action=(format!("/workflows/{}/register", registered.name)) class="bar" {
                        input type="hidden" name="digest" value=(candidate.digest);
                        button data-confirm="Register this version? From now on it may run." { "Register this version" }
                    }
                }
            },
            Ok(_) => {}
        }
        div class="split" {
            div class="stack" {
                section {
                    header { h2 { "Steps" } code class="muted small" { (registered.path) } }
                    div class="card pad" {
                        @match &candidate {
                            Ok(candidate) => (chart::draw_graph(&Graph::from_workflow(&candidate.workflow, &Map::new()), &|_| None, &|_| None)),
                            Err(_) => p class="muted" { "The file cannot be read now." },
                        }
                    }
                }
                section id="history" data-live="" {
                    header { h2 { "Runs" } }
                    (render_durations(&rows))
                    div class="card" { @if rows.is_empty() { (empty_placeholder("It has not run yet", "Start it with the form, or by its schedule.", None)) } (runs::render_list(&rows[..rows.len().min(10)], now)) }
                }
            }
            div class="stack" {
                @if asked.has_right(Verb::Operate, Some(&registered.name)) {
                    section {
                        h2 { "Start a run" }
                        form method="post" action=(format!("/workflows/{}/runs", registered.name)) class="card pad" data-keep="start" {
                            @if let Some(wrong) = wrong { div class="note is-bad" role="alert" { strong { "Not started" } p { (harmless(wrong)) } } }
                            @if content.args.is_empty() { p class="muted" { "It takes no arguments." } } @else { (fields::render_fields(&schema, &json!({}), &typed)) }
                            button class="primary" { "Start" }
                        }
                    }
                }
                section {
                    h2 { "About" }
                    dl class="card pad facts" {
                        dt { "Registered" } dd { (relative_time(registered.registered_at, now)) @if let Some(by) = &registered.registered_by { " by " (by) } }
                        dt { "Digest" } dd { code { (registered.digest.to_string().get(..16).unwrap_or_default()) } }
                        @for schedule in &content.triggers.schedules { dt { "Schedule" } dd { a href="/schedules" { (schedule.name) } } }
                        @for hook in &content.triggers.webhooks { dt { "Webhook" } dd { code { "/hooks/" (hook.path) } } }
                    }
                }
            }
        }
    };
    Ok(shell::full_page(app, asked, &registered.name, RailPage::Workflows, &body))
}

/// A chart of the durations of the runs, oldest on the left.
fn render_durations(rows: &[Row]) -> Markup {
    let took = |row: &Row| row.run.ended_at.map(|end| (end - row.run.started_at).max(1));
    let Some(longest) = rows.iter().filter_map(took).max().filter(|_| rows.len() > 2) else {
        return html! {};
    };
    let bar = |row: &Row| Bar {
        href: format!("/runs/{}", row.run.id),
        says: format!("{} {}", row.state, took(row).map(format_ms).unwrap_or_default()),
        size: took(row).unwrap_or(1).unsigned_abs(),
        tone: tone_class(row.state.as_str()),
    };
    let bars: Vec<Bar> = rows.iter().rev().map(bar).collect();
    html! {
        div class="card pad" {
            (chart::draw_bars(&bars, &format!("Durations of {} runs; longest {}", rows.len(), format_ms(longest))))
            p class="muted small" { "Durations of its runs, newest on the right; longest " (format_ms(longest)) "." }
        }
    }
}

pub(crate) fn start(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let registered = find_workflow(app, asked)?;
    let content = Content::from_registered(&registered);
    let schema = fields::schema_of(&content.args);
    let typed = |name: &str| asked.field(name).map(str::to_owned);
    let args = match content.args.is_empty() {
        true => Ok(json!({})),
        false => fields::value_of(&schema, &typed),
    };
    let args = args.and_then(|args| {
        let compiled = Schema::compile(&schema).map_err(|error| error.to_string())?;
        compiled.first_error(&args).map_or(Ok(args), |why| Err(why.to_string()))
    });
    let args = match args {
        Ok(args) => args,
        Err(why) => return Ok(render_page(app, asked, Some(&why))?.with_status(StatusCode::BAD_REQUEST)),
    };
    match acts::start_run(app, &asked.with_json(json!({ "args": args }))) {
        Ok(run) => Ok(RouteReply::redirect_to(&format!("/runs/{run}"))),
        Err(problem) => Ok(render_page(app, asked, Some(&problem.detail))?.with_status(problem.status)),
    }
}
