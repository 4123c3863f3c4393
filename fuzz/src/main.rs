//! Fuzzes without libFuzzer, on any toolchain: mutates known inputs for some seconds per target, and
//! keeps the inputs that gave a new answer in `corpus/`.
//!
//!     lobster-fuzz [--seconds 60] [--seed N] [TARGET...]      fuzz
//!     lobster-fuzz --input FILE TARGET                        run one input
//!
//! An input that panics, or takes more than five seconds, is kept in `artifacts/` and is a failure.
//! The current input is always in `artifacts/TARGET-running`, so that an input that ends the process
//! is not lost.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its purpose is to print")]

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lobster_fuzz::{TARGETS, Target, made_seeds};

/// Time limit of one input.
const PATIENCE: Duration = Duration::from_secs(5);

/// Largest input in bytes.
const LARGEST: usize = 16 << 10;

/// Stack size in bytes: values may nest deeply, as in the program itself.
const STACK: usize = 256 << 20;

fn main() -> ExitCode {
    let work = std::thread::Builder::new().stack_size(STACK).spawn(run);
    match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(0))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(failed))) => {
            eprintln!("{failed} inputs failed; they are in fuzz/artifacts");
            ExitCode::FAILURE
        }
        Ok(Ok(Err(error))) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Ok(Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> Result<usize, String> {
    let (mut seconds, mut seed, mut input, mut names) = (60, 1, None, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "--seconds" => seconds = number(value()?)?,
            "--seed" => seed = number(value()?)?,
            "--input" => input = Some(value()?),
            _ => names.push(word),
        }
    }
    if let Some(unknown) = names.iter().find(|name| TARGETS.iter().all(|(target, ..)| target != name)) {
        let known: Vec<_> = TARGETS.iter().map(|(name, ..)| *name).collect();
        return Err(format!("no target {unknown}; known: {}", known.join(", ")));
    }
    let chosen = TARGETS.iter().filter(|(name, ..)| names.is_empty() || names.iter().any(|n| n == name));
    if let Some(input) = input {
        let data = fs::read(&input).map_err(|error| format!("{input}: {error}"))?;
        for (name, target, _) in chosen {
            println!("{name}: {}", target(&data));
        }
        return Ok(0);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut failed = 0;
    for (name, target, seeds) in chosen {
        failed += Fuzzer::new(root, name, *target, seeds, seed)
            .and_then(|mut fuzzer| fuzzer.run(Duration::from_secs(seconds)))
            .map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(failed)
}

struct Fuzzer {
    name: String,
    target: Target,
    corpus: PathBuf,
    artifacts: PathBuf,
    known: Vec<Vec<u8>>,
    answers: HashSet<String>,
    random: u64,
}

impl Fuzzer {
    fn new(root: &Path, name: &str, target: Target, seeds: &[&str], seed: u64) -> std::io::Result<Self> {
        let (corpus, artifacts) = (root.join("corpus").join(name), root.join("artifacts"));
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&artifacts)?;
        let mut known: Vec<Vec<u8>> = seeds.iter().map(|text| text.as_bytes().to_vec()).collect();
        known.extend(made_seeds(name));
        for entry in fs::read_dir(&corpus)? {
            known.push(fs::read(entry?.path())?);
        }
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Ok(Self { name: name.to_owned(), target, corpus, artifacts, known, answers: HashSet::new(), random })
    }

    fn run(&mut self, time: Duration) -> std::io::Result<usize> {
        let (began, mut count, mut failed, mut at) = (Instant::now(), 0_u64, 0, 0);
        while began.elapsed() < time && failed < 10 {
            // The known inputs come first, unchanged.
            let input = self.known.get(at).cloned().unwrap_or_else(|| self.mutated());
            at += 1;
            count += 1;
            fs::write(self.artifacts.join(format!("{}-running", self.name)), &input)?;
            let since = Instant::now();
            let answer = catch_unwind(AssertUnwindSafe(|| (self.target)(&input)));
            let slow = since.elapsed() > PATIENCE;
            match answer {
                Ok(answer) if !slow => {
                    if self.answers.insert(answer) && at > self.known.len() {
                        fs::write(self.corpus.join(file_name(&input)), &input)?;
                        self.known.push(input);
                        at = self.known.len();
                    }
                }
                _ => {
                    failed += 1;
                    let path = self.artifacts.join(format!("{}-{}", self.name, file_name(&input)));
                    fs::write(&path, &input)?;
                    println!(
                        "{}: {}: {}",
                        self.name,
                        if slow { "too slow" } else { "panicked" },
                        path.display()
                    );
                }
            }
        }
        let _ = fs::remove_file(self.artifacts.join(format!("{}-running", self.name)));
        println!("{}: {count} inputs, {} answers, {failed} failed", self.name, self.answers.len());
        Ok(failed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 16).unwrap_or_default() % limit.max(1)
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.below(self.known.len());
        self.known[at].clone()
    }

    /// A known input with a few changes.
    fn mutated(&mut self) -> Vec<u8> {
        let mut data = self.pick();
        for _ in 0..=self.below(4) {
            let (from, to) = (self.below(data.len() + 1), self.below(data.len() + 1));
            let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 64));
            match self.below(8) {
                0 => drop(data.drain(from..to)),
                1 => {
                    let part = data[from..to].to_vec();
                    let times = 1 + self.below(8);
                    for _ in 0..times {
                        data.splice(from..from, part.iter().copied());
                    }
                }
                2 => {
                    let other = self.pick();
                    let start = self.below(other.len());
                    let end = (start + self.below(48)).min(other.len());
                    data.splice(from..from, other[start..end].iter().copied());
                }
                3 => {
                    const BYTES: &[u8] = b"\0\n\t \"'`$\\{}[]()<>|&;:,.-+*/=!?#@~%^0129aeznul\xc3\xa9\xff";
                    let byte = BYTES[self.below(BYTES.len())];
                    data.insert(from, byte);
                }
                4 if from < data.len() => data[from] ^= 1 << self.below(8),
                5 if from < data.len() => data[from] = u8::try_from(self.below(256)).unwrap_or_default(),
                6 => {
                    const WORDS: &[&str] = &[
                        "null",
                        "true",
                        "-0",
                        "1e999",
                        "9223372036854775808",
                        "${",
                        "$(",
                        "{{",
                        "}}",
                        "\\u",
                        "\"\"",
                        "<<E\n",
                        "&&",
                        "$ref",
                        "&a ",
                        "*a",
                    ];
                    let word = WORDS[self.below(WORDS.len())];
                    data.splice(from..from, word.bytes());
                }
                _ => data.truncate(data.len() - data.len().min(self.below(16))),
            }
        }
        data.truncate(LARGEST);
        data
    }
}

fn file_name(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
