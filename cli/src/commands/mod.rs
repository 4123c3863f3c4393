//! One file per command.
//!
//! The incumbent's commands take their words the way it takes them, which no
//! argument parser does; for the rest the structs here are the grammar, and
//! their comments are the help.

pub(crate) mod audit;
pub(crate) mod bundle;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod fork;
pub(crate) mod gates;
pub(crate) mod graph;
pub(crate) mod help;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod run;
mod run_hints;
pub(crate) mod runs;
pub(crate) mod shim;
pub(crate) mod show;
pub(crate) mod skill;
pub(crate) mod step;
pub(crate) mod store;
pub(crate) mod version;
pub(crate) mod why;
pub(crate) mod worker;

use std::ffi::OsString;
use std::path::Path;

use clap::{Parser, Subcommand};
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::engine::{NOTIFY_TIMEOUT, NOTIFY_VARIABLE, Notify};
use lobster_runtime::runtime::{PolicySources, Runtime, Settings};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{BrokenChain, Record, RunId, Store, StoreError};

use crate::exit::{CommandError, Exit};
use crate::render::harmless;
use crate::render::progress::{self, Spinner};
use crate::{logging, signals, terminal};

/// Runs workflows of steps as one deterministic, recorded operation.
#[derive(Debug, Parser)]
#[command(name = "lobster", disable_help_subcommand = true, disable_version_flag = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    log: logging::Options,
}

/// Everything that can follow `lobster`, besides a pipeline or a workflow file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Resume(resume::Args),
    Check(check::Args),
    Graph(graph::Args),
    Runs(runs::Args),
    Show(show::Args),
    Logs(logs::Args),
    Gates(gates::Args),
    Replay(replay::Args),
    Fork(fork::Args),
    Why(why::Args),
    Diff(diff::Args),
    Bundle(bundle::Args),
    Store(store::Args),
    Policy(policy::Args),
    Audit(audit::Args),
    Step(step::Args),
    Mcp(mcp::Args),
    Worker(worker::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Skill(skill::Args),
    /// Prints the version.
    Version,
    /// Explains a command, a pipeline command or an error code.
    Help {
        /// `exec`, `runs`, `E0123` …
        topic: Option<String>,
    },
}

/// Runs the command that the words name.
pub(crate) fn dispatch(name: &std::ffi::OsStr, words: Vec<OsString>) -> Exit {
    let result = match texts(&words) {
        Ok(words) => named(name, &words),
        Err(error) => {
            let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            run::refuse(&shown, error)
        }
    };
    let mut exit = result.unwrap_or_else(CommandError::report);
    if let Some(database) = lobster_runtime::store::damage_met() {
        anstream::eprintln!(
            "Warning: {} is damaged, so this may not be all. `lobster store verify` names the damage, `lobster store \
             salvage DIR` writes a new store with all that is whole.",
            harmless(&database.display().to_string())
        );
        if exit == Exit::OK {
            exit = Exit::FAILED;
        }
    }
    signals::received().map_or(exit, Exit::Signal)
}

/// Runs what a program of this name does with these words.
fn named(name: &std::ffi::OsStr, words: &[String]) -> crate::exit::CommandResult {
    match Path::new(name).file_name().and_then(|name| name.to_str()) {
        Some(shim @ ("openclaw.invoke" | "clawd.invoke")) => {
            logging::start(&logging::Options::default()).and_then(|()| shim::run(shim, words))
        }
        _ => command(words),
    }
}

/// The words as text. A word that is none would be run as another one.
fn texts(words: &[OsString]) -> Result<Vec<String>, CommandError> {
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

fn command(words: &[String]) -> crate::exit::CommandResult {
    let (first, rest) = match words.split_first() {
        None => return help::general(),
        Some((first, rest)) => (first.as_str(), rest),
    };
    let wants_help = words.iter().any(|word| word == "-h" || word == "--help");
    match first {
        "--describe" => describe::run(),
        "-h" | "--help" => help::general(),
        "help" => help::topic(rest.first().map(String::as_str)),
        "version" | "--version" | "-v" => Ok(version::print()),
        "run" if wants_help => help::general(),
        "run" => run::run(rest),
        "resume" | "graph" | "doctor" if wants_help => help::of_command(first),
        "resume" => resume::run(rest),
        "graph" | "doctor" => {
            let (log, rest) = logging::take(rest);
            logging::start(&log)?;
            if first == "graph" { graph::run(&rest) } else { doctor::run(&rest) }
        }
        _ if is_own_command(first) => own_command(words),
        // `exec ls -h` is for `ls`; a help flag elsewhere is for us.
        _ if wants_help && !lobster_runtime::stages::builtin().iter().any(|spec| spec.name == first) => {
            help::general()
        }
        _ => run::run(words),
    }
}

fn is_own_command(name: &str) -> bool {
    use clap::CommandFactory;
    Cli::command().get_subcommands().any(|command| command.get_name() == name)
}

/// The commands that the incumbent does not have.
fn own_command(words: &[String]) -> crate::exit::CommandResult {
    let cli = match Cli::try_parse_from(std::iter::once("lobster").chain(words.iter().map(String::as_str))) {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::USAGE } else { Exit::OK };
            error.print()?;
            return Ok(exit);
        }
    };
    logging::start(&cli.log)?;
    match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Gates(args) => gates::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Step(args) => step::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Skill(args) => skill::run(&args),
        Command::Run(_)
        | Command::Resume(_)
        | Command::Graph(_)
        | Command::Doctor(_)
        | Command::Version
        | Command::Help { .. } => Err(CommandError::failed("this command takes its words unparsed")),
    }
}

/// A runtime for this process, cancelled by its signals.
pub(crate) fn runtime(mode: Mode) -> Result<Runtime, CommandError> {
    runtime_under(mode, &PolicySources::default())
}

/// The same, going on with a recorded run: under the policy that it began with,
/// unless another one was put in force since.
pub(crate) fn runtime_of_run(
    mode: Mode,
    notify: Option<&str>,
    find: impl FnOnce(&Runtime) -> Option<RunId>,
) -> Result<Runtime, CommandError> {
    let mut runtime = runtime_telling(mode, &PolicySources::default(), notify)?;
    let Some(run) = find(&runtime) else { return Ok(runtime) };
    if let Some(place) = runtime.recorded_place(run) {
        runtime = runtime_telling(mode, &PolicySources { place: Some(&place), run: None }, notify)?;
    }
    // A run goes on under the policy that it began with. What was put in force since, or changed, is
    // not passed over: then what was approved is not what would run, and the run says so.
    if (runtime.policy().is_open() || runtime.began_under_policies(run))
        && let Some(policy) = lobster_runtime::replay::policy_of(&runtime, run)?
    {
        runtime = runtime.with_policy(policy);
    }
    Ok(runtime)
}

/// The same, under the policies of a project and of a run, besides those of the environment.
pub(crate) fn runtime_under(mode: Mode, policies: &PolicySources<'_>) -> Result<Runtime, CommandError> {
    runtime_telling(mode, policies, None)
}

/// The same, telling a command of new questions (else what `LOBSTER_NOTIFY` names).
pub(crate) fn runtime_telling(
    mode: Mode,
    policies: &PolicySources<'_>,
    notify: Option<&str>,
) -> Result<Runtime, CommandError> {
    let mut settings = settings_under(mode, policies)?;
    if notify.is_some() {
        let governed = settings.policy_files.len() > usize::from(policies.run.is_some());
        settings.notify = operators_command(notify, governed)?;
    }
    Ok(Runtime::new(settings)?)
}

/// What can be read of a run's journal; what is wrong with it is said on stderr.
pub(crate) fn found_journal(
    store: &Store,
    run: RunId,
) -> Result<(Vec<Record>, Option<BrokenChain>), StoreError> {
    let (records, broken) = store.found_events(run)?;
    broken.iter().for_each(warn_of_damage);
    Ok((records, broken))
}

/// Says that what is shown may not be what happened.
pub(crate) fn warn_of_damage(broken: &BrokenChain) {
    anstream::eprintln!("warning: {broken}; what is shown may not be what happened");
}

/// What a runtime is made of.
pub(crate) fn settings_under(mode: Mode, policies: &PolicySources<'_>) -> Result<Settings, CommandError> {
    let cancel = CancelToken::new();
    signals::watch(&cancel)?;
    let mut settings = Settings::from_process()
        .map_err(|error| CommandError::failed(format!("the working directory cannot be used: {error}")))?;
    settings.mode = mode;
    for warning in settings.use_policies(policies)? {
        anstream::eprintln!("{}", harmless(&warning));
    }
    settings.use_secrets()?;
    settings.notify = operators_command(None, false)?;
    settings.cancel = cancel;
    settings.notes = Box::new(say);
    if mode == Mode::Human {
        settings.screen = Some(Box::new(|text| {
            use std::io::Write;
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        }));
        let seen = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let spinner = seen.then(|| std::sync::Arc::new(Spinner::new()));
        if let Some(spinner) = &spinner {
            settings.progress = Some(Box::new(progress::Shared(spinner.clone())));
        }
        if terminal::is_interactive() {
            settings.prompter = Some(Box::new(terminal::Terminal::beside(spinner)));
        }
    }
    Ok(settings)
}

/// Says a line on stderr. A terminal that was closed meanwhile is nobody's fault.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(anstream::stderr().lock(), "{}", harmless(line));
}

/// The command that is told of new questions. It runs outside the policy, so
/// where the operator has set one, only the operator names it.
fn operators_command(flag: Option<&str>, governed: bool) -> Result<Option<Notify>, CommandError> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    if flag.is_some() && governed {
        return Err(CommandError::usage(format!(
            "--notify runs a command that no policy is asked about, and there is a policy: \
             the operator names the command with {NOTIFY_VARIABLE}"
        )));
    }
    let Some(command) = flag.map(str::to_owned).or_else(|| set(NOTIFY_VARIABLE)) else { return Ok(None) };
    if command.trim().is_empty() {
        return Err(CommandError::usage("--notify needs a command, as in --notify 'notify-send lobster'"));
    }
    let timeout = match set("LOBSTER_NOTIFY_TIMEOUT_MS") {
        None => NOTIFY_TIMEOUT,
        Some(text) => match text.trim().parse() {
            Ok(ms) if ms > 0 => std::time::Duration::from_millis(ms),
            _ => {
                return Err(CommandError::usage(format!(
                    "LOBSTER_NOTIFY_TIMEOUT_MS must be a whole number above 0, not {text:?}"
                )));
            }
        },
    };
    Ok(Some(Notify { command, timeout }))
}
