//! One question on a narrow page: its text, its origin, the consequences of an approval, and the answer.
//!
//! The page shows the same view as the terminal, fact by fact. An answer carries the digest of the version that was
//! shown, and is valid only for that version.

use axum::http::StatusCode;
use lobster_runtime::engine::{Fact, QuestionView, SetsGoing, Weight};
use lobster_runtime::json;
use lobster_runtime::replay::preview_steps;
use lobster_runtime::schema::Schema;
use lobster_runtime::store::{Event, Gate, GateAnswer, GateKind, GateStatus};
use lobster_runtime::text::{Count, prefix};
use lobster_runtime::visible::{exact, harmless};
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply, acts, workflow_of_run};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::assets;
use crate::fields;
use crate::shell;
use crate::words::{clip_line, relative_time, state_label};

/// Most bytes of one text that are shown at first; the rest can be unfolded.
const TEXT: usize = 64 << 10;

/// Most rows of a table of items that are shown.
const ITEMS: usize = 3000;

/// Most columns of a table of items.
const COLUMNS: usize = 12;

/// The longest reason, in characters.
const REASON: usize = 2000;

/// Text of a note with the reason of a rejection.
const REASON_NOTE: &str = "the reason of the answer";

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let gate = app.store.find_gate(asked.param("approval"))?;
    render_page(app, asked, &gate, None)
}

fn render_page(app: &App, asked: &Asked, gate: &Gate, wrong: Option<&str>) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let mut view = QuestionView::of_gate(&app.store, gate)?;
    let is_open = gate.status == GateStatus::Open;
    // The current consequences of an approval.
    let going = is_open.then(|| preview_steps(&app.runtime, gate).ok()).flatten();
    let changed = going.as_ref().is_some_and(|going| view.update_sets_going(&SetsGoing::from_ahead(going)));
    let is_stale = going.as_ref().is_some_and(|going| going.stale);
    let workflow = workflow_of_run(app, gate.run)?;
    let may = asked.has_right(Verb::Answer, workflow.as_deref());
    let body = html! {
        div class="top" { (shell::brand_link()) a href="/" { "All questions" } }
        header class="stack" {
            div { (state_label(if is_open { "waiting" } else { gate.status.as_str() }, true)) " " span class="muted small" { "asked " (relative_time(gate.created_at, now)) @if let Some(until) = gate.expires_at.filter(|_| is_open) { ", open until " (relative_time(until, now)) } } }
            h1 class="prompt" { (harmless(&view.prompt)) }
        }
        @if let Some(wrong) = wrong { div class="note is-bad" role="alert" { strong { "Not sent" } p { (harmless(wrong)) } } }
        @if is_stale { div class="note is-bad" { strong { "An answer would be refused" } p { "The question, the plan or the policy has changed since it was asked." } } }
        @if changed { div class="note is-wait" { strong { "Something changed" } p { "An approval would start something else than when the question was asked. This page shows the current state." } } }
        (render_subject(&view))
        (render_facts(&view))
        @if !view.then.is_empty() {
            details class="card pad" { summary { "Next steps" } pre class="out" tabindex="0" { @for line in &view.then { (harmless(line)) "\n" } } }
        }
        @if is_open { @if may { (render_form(app, asked, gate)) } @else { div class="note" { strong { "You can read this" } p { "Answering needs the role approver." } } } }
        @else { (render_closed(app, gate, now)) }
        p class="small muted" { "Run " a href=(format!("/runs/{}", gate.run)) { code { (gate.run.short_id()) } } " · question " code { (gate.id) } " · digest " code { (gate.binding) } }
    };
    Ok(shell::narrow_page(
        app,
        &clip_line(&view.prompt, 60),
        &html! { (shell::rollback_warning(app)) (body) },
    ))
}

/// The subject of the question: preview, subject, items.
fn render_subject(view: &QuestionView) -> Markup {
    html! {
        @if let Some(preview) = &view.preview { (render_prose("Preview", preview)) }
        @match &view.subject {
            None => {}
            Some(Value::String(text)) => (render_prose("About", text)),
            Some(Value::Object(map)) if map.len() == 1 && map.get("text").is_some_and(Value::is_string) => (render_prose("About", map["text"].as_str().unwrap_or_default())),
            Some(Value::Array(items)) => (render_items(items)),
            Some(other) => (render_items(std::slice::from_ref(other))),
        }
        (render_items(&view.items))
    }
}

fn render_prose(title: &str, text: &str) -> Markup {
    let first = prefix(text, TEXT, Count::Bytes);
    html! {
        section {
            h2 { (title) }
            pre class="out" tabindex="0" { (harmless(first)) }
            @if first.len() < text.len() {
                details { summary { "The other " (lobster_runtime::figures::format_bytes((text.len() - first.len()) as u64)) } pre class="out" tabindex="0" { (harmless(&text[first.len()..])) } }
            }
        }
    }
}

/// Items: similar objects as a table, a single object field by field, anything else line by line.
fn render_items(items: &[Value]) -> Markup {
    let objects: Option<Vec<&Map<String, Value>>> = items.iter().map(Value::as_object).collect();
    let objects = objects.filter(|objects| objects.iter().all(|object| !object.is_empty()));
    html! {
        @if !items.is_empty() {
            section {
                header { h2 { (lobster_runtime::figures::count_noun(items.len() as u64, "item")) } }
                @match &objects {
                    Some(objects) if objects.len() == 1 => dl class="card pad facts" { @for (name, value) in objects[0] { dt { (harmless(name)) } dd { span { (cell_text(value)) } } } },
                    Some(objects) if column_names(objects).len() <= COLUMNS => {
                        @let columns = column_names(objects);
                        div class="card items" tabindex="0" { table class="table" {
                            thead { tr { @for name in &columns { th scope="col" class=[is_figures(objects, name).then_some("num")] { (harmless(name)) } } } }
                            tbody { @for object in objects.iter().take(ITEMS) { tr { @for name in &columns { @let value = object.get(*name); td data-label=(harmless(name)) class=[class_of(value)] { @if let Some(value) = value { (cell_text(value)) } } } } } }
                        } }
                    }
                    _ => ol class="card items rows" tabindex="0" { @for item in items.iter().take(ITEMS) { li { pre class="pad" { (cell_text(item)) } } } },
                }
                @if items.len() > ITEMS { div class="note is-wait" { strong { "Only the first " (ITEMS) " are shown" } p { "All of them: " code { "lobster approvals show ID" } } } }
            }
        }
    }
}

fn column_names<'o>(objects: &[&'o Map<String, Value>]) -> Vec<&'o str> {
    let mut names: Vec<&str> = Vec::new();
    for object in objects {
        for name in object.keys() {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
            if names.len() > COLUMNS {
                return names;
            }
        }
    }
    names
}

/// Longest text that is kept on one line.
const TIGHT: usize = 12;

/// Numbers are aligned, and short words such as dates are not broken.
fn class_of(value: Option<&Value>) -> Option<&'static str> {
    match value? {
        Value::Number(_) => Some("num"),
        Value::String(text) if text.len() <= TIGHT => Some("tight"),
        _ => None,
    }
}

/// True if a column contains only numbers.
fn is_figures(objects: &[&Map<String, Value>], name: &str) -> bool {
    objects.iter().filter_map(|object| object.get(name)).all(Value::is_number)
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::String(text) => harmless(text).into_owned(),
        Value::Array(_) | Value::Object(_) => harmless(&json::pretty(value)).into_owned(),
        other => json::compact(other),
    }
}

fn render_facts(view: &QuestionView) -> Markup {
    let (minor, main): (Vec<&Fact>, Vec<&Fact>) =
        view.facts.iter().partition(|fact| fact.weight == Weight::Minor);
    html! {
        dl class="card pad facts" { @for fact in main { (one_fact(fact)) } }
        @if !minor.is_empty() {
            details class="card pad" { summary { "Details" } dl class="facts" { @for fact in minor { (one_fact(fact)) } } }
        }
    }
}

fn one_fact(fact: &Fact) -> Markup {
    let is_exact = fact.weight == Weight::Exact || fact.label == "starts";
    let class = match fact.label.as_str() {
        "not held" | "confined" | "a yes fails" => "warn",
        _ if is_exact => "exact",
        _ => "",
    };
    html! {
        dt { (harmless(&fact.label)) }
        dd { @for value in &fact.values { span class=[(!class.is_empty()).then_some(class)] { @if is_exact { (exact(value)) } @else { (harmless(value)) } } } }
    }
}

fn render_form(app: &App, asked: &Asked, gate: &Gate) -> Markup {
    let typed = |name: &str| asked.field(name).map(str::to_owned);
    let digest = gate.binding.to_string();
    let action = format!("/questions/{}", gate.id);
    // An approval that requires a device's key.
    let (script, question) = match app.confirms_by_passkey {
        true => (Some(assets::url_of("passkey.js")), Some(format!("{} {digest}", gate.id))),
        false => (None, None),
    };
    html! {
        @match gate.kind {
            GateKind::Approval => {
                form method="post" action=(action) class="answer" data-passkeys=[script] data-question=[question] {
                    input type="hidden" name="digest" value=(digest);
                    (passkey_field(app))
                    button name="decision" value="approve" class="primary big" { "Yes, do it" }
                }
                form method="post" action=(action) class="answer" data-keep=(gate.id) {
                    input type="hidden" name="digest" value=(digest);
                    div class="field" {
                        label for="reason" { "Reason" span class="muted" { " (for a rejection; optional)" } }
                        textarea id="reason" name="reason" maxlength=(REASON) { "\n" (typed("reason").unwrap_or_default()) }
                    }
                    button name="decision" value="reject" class="danger big" { "No" }
                }
            }
            GateKind::Input => {
                form method="post" action=(action) class="answer" data-keep=(gate.id) data-passkeys=[script] data-question=[question] {
                    input type="hidden" name="digest" value=(digest);
                    (passkey_field(app))
                    (fields::render_fields(answer_schema(gate), &answer_defaults(gate), &typed))
                    button name="decision" value="respond" class="primary big" { "Send the answer" }
                    button name="decision" value="cancel" class="danger" formnovalidate data-confirm="Cancel the run?" { "Cancel the run" }
                }
            }
        }
    }
}

/// The note about the required passkey, and the field for its signature.
fn passkey_field(app: &App) -> Markup {
    html! {
        @if app.confirms_by_passkey {
            input type="hidden" name="passkey" value="";
            p class="small muted" { "You confirm an approval with " a href="/passkeys" { "a passkey" } " of yours." }
            p role="alert" {}
        }
    }
}

fn answer_schema(gate: &Gate) -> &Value {
    gate.detail
        .pointer("/question/input/schema")
        .or_else(|| gate.question.get("responseSchema"))
        .unwrap_or(&Value::Null)
}

fn answer_defaults(gate: &Gate) -> Value {
    let found = gate.detail.pointer("/question/input/defaults").or_else(|| gate.question.get("defaults"));
    found.cloned().unwrap_or_default()
}

fn render_closed(app: &App, gate: &Gate, now: i64) -> Markup {
    let answer = gate.answer.as_ref().map(|answer| json::parse(&json::compact(answer)).unwrap_or_default());
    let word = match &answer {
        Some(Value::String(word)) => word.clone(),
        Some(_) => "answered".to_owned(),
        None => gate.status.to_string(),
    };
    html! {
        div class="note" data-forget=(format!("/questions/{}", gate.id)) {
            p { (state_label(&word, true)) @if let Some(by) = &gate.answered_by { " by " strong { (clip_line(by, 80)) } } @if let Some(at) = gate.answered_at { " " (relative_time(at, now)) } }
            @if let Some(reason) = rejection_reason(app, gate) { p class="prompt" { (harmless(&reason)) } }
            @if let Some(Value::Object(map)) = &answer { pre class="out" tabindex="0" { (harmless(&json::pretty(map.get("response").unwrap_or(&Value::Null)))) } }
            div class="bar" { a class="button" href=(format!("/runs/{}", gate.run)) { "See the run" } a class="button" href="/" { "Other questions" } }
        }
    }
}

/// The reason of a rejection, if one was given.
fn rejection_reason(app: &App, gate: &Gate) -> Option<String> {
    if gate.answer != Some(GateAnswer::Rejected) {
        return None;
    }
    let (journal, _) = app.store.found_events(gate.run).ok()?;
    journal.iter().rev().find_map(|record| match &record.event {
        Event::RunEnded { detail, .. } if detail["answer"] == "rejected" => {
            detail["reason"].as_str().map(str::to_owned)
        }
        // The form of earlier records, in which the reason was a note.
        Event::Note { text, detail, .. } if text == REASON_NOTE && detail["gate"] == gate.id.as_str() => {
            detail["reason"].as_str().map(str::to_owned)
        }
        _ => None,
    })
}

pub(crate) fn answer(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let gate = app.store.find_gate(asked.param("approval"))?;
    let decision = asked.field("decision").unwrap_or_default();
    let mut body = json!({ "decision": decision, "digest": asked.field("digest").unwrap_or_default() });
    if decision == "respond" {
        let typed = |name: &str| asked.field(name).map(str::to_owned);
        let value = fields::value_of(answer_schema(&gate), &typed).and_then(|value| {
            let schema = Schema::compile(answer_schema(&gate)).map_err(|error| error.to_string())?;
            schema.first_error(&value).map_or(Ok(value), |why| Err(why.to_string()))
        });
        match value {
            Ok(value) => body["response"] = value,
            Err(why) => {
                return Ok(render_page(app, asked, &gate, Some(&why))?.with_status(StatusCode::BAD_REQUEST));
            }
        }
    }
    if decision == "reject" {
        body["reason"] = asked.field("reason").unwrap_or_default().into();
    }
    if let Some(passkey) = asked.field("passkey").filter(|passkey| !passkey.is_empty()) {
        body["passkey"] = json::parse(passkey)
            .map_err(|_| Problem::bad_request("the signature of the key cannot be read"))?;
    }
    match acts::answer_gate(app, &asked.with_json(body)) {
        // Nothing was answered, so the question is shown again with the typed text.
        Err(problem) if problem.code == "passkey" => {
            return Ok(render_page(app, asked, &gate, Some(&problem.detail))?.with_status(problem.status));
        }
        answered => answered?,
    };
    Ok(RouteReply::redirect_to(&format!("/questions/{}", gate.id)))
}
