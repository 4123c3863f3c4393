//! The differences between a run and an earlier one, step by step, with reasons.

use lobster_runtime::figures::count_noun;
use lobster_runtime::json;
use lobster_runtime::replay::{self, Difference, RunDiff, StepChange, Why, read_standing};
use lobster_runtime::store::{RunFilter, RunId, RunStatus, RunSummary};
use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, RouteReply, run_of, workflow_of_run};
use maud::{Markup, html};
use serde_json::Value;

use super::run::step_address;
use crate::shell::{self, RailPage};
use crate::words::{clip_line, empty_placeholder, relative_time, state_label, url_encode};

/// Earlier runs that are searched for a successful one.
const LOOKED: usize = 50;

/// Most steps that are listed.
const MOST: usize = 200;

/// Most characters of a value that are shown.
const VALUE: usize = 4000;

/// Returns the latest earlier run of this name that succeeded and that the caller may read.
pub(crate) fn last_good(app: &App, asked: &Asked, run: &RunSummary) -> Result<Option<RunSummary>, Problem> {
    let filter = RunFilter {
        name: Some(run.name.clone()),
        before: Some(run.id),
        limit: LOOKED,
        ..RunFilter::default()
    };
    let mut good = app.store.list_runs(&filter)?;
    good.retain(|run| run.status == RunStatus::Ok);
    let ids: Vec<RunId> = good.iter().map(|run| run.id).collect();
    let starts = app.service.starts_of(&ids)?;
    let may =
        |run: &RunSummary| asked.may_read(starts.get(&run.id).and_then(|start| start.workflow.as_deref()));
    Ok(good.into_iter().find(may))
}

/// The address of a comparison of two runs; with a step, it explains why that step differs.
pub(crate) fn comparison_url(run: RunId, with: RunId, step: Option<&str>) -> String {
    let step = step.map(|step| format!("&step={}", url_encode(step))).unwrap_or_default();
    format!("/runs/{run}/compare?with={with}{step}")
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let run = app.store.run(id)?;
    let before = match asked.query("with").filter(|with| !with.is_empty()) {
        Some(text) => {
            let before = app.store.run(app.store.find_run(text)?)?;
            if !asked.may_read(workflow_of_run(app, before.id)?.as_deref()) {
                return Err(Problem::not_found(format!("there is no run {text:?} to compare with")));
            }
            before
        }
        None => last_good(app, asked, &run)?.ok_or_else(|| {
            Problem::not_found(format!(
                "no earlier run of {:?} succeeded, so there is nothing to compare with",
                run.name
            ))
        })?,
    };
    let of_runs = replay::compare_runs(&app.runtime, &before.id.to_string(), &id.to_string())
        .map_err(|failure| Problem::conflict("not_compared", failure.message))?;
    let step = asked.query("step").filter(|step| !step.is_empty());
    let why = step.map(|step| {
        replay::explain_step(&app.runtime, &id.to_string(), step, Some(&before.id.to_string()))
            .map_err(|error| error.to_string())
    });
    let now = app.store.clock_ms();
    let shown = |run: &RunSummary| {
        html! { div class="bar" { a href=(format!("/runs/{}", run.id)) { code { (run.id.short_id()) } } (state_label(read_standing(&app.store, run).as_str(), false)) (relative_time(run.started_at, now)) } }
    };
    let body = html! {
        div class="crumbs" { a href="/runs" { "Runs" } "/" a href=(format!("/runs/{id}")) { code { (id.short_id()) } } "/ compare" }
        h1 { "Differences: " (clip_line(&run.name, 120)) }
        @for broken in &of_runs.broken { div class="note is-bad" { strong { "The record of a run is damaged" } p { (broken.to_string()) } } }
        dl class="card pad facts" {
            dt { "Before" } dd { (shown(&before)) }
            dt { "Now" } dd { (shown(&run)) }
            dt { "Plan" } dd { @if of_runs.same_plan { "the same" } @else { "different" } }
            dt { "Arguments" } dd { @if of_runs.same_args { "the same" } @else { "different" } }
            dt { "Steps" } dd { (count_noun(of_runs.same, "step")) " the same, " (of_runs.steps.len()) " not" }
        }
        @if let Some((step, why)) = step.zip(why) { (of_step(step, &why)) }
        (render_steps(&of_runs, id, before.id))
        @if let Some(output) = &of_runs.output { section { h2 { "The result of the run" } (render_difference(output)) } }
    };
    Ok(shell::full_page(app, asked, "Differences", RailPage::Runs, &body))
}

fn of_step(step: &str, why: &Result<Why, String>) -> Markup {
    html! {
        section id="why" {
            h2 { "Why " code { (clip_line(step, 120)) } " differs" }
            @match why {
                Err(none) => div class="note" { p class="prompt" { (harmless(none)) } },
                Ok(why) => {
                    p class="prompt" { (harmless(&why.to_sentence())) }
                    @for one in why.differences.iter().chain(&why.outcome).take(40) { (render_difference(one)) }
                }
            }
        }
    }
}

fn render_steps(of_runs: &RunDiff, run: RunId, before: RunId) -> Markup {
    html! {
        section {
            header { h2 { "Steps" } }
            div class="card scroll" tabindex="0" {
                @if of_runs.steps.is_empty() { (empty_placeholder("Every step did the same", "Both runs did the same with the same results.", None)) }
                @else {
                    table class="table" {
                        thead { tr { th scope="col" { "Step" } th scope="col" { "Change" } th scope="col" { "First difference" } th scope="col" { span class="hide" { "Why" } } } }
                        tbody {
                            @for one in of_runs.steps.iter().take(MOST) {
                                @let of = match one.change { StepChange::Removed | StepChange::NotReached => before, StepChange::Added | StepChange::Action | StepChange::Outcome => run };
                                tr {
                                    td { a href=(step_address(of, &one.step)) { (clip_line(&one.step, 80)) } }
                                    td class="small" { (change_word(one.change)) }
                                    td class="small prompt" { @if let Some(first) = &one.first { (clip_line(&first.to_sentence(), 300)) } }
                                    td class="small" { @if matches!(one.change, StepChange::Action | StepChange::Outcome) { a href=(comparison_url(run, before, Some(&one.step)) + "#why") { "why" } } }
                                }
                            }
                        }
                    }
                }
            }
            @if of_runs.steps.len() > MOST { p class="muted small" { "… and " (of_runs.steps.len() - MOST) " more; " code { "lobster diff " (before.short_id()) " " (run.short_id()) } " lists all." } }
        }
    }
}

fn change_word(change: StepChange) -> &'static str {
    match change {
        StepChange::Removed => "only before",
        StepChange::NotReached => "not reached",
        StepChange::Added => "new",
        StepChange::Action => "did something else",
        StepChange::Outcome => "another result",
    }
}

fn render_difference(one: &Difference) -> Markup {
    let value = |value: &Value| match value {
        Value::Null => "(nothing)".to_owned(),
        Value::String(text) => clip_line(text, VALUE),
        other => clip_line(&json::compact(other), VALUE),
    };
    html! {
        dl class="card pad facts" {
            dt { "What" } dd { (harmless(&one.to_sentence())) @if let Some(step) = &one.made_by { ", made by step " code { (harmless(step)) } } }
            dt { "Before" } dd { pre class="out" tabindex="0" { (value(&one.was)) } }
            dt { "Now" } dd { pre class="out" tabindex="0" { (value(&one.is)) } }
        }
    }
}
