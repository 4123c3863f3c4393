//! The program `lobster` with fault points: what the black-box tests drive.

use std::process::ExitCode;

#[path = "../runtime/store/src/fault/armed.rs"]
mod armed;

fn main() -> ExitCode {
    lobster_base::fault::install_fault_hook(armed::pass);
    lobster_cli::main()
}
