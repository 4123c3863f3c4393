//! `lobster diff`

use std::io::Write;

use lobster_runtime::json;
use lobster_runtime::replay::{self, Difference, Standing, StepChange, read_standing};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::StoreError;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::table::{self, Cell, Room, Table};
use crate::render::{one_line, units};
use crate::which;

/// Compares two runs step by step.
///
/// The exit code is 0 if every step did the same with the same result, otherwise 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster diff                             the last two runs
  lobster diff triage@-2                   the one before the last `triage`, and the last run
  lobster diff 77b01e44 3f9a1c2b")]
pub(crate) struct Args {
    /// The earlier run (default: the one before the last).
    #[arg(default_value = "@-")]
    before: String,
    /// The later run (default: the last one).
    #[arg(default_value = "@")]
    after: String,
    /// Prints a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Tool)?;
    let store = runtime.store()?;
    let named = |text: &str| which::run(&store, text).map(|run| run.to_string());
    let diff = replay::compare_runs(&runtime, &named(&args.before)?, &named(&args.after)?)?;
    let status = |run| -> Result<Standing, StoreError> { Ok(read_standing(&store, &store.run(run)?)) };
    let (before, after) = (status(diff.before)?, status(diff.after)?);
    let same = diff.is_same() && before == after;
    let exit = if same { Exit::OK } else { Exit::FAILED };
    diff.broken.iter().for_each(prepare::warn_of_damage);
    let mut out = PagedOutput::for_reader(args.json);
    if args.json {
        let mut object = serde_json::to_value(&diff).map_err(CommandError::failed)?;
        object["statusBefore"] = before.as_str().into();
        object["statusAfter"] = after.as_str().into();
        writeln!(out, "{}", json::pretty(&object))?;
        return Ok(exit);
    }
    let word = |same: bool| if same { "the same" } else { "different" };
    writeln!(
        out,
        "plan {}, arguments {}, {} the same",
        word(diff.same_plan),
        word(diff.same_args),
        units::count_noun(diff.same, "step")
    )?;
    if before != after {
        writeln!(out, "status {before} → {after}")?;
    }
    let mut table = Table::new(&["", "", ""]);
    for step in &diff.steps {
        let change = match step.change {
            StepChange::Removed => Cell::styled("removed", table::state_style("removed")),
            StepChange::Added => Cell::styled("added", table::state_style("added")),
            StepChange::Action => Cell::styled("action differs", table::state_style("different")),
            StepChange::NotReached => Cell::styled("not reached", table::state_style("skipped")),
            StepChange::Outcome => Cell::styled("result differs", table::state_style("different")),
        };
        let place = step.first.as_ref().map(Difference::to_sentence).unwrap_or_default();
        table.push(vec![step.step.as_str().into(), change, place.into()]);
    }
    // Differences are not shortened.
    table.print_to(&mut out, Room { columns: None, ..Room::of_stdout() })?;
    if let Some(output) = &diff.output {
        writeln!(out, "the result of the run differs: {}", one_line(&output.to_sentence()))?;
    }
    Ok(exit)
}
