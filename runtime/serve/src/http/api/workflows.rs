//! Workflows: what is registered, starting a run, registering another version.

use axum::http::StatusCode;
use lobster_runtime::store::service::{NewStart, Registered};
use lobster_runtime::store::{RunId, iso};
use serde_json::{Value, json};

use super::{App, Asked, Problem, Reply};
use crate::workflows::{self, Content};

fn found(app: &App, asked: &Asked) -> Result<Registered, Problem> {
    let name = asked.param("workflow");
    app.service.workflow(name)?.ok_or_else(|| {
        Problem::not_found(format!("{name} is not registered; `lobster schedule register FILE` registers it"))
    })
}

fn object(workflow: &Registered) -> Value {
    let content = Content::of(workflow);
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

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let all = app.service.workflows()?;
    let rows: Vec<Value> =
        all.iter().filter(|workflow| asked.may_read(Some(&workflow.name))).map(object).collect();
    // What is wrong with files that are not registered is for those who see all of them.
    let problems = if asked.may_read(None) { app.problems.list() } else { Vec::new() };
    Ok(Reply::json(&json!({ "workflows": rows, "problems": problems })))
}

pub(in super::super) fn show(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    Ok(Reply::json(&object(&found(app, asked)?)))
}

pub(in super::super) fn start(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let run = enqueue(app, asked)?.to_string();
    Ok(Reply::json(&json!({ "run": run, "status": "queued", "href": format!("/api/v1/runs/{run}") })))
}

/// Has the run started that the request's JSON asks for.
///
/// # Errors
/// When the arguments do not fit, or the store cannot be written.
pub fn enqueue(app: &App, asked: &Asked) -> Result<RunId, Problem> {
    let workflow = found(app, asked)?;
    let args = match &asked.json["args"] {
        Value::Null => json!({}),
        args => args.clone(),
    };
    enqueue_for(app, asked, workflow, args, Cause { name: "api", detail: json!({}) })
}

/// What had a run started, for the history.
pub struct Cause {
    pub name: &'static str,
    pub detail: Value,
}

/// Has a run of a registered version started for whoever asks.
///
/// # Errors
/// When the arguments do not fit, or the store cannot be written.
pub fn enqueue_for(
    app: &App,
    asked: &Asked,
    workflow: Registered,
    args: Value,
    cause: Cause,
) -> Result<RunId, Problem> {
    let mut detail = cause.detail;
    detail["credential"] = json!(asked.actor.as_ref().map(|actor| &actor.credential));
    workflows::check_args(&Content::of(&workflow), &args).map_err(Problem::bad_request)?;
    let start = NewStart {
        workflow: workflow.n,
        digest: workflow.digest,
        schedule: None,
        cause: cause.name.to_owned(),
        detail,
        args,
        actor: asked.name().map(str::to_owned),
        is_serial: false,
    };
    let run = app.service.enqueue(&start, &workflow.name, &asked.origin())?;
    app.waker.wake();
    Ok(run)
}

pub(in super::super) fn register(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let name = asked.param("workflow");
    let path = match app.service.workflow(name)? {
        Some(known) => known.path.into(),
        None => app
            .problems
            .file_of(name)
            .ok_or_else(|| Problem::not_found(format!("this server's folders have no workflow {name}")))?,
    };
    let unusable = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "workflow", why);
    let candidate = workflows::read(&app.runtime, &path).map_err(unusable)?;
    let digest = candidate.digest.to_string();
    if asked.json["digest"].as_str() != Some(digest.as_str()) {
        return Err(Problem::conflict("changed", "the file is not the version that was read; read it again")
            .with(json!({ "digest": digest })));
    }
    workflows::register(&app.service, &candidate, asked.name(), &asked.origin()).map_err(unusable)?;
    app.problems.wake();
    Ok(Reply::json(&json!({ "name": candidate.name, "digest": digest })))
}
