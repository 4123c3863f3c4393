//! `lobster runs`

use std::io::Write;

use lobster_runtime::json;
use lobster_runtime::steps::stages::Mode;
use lobster_runtime::store::{
    GateFilter, GateStatus, RunFilter, RunStatus, RunSummary, Store, StoreError, iso,
};
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::render::{table, units};

/// Lists what ran, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster runs
  lobster runs --status failed --limit 5
  lobster runs --interrupted               what a crash cut off; `lobster resume RUN` goes on")]
pub(crate) struct Args {
    /// Only runs of this status: running, waiting, ok, failed, cancelled.
    #[arg(long, value_name = "STATUS")]
    status: Option<RunStatus>,
    /// Only runs of this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only runs whose process died before they ended.
    #[arg(long)]
    interrupted: bool,
    /// At most so many; 0 means all.
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only runs older than this one: the next page.
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
    /// An array of objects instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = super::runtime(Mode::Human)?.store()?;
    let filter = RunFilter {
        status: args.status,
        name: args.name.clone(),
        before: args
            .before
            .as_deref()
            .map(|run| store.find_run(run))
            .transpose()
            .map_err(CommandError::usage)?,
        limit: args.limit,
        ..RunFilter::default()
    };
    let rows = if args.interrupted { interrupted(&store, &filter)? } else { listed(&store, &filter)? };
    let mut out = std::io::stdout().lock();
    if args.json {
        let runs: Vec<Value> = rows.iter().map(|(run, status)| object(run, status)).collect();
        writeln!(out, "{}", json::pretty(&runs))?;
        return Ok(Exit::OK);
    }
    if rows.is_empty() {
        writeln!(out, "no runs")?;
        return Ok(Exit::OK);
    }
    let mut cells = vec![["RUN", "STATUS", "STARTED", "TOOK", "NAME"].map(str::to_owned).to_vec()];
    for (run, status) in &rows {
        let took = run.ended_at.map_or_else(String::new, |end| {
            units::duration(u64::try_from((end - run.started_at).max(0)).unwrap_or(0) * 1000)
        });
        let started = iso(run.started_at).replace('T', " ");
        cells.push(vec![run.id.short(), status.clone(), started[..19].to_owned(), took, run.name.clone()]);
    }
    for line in table::lines(&cells) {
        writeln!(out, "{line}")?;
    }
    Ok(Exit::OK)
}

fn listed(store: &Store, filter: &RunFilter) -> Result<Vec<(RunSummary, String)>, StoreError> {
    let runs = store.runs(filter)?.into_iter();
    Ok(runs
        .map(|run| {
            let status = status(store, &run);
            (run, status)
        })
        .collect())
}

/// Whether a run was interrupted is found by looking at each that is not over.
fn interrupted(store: &Store, filter: &RunFilter) -> Result<Vec<(RunSummary, String)>, StoreError> {
    let mut rows = Vec::new();
    for unfinished in [RunStatus::Running, RunStatus::Waiting] {
        rows.extend(listed(store, &RunFilter { status: Some(unfinished), limit: 0, ..filter.clone() })?);
    }
    rows.retain(|(_, status)| status == "interrupted");
    rows.sort_by_key(|(run, _)| std::cmp::Reverse((run.started_at, run.id)));
    rows.truncate(if filter.limit == 0 { usize::MAX } else { filter.limit });
    Ok(rows)
}

/// A run's status; one that is on record as running but that nobody executes was interrupted.
pub(crate) fn status(store: &Store, run: &RunSummary) -> String {
    let open = GateFilter { status: Some(GateStatus::Open), run: Some(run.id), limit: 1 };
    let unfinished = match run.status {
        RunStatus::Running => true,
        // Killed between stopping and asking, or between an answer and going on.
        RunStatus::Waiting => store.gates(&open).is_ok_and(|gates| gates.is_empty()),
        RunStatus::Ok | RunStatus::Failed | RunStatus::Cancelled => false,
    };
    if unfinished && !store.is_claimed(run.id) {
        return "interrupted".to_owned();
    }
    run.status.as_str().to_owned()
}

fn object(run: &RunSummary, status: &str) -> Value {
    json!({
        "id": run.id.to_string(),
        "name": run.name,
        "kind": run.kind,
        "status": status,
        "startedAt": iso(run.started_at),
        "endedAt": run.ended_at.map(iso),
        "cwd": run.cwd,
        "actor": run.actor,
        "parent": run.parent.map(|parent| parent.to_string()),
        "plan": run.plan,
        "error": run.error,
        "records": run.records,
    })
}
