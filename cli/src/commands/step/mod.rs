//! `lobster step`: writing components, independent of workflows.

mod alone;
mod build;
mod case;
mod compile;
mod exchanges;
mod grants;
pub(super) mod inspect;
mod new;
mod publish;
mod run;
mod templates;
mod test;

pub(super) use self::new::step_name;

use std::path::{Path, PathBuf};

use lobster_runtime::component::{Component, LoadError, Patience, RunError, cancelled_by};
use lobster_runtime::runtime::Runtime;

use crate::exit::{CommandError, CommandResult};

/// Creates, builds, tests, inspects, compiles, publishes and runs WebAssembly steps.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: StepCommand,
}

#[derive(Debug, clap::Subcommand)]
enum StepCommand {
    New(new::Args),
    Build(build::Args),
    Test(test::Args),
    Inspect(inspect::Args),
    Compile(compile::Args),
    Publish(publish::Args),
    Run(Box<run::Args>),
}

pub(crate) fn run(args: &Args) -> CommandResult {
    match &args.command {
        StepCommand::New(args) => new::run(args),
        StepCommand::Build(args) => build::run(args),
        StepCommand::Test(args) => test::run(args),
        StepCommand::Inspect(args) => inspect::run(args),
        StepCommand::Compile(args) => compile::run(args),
        StepCommand::Publish(args) => publish::run(args),
        StepCommand::Run(args) => run::run(args),
    }
}

/// Loads a program, or reports the error in the file.
fn load_component(runtime: &Runtime, file: &Path, patience: &Patience) -> Result<Component, CommandError> {
    runtime.components().load_file_within(file, patience).map_err(|error| match error {
        LoadError::Read { .. } => CommandError::usage(error),
        LoadError::Cancelled { .. } => CommandError::failed(error),
        other => CommandError::failed(format!("{}: {other}", file.display())),
    })
}

/// The limits of compiling, which also ends on a signal.
pub(crate) fn compile_patience(runtime: &Runtime) -> Patience {
    Patience::new(cancelled_by(runtime.cancel()))
}

/// True if there are programs next to the sources of a project.
fn has_programs(dir: &Path) -> bool {
    files_ending_in(dir, "wasm").is_ok_and(|found| !found.is_empty())
}

/// The files of a directory with this extension, by name.
fn files_ending_in(dir: &Path, extension: &str) -> std::io::Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    found.sort();
    Ok(found)
}

/// The program built from a project: the only one next to its sources.
fn find_built(dir: &Path) -> Result<PathBuf, CommandError> {
    let found = files_ending_in(dir, "wasm").map_err(CommandError::usage_at(dir))?;
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(CommandError::usage(format!("there is no .wasm file in {}", dir.display())).with_hint(
            format!(
                "build it with `lobster step build {}`, or name the file with --component",
                dir.display()
            ),
        )),
        several => {
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let names: Vec<_> = several.iter().map(name).collect();
            Err(CommandError::usage(format!(
                "{} holds several programs: {}",
                dir.display(),
                names.join(", ")
            ))
            .with_hint("name the program with --component"))
        }
    }
}

/// A failed run in one line: its stable name, then the message.
pub(super) fn describe_error(error: &RunError) -> String {
    match error {
        RunError::Step(step) => format!("{}: {}", step.code, step.message),
        other => format!("{}: {other}", other.name()),
    }
}
