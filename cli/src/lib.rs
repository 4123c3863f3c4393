//! The `lobster` command line: parses arguments, calls the runtime, renders.
//!
//! A library, so that the black-box tests can build the same program with fault points in addition to
//! the shipped one.

// These macros panic if the stream cannot be written; `clippy.toml` refuses the other ways.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod answering;
mod commands;
mod console_link;
mod events;
mod exit;
mod failed_run;
mod live;
mod logging;
mod option_values;
mod own_settings;
mod prepare;
mod registry;
mod render;
mod reply;
mod retention;
mod signals;
mod stdout;
mod terminal;
mod which;
mod whole_files;

use std::ffi::OsString;
use std::process::ExitCode;

use exit::Exit;

/// The system's allocator spends a fifth of a loop over components on locks, and on growing the heaps
/// of threads page by page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version of the incumbent that this binary is compatible with. Clients look for a line of this form.
const COMPATIBLE_WITH: &str = "2026.9.13";

/// Values may nest deeply, and reading, printing and dropping them recurses; the address space is
/// reserved, and memory is used only when needed.
const STACK: usize = 256 << 20;

/// True if these words are likely to start an unconfined native process: a guess from the first words.
fn may_start_processes(words: &[OsString]) -> bool {
    let begins = |word: &OsString, with: &str| word.as_encoded_bytes().starts_with(with.as_bytes());
    let confines = words.iter().any(|word| begins(word, "--policy"))
        || std::env::var_os("LOBSTER_POLICY").is_some_and(|path| !path.is_empty());
    !confines && words.first().is_some_and(|word| word == "run" || word == "resume" || begins(word, "exec"))
}

/// Ends the process without dropping values. Commands have released their resources by now; the
/// remaining memory would be freed piece by piece, with a system call for each, while the system frees
/// it at once.
fn exit_process(exit: Exit) -> ! {
    signal_hook::low_level::exit(i32::from(exit.exit_code()))
}

/// Runs the program: `main` of `lobster`.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = lobster_runtime::init() {
        return code;
    }
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let words: Vec<OsString> = args.collect();
    if matches!(words.as_slice(), [word] if word == "version" || word == "--version" || word == "-v") {
        return commands::version::print().into();
    }
    signals::die_with_parent();
    if may_start_processes(&words) {
        // If this fails, it is started when it is needed.
        let _ = lobster_runtime::sandbox::fork_helper();
    }
    let records = words.first().is_some_and(|word| ["run", "resume", "fork"].iter().any(|name| word == name));
    let work = move || -> Exit {
        let exit = commands::dispatch(&name, words);
        lobster_runtime::sandbox::release_helper();
        if records {
            retention::collect_if_due();
            exit_process(exit);
        }
        exit
    };
    let thread = std::thread::Builder::new().name("lobster".to_owned()).stack_size(STACK).spawn(work);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(_)) => Exit::Code(1).into(), // the panic has printed its message
        Err(error) => commands::refuse_start(std::env::args_os().skip(1), &error).into(),
    }
}
