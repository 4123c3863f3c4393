//! `lobster runs`

use std::fmt;
use std::io::Write;

use lobster_runtime::json;
use lobster_runtime::replay::{is_interrupted, last_end};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{RunFilter, RunStatus, RunSummary, Store, StoreError, iso};
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
    #[arg(long, value_name = "STATUS")]
    status: Option<Status>,
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

/// Where a run stands, which is more than the status that its journal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Status {
    Running,
    Waiting,
    Interrupted,
    Ok,
    Failed,
    Cancelled,
}

impl Status {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// What the journals of such runs may say.
    fn recorded(self) -> &'static [RunStatus] {
        match self {
            Self::Running => &[RunStatus::Running],
            Self::Waiting => &[RunStatus::Waiting],
            Self::Interrupted => &[RunStatus::Running, RunStatus::Waiting, RunStatus::Failed],
            Self::Ok => &[RunStatus::Ok],
            Self::Failed => &[RunStatus::Failed],
            Self::Cancelled => &[RunStatus::Cancelled],
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let filter = RunFilter {
        name: args.name.clone(),
        before: args.before.as_deref().map(|run| which::run(&store, run)).transpose()?,
        limit: args.limit,
        ..RunFilter::default()
    };
    let wanted = if args.interrupted { Some(Status::Interrupted) } else { args.status };
    let runs = matching_runs(&store, &filter, wanted)?;
    let rows: Vec<_> = runs.iter().map(|run| (run, wanted.unwrap_or_else(|| status(&store, run)))).collect();
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

/// Runs that are looked at in one go.
const PAGE: usize = 100;

/// The runs that fit, the newest first; `wanted` is compared with what is shown.
pub(crate) fn matching_runs(
    store: &Store,
    filter: &RunFilter,
    wanted: Option<Status>,
) -> Result<Vec<RunSummary>, StoreError> {
    let Some(wanted) = wanted else { return store.runs(filter) };
    let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
    let mut found = Vec::new();
    for recorded in wanted.recorded() {
        let enough = limit.saturating_add(found.len());
        let mut page = RunFilter { status: Some(*recorded), limit: PAGE, ..filter.clone() };
        loop {
            let runs = store.runs(&page)?;
            page.before = runs.last().map(|run| run.id).filter(|_| runs.len() == PAGE);
            found.extend(runs.into_iter().filter(|run| status(store, run) == wanted));
            if page.before.is_none() || found.len() >= enough {
                break;
            }
        }
    }
    found.sort_by_key(|run| std::cmp::Reverse((run.started_at, run.id)));
    found.truncate(limit);
    Ok(found)
}

/// Where a run stands.
pub(crate) fn status(store: &Store, run: &RunSummary) -> Status {
    if is_interrupted(store, run) {
        return Status::Interrupted;
    }
    match run.status {
        RunStatus::Running => Status::Running,
        RunStatus::Waiting => Status::Waiting,
        RunStatus::Ok => Status::Ok,
        RunStatus::Failed => Status::Failed,
        RunStatus::Cancelled => Status::Cancelled,
    }
}

fn object(store: &Store, run: &RunSummary, status: Status) -> Value {
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
    if status == Status::Interrupted
        && let Some(mut end) = last_end(store, run)
        && end["unknown_ends"].is_array()
    {
        object["unknownEnds"] = end["unknown_ends"].take();
    }
    object
}
