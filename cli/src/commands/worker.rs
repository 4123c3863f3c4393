//! `lobster worker`

use std::io::{BufReader, stdin};

use lobster_runtime::runtime::PolicySources;
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::stdout::stdout;

/// Executes steps for another lobster, over stdin and stdout.
///
/// The other lobster starts it as its executor (`LOBSTER_EXECUTOR`), decides what may run, and records it.
/// When stdin ends, all running steps are ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  LOBSTER_EXECUTOR='lobster worker --stdio' lobster run inbox-triage.lobster")]
pub(crate) struct Args {
    /// Communicates over stdin and stdout, the only transport.
    #[arg(long, required = true)]
    stdio: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    if !args.stdio {
        return Err(CommandError::usage("lobster worker needs --stdio"));
    }
    let runtime = prepare::runtime_under(Mode::Tool, &PolicySources::default())?;
    runtime
        .serve_orders(BufReader::with_capacity(64 << 10, stdin()), stdout())
        .map_err(|error| CommandError::failed(error.to_string()))?;
    Ok(Exit::OK)
}
