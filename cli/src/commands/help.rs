//! `lobster help`

use std::io::Write;

use clap::CommandFactory;
use lobster_runtime::language::codes;
use lobster_runtime::stage::StageSpec;
use lobster_runtime::stages::builtin;

use super::Cli;
use crate::exit::{CommandError, CommandResult, Exit};

/// What lobster is and what it can do.
pub(crate) fn general() -> CommandResult {
    let mut text = String::from(
        "lobster — the step runtime that can be trusted with side effects

Usage:
  lobster '<pipeline>'                     run a one-line pipeline
  lobster FILE.lobster                     run a workflow file
  lobster run [--mode tool] [--file FILE] [--args-json JSON] [--dry-run] [--no-cache] [PIPELINE]
  lobster resume --token TOKEN|--id ID --approve yes|no|--response-json JSON|--cancel
  lobster help TOPIC                       a command, a pipeline command, an error code

Flags of run:
  --mode tool        answer with one JSON envelope on stdout (human is the default)
  --file PATH        the workflow file
  --args-json JSON   arguments of the workflow
  --arg NAME=VALUE   one argument
  --dry-run          show what would run, and run nothing
  --no-cache         do every step, whatever the action cache knows (LOBSTER_NO_CACHE)
  --pipeline TEXT    pipeline text, whatever it looks like; - reads stdin, as in --args-json -
  --notify COMMAND   told of each new question (LOBSTER_NOTIFY)
  --events jsonl     each event of the run as a line of JSON on stderr; jsonl:FILE in a file (LOBSTER_EVENTS)
  --log FILTER, --log-format text|json
                     logs on stderr (LOBSTER_LOG, LOBSTER_LOG_FORMAT)

`lobster --describe` gives all commands, flags and schemas as JSON; `lobster skill` is a guide for agents.

Examples:
  lobster \"exec --json --shell 'echo [1,2,3]' | json\"
  lobster run inbox-triage.lobster --arg folder=inbox
  lobster run --mode tool \"exec --shell 'ls -1' | approve --prompt 'Go on?'\"

Commands:
",
    );
    for command in Cli::command().get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("  {:<16} {about}\n", command.get_name()));
    }
    text.push_str("\nPipeline commands (lobster help NAME):\n");
    for spec in builtin().iter() {
        text.push_str(&format!("  {:<16} {}\n", spec.name, spec.description));
    }
    print(&text)
}

/// The help of one command of the command line.
pub(crate) fn of_command(name: &str) -> CommandResult {
    let mut root = Cli::command();
    root.build();
    match root.find_subcommand_mut(name) {
        Some(command) => print(&command.render_long_help().to_string()),
        None => general(),
    }
}

/// `lobster help [TOPIC]`
pub(crate) fn topic(topic: Option<&str>) -> CommandResult {
    let Some(topic) = topic else { return general() };
    if let Some(spec) = builtin().get(topic) {
        return print(&stage(spec));
    }
    if let Some(page) = codes::explain(topic) {
        return print(&format!("{} — {}\n\n{}\n", page.code, page.title, page.text.trim_end()));
    }
    let known = Cli::command().get_subcommands().any(|command| command.get_name() == topic);
    if known {
        return of_command(topic);
    }
    Err(CommandError { exit: Exit::USAGE, message: format!("Unknown command: {topic}"), hint: None })
}

fn stage(spec: &StageSpec) -> String {
    format!("{} — {}\n\n{}\n", spec.name, spec.description, spec.help.trim_end())
}

fn print(text: &str) -> CommandResult {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(Exit::OK)
}
