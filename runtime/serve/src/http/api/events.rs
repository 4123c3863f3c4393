//! Sending of events, and the waits of parked runs.

use axum::http::StatusCode;
use lobster_runtime::json;
use lobster_runtime::language::wait::event_name;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::MAX_EVENT_DATA;
use serde_json::{Value, json};

use super::super::answer::workflow_of_run;
use super::state::ROWS;
use super::{App, Asked, Problem, RouteReply};

pub(in super::super) fn send(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let name = event_name(asked.json["name"].as_str().unwrap_or_default()).map_err(Problem::bad_request)?;
    let data = &asked.json["data"];
    if json::compact(data).len() > MAX_EVENT_DATA {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the data of an event has at most {MAX_EVENT_DATA} bytes of JSON"),
        ));
    }
    let sent = app.service.send_event(name, data, asked.caller_name(), &asked.caller_origin())?;
    app.waker.wake();
    Ok(RouteReply::json(&json!({ "event": sent.n, "waiting": sent.waiting })))
}

pub(in super::super) fn list_waits(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let mut rows: Vec<Value> = Vec::new();
    for wait in app.service.list_waits(asked.query_number("limit", 100)?.min(ROWS))? {
        let workflow = workflow_of_run(app, wait.run)?;
        if asked.may_read(workflow.as_deref()) {
            rows.push(json!({
                "run": wait.run.to_string(), "workflow": workflow, "path": wait.path,
                "until": wait.due.map(iso), "event": wait.event,
            }));
        }
    }
    Ok(RouteReply::json(&json!({ "waits": rows })))
}
