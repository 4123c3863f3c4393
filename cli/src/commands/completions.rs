//! `lobster completions`

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::exit::{CommandResult, Exit};

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster completions bash > /etc/bash_completion.d/lobster
  lobster completions zsh > \"${fpath[1]}/_lobster\"")]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lobster", &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(Exit::OK)
}
