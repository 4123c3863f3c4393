//! What a decision costs, over a corpus of commands.
//!
//! `cargo run --release -p lobster-runtime --example decision_cost [CORPUS] [POLICY]`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lobster_runtime::json;
use lobster_runtime::policy::{DecisionEnv, Dialect, EveryProgram, Policy, Proposal, Shell};

/// Each command is decided so often; its best time counts, since a machine is never faster than it is.
const ROUNDS: usize = 20;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/policy");
    let mut paths = std::env::args().skip(1);
    let mut read = |default: &str| {
        let path = paths.next().map_or_else(|| here.join(default), Into::into);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (corpus, policy) = (read("corpus.jsonl")?, read("example.toml")?);
    let policy = Policy::load(&policy, "example.toml").map_err(|error| error.to_string())?;
    let env = DecisionEnv {
        workspace: "/srv/repo".to_owned(),
        home: "/home/agent".to_owned(),
        tmp: "/tmp".to_owned(),
        state: "/home/agent/.lobster/state".to_owned(),
        protected: Vec::new(),
        vars: BTreeMap::new(),
        given: BTreeMap::new(),
        programs: std::sync::Arc::new(EveryProgram),
        shell: Shell::example(Dialect::Bash),
    };
    let mut firsts = Vec::new();
    let mut bests = Vec::new();
    for line in corpus.lines().filter(|line| !line.trim().is_empty()) {
        let case = json::parse(line).map_err(|error| error.to_string())?;
        let Some(command) = case.get("command").and_then(|command| command.as_str()) else { continue };
        let proposal = Proposal::shell(command);
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            std::hint::black_box(policy.decide(std::hint::black_box(&proposal), &env));
            times.push(begun.elapsed());
        }
        firsts.push(times[0]);
        bests.push(times.into_iter().min().unwrap_or_default());
    }
    for (name, mut times) in [("first time", firsts), ("best of 20", bests)] {
        times.sort();
        let at =
            |part: usize| times.get(times.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "{name}: {} commands, median {:.1} µs, p95 {:.1} µs, worst {:.1} µs",
            times.len(),
            us(at(50)),
            us(at(95)),
            us(at(100))
        );
    }
    Ok(())
}
