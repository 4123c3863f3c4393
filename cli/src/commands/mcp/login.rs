//! `lobster mcp login`

use std::io::Write;
use std::time::Duration;

use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::one_line;
use crate::stdout::stdout;

/// Logs in at a server of lobster.mcp.toml that wants its users to log in (OAuth 2.1).
///
/// Prints an address to open in a browser of this machine, and waits for the login. Calls of this server then
/// use the tokens, which lobster keeps in the state directory and renews.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster mcp login tickets --timeout 60")]
pub(super) struct Args {
    /// The server's name in lobster.mcp.toml.
    server: String,
    /// The time limit for logging in, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let failed = |error: lobster_runtime::stage::StageError| CommandError::failed(error.message);
    let login = runtime.begin_mcp_login(&args.server).map_err(failed)?;
    let mut out = stdout();
    writeln!(out, "open this address in a browser of this machine:\n\n{}\n", one_line(login.address()))?;
    out.flush()?;
    let done = login.complete(Duration::from_secs(args.timeout)).map_err(failed)?;
    let lasts = if done.is_renewed() { "it is renewed when it runs out" } else { "it cannot be renewed" };
    writeln!(out, "logged in at {}; {lasts}", one_line(done.issuer()))?;
    Ok(Exit::OK)
}
