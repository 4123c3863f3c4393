//! Schedules and the ledger of their ticks.

use lobster_runtime::audit::parse_time;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::ScheduleRow;
use serde_json::{Value, json};

use super::state::ROWS;
use super::{App, Asked, Problem, RouteReply};
use crate::schedule::{Scheduler, backfill_of};

/// Most ticks that are backfilled at once.
const BACKFILL_AT_MOST: usize = 1000;

fn find_schedule(app: &App, asked: &Asked) -> Result<ScheduleRow, Problem> {
    let (workflow, name) = (asked.param("workflow"), asked.param("schedule"));
    let row = app
        .service
        .list_schedules()?
        .into_iter()
        .find(|row| row.workflow_name == workflow && row.name == name);
    row.ok_or_else(|| Problem::not_found(format!("there is no schedule {workflow}/{name}")))
}

fn schedule_json(row: &ScheduleRow) -> Value {
    json!({
        "workflow": row.workflow_name,
        "name": row.name,
        "revision": row.revision,
        "spec": lobster_runtime::json::parse(&row.spec).unwrap_or_default(),
        "paused": row.paused.is_some(),
        "pausedBy": row.paused.as_ref().and_then(|(_, by)| by.clone()),
        "pausedAt": row.paused.as_ref().map(|(at, _)| iso(*at)),
        "next": row.next.map(iso),
    })
}

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let all = app.service.list_schedules()?;
    let rows: Vec<Value> =
        all.iter().filter(|row| asked.may_read(Some(&row.workflow_name))).map(schedule_json).collect();
    Ok(RouteReply::json(&json!({ "schedules": rows })))
}

pub(in super::super) fn list_ticks(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let row = find_schedule(app, asked)?;
    let now = app.store.clock_ms();
    let since = asked.query("since").map(|text| parse_time(text, now)).transpose();
    let since = since.map_err(Problem::bad_request)?.unwrap_or(i64::MIN);
    let ticks = app.service.list_ticks(row.n, since, asked.query_number("limit", 100)?.min(ROWS))?;
    let rows: Vec<Value> = ticks
        .into_iter()
        .map(|tick| {
            json!({
                "tick": tick.key, "due": iso(tick.due), "count": tick.count, "lastDue": iso(tick.last),
                "state": tick.state, "reason": tick.reason, "run": tick.run.map(|run| run.to_string()),
                "decidedAt": iso(tick.at), "revision": tick.revision,
            })
        })
        .collect();
    Ok(RouteReply::json(&json!({ "schedule": schedule_json(&row), "ticks": rows })))
}

pub fn pause_schedule(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    set_paused(app, asked, true)
}

pub fn resume_schedule(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    set_paused(app, asked, false)
}

fn set_paused(app: &App, asked: &Asked, paused: bool) -> Result<RouteReply, Problem> {
    let row = find_schedule(app, asked)?;
    // Ticks that were due until now are decided under the present terms.
    Scheduler::new(&app.store)?.settle_schedule(&row)?;
    let changed = app.service.set_paused(&row, paused, asked.caller_name(), &asked.caller_origin())?;
    let mut shown = schedule_json(&find_schedule(app, asked)?);
    shown["changed"] = changed.into();
    Ok(RouteReply::json(&shown))
}

pub(in super::super) fn backfill(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let row = find_schedule(app, asked)?;
    let now = app.store.clock_ms();
    let time = |name: &str| asked.json[name].as_str().map(|text| parse_time(text, now)).transpose();
    let from = time("from").map_err(Problem::bad_request)?.unwrap_or(now);
    let to = time("to").map_err(Problem::bad_request)?.unwrap_or(now).min(now);
    if to <= from {
        return Err(Problem::bad_request(format!("there is no time between {} and {}", iso(from), iso(to))));
    }
    let wanted =
        backfill_of(&app.service, &row, from, to, BACKFILL_AT_MOST + 1).map_err(Problem::bad_request)?;
    if wanted.len() > BACKFILL_AT_MOST {
        return Err(Problem::bad_request(format!(
            "there are more than {BACKFILL_AT_MOST} ticks between these times"
        )));
    }
    let runs = app.service.backfill_ticks(&row, &wanted, asked.caller_name(), &asked.caller_origin())?;
    app.waker.wake();
    let rows: Vec<Value> = wanted
        .iter()
        .zip(&runs)
        .map(|((tick, _), run)| json!({ "tick": tick.key, "due": iso(tick.due), "run": run.map(|run| run.to_string()) }))
        .collect();
    Ok(RouteReply::json(&json!({ "ticks": rows })))
}
