//! Workflows: listing registered versions, starting runs, registering other versions; and editing of files: checking a
//! text, completing it, saving it. A text is checked and never run, and saving it into the folders of the server
//! registers nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use lobster_runtime::digest::Digest;
use lobster_runtime::graph::{Format, draw_workflow};
use lobster_runtime::language::complete::{Proposal, propose_completions};
use lobster_runtime::language::source::Source;
use lobster_runtime::runtime::Draft;
use lobster_runtime::store::service::{NewStart, Registered};
use lobster_runtime::store::{RunId, iso};
use serde_json::{Map, Value, json};

use super::{App, Asked, Problem, RouteReply};
use crate::workflow_files::{Content as FileContent, FileProblem, MOST, SavePath};
use crate::workflows::{self, Content};

fn find_workflow(app: &App, asked: &Asked) -> Result<Registered, Problem> {
    let name = asked.param("workflow");
    app.service.find_workflow(name)?.ok_or_else(|| {
        Problem::not_found(format!("{name} is not registered; `lobster schedule register FILE` registers it"))
    })
}

fn workflow_json(workflow: &Registered) -> Value {
    let content = Content::from_registered(workflow);
    json!({
        "name": workflow.name,
        "title": content.title,
        "description": content.description,
        "path": workflow.path,
        "digest": workflow.digest,
        "registeredBy": workflow.registered_by,
        "registeredAt": iso(workflow.registered_at),
        "args": content.args,
        "webhooks": content.triggers.webhooks.iter().map(|hook| format!("/hooks/{}", hook.path)).collect::<Vec<_>>(),
        "notify": content.notify,
        "schedules": content.triggers.schedules.iter().map(|schedule| &schedule.name).collect::<Vec<_>>(),
    })
}

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let all = app.service.list_workflows()?;
    let rows: Vec<Value> =
        all.iter().filter(|workflow| asked.may_read(Some(&workflow.name))).map(workflow_json).collect();
    // Problems of unregistered files are only for callers who may see all of them.
    let problems = if asked.may_read(None) { app.problems.to_sentences() } else { Vec::new() };
    Ok(RouteReply::json(&json!({ "workflows": rows, "problems": problems })))
}

pub(in super::super) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    Ok(RouteReply::json(&workflow_json(&find_workflow(app, asked)?)))
}

pub(in super::super) fn start(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let run = start_run(app, asked)?.to_string();
    Ok(RouteReply::json(&json!({ "run": run, "status": "queued", "href": format!("/api/v1/runs/{run}") })))
}

/// Starts the run that the request's JSON describes.
///
/// # Errors
/// Fails if the arguments do not fit, or if the store cannot be written.
pub fn start_run(app: &App, asked: &Asked) -> Result<RunId, Problem> {
    let workflow = find_workflow(app, asked)?;
    let args = match &asked.json["args"] {
        Value::Null => json!({}),
        args => args.clone(),
    };
    enqueue_for(app, asked, workflow, args, Cause { name: "api", detail: json!({}) })
}

/// The cause of a start, for the history.
pub struct Cause {
    pub name: &'static str,
    pub detail: Value,
}

/// Starts a run of a registered version for the caller.
///
/// # Errors
/// Fails if the arguments do not fit, too many runs are queued, or the store cannot be written.
pub fn enqueue_for(
    app: &App,
    asked: &Asked,
    workflow: Registered,
    args: Value,
    cause: Cause,
) -> Result<RunId, Problem> {
    let mut detail = cause.detail;
    detail["credential"] = json!(asked.actor.as_ref().map(|actor| &actor.credential));
    if let Some(agent) = asked.agent_name() {
        detail["agent"] = json!(agent);
    }
    workflows::check_args(&Content::from_registered(&workflow), &args).map_err(Problem::bad_request)?;
    app.admit_start(asked.caller_name().unwrap_or_default())?;
    let actor = asked.caller_name().map(str::to_owned);
    let start = NewStart { actor, ..workflows::new_start(&workflow, cause.name, detail, args) };
    let run = app.service.enqueue_start(&start, &workflow.name, &asked.caller_origin())?;
    app.waker.wake();
    Ok(run)
}

pub(in super::super) fn register(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let name = asked.param("workflow");
    let path = match app.service.find_workflow(name)? {
        Some(known) => known.path.into(),
        None => app
            .problems
            .file_of(name)
            .ok_or_else(|| Problem::not_found(format!("this server's folders have no workflow {name}")))?,
    };
    let digest = register_file(app, asked, &path, asked.json["digest"].as_str().unwrap_or_default())?;
    Ok(RouteReply::json(&json!({ "name": name, "digest": digest })))
}

/// Registers a file in its current version, if its plan has the digest that was read. Returns that digest.
///
/// # Errors
/// Fails if the file is invalid or has another version, or if the store cannot be written.
pub fn register_file(app: &App, asked: &Asked, path: &Path, read: &str) -> Result<String, Problem> {
    let unusable = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "workflow", why);
    let candidate = workflows::read_candidate(&app.runtime, path).map_err(unusable)?;
    // The caller's right was checked for the workflow in the address.
    if candidate.name != asked.param("workflow") {
        return Err(Problem::bad_request("the file has the name of another workflow"));
    }
    let digest = candidate.digest.to_string();
    if read != digest {
        return Err(Problem::conflict("changed", "the file is not the version that was read; read it again")
            .with_details(json!({ "digest": digest })));
    }
    workflows::register(&app.service, &candidate, asked.caller_name(), &asked.caller_origin())
        .map_err(unusable)?;
    app.problems.check_now();
    Ok(digest)
}

// ---- files that are being written

/// The existing or future file of the workflow in the address.
#[derive(Debug)]
pub struct FileOfWorkflow {
    pub path: PathBuf,
    /// The place where it can be saved; none outside of the server's folders.
    pub place: Option<SavePath>,
    pub is_registered: bool,
}

impl FileOfWorkflow {
    /// The place where the file can be saved.
    ///
    /// # Errors
    /// Fails if it is outside of the server's folders.
    pub fn editable_place(&self) -> Result<&SavePath, Problem> {
        self.place.as_ref().ok_or_else(|| {
            let detail = format!(
                "{} is outside of the folders of this server, so it cannot be edited here; \
                 `lobster serve --workflows DIR` adds a folder",
                self.path.display()
            );
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "outside", detail)
        })
    }
}

/// Finds the file of the workflow that the request names.
///
/// # Errors
/// Fails if the store cannot be read, or if no file can have this name.
pub fn file_of(app: &App, asked: &Asked) -> Result<FileOfWorkflow, Problem> {
    let name = asked.param("workflow");
    if let Some(known) = app.service.find_workflow(name)? {
        let path = PathBuf::from(known.path);
        return Ok(FileOfWorkflow { place: app.files.place_of(&path), path, is_registered: true });
    }
    if let Some(path) = app.problems.file_of(name) {
        return Ok(FileOfWorkflow { place: app.files.place_of(&path), path, is_registered: false });
    }
    let place = app.files.new_place(name).ok_or_else(|| {
        Problem::not_found(match app.files.is_empty() {
            true => format!(
                "no workflow {name:?} is registered, and this server has no directory for a new one; \
                 `lobster serve --workflows DIR` adds a folder"
            ),
            false => {
                format!("{name:?} cannot be the name of a workflow: use letters, digits, `-`, `_` and `.`")
            }
        })
    })?;
    Ok(FileOfWorkflow { path: place.path(), place: Some(place), is_registered: false })
}

/// Checks a text for the file of the workflow in the address.
///
/// # Errors
/// Fails if the workflow cannot have a file, or if the text is too long.
pub fn check_draft(app: &App, asked: &Asked, text: &str) -> Result<Draft, Problem> {
    let source = source_of(app, asked, text)?;
    Ok(app.runtime.look_at_draft(&source))
}

fn source_of(app: &App, asked: &Asked, text: &str) -> Result<Arc<Source>, Problem> {
    if text.len() as u64 > MOST {
        return Err(too_long());
    }
    let path = file_of(app, asked)?.path;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Arc::new(Source::new(name, path, text.as_bytes())))
}

fn too_long() -> Problem {
    let detail = format!("a workflow file may have at most {MOST} bytes here");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

pub(in super::super) fn check_text(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let text = asked.json["text"].as_str().unwrap_or_default();
    let draft = check_draft(app, asked, text)?;
    let drawn = draft.workflow.map(|workflow| draw_workflow(&workflow, &Map::new(), Format::Mermaid));
    Ok(RouteReply::json(&json!({
        "findings": draft.findings,
        "dryRun": draft.dry_run.as_ref().ok(),
        "noDryRun": draft.dry_run.as_ref().err(),
        "graph": drawn,
    })))
}

pub(in super::super) fn complete_text(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let text = asked.json["text"].as_str().unwrap_or_default();
    if text.len() as u64 > MOST {
        return Err(too_long());
    }
    // Positions are counted as browsers' scripts count them, in UTF-16 units.
    let at = asked.json["at"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
    let commands: Vec<&str> = app.runtime.registry().iter().map(|spec| spec.name).collect();
    let proposals = propose_completions(text, bytes_before(text, at), &commands);
    let shown = |proposal: Proposal| {
        let unit = |at: usize| text[..at].encode_utf16().count();
        json!({
            "label": proposal.label, "about": proposal.about, "insert": proposal.insert,
            "from": unit(proposal.replaces.start), "to": unit(proposal.replaces.end),
        })
    };
    Ok(RouteReply::json(&json!({ "proposals": proposals.into_iter().map(shown).collect::<Vec<_>>() })))
}

/// The number of bytes in the first `units` UTF-16 units.
fn bytes_before(text: &str, units: usize) -> usize {
    let mut left = units;
    for (at, c) in text.char_indices() {
        if left < c.len_utf16() {
            return at;
        }
        left -= c.len_utf16();
    }
    text.len()
}

/// The result of saving.
#[derive(Debug)]
pub enum Saved {
    Yes(Digest),
    /// The file has changed since it was read. Holds the current content.
    Changed(Option<FileContent>),
}

/// Saves a text as the file of the workflow in the address, if the file still has the digest `base`.
///
/// # Errors
/// Fails if there is no place for it, or if it cannot be written.
pub fn save_file(app: &App, asked: &Asked, base: Option<Digest>, text: &str) -> Result<Saved, Problem> {
    if text.len() as u64 > MOST {
        return Err(too_long());
    }
    let file = file_of(app, asked)?;
    let place = file.editable_place()?;
    match app.files.save_file(place, base, text) {
        Ok(digest) => {
            let detail = json!({ "path": place.path(), "file": digest, "was": base });
            let (name, origin) = (asked.param("workflow"), asked.caller_origin());
            app.service.record_deed("save", name, (asked.caller_name(), &origin), detail)?;
            app.problems.check_now();
            Ok(Saved::Yes(digest))
        }
        Err(FileProblem::Changed(now)) => Ok(Saved::Changed(now)),
        Err(other) => Err(file_problem(&place.path(), other)),
    }
}

/// The reason why a file cannot be read or saved.
pub fn file_problem(path: &Path, problem: FileProblem) -> Problem {
    match problem {
        FileProblem::Unfit(why) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "file", why),
        FileProblem::Io(error) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "file", format!("{}: {error}", path.display()))
        }
        FileProblem::Changed(_) => {
            Problem::conflict("changed", format!("{} has changed meanwhile", path.display()))
        }
    }
}

pub(in super::super) fn read_file(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let file = file_of(app, asked)?;
    let content = match &file.place {
        Some(place) => app.files.read_file(place).map_err(|problem| file_problem(&file.path, problem))?,
        None => None,
    };
    let content = content.ok_or_else(|| {
        Problem::not_found(format!("this server's folders have no file {}", file.path.display()))
    })?;
    Ok(RouteReply::json(&json!({ "path": file.path, "text": content.text, "file": content.digest })))
}

pub(in super::super) fn save_text(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let base = match asked.json["was"].as_str() {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| Problem::bad_request("`was` is not a file digest"))?),
    };
    match save_file(app, asked, base, asked.json["text"].as_str().unwrap_or_default())? {
        Saved::Yes(digest) => Ok(RouteReply::json(&json!({ "file": digest }))),
        Saved::Changed(now) => {
            let digest = now.map(|now| now.digest);
            Err(Problem::conflict("changed", "the file has changed since it was read; read it again")
                .with_details(json!({ "file": digest })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bytes_before;

    #[test]
    fn places_of_a_browser_are_places_of_the_text() {
        let text = "aü😀b";
        let places: Vec<usize> = (0..7).map(|units| bytes_before(text, units)).collect();
        assert_eq!(places, [0, 1, 3, 3, 7, 8, 8]);
    }
}
