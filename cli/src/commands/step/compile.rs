//! `lobster step compile`

use std::path::PathBuf;
use std::time::Duration;

use lobster_runtime::component::CompileLimits;
use lobster_runtime::stage::Mode;

use super::grants::{parse_duration, parse_size};
use crate::exit::{CommandResult, Exit};
use crate::prepare;
use crate::render::print_to_stderr;

/// Compiles a component ahead of its first run.
///
/// A component that was refused before is compiled again. The default limits are LOBSTER_COMPILE_MEMORY (4GiB) and
/// LOBSTER_COMPILE_TIME (10m).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  lobster step compile yosys.wasm --memory 8GiB --timeout 30m")]
pub(super) struct Args {
    /// The component, or a WASI command module.
    file: PathBuf,
    /// The most resident memory, such as 8GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// The longest duration, such as 30m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let CompileLimits { memory, time } = runtime.components().compile_limits();
    let limits = CompileLimits { memory: args.memory.unwrap_or(memory), time: args.timeout.unwrap_or(time) };
    super::load_component(&runtime, &args.file, &super::compile_patience(&runtime).compiling_anew(limits))?;
    print_to_stderr(&format!("{} is compiled", args.file.display()));
    Ok(Exit::OK)
}
