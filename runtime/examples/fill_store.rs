//! Fills a store with runs, to measure what only shows in large ones.
//!
//! `cargo run --release --example fill_store -- STATE_DIRECTORY COUNT`: the runs
//! are evenly spread over the last hundred days; each has two steps with small
//! results of their own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lobster_runtime::digest::Digest;
use lobster_runtime::store::{
    Durability, Event, NewRun, RunStatus, StepOutcome, StepStatus, Store, StoreError, system_clock,
};
use serde_json::{Value, json};

const DAYS: i64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(dir), Some(count)) = (words.next(), words.next()) else {
        return Err("give a state directory and a number of runs".into());
    };
    let count: i64 = count.parse()?;
    let now = system_clock()();
    let at = Arc::new(AtomicI64::new(now));
    let clock = Arc::clone(&at);
    let store = Store::open_with(Path::new(&dir), Arc::new(move || clock.load(Ordering::Relaxed)))?;
    for number in 0..count {
        at.store(now - DAYS * 86_400_000 * (count - number) / count, Ordering::Relaxed);
        run(&store, number)?;
    }
    store.sync()?;
    println!("{count} runs in {dir}");
    Ok(())
}

fn run(store: &Store, number: i64) -> Result<(), StoreError> {
    let plan = store.put(br#"{"kind":"pipeline","stages":[]}"#)?.digest;
    let run = store.create_run(NewRun {
        name: format!("workflow {}", number % 50),
        kind: "pipeline".to_owned(),
        plan,
        args: None,
        mode: "tool".to_owned(),
        actor: None,
        cwd: "/".to_owned(),
        parent: None,
        detail: Value::Null,
    })?;
    let mut events = Vec::new();
    for step in ["fetch", "send"] {
        let stdout = store.put(format!("{step} {number}\n{}", "x".repeat(300)).as_bytes())?;
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.stdout = Some(stdout);
        events.push(Event::StepStarted {
            path: step.to_owned(),
            attempt: 1,
            kind: "native".to_owned(),
            action: Some(Digest::of(step.as_bytes())),
            effect: true,
            idempotent: false,
            decision: json!({ "verdict": "allow" }),
            detail: Value::Null,
        });
        events.push(Event::StepEnded {
            path: step.to_owned(),
            attempt: 1,
            begun: None,
            outcome: Arc::new(outcome),
        });
    }
    events.push(Event::RunEnded { status: RunStatus::Ok, output: None, error: None, detail: Value::Null });
    store.append(run, events, Durability::Lazy)
}
