//! `lobster version`

use std::io::Write;

use crate::COMPATIBLE_WITH;
use crate::exit::Exit;
use crate::stdout::stdout;

/// Prints the version line.
pub(crate) fn print() -> Exit {
    match writeln!(stdout(), "{COMPATIBLE_WITH}-lobster.{}", env!("CARGO_PKG_VERSION")) {
        Ok(()) => Exit::OK,
        Err(error) => crate::exit::CommandError::from(error).report(),
    }
}
