//! The registered workflows, and the problems of files.

use lobster_runtime::figures::count_noun;
use lobster_runtime::visible::harmless;
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use lobster_serve::workflows::Content;
use maud::html;

use crate::shell::{self, RailPage};
use crate::words::{clip_line, empty_placeholder, relative_time, state_label};

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let all = app.service.list_workflows()?;
    let rows: Vec<_> = all.iter().filter(|workflow| asked.may_read(Some(&workflow.name))).collect();
    let problems = if asked.may_read(None) { app.problems.to_sentences() } else { Vec::new() };
    let is_registered = |name: &String| all.iter().any(|workflow| workflow.name == *name);
    let is_ours = |name: &String| !is_registered(name) && asked.has_right(Verb::Register, Some(name));
    let unregistered: Vec<String> = app.problems.file_names().into_iter().filter(is_ours).collect();
    let may_write = !app.files.is_empty() && asked.has_right(Verb::Register, None);
    let body = html! {
        div class="top" { div class="title" { h1 { "Workflows" } } }
        @if !problems.is_empty() {
            div class="note is-wait" {
                details open[problems.len() <= 3] {
                    summary { (count_noun(problems.len() as u64, "file")) " that cannot start" }
                    @for problem in &problems { p class="prompt small" { (harmless(problem)) } }
                }
            }
        }
        @if may_write {
            form method="get" action="/new" class="bar" {
                label class="hide" for="new" { "Name of a new workflow" }
                input id="new" name="name" placeholder="Name of a new workflow" required autocomplete="off" spellcheck="false";
                button { "Create" }
            }
        }
        section class="card" {
            h2 class="hide" { "Registered workflows" }
            @if rows.is_empty() { (empty_placeholder("No workflow is registered", "Registering a file allows this version of it to run.", Some("lobster schedule register report.lobster"))) }
            ul class="rows" {
                @for workflow in &rows {
                    @let content = Content::from_registered(workflow);
                    li { a class="row" href=(format!("/workflows/{}", workflow.name)) {
                        span class="muted small" { (count_noun(content.args.len() as u64, "argument")) }
                        span class="what" {
                            span class="name clip" { (workflow.name) @if let Some(title) = &content.title { span class="muted" { "  " (clip_line(title, 80)) } } }
                            span class="muted small clip" { (clip_line(content.description.as_deref().unwrap_or(&workflow.path), 160)) }
                        }
                        span class="when" { @if !content.triggers.schedules.is_empty() { "scheduled" br; } (relative_time(workflow.registered_at, now)) }
                    } }
                }
            }
        }
        @if !unregistered.is_empty() {
            section {
                h2 { "Not registered" }
                ul class="card rows" { @for name in &unregistered { li { a class="row" href=(format!("/workflows/{name}/edit")) { (state_label("new", false)) span class="what" { span class="name clip" { (name) } } span class="when" { "edit" } } } } }
            }
        }
    };
    Ok(shell::full_page(app, asked, "Workflows", RailPage::Workflows, &body))
}
