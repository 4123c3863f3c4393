//! `lobster bundle`

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use lobster_runtime::json;
use lobster_runtime::replay::bundle::{BundleError, BundleSummary, ExportOptions};
use lobster_runtime::steps::stages::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::render::units;

/// Puts a run into one file, and checks or takes in such a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster bundle export 3f9a1c2b -o triage.lobster-bundle
  lobster bundle export 3f9a1c2b -o triage.lobster-bundle --redact fetch
  lobster bundle verify triage.lobster-bundle")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Writes a run's journal, results, components and policy into a file.
    Export {
        /// The run.
        run: String,
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Leaves out what this effect gave; its digest stays. May be given several times.
        #[arg(long, value_name = "STEP")]
        redact: Vec<String>,
        /// A JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Checks every byte of a bundle and replays its run from nothing else.
    Verify {
        /// The bundle.
        file: PathBuf,
        /// A JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Takes the run of a bundle into this store.
    Import {
        /// The bundle.
        file: PathBuf,
        /// A JSON object.
        #[arg(long)]
        json: bool,
    },
}

impl From<BundleError> for CommandError {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Replay(failure) => failure.into(),
            BundleError::Store(error) => error.into(),
            other @ (BundleError::Edited(_) | BundleError::Unreadable { .. }) => Self::usage(other),
            other @ (BundleError::NotABundle | BundleError::Damaged { .. }) => Self::failed(other),
        }
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = super::runtime(Mode::Tool)?;
    match &args.task {
        Task::Export { run, output, redact, json } => {
            let options = ExportOptions { redact: redact.clone() };
            let summary = runtime.export_bundle(run, output, &options)?;
            tell(&summary, "wrote", *json)
        }
        Task::Verify { file, json } => {
            let report = runtime.verify_bundle(file)?;
            let exit = if report.replay.is_faithful() { Exit::OK } else { Exit::FAILED };
            let mut out = std::io::stdout().lock();
            if *json {
                writeln!(out, "{}", json::pretty(&report))?;
            } else {
                writeln!(out, "intact: {}", line(&report.bundle))?;
                super::replay::print(&mut out, &report.replay)?;
            }
            Ok(exit)
        }
        Task::Import { file, json } => tell(&runtime.import_bundle(file)?, "took in", *json),
    }
}

fn tell(summary: &BundleSummary, verb: &str, as_json: bool) -> CommandResult {
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json::pretty(summary))?;
    } else {
        writeln!(out, "{verb} {}", line(summary))?;
    }
    Ok(Exit::OK)
}

fn line(summary: &BundleSummary) -> String {
    let redacted = match summary.redacted.as_slice() {
        [] => String::new(),
        steps => format!(", without what {} gave", steps.join(", ")),
    };
    format!(
        "run {} of {}: {} records, {} blobs, {}{redacted}",
        summary.run.short(),
        summary.name,
        units::count(summary.records),
        units::count(summary.blobs),
        units::bytes(summary.bytes),
    )
}
