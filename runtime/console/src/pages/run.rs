//! One run: its state, the reason of its failure, the timeline and the results of its steps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use lobster_runtime::digest::Digest;
use lobster_runtime::engine::{Heard, QuestionView};
use lobster_runtime::json;
use lobster_runtime::model::cost::Payment;
use lobster_runtime::model::pricing::Pricing;
use lobster_runtime::replay::timeline::Line;
use lobster_runtime::replay::{Standing, place_in_plan, read_standing};
use lobster_runtime::store::service::Start;
use lobster_runtime::store::{GateFilter, GateStatus, RunId, RunStatus, RunSummary, StepOutcome, StoreError};
use lobster_runtime::visible::harmless;
use lobster_runtime::{figures, text};
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply, acts, rerun_verb, run_of, workflow_of_run};
use lobster_serve::program::Behalf;
use maud::{Markup, html};
use serde_json::Value;

use super::runs::recorded_arguments;
use super::{compare, run_graph};
use crate::cache::Cache;
use crate::chart;
use crate::shell::{self, RailPage};
use crate::views::{self, View};
use crate::words::{
    clip_line, empty_placeholder, format_ms, relative_time, running_time, state_label, tone_class, url_encode,
};

/// Steps of one page, which keeps it below 100 kB.
const STEPS: usize = 100;

/// Largest arguments and results that are shown, in bytes; for larger ones, only the size is shown.
const VALUE: u64 = 64 << 10;

/// Lines shown from the end of a failed step's stderr.
const LAST_WORDS: usize = 8;

/// Largest stream whose end is read, in bytes.
const STREAM: u64 = 4 << 20;

/// Most bytes of a command that are shown in a row.
const COMMAND: usize = 200;

/// Cached commands of actions, which never change.
static COMMANDS: Cache<Digest, Option<Arc<str>>> = Cache::new(1 << 20);

/// Time limit for a process to resume or cancel a run.
const BEGIN: Duration = Duration::from_secs(8);

/// Time limit for a replay.
const REPLAY: Duration = Duration::from_secs(120);

/// The data of the page.
struct Seen {
    run: RunSummary,
    start: Option<Start>,
    workflow: Option<String>,
    state: Standing,
    view: Arc<View>,
    /// The latest earlier run of the same name that succeeded.
    good: Option<RunSummary>,
    now: i64,
    /// Live progress of steps that have not ended.
    heard: BTreeMap<String, Heard>,
}

impl Seen {
    fn failed_step(&self) -> Option<(&str, &StepOutcome)> {
        self.view.failed.as_ref().map(|(path, outcome)| (path.as_str(), outcome))
    }
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let start = app.service.start_of(id)?;
    let run = match app.store.run(id) {
        Ok(run) => run,
        Err(StoreError::UnknownRun(_)) if start.is_some() => {
            return render_queued(app, asked, id, start.as_ref());
        }
        Err(error) => return Err(error.into()),
    };
    let state = read_standing(&app.store, &run);
    let title = format!("{} · {state}", clip_line(&run.name, 60));
    let takes_a_while = views::takes_a_while(id, run.records);
    shell::full_or_streamed_page(app, asked, &title, RailPage::Runs, takes_a_while, move |app, asked| {
        render_page(app, asked, run, start, state)
    })
}

/// The whole page of a run.
fn render_page(
    app: &App,
    asked: &Asked,
    run: RunSummary,
    start: Option<Start>,
    state: Standing,
) -> Result<Markup, Problem> {
    let view = views::of_run(&app.store, run.id, state == Standing::Running)?;
    let workflow = workflow_of_run(app, run.id)?;
    let good = compare::last_good(app, asked, &run)?.filter(|_| run.status.is_over());
    let heard = app.tidings.of_run(run.id);
    let seen = Seen { run, start, workflow, state, view, good, now: app.store.clock_ms(), heard };
    Ok(html! {
        (render_head(&seen))
        @if let Some(broken) = &seen.view.broken {
            div class="note is-bad" {
                strong { "The record is damaged" }
                p { (broken.to_string()) }
                p { "The rest is shown. " code { "lobster store salvage" } " saves what can be read; a run with a damaged record cannot be resumed or forked." }
            }
        }
        (render_approvals(app, &seen)?)
        (render_failure(app, &seen))
        (render_buttons(app, asked, &seen)?)
        div class="split late" {
            div class="stack" {
                section id="timeline" data-live="" {
                    header { h2 { "Timeline" } }
                    div class="card pad" {
                        @match chart::draw_timeline(&seen.run.id.to_string(), &seen.view.lines, seen.now) {
                            Some(chart) => (chart),
                            None => p class="muted" { "No step has begun." },
                        }
                    }
                }
                (run_graph::show(app, &seen.run, &seen.view.lines))
                (render_steps(app, asked, &seen)?)
                (render_result(app, &seen))
            }
            (render_facts(app, &seen))
        }
    })
}

fn render_head(seen: &Seen) -> Markup {
    let run = &seen.run;
    html! {
        header class="stack" id="head" data-live="" data-run=(run.id) {
            div class="crumbs" {
                a href="/runs" { "Runs" } "/"
                @if let Some(workflow) = &seen.workflow { a href=(format!("/workflows/{workflow}")) { (workflow) } "/" }
                code { (run.id.short_id()) }
            }
            div class="title" { h1 { (clip_line(&run.name, 200)) } (state_label(seen.state.as_str(), true)) }
            dl class="glance" {
                div { dt { "Started" } dd { (relative_time(run.started_at, seen.now)) } }
                div { dt { @if run.ended_at.is_some() { "Took" } @else { "For" } } dd {
                    @match run.ended_at { Some(end) => (format_ms(end - run.started_at)), None => (running_time(run.started_at, seen.now)) }
                } }
                @if let Some(start) = &seen.start { div { dt { "Started by" } dd { (start.cause.replace('_', " ")) @if let Some(actor) = &start.actor { ", " (clip_line(actor, 60)) } } } }
                @else if let Some(actor) = &run.actor { div { dt { "Started by" } dd { (clip_line(actor, 60)) } } }
                div { dt { "Steps" } dd { (seen.view.lines.len()) } }
                @if let Some(cost) = model_cost(&seen.view.payments) { div { dt { "Models" } dd { (cost) } } }
            }
        }
    }
}

/// The cost of the model calls.
fn model_cost(payments: &[Payment]) -> Option<String> {
    if payments.is_empty() {
        return None;
    }
    let pricing = Pricing::configured(|name| std::env::var(name).ok()).0;
    let (mut calls, mut usd) = (0_u64, 0.0);
    for payment in payments {
        calls += 1;
        usd += payment.price_with(&pricing).cost_usd.unwrap_or(0.0);
    }
    Some(format!("{}, ${usd:.4}", figures::count_noun(calls, "call")))
}

fn render_approvals(app: &App, seen: &Seen) -> Result<Markup, Problem> {
    let filter = GateFilter { status: Some(GateStatus::Open), run: Some(seen.run.id), limit: 20 };
    let gates = app.store.list_approvals(&filter)?;
    let held_up = seen.start.as_ref().filter(|_| seen.run.status == RunStatus::Waiting);
    Ok(html! {
        div id="asks" data-live="" class="stack" {
            @if let Some(why) = held_up.and_then(|start| start.why.as_ref()) {
                div class="note is-bad" {
                    strong { "It could not continue" }
                    p { (harmless(why)) }
                    p { "lobster retries it at growing intervals of at most ten minutes." }
                }
            }
            @for gate in &gates {
                @let prompt = QuestionView::of_gate(&app.store, gate).map(|view| view.prompt).unwrap_or_default();
                div class="note is-wait" data-key=(gate.id) {
                    strong { "Waiting for a person" }
                    p class="prompt" { (clip_line(&prompt, 400)) }
                    div class="bar" { a class="button primary" href=(format!("/questions/{}", gate.id)) { "Read and answer" } }
                }
            }
        }
    })
}

fn render_failure(app: &App, seen: &Seen) -> Markup {
    let run = &seen.run;
    let found = seen.failed_step().filter(|_| matches!(seen.state, Standing::Failed | Standing::Interrupted));
    let error = run.error.clone().or_else(|| found.and_then(|(_, outcome)| outcome.error.clone()));
    html! {
        div id="failure" data-live="" {
            @if seen.state == Standing::Failed {
                div class="note is-bad" {
                    strong {
                        @match found {
                            Some((path, _)) => { "Failed at " a href=(step_address(run.id, path)) { (clip_line(path, 120)) } },
                            None => "Failed",
                        }
                    }
                    @if let Some(error) = &error { p class="prompt" { (harmless(text::prefix(error, 2000, text::Count::Chars))) } }
                    @if let Some((path, outcome)) = found {
                        @if let Some(place) = views::load_plan(&app.store, &run.plan).and_then(|plan| place_in_plan(&plan, path)) {
                            p class="muted small" { code { (place.file) ":" (place.line) } }
                            pre class="out src" tabindex="0" { @for (at, line) in &place.around { span class=[(*at == place.line).then_some("hit")] { i { (at) } (harmless(line)) "\n" } } }
                        }
                        @let words = last_words(app, outcome);
                        @if !words.is_empty() && !is_told(error.as_deref(), &words) {
                            p class="muted small" { "The end of its stderr" }
                            pre class="out" tabindex="0" { (harmless(&words)) }
                        }
                        @if let Some(code) = &outcome.code { p class="muted small" { "What it means: " code { "lobster help " (code) } } }
                    }
                }
            } @else if seen.state == Standing::Interrupted {
                div class="note is-wait" {
                    strong { "Interrupted" }
                    p { "Its process ended in the middle. Finished steps do not run again; lobster asks about an effect with an unknown outcome." }
                }
            }
        }
    }
}

/// True if the message contains all of these lines.
fn is_told(message: Option<&str>, words: &str) -> bool {
    message.is_some_and(|message| words.lines().all(|line| message.contains(line.trim())))
}

fn last_words(app: &App, outcome: &StepOutcome) -> String {
    let Some(blob) = outcome.stderr.filter(|blob| blob.len > 0) else { return String::new() };
    match app.store.load_blob(&blob.digest, STREAM) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
            last.iter().map(|line| text::prefix(line, 400, text::Count::Chars)).collect::<Vec<_>>().join("\n")
        }
        Err(error) => format!("({} of stderr cannot be shown: {error})", figures::format_bytes(blob.len)),
    }
}

fn render_buttons(app: &App, asked: &Asked, seen: &Seen) -> Result<Markup, Problem> {
    let id = seen.run.id;
    let may = asked.has_right(Verb::Operate, seen.workflow.as_deref());
    let may_rerun = asked.has_right(rerun_verb(app, id)?, seen.workflow.as_deref());
    let post = |what: &str| format!("/runs/{id}/{what}");
    let failed = seen.failed_step().map(|(path, _)| path);
    Ok(html! {
        div id="buttons" data-live="" class="bar" {
            @if may {
                @if matches!(seen.state, Standing::Failed | Standing::Interrupted) {
                    form method="post" action=(post("resume")) { button class="primary" { "Retry from there" } }
                }
                @if seen.state == Standing::Interrupted {
                    form method="post" action=(post("resume")) {
                        button name="interrupted" value="retry" data-confirm="An effect may be done twice. Re-run it?" { "Re-run the cut-off effect" }
                        button name="interrupted" value="skip" { "Mark it as failed" }
                    }
                }
                @if matches!(seen.state, Standing::Running | Standing::Waiting | Standing::Interrupted) {
                    form method="post" action=(post("cancel")) { button class="danger" data-confirm="Cancel this run? Its processes are ended." { "Cancel" } }
                }
            }
            @if may_rerun && matches!(seen.state, Standing::Ok | Standing::Failed | Standing::Cancelled) {
                form method="post" action=(post("replay")) { button { "Replay and compare" } }
                a class="button" href=(post("fork")) { "Fork" }
            }
            @if let Some(good) = &seen.good {
                @if let Some(step) = failed.filter(|_| seen.state == Standing::Failed) {
                    a class="button" href=(compare::comparison_url(id, good.id, Some(step))) { "Why not as last time?" }
                }
                a class="button" href=(compare::comparison_url(id, good.id, None)) { "Diff with the last good run" }
            }
            @if seen.run.status.is_over() { a class="button" href=(post("bundle")) download { "Bundle" } }
        }
    })
}

pub(crate) fn step_address(run: RunId, path: &str) -> String {
    format!("/runs/{run}/step?path={}", url_encode(path))
}

fn render_steps(app: &App, asked: &Asked, seen: &Seen) -> Result<Markup, Problem> {
    let failed = seen.failed_step().map(|(path, _)| path);
    let at = failed.and_then(|path| seen.view.lines.iter().position(|line| line.path == path)).unwrap_or(0);
    // The table opens at the failed step.
    let from = asked.query_number("from", if at < STEPS { 0 } else { at - 20 })?.min(seen.view.lines.len());
    let page = &seen.view.lines[from..seen.view.lines.len().min(from + STEPS)];
    let commands = step_commands(app, page);
    // Columns without values on this page are left out.
    let has =
        |of: &dyn Fn(&StepOutcome) -> bool| page.iter().filter_map(|line| line.outcome.as_ref()).any(of);
    let most = |of: &dyn Fn(&StepOutcome) -> Option<u64>| {
        page.iter().filter_map(|line| of(line.outcome.as_ref()?)).max().unwrap_or(0)
    };
    let columns = Columns {
        most_fuel: most(&|outcome| outcome.fuel),
        most_memory: most(&|outcome| outcome.peak_memory),
        fuel: has(&|outcome| outcome.fuel.is_some()),
        memory: has(&|outcome| outcome.peak_memory.is_some()),
        enforced: has(&|outcome| views::enforcement_summary(outcome).is_some()),
    };
    let link = |from: usize| format!("/runs/{}?from={from}#steps", seen.run.id);
    Ok(html! {
        section id="steps" data-live="" {
            header {
                h2 { "Steps" }
                @if seen.view.lines.len() > STEPS { span class="muted small fig" { (from + 1) "–" (from + page.len()) " of " (figures::format_count(seen.view.lines.len() as u64)) } }
            }
            div class="card scroll" tabindex="0" {
                @if page.is_empty() { (empty_placeholder("No step has begun", "The steps appear here as they begin.", None)) }
                @else {
                    table class="table steps" {
                        thead { tr {
                            th scope="col" { "Step" } th scope="col" { "State" } th scope="col" class="num" { "Took" }
                            @if columns.fuel { th scope="col" class="num spare" { "Fuel" } }
                            @if columns.memory { th scope="col" class="num spare" { "Memory" } }
                            th scope="col" class="num spare" { "Output" }
                            @if columns.enforced { th scope="col" class="spare" { "Enforced" } }
                        } }
                        tbody { @for line in page { (render_row(seen, line, columns, commands.get(&line.path))) } }
                    }
                }
            }
            nav class="bar" aria-label="More steps" {
                @if from > 0 { a class="button" href=(link(from.saturating_sub(STEPS))) { "Earlier steps" } }
                @if from + page.len() < seen.view.lines.len() { a class="button" href=(link(from + STEPS)) { "Later steps" } }
            }
        }
    })
}

/// The optional columns.
#[derive(Clone, Copy)]
struct Columns {
    fuel: bool,
    memory: bool,
    enforced: bool,
    /// The maximum of the page, to which the other values are scaled.
    most_fuel: u64,
    most_memory: u64,
}

fn render_row(seen: &Seen, line: &Line, columns: Columns, command: Option<&Arc<str>>) -> Markup {
    let outcome = line.outcome.as_ref();
    let name = line.path.rsplit('/').next().unwrap_or(&line.path);
    let bad = tone_class(&line.state) == "is-bad";
    html! {
        tr class=[bad.then_some("is-bad")] {
            td {
                span class="tree clip" {
                    @if line.depth > 0 { span class="in" { ("│ ".repeat(line.depth.min(12) - 1)) "└ " } }
                    a href=(step_address(seen.run.id, &line.path)) { (clip_line(if line.depth > 0 { name } else { &line.path }, 70)) }
                }
                span class="say clip" { (line.kind) @if let Some(command) = command { " $ " (clip_line(command, 90)) } }
                @if let Some(said) = seen.heard.get(&line.path).filter(|_| outcome.is_none()) { span class="say clip" { (clip_line(&said.to_string(), 120)) } }
            }
            td { (state_label(&clip_line(&line.state, 60), false)) }
            td class="num" {
                @match (outcome, line.spans.last()) {
                    (Some(outcome), _) if !outcome.cached => (figures::format_duration(outcome.duration_us)),
                    (None, Some(span)) if span.ended.is_none() => (running_time(span.begun, seen.now)),
                    _ => {}
                }
            }
            @if columns.fuel { td class="num spare" { @if let Some(fuel) = outcome.and_then(|outcome| outcome.fuel) { (figures::format_count(fuel)) (chart::draw_meter(fuel, columns.most_fuel)) } } }
            @if columns.memory { td class="num spare" { @if let Some(memory) = outcome.and_then(|outcome| outcome.peak_memory) { (figures::format_bytes(memory)) (chart::draw_meter(memory, columns.most_memory)) } } }
            td class="num spare" { @if let Some(blob) = outcome.and_then(|outcome| outcome.output.or(outcome.stdout)) { (figures::format_bytes(blob.len)) } }
            @if columns.enforced { td class="spare small" { @if let Some(outcome) = outcome { (views::enforcement_summary(outcome).unwrap_or_default()) } } }
        }
    }
}

/// The commands of native steps, by path.
fn step_commands(app: &App, lines: &[Line]) -> HashMap<String, Arc<str>> {
    let mut known: HashMap<Digest, Option<Arc<str>>> = HashMap::new();
    let mut missing = Vec::new();
    for digest in lines.iter().filter_map(|line| line.action) {
        match COMMANDS.get(&digest) {
            Some(command) => drop(known.insert(digest, command)),
            None => missing.push(digest),
        }
    }
    let parse = |bytes: &[u8]| -> Option<Arc<str>> {
        let action: Value = serde_json::from_slice(bytes).unwrap_or_default();
        Some(text::prefix(&command_of(&action)?, COMMAND, text::Count::Chars).into())
    };
    for (digest, bytes) in app.store.small_blobs(&missing).unwrap_or_default() {
        let command = parse(&bytes);
        let size = 100 + command.as_ref().map_or(0, |command| command.len());
        COMMANDS.put(digest, command.clone(), size);
        known.insert(digest, command);
    }
    // Large or unreadable actions are read one by one, so that their rows also show a command.
    for digest in missing {
        known.entry(digest).or_insert_with(|| match app.store.load_blob(&digest, STREAM) {
            Ok(bytes) => parse(&bytes),
            Err(error) => Some(format!("(cannot be read: {error})").into()),
        });
    }
    let of = |line: &Line| Some((line.path.clone(), known.get(&line.action?)?.clone()?));
    lines.iter().filter_map(of).collect()
}

/// The command of an action, as its author wrote it.
pub(crate) fn command_of(action: &Value) -> Option<String> {
    let words: Vec<&str> = action["argv"].as_array()?.iter().filter_map(Value::as_str).collect();
    match words.as_slice() {
        [] => None,
        [_, "-c" | "-lc", text] => Some((*text).trim().to_owned()),
        words => Some(words.join(" ")),
    }
}

fn render_result(app: &App, seen: &Seen) -> Markup {
    html! {
        @if let Some(digest) = &seen.run.output {
            section id="result" data-live="" {
                header { h2 { "Result" } }
                div class="card pad" { (render_value(app, digest)) }
            }
        }
    }
}

/// A text, with line breaks and indentation if it is JSON.
pub(crate) fn pretty_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    json::parse(&text).map(|value| json::pretty(&value)).unwrap_or_else(|_| text.into_owned())
}

/// A value of the record, or the reason why it cannot be read.
pub(crate) fn render_value(app: &App, digest: &Digest) -> Markup {
    match app.store.load_blob(digest, VALUE) {
        Ok(bytes) => html! { pre class="out" tabindex="0" { (harmless(&pretty_text(&bytes))) } },
        Err(StoreError::BlobTooLarge { len, .. }) => {
            html! { p class="muted" { (figures::format_bytes(len)) ", too large to be shown here" } }
        }
        Err(error) => html! {
            div class="note is-bad" { strong { "This is missing from the store" } p { (error.to_string()) } p { code { "lobster store verify" } " lists all that is missing." } }
        },
    }
}

fn render_facts(app: &App, seen: &Seen) -> Markup {
    let run = &seen.run;
    let args = run.args.map(|digest| recorded_arguments(app, &digest)).unwrap_or_default();
    html! {
        aside class="stack" aria-label="About this run" {
            section {
                header { h2 { "About" } }
                div class="card pad" {
                    dl class="facts" {
                        dt { "Run" } dd { code { (run.id) } }
                        @if let Some(parent) = run.parent { dt { "Of run" } dd { a href=(format!("/runs/{parent}")) { code { (parent.short_id()) } } } }
                        @if !args.is_empty() { dt { "Arguments" } dd { code { (args) } } }
                        dt { "Directory" } dd { code { (harmless(&run.cwd)) } }
                        dt { "Kind" } dd { (run.kind) ", " (run.mode) }
                        dt { "Plan" } dd { code { (run.plan.to_string().get(..16).unwrap_or_default()) } }
                        dt { "Record" } dd {
                            (figures::count_noun(run.records, "record")) ", "
                            @if seen.view.broken.is_some() { "damaged" } @else { "journal intact" }
                        }
                    }
                }
            }
            section {
                header { h2 { "In a terminal" } }
                div class="card pad small" {
                    @for command in ["show", "replay", "why", "bundle export"] { pre class="cmd" { "lobster " (command) " " (run.id.short_id()) } }
                }
            }
        }
    }
}

fn render_queued(app: &App, asked: &Asked, id: RunId, start: Option<&Start>) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let workflow = workflow_of_run(app, id)?.unwrap_or_default();
    let word = start.map_or("queued", |start| start.state.as_str());
    let body = html! {
        header class="stack" id="head" data-live="" data-run=(id) {
            div class="crumbs" { a href="/runs" { "Runs" } "/" a href=(format!("/workflows/{workflow}")) { (workflow) } "/" code { (id.short_id()) } }
            div class="title" { h1 { (workflow) } (state_label(word, true)) }
            @if let Some(start) = start {
                p class="lead" { "Queued " (relative_time(start.queued_at, now)) ". It begins when a worker is free." }
                @if let Some(why) = &start.why { div class="note is-bad" { strong { "It did not begin" } p { (harmless(why)) } } }
                @if !start.state.is_over() && asked.has_right(Verb::Operate, Some(&workflow)) {
                    form method="post" action=(format!("/runs/{id}/cancel")) { button class="danger" { "Withdraw" } }
                }
            }
        }
    };
    Ok(shell::full_page(app, asked, &workflow, RailPage::Runs, &body))
}

// ---- buttons

pub(crate) fn cancel(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    match acts::cancel_run(app, asked) {
        Ok(_) => {}
        // The service did not start the run, so a process cancels it directly.
        Err(problem) if problem.code == "over" => {
            let run = app.store.run(id)?;
            if run.status.is_over() {
                return Err(problem);
            }
            let words = ["resume", &id.to_string(), "--cancel", "--mode", "tool"].map(str::to_owned);
            let is_over = || app.store.run(id).is_ok_and(|run| run.status.is_over());
            let said = app
                .start_process(app.build_command(&on_behalf(asked), &run.cwd, &words))?
                .wait_for_exit(BEGIN, is_over);
            if let Some(said) = said.filter(|_| !is_over()) {
                return Err(Problem::conflict("over", said.failure_reason()));
            }
        }
        Err(problem) => return Err(problem),
    }
    Ok(RouteReply::redirect_to(&format!("/runs/{id}")))
}

/// On behalf of the person who pressed a button.
fn on_behalf(asked: &Asked) -> Behalf<'_> {
    Behalf::of_person(asked.caller_name().unwrap_or_default(), None)
}

pub(crate) fn resume(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let (run, start) = (app.store.run(id)?, app.service.start_of(id)?);
    let mut words = vec!["resume".to_owned(), id.to_string(), "--mode".to_owned(), "tool".to_owned()];
    match asked.field("interrupted") {
        Some("retry") => words.push("--retry-interrupted".to_owned()),
        Some("skip") => words.push("--skip-interrupted".to_owned()),
        _ => {}
    }
    // A worker continues a run that the service has started, under the limits of the server.
    words.extend(start.as_ref().map(|_| "--hand-over".to_owned()));
    let records = run.records;
    let is_taken_up = || start.is_none() && app.store.run(id).is_ok_and(|run| run.records > records);
    let initiator = start.as_ref().and_then(|start| start.actor.as_deref());
    let behalf = Behalf { initiator, ..on_behalf(asked) };
    let said =
        app.start_process(app.build_command(&behalf, &run.cwd, &words))?.wait_for_exit(BEGIN, is_taken_up);
    let not_resumed = |why: String| Problem::new(StatusCode::CONFLICT, "not_resumed", why);
    match said {
        Some(said) if said.code != Some(0) && !is_taken_up() => {
            return Err(not_resumed(said.failure_reason()));
        }
        None if start.is_some() => return Err(not_resumed("it takes too long; reload the page".to_owned())),
        Some(_) | None => {}
    }
    if start.is_some() {
        app.service.take_up(id)?;
        app.waker.wake();
    }
    Ok(RouteReply::redirect_to(&format!("/runs/{id}")))
}

pub(crate) fn replay(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let run = app.store.run(id)?;
    let words = ["replay".to_owned(), id.to_string(), "--json".to_owned()];
    let said = app
        .start_process(app.build_command(&on_behalf(asked), &run.cwd, &words))?
        .wait_for_exit(REPLAY, || false);
    let said = said.ok_or_else(|| {
        let detail = format!(
            "the replay takes too long for a page; `lobster replay {}` has no time limit",
            id.short_id()
        );
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "slow", detail)
    })?;
    let Ok(report) = json::parse(&said.out) else {
        return Err(Problem::new(StatusCode::CONFLICT, "not_replayed", said.failure_reason()));
    };
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let (differs, unverified) = (list("divergences"), list("unverified"));
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    let body = html! {
        div class="crumbs" { a href="/runs" { "Runs" } "/" a href=(format!("/runs/{id}")) { code { (id.short_id()) } } "/ replay" }
        div class="title" { h1 { "Replay of " (clip_line(&run.name, 120)) } @if differs.is_empty() { (state_label("ok", true)) } @else { (state_label("failed", true)) } }
        @match differs.first() {
            None => {
                div class="note is-ok" {
                    strong { @if unverified.is_empty() { "The same" } @else { "Nothing differs" } }
                    p { "The recorded run was executed again, and every result that could be computed is the recorded one, byte for byte." }
                }
            }
            Some(first) => {
                div class="note is-bad" {
                    strong { "Not the same: the first difference is at " (clip_line(first["step"].as_str().unwrap_or("the run itself"), 120)) }
                    dl class="facts" {
                        dt { "Differs" } dd { (harmless(first["what"].as_str().unwrap_or_default())) @if let Some(path) = first["path"].as_str() { " at " code { (harmless(path)) } } }
                        dt { "Recorded" } dd { pre class="out" tabindex="0" { (harmless(&json::pretty(&first["recorded"]))) } }
                        dt { "Now" } dd { pre class="out" tabindex="0" { (harmless(&json::pretty(&first["replayed"]))) } }
                    }
                    @if differs.len() > 1 { p { "and " (differs.len() - 1) " more" } }
                }
            }
        }
        dl class="card pad facts" {
            dt { "Computed again" } dd { (count("computed")) }
            dt { "With recorded calls" } dd { (count("checked")) }
            dt { "Answered from the record" } dd { (count("answered")) " (a replay never repeats effects)" }
            @for step in &unverified { dt { "Not computed" } dd { (harmless(step["step"].as_str().unwrap_or_default())) ": " (harmless(step["why"].as_str().unwrap_or_default())) } }
        }
        div class="bar" { a class="button" href=(format!("/runs/{id}")) { "Back to the run" } }
    };
    Ok(shell::full_page(app, asked, "Replay", RailPage::Runs, &body))
}
