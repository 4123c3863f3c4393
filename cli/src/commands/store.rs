//! `lobster store`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use lobster_runtime::component::{CodeLimits, CodeUse, MAX_CODE};
use lobster_runtime::json;
use lobster_runtime::quantity::{Bytes, Span};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{CopyReport, GcPolicy, GcReport, Problem, Store, damage_met};
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit, print_json};
use crate::prepare;
use crate::render::{one_line, print_to_stderr, units};
use crate::retention::Retention;
use crate::stdout::stdout;

/// Maintains the store of recorded runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster store stats
  lobster store gc --older-than 30d --dry-run
  lobster store gc --keep 500 --max-size 2G
  lobster store backup /backup/lobster-today
  lobster store pin 3f9a1c2b")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Removes old runs by age, number or size, and all data that no run refers to.
    ///
    /// Without a limit, no run is removed. Pinned runs and runs that a process is executing are never removed,
    /// other unfinished runs only with `--abandoned`.
    Gc {
        /// Removes runs that ended longer ago: 36h, 30d, 8w.
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        older_than: Option<i64>,
        /// Keeps only the newest N finished runs.
        #[arg(long, value_name = "N")]
        keep: Option<u64>,
        /// Removes the oldest runs until the rest takes at most this much: 500M, 2G.
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        max_size: Option<u64>,
        /// Removes unfinished runs that no process is executing, after this long without activity.
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        abandoned: Option<i64>,
        /// Removes compiled components, least recently used first, until the rest takes at most this much;
        /// they are compiled again when needed.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value_t = MAX_CODE, hide_default_value = true)]
        max_code: u64,
        /// Applies `LOBSTER_RETENTION` (365d,10GiB by default), as lobster does once a day.
        #[arg(long, conflicts_with_all = ["older_than", "keep", "max_size"])]
        retention: bool,
        /// Prints what would be removed, without removing it.
        #[arg(long)]
        dry_run: bool,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Reads the whole store and lists what is damaged or missing. Changes nothing.
    Verify {
        /// Continues with a database that was rolled back, or an older copy, as a separate store. Missing records
        /// stay missing, and approvals can be given a second time.
        #[arg(long)]
        accept_rollback: bool,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Copies the whole store, even while other processes use it.
    ///
    /// To restore the copy, move it to where the lost state directory was, or name it in LOBSTER_STATE_DIR.
    /// If anything was recorded later, use `store verify --accept-rollback`.
    Backup {
        /// The directory to create.
        dir: PathBuf,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Copies the undamaged parts of a damaged store to a new one, and lists the rest.
    Salvage {
        /// The state directory to create.
        dir: PathBuf,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Prints the number of runs and the sizes of the store's parts.
    Stats {
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Protects a run from being removed.
    Pin {
        /// The run; at a terminal, lobster lists the latest.
        run: Option<String>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Lets a pinned run be removed again.
    Unpin {
        /// The run; at a terminal, lobster lists the latest.
        run: Option<String>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Tool)?;
    let store = runtime.store()?;
    match &args.task {
        Task::Gc { older_than, keep, max_size, abandoned, max_code, retention, dry_run, json } => {
            let kept = match retention {
                true => Retention::from_env().map_err(CommandError::usage)?.by_a_doubtful_clock(),
                false => Retention { max_age_ms: *older_than, max_bytes: *max_size },
            };
            let policy = GcPolicy {
                max_age_ms: kept.max_age_ms,
                max_runs: *keep,
                max_bytes: kept.max_bytes,
                abandoned_ms: *abandoned,
                dry_run: *dry_run,
                ..GcPolicy::default()
            };
            let code = CodeLimits {
                max_bytes: *max_code,
                max_age: kept.max_age_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis),
                dry_run: *dry_run,
            };
            if !*dry_run {
                // Finishes interrupted commits first: removing a run must not leave one half done.
                runtime.finish_commits(&store);
            }
            let report = store.collect_garbage(&policy)?;
            print_gc(&report, runtime.components().prune_code(&code), *dry_run, *json)
        }
        Task::Verify { accept_rollback, json } => {
            if *accept_rollback {
                print_to_stderr(match store.accept_rollback()? {
                    true => "accepted: this store continues as a separate store",
                    false => "nothing to accept: the database has everything that was recorded",
                });
            }
            verify_store(&store, *json)
        }
        Task::Backup { dir, json } => print_copy(&store.backup(dir)?, "copied", dir, *json),
        Task::Salvage { dir, json } => print_copy(&store.salvage(dir)?, "salvaged", dir, *json),
        Task::Stats { json } => print_stats(&store, runtime.components().code_use(), *json),
        Task::Pin { run, json } => set_pinned(&store, run.as_deref(), true, *json),
        Task::Unpin { run, json } => set_pinned(&store, run.as_deref(), false, *json),
    }
}

/// The report as an object, with the two figures of the code cache.
fn with_code(report: &impl Serialize, code: CodeUse) -> Result<Value, CommandError> {
    let mut object = serde_json::to_value(report).map_err(CommandError::failed)?;
    object["code"] = code.programs.into();
    object["codeBytes"] = code.bytes.into();
    Ok(object)
}

fn print_gc(report: &GcReport, code: CodeUse, dry_run: bool, as_json: bool) -> CommandResult {
    let mut out = stdout();
    if as_json {
        return print_json(&mut out, &with_code(report, code)?);
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    writeln!(
        out,
        "{verb} {} of {}, {}, {} ({}) and {} ({})",
        units::format_count(report.runs),
        units::count_noun(report.runs + report.kept_runs, "run"),
        units::count_noun(report.actions, "cached outcome"),
        units::count_noun(report.blobs, "blob"),
        units::format_bytes(report.bytes),
        units::count_noun(code.programs, "compiled component"),
        units::format_bytes(code.bytes),
    )?;
    Ok(Exit::OK)
}

fn verify_store(store: &Store, as_json: bool) -> CommandResult {
    let report = store.verify()?;
    let problems = report.problems.len() as u64 + report.unnamed_problems;
    let exit = if problems == 0 { Exit::OK } else { Exit::FAILED };
    let mut out = stdout();
    if as_json {
        writeln!(out, "{}", json::pretty(&report))?;
        return Ok(exit);
    }
    let is_damage = |problem: &Problem| !matches!(problem, Problem::RolledBack { .. } | Problem::OtherStore);
    if report.problems.iter().any(is_damage) && damage_met().is_none() {
        print_to_stderr(
            "Damaged parts are not used, and the rest is. `lobster store salvage DIR` copies the rest to a new store.",
        );
    }
    for problem in &report.problems {
        writeln!(out, "{}", one_line(&problem.to_string()))?;
    }
    for part in store.part_uses().iter().filter(|part| !part.is_known) {
        writeln!(out, "{} is not lobster's", one_line(&part.path))?;
    }
    writeln!(
        out,
        "{}, {}, {} ({}): {}",
        units::count_noun(report.runs, "run"),
        units::count_noun(report.records, "record"),
        units::count_noun(report.blobs, "blob"),
        units::format_bytes(report.bytes),
        if problems == 0 { "all is well".to_owned() } else { units::count_noun(problems, "problem") },
    )?;
    Ok(exit)
}

/// Prints the contents of a copy of the store, and what is missing from it.
fn print_copy(report: &CopyReport, verb: &str, dir: &Path, as_json: bool) -> CommandResult {
    let exit = if report.problems.is_empty() { Exit::OK } else { Exit::FAILED };
    let mut out = stdout();
    if as_json {
        writeln!(out, "{}", json::pretty(report))?;
        return Ok(exit);
    }
    for problem in &report.problems {
        writeln!(out, "{}", one_line(&problem.to_string()))?;
    }
    writeln!(
        out,
        "{verb} {}, {}, {} ({}) to {}{}",
        units::count_noun(report.runs, "run"),
        units::count_noun(report.records, "record"),
        units::count_noun(report.blobs, "blob"),
        units::format_bytes(report.bytes),
        dir.display(),
        match report.problems.len() as u64 {
            0 => String::new(),
            problems => format!("; {}", units::count_noun(problems, "problem")),
        },
    )?;
    Ok(exit)
}

/// Parts of the state directory that exist while steps run, and stay when lobster is killed.
const GROWING: [&str; 6] =
    ["store/output/", "store/layers/", "store/homes/", "store/workers/", "store/tmp/", "approved-*/"];

fn print_stats(store: &Store, code: CodeUse, as_json: bool) -> CommandResult {
    let stats = store.stats()?;
    let mut out = stdout();
    if as_json {
        return print_json(&mut out, &with_code(&stats, code)?);
    }
    writeln!(out, "{}", store.dir().display())?;
    let (runs, records) = (units::format_count(stats.runs), units::count_noun(stats.records, "record"));
    writeln!(out, "  runs      {runs} ({records})")?;
    writeln!(out, "  waiting   {}", units::count_noun(stats.open_gates, "question"))?;
    writeln!(out, "  cache     {}", units::count_noun(stats.cached_outcomes, "outcome"))?;
    writeln!(
        out,
        "  blobs     {} ({})",
        units::format_count(stats.blobs),
        units::format_bytes(stats.blob_bytes)
    )?;
    let compiled = units::count_noun(code.programs, "component");
    writeln!(out, "  compiled  {compiled} ({})", units::format_bytes(code.bytes))?;
    for part in stats.parts.iter().filter(|part| GROWING.contains(&part.path.as_str())) {
        let name = part.path.trim_start_matches("store/").trim_end_matches("/");
        writeln!(
            out,
            "  {name:<9} {} ({})",
            units::count_noun(part.files, "file"),
            units::format_bytes(part.bytes)
        )?;
    }
    for part in stats.parts.iter().filter(|part| !part.is_known) {
        writeln!(out, "  unknown   {} ({})", one_line(&part.path), units::format_bytes(part.bytes))?;
    }
    writeln!(out, "  on disk   {}", units::format_bytes(stats.bytes_on_disk()))?;
    let left = store.left_directories().len() as u64;
    if left > 0 {
        writeln!(
            out,
            "{} of killed processes: the next run removes them, or `lobster store gc`",
            units::count_noun(left, "directory")
        )?;
    }
    Ok(Exit::OK)
}

fn set_pinned(store: &Store, run: Option<&str>, pinned: bool, as_json: bool) -> CommandResult {
    let verb = if pinned { "store pin" } else { "store unpin" };
    let id = crate::which::run_or_ask(store, run, verb)?;
    store.pin_run(id, pinned)?;
    let mut out = stdout();
    if as_json {
        writeln!(out, "{}", json::pretty(&json!({ "run": id, "pinned": pinned })))?;
    } else {
        writeln!(out, "run {} is {}", id.short_id(), if pinned { "pinned" } else { "not pinned" })?;
    }
    Ok(Exit::OK)
}

/// Parses `90s`, `36h`, `30d`, `8w` as milliseconds.
fn parse_duration(text: &str) -> Result<i64, String> {
    let span: Span = text.parse()?;
    i64::try_from(span.milliseconds()).map_err(|_| format!("{text:?} is too long"))
}

/// Parses `4096`, `500M`, `2GiB` as bytes.
fn parse_size(text: &str) -> Result<u64, String> {
    Bytes::parse_or_bytes(text).map(|bytes| bytes.0)
}
