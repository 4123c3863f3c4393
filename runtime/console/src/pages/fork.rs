//! A fork: the choices, the steps that would run again with their cost, and starting the fork.

use std::time::Duration;

use axum::http::StatusCode;
use lobster_runtime::figures;
use lobster_runtime::json;
use lobster_runtime::language::plan::Plan;
use lobster_runtime::runtime::load_recorded;
use lobster_runtime::store::{RunFilter, RunId, RunSummary};
use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, RouteReply, run_of};
use lobster_serve::program::Behalf;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::fields;
use crate::shell::{self, RailPage};
use crate::views;
use crate::words::clip_line;

/// Time limit for the plan of a fork and for its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The choices for a fork of a run: its steps and arguments.
struct Source {
    id: RunId,
    run: RunSummary,
    steps: Vec<String>,
    schema: Value,
    args: Value,
}

fn source(app: &App, asked: &Asked) -> Result<Source, Problem> {
    let id = run_of(app, asked)?;
    let run = app.store.run(id)?;
    let plan: Option<Plan> = load_recorded(&app.store, &run.plan).ok();
    let args: Value =
        run.args.and_then(|digest| load_recorded(&app.store, &digest).ok()).unwrap_or_else(|| json!({}));
    let (steps, schema) = match &plan {
        Some(Plan::Workflow(workflow)) => {
            (workflow.steps.iter().map(|step| step.id.clone()).collect(), fields::schema_of(&workflow.args))
        }
        Some(Plan::Pipeline(_)) | None => (Vec::new(), json!({ "type": "object", "properties": {} })),
    };
    Ok(Source { id, run, steps, schema, args })
}

impl Source {
    /// The command-line arguments for the choices.
    fn fork_arguments(&self, asked: &Asked) -> Result<Vec<String>, Problem> {
        let mut words = vec!["fork".to_owned(), self.id.to_string()];
        for (_, step) in asked.form.iter().filter(|(name, value)| name == "from" && !value.is_empty()) {
            if !self.steps.contains(step) {
                return Err(Problem::bad_request(format!("the run has no step {step:?}")));
            }
            words.push(format!("--from={step}"));
        }
        let typed = |name: &str| asked.field(name).map(str::to_owned);
        let chosen = if self.schema["properties"].as_object().is_some_and(|known| !known.is_empty()) {
            fields::value_of(&self.schema, &typed).map_err(Problem::bad_request)?
        } else {
            json!({})
        };
        for (name, value) in chosen.as_object().into_iter().flatten() {
            if self.args.get(name) != Some(value) {
                words.push(format!("--set=args.{name}={}", json::compact(value)));
            }
        }
        Ok(words)
    }
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let source = source(app, asked)?;
    Ok(render_page(app, asked, &source, &html! {}))
}

fn render_page(app: &App, asked: &Asked, source: &Source, plan: &Markup) -> RouteReply {
    let typed = |name: &str| asked.field(name).map(str::to_owned);
    let id = source.id;
    let chosen = |step: &str| asked.form.iter().any(|(name, value)| name == "from" && value == step);
    let body = html! {
        div class="crumbs" { a href="/runs" { "Runs" } "/" a href=(format!("/runs/{id}")) { code { (id.short_id()) } } "/ fork" }
        h1 { "Fork " (clip_line(&source.run.name, 120)) }
        p class="lead" { "A fork is a new run that reuses the results of unchanged steps. Before an effect is re-run, its questions are asked again." }
        form method="post" action=(format!("/runs/{id}/fork")) class="stack" data-keep=(id) {
            div class="split" {
                div class="card pad" {
                    h2 { "Arguments" }
                    @if source.schema["properties"].as_object().is_none_or(|known| known.is_empty()) { p class="muted" { "The workflow declares none." } }
                    @else { (fields::render_fields(&source.schema, &source.args, &typed)) }
                }
                fieldset class="card pad pick" {
                    legend class="hide" { "Steps to run again" }
                    h2 { "Run again although unchanged" }
                    @for step in &source.steps { label { input type="checkbox" name="from" value=(step) checked[chosen(step)]; code { (harmless(step)) } } }
                    @if source.steps.is_empty() { p class="muted" { "There are no steps to choose from." } }
                }
            }
            (plan)
            div class="bar" {
                button name="act" value="plan" { "Show what would run" }
                button name="act" value="fork" class="primary" { "Fork" }
            }
        }
    };
    shell::full_page(app, asked, "Fork", RailPage::Runs, &body)
}

pub(crate) fn plan_or_start(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let source = source(app, asked)?;
    let mut words = source.fork_arguments(asked)?;
    let name = asked.caller_name().unwrap_or_default();
    let behalf = Behalf { agent: asked.agent_name(), ..Behalf::of_person(name, Some(name)) };
    if asked.field("act") != Some("fork") {
        words.extend(["--dry-run".to_owned(), "--json".to_owned()]);
        let said = app
            .start_process(app.build_command(&behalf, &source.run.cwd, &words))?
            .wait_for_exit(PATIENCE, || false);
        let said =
            said.ok_or_else(|| Problem::new(StatusCode::GATEWAY_TIMEOUT, "slow", "the plan takes too long"))?;
        let Ok(plan) = json::parse(&said.out) else {
            return Err(Problem::new(StatusCode::CONFLICT, "not_forked", said.failure_reason()));
        };
        let took = took_of(app, source.id, &plan)?;
        return Ok(render_page(app, asked, &source, &render_plan(&plan, took)));
    }
    let newest = |app: &App| -> Option<RunId> {
        let runs = app.store.list_runs(&RunFilter { limit: 20, ..RunFilter::default() }).ok()?;
        runs.into_iter().find(|run| run.parent == Some(source.id)).map(|run| run.id)
    };
    let before = newest(app);
    let said = app
        .start_process(app.build_command(&behalf, &source.run.cwd, &words))?
        .wait_for_exit(PATIENCE, || newest(app) != before);
    match newest(app).filter(|run| Some(*run) != before) {
        Some(run) => Ok(RouteReply::redirect_to(&format!("/runs/{run}"))),
        None => {
            let why = said.map_or_else(|| "it has not begun yet".to_owned(), |said| said.failure_reason());
            Err(Problem::new(StatusCode::CONFLICT, "not_forked", why))
        }
    }
}

/// Duration in the forked run of the steps that would run again, in microseconds.
fn took_of(app: &App, run: RunId, plan: &Value) -> Result<u64, Problem> {
    let view = views::of_run(&app.store, run, false)?;
    let is_done = |path: &str| plan["done"].as_array().into_iter().flatten().any(|done| done == path);
    let done = view.lines.iter().filter(|line| is_done(&line.path));
    Ok(done
        .filter_map(|line| line.outcome.as_ref())
        .filter(|outcome| !outcome.cached)
        .map(|outcome| outcome.duration_us)
        .sum())
}

fn render_plan(plan: &Value, took: u64) -> Markup {
    let list = |name: &str| -> Vec<String> {
        plan[name]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| one.as_str().map_or_else(|| json::compact(one), str::to_owned))
            .collect()
    };
    let effects = plan["effects"].as_array().cloned().unwrap_or_default();
    let calls: Vec<&Value> =
        effects.iter().flat_map(|effect| effect["calls"].as_array().into_iter().flatten()).collect();
    let usd: f64 = calls.iter().filter_map(|call| call["costUsd"].as_f64()).sum();
    let unpriced = calls.iter().filter(|call| call["costUsd"].is_null()).count();
    html! {
        section {
            h2 { "What would run" }
            @if let Some(why) = plan["fails"].as_str() { div class="note is-bad" { strong { "It would fail" } p { (harmless(why)) } } }
            dl class="card pad facts" {
                dt { "Reused" } dd { (clip_line(&list("reused").join(", "), 1000)) @if list("reused").is_empty() { "nothing" } }
                dt { "Run again" } dd { (clip_line(&list("done").join(", "), 1000)) @if list("done").is_empty() { "nothing" } @if plan["more"] == true { ", and perhaps more" } }
                dt { "Asked again" } dd { (clip_line(&list("asked").join(", "), 1000)) @if list("asked").is_empty() { "nothing" } }
                dt { "Cost" } dd {
                    @if took > 0 { "the steps that run again took " (figures::format_duration(took)) " last time" } @else { "the steps that run again took no time last time" }
                    @if !calls.is_empty() { "; their " (figures::count_noun(calls.len() as u64, "model call")) " cost $" (format!("{usd:.4}")) @if unpriced > 0 { ", without " (unpriced) " that have no rate" } }
                }
                @for effect in &effects { dt { "Effect" } dd { span { code { (harmless(effect["step"].as_str().unwrap_or_default())) } " " (clip_line(effect["action"].as_str().unwrap_or_default(), 300)) } } }
            }
        }
    }
}
