//! The example of embedding says what it is meant to say. It is run in a process of its own,
//! because native steps are started by the very program that runs them.

#[path = "../examples/embedding.rs"]
mod embedding;

use std::io;
use std::process::{Command, ExitCode, Output};

/// Makes this program the example.
const AS_EXAMPLE: &str = "AS_EXAMPLE";

const EXPECTED: &str = "\
asked: \"Say it?\" [\"HELLO\"]
said: [\"HELLO\"]
computed: [2,3]
failed: shout wants text, not 1 (pipeline_command)
";

fn main() -> ExitCode {
    // Helpers have no environment.
    if std::env::var_os(AS_EXAMPLE).is_some()
        || std::env::args().nth(1).is_some_and(|word| word.starts_with("__"))
    {
        return embedding::main();
    }
    // As the usual harness: a filter that this test does not fit leaves it out.
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !filters.is_empty() && !filters.iter().any(|filter| "embedding".contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    let ran = match run_example() {
        Ok(ran) => ran,
        Err(error) => {
            eprintln!("the example cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), EXPECTED, "{}", String::from_utf8_lossy(&ran.stderr));
    println!("test embedding ... ok");
    ExitCode::SUCCESS
}

/// Runs this program as the example, with a state directory of its own.
fn run_example() -> io::Result<Output> {
    let state = tempfile::tempdir()?;
    Command::new(std::env::current_exe()?)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
        .env("LOBSTER_STATE_DIR", state.path())
        .env("HOME", state.path())
        .env(AS_EXAMPLE, "1")
        .output()
}
