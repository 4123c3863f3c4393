//! `lobster undo`

use std::path::PathBuf;

use lobster_runtime::envelope::Envelope;
use lobster_runtime::replay::changes::{Undo, WhatToUndo, plan_undo};
use lobster_runtime::stage::Mode;

use super::changes::{Conflicts, change_line, resolve_paths};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::{harmless, one_line, print_to_stderr, units};
use crate::reply::ResultPrinter;
use crate::stdout::print_line;

/// Reverts the changes to files that a run made.
///
/// If a file has changed since, nothing is reverted. Then proposes the `undo:` of each step, the last step
/// first. The undo is a run and can be undone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster undo @ --dry-run
  lobster undo @
  lobster undo 3f9a1c2b --step fix")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: String,
    /// Only this step and the steps inside it, named as in `lobster show`.
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// Reverts only the files at or below this path; may be repeated.
    #[arg(long, value_name = "PATH")]
    only: Vec<PathBuf>,
    /// If files changed since the run: `keep` leaves them, `overwrite` reverts them anyway, `merge` takes the
    /// run's change out of a text and keeps the later one.
    #[arg(long, value_name = "HOW")]
    conflicts: Option<Conflicts>,
    /// Prints what would be reverted, without reverting it.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let (runtime, id) = prepare::runtime_to_undo(&args.run)?;
    let store = runtime.store()?;
    let what = WhatToUndo {
        run: id,
        step: args.step.clone(),
        only: resolve_paths(&args.only)?,
        conflicts: args.conflicts.map(Into::into),
    };
    let undo = plan_undo(&runtime, &what).map_err(CommandError::failed)?;
    tell_others(&undo);
    if args.dry_run {
        for reading in undo.set.in_reading_order() {
            print_line(&change_line(&store, &reading, true));
        }
        for undo in &undo.steps {
            print_line(&format!("asks  {}: {}", one_line(&undo.step), one_line(&undo.text)));
        }
    }
    if !undo.conflicts.is_empty() {
        for conflict in &undo.conflicts {
            print_to_stderr(&format!("{}", harmless(conflict)));
        }
        let count = units::count_noun(undo.conflicts.len() as u64, "file");
        return Err(CommandError::failed(format!("nothing was undone: {count} changed since the run"))
            .with_hint(
                "`--conflicts keep` undoes the others, `--conflicts merge` keeps what was changed since in other lines, \
                 `--conflicts overwrite` reverts them all the same; `lobster changes RUN --patch` shows the changes",
            ));
    }
    if args.dry_run {
        return Ok(Exit::OK);
    }
    let result = runtime.run_planned(&undo.planned);
    let done = result.run.map(|run| run.short_id());
    let is_waiting = matches!(result.envelope, Envelope::NeedsApproval(_));
    let exit = ResultPrinter::new(Mode::Human).report_result(&runtime, result, false)?;
    if exit == Exit::OK {
        tell_done(&undo, done, is_waiting);
    }
    Ok(exit)
}

/// Reports the results of the undo, and the command that reverts it.
fn tell_done(undo: &Undo, run: Option<impl std::fmt::Display>, is_waiting: bool) {
    let files = units::count_noun(undo.set.changes().count() as u64, "change");
    let steps = units::count_noun(undo.steps.len() as u64, "step");
    let done = match (undo.set.is_empty(), undo.steps.is_empty() || is_waiting) {
        (true, true) => return,
        (true, false) => steps,
        (false, false) => format!("{files} and {steps}"),
        (false, true) => files,
    };
    let run = run.map(|run| run.to_string()).unwrap_or_default();
    let by = if run.is_empty() { String::new() } else { format!(" in run {run}") };
    let back = match (undo.set.is_empty(), undo.steps.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!("; `lobster undo {run}` reverts this undo"),
        (false, false) => format!("; `lobster undo {run}` reverts the changes to files again"),
    };
    print_to_stderr(&format!("Undid {done}{by}{back}."));
}

/// Reports effects that an undo of files does not undo.
fn tell_others(undo: &Undo) {
    for step in &undo.not_proposed {
        print_to_stderr(&format!("Not undone: step {}: {}.", one_line(&step.step), step.why));
    }
    for other in &undo.others {
        print_to_stderr(&format!(
            "Not undone: other effects of step {} ({}).",
            one_line(&other.step),
            one_line(&other.kind)
        ));
    }
}
