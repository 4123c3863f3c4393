//! What keeping secrets out of output costs, as ratios to a plain search.
//!
//! `cargo run --release -p lobster-runtime --example masking_cost [MiB]`
//!
//! The plain search looks for the same texts as they are, with the same
//! automaton, and copies nothing. Times are of this thread's processor, so that
//! a busy machine is equally unfair to both; the figures are the best of five.

use std::fmt::Write as _;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lobster_runtime::store::Redactions;
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 5;

/// A small random number generator: the same texts each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Text of this many bytes, line by line.
fn repeated(size: usize, mut line: impl FnMut(&mut String, usize, u64)) -> Vec<u8> {
    let mut random = Random(42);
    let mut text = String::with_capacity(size + 1024);
    let mut number = 0;
    while text.len() < size {
        number += 1;
        line(&mut text, number, random.next());
    }
    text.into_bytes()
}

fn texts(size: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(7);
    let bytes: Vec<u8> = (0..size).map(|_| random.next().to_le_bytes()[3]).collect();
    let digits = STANDARD.encode(&bytes[..size / 4 * 3]);
    let wrapped = digits.as_bytes().chunks(76).flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
    let log = repeated(size, |text, number, random| {
        let (second, item, time) = (number % 60, random % 10_000, random % 500);
        let _ = writeln!(
            text,
            "2026-11-23T00:12:{second:02}Z INFO worker-{} request={random:x} path=/items/{item} took {time} ms",
            number % 8
        );
    });
    let json = repeated(size, |text, number, random| {
        let _ = writeln!(
            text,
            "{{\"id\":{number},\"body\":\"{{\\\"name\\\": \\\"item {random}\\\", \\\"text\\\": \\\"one\\ntwo \\u00e9\\\\n\\\"}}\"}}"
        );
    });
    let dump = repeated(size, |text, number, random| {
        let _ = write!(text, "{:08x}: ", number * 16);
        let bytes = [random.to_le_bytes(), random.rotate_left(9).to_le_bytes()].concat();
        for two in bytes.chunks(2) {
            let _ = write!(text, "{:02x}{:02x} ", two[0], two[1]);
        }
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let _ = writeln!(text, " {}", bytes.iter().map(shown).collect::<String>());
    });
    let address = repeated(size, |text, _, random| {
        let _ = write!(text, "q={}%20%2Fpath%3Dx%26y+z&n={}&", random % 1000, random % 77);
    });
    let page = repeated(size, |text, _, random| {
        let _ = writeln!(text, "<p>Item {random} &amp; &lt;b&gt; &quot;text&quot; &#39;x&#39;</p>");
    });
    vec![
        ("log", log),
        ("base64", wrapped),
        ("JSON in JSON", json),
        ("hex dump", dump),
        ("URL", address),
        ("HTML", page),
        ("bytes", bytes),
    ]
}

fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "seconds of one process")]
    let (seconds, nanoseconds) = (time.tv_sec as f64, time.tv_nsec as f64);
    seconds + nanoseconds / 1e9
}

fn best(mut work: impl FnMut() -> usize) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begin = seconds();
        std::hint::black_box(work());
        best = best.min(seconds() - begin);
    }
    best
}

fn main() -> ExitCode {
    let size = std::env::args().nth(1).and_then(|text| text.parse::<usize>().ok()).unwrap_or(32) << 20;
    let mut redactions = Redactions::new();
    for (name, value) in [
        ("TOKEN", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        ("PASSWORD", "correct horse battery staple"),
        ("KEY", "3f786850e387550fdab836ed7e6dc881de23001b"),
        ("MARKS", "p&ss/w\"rd 7?"),
    ] {
        if !redactions.add_secret(name, value) {
            eprintln!("masking_cost: {name} is too short");
            return ExitCode::FAILURE;
        }
    }
    println!("{:14} {:>12} {:>12} {:>8}", "text", "plain MB/s", "masked MB/s", "ratio");
    for (name, text) in texts(size) {
        let plain = best(|| redactions.plain_pass(&text));
        let masked = best(|| text.chunks(64 << 10).map(|piece| redactions.hide_in_bytes(piece).len()).sum());
        #[expect(clippy::cast_precision_loss, reason = "megabytes")]
        let megabytes = text.len() as f64 / 1e6;
        println!("{name:14} {:12.0} {:12.0} {:7.1}x", megabytes / plain, megabytes / masked, masked / plain);
    }
    ExitCode::SUCCESS
}
