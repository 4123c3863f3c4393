//! The editor of a workflow, with the results of `check`, `graph` and a dry run beside it.
//!
//! Checking and saving are forms; the script does the same during typing. The difference is always shown before
//! anything is written, and a file that has changed meanwhile is not replaced.

use axum::http::StatusCode;
use lobster_runtime::digest::Digest;
use lobster_runtime::figures::count_noun;
use lobster_runtime::graph::Graph;
use lobster_runtime::language::diagnostic::{Diagnostic, Severity};
use lobster_runtime::runtime::Draft;
use lobster_runtime::visible::harmless;
use lobster_serve::http::acts::{self, Saved};
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use lobster_serve::workflow_files::Content;
use lobster_serve::workflows::{self, Word};
use maud::{Markup, html};
use serde_json::Map;

use crate::assets;
use crate::chart;
use crate::diff;
use crate::shell::{self, RailPage};
use crate::words::{empty_placeholder, state_label};

/// Most steps in the graph beside the text.
const DRAWN: usize = 120;

/// The content of a new file.
const FIRST: &str = "name: \nargs:\n  who:\n    default: world\nsteps:\n  - id: greet\n    run: echo \"hello $LOBSTER_ARG_WHO\"\n";

/// A text in the editor.
struct Writing {
    /// The path of the file.
    path: String,
    is_new: bool,
    text: String,
    draft: Draft,
}

/// The part above the text.
enum Stage {
    Writing,
    /// The difference to the file, for confirmation.
    Saving {
        before: String,
    },
    /// The file has changed since it was read.
    Conflict {
        now: Option<Content>,
    },
}

fn digest_of(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

/// The current content of the workflow's file; none if it does not exist.
fn file_now(app: &App, asked: &Asked) -> Result<Option<Content>, Problem> {
    let file = acts::file_of_workflow(app, asked)?;
    app.files.read_file(file.editable_place()?).map_err(|problem| acts::file_problem(&file.path, problem))
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let (text, base) = match file_now(app, asked)? {
        Some(content) => (content.text, Some(content.digest)),
        None => (FIRST.to_owned(), None),
    };
    render_page(app, asked, text, base, &Stage::Writing)
}

pub(crate) fn check_or_save(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = file_now(app, asked)?;
    let known = now.as_ref().map(|now| now.digest);
    // Browsers send line ends as two characters.
    let mut text = asked.field("text").unwrap_or_default().replace("\r\n", "\n");
    let digest = |name: &str| match asked.field(name).filter(|digest| !digest.is_empty()) {
        None => Ok(None),
        Some(digest) => {
            digest.parse().map(Some).map_err(|_| Problem::bad_request("the form has no digest of the file"))
        }
    };
    let base: Option<Digest> = digest("base")?;
    let act = asked.field("act").unwrap_or_default();
    if let Some(number) = act.strip_prefix("fix:") {
        text = apply_fix(&acts::check_draft(app, asked, &text)?, number, text);
    }
    let is_seen = asked.field("seen") == Some(digest_of(&text).to_string().as_str());
    let before = |now: Option<Content>| now.map(|now| now.text).unwrap_or_default();
    match act {
        "write" | "register" if is_seen => match acts::save_file(app, asked, base, &text)? {
            Saved::Yes(digest) => finish_save(app, asked, digest, act == "register"),
            Saved::Changed(now) => {
                let stage = Stage::Conflict { now };
                Ok(render_page(app, asked, text, base, &stage)?.with_status(StatusCode::CONFLICT))
            }
        },
        // The text differs from the one that was shown, so the difference is shown again.
        "save" | "write" | "register" if known == base => {
            render_page(app, asked, text, base, &Stage::Saving { before: before(now) })
        }
        // The current file replaces the base version, and the difference to it is shown.
        "over" if known == digest("now")? => {
            render_page(app, asked, text, known, &Stage::Saving { before: before(now) })
        }
        "save" | "write" | "register" | "over" => {
            render_page(app, asked, text, base, &Stage::Conflict { now })
        }
        _ => render_page(app, asked, text, base, &Stage::Writing),
    }
}

/// Applies the correction of one finding.
fn apply_fix(draft: &Draft, number: &str, text: String) -> String {
    let finding = number.parse().ok().and_then(|number: usize| draft.findings.get(number));
    match finding.and_then(|finding| finding.fix.as_ref()) {
        Some(fix) if text.get(fix.span.start..fix.span.end).is_some() => {
            let mut text = text;
            text.replace_range(fix.span.start..fix.span.end, &fix.replacement);
            text
        }
        _ => text,
    }
}

fn finish_save(
    app: &App,
    asked: &Asked,
    digest: Digest,
    is_to_register: bool,
) -> Result<RouteReply, Problem> {
    let address = format!("/workflows/{}/edit?saved=yes", asked.param("workflow"));
    if is_to_register {
        let file = acts::file_of_workflow(app, asked)?;
        let candidate = workflows::read_candidate(&app.runtime, &file.path).map_err(|why| {
            Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "workflow",
                format!("it is saved but not registered: {why}"),
            )
        })?;
        // Only the text that was saved here is registered, never another person's text.
        let now = file.place.and_then(|place| app.files.read_file(&place).ok().flatten());
        if now.is_none_or(|now| now.digest != digest) {
            return Err(Problem::conflict(
                "changed",
                "it is saved but not registered: the file has changed since",
            ));
        }
        acts::register_file(app, asked, &file.path, &candidate.digest.to_string())?;
    }
    Ok(RouteReply::redirect_to(&address))
}

pub(crate) fn register(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let file = acts::file_of_workflow(app, asked)?;
    acts::register_file(app, asked, &file.path, asked.field("digest").unwrap_or_default())?;
    Ok(RouteReply::redirect_to(&format!("/workflows/{}", asked.param("workflow"))))
}

/// Redirects to the editor of a new workflow.
pub(crate) fn redirect_to_editor(_: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let name = asked.query("name").unwrap_or_default().trim();
    let name = name.strip_suffix(".lobster").unwrap_or(name);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Problem::bad_request(
            "a workflow is named after its file: use letters, digits, `-`, `_` and `.`",
        ));
    }
    Ok(RouteReply::redirect_to(&format!("/workflows/{name}/edit")))
}

fn render_page(
    app: &App,
    asked: &Asked,
    text: String,
    base: Option<Digest>,
    stage: &Stage,
) -> Result<RouteReply, Problem> {
    let name = asked.param("workflow");
    let file = acts::file_of_workflow(app, asked)?;
    let draft = acts::check_draft(app, asked, &text)?;
    let writing = Writing { path: file.path.display().to_string(), is_new: base.is_none(), text, draft };
    let address = format!("/workflows/{name}/edit");
    let is_saved = asked.query("saved").is_some() && matches!(stage, Stage::Writing);
    let body = html! {
        div class="crumbs" {
            a href="/workflows" { "Workflows" } "/"
            @if file.is_registered { a href=(format!("/workflows/{name}")) { (name) } } @else { span { (name) } }
            "/ edit"
        }
        div class="title" { h1 { "Edit " (name) } @if writing.is_new { (state_label("new", true)) } }
        @if is_saved { (registration_note(app, asked, &file.path)?) }
        form method="post" action=(address) class="stack" data-editor=(assets::url_of("editor.js")) data-workflow=(name) data-saved=[is_saved.then_some("")] {
            input type="hidden" name="base" value=(base.map(|base| base.to_string()).unwrap_or_default());
            (stage_markup(app, &writing, stage, file.is_registered))
            div class="split writing" {
                div class="stack" {
                    div class="note is-wait" id="restored" hidden { strong { "This is what you typed before" } p { "It is not saved." } div class="bar" { button type="button" data-discard="" { "Use the saved text" } } }
                    div class="field" {
                        label for="text" { code { (harmless(&writing.path)) } }
                        div class="text" {
                            textarea id="text" name="text" class="code" spellcheck="false" wrap="off" autocomplete="off" autocapitalize="off" rows="28" aria-describedby="keys" { "\n" (writing.text) }
                        }
                        p id="keys" { span class="js-only" { kbd { "Ctrl Space" } " proposes fields, steps and results; " kbd { "Ctrl S" } " shows the difference" } }
                    }
                    div class="bar" {
                        button name="act" value="save" class="primary" { "Save…" }
                        button name="act" value="check" { "Check" }
                        span class="muted small" id="live" role="status" {}
                    }
                }
                div class="stack" {
                    (render_findings(&writing.draft, &writing.path))
                    (render_graph(&writing.draft))
                    (dry_run(&writing.draft))
                }
            }
        }
    };
    Ok(shell::full_page(app, asked, &format!("Edit {name}"), RailPage::Workflows, &body))
}

/// Compares the saved file with the registered version.
fn registration_note(app: &App, asked: &Asked, path: &std::path::Path) -> Result<Markup, Problem> {
    let name = asked.param("workflow");
    let candidate = workflows::read_candidate(&app.runtime, path);
    let word = match &candidate {
        Ok(candidate) => Some(workflows::compare_registration(&app.service, candidate)?),
        Err(_) => None,
    };
    Ok(html! {
        div class="note is-ok" {
            strong { "Saved" }
            @match (&candidate, word) {
                (_, Some(Word::Registered)) => p { "This version is registered." },
                (Ok(_), _) if app.files.is_trusted => p { "This server registers what is saved in its folders." },
                (Ok(candidate), Some(Word::New | Word::Changed(_))) => {
                    p { "Nothing starts this version until it is registered." }
                    form method="post" action=(format!("/workflows/{name}/register")) class="bar" {
                        input type="hidden" name="digest" value=(candidate.digest);
                        button class="primary" { "Register this version" }
                    }
                }
                (Ok(_), Some(Word::Other(other))) => p { "Another file is registered under this name: " code { (other.path) } },
                (Ok(_), None) | (Err(_), _) => p { "It has an error, so nothing can start it." },
            }
        }
    })
}

fn stage_markup(app: &App, writing: &Writing, stage: &Stage, is_registered: bool) -> Markup {
    let seen = digest_of(&writing.text);
    let errors = writing.draft.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    html! {
        @match stage {
            Stage::Writing => {}
            Stage::Saving { before } if *before == writing.text && !writing.is_new => div class="note" { strong { "Nothing to save" } p { "The file already has this text." } },
            Stage::Saving { before } => section id="saving" {
                header { h2 { @if writing.is_new { "A new file" } @else { "Changes to the file" } } code class="muted small" { (harmless(&writing.path)) } }
                (diff::compare_texts(before, &writing.text))
                @if errors > 0 { div class="note is-wait" { strong { (count_noun(errors as u64, "error")) } p { "It can be saved, but nothing can start it." } } }
                @else if is_registered && !app.files.is_trusted { p class="muted" { "The registered version differs: runs are refused until this version is registered." } }
                input type="hidden" name="seen" value=(seen);
                div class="bar" {
                    button name="act" value="write" class="primary" { "Save the file" }
                    @if errors == 0 && !app.files.is_trusted { button name="act" value="register" { "Save and register" } }
                    button name="act" value="check" { "Continue editing" }
                }
            },
            Stage::Conflict { now } => section id="saving" {
                div class="note is-bad" role="alert" {
                    strong { @if now.is_some() { "The file has changed since you opened it" } @else { "The file is gone" } }
                    p { "Nothing was saved. Your text is below." @if now.is_some() { " Saving it would change the current file as follows:" } }
                }
                @if let Some(now) = now {
                    (diff::compare_texts(&now.text, &writing.text))
                    input type="hidden" name="now" value=(now.digest);
                }
                div class="bar" {
                    button name="act" value="over" { "Save over it…" }
                    a class="button" href="?" { "Use the current file" }
                }
            },
        }
    }
}

fn render_findings(draft: &Draft, path: &str) -> Markup {
    let own = path.rsplit('/').next().unwrap_or(path);
    html! {
        section id="findings" data-part="" {
            header { h2 { "Findings" } @if !draft.findings.is_empty() { span class="muted small" { (count_noun(draft.findings.len() as u64, "finding")) } } }
            div class="card calm" {
                @if draft.findings.is_empty() { (empty_placeholder("No problems found", "Findings of `lobster check` appear here.", None)) }
                @else {
                    ul class="rows findings" {
                        @for (number, finding) in draft.findings.iter().enumerate() { li { (render_finding(finding, number, own)) } }
                    }
                }
            }
        }
    }
}

fn render_finding(finding: &Diagnostic, number: usize, own: &str) -> Markup {
    let word = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let (line, column) = (finding.line, finding.column);
    html! {
        div class="row" {
            (state_label(word, false))
            div class="what" {
                p class="prompt" { (harmless(&finding.message)) }
                @if let Some(help) = &finding.help { p class="muted small prompt" { (harmless(help)) } }
                @if let Some(fix) = finding.fix.as_ref().filter(|_| finding.file == own) {
                    div class="bar" { button name="act" value=(format!("fix:{number}")) { "Write " code { (harmless(&fix.replacement)) } } }
                }
            }
            span class="when fig" {
                @if finding.file == own { a href="#text" data-line=(line) data-column=(column) { (line) ":" (column) } }
                @else { (harmless(&finding.file)) ":" (line) ":" (column) }
                " "
                code class="small" { (finding.code) }
            }
        }
    }
}

fn render_graph(draft: &Draft) -> Markup {
    let graph = draft.workflow.as_ref().map(|workflow| Graph::from_workflow(workflow, &Map::new()));
    html! {
        section id="picture" data-part="" {
            header { h2 { "Steps" } }
            div class="card pad" {
                @match &graph {
                    Some(graph) if graph.nodes.len() <= DRAWN => (chart::draw_graph(graph, &|_| None, &|_| None)),
                    Some(graph) => p class="muted" { (count_noun(graph.nodes.len() as u64, "step")) ", which is too many to draw" },
                    None => p class="muted" { "The text cannot be read yet." },
                }
            }
        }
    }
}

fn dry_run(draft: &Draft) -> Markup {
    html! {
        section id="plan" data-part="" {
            header { h2 { "Dry run" } }
            @match &draft.dry_run {
                Ok(plan) => pre class="out" tabindex="0" { (harmless(plan)) },
                Err(why) => p class="muted prompt" { (harmless(why)) },
            }
        }
    }
}
