//! Measures the extra cost of compiling in a separate process: `cargo run --release -p
//! lobster-component --example compiling [PROGRAM...]`.
//!
//! Each program is loaded both ways in turn, whole and without a code cache. The example prints the
//! medians and their ratio. Without arguments it measures a small program and some of the ready steps.

#![expect(clippy::expect_used, clippy::panic, reason = "a measuring tool")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lobster_component::{COMPILE_ARGUMENT, CompilerProgram, Engine, EngineConfig, Patience, compile_main};

/// The separate process may take this much of the time that compiling takes here.
const BUDGET: f64 = 1.15;

/// Time for which one program is measured, in at least three rounds.
const LONG_ENOUGH: Duration = Duration::from_secs(20);
const MOST_ROUNDS: usize = 31;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == COMPILE_ARGUMENT) {
        return compile_main();
    }
    let named: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if !named.is_empty() {
        for path in named {
            measure(&path.display().to_string(), &read(&path));
        }
        return ExitCode::SUCCESS;
    }
    measure("hello (WAT)", &wat::parse_str(HELLO).expect("parses"));
    for name in ["csv", "js-eval", "jq"] {
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-steps/dist");
        measure(name, &read(&dist.join(name).with_extension("wasm")));
    }
    ExitCode::SUCCESS
}

const HELLO: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\06\00\00\00hello\n")
    (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn measure(name: &str, program: &[u8]) {
    let begun = Instant::now();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    while here.len() < 3 || begun.elapsed() < LONG_ENOUGH && here.len() < MOST_ROUNDS {
        here.push(load(program, None));
        there.push(load(program, Some(CompilerProgram::default())));
    }
    let (here, there) = (median(here), median(there));
    println!(
        "{name:<24}{:>10} bytes   here {here:>10.1?}   in its own process {there:>10.1?}   {:>6.3} of it, {:>6.3} of the budget",
        program.len(),
        there.as_secs_f64() / here.as_secs_f64(),
        there.as_secs_f64() / here.as_secs_f64() / BUDGET
    );
}

fn load(program: &[u8], compiler: Option<CompilerProgram>) -> Duration {
    let engine = Engine::new(EngineConfig { compiler, ..EngineConfig::default() });
    let begun = Instant::now();
    drop(
        black_box(engine.load_bytes_within(program, &Patience::default()))
            .unwrap_or_else(|error| panic!("{error}")),
    );
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
