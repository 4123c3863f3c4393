//! Measures the cost of a step: `cargo run --release -p lobster-component --example bench`.
//!
//! Prints times and their ratio to the budget; a ratio above 1 is over it. The bare call uses the
//! engine alone: a fresh store and instance of the same program with the same input and output, without
//! grants, limits or accounting.

#![expect(clippy::expect_used, clippy::panic, reason = "a measuring tool")]

mod bare;
#[path = "../../src/tests/fixture.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod fixture;

use std::hint::black_box;
use std::time::{Duration, Instant};

use lobster_component::{Component, Engine, EngineConfig, Input, Invocation, Patience};

/// Time that a warm step may take above the bare call.
const STEP_BUDGET: Duration = Duration::from_micros(150);

/// Runs per second on two threads.
const RATE_BUDGET: f64 = 20_000.0;

fn main() {
    let cache = tempfile::tempdir().expect("temporary directory");
    let config = || EngineConfig { code_cache: Some(cache.path().join("code")), ..EngineConfig::default() };
    let step = fixture::step(fixture::ECHO_ARGS);
    let command = fixture::command("", "(call $put (i32.const 1) (i32.const 0) (i32.const 4))");

    let (cold, echo) =
        time(|| Engine::new(config()).load_bytes_within(&step, &Patience::default()).expect("loads"));
    println!("load, compiling              {cold:>12.1?}");
    let (warm, _) =
        time(|| Engine::new(config()).load_bytes_within(&step, &Patience::default()).expect("loads"));
    println!("load, from the code cache    {warm:>12.1?}   {:>6.3} of compiling", ratio(warm, cold));
    drop(echo);

    let engine = Engine::new(config());
    let echo = engine.load_bytes_within(&step, &Patience::default()).expect("loads");
    let hello = engine.load_bytes_within(&command, &Patience::default()).expect("loads");
    let first = time(|| run(&echo)).0;
    println!("first step (with describe)   {first:>12.1?}");
    let csv = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest-steps/dist/csv.wasm"));
    let csv = csv.expect("the ready step is there");
    let table: Vec<u8> = std::iter::once(b"id,name,score\n".to_vec())
        .chain((0..64).map(|n| format!("{n},name{n},{}\n", n * 7).into_bytes()))
        .flatten()
        .take(1024)
        .collect();
    let thousand = format!("{{\"n\":\"{}\"}}", "x".repeat(1016)).into_bytes();
    warm_step("echo (text, 1 KB)", &engine, &step, std::str::from_utf8(&thousand).expect("text"), &[]);
    warm_step("csv (Rust, 1 KB)", &engine, &csv, "{}", &table);
    let wasi = median(|| run(&hello));
    println!("warm command module (WASI)   {wasi:>12.1?}");

    for threads in [1, 2, 4] {
        let each = 10_000 / threads;
        let (elapsed, ()) = time(|| {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..each).for_each(|_| run(&echo)));
                }
            });
        });
        let rate = f64::from(each * threads) / elapsed.as_secs_f64();
        println!(
            "10000 runs, {threads} threads         {elapsed:>12.1?}   {rate:>8.0}/s, {:>6.3} of the target",
            rate / RATE_BUDGET
        );
    }

    let copy = engine.load_bytes_within(&fixture::step(fixture::COPY), &Patience::default()).expect("loads");
    let (elapsed, ()) = time(|| {
        let mut invocation = Invocation::new("{}", Box::new(Vec::new()));
        invocation.input = Input::Bytes(Box::new(std::io::Cursor::new(vec![b'x'; 32 << 20])));
        drop(black_box(copy.run(invocation)).unwrap_or_else(|error| panic!("{error}")));
    });
    println!("32 MiB through a step        {elapsed:>12.1?}   {:>8.0} MiB/s", 32.0 / elapsed.as_secs_f64());
}

/// The same work through lobster and through the engine alone, alternately.
fn warm_step(name: &str, engine: &Engine, program: &[u8], args: &str, input: &[u8]) {
    let component = engine.load_bytes_within(program, &Patience::default()).expect("loads");
    let bare = bare::Bare::new(component_of(program).as_ref());
    let ours = || {
        let mut invocation = Invocation::new(args, Box::new(Vec::new()));
        invocation.input = Input::Bytes(Box::new(std::io::Cursor::new(input.to_vec())));
        drop(black_box(component.run(invocation)).unwrap_or_else(|error| panic!("{error}")));
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..2001 {
        with.push(time(ours).0);
        without.push(time(|| drop(black_box(bare.run(args, input)))).0);
    }
    with.sort();
    without.sort();
    let (with, without) = (with[1000], without[1000]);
    let above = with.saturating_sub(without);
    println!(
        "warm {name:<24}{with:>12.1?}   bare {without:.1?}, above it {above:.1?}: {:>6.3} of its budget",
        ratio(above, STEP_BUDGET)
    );
}

/// Wraps a module made by wit-bindgen as a component; returns a component unchanged.
fn component_of(program: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if program[4..8] != [1, 0, 0, 0] {
        return program.into();
    }
    let mut encoder =
        wit_component::ComponentEncoder::default().module(program).expect("a module of a world");
    encoder.encode().expect("becomes a component").into()
}

fn run(component: &Component) {
    let invocation = Invocation::new(r#"{"n":1}"#, Box::new(Vec::new()));
    drop(black_box(component.run(invocation)).unwrap_or_else(|error| panic!("{error}")));
}

fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = black_box(work());
    (start.elapsed(), result)
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..2001).map(|_| time(&mut work).0).collect();
    times.sort();
    times[times.len() / 2]
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
