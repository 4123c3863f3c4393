//! The program `lobster`; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    lobster_cli::main()
}
