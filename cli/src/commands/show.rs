//! `lobster show`

use std::collections::BTreeMap;
use std::io::Write;

use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::steps::stages::Mode;
use lobster_runtime::store::{Event, StepOutcome, iso};
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::render::{harmless, table, units};

/// Tells what happened in a run, step by step.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster show 3f9a1c2b                    an id or the end of one, as `lobster runs` prints it
  lobster show 3f9a1c2b --full             with digests and what each sandbox enforced
  lobster show 3f9a1c2b --json             the journal")]
pub(crate) struct Args {
    /// The run.
    run: String,
    /// Digests, policy decisions and enforcement statements too.
    #[arg(long)]
    full: bool,
    /// The journal's records as a JSON array. If it is damaged, the last element says where.
    #[arg(long)]
    json: bool,
}

/// One line of the timeline.
#[derive(Default)]
struct Line {
    order: usize,
    kind: String,
    state: String,
    action: Option<String>,
    decision: Value,
    outcome: Option<StepOutcome>,
    /// A composite step's summary, not an effect of its own.
    summary: bool,
}

impl Line {
    fn begin(&mut self, kind: &str, action: Option<Digest>, decision: &Value) {
        kind.clone_into(&mut self.kind);
        self.state = "started".to_owned();
        self.action = action.map(|digest| digest.to_string());
        self.decision = decision.clone();
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = super::runtime(Mode::Human)?.store()?;
    let id = store.find_run(&args.run).map_err(CommandError::usage)?;
    let run = store.run(id)?;
    let (journal, broken) = super::found_journal(&store, id)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let records: Vec<_> = journal
            .iter()
            .map(|record| json!({ "seq": record.seq, "at": iso(record.at), "hash": record.hash(), "event": record.event }))
            .chain(broken.map(|broken| json!({ "broken": broken })))
            .collect();
        writeln!(out, "{}", json::pretty(&records))?;
        return Ok(Exit::OK);
    }
    let status = super::runs::status(&store, &run);
    writeln!(out, "{}  {}", harmless(&run.name), status)?;
    writeln!(out, "  run      {id}")?;
    writeln!(out, "  started  {} in {}", iso(run.started_at), run.cwd)?;
    if let Some(end) = run.ended_at {
        let took = u64::try_from((end - run.started_at).max(0)).unwrap_or(0) * 1000;
        writeln!(out, "  ended    {} ({})", iso(end), units::duration(took))?;
    }
    writeln!(out, "  plan     blake3:{}", run.plan)?;
    if let Some(error) = &run.error {
        writeln!(out, "  error    {}", harmless(error).replace('\n', "\n           "))?;
    }
    writeln!(out)?;
    let mut cells = vec![
        ["STEP", "KIND", "STATE", "TOOK", "FUEL", "MEMORY", "OUTPUT", "ENFORCED"].map(str::to_owned).to_vec(),
    ];
    let lines = timeline(&journal);
    for (path, line) in &lines {
        cells.push(row(path, line));
    }
    for line in table::lines(&cells) {
        writeln!(out, "{line}")?;
    }
    if args.full {
        for (path, line) in &lines {
            details(&mut out, path, line)?;
        }
    }
    Ok(Exit::OK)
}

/// What the engine keeps for itself: no steps of anybody's.
const KEPT: [&str; 3] = ["!identity", "!plan", "!winner"];

fn timeline(journal: &[lobster_runtime::store::Record]) -> Vec<(String, Line)> {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for (order, record) in journal.iter().enumerate() {
        let Some(path) = record.event.path() else { continue };
        if path.contains("!approved:") || KEPT.iter().any(|kept| path.ends_with(kept)) {
            continue;
        }
        let line = lines.entry(path.to_owned()).or_insert_with(|| Line { order, ..Line::default() });
        match &record.event {
            Event::StepStarted { kind, action, decision, .. } => {
                line.begin(kind, *action, decision);
            }
            Event::StepEnded { outcome, attempt: 0, .. } if line.outcome.is_some() => {
                // The step's own effect stands here already; its summary adds why it failed.
                if let Some(known) = &mut line.outcome {
                    known.error = known.error.take().or_else(|| outcome.error.clone());
                }
            }
            Event::StepEnded { outcome, attempt, begun, .. } => {
                if let Some(begun) = begun {
                    line.begin(&begun.kind, Some(begun.action), &begun.decision);
                }
                line.state = match outcome {
                    outcome if outcome.is_edited() => "edited".to_owned(),
                    outcome if outcome.cached => "cached".to_owned(),
                    outcome => outcome.status.as_str().to_owned(),
                };
                line.summary = *attempt == 0;
                if let Some(kind) =
                    outcome.detail.get("kind").and_then(Value::as_str).filter(|_| line.kind.is_empty())
                {
                    line.kind = kind.to_owned();
                }
                line.outcome = Some(StepOutcome::clone(outcome));
            }
            Event::GateOpened { gate, kind, .. } => {
                line.kind.clone_from(kind);
                line.state = format!("waiting ({gate})");
            }
            Event::GateAnswered { answer, by, from, .. } => {
                let by = by.as_ref().map(|by| format!(" by {by}"));
                let run = from.map(|run| format!(" in run {}", run.short()));
                let who: String = by.into_iter().chain(run).collect();
                let what = match answer {
                    lobster_runtime::store::GateAnswer::Approved => "approved",
                    lobster_runtime::store::GateAnswer::Rejected => "rejected",
                    lobster_runtime::store::GateAnswer::Response(_) => "answered",
                };
                if line.kind.is_empty() {
                    line.kind = "gate".to_owned();
                }
                line.state = format!("{what}{who}");
            }
            Event::GateClosed { status, .. } => line.state = status.as_str().to_owned(),
            Event::Decision { decision, .. } => {
                line.kind = "policy".to_owned();
                line.state = decision.get("verdict").and_then(Value::as_str).unwrap_or("decided").to_owned();
                line.decision = decision.clone();
            }
            _ => {}
        }
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(_, line)| line.order);
    lines
}

fn row(path: &str, line: &Line) -> Vec<String> {
    let outcome = line.outcome.as_ref();
    let depth = path.matches(['/', '|', '!']).count();
    let size =
        outcome.and_then(|outcome| outcome.output.or(outcome.stdout)).map(|blob| units::bytes(blob.len));
    vec![
        format!("{}{path}", "  ".repeat(depth)),
        line.kind.clone(),
        line.state.clone(),
        outcome.map(|outcome| units::duration(outcome.duration_us)).unwrap_or_default(),
        outcome.and_then(|outcome| outcome.fuel).map(units::count).unwrap_or_default(),
        outcome.and_then(|outcome| outcome.peak_memory).map(units::bytes).unwrap_or_default(),
        size.unwrap_or_default(),
        outcome.map(|outcome| enforced(&outcome.enforcement)).unwrap_or_default(),
    ]
}

/// What held, in one cell.
fn enforced(statement: &Value) -> String {
    let Some(asked) = statement.get("asked").and_then(Value::as_str) else { return String::new() };
    if asked == "component" {
        let pure = statement.get("pure") == Some(&json!(true));
        return if pure { "wasm (pure)" } else { "wasm" }.to_owned();
    }
    let held: Vec<_> = statement
        .get("held")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get(0).and_then(Value::as_str))
        .collect();
    let missing = statement.get("missing").and_then(Value::as_array).map_or(0, Vec::len);
    let mut gaps = if missing == 0 { String::new() } else { format!(", {missing} missing") };
    for lacking in statement.get("lacking").and_then(Value::as_array).into_iter().flatten() {
        gaps.push_str(", no ");
        gaps.push_str(lacking["mechanism"].as_str().unwrap_or_default());
    }
    if held.is_empty() { asked.to_owned() } else { format!("{}{gaps}", held.join(" ")) }
}

fn details(out: &mut impl Write, path: &str, line: &Line) -> std::io::Result<()> {
    if line.summary && line.outcome.as_ref().is_none_or(|outcome| outcome.error.is_none()) {
        return Ok(());
    }
    writeln!(out, "\n{path}")?;
    if let Some(action) = &line.action {
        writeln!(out, "  action   blake3:{action}")?;
    }
    if !line.decision.is_null() {
        writeln!(out, "  policy   {}", harmless(&json::compact(&line.decision)))?;
    }
    let Some(outcome) = &line.outcome else { return Ok(()) };
    for (name, blob) in [("stdout", outcome.stdout), ("stderr", outcome.stderr), ("output", outcome.output)] {
        if let Some(blob) = blob.filter(|blob| blob.len > 0) {
            writeln!(out, "  {name}   blake3:{} ({})", blob.digest, units::bytes(blob.len))?;
        }
    }
    if let Some(error) = &outcome.error {
        writeln!(out, "  error    {}", harmless(error).replace('\n', "\n           "))?;
    }
    if !outcome.enforcement.is_null() {
        writeln!(out, "  enforced {}", harmless(&json::compact(&outcome.enforcement)))?;
    }
    Ok(())
}
