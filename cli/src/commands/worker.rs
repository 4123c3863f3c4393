//! `lobster worker`

use std::io::{BufReader, stdin, stdout};

use lobster_runtime::runtime::PolicySources;
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;

/// Carries out steps for another lobster, over stdin and stdout.
///
/// Another lobster starts it as its executor. Requests come as lines of JSON on stdin, answers go
/// to stdout; the end of stdin ends whatever is still running. What may run is decided by the lobster
/// that gives the orders, and recorded there; the worker keeps nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  LOBSTER_EXECUTOR='lobster worker --stdio' lobster run inbox-triage.lobster")]
pub(crate) struct Args {
    /// Talks over stdin and stdout; there is no other way yet.
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
