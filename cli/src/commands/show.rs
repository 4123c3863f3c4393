//! `lobster show`

mod details;
mod unbegun;

use std::io::Write;

use lobster_runtime::engine::UnseenEnd;
use lobster_runtime::figures::summarize_enforcement;
use lobster_runtime::json;
use lobster_runtime::language::plan::{Plan, Workflow};
use lobster_runtime::model::pricing::Pricing;
use lobster_runtime::replay::timeline::{self, Line};
use lobster_runtime::replay::{FORK_NOTE, Standing, read_standing};
use lobster_runtime::runtime::load_recorded;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::service::StartState;
use lobster_runtime::store::{Event, Record, RunId, RunSummary, Store, iso};
use serde_json::{Value, json};

use crate::exit::{CommandResult, finish, print_json};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::question::{BOLD, DIM};
use crate::render::table::{self, Cell, Room, Table};
use crate::render::{clip, harmless, one_line, units};
use crate::which;

/// Shows what a run did, step by step.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster show 3f9a1c2b                    an id or the end of one, as `lobster runs` prints it
  lobster show 3f9a1c2b --full
  lobster show 3f9a1c2b --json")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// Prints exact times, and also digests, policy decisions and what each sandbox enforced.
    #[arg(long)]
    full: bool,
    /// Prints the records of the journal as a JSON array. If the journal is damaged, the last element says
    /// where.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let id = match (which::run_or_ask(&store, args.run.as_deref(), "show"), &args.run) {
        (Ok(id), _) => id,
        (Err(error), None) => return Err(error),
        (Err(error), Some(text)) => {
            return unbegun::show(&which::find_unbegun(&store, text).ok_or(error)?, args.full, args.json);
        }
    };
    let run = store.run(id)?;
    let (journal, broken) = prepare::found_journal(&store, id)?;
    let mut out = PagedOutput::for_reader(args.json);
    if args.json {
        let records: Vec<_> = journal
            .iter()
            .map(|record| json!({ "seq": record.seq, "at": iso(record.at), "hash": record.hash(), "event": record.event }))
            .chain(broken.map(|broken| json!({ "broken": broken })))
            .collect();
        return print_json(&mut out, &records);
    }
    let status = read_standing(&store, &run);
    let pinned = if run.pinned { ", pinned" } else { "" };
    let room = Room::of_stdout();
    writeln!(
        out,
        "{}  {}",
        room.paint(BOLD, &one_line(&run.name)),
        room.paint(table::state_style(status.as_str()), &format!("{status}{pinned}"))
    )?;
    for (title, text) in run_facts(&store, &run, &journal, args.full) {
        let title = room.paint(DIM, &format!("{title:<8}"));
        writeln!(out, "  {title} {}", harmless(&text).replace('\n', "\n           "))?;
    }
    writeln!(out)?;
    let mut table = Table::new(&["STEP", "KIND", "STATE", "TOOK", "FUEL", "MEMORY", "OUTPUT", "ENFORCED"])
        .numeric_columns(&["TOOK", "FUEL", "MEMORY", "OUTPUT"])
        .optional_columns(&["ENFORCED", "MEMORY", "FUEL", "OUTPUT", "KIND", "TOOK"]);
    let lines = timeline::build_lines(&journal, status == Standing::Running);
    for line in &lines {
        table.push(step_row(line));
    }
    let mut shown = table.to_lines(room).into_iter();
    if let Some(head) = shown.next() {
        writeln!(out, "{head}")?;
    }
    let record = details::Recorded { store: &store, run: id };
    for (line, shown) in lines.iter().zip(shown) {
        writeln!(out, "{shown}")?;
        for (style, text) in details::of_step(record, line, room) {
            writeln!(out, "{}", room.paint(style, &text))?;
        }
    }
    if args.full {
        for line in &lines {
            print_details(&mut out, line)?;
        }
    }
    finish(out)
}

/// Arguments are cut at this length, except with `--full`.
const ARGUMENTS_SHOWN: usize = 160;

/// Longer arguments are not read.
const MAX_ARGUMENTS: u64 = 1 << 20;

/// Facts about the run as a whole.
fn run_facts(store: &Store, run: &RunSummary, journal: &[Record], full: bool) -> Vec<(&'static str, String)> {
    let mut facts = vec![("run", run.id.to_string())];
    if let Some(parent) = run.parent {
        let terms = journal.iter().find_map(|record| match &record.event {
            Event::Note { path: None, text, detail } if text == FORK_NOTE => Some(detail),
            _ => None,
        });
        match terms {
            Some(terms) => facts.push(("fork", format!("of run {parent}{}", describe_changes(terms)))),
            None => facts.push(("part", format!("of run {parent}"))),
        }
    }
    facts
        .push(("started", format!("{} in {}", units::format_time(run.started_at, full), one_line(&run.cwd))));
    let resumed: Vec<_> = journal
        .iter()
        .filter_map(|record| match &record.event {
            Event::RunResumed { by, .. } => Some((record.at, by)),
            _ => None,
        })
        .collect();
    if let Some((at, by)) = resumed.last() {
        let times = if resumed.len() > 1 { format!("{} times, last ", resumed.len()) } else { String::new() };
        let by = by.as_ref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
        facts.push(("resumed", format!("{times}{}{by}", units::format_time(*at, full))));
    }
    if let Some(end) = run.ended_at {
        let took = u64::try_from((end - run.started_at).max(0)).unwrap_or(0) * 1000;
        facts
            .push(("ended", format!("{} ({})", units::format_time(end, full), units::format_duration(took))));
    }
    facts.extend(
        refused_to_go_on(store, run.id).map(|why| ("service", format!("does not continue it: {why}"))),
    );
    if full {
        facts.push(("plan", format!("blake3:{}", run.plan)));
    }
    if let Some(digest) = &run.args {
        match store.load_blob(digest, MAX_ARGUMENTS) {
            Ok(empty) if empty == b"{}" => {}
            Ok(text) => {
                let text = one_line(&String::from_utf8_lossy(&text));
                facts.push(("args", if full { text } else { clip(&text, ARGUMENTS_SHOWN).into_owned() }));
            }
            Err(error) => {
                facts.push(("args", format!("cannot be shown: {}", store.explain_error(run.id, error))));
            }
        }
    }
    let spent = super::cost::Sum::of_run(journal, &Pricing::configured(super::models::env_variable).0);
    facts.extend(spent.as_ref().map(|spent| ("models", spent.to_line())));
    match load_recorded::<Plan>(store, &run.plan) {
        Ok(Plan::Workflow(Workflow { budget: Some(budget), .. })) if !budget.limits.is_empty() => {
            let used = spent.map(|spent| spent.to_amount()).unwrap_or_default();
            facts.push(("budget", format!("{} used", budget.limits.used_text(&used))));
        }
        Ok(_) => {}
        Err(failure) => facts.push(("plan", format!("cannot be read: {}", failure.message))),
    }
    facts.extend(run.error.clone().map(|error| ("error", error)));
    facts.extend(unknown_ends(journal).into_iter().map(|told| ("unknown", told)));
    facts
}

/// The reason why the service that began a run gave it up.
fn refused_to_go_on(store: &Store, run: RunId) -> Option<String> {
    let start = store.existing_service().ok()??.start_of(run).ok()??;
    start.why.filter(|_| start.state == StartState::Refused)
}

/// Effects with an unknown outcome, each with its interruption and the decision about it.
fn unknown_ends(journal: &[Record]) -> Vec<String> {
    let mut told: Vec<(&str, String)> = Vec::new();
    for record in journal {
        match &record.event {
            Event::StepEnded { path, outcome, .. } => {
                let Some(end) = UnseenEnd::of_outcome(outcome) else { continue };
                match told.iter_mut().find(|(known, _)| known == path) {
                    Some((_, text)) if outcome.code.as_deref() == Some("interrupted") => {
                        text.push_str("; skipped");
                    }
                    Some(_) => {}
                    None => told.push((path.as_str(), format!("{path}: {}", end.reason()))),
                }
            }
            Event::StepStarted { path, .. } => {
                if let Some((_, text)) = told.iter_mut().find(|(known, _)| known == path) {
                    text.push_str("; repeated");
                }
            }
            _ => {}
        }
    }
    told.into_iter().map(|(_, text)| text).collect()
}

/// Formats `, anew from fetch, with another result of sum`.
fn describe_changes(terms: &Value) -> String {
    let from = terms["from"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let edited = terms["edit"].as_object().into_iter().flatten().map(|(step, _)| step.as_str());
    let mut text = String::new();
    for (how, steps) in
        [("anew from", from.collect::<Vec<_>>()), ("with an edited result of", edited.collect())]
    {
        if !steps.is_empty() {
            text.push_str(&format!(", {how} {}", one_line(&steps.join(", "))));
        }
    }
    text
}

fn step_row(line: &Line) -> Vec<Cell> {
    let outcome = line.outcome.as_ref();
    let size = outcome
        .and_then(|outcome| outcome.output.or(outcome.stdout))
        .map(|blob| units::format_bytes(blob.len));
    vec![
        format!("{}{}", "  ".repeat(line.depth), line.path).into(),
        line.kind.as_str().into(),
        Cell::state_word(line.state.as_str()),
        // A cached result took no time.
        outcome
            .filter(|outcome| !outcome.cached)
            .map(|outcome| units::format_duration(outcome.duration_us))
            .unwrap_or_default()
            .into(),
        outcome.and_then(|outcome| outcome.fuel).map(units::format_count).unwrap_or_default().into(),
        outcome.and_then(|outcome| outcome.peak_memory).map(units::format_bytes).unwrap_or_default().into(),
        size.unwrap_or_default().into(),
        outcome.map(|outcome| describe_sandbox(&outcome.enforcement)).unwrap_or_default().into(),
    ]
}

/// The sandbox of a step and its missing promises, in one cell; `--full` lists what enforced what.
pub(crate) fn describe_sandbox(statement: &Value) -> String {
    let Some(mut cell) = summarize_enforcement(statement) else { return String::new() };
    for lacking in statement["lacking"].as_array().into_iter().flatten() {
        cell.push_str(", no ");
        cell.push_str(lacking["mechanism"].as_str().unwrap_or_default());
    }
    cell
}

fn print_details(out: &mut impl Write, line: &Line) -> std::io::Result<()> {
    if line.summary && line.outcome.as_ref().is_none_or(|outcome| outcome.error.is_none()) {
        return Ok(());
    }
    writeln!(out, "\n{}", one_line(&line.path))?;
    if let Some(action) = &line.action {
        writeln!(out, "  action   blake3:{action}")?;
    }
    if !line.decision.is_null() {
        writeln!(out, "  policy   {}", harmless(&json::compact(&line.decision)))?;
    }
    let Some(outcome) = &line.outcome else { return Ok(()) };
    for (name, blob) in
        [("stdout", outcome.kept_stdout()), ("stderr", outcome.kept_stderr()), ("output", outcome.output)]
    {
        if let Some(blob) = blob.filter(|blob| blob.len > 0) {
            writeln!(out, "  {name}   blake3:{} ({})", blob.digest, units::format_bytes(blob.len))?;
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
