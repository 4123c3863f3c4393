//! `lobster completions`

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::exit::{CommandResult, Exit};
use crate::stdout::stdout;

/// Prints a completion script for a shell.
///
/// The scripts for bash, zsh and fish complete runs, steps, open questions, workflow files and their arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster completions bash > ~/.local/share/bash-completion/completions/lobster
  lobster completions zsh > \"${fpath[1]}/_lobster\"
  lobster completions fish > ~/.config/fish/completions/lobster.fish")]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

const BASH: &str = include_str!("completions/lobster.bash");
const ZSH: &str = include_str!("completions/lobster.zsh");
const FISH: &str = include_str!("completions/lobster.fish");

pub(crate) fn run(args: &Args) -> CommandResult {
    let script = match args.shell {
        Shell::Bash => BASH.as_bytes().to_vec(),
        Shell::Zsh => ZSH.as_bytes().to_vec(),
        Shell::Fish => FISH.as_bytes().to_vec(),
        // From the grammar alone, without words of the store.
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut Cli::command(), "lobster", &mut script);
            script
        }
    };
    std::io::Write::write_all(&mut stdout(), &script)?;
    Ok(Exit::OK)
}
