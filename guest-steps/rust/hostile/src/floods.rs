//! Too much of everything, and looks at what should not be there.

use std::hint::black_box;

use serde_json::Value;
use wasip2::clocks::{monotonic_clock, wall_clock};
use wasip2::random::random::get_random_u64;

use crate::lobster::step::host::{self, Level};
use crate::{Input, Output, StepError, breach, failed, say};

pub(crate) fn spin() {
    for n in 0_u64.. {
        black_box(n);
    }
}

/// Each call leaves a kilobyte on the stack that lies in the program's memory.
#[inline(never)]
pub(crate) fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 128]);
    if depth == u64::MAX {
        return 0;
    }
    recurse(depth + 1) + frame[usize::from(depth.is_multiple_of(2))]
}

#[expect(clippy::indexing_slicing, reason = "it is to fail")]
pub(crate) fn panic(args: &Value) {
    let none: &[u8] = &[];
    black_box(none[args["at"].as_u64().unwrap_or(7) as usize]);
}

pub(crate) fn memory() {
    let mut all = Vec::new();
    loop {
        all.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Goes on after it was told that there is no room.
pub(crate) fn items(output: &Output) -> Result<(), StepError> {
    let item = format!("\"{}\"", "x".repeat(60_000));
    loop {
        let _ = output.emit(std::slice::from_ref(&item));
    }
}

pub(crate) fn item(output: &Output) -> Result<(), StepError> {
    let item = format!("\"{}\"", "x".repeat(40 << 20));
    output.emit(&[item]).map_err(|error| failed(&error.code, error.message))
}

/// An item of a million brackets in each other.
pub(crate) fn deep(output: &Output) -> Result<(), StepError> {
    let item = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    output.emit(&[item]).map_err(|error| failed(&error.code, error.message))
}

pub(crate) fn mix(output: &Output) -> Result<(), StepError> {
    let _ = output.emit(&["1".to_owned()]);
    say(output, "bytes")
}

pub(crate) fn log() {
    let line = "so much to say ".repeat(4096);
    loop {
        host::log(Level::Error, &line, "{\"not\": json");
    }
}

pub(crate) fn progress() {
    for n in 0.. {
        host::progress(u64::MAX - n, Some(n), Some("\u{1b}[2J\u{1b}]0;owned\u{7}"));
    }
}

pub(crate) fn talk() {
    loop {
        eprintln!("so much to say, so much to say, so much to say, so much to say");
    }
}

pub(crate) fn values() {
    let value = format!("\"{}\"", "x".repeat(1 << 20));
    for n in 0_u64.. {
        host::state_set(&n.to_string(), &value);
    }
}

pub(crate) fn handles() {
    let mut all = Vec::new();
    loop {
        all.push(monotonic_clock::subscribe_duration(u64::MAX));
    }
}

/// Asks for more than there is, in every way at once.
pub(crate) fn input(input: &Input) -> Result<(), StepError> {
    let bytes = input.read(u32::MAX).map_err(|error| failed(&error.code, error.message))?;
    let items = input.next(u32::MAX).map_err(|error| failed(&error.code, error.message))?;
    if bytes.len() > 1 << 20 || items.len() > 1 << 20 { Err(breach("more than a chunk")) } else { Ok(()) }
}

/// Times its own work, as one does to learn what else the machine does.
pub(crate) fn clock(output: &Output) -> Result<(), StepError> {
    let (began, date) = (monotonic_clock::now(), wall_clock::now());
    for n in 0..20_000_000_u64 {
        black_box(n);
    }
    let took = monotonic_clock::now() - began;
    monotonic_clock::subscribe_duration(3_600_000_000_000).block();
    let slept = monotonic_clock::now() - began;
    let random = get_random_u64();
    say(output, &format!("{took} {slept} {}.{} {random}\n", date.seconds, date.nanoseconds))
}

/// What a process usually finds around itself.
pub(crate) fn ambient(output: &Output) -> Result<(), StepError> {
    let variables: Vec<_> = std::env::vars().collect();
    let words: Vec<_> = std::env::args().collect();
    let directories = wasip2::filesystem::preopens::get_directories().len();
    say(output, &format!("{variables:?} {words:?} {directories}\n"))
}
