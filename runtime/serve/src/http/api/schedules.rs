//! Schedules and the ledger of their ticks.

use lobster_runtime::audit::parse_time;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::ScheduleRow;
use serde_json::{Value, json};

use super::state::ROWS;
use super::{App, Asked, Problem, Reply};
use crate::schedule::{Scheduler, backfill_of};

/// Most ticks that are backfilled at once.
const BACKFILL_AT_MOST: usize = 1000;

fn found(app: &App, asked: &Asked) -> Result<ScheduleRow, Problem> {
    let (workflow, name) = (asked.param("workflow"), asked.param("schedule"));
    let row =
        app.service.schedules()?.into_iter().find(|row| row.workflow_name == workflow && row.name == name);
    row.ok_or_else(|| Problem::not_found(format!("there is no schedule {workflow}/{name}")))
}

fn object(row: &ScheduleRow) -> Value {
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

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let all = app.service.schedules()?;
    let rows: Vec<Value> =
        all.iter().filter(|row| asked.may_read(Some(&row.workflow_name))).map(object).collect();
    Ok(Reply::json(&json!({ "schedules": rows })))
}

pub(in super::super) fn ticks(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let row = found(app, asked)?;
    let now = app.store.clock_ms();
    let since = asked.query("since").map(|text| parse_time(text, now)).transpose();
    let since = since.map_err(Problem::bad_request)?.unwrap_or(i64::MIN);
    let ticks = app.service.ticks(row.n, since, asked.number("limit", 100)?.min(ROWS))?;
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
    Ok(Reply::json(&json!({ "schedule": object(&row), "ticks": rows })))
}

pub fn pause(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    set_paused(app, asked, true)
}

pub fn resume(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    set_paused(app, asked, false)
}

fn set_paused(app: &App, asked: &Asked, paused: bool) -> Result<Reply, Problem> {
    let row = found(app, asked)?;
    // Ticks that were due until now are decided under the present terms.
    Scheduler::new(&app.store)?.settle(&row)?;
    let changed = app.service.pause(&row, paused, asked.name(), &asked.origin())?;
    let mut shown = object(&found(app, asked)?);
    shown["changed"] = changed.into();
    Ok(Reply::json(&shown))
}

pub(in super::super) fn backfill(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let row = found(app, asked)?;
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
    let runs = app.service.backfill(&row, &wanted, asked.name(), &asked.origin())?;
    app.waker.wake();
    let rows: Vec<Value> = wanted
        .iter()
        .zip(&runs)
        .map(|((tick, _), run)| json!({ "tick": tick.key, "due": iso(tick.due), "run": run.map(|run| run.to_string()) }))
        .collect();
    Ok(Reply::json(&json!({ "ticks": rows })))
}
