//! `lobster step test`

use std::io::Write;
use std::path::{Path, PathBuf};

use lobster_runtime::component::cancelled_by;
use lobster_runtime::stage::Mode;

use super::build;
use super::case::Case;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::{harmless, one_line, print_to_stderr, units};
use crate::stdout::stdout;

/// Runs the test cases of a step (cases/*.json) against its component.
///
/// Builds the project first if it has no component. The exit code is 0 if all cases pass, otherwise 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "A case is one JSON file:

  { \"summary\": \"what it shows\",
    \"args\": { \"factor\": 2 },
    \"input\": { \"items\": [{ \"value\": 1 }] },     or {\"text\": …}, {\"base64\": …}; without it: nothing
    \"read\": { \"/data\": \"fixtures/data\" },       directories beside the case file
    \"files\": { \"/data/extra.txt\": \"contents\" },
    \"env\": { \"REGION\": \"eu\" },
    \"net\": [\"api.example:443\"],                 its answers come from cases/recorded/ (see --record)
    \"clock\": true, \"random\": true,              the real ones; without it they always give the same
    \"expect\": { \"items\": [{ \"value\": 2 }] },    or {\"text\": …}, {\"base64\": …}, {\"error\": {\"code\", \"message\"}}
    \"fuel\": 1000000 }                           the most it may use

Examples:
  lobster step test
  lobster step test steps/classify --filter empty
  lobster step test --record --filter weather
  lobster step test --component dist/jq.wasm rust/jq")]
pub(super) struct Args {
    /// The directory of the step.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The component, which is not built (default: the only .wasm file in the directory).
    #[arg(long, value_name = "FILE")]
    component: Option<PathBuf>,
    /// Builds the project first, even if it has a component.
    #[arg(long, conflicts_with = "component")]
    build: bool,
    /// Only cases whose file name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Sends the requests of cases with `net` to the real hosts, and records the answers in cases/recorded/.
    #[arg(long)]
    record: bool,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let cases = cases(&args.dir.join("cases"), args.filter.as_deref())?;
    let file = match &args.component {
        Some(file) => file.clone(),
        None => built_now(&args.dir, args.build)?,
    };
    let runtime = prepare::runtime(Mode::Human)?;
    let component = super::load_component(&runtime, &file, &super::compile_patience(&runtime))?;
    let color = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut out = stdout();
    let mut failed = 0;
    for path in &cases {
        if runtime.cancel().is_cancelled() {
            return Err(CommandError::failed("cancelled"));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let result = Case::read(path).and_then(|case| {
            let run = |records| case.run(&component, path, records, cancelled_by(runtime.cancel()));
            if args.record && case.has_hosts() {
                run(true)?;
            }
            let fuel = run(false)?.map(|fuel| format!(" ({} fuel)", units::format_count(fuel)));
            let fuel = fuel.unwrap_or_default();
            Ok(one_line(&format!("{name}: {}{fuel}", case.summary)))
        });
        match result {
            Ok(line) => writeln!(out, "{} {line}", mark("ok  ", "32", color))?,
            Err(why) => {
                failed += 1;
                writeln!(
                    out,
                    "{} {name}: {}",
                    mark("FAIL", "31", color),
                    harmless(why.trim_end()).replace('\n', "\n       ")
                )?;
            }
        }
    }
    let count = cases.len() as u64;
    if failed > 0 {
        writeln!(out, "\n{failed} of {} fail", units::count_noun(count, "case"))?;
        return Ok(Exit::FAILED);
    }
    match count {
        1 => writeln!(out, "\nthe only case passes")?,
        _ => writeln!(out, "\nall {count} cases pass")?,
    }
    Ok(Exit::OK)
}

/// The component of a project, built if it is missing or if `anyway`.
fn built_now(dir: &Path, anyway: bool) -> Result<PathBuf, CommandError> {
    if anyway || (!super::has_programs(dir) && build::is_project(dir)) {
        print_to_stderr(&format!("building {}", dir.display()));
        return build::build(dir);
    }
    let file = super::find_built(dir)?;
    // A clone has files with arbitrary times, so this is only a warning.
    if build::is_project(dir) && has_newer_source(dir, &file) {
        print_to_stderr(&format!(
            "warning: {} is older than its sources; --build builds it first",
            file.display()
        ));
    }
    Ok(file)
}

/// True if a file of the project was changed after the component was written; cases and build products
/// are ignored.
fn has_newer_source(dir: &Path, component: &Path) -> bool {
    /// Deepest directory level and most files that are looked at.
    const DEEP: usize = 5;
    const MOST: usize = 10_000;
    const NO_SOURCES: &[&str] = &["cases", "node_modules", "target", "__pycache__", "dist"];
    let changed = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    let Some(built) = changed(component) else { return false };
    let mut folders = vec![(dir.to_owned(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            seen += 1;
            if name.starts_with('.') || seen > MOST {
                continue;
            }
            if kind.is_dir() {
                if depth < DEEP && !NO_SOURCES.contains(&name.as_str()) {
                    folders.push((path, depth + 1));
                }
            } else if !name.ends_with(".md") && changed(&path).is_some_and(|at| at > built) {
                return true;
            }
        }
    }
    false
}

fn mark(text: &str, code: &str, color: bool) -> String {
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// The case files, by name. A directory without cases is an error.
fn cases(dir: &Path, filter: Option<&str>) -> Result<Vec<PathBuf>, CommandError> {
    let entries = std::fs::read_dir(dir).map_err(|error| {
        CommandError::usage(format!("{}: {error}", dir.display())).with_hint("the cases are DIR/cases/*.json")
    })?;
    let mut cases: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            filter.is_none_or(|text| name.contains(text))
        })
        .collect();
    cases.sort();
    if cases.is_empty() {
        return Err(CommandError::usage(format!("no cases in {}", dir.display())));
    }
    Ok(cases)
}
