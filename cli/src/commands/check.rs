//! `lobster check`

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use lobster_runtime::language::diagnostic::{Diagnostic, Severity};
use lobster_runtime::language::workflow;
use lobster_runtime::runtime::{read_source, workflow_file};
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};

/// Finds mistakes in workflow files without running them.
///
/// Exit code 0: nothing is wrong (there may be warnings); 1: the file would be refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster check inbox-triage.lobster
  lobster check --json flows/*.lobster
  lobster help W0806                       what a code means")]
pub(crate) struct Args {
    /// The workflow files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Prints the diagnostics as a JSON array.
    #[arg(long)]
    json: bool,
    /// Warnings fail the check too.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut out = std::io::stdout().lock();
    let mut all = Vec::new();
    let mut bad = false;
    let runtime = super::runtime(Mode::Human)?;
    let registry = lobster_runtime::stages::builtin();
    for file in &args.files {
        let path = std::env::current_dir()?.join(file);
        workflow_file(&path).map_err(CommandError::failed)?;
        let source = read_source(&path)
            .map_err(|error| CommandError::failed(format!("{}: {error}", path.display())))?;
        let report = workflow::check(&source, &|path| read_source(path), &registry);
        let mut diagnostics = report.diagnostics;
        diagnostics.extend(runtime.check_components(&path));
        let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
        bad |= diagnostics.iter().any(is_error) || (args.strict && !diagnostics.is_empty());
        if args.json {
            all.extend(diagnostics.iter().map(|diagnostic| serde_json::json!(diagnostic)));
            continue;
        }
        for diagnostic in &diagnostics {
            writeln!(out, "{}\n", diagnostic.render_human(color))?;
        }
        if diagnostics.is_empty() {
            writeln!(out, "{}: nothing to complain about", file.display())?;
        }
    }
    if args.json {
        writeln!(out, "{}", lobster_runtime::json::pretty(&all))?;
    }
    Ok(if bad { Exit::FAILED } else { Exit::OK })
}
