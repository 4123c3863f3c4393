//! `lobster man`

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use super::Cli;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::stdout::stdout;

/// Writes a manual page for each command to a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster man ~/.local/share/man/man1      then `man lobster-run`
  lobster man | man -l -                   the page of lobster itself")]
pub(crate) struct Args {
    /// The directory, which is created if needed. Without it, the page of `lobster` is printed.
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut out = stdout();
    let root = Cli::command().name("lobster").version(env!("CARGO_PKG_VERSION"));
    let Some(dir) = &args.dir else {
        clap_mangen::Man::new(root).render(&mut out)?;
        return Ok(Exit::OK);
    };
    let failed = |error: std::io::Error| CommandError::failed(format!("{}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(root, dir).map_err(failed)?;
    let pages = std::fs::read_dir(dir).map_err(failed)?.flatten();
    let count = pages.filter(|page| page.path().extension().is_some_and(|e| e == "1")).count();
    writeln!(out, "{}: {count} pages", dir.display())?;
    Ok(Exit::OK)
}
