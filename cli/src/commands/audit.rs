//! `lobster audit`

use std::io::Write;
use std::path::{Path, PathBuf};

use lobster_runtime::audit::{self, AuditEntry, AuditFilter, AuditKind};
use lobster_runtime::json;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::system_clock;
use serde_json::Value;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::table::{Cell, Room, Table};
use crate::render::{clip, one_line, units};
use crate::which;

/// Lists who proposed, decided, approved and ran what, from the journals.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster audit --since 24h
  lobster audit --verdict deny --program curl
  lobster audit --actor agent-7 --jsonl > audit.jsonl
  lobster audit verify

LOBSTER_ACTOR and LOBSTER_MESSAGE_ID say on whose behalf a run is started or resumed.")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    /// Only this run.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only entries of this actor: run on their behalf, or approved by them.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only entries since this time: 2026-05-01, 2026-05-01T12:00:00Z, or how long ago (90m, 7d).
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<i64>,
    /// Only entries before this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<i64>,
    /// Only decisions with this verdict.
    #[arg(long, value_name = "VERDICT", value_parser = ["allow", "ask", "deny"])]
    verdict: Option<String>,
    /// Only entries of this kind: run, decision, approval, start, end, note.
    #[arg(long, value_name = "KIND")]
    kind: Option<AuditKind>,
    /// Only decisions and starts of this program.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Prints exact times, and does not shorten lines at the edge of the terminal.
    #[arg(long)]
    full: bool,
    /// Prints a JSON array.
    #[arg(long)]
    json: bool,
    /// Prints one JSON object a line, with the hash of the record that it is from.
    #[arg(long, conflicts_with = "json")]
    jsonl: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Verifies the hash chain of every run and names the first broken record of each. With an anchor outside
    /// the store, it also names missing records.
    Verify {
        /// Only this run.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Compares the chains with this file of heads. The default is `audit.anchor` of the policy in force.
        #[arg(long, value_name = "FILE")]
        anchor: Option<PathBuf>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
}

fn parse_time(text: &str) -> Result<i64, String> {
    audit::parse_time(text, (system_clock())())
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let store = runtime.store()?;
    let mut out = PagedOutput::for_reader(args.json || args.jsonl || args.task.is_some());
    let find = |run: &Option<String>| run.as_deref().map(|run| which::run(&store, run)).transpose();
    if let Some(Task::Verify { run, anchor, json }) = &args.task {
        if let Some(named) = anchor.as_ref().filter(|named| !named.exists()) {
            return Err(CommandError::usage(format!("there is no anchor {}", named.display())));
        }
        let anchor = anchor.clone().or(runtime.audit_places().anchor);
        let report = audit::verify_chains(&store, find(run)?, anchor.as_deref())?;
        return report_chain(&report, anchor.as_deref(), *json, &mut out);
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
    let mut all = Vec::new();
    let mut timeline = Timeline { rows: Vec::new(), exact: args.full, any: false };
    let read = audit::read_entries(&store, &filter, hidden, |entry| -> Result<(), CommandError> {
        if args.json {
            all.push(entry);
        } else if args.jsonl {
            writeln!(out, "{}", json::compact(&entry))?;
        } else {
            timeline.push(&entry, &mut out)?;
        }
        Ok(())
    });
    // Entries read before a failure are still shown.
    if args.json {
        writeln!(out, "{}", json::pretty(&all))?;
    } else if !args.jsonl {
        timeline.print_rows(&mut out)?;
        if !timeline.any && read.is_ok() {
            writeln!(out, "nothing recorded")?;
        }
    }
    out.flush()?;
    read?.iter().for_each(prepare::warn_of_damage);
    Ok(Exit::OK)
}

/// Entries as a table, printed in blocks: a store may hold millions.
struct Timeline {
    rows: Vec<Vec<Cell>>,
    exact: bool,
    any: bool,
}

impl Timeline {
    fn push(&mut self, entry: &AuditEntry, out: &mut impl Write) -> std::io::Result<()> {
        /// Rows of a block, whose columns are aligned together.
        const TOGETHER: usize = 500;
        self.rows.push(entry_row(entry, self.exact));
        if self.rows.len() == TOGETHER { self.print_rows(out) } else { Ok(()) }
    }

    fn print_rows(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let head = ["WHEN", "RUN", "ACTOR", "KIND", "WHAT", "STEP", "DETAIL"];
        let mut table = Table::new(&head).optional_columns(&["KIND", "WHEN"]);
        std::mem::take(&mut self.rows).into_iter().for_each(|row| table.push(row));
        let room = Room::of_stdout();
        let lines = table.to_lines(if self.exact { Room { columns: None, ..room } } else { room });
        // Only the first block has a head.
        let above = usize::from(std::mem::replace(&mut self.any, true));
        lines.iter().skip(above).try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// One row: time, run, actor, kind, place, command and reason.
fn entry_row(entry: &AuditEntry, exact: bool) -> Vec<Cell> {
    let when = match audit::parse_time(&entry.time, 0) {
        Ok(at) if !exact => units::format_age(at),
        _ => entry.time.clone(),
    };
    let mut detail = String::new();
    for (open, text, close) in [("", &entry.command, ""), ("(", &entry.reason, ")")] {
        let Some(text) = text else { continue };
        let shown: Vec<&str> = text.split_whitespace().collect();
        detail.push_str(if detail.is_empty() { "" } else { "  " });
        detail.push_str(&format!("{open}{}{close}", clip(&shown.join(" "), SHOWN)));
    }
    if let Some(why) = &entry.unreadable {
        let code = entry.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
        detail
            .push_str(&format!("  [what was to run cannot be read: {code}{}]", clip(&one_line(why), SHOWN)));
    }
    if let Some(shell) = shell_of(&entry.author) {
        detail.push_str(&format!("  [{shell}]"));
    }
    if let Some(message) = &entry.message {
        detail.push_str(&format!("  [{message}]"));
    }
    vec![
        when.into(),
        entry.run.short_id().into(),
        entry.actor.clone().unwrap_or_default().into(),
        entry.kind.to_string().into(),
        Cell::state_word(entry.what.to_string()),
        entry.step.clone().unwrap_or_default().into(),
        detail.into(),
    ]
}

/// The shell in which the answer was given: its user, its terminal, and the processes above it.
fn shell_of(author: &Value) -> Option<String> {
    let uid = author["uid"].as_u64()?;
    let tty = author["tty"].as_str().unwrap_or("no terminal");
    let parents = author["parents"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let parents: Vec<String> = parents.map(one_line).collect();
    let agent = author["agent"].as_str().map(|mark| format!(", {mark}")).unwrap_or_default();
    Some(format!("uid {uid}, {tty}{agent}, below {}", parents.join(" < ")))
}

/// Longest text of a line, in characters; the table is for people, and `--jsonl` has everything.
const SHOWN: usize = 160;

fn report_chain(
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
            0 => "all chains are intact".to_owned(),
            1 => "1 chain is broken".to_owned(),
            many => format!("{many} chains are broken"),
        };
        let (runs, records) =
            (units::count_noun(report.runs, "run"), units::count_noun(report.records, "record"));
        writeln!(out, "{runs}, {records}: {verdict}")?;
        if let Some(anchor) = anchor {
            let are = if report.anchored == 1 { "is" } else { "are" };
            let anchored = units::count_noun(report.anchored, "run");
            writeln!(out, "{anchored} {are} anchored in {}", anchor.display())?;
        }
    }
    out.flush()?;
    Ok(if report.broken.is_empty() { Exit::OK } else { Exit::FAILED })
}
