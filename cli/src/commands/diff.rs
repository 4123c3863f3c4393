//! `lobster diff`

use std::io::Write;

use lobster_runtime::json;
use lobster_runtime::replay::{Difference, StepChange};
use lobster_runtime::steps::stages::Mode;

use crate::exit::{CommandResult, Exit};
use crate::render::{harmless, table};

/// Compares two runs step by step.
///
/// The exit code is 0 when every step did and gave the same, otherwise 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster diff 77b01e44 3f9a1c2b           then `lobster why 3f9a1c2b STEP --vs 77b01e44 --full` for one step")]
pub(crate) struct Args {
    /// The earlier run.
    before: String,
    /// The later run.
    after: String,
    /// A JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let diff = super::runtime(Mode::Tool)?.diff(&args.before, &args.after)?;
    let exit = if diff.is_same() { Exit::OK } else { Exit::FAILED };
    diff.broken.iter().for_each(super::warn_of_damage);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", json::pretty(&diff))?;
        return Ok(exit);
    }
    let word = |same: bool| if same { "the same" } else { "different" };
    writeln!(
        out,
        "plan {}, arguments {}, {} steps the same",
        word(diff.same_plan),
        word(diff.same_args),
        diff.same
    )?;
    if diff.status_before != diff.status_after {
        writeln!(out, "status {} → {}", diff.status_before.as_str(), diff.status_after.as_str())?;
    }
    let rows: Vec<_> = diff
        .steps
        .iter()
        .map(|step| {
            let change = match step.change {
                StepChange::Removed => "gone",
                StepChange::Added => "new",
                StepChange::Action => "did something else",
                StepChange::NotReached => "not reached",
                StepChange::Outcome => "gave something else",
            };
            let place = step.first.as_ref().map(Difference::sentence).unwrap_or_default();
            vec![step.step.clone(), change.to_owned(), place]
        })
        .collect();
    for line in table::lines(&rows) {
        writeln!(out, "{line}")?;
    }
    if let Some(output) = &diff.output {
        writeln!(out, "the run gave something else: {}", harmless(&output.sentence()))?;
    }
    Ok(exit)
}
