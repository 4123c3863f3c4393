//! `lobster version`

use std::io::Write;

use crate::COMPATIBLE_WITH;
use crate::exit::Exit;

/// Prints the version line.
pub(crate) fn print() -> Exit {
    match writeln!(std::io::stdout(), "{COMPATIBLE_WITH}-lobster.{}", env!("CARGO_PKG_VERSION")) {
        Ok(()) => Exit::OK,
        Err(error) => crate::exit::CommandError::from(error).report(),
    }
}
