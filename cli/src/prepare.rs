//! The runtime of this process: settings, policy, signals, and the terminal for questions and progress.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::engine::{Author, NOTIFY_TIMEOUT, NOTIFY_VARIABLE, Notify, Occasions, is_inside_a_run};
use lobster_runtime::envelope::Failure;
use lobster_runtime::json;
use lobster_runtime::replay;
use lobster_runtime::runtime::{PolicySources, Runtime, Settings};
use lobster_runtime::setting::{Setting, read_count};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::service::Service;
use lobster_runtime::store::{BrokenChain, Record, RunId, Store, StoreError, state_dir};

use crate::exit::CommandError;
use crate::render::print_to_stderr;
use crate::stdout::stdout;
use crate::{live, signals, terminal, which};

/// Refuses actions that a run must not perform: start more runs, gain rights, or change its triggers.
pub(crate) fn refuse_inside_a_run(what: &str) -> Result<(), CommandError> {
    if is_inside_a_run() {
        return Err(CommandError::failed(format!("a run cannot {what}; a person does, outside of any run")));
    }
    Ok(())
}

/// Refuses what only a person may do in a shell that is shown to be an agent's.
pub(crate) fn refuse_agents(runtime: &Runtime, what: &str) -> Result<(), CommandError> {
    let author = Author::of_process(&runtime.services.env);
    let Some(evidence) = author.agent_evidence() else { return Ok(()) };
    Err(CommandError::failed(format!("only a person may {what}, and {evidence}"))
        .with_hint("a person runs this command in a shell of their own"))
}

/// A runtime for this process, cancelled by its signals.
pub(crate) fn runtime(mode: Mode) -> Result<Runtime, CommandError> {
    runtime_under(mode, &PolicySources::default())
}

/// The service part of the store.
pub(crate) fn service() -> Result<Service, CommandError> {
    Ok(runtime(Mode::Human)?.store()?.service()?)
}

/// The same for continuing a recorded run: under the policy with which it began, unless another one was
/// put in force since. `reader` is the mode for the output.
pub(crate) fn runtime_of_run(
    reader: Mode,
    notify: Option<&str>,
    find: impl FnOnce(&Runtime) -> Option<RunId>,
) -> Result<Runtime, CommandError> {
    let mut runtime = runtime_telling(Mode::Tool, &PolicySources::default(), notify)?;
    let Some(run) = find(&runtime) else { return Ok(runtime) };
    let place = runtime.recorded_place(run);
    let began_as = runtime.store()?.run(run)?.mode;
    if place.is_some() || reader == Mode::Human {
        let policies = PolicySources { place: place.as_deref(), run: None };
        // A run keeps its mode, which affects the results of its pipelines.
        let mode = if began_as == "human" { reader } else { Mode::Tool };
        let mut settings = settings_telling(mode, &policies, notify)?;
        if reader == Mode::Human && settings.progress.is_none() {
            settings.progress = live::start_view();
        }
        runtime = Runtime::new(settings)?;
    }
    let mut runtime = with_recorded_policy(runtime, run)?;
    if std::env::current_dir().is_err() {
        // Its next steps run in the directory where it was started.
        runtime.services.cwd = runtime.store()?.run(run)?.cwd.into();
    }
    Ok(runtime)
}

/// A run continues under the policy with which it began. A policy that was put in force or changed since is still
/// considered: the approved actions may no longer be allowed, and the run reports that.
fn with_recorded_policy(runtime: Runtime, run: RunId) -> Result<Runtime, CommandError> {
    let applies = runtime.policy().is_open() || runtime.began_under_policies(run);
    let policy = if applies { replay::policy_of(&runtime, run)? } else { None };
    Ok(match policy {
        Some(policy) => runtime.with_policy(policy),
        None => runtime,
    })
}

/// A runtime that undoes the named run: in the directory in which the run began, and under its policy,
/// unless another one was put in force since.
pub(crate) fn runtime_to_undo(text: &str) -> Result<(Runtime, RunId), CommandError> {
    let mut runtime = runtime(Mode::Human)?;
    let store = runtime.store()?;
    let run = which::run(&store, text)?;
    if let Some(place) = runtime.recorded_place(run) {
        let policies = PolicySources { place: Some(&place), run: None };
        runtime = runtime_under(Mode::Human, &policies)?;
    }
    let mut runtime = with_recorded_policy(runtime, run)?;
    let began_in = std::path::PathBuf::from(store.run(run)?.cwd);
    if began_in.is_dir() {
        runtime.services.cwd = began_in;
    }
    Ok((runtime, run))
}

/// The same, under the policies of a project and of a run in addition to the environment's.
pub(crate) fn runtime_under(mode: Mode, policies: &PolicySources<'_>) -> Result<Runtime, CommandError> {
    runtime_telling(mode, policies, None)
}

/// The same, with a command that is notified of new questions (by default the one in `LOBSTER_NOTIFY`).
pub(crate) fn runtime_telling(
    mode: Mode,
    policies: &PolicySources<'_>,
    notify: Option<&str>,
) -> Result<Runtime, CommandError> {
    Ok(Runtime::new(settings_telling(mode, policies, notify)?)?)
}

fn settings_telling(
    mode: Mode,
    policies: &PolicySources<'_>,
    notify: Option<&str>,
) -> Result<Settings, CommandError> {
    let mut settings = settings_under(mode, policies)?;
    if notify.is_some() {
        let governed = settings.policy_files.len() > usize::from(policies.run.is_some());
        settings.notify = operators_command(notify, governed)?;
    }
    Ok(settings)
}

/// The readable part of a run's journal; damage is reported on stderr.
pub(crate) fn found_journal(
    store: &Store,
    run: RunId,
) -> Result<(Vec<Record>, Option<BrokenChain>), StoreError> {
    let (records, broken) = store.found_events(run)?;
    broken.iter().for_each(warn_of_damage);
    Ok((records, broken))
}

/// Set when this process has read a run's journal whose chain is broken.
static HAS_WARNED: AtomicBool = AtomicBool::new(false);

/// True if a warning was printed that the output may not be what happened.
pub(crate) fn has_warned_of_damage() -> bool {
    HAS_WARNED.load(Ordering::Relaxed)
}

/// Warns that the output may not be what happened.
pub(crate) fn warn_of_damage(broken: &BrokenChain) {
    HAS_WARNED.store(true, Ordering::Relaxed);
    print_to_stderr(&format!("warning: {broken}; what is shown may not be what happened"));
}

/// Set by commands that only need the store.
static NEEDS_NO_DIRECTORY: AtomicBool = AtomicBool::new(false);

/// Lets this process work without a working directory, which may have been deleted.
pub(crate) fn work_without_directory() {
    NEEDS_NO_DIRECTORY.store(true, Ordering::Relaxed);
}

/// The settings of this process. A deleted working directory is replaced by the system's name for it,
/// where nothing exists.
fn process_settings() -> Result<Settings, CommandError> {
    Settings::from_process().or_else(|error| {
        let is_absolute =
            state_dir(&|name| std::env::var_os(name)).is_some_and(|state_dir| state_dir.is_absolute());
        match std::fs::read_link("/proc/self/cwd") {
            Ok(name) if is_absolute && NEEDS_NO_DIRECTORY.load(Ordering::Relaxed) => {
                Ok(Settings::in_directory(name))
            }
            _ => Err(CommandError::failed(format!("the working directory cannot be used: {error}"))),
        }
    })
}

/// The settings of a runtime.
pub(crate) fn settings_under(mode: Mode, policies: &PolicySources<'_>) -> Result<Settings, CommandError> {
    let cancel = CancelToken::new();
    signals::watch(&cancel)?;
    let mut settings = process_settings()?;
    settings.mode = mode;
    settings.use_host_functions()?;
    for warning in settings.use_policies(policies)? {
        print_to_stderr(&warning);
    }
    settings.use_secrets()?;
    settings.protect_prices();
    settings.notify = operators_command(None, false)?;
    settings.cancel = cancel;
    settings.notes = Box::new(print_to_stderr);
    if mode == Mode::Human {
        settings.screen = Some(Box::new(|text| {
            use std::io::Write;
            live::write_above_view(|| {
                let mut out = stdout();
                out.write_all(text.as_bytes())?;
                out.flush()
            })
        }));
        settings.progress = live::start_view();
        if std::io::stdin().is_terminal() {
            settings.prompter = Some(Box::new(terminal::Terminal::new(policies.into())));
        }
    }
    Ok(settings)
}

/// Time limit of the command that is notified of questions.
pub(crate) const NOTIFY_LIMIT: Setting<Duration> =
    Setting::new("LOBSTER_NOTIFY_TIMEOUT_MS", "a whole number above 0", |text| {
        read_count(text).map(Duration::from_millis)
    });

/// The occasions of its notifications.
pub(crate) const NOTIFY_ON: Setting<Occasions> = Setting::new(
    "LOBSTER_NOTIFY_ON",
    "some of question, failed, finished and cancelled, separated by commas",
    |text| text.parse().ok(),
);

/// The command that is notified of new questions. It runs outside the policy, so if the operator has
/// set one, only the operator can name the command.
fn operators_command(flag: Option<&str>, governed: bool) -> Result<Option<Notify>, CommandError> {
    let env = |name: &str| std::env::var_os(name);
    if flag.is_some() && governed {
        return Err(CommandError::usage(format!(
            "--notify runs a command that no policy is asked about, and there is a policy: \
             the operator names the command with {NOTIFY_VARIABLE}"
        )));
    }
    let command = match flag {
        Some(flag) => Some(flag.to_owned()),
        None => Setting::any_text(NOTIFY_VARIABLE).kept_secret().read_env(env)?,
    };
    let Some(command) = command else { return Ok(None) };
    if command.trim().is_empty() {
        return Err(CommandError::usage("--notify needs a command, as in --notify 'notify-send lobster'"));
    }
    let timeout = NOTIFY_LIMIT.read_env(env)?.unwrap_or(NOTIFY_TIMEOUT);
    let occasions = NOTIFY_ON.read_env(env)?.unwrap_or_default();
    Ok(Some(Notify { command, timeout, occasions }))
}

/// Lists on stderr the keys that are set here and that no step receives.
pub(crate) fn note_withheld_keys(runtime: &Runtime) {
    let withheld = runtime.withheld_keys();
    if let Some(first) = withheld.first() {
        print_to_stderr(&format!(
            "note: steps do not receive {}, which lobster keeps for itself; `env: {{ {first}: ${first} }}` grants one",
            withheld.join(", ")
        ));
    }
}

/// Parses the JSON of an option, or of stdin for `-`.
pub(crate) fn json_option(value: &str, option: &str) -> Result<serde_json::Value, Failure> {
    let text = or_stdin(value, option)?;
    if json::has_half_pair(&text) {
        print_to_stderr(&format!("warning: {option} escapes half a surrogate pair, which is read as U+FFFD"));
    }
    json::parse(&text).map_err(|error| Failure::parse_error(format!("{option} must be valid JSON ({error})")))
}

/// The value of an option, or stdin for `-`, since the kernel limits a word to 128 KiB.
pub(crate) fn or_stdin(value: &str, option: &str) -> Result<String, Failure> {
    if value != "-" {
        return Ok(value.to_owned());
    }
    std::io::read_to_string(std::io::stdin().lock())
        .map_err(|error| Failure::parse_error(format!("{option} - cannot read stdin: {error}")))
}
