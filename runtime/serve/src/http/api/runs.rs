//! Runs: those in the store, and queued ones.

use lobster_runtime::json;
use lobster_runtime::replay::place::is_within;
use lobster_runtime::replay::step_output::streams_as_json;
use lobster_runtime::replay::{Standing, read_standing, runs_with_standing};
use lobster_runtime::store::service::Start;
use lobster_runtime::store::{RunFilter, RunStatus, RunSummary, StoreError, iso};
use serde_json::{Value, json};

use super::super::answer::{run_of, workflow_of_run};
use super::state::ROWS;
use super::{App, Asked, Problem, RouteReply};

/// A row without payloads, which keeps lists small. The error of a waiting run is the reason why it could not continue.
fn run_json(run: &RunSummary, standing: Standing, start: Option<&Start>, workflow: Option<&str>) -> Value {
    let held_up = start.filter(|_| run.status == RunStatus::Waiting).and_then(|start| start.why.as_ref());
    // A run that was stopped by a signal and that the service resumes has not ended.
    let resumes = standing == Standing::Interrupted && start.is_some_and(|start| !start.state.is_over());
    json!({
        "id": run.id.to_string(),
        "name": run.name,
        "kind": run.kind,
        "status": standing.as_str(),
        "workflow": workflow,
        "cause": start.map(|start| &start.cause),
        "actor": run.actor,
        "startedAt": iso(run.started_at),
        "endedAt": run.ended_at.filter(|_| !resumes).map(iso),
        "error": run.error.as_ref().or(held_up),
        "records": run.records,
    })
}

/// A start whose run has not begun.
fn queued_json(start: &Start, workflow: Option<&str>) -> Value {
    json!({
        "id": start.run.to_string(),
        "status": start.state.as_str(),
        "workflow": workflow,
        "cause": start.cause,
        "actor": start.actor,
        "queuedAt": iso(start.queued_at),
        "endedAt": start.ended_at.map(iso),
        "error": start.why,
        "args": start.args,
    })
}

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let status = asked.query("status").map(str::parse::<Standing>).transpose();
    let wanted = status.map_err(|error| Problem::bad_request(error.to_string()))?;
    let filter = RunFilter {
        status: None,
        name: asked.query("name").map(str::to_owned),
        since: None,
        before: asked.query("before").map(|text| app.store.find_run(text)).transpose()?,
        limit: asked.query_number("limit", 50)?.clamp(1, ROWS),
    };
    let found = runs_with_standing(&app.store, &filter, wanted)?;
    let next = found.last().filter(|_| found.len() == filter.limit).map(|(run, _)| run.id.to_string());
    let mut rows = Vec::with_capacity(found.len());
    for (run, standing) in &found {
        let start = app.service.start_of(run.id)?;
        let workflow = workflow_of_run(app, run.id)?;
        if asked.may_read(workflow.as_deref()) {
            rows.push(run_json(run, *standing, start.as_ref(), workflow.as_deref()));
        }
    }
    Ok(RouteReply::json(&json!({ "runs": rows, "before": next })))
}

pub(in super::super) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let run = run_of(app, asked)?;
    let start = app.service.start_of(run)?;
    let workflow = workflow_of_run(app, run)?;
    let summary = match app.store.run(run) {
        Ok(summary) => summary,
        Err(StoreError::UnknownRun(_)) if start.is_some() => {
            let row = start.as_ref().map(|start| queued_json(start, workflow.as_deref()));
            return Ok(RouteReply::json(&row.unwrap_or_default()));
        }
        Err(error) => return Err(error.into()),
    };
    let stands = read_standing(&app.store, &summary);
    let mut shown = run_json(&summary, stands, start.as_ref(), workflow.as_deref());
    shown["cwd"] = summary.cwd.as_str().into();
    shown["plan"] = json!(summary.plan);
    shown["detail"] = start.as_ref().map(|start| start.detail.clone()).unwrap_or_default();
    if let Some(digest) = summary.args {
        shown["args"] = load_json(app, &digest)?;
    }
    if let Some(digest) = summary.output {
        shown["output"] = load_json(app, &digest)?;
    }
    Ok(RouteReply::json(&shown))
}

/// The largest value that is sent, in bytes.
const VALUE: u64 = 1 << 20;

/// A blob as JSON. A blob that is too large or not JSON is represented by its digest.
fn load_json(app: &App, digest: &lobster_runtime::digest::Digest) -> Result<Value, Problem> {
    match app.store.load_blob(digest, VALUE) {
        Ok(bytes) => Ok(json::parse(&String::from_utf8_lossy(&bytes))
            .unwrap_or_else(|_| json!({ "blob": digest, "bytes": bytes.len() }))),
        Err(StoreError::BlobTooLarge { len, .. }) => Ok(json!({ "blob": digest, "bytes": len })),
        Err(error) => Err(error.into()),
    }
}

pub fn cancel_run(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let run = run_of(app, asked)?;
    let why = format!("{} cancelled it", asked.caller_name().unwrap_or("someone"));
    if !app.service.cancel_start(run, &why, asked.caller_name(), &asked.caller_origin())? {
        return Err(Problem::conflict(
            "over",
            "the run has ended, or the service did not start it; `lobster resume RUN --cancel` cancels others",
        ));
    }
    app.waker.wake();
    Ok(RouteReply::json(&json!({ "run": run.to_string() })))
}

/// The output of a run's steps, including running ones.
pub(in super::super) fn show_output(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let run = run_of(app, asked)?;
    let step = asked.query("step");
    let is_wanted = |path: &str, _: &str| step.is_none_or(|step| is_within(path, step));
    let streams = match streams_as_json(&app.store, run, is_wanted) {
        Err(StoreError::UnknownRun(_)) if app.service.start_of(run)?.is_some() => Vec::new(),
        other => other?.0,
    };
    Ok(RouteReply::json(&json!({ "streams": streams })))
}

pub(in super::super) fn list_records(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let run = run_of(app, asked)?;
    let limit = asked.query_number("limit", 200)?.clamp(1, ROWS);
    let records = match app.store.events_after(run, asked.query_number("after", 0)?, limit) {
        Err(StoreError::UnknownRun(_)) if app.service.start_of(run)?.is_some() => Vec::new(),
        other => other?,
    };
    let rows: Vec<Value> =
        records.iter().map(|record| json::parse(&record.text).unwrap_or_default()).collect();
    Ok(RouteReply::json(&json!({ "events": rows })))
}
