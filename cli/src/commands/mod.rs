//! One file per command.
//!
//! The incumbent's commands take their words the way it takes them, which no
//! argument parser does; for the rest the structs here are the grammar, and
//! their comments are the help.

pub(crate) mod audit;
pub(crate) mod bundle;
pub(crate) mod check;
pub(crate) mod completions;
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
pub(crate) mod runs;
pub(crate) mod shim;
pub(crate) mod show;
pub(crate) mod step;
pub(crate) mod store;
pub(crate) mod version;
pub(crate) mod why;

use std::ffi::OsString;
use std::path::Path;

use clap::{Parser, Subcommand};
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::runtime::{PolicySources, Runtime, Settings};
use lobster_runtime::steps::stages::Mode;
use lobster_runtime::store::RunId;

use crate::exit::{CommandError, Exit};
use crate::{signals, terminal};

/// Runs workflows of steps as one deterministic, recorded operation.
#[derive(Debug, Parser)]
#[command(name = "lobster", disable_help_subcommand = true, disable_version_flag = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
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
    Doctor(doctor::Args),
    Completions(completions::Args),
    /// Prints the version.
    Version,
    /// Explains a command, a pipeline command or an error code.
    Help {
        /// `exec`, `runs`, `E0123` …
        topic: Option<String>,
    },
}

/// Logs to stderr if `LOBSTER_LOG` says what (`info`, `lobster_runtime=debug`),
/// as JSON lines if `LOBSTER_LOG_FORMAT` is `json`.
fn start_logging() {
    let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("LOBSTER_LOG") else { return };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // It can only be set once, and here is the one place.
    let _ = if std::env::var("LOBSTER_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().try_init()
    } else {
        builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
    };
}

/// Runs the command that the words name.
pub(crate) fn dispatch(name: &std::ffi::OsStr, words: Vec<OsString>) -> Exit {
    if std::env::var_os("LOBSTER_LOG").is_some() {
        start_logging();
    }
    let words: Vec<String> = words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let result = match Path::new(name).file_name().and_then(|name| name.to_str()) {
        Some(shim @ ("openclaw.invoke" | "clawd.invoke")) => shim::run(shim, &words),
        _ => command(&words),
    };
    let exit = result.unwrap_or_else(CommandError::report);
    signals::received().map_or(exit, Exit::Signal)
}

fn command(words: &[String]) -> crate::exit::CommandResult {
    let (first, rest) = match words.split_first() {
        None => return help::general(),
        Some((first, rest)) => (first.as_str(), rest),
    };
    let wants_help = words.iter().any(|word| word == "-h" || word == "--help");
    match first {
        "-h" | "--help" => help::general(),
        "help" => help::topic(rest.first().map(String::as_str)),
        "version" | "--version" | "-v" => Ok(version::print()),
        "run" if wants_help => help::general(),
        "run" => run::run(rest),
        "resume" | "graph" | "doctor" if wants_help => help::of_command(first),
        "resume" => resume::run(rest),
        "graph" => graph::run(rest),
        "doctor" => doctor::run(rest),
        _ if is_own_command(first) => own_command(words),
        // `exec ls -h` is for `ls`; a help flag elsewhere is for us.
        _ if wants_help
            && !lobster_runtime::steps::stages::builtin().iter().any(|spec| spec.name == first) =>
        {
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
        Command::Completions(args) => completions::run(&args),
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

/// The same, going on with a recorded run: under the policy of its project, too.
pub(crate) fn runtime_of_run(
    mode: Mode,
    find: impl FnOnce(&Runtime) -> Option<RunId>,
) -> Result<Runtime, CommandError> {
    let runtime = runtime(mode)?;
    match find(&runtime).and_then(|run| runtime.recorded_place(run)) {
        Some(place) => runtime_under(mode, &PolicySources { place: Some(&place), run: None }),
        None => Ok(runtime),
    }
}

/// The same, under the policies of a project and of a run, besides those of the environment.
pub(crate) fn runtime_under(mode: Mode, policies: &PolicySources<'_>) -> Result<Runtime, CommandError> {
    Ok(Runtime::new(settings_under(mode, policies)?)?)
}

/// What that runtime is made of.
pub(crate) fn settings_under(mode: Mode, policies: &PolicySources<'_>) -> Result<Settings, CommandError> {
    let cancel = CancelToken::new();
    signals::watch(&cancel)?;
    let mut settings = Settings::from_process()
        .map_err(|error| CommandError::failed(format!("the working directory cannot be used: {error}")))?;
    settings.mode = mode;
    for warning in settings.use_policies(policies)? {
        anstream::eprintln!("{warning}");
    }
    settings.use_secrets()?;
    settings.cancel = cancel;
    settings.notes = Box::new(|line| anstream::eprintln!("{line}"));
    if mode == Mode::Human {
        settings.screen = Some(Box::new(|text| {
            use std::io::Write;
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        }));
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            settings.progress = Some(Box::new(crate::render::progress::Spinner::new()));
        }
        if terminal::is_interactive() {
            settings.prompter = Some(Box::new(terminal::Terminal::default()));
        }
    }
    Ok(settings)
}
