//! The server itself: health, metrics, and the trail of actions.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use lobster_runtime::store::{GateFilter, GateStatus, iso};
use serde_json::{Value, json};

use super::super::openapi;
use super::{App, Asked, Problem, RouteReply};

/// The most rows of one answer.
pub(super) const ROWS: usize = 1000;

pub(in super::super) fn health(app: &App, _: &Asked) -> Result<RouteReply, Problem> {
    let usable = app.store.check_identity().and_then(|()| app.service.next_decision().map(|_| ()));
    Ok(match usable {
        Ok(()) => RouteReply::json(&json!({ "status": "ok" })),
        // The reason is not for everyone who can connect; it is logged.
        Err(error) => {
            tracing::error!(%error, "the store cannot be used");
            RouteReply::json(&json!({ "status": "failing" })).with_status(StatusCode::SERVICE_UNAVAILABLE)
        }
    })
}

pub(in super::super) fn check_readiness(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let missing = app.readiness.missing_abilities(&app.store);
    if missing.is_empty() {
        return Ok(RouteReply::json(&json!({ "status": "ready" })));
    }
    // The reasons are only for callers who may read everything; they are logged as well.
    let may_know = asked.may_read(None);
    let rows = missing.iter().map(|(ability, why)| {
        tracing::error!(ability = ability.as_str(), why, "the server is not ready");
        json!({ "what": ability.as_str(), "why": may_know.then_some(why) })
    });
    let body = json!({ "status": "failing", "cannot": rows.collect::<Vec<_>>() });
    Ok(RouteReply::json(&body).with_status(StatusCode::SERVICE_UNAVAILABLE))
}

pub(in super::super) fn openapi(_: &App, _: &Asked) -> Result<RouteReply, Problem> {
    Ok(RouteReply::json(&openapi::document()))
}

pub(in super::super) fn metrics(app: &App, _: &Asked) -> Result<RouteReply, Problem> {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, rows: &[(String, u64)]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let starts = app.service.count_starts()?;
    let rows: Vec<_> =
        starts.iter().map(|(state, count)| (format!("{{state=\"{state}\"}}"), *count)).collect();
    gauge("lobster_starts", "Runs of the service by state.", &rows);
    let schedules = app.service.list_schedules()?;
    let paused = schedules.iter().filter(|row| row.paused.is_some()).count() as u64;
    let active = schedules.len() as u64 - paused;
    let rows = [("{state=\"active\"}".to_owned(), active), ("{state=\"paused\"}".to_owned(), paused)];
    gauge("lobster_schedules", "Registered schedules.", &rows);
    let now = app.store.clock_ms();
    let late = schedules.iter().filter_map(|row| row.next).min().map_or(0, |next| (now - next).max(0));
    let late = [(String::new(), late.unsigned_abs())];
    gauge("lobster_schedule_lag_milliseconds", "Waiting time of the longest due tick.", &late);
    let open = GateFilter { status: Some(GateStatus::Open), ..GateFilter::default() };
    let gates = [(String::new(), app.store.list_approvals(&open)?.len() as u64)];
    gauge("lobster_gates_open", "Questions waiting for a person.", &gates);
    let up = [(String::new(), ((now - app.started_at) / 1000).max(0).unsigned_abs())];
    gauge("lobster_up_seconds", "Time since this server started.", &up);
    let _ = writeln!(
        text,
        "# HELP lobster_http_requests_total Requests by class of status.\n# TYPE lobster_http_requests_total counter"
    );
    for (class, count) in app.requests.iter().enumerate().skip(1) {
        let count = count.load(Ordering::Relaxed);
        let _ = writeln!(text, "lobster_http_requests_total{{class=\"{class}xx\"}} {count}");
    }
    Ok(RouteReply::bytes("text/plain; version=0.0.4; charset=utf-8", text))
}

pub(in super::super) fn servers(app: &App, _: &Asked) -> Result<RouteReply, Problem> {
    let servers = app.service.running_servers()?;
    let rows = servers.into_iter().map(|server| {
        json!({
            "id": server.id, "pid": server.pid, "listen": server.listen, "url": server.url,
            "startedAt": iso(server.started_at), "heardAt": iso(server.heard_at),
        })
    });
    Ok(RouteReply::json(&json!({ "servers": rows.collect::<Vec<_>>() })))
}

pub(in super::super) fn deliveries(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let found = app.service.list_deliveries(asked.query_number("limit", 100)?.min(ROWS))?;
    let rows = found.into_iter().map(|one| {
        json!({
            "n": one.n, "hook": one.hook, "id": one.id, "digest": one.digest,
            "receivedAt": iso(one.received_at), "run": one.run.map(|run| run.to_string()),
        })
    });
    Ok(RouteReply::json(&json!({ "deliveries": rows.collect::<Vec<_>>() })))
}

pub(in super::super) fn notices(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let found = app.service.list_notices(asked.query_number("limit", 100)?.min(ROWS))?;
    let rows = found.into_iter().map(|one| {
        json!({
            "key": one.key, "target": one.target, "kind": one.kind, "run": one.run.map(|run| run.to_string()),
            "gate": one.gate, "state": one.state, "attempts": one.attempts, "due": one.due.map(iso),
            "queuedAt": iso(one.queued_at), "endedAt": one.ended_at.map(iso), "error": one.said,
        })
    });
    Ok(RouteReply::json(&json!({ "notices": rows.collect::<Vec<_>>() })))
}

pub(in super::super) fn trail(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let found = app.service.list_deeds(asked.query_number("limit", 100)?.min(ROWS))?;
    let rows: Vec<Value> = found
        .into_iter()
        .map(|deed| {
            json!({
                "at": iso(deed.at), "actor": deed.actor, "origin": deed.origin, "verb": deed.verb,
                "object": deed.object, "detail": deed.detail,
            })
        })
        .collect();
    Ok(RouteReply::json(&json!({ "trail": rows })))
}
