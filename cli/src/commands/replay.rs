//! `lobster replay`

use std::io::Write;

use lobster_runtime::json;
use lobster_runtime::replay::{self, Divergence, ReplayOptions, ReplayReport};
use lobster_runtime::stage::Mode;

use crate::exit::{CommandResult, Exit};
use crate::prepare;
use crate::render::Quoting;
use crate::render::table::{Room, state_style};
use crate::stdout::stdout;
use crate::which;

/// Executes a recorded run again and compares the results.
///
/// Pure steps are computed again; their output and fuel are compared with the record. Effects are not
/// repeated: components get the recorded answers of their hosts and must ask in the same order; other effects
/// have their recorded results. A replay changes nothing, except by the effects that --live names. The exit code is 1 if anything differs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster replay 3f9a1c2b
  lobster replay 3f9a1c2b --live fetch")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// Performs this effect again under the policy, unless a person has to approve it or answered a question before
    /// it, and compares its result; may be repeated.
    #[arg(long, value_name = "STEP")]
    live: Vec<String>,
    /// Prints the report as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut runtime = prepare::runtime(Mode::Tool)?;
    let run = which::run_or_ask(&runtime.store()?, args.run.as_deref(), "replay")?;
    if !args.live.is_empty() {
        // An effect is performed under the policy under which `resume` would perform it.
        runtime = prepare::runtime_of_run(Mode::Tool, None, |_| Some(run))?;
    }
    let report = replay::replay_run(&runtime, &run.to_string(), &ReplayOptions { live: args.live.clone() })?;
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", json::pretty(&report))?;
    } else {
        let mut text = Vec::new();
        print_report(&mut text, &report)?;
        let room = Room::of_stdout();
        for (index, line) in String::from_utf8_lossy(&text).lines().enumerate() {
            let style = match (index, report.is_faithful()) {
                (0, true) => state_style("ok"),
                (0, false) => state_style("failed"),
                _ => anstyle::Style::new(),
            };
            writeln!(out, "{}", room.paint(style, line))?;
        }
    }
    Ok(if report.is_faithful() { Exit::OK } else { Exit::FAILED })
}

/// Prints the report for a person, the verdict first.
pub(crate) fn print_report(out: &mut impl Write, report: &ReplayReport) -> std::io::Result<()> {
    let out = &mut Quoting::new(out);
    match report.divergences.as_slice() {
        [] if report.unverified.is_empty() => writeln!(out, "the same: {}", report.name)?,
        [] => {
            let (n, were) = match report.unverified.len() {
                1 => (1, "step was"),
                n => (n, "steps were"),
            };
            writeln!(out, "nothing differs: {}, but {n} {were} not computed", report.name)?;
        }
        [first, rest @ ..] => {
            writeln!(out, "not the same: {}", report.name)?;
            print_difference(out, first)?;
            if !rest.is_empty() {
                writeln!(out, "  and {} more; --json lists them", rest.len())?;
            }
        }
    }
    let mut parts = vec![format!("{} computed again", report.computed)];
    if report.checked > 0 {
        parts.push(format!("{} with recorded calls", report.checked));
    }
    parts.push(format!("{} answered from the record", report.answered));
    if report.performed > 0 {
        parts.push(format!("{} performed again", report.performed));
    }
    writeln!(out, "  steps    {}", parts.join(", "))?;
    if !report.edited.is_empty() {
        writeln!(out, "  edited by hand, and not compared: {}", report.edited.join(", "))?;
    }
    for step in &report.unverified {
        writeln!(out, "  not computed: {}, because {}", step.step, step.why)?;
    }
    if let Some(path) = &report.record_ends_at {
        writeln!(out, "  the record ends at {path}")?;
    }
    Ok(())
}

fn print_difference(out: &mut impl Write, first: &Divergence) -> std::io::Result<()> {
    let step = if first.step.is_empty() { "the run itself" } else { &first.step };
    writeln!(out, "  step     {step} (record {})", first.seq)?;
    if let Some(input) = &first.input {
        writeln!(out, "  input    blake3:{input}")?;
    }
    let place = first.path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default();
    writeln!(out, "  differs  {}{place}", first.what)?;
    writeln!(out, "  recorded {}", json::compact(&first.recorded))?;
    writeln!(out, "  now      {}", json::compact(&first.replayed))
}
