//! `lobster runs`

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use lobster_runtime::json;
use lobster_runtime::replay::{Standing, last_end, runs_with_standing};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{RunFilter, RunSummary, Store, iso};
use serde_json::{Value, json};

use crate::exit::{CommandResult, Exit};
use crate::prepare;
use crate::render::pager::Output;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;
use crate::which;

/// Lists the recorded runs, newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster runs
  lobster runs --status failed --limit 5
  lobster runs --interrupted               runs to continue with `lobster resume RUN`")]
pub(crate) struct Args {
    /// Only runs with this status.
    #[arg(long, value_name = "STATUS", value_parser = standing_parser())]
    status: Option<Standing>,
    /// Only runs of this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only runs that stopped before their end: the process died, an effect was cut off, or the question
    /// expired. Same as `--status interrupted`.
    #[arg(long, conflicts_with = "status")]
    interrupted: bool,
    /// The most runs to list; 0 lists all.
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only runs older than this one, to page through a long list.
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
    /// Prints exact times instead of relative ones.
    #[arg(long)]
    full: bool,
    /// Prints a JSON array.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let filter = RunFilter {
        name: args.name.clone(),
        before: args.before.as_deref().map(|run| which::run(&store, run)).transpose()?,
        limit: args.limit,
        ..RunFilter::default()
    };
    let wanted = if args.interrupted { Some(Standing::Interrupted) } else { args.status };
    let rows = runs_with_standing(&store, &filter, wanted)?;
    let mut out = Output::for_reader(args.json);
    if args.json {
        let runs: Vec<Value> = rows.iter().map(|(run, status)| object(&store, run, *status)).collect();
        writeln!(out, "{}", json::pretty(&runs))?;
        return Ok(Exit::OK);
    }
    if rows.is_empty() {
        writeln!(out, "no runs")?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&["RUN", "STATUS", "STARTED", "TOOK", "NAME"])
        .figures(&["TOOK"])
        .spare(&["TOOK", "STARTED"]);
    for (run, status) in &rows {
        let took = run.ended_at.map_or_else(String::new, |end| {
            units::duration(u64::try_from((end - run.started_at).max(0)).unwrap_or(0) * 1000)
        });
        table.push(vec![
            run.id.short().into(),
            Cell::state(format!("{status}{}", if run.pinned { ", pinned" } else { "" })),
            units::time(run.started_at, args.full).into(),
            took.into(),
            run.name.as_str().into(),
        ]);
    }
    table.print(&mut out, Room::of_stdout())?;
    out.flush()?;
    Ok(Exit::OK)
}

/// Reads where a run stands; help and completion list the words.
fn standing_parser() -> impl TypedValueParser<Value = Standing> {
    PossibleValuesParser::new(Standing::ALL.map(Standing::as_str)).try_map(|word| word.parse::<Standing>())
}

fn object(store: &Store, run: &RunSummary, status: Standing) -> Value {
    let mut object = json!({
        "id": run.id.to_string(),
        "name": run.name,
        "kind": run.kind,
        "status": status.as_str(),
        "startedAt": iso(run.started_at),
        "endedAt": run.ended_at.map(iso),
        "cwd": run.cwd,
        "actor": run.actor,
        "parent": run.parent.map(|parent| parent.to_string()),
        "plan": run.plan,
        "error": run.error,
        "records": run.records,
        "pinned": run.pinned,
    });
    if status == Standing::Interrupted
        && let Some(mut end) = last_end(store, run)
        && end["unknown_ends"].is_array()
    {
        object["unknownEnds"] = end["unknown_ends"].take();
    }
    object
}
