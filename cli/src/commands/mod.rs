//! One file per command.
//!
//! The incumbent's commands parse their arguments like the incumbent, which no argument parser does;
//! for the other commands the structs here are the grammar, and their comments are the help.

pub(crate) mod add;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod begin;
pub(crate) mod bundle;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod console;
pub(crate) mod cost;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod event;
pub(crate) mod fork;
pub(crate) mod graph;
pub(crate) mod help;
pub(crate) mod init;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod policy;
#[cfg(test)]
mod printed;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod run;
mod run_hints;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod shim;
pub(crate) mod show;
pub(crate) mod skill;
pub(crate) mod step;
pub(crate) mod store;
pub(crate) mod undo;
pub(crate) mod version;
pub(crate) mod why;
pub(crate) mod worker;

use std::ffi::OsString;
use std::path::Path;

use clap::{Parser, Subcommand};
use lobster_runtime::stage::Mode;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::render::harmless;
use crate::render::print_to_stderr;
use crate::reply::ResultPrinter;
use crate::{logging, own_settings, prepare, signals, stdout};

/// Runs workflows of steps as one deterministic, recorded operation.
#[derive(Debug, Parser)]
#[command(name = "lobster", disable_help_subcommand = true, disable_version_flag = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    log: logging::Options,
    /// Prints without a pager (`LOBSTER_PAGER=cat`).
    #[arg(long, global = true)]
    no_pager: bool,
}

/// All subcommands; `lobster` also accepts a pipeline or a workflow file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::Args),
    Run(run::Args),
    Resume(resume::Args),
    Check(check::Args),
    Graph(graph::Args),
    Runs(runs::Args),
    Show(show::Args),
    Logs(logs::Args),
    Changes(changes::Args),
    Undo(undo::Args),
    #[command(alias = "gates")]
    Approvals(approvals::Args),
    Schedule(schedule::Args),
    Event(event::Args),
    Serve(serve::Args),
    Console(console::Args),
    Replay(replay::Args),
    Fork(fork::Args),
    Why(why::Args),
    Diff(diff::Args),
    Cost(cost::Args),
    Models(models::Args),
    Bundle(bundle::Args),
    Store(store::Args),
    Policy(policy::Args),
    Audit(audit::Args),
    Secrets(secrets::Args),
    Step(step::Args),
    Add(add::Args),
    Mcp(mcp::Args),
    Worker(worker::Args),
    #[command(hide = true)]
    Begin(begin::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Complete(complete::Args),
    #[command(hide = true)]
    Man(man::Args),
    Skill(skill::Args),
    /// Prints the version.
    Version,
    /// Explains a command, a pipeline command or an error code.
    Help {
        /// A command, a pipeline command or an error code: `runs`, `approvals show`, `exec`, `E0302`.
        topic: Vec<String>,
    },
}

/// Runs the command that the words name.
pub(crate) fn dispatch(name: &std::ffi::OsStr, words: Vec<OsString>) -> Exit {
    stdout::remember_terminal();
    let result = match decode_words(&words) {
        Ok(words) => match own_settings::check(&words) {
            Ok(()) => run_named(name, &words),
            Err(error) => run::report_refusal(&words, error.into()),
        },
        Err(error) => run::report_refusal(&show_words(&words), error),
    };
    let mut exit = result.unwrap_or_else(CommandError::report);
    if let Some(database) = lobster_runtime::store::damage_met() {
        print_to_stderr(&format!(
            "Warning: {} is damaged, so results may be missing. `lobster store verify` lists the damage, \
             `lobster store salvage DIR` copies the undamaged parts to a new store.",
            harmless(&database.display().to_string())
        ));
        if exit == Exit::OK {
            exit = Exit::FAILED;
        }
    }
    if let Some(error) = stdout::take_failure()
        && exit == Exit::OK
    {
        print_to_stderr(&format!("Error: the output could not be written: {error}"));
        exit = Exit::FAILED;
    }
    signals::first_received().map_or(exit, Exit::Signal)
}

/// Reports that the system gives lobster no thread, in the form that fits the words.
pub(crate) fn refuse_start(words: impl Iterator<Item = OsString>, error: &std::io::Error) -> Exit {
    stdout::remember_terminal();
    let message = format!(
        "lobster cannot start ({error}): it needs a thread with 256 MiB of address space (`ulimit -u`, `ulimit -v`)"
    );
    run::report_refusal(&show_words(&words.collect::<Vec<_>>()), CommandError::failed(message))
        .unwrap_or_else(CommandError::report)
}

fn show_words(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Runs the command that this program name and these words select.
fn run_named(name: &std::ffi::OsStr, words: &[String]) -> CommandResult {
    match Path::new(name).file_name().and_then(|name| name.to_str()) {
        Some(shim @ ("openclaw.invoke" | "clawd.invoke")) => {
            logging::start(&logging::Options::default(), None).and_then(|()| shim::run(shim, words))
        }
        _ => run_command(words),
    }
}

/// The words as text. A word that is not UTF-8 is refused: a converted word would be a different one.
fn decode_words(words: &[OsString]) -> Result<Vec<String>, CommandError> {
    let text = |(at, word): (usize, &OsString)| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            CommandError::usage(format!(
                "argument {} is not UTF-8: {word:?}; if it names a file, rename the file",
                at + 1
            ))
        })
    };
    words.iter().enumerate().map(text).collect()
}

fn run_command(words: &[String]) -> CommandResult {
    let (first, rest) = match words.split_first() {
        None => return help::print_overview(),
        Some((first, rest)) => (first.as_str(), rest),
    };
    if matches!(first, "help" | "-h" | "--help") && rest.iter().any(|word| word == "--no-pager") {
        crate::render::pager::turn_off();
    }
    let wants_help = words.iter().any(|word| word == "-h" || word == "--help");
    match first {
        "--describe" => describe::run(),
        "-h" | "--help" => help::print_overview(),
        "help" => help::print_topic(rest),
        "version" | "--version" | "-v" => Ok(version::print()),
        "run" => match rest {
            // `run exec ls -h` asks for the help of `ls`.
            [word] if word == "-h" || word == "--help" => help::of_command(first),
            _ if wants_help => help::print_overview(),
            rest => run::run(rest),
        },
        "resume" | "graph" if wants_help => help::of_command(first),
        "resume" => {
            prepare::work_without_directory();
            resume::run(rest)
        }
        "graph" => {
            let (log, rest) = logging::take_options(rest)?;
            logging::start(&log, None)?;
            graph::run(&rest)
        }
        _ if help::is_command(first) => own_command(words),
        // `exec ls -h` is an option of `ls`; a help flag elsewhere is lobster's.
        _ if wants_help && !lobster_runtime::stages::builtin().iter().any(|spec| spec.name == first) => {
            help::print_overview()
        }
        _ => run::run(words),
    }
}

/// The commands that the incumbent does not have.
fn own_command(words: &[String]) -> CommandResult {
    let cli = match Cli::try_parse_from(std::iter::once("lobster").chain(words.iter().map(String::as_str))) {
        Ok(cli) => cli,
        Err(error)
            if error.use_stderr()
                && run::answers_gates(words)
                && ResultPrinter::for_reader().mode == Mode::Tool =>
        {
            return run::report_refusal(words, CommandError::usage(error.to_string().trim_end()));
        }
        Err(error) => {
            let exit = if error.use_stderr() { Exit::USAGE } else { Exit::OK };
            error.print()?;
            if exit != Exit::OK && words.first().is_some_and(|first| first == "doctor") {
                let error = error.to_string();
                let problem = CommandError::usage(error.lines().next().unwrap_or_default());
                return run::report_refusal(words, problem).or(Ok(exit));
            }
            return Ok(exit);
        }
    };
    // A server has no terminal to report to, so its log gets warnings.
    logging::start(&cli.log, matches!(cli.command, Command::Serve(_)).then_some("warn"))?;
    if cli.no_pager {
        crate::render::pager::turn_off();
    }
    let shows_record = cli.command.shows_record();
    let needs_store_only = matches!(
        cli.command,
        Command::Approvals(_) | Command::Store(_) | Command::Schedule(_) | Command::Event(_)
    );
    if shows_record || needs_store_only {
        prepare::work_without_directory();
    }
    let result = match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Changes(args) => changes::run(&args),
        Command::Undo(args) => undo::run(&args),
        Command::Approvals(args) => approvals::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Secrets(args) => secrets::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Step(args) => step::run(&args),
        Command::Add(args) => add::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Begin(args) => begin::run(&args),
        Command::Schedule(args) => schedule::run(&args),
        Command::Event(args) => event::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Complete(args) => complete::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Skill(args) => skill::run(&args),
        Command::Run(_)
        | Command::Resume(_)
        | Command::Graph(_)
        | Command::Version
        | Command::Help { .. } => Err(CommandError::failed("this command takes its words unparsed")),
    };
    if shows_record { failed_if_unreadable(result) } else { result }
}

impl Command {
    /// True if the command shows parts of the record, and so must report unreadable ones.
    fn shows_record(&self) -> bool {
        matches!(
            self,
            Self::Runs(_)
                | Self::Show(_)
                | Self::Logs(_)
                | Self::Changes(_)
                | Self::Replay(_)
                | Self::Bundle(_)
                | Self::Why(_)
                | Self::Diff(_)
                | Self::Cost(_)
                | Self::Audit(_)
        )
    }
}

/// Reports the unreadable blobs of the record: without them, the output is incomplete.
fn failed_if_unreadable(result: CommandResult) -> CommandResult {
    /// Most blobs that are named; `store verify` lists the rest.
    const NAMED: usize = 3;
    let mut unreadable = lobster_runtime::store::unreadable_blobs();
    if let Err(error) = &result {
        unreadable.retain(|why| !error.message.contains(why));
    }
    let failed = |exit| if exit == Exit::OK { Exit::FAILED } else { exit };
    if unreadable.is_empty() {
        return if prepare::has_warned_of_damage() { result.map(failed) } else { result };
    }
    let exit = result.unwrap_or_else(CommandError::report);
    for why in unreadable.iter().take(NAMED) {
        print_to_stderr(&format!("Warning: the record is damaged: {}", harmless(why)));
    }
    if unreadable.len() > NAMED {
        print_to_stderr(&format!("Warning: {} more blobs cannot be read", unreadable.len() - NAMED));
    }
    print_to_stderr("  `lobster store verify` lists the damage and the steps that it concerns");
    Ok(failed(exit))
}
