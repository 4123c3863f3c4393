//! `lobster audit`

use std::io::Write;
use std::path::{Path, PathBuf};

use lobster_runtime::audit::{self, AuditEntry, AuditFilter, Kind};
use lobster_runtime::json;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{StoreError, system_clock};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::pager::Output;
use crate::render::table::{Room, state_style};
use crate::render::text::cut;
use crate::render::{clip, one_line, units};
use crate::which;

/// Tells who proposed, decided, approved and ran what, from the journals.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster audit --since 24h
  lobster audit --verdict deny --program curl
  lobster audit --actor agent-7 --jsonl > audit.jsonl
  lobster audit verify                     walks the hash chain of every run

LOBSTER_ACTOR and LOBSTER_MESSAGE_ID say on whose behalf a run is started or resumed.")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    /// Only this run.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only what was done on this actor's behalf, or approved by them.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Not before: 2026-05-01T12:00:00Z, 2026-05-01, or how long ago (90m, 7d).
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<i64>,
    /// Before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<i64>,
    /// Only decisions of this verdict.
    #[arg(long, value_name = "VERDICT", value_parser = ["allow", "ask", "deny"])]
    verdict: Option<String>,
    /// Only entries of this kind: run, decision, approval, start, end, note.
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// Only decisions and starts of this program.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Exact times instead of how long ago, and nothing cut at the edge of a terminal.
    #[arg(long)]
    full: bool,
    /// An array of objects instead of a timeline.
    #[arg(long)]
    json: bool,
    /// One object a line, with the hash of the record behind it.
    #[arg(long, conflicts_with = "json")]
    jsonl: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Walks the hash chain of every run and names the first broken record of each; with an
    /// anchor outside the store, also what of it is missing.
    Verify {
        /// Only this run.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Holds the chains against this file of heads; else against `audit.anchor` of the policy in force.
        #[arg(long, value_name = "FILE")]
        anchor: Option<PathBuf>,
        /// A JSON object.
        #[arg(long)]
        json: bool,
    },
}

fn time(text: &str) -> Result<i64, String> {
    audit::parse_time(text, (system_clock())())
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let store = runtime.store()?;
    let mut out = Output::for_reader(args.json || args.jsonl || args.task.is_some());
    let find = |run: &Option<String>| run.as_deref().map(|run| which::run(&store, run)).transpose();
    if let Some(Task::Verify { run, anchor, json }) = &args.task {
        if let Some(named) = anchor.as_ref().filter(|named| !named.exists()) {
            return Err(CommandError::usage(format!("there is no anchor {}", named.display())));
        }
        let anchor = anchor.clone().or(runtime.audit_places().anchor);
        let report = audit::verify(&store, find(run)?, anchor.as_deref())?;
        return verify(&report, anchor.as_deref(), *json, &mut out);
    }
    let filter = AuditFilter {
        run: find(&args.run)?,
        actor: args.actor.clone(),
        since: args.since,
        until: args.until,
        verdict: args.verdict.clone(),
        kind: args.kind,
        program: args.program.clone(),
    };
    let hidden = &runtime.policy().file().audit.redact;
    let room = Room::of_stdout();
    let mut all = Vec::new();
    let mut seen = 0_usize;
    audit::read(&store, &filter, hidden, |entry| -> Result<(), Stopped> {
        seen += 1;
        if args.json {
            all.push(entry);
        } else if args.jsonl {
            writeln!(out, "{}", json::compact(&entry))?;
        } else {
            let text = one_line(&line(&entry, args.full));
            let text = match room.columns.filter(|_| !args.full) {
                Some(columns) => cut(&text, columns.saturating_sub(1)).into_owned(),
                None => text,
            };
            writeln!(out, "{}", room.paint(state_style(&entry.what), &text))?;
        }
        Ok(())
    })?;
    if args.json {
        writeln!(out, "{}", json::pretty(&all))?;
    } else if seen == 0 && !args.jsonl {
        writeln!(out, "nothing recorded")?;
    }
    out.flush()?;
    Ok(Exit::OK)
}

/// Either side of a listing may fail.
struct Stopped(CommandError);

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self(error.into())
    }
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self(error.into())
    }
}

impl From<Stopped> for CommandError {
    fn from(stopped: Stopped) -> Self {
        stopped.0
    }
}

/// One line: when, which run, for whom, what, where, the command, why.
fn line(entry: &AuditEntry, exact: bool) -> String {
    let when = match audit::parse_time(&entry.time, 0) {
        Ok(at) if !exact => units::ago(at),
        _ => entry.time.clone(),
    };
    let mut line = format!(
        "{when:<12}  {}  {:<10}  {:<8}  {:<9}",
        entry.run.short(),
        entry.actor.as_deref().unwrap_or("-"),
        entry.kind,
        entry.what,
    );
    if let Some(step) = &entry.step {
        line.push_str("  ");
        line.push_str(step);
    }
    for (open, text, close) in [("  ", &entry.command, ""), ("  (", &entry.reason, ")")] {
        let Some(text) = text else { continue };
        let shown: Vec<&str> = text.split_whitespace().collect();
        line.push_str(open);
        line.push_str(&clip(&shown.join(" "), SHOWN));
        line.push_str(close);
    }
    if let Some(message) = &entry.message {
        line.push_str(&format!("  [{message}]"));
    }
    line
}

/// A timeline's lines are read, not parsed; `--jsonl` has everything.
const SHOWN: usize = 160;

fn verify(
    report: &audit::ChainReport,
    anchor: Option<&Path>,
    as_json: bool,
    out: &mut impl Write,
) -> CommandResult {
    if as_json {
        writeln!(out, "{}", json::pretty(report))?;
    } else {
        for broken in &report.broken {
            writeln!(out, "run {}, record {}: {}", broken.run, broken.seq, one_line(&broken.why))?;
        }
        let verdict = match report.broken.len() {
            0 => "every chain holds".to_owned(),
            1 => "1 chain is broken".to_owned(),
            many => format!("{many} chains are broken"),
        };
        let (runs, records) = (units::counted(report.runs, "run"), units::counted(report.records, "record"));
        writeln!(out, "{runs}, {records}: {verdict}")?;
        if let Some(anchor) = anchor {
            let are = if report.anchored == 1 { "is" } else { "are" };
            let anchored = units::counted(report.anchored, "run");
            writeln!(out, "{anchored} {are} anchored in {}", anchor.display())?;
        }
    }
    out.flush()?;
    Ok(if report.broken.is_empty() { Exit::OK } else { Exit::FAILED })
}
