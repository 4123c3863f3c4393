//! `lobster check`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lobster_runtime::language::diagnostic::{Diagnostic, Severity};
use lobster_runtime::language::source::Source;
use lobster_runtime::language::workflow;
use lobster_runtime::runtime::{Runtime, WorkflowFileError, read_source, workflow_file};
use lobster_runtime::stage::{Mode, Registry};
use serde_json::json;

use super::run_hints;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::render::one_line;
use crate::stdout::stdout;
use crate::whole_files::replace_file;
use crate::{prepare, which};

/// Number of findings with the same code and advice shown in full; of the others only the lines are listed.
const SHOWN_ALIKE: usize = 3;

/// Finds mistakes in workflow files without running them.
///
/// The exit code is 1 if a file has an error and 0 otherwise, even with warnings.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster check inbox-triage.lobster
  lobster check --fix inbox-triage.lobster   corrects what has one right correction
  lobster check --json flows/*.lobster
  lobster help W0806                         what a code means")]
pub(crate) struct Args {
    /// The workflow files. At a terminal lobster lists the files of this directory.
    files: Vec<PathBuf>,
    /// Prints the findings as a JSON array.
    #[arg(long)]
    json: bool,
    /// Treats warnings as errors.
    #[arg(long)]
    strict: bool,
    /// Corrects the findings that have exactly one correction, then checks again.
    #[arg(long)]
    fix: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let color = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut out = stdout();
    let mut all = Vec::new();
    let mut bad = false;
    let runtime = prepare::runtime(Mode::Human)?;
    let registry = lobster_runtime::stages::builtin();
    let files = match args.files.as_slice() {
        [] => vec![which::pick_file("check")?],
        files => files.to_vec(),
    };
    for file in &files {
        let path = std::env::current_dir()?.join(file);
        let checked = workflow_file(&path).map_err(|error| not_a_file(file, &error)).and_then(|()| {
            let fixed = if args.fix { fix_findings(&path, &registry)? } else { 0 };
            Ok((fixed, collect_findings(&path, &registry, &runtime)?))
        });
        let (fixed, diagnostics) = match checked {
            Ok(checked) => checked,
            // The other files are still checked.
            Err(error) => {
                bad = true;
                if args.json {
                    let (code, message) = (error.code, &error.message);
                    all.push(json!({ "severity": "error", "code": code, "message": message, "file": file }));
                } else {
                    let _ = error.report();
                }
                continue;
            }
        };
        let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
        bad |= diagnostics.iter().any(is_error) || (args.strict && !diagnostics.is_empty());
        if args.json {
            all.extend(diagnostics.iter().map(|diagnostic| json!(diagnostic)));
            continue;
        }
        print_findings(&mut out, &diagnostics, color)?;
        let shown = one_line(&file.display().to_string());
        match (fixed, diagnostics.len()) {
            (0, 0) => writeln!(out, "{shown}: ok")?,
            (0, _) => {}
            (_, left) => writeln!(out, "{shown}: {fixed} corrected, {left} left")?,
        }
    }
    if args.json {
        writeln!(out, "{}", lobster_runtime::json::pretty(&all))?;
    }
    // A program may need a key that the file does not name.
    prepare::note_withheld_keys(&runtime);
    Ok(if bad { Exit::FAILED } else { Exit::OK })
}

/// The error for a file that cannot be checked, with a suggestion.
fn not_a_file(file: &Path, error: &WorkflowFileError) -> CommandError {
    match error {
        WorkflowFileError::Missing(_) => {
            let hint = run_hints::file_like(file);
            CommandError { hint, ..CommandError::failed(format!("{}: no such file", file.display())) }
        }
        other => CommandError::failed(other),
    }
}

fn collect_findings(
    path: &Path,
    registry: &Registry,
    runtime: &Runtime,
) -> Result<Vec<Diagnostic>, CommandError> {
    let source = read_source(path).map_err(CommandError::failed_at(path))?;
    let mut diagnostics = workflow::check(&source, &|path| read_source(path), registry).diagnostics;
    diagnostics.extend(runtime.check_components(path));
    diagnostics.extend(runtime.check_limits(path));
    diagnostics.extend(runtime.check_secrets(path));
    diagnostics.extend(runtime.check_withheld_keys(path));
    Ok(diagnostics)
}

/// Prints findings; of several alike, the first in full.
fn print_findings(out: &mut impl Write, diagnostics: &[Diagnostic], color: bool) -> std::io::Result<()> {
    // The names in messages differ although the advice is the same.
    let kind = |diagnostic: &Diagnostic| {
        let help = diagnostic.help.as_deref().unwrap_or_default();
        let form = help.split('`').step_by(2).collect::<Vec<_>>().join("`");
        (diagnostic.severity, diagnostic.code, diagnostic.file.clone(), form)
    };
    let mut alike: Vec<(_, Vec<&Diagnostic>)> = Vec::new();
    for diagnostic in diagnostics {
        let kind = kind(diagnostic);
        match alike.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, found)) => found.push(diagnostic),
            None => alike.push((kind, vec![diagnostic])),
        }
    }
    for (_, found) in &alike {
        for diagnostic in found.iter().take(SHOWN_ALIKE) {
            // A file name may contain control characters.
            let mut diagnostic = (*diagnostic).clone();
            diagnostic.file = one_line(&diagnostic.file);
            writeln!(out, "{}\n", diagnostic.render_human(color))?;
        }
        let rest: Vec<String> =
            found.iter().skip(SHOWN_ALIKE).map(|diagnostic| diagnostic.line.to_string()).collect();
        if let [first, ..] = rest.as_slice() {
            let code = found[0].code;
            let (count, lines) = (rest.len(), rest.join(", "));
            match count {
                1 => writeln!(out, "  … and 1 more like it ({code}), in line {first}\n")?,
                _ => writeln!(out, "  … and {count} more like these ({code}), in lines {lines}\n")?,
            }
        }
    }
    Ok(())
}

/// Corrects findings one after the other and returns their number. A correction that leaves its
/// finding, or causes an error, is not kept.
fn fix_findings(path: &Path, registry: &Registry) -> Result<usize, CommandError> {
    let source = read_source(path).map_err(CommandError::failed_at(path))?;
    let name = source.name.clone();
    let check = |text: &str| {
        let source = Arc::new(Source::new(name.clone(), path, text.as_bytes()));
        workflow::check(&source, &|path| read_source(path), registry).diagnostics
    };
    let errors = |found: &[Diagnostic]| found.iter().filter(|d| d.severity == Severity::Error).count();
    let mut text = source.text.clone();
    let (mut fixed, mut skipped) = (0, 0);
    let mut found = check(&text);
    loop {
        let of_file = found.iter().filter(|diagnostic| diagnostic.file == name);
        let Some(fix) = of_file.filter_map(|diagnostic| diagnostic.fix.as_ref()).nth(skipped) else { break };
        let mut tried = text.clone();
        tried.replace_range(fix.span.start..fix.span.end, &fix.replacement);
        let after = check(&tried);
        if after.len() < found.len() && errors(&after) <= errors(&found) {
            (text, found) = (tried, after);
            fixed += 1;
        } else {
            skipped += 1;
        }
    }
    if fixed > 0 {
        replace_file(path, &text).map_err(CommandError::failed_at(path))?;
    }
    Ok(fixed)
}
