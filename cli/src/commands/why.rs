//! `lobster why`

use std::io::Write;

use lobster_runtime::json;
use lobster_runtime::replay::{self, Difference, WhyError};
use lobster_runtime::stage::Mode;
use serde_json::Value;

use crate::exit::{CommandError, CommandResult, Exit, print_json};
use crate::prepare;
use crate::render::Quoting;
use crate::stdout::stdout;
use crate::which;

/// Explains why a step differs from an earlier run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster why 3f9a1c2b categorize                     against the run it was forked from, or the last one of that name
  lobster why 3f9a1c2b categorize --vs 77b01e44 --full")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// The step, named as in `lobster show`.
    step: Option<String>,
    /// The run to compare with.
    #[arg(long, value_name = "RUN")]
    vs: Option<String>,
    /// Prints every difference, not only the first one.
    #[arg(long)]
    full: bool,
    /// Prints a JSON object.
    #[arg(long)]
    json: bool,
}

impl From<WhyError> for CommandError {
    fn from(error: WhyError) -> Self {
        match error {
            WhyError::Run(failure) => failure.into(),
            WhyError::Store(error) => error.into(),
            other @ (WhyError::NothingToCompare { .. }
            | WhyError::NotDone { .. }
            | WhyError::NoAction { .. }) => Self::usage(other),
        }
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Tool)?;
    let store = runtime.store()?;
    let run = which::run_or_ask(&store, args.run.as_deref(), "why")?;
    let step = which::step_or_ask(&store, run, args.step.as_deref(), "why")?;
    let vs = args.vs.as_deref().map(|vs| which::run(&store, vs)).transpose()?;
    let why = replay::explain_step(&runtime, &run.to_string(), &step, vs.map(|vs| vs.to_string()).as_deref());
    if why.is_err() {
        // A step missing from the record may have been in a damaged part of it, so report damage.
        for run in [Some(run), vs].into_iter().flatten() {
            let _ = prepare::found_journal(&store, run);
        }
    }
    let why = why?;
    why.broken.iter().for_each(prepare::warn_of_damage);
    let mut out = stdout();
    if args.json {
        return print_json(&mut out, &why);
    }
    let mut out = Quoting::new(out);
    writeln!(out, "{}", why.to_sentence())?;
    if args.full {
        writeln!(out, "  before   run {}", why.before)?;
        writeln!(out, "  now      run {}", why.run)?;
        for difference in why.differences.iter().chain(&why.outcome) {
            print_in_full(&mut out, difference)?;
        }
    }
    Ok(Exit::OK)
}

/// Prints one difference with its values in full.
fn print_in_full(out: &mut impl Write, difference: &Difference) -> std::io::Result<()> {
    let mut title = difference.part.noun().to_owned();
    for word in [&difference.name, &difference.path].into_iter().flatten() {
        title.push(' ');
        title.push_str(word);
    }
    let step = difference.made_by.as_ref().map(|step| format!(", made by step {step}")).unwrap_or_default();
    writeln!(out, "\n  {title}{step}")?;
    let text = |value: &Value| if value.is_null() { "(nothing)".to_owned() } else { json::compact(value) };
    writeln!(out, "    - {}", text(&difference.was))?;
    writeln!(out, "    + {}", text(&difference.is))
}
