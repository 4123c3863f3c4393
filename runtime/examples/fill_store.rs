//! Fills a store with runs, to measure what only shows in large ones.
//!
//! `cargo run --release --example fill_store -- STATE_DIRECTORY COUNT [STEPS]`: the runs
//! are evenly spread over the last hundred days; each has arguments and two steps with small
//! results of their own. With STEPS one in twenty has failed, some wait for an answer, and the
//! newest one has so many steps.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lobster_runtime::digest::Digest;
use lobster_runtime::store::{
    Durability, Event, GateKind, GateRecord, NewRun, RunId, RunStatus, StepOutcome, StepStatus, Store,
    StoreError, system_clock,
};
use serde_json::{Value, json};

const DAYS: i64 = 100;

/// About so many questions are open, however many runs there are.
const WAITING: i64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(dir), Some(count)) = (words.next(), words.next()) else {
        return Err("give a state directory, a number of runs, and perhaps a number of steps".into());
    };
    let count: i64 = count.parse()?;
    let steps: Option<i64> = words.next().map(|steps| steps.parse()).transpose()?;
    let now = system_clock()();
    let at = Arc::new(AtomicI64::new(now));
    let clock = Arc::clone(&at);
    let store = Store::open_with(Path::new(&dir), Arc::new(move || clock.load(Ordering::Relaxed)))?;
    for number in 0..count {
        at.store(now - DAYS * 86_400_000 * (count - number) / count, Ordering::Relaxed);
        let waits = number % (count / WAITING).max(8) == 7;
        run(&store, number, steps.is_some().then_some(waits))?;
    }
    at.store(now, Ordering::Relaxed);
    if let Some(steps) = steps {
        long_run(&store, steps)?;
    }
    store.sync()?;
    println!("{count} runs in {dir}");
    Ok(())
}

fn begin(store: &Store, name: String, args: &Value) -> Result<RunId, StoreError> {
    let plan = store.put_blob(br#"{"kind":"pipeline","stages":[]}"#)?.digest;
    store.create_run(NewRun {
        name,
        kind: "pipeline".to_owned(),
        plan,
        args: Some(store.put_blob(args.to_string().as_bytes())?.digest),
        mode: "tool".to_owned(),
        actor: None,
        cwd: "/".to_owned(),
        parent: None,
        detail: Value::Null,
    })
}

/// The records of a native step that wrote something.
fn step(store: &Store, path: &str, text: &str, status: StepStatus) -> Result<[Event; 2], StoreError> {
    let action = json!({ "argv": ["/bin/sh", "-c", format!("./{path} --all")], "cwd": "/" });
    let mut outcome = StepOutcome::new(status);
    outcome.stdout = Some(store.put_blob(text.as_bytes())?);
    outcome.duration_us = 12_345;
    outcome.peak_memory = Some(3 << 20);
    outcome.enforcement = json!({ "asked": "light", "held": ["landlock", "seccomp"], "missing": [] });
    let started = Event::StepStarted {
        path: path.to_owned(),
        attempt: 1,
        kind: "native".to_owned(),
        action: Some(store.put_blob(action.to_string().as_bytes())?.digest),
        effect: true,
        idempotent: false,
        decision: json!({ "verdict": "allow" }),
        detail: Value::Null,
    };
    let ended =
        Event::StepEnded { path: path.to_owned(), attempt: 1, begun: None, outcome: Arc::new(outcome) };
    Ok([started, ended])
}

/// `waits`: whether it waits for an answer; of a store of runs that all went well, none.
fn run(store: &Store, number: i64, waits: Option<bool>) -> Result<(), StoreError> {
    let args = json!({ "day": number / 1000, "n": number });
    let run = begin(store, format!("workflow {}", number % 50), &args)?;
    let mut events = Vec::new();
    let has_failed = waits.is_some() && number % 20 == 0;
    for path in ["fetch", "send"] {
        let is_bad = has_failed && path == "send";
        let status = if is_bad { StepStatus::Failed } else { StepStatus::Ok };
        events.extend(step(store, path, &format!("{path} {number}\n{}", "x".repeat(300)), status)?);
    }
    if waits == Some(true) {
        store.append_events(run, events, Durability::Lazy)?;
        let question = json!({ "prompt": format!("Send number {number}?"), "items": [number] });
        store.open_gate(GateRecord {
            run,
            path: "ask".to_owned(),
            kind: GateKind::Approval,
            question,
            binding: Digest::of_bytes(&number.to_be_bytes()),
            expires_at: None,
            required_approver: None,
            detail: Value::Null,
        })?;
        return store.append_events(run, vec![Event::RunPaused { detail: Value::Null }], Durability::Lazy);
    }
    let status = if has_failed { RunStatus::Failed } else { RunStatus::Ok };
    let error = has_failed.then(|| format!("workflow command failed (1): no line {number}"));
    events.push(Event::RunEnded { status, output: None, error, detail: Value::Null });
    store.append_events(run, events, Durability::Lazy)
}

/// A run of many steps, as a workflow of native steps leaves it.
fn long_run(store: &Store, steps: i64) -> Result<(), StoreError> {
    let run = begin(store, "many".to_owned(), &json!({}))?;
    for number in 0..steps {
        let text = format!("{number}\n{}", "y".repeat(100));
        store.append_events(
            run,
            step(store, &format!("s{number}"), &text, StepStatus::Ok)?.to_vec(),
            Durability::Lazy,
        )?;
    }
    let ended = Event::RunEnded { status: RunStatus::Ok, output: None, error: None, detail: Value::Null };
    store.append_events(run, vec![ended], Durability::Lazy)
}
