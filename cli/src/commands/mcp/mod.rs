//! `lobster mcp`

mod install;
mod lock;
mod login;
mod logout;
mod serve;

use clap::Subcommand;

use crate::exit::CommandResult;

/// Serves lobster to agents over the Model Context Protocol (MCP).
///
/// By default it serves over stdin and stdout. Its tools are run, resume, runs and show, and one for each
/// workflow and component of the given directories. Without a policy (--policy, LOBSTER_POLICY), commands
/// that only read run at once and all others ask a person.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  lobster mcp --workflows ~/flows --components ~/steps
  lobster mcp --workflows ~/flows --no-run --approvals operator
  lobster mcp --http 127.0.0.1:7411 --workflows ~/flows
  lobster mcp --socket ~/.lobster/mcp.sock --workflows ~/flows
  lobster mcp --profile open --approvals token        as the incumbent's plugin works")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    Install(install::Args),
    Lock(lock::Args),
    Login(login::Args),
    Logout(logout::Args),
}

pub(crate) fn run(args: &Args) -> CommandResult {
    match &args.command {
        Some(Command::Install(args)) => install::run(args),
        Some(Command::Lock(args)) => lock::run(args),
        Some(Command::Login(args)) => login::run(args),
        Some(Command::Logout(args)) => logout::run(args),
        None => serve::run(&args.serve),
    }
}
