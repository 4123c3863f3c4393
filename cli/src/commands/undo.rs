//! `lobster undo`

use lobster_runtime::replay::changes::{Undo, plan_undo};
use lobster_runtime::stage::Mode;

use super::changes::{in_reading_order, line};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::{harmless, one_line, say, units};
use crate::reply::Reply;
use crate::which;

/// Takes back what a run changed in files.
///
/// Only what steps with `changes: staged` or `review` committed, all of it or nothing, and only onto files that
/// are as the run left them. The undo is a run of its own, so it can be undone, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster undo @ --dry-run                 what would be taken back
  lobster undo @
  lobster undo 3f9a1c2b --step fix")]
pub(crate) struct Args {
    /// The run; @ is the last one, @- the one before, NAME@- the last one of a workflow.
    run: String,
    /// Only this step and what is inside it: its path, as `lobster show` prints it.
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// Shows what would be done, and does nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let store = runtime.store()?;
    let id = which::run(&store, &args.run)?;
    let undo = plan_undo(&runtime, id, args.step.as_deref()).map_err(CommandError::failed)?;
    tell_others(&undo);
    if args.dry_run {
        for (root, change) in in_reading_order(undo.set.changes().map(|(root, it)| (root.to_string(), it))) {
            anstream::println!("{}", line(&store, &root, change, true));
        }
    }
    if !undo.conflicts.is_empty() {
        for conflict in &undo.conflicts {
            say(&format!("{}", harmless(conflict)));
        }
        let count = units::counted(undo.conflicts.len() as u64, "file");
        return Err(CommandError::failed(format!("nothing was taken back: {count} changed since the run"))
            .with_hint(
                "put them back as the run left them (`lobster changes RUN --patch` shows it), then try again",
            ));
    }
    if args.dry_run {
        return Ok(Exit::OK);
    }
    let result = runtime.run_planned(&undo.planned);
    let done = result.run.map(|run| run.short());
    let exit = Reply { mode: Mode::Human }.result(&runtime, result, false)?;
    if exit == Exit::OK {
        let count = units::counted(undo.set.changes().count() as u64, "change");
        let by = done
            .map(|run| format!(" by run {run}; `lobster undo {run}` brings them back"))
            .unwrap_or_default();
        say(&format!("Took back {count}{by}."));
    }
    Ok(exit)
}

/// What an undo of files does not undo.
fn tell_others(undo: &Undo) {
    for other in &undo.others {
        say(&format!(
            "Not taken back: what step {} did besides ({}).",
            one_line(&other.step),
            one_line(&other.kind)
        ));
    }
}
