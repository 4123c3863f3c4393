//! `lobster serve notices`

use std::io::Write;

use lobster_runtime::store::iso;
use lobster_runtime::store::service::Notice;
use serde_json::{Value, json};

use crate::exit::{CommandResult, Exit, finish, print_json};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;

pub(super) fn list(count: usize, as_json: bool) -> CommandResult {
    let found = prepare::service()?.list_notices(count)?;
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let rows: Vec<Value> = found.iter().map(notice_as_json).collect();
        return print_json(&mut out, &rows);
    }
    if found.is_empty() {
        writeln!(out, "no notifications; `[[notify]]` in the file of --config routes them")?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&["QUEUED", "TARGET", "ABOUT", "STATE", "TRIED", "ERROR"]);
    for one in &found {
        let workflow = one.content["workflow"].as_str().unwrap_or("-");
        table.push(vec![
            units::format_age(one.queued_at).into(),
            one.target.as_str().into(),
            format!("{} {workflow}", one.kind).into(),
            Cell::state_word(one.state.as_str()),
            one.attempts.to_string().into(),
            one.said.clone().unwrap_or_else(|| "-".to_owned()).into(),
        ]);
    }
    table.print_to(&mut out, Room::of_stdout())?;
    finish(out)
}

fn notice_as_json(one: &Notice) -> Value {
    json!({
        "key": one.key, "target": one.target, "kind": one.kind, "run": one.run.map(|run| run.to_string()),
        "gate": one.gate, "content": one.content, "state": one.state, "attempts": one.attempts,
        "due": one.due.map(iso), "queuedAt": iso(one.queued_at), "endedAt": one.ended_at.map(iso),
        "error": one.said,
    })
}
