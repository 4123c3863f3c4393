//! `lobster mcp logout`

use std::io::Write;

use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::one_line;
use crate::stdout::stdout;

/// Forgets the tokens of a login.
///
/// The server is not notified. To end the tokens themselves, revoke them on the server's own pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster mcp logout tickets")]
pub(super) struct Args {
    /// The server's name in lobster.mcp.toml.
    server: String,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let had = runtime.forget_mcp_login(&args.server).map_err(|error| CommandError::failed(error.message))?;
    let name = one_line(&args.server);
    let mut out = stdout();
    match had {
        true => writeln!(out, "the tokens of {name} are forgotten")?,
        false => writeln!(out, "there are no tokens of {name}")?,
    }
    Ok(Exit::OK)
}
