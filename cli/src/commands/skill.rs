//! `lobster skill`

use std::io::Write;

use crate::exit::{CommandResult, finish};
use crate::stdout::stdout;

/// Prints a short guide to lobster for an agent.
///
/// Save it where your agent reads its skills.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster skill > skills/lobster/SKILL.md")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> CommandResult {
    let mut out = stdout();
    out.write_all(include_bytes!("skill.md"))?;
    finish(out)
}
