//! `lobster runs`

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use lobster_runtime::replay::{Standing, last_end, runs_with_standing};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::service::StartState;
use lobster_runtime::store::{RunFilter, RunSummary, Store, iso};
use serde_json::{Value, json};

use crate::exit::{CommandResult, Exit, finish, print_json};
use crate::prepare;
use crate::render::one_line;
use crate::render::pager::PagedOutput;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;
use crate::which::{self, Unbegun};

/// Lists the recorded runs, newest first, and the runs that the service refused to begin.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster runs
  lobster runs --status failed --limit 5
  lobster runs --interrupted               runs to continue with `lobster resume RUN`")]
pub(crate) struct Args {
    /// Only runs with this status.
    #[arg(long, value_name = "STATUS", value_parser = standing_parser())]
    status: Option<Wanted>,
    /// Only runs of this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Same as `--status interrupted`: the process died, an effect was cut off, or the question expired.
    #[arg(long, conflicts_with = "status")]
    interrupted: bool,
    /// The most runs to list; 0 lists all.
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only runs older than this one.
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
    let wanted = if args.interrupted { Some(Wanted::Standing(Standing::Interrupted)) } else { args.status };
    let (runs, mut refused) = match wanted {
        None => (runs_with_standing(&store, &filter, None)?, which::refused_starts(&store)?),
        Some(Wanted::Standing(standing)) => {
            (runs_with_standing(&store, &filter, Some(standing))?, Vec::new())
        }
        Some(Wanted::Refused) => (Vec::new(), which::refused_starts(&store)?),
    };
    let before = filter.before.map(|run| store.run(run)).transpose()?.map(|run| run.started_at);
    refused.retain(|unbegun| {
        args.name.as_ref().is_none_or(|name| unbegun.workflow == *name)
            && before.is_none_or(|before| unbegun.start.queued_at < before)
    });
    let mut rows: Vec<Row> =
        runs.into_iter().map(|(run, standing)| Row::Run(Box::new(run), standing)).collect();
    let is_whole = args.limit == 0 || rows.len() < args.limit;
    let oldest = rows.last().map(Row::start_time).filter(|_| !is_whole);
    refused.retain(|unbegun| oldest.is_none_or(|oldest| unbegun.start.queued_at >= oldest));
    for unbegun in refused {
        // The runs are listed in the order of their beginnings, even if the clock was set back.
        let at =
            rows.iter().position(|row| row.start_time() <= unbegun.start.queued_at).unwrap_or(rows.len());
        rows.insert(at, Row::Refused(Box::new(unbegun)));
    }
    if args.limit > 0 {
        rows.truncate(args.limit);
    }
    let mut out = PagedOutput::for_reader(args.json);
    if args.json {
        let runs: Vec<Value> = rows.iter().map(|row| row.to_json(&store)).collect();
        return print_json(&mut out, &runs);
    }
    if rows.is_empty() {
        writeln!(out, "no runs")?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&["RUN", "STATUS", "STARTED", "TOOK", "NAME"])
        .numeric_columns(&["TOOK"])
        .optional_columns(&["TOOK", "STARTED"]);
    rows.iter().for_each(|row| table.push(row.to_cells(args.full)));
    table.print_to(&mut out, Room::of_stdout())?;
    for row in &rows {
        if let Row::Run(run, Standing::Interrupted) = row
            && !is_resumed_by_service(&store, run)
        {
            let by = interrupted_by(&store, run).map(|by| format!(", stopped by {}", one_line(&by)));
            let (id, name) = (run.id.short_id(), one_line(&run.name));
            writeln!(out, "`lobster resume {id}` continues {name}{}", by.unwrap_or_default())?;
        }
    }
    finish(out)
}

/// An entry of the list.
enum Row {
    Run(Box<RunSummary>, Standing),
    /// The service refused to begin this run.
    Refused(Box<Unbegun>),
}

impl Row {
    fn start_time(&self) -> i64 {
        match self {
            Self::Run(run, _) => run.started_at,
            Self::Refused(unbegun) => unbegun.start.queued_at,
        }
    }

    fn to_json(&self, store: &Store) -> Value {
        match self {
            Self::Run(run, standing) => run_as_json(store, run, *standing),
            Self::Refused(unbegun) => unbegun.to_json(),
        }
    }

    fn to_cells(&self, is_exact: bool) -> Vec<Cell> {
        let (id, state, took, name) = match self {
            Self::Run(run, standing) => {
                let took = run.ended_at.map_or_else(String::new, |end| {
                    units::format_duration(u64::try_from((end - run.started_at).max(0)).unwrap_or(0) * 1000)
                });
                let state = format!("{standing}{}", if run.pinned { ", pinned" } else { "" });
                (run.id, state, took, run.name.as_str())
            }
            Self::Refused(unbegun) => {
                (unbegun.start.run, REFUSED.to_owned(), String::new(), unbegun.workflow.as_str())
            }
        };
        vec![
            id.short_id().into(),
            Cell::state_word(state),
            units::format_time(self.start_time(), is_exact).into(),
            took.into(),
            name.into(),
        ]
    }
}

/// The runs that a person wants to see.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Standing(Standing),
    Refused,
}

/// The status of a run that the service refused to begin.
const REFUSED: &str = "refused";

/// Parses the status of a run; help and completion list the words.
fn standing_parser() -> impl TypedValueParser<Value = Wanted> {
    let words = Standing::ALL.map(Standing::as_str).into_iter().chain([REFUSED]);
    PossibleValuesParser::new(words).try_map(|word| match word.as_str() {
        REFUSED => Ok(Wanted::Refused),
        word => word.parse::<Standing>().map(Wanted::Standing),
    })
}

fn run_as_json(store: &Store, run: &RunSummary, status: Standing) -> Value {
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
    {
        for (name, field) in [("unknownEnds", "unknown_ends"), ("interruptedBy", "interrupted_by")] {
            if !end[field].is_null() {
                object[name] = end[field].take();
            }
        }
    }
    object
}

/// The signal or the lost client that interrupted a run.
fn interrupted_by(store: &Store, run: &RunSummary) -> Option<String> {
    last_end(store, run)?["interrupted_by"].as_str().map(str::to_owned)
}

/// True if the service has the run in its queue.
fn is_resumed_by_service(store: &Store, run: &RunSummary) -> bool {
    let service = store.existing_service().ok().flatten();
    let start = service.and_then(|service| service.start_of(run.id).ok().flatten());
    start.is_some_and(|start| matches!(start.state, StartState::Queued | StartState::Taken))
}
