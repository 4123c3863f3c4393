//! `lobster schedule`

mod registering;
mod ticks;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lobster_runtime::audit::parse_time;
use lobster_runtime::setting::INITIATED_BY;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::{NewStart, ScheduleRow, Service, TickState};
use lobster_serve::schedule::{Scheduler, parse_spec};
use lobster_serve::watch::unreadable_files;
use lobster_serve::workflows::{Content, read_candidate};
use serde_json::{Map, Value, json};

use crate::exit::{CommandError, CommandResult, Exit, finish, print_json};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;
use crate::render::{one_line, print_to_stderr};
use crate::stdout::print_line;

/// Registers workflows with the service and manages their schedules.
///
/// Works with and without a running `lobster serve` on the same store. SCHEDULE is the name of a
/// workflow, or WORKFLOW/SCHEDULE if it has several.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster schedule register report.lobster
  lobster schedule list
  lobster schedule next report --count 5
  lobster schedule why report
  lobster schedule pause report
  lobster schedule run-now report --arg day=2026-05-01
  lobster schedule backfill report --from 2026-05-01 --to 2026-05-04")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Registers workflow files, so that the service starts them.
    ///
    /// Shows the triggers of each and asks. A changed file is not started until it is registered again.
    Register {
        /// The workflow files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Does not ask; for operators who have read the files.
        #[arg(long)]
        trust: bool,
    },
    /// Removes a workflow from the service. Its running runs continue.
    Unregister {
        /// The name of the workflow.
        workflow: String,
    },
    /// Lists the schedules and the next time of each.
    List {
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Prints the next times of a schedule, even for a file that is not registered.
    ///
    /// Marks the days on which the clocks change.
    Next {
        /// The schedule, or a workflow file.
        schedule: String,
        /// The number of times.
        #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
        count: usize,
        /// The time to start from (default: now).
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Pauses a schedule. Runs that are due meanwhile are not started later.
    Pause {
        /// The schedule.
        schedule: String,
    },
    /// Resumes a paused schedule.
    Resume {
        /// The schedule.
        schedule: String,
    },
    /// Starts a run of a workflow now, in addition to its schedule.
    RunNow {
        /// The schedule, whose arguments are used; or a workflow without a schedule.
        schedule: String,
        /// One argument of the workflow; may be repeated.
        #[arg(long, value_name = "NAME=VALUE")]
        arg: Vec<String>,
    },
    /// Starts the missing runs of past ticks, one after another.
    Backfill {
        /// The schedule.
        schedule: String,
        /// The beginning of the time range.
        #[arg(long, value_name = "TIME")]
        from: String,
        /// The end of the time range (default: now).
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
        /// Lists the ticks, without starting runs.
        #[arg(long)]
        dry_run: bool,
    },
    /// Lists the outcomes of a schedule's ticks, and the reasons.
    Why {
        /// The schedule.
        schedule: String,
        /// Only the entry about this time.
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// The most entries to list, the newest last.
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        count: usize,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> CommandResult {
    match &args.task {
        Task::Register { files, trust } => registering::register_files(files, *trust),
        Task::Unregister { workflow } => registering::unregister_workflow(workflow),
        Task::List { json } => list_schedules(*json),
        Task::Next { schedule, count, from, json } => ticks::next(schedule, *count, from.as_deref(), *json),
        Task::Pause { schedule } => set_paused(schedule, true),
        Task::Resume { schedule } => set_paused(schedule, false),
        Task::RunNow { schedule, arg } => run_now(schedule, arg),
        Task::Backfill { schedule, from, to, dry_run } => {
            ticks::backfill(schedule, from, to.as_deref(), *dry_run)
        }
        Task::Why { schedule, at, count, json } => {
            ticks::explain_starts(schedule, at.as_deref(), *count, *json)
        }
    }
}

/// The recorded origin of changes by this command.
pub(super) const ORIGIN: &str = "command line";

/// The user at the keyboard, according to the environment.
pub(crate) fn current_actor() -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    set("LOBSTER_ACTOR").or_else(|| set("USER")).or_else(|| set("LOGNAME"))
}

/// The initiator of a run started here: the person named by the environment, as for `lobster run`, or
/// else the user at the keyboard. The initiator cannot approve the run if another person is required.
fn run_initiator() -> Result<Option<String>, CommandError> {
    let named = INITIATED_BY.read_env(|name| std::env::var_os(name))?;
    Ok(named.or_else(current_actor))
}

/// The schedule with this name.
fn find_schedule(service: &Service, name: &str) -> Result<ScheduleRow, CommandError> {
    let rows = service.list_schedules()?;
    let mut found: Vec<ScheduleRow> =
        rows.iter().filter(|row| row.workflow_name == name || row.display_name() == name).cloned().collect();
    match (found.pop(), found.is_empty()) {
        (Some(row), true) => Ok(row),
        (Some(row), false) => {
            let names: Vec<_> = found.iter().chain([&row]).map(ScheduleRow::display_name).collect();
            Err(CommandError::usage(format!("{name} has several schedules: {}", names.join(", "))))
        }
        (None, _) => {
            let known = service.find_workflow(name)?.is_some();
            let why = if known { "has no schedule" } else { "is not registered" };
            Err(CommandError::usage(format!("{name} {why}")).with_hint(
                "`lobster schedule list` lists what is, `lobster schedule register FILE` adds to it",
            ))
        }
    }
}

fn parse_instant(text: &str, now: i64) -> Result<i64, CommandError> {
    parse_time(text, now).map_err(CommandError::usage)
}

/// Warns that nothing starts now if no server is running.
fn tell_if_nobody_serves(service: &Service) -> Result<(), CommandError> {
    if service.running_servers()?.is_empty() {
        print_to_stderr("no server is running on this store: nothing starts until `lobster serve` does");
    }
    Ok(())
}

fn list_schedules(as_json: bool) -> CommandResult {
    let service = prepare::service()?;
    let rows = service.list_schedules()?;
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let rows: Vec<Value> = rows.iter().map(schedule_as_json).collect();
        return print_json(&mut out, &rows);
    }
    let without: Vec<_> = service
        .list_workflows()?
        .into_iter()
        .filter(|workflow| !rows.iter().any(|row| row.workflow == workflow.n))
        .collect();
    if rows.is_empty() && without.is_empty() {
        writeln!(out, "nothing is registered; `lobster schedule register FILE` does it")?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&["SCHEDULE", "STATE", "NEXT", "DUE", "LAST"]);
    for row in &rows {
        let state = if row.paused.is_some() { "paused" } else { "active" };
        let next = row.next.map_or_else(|| "-".to_owned(), iso);
        let last = service.list_ticks(row.n, i64::MIN, 1)?.pop();
        let last = last.map_or_else(
            || "-".to_owned(),
            |tick| format!("{} {}", tick.state, units::format_age(tick.last)),
        );
        table.push(vec![
            row.display_name().into(),
            Cell::state_word(state),
            next.into(),
            due_text(row).into(),
            last.into(),
        ]);
    }
    for workflow in &without {
        let started_by = ticks::other_triggers(&Content::from_registered(workflow));
        table.push(vec![
            workflow.name.as_str().into(),
            Cell::state_word("active"),
            "-".into(),
            started_by.into(),
            "-".into(),
        ]);
    }
    table.print_to(&mut out, Room::of_stdout())?;
    for workflow in service.list_workflows()? {
        for file in unreadable_files(&service, &workflow)? {
            writeln!(out, "{} does not watch {}", workflow.name, one_line(&file))?;
        }
    }
    finish(out)
}

/// The next time of a schedule, in words.
fn due_text(row: &ScheduleRow) -> String {
    match parse_spec(&row.spec) {
        Ok(schedule) => ticks::due_text(&schedule),
        Err(error) => error.to_string(),
    }
}

fn schedule_as_json(row: &ScheduleRow) -> Value {
    json!({
        "schedule": row.display_name(),
        "workflow": row.workflow_name,
        "name": row.name,
        "revision": row.revision,
        "due": due_text(row),
        "paused": row.paused.is_some(),
        "pausedBy": row.paused.as_ref().and_then(|(_, by)| by.clone()),
        "pausedAt": row.paused.as_ref().map(|(at, _)| iso(*at)),
        "next": row.next.map(iso),
        "decidedUntil": iso(row.decided),
    })
}

fn set_paused(name: &str, paused: bool) -> CommandResult {
    prepare::refuse_inside_a_run(if paused { "pause a schedule" } else { "resume a schedule" })?;
    let service = prepare::service()?;
    let row = find_schedule(&service, name)?;
    // Ticks that are due by now are decided by the schedule's earlier state.
    Scheduler::new(service.store())?.settle_schedule(&row)?;
    let changed = service.set_paused(&row, paused, current_actor().as_deref(), ORIGIN)?;
    let word = match (paused, changed) {
        (true, true) => "paused",
        (true, false) => "is paused already",
        (false, true) => "is resumed",
        (false, false) => "is not paused",
    };
    print_line(&format!("{} {word}", row.display_name()));
    if changed && !paused {
        Scheduler::new(service.store())?.settle_schedule(&find_schedule(&service, &row.display_name())?)?;
    }
    Ok(Exit::OK)
}

fn run_now(name: &str, given: &[String]) -> CommandResult {
    prepare::refuse_inside_a_run("start another run through the service")?;
    let runtime = prepare::runtime(Mode::Human)?;
    let service = runtime.store()?.service()?;
    let (workflow_name, row) = match service.find_workflow(name)? {
        Some(workflow) => {
            let mut rows: Vec<_> =
                service.list_schedules()?.into_iter().filter(|row| row.workflow == workflow.n).collect();
            // Several schedules may have different arguments, so none is chosen.
            (workflow.name, if rows.len() == 1 { rows.pop() } else { None })
        }
        None => {
            let row = find_schedule(&service, name)?;
            (row.workflow_name.clone(), Some(row))
        }
    };
    let workflow = service
        .find_workflow(&workflow_name)?
        .ok_or_else(|| CommandError::usage(format!("{workflow_name} is not registered")))?;
    // Otherwise a worker would refuse it later, unnoticed.
    let candidate = read_candidate(&runtime, Path::new(&workflow.path)).map_err(CommandError::failed)?;
    if candidate.digest != workflow.digest {
        let path = one_line(&workflow.path);
        return Err(CommandError::failed(format!("{path} is not what was registered"))
            .with_hint(format!("read it, then `lobster schedule register {path}`")));
    }
    let mut args: Map<String, Value> = match &row {
        Some(row) => parse_spec(&row.spec).map_err(|error| CommandError::failed(error.to_string()))?.args,
        None => Map::new(),
    };
    for arg in given {
        let (name, value) = arg
            .split_once('=')
            .ok_or_else(|| CommandError::usage(format!("--arg must be NAME=VALUE, not {arg:?}")))?;
        args.insert(name.to_owned(), json!(value));
    }
    let args = Value::Object(args);
    lobster_serve::workflows::check_args(&Content::from_registered(&workflow), &args)
        .map_err(CommandError::usage)?;
    let detail = json!({ "schedule": row.as_ref().map(ScheduleRow::display_name) });
    let start = NewStart {
        schedule: row.as_ref().map(|row| row.n),
        actor: run_initiator()?,
        ..lobster_serve::workflows::new_start(&workflow, "manual", detail, args)
    };
    let run = service.enqueue_start(&start, &workflow.name, ORIGIN)?;
    print_line(&run.to_string());
    tell_if_nobody_serves(&service)?;
    Ok(Exit::OK)
}

/// The meaning of a state, for people.
fn state_text(state: TickState) -> &'static str {
    match state {
        TickState::Fired => "started",
        TickState::CaughtUp => "started late",
        TickState::Missed => "missed",
        TickState::Skipped => "skipped",
        TickState::Paused => "paused",
        TickState::Superseded => "superseded",
        TickState::Backfilled => "backfilled",
    }
}
