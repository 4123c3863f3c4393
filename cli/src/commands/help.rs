//! `lobster help`

use std::io::Write;

use clap::CommandFactory;
use lobster_runtime::language::codes;
use lobster_runtime::language::mistyped::nearest_name;
use lobster_runtime::stage::StageSpec;
use lobster_runtime::stages::builtin;

use super::Cli;
use crate::exit::{CommandError, CommandResult, finish};
use crate::render::pager::PagedOutput;
use crate::render::question::BOLD;
use crate::render::table::Room;
use crate::render::text::wrap;

/// The commands, grouped by use.
const GROUPS: &[(&str, &[&str])] = &[
    ("Common commands", &["init", "run", "resume", "check", "runs", "show", "approvals"]),
    ("History", &["logs", "diff", "why", "replay", "fork", "changes", "undo", "cost", "bundle"]),
    ("Policy", &["policy", "audit", "secrets"]),
    ("Authoring", &["step", "add", "graph", "skill"]),
    ("Service", &["serve", "console", "schedule", "event"]),
    ("Operating", &["mcp", "models", "store", "doctor", "worker", "completions", "version", "help"]),
];

/// Commands that help does not list.
const HIDDEN: &[&str] = &["begin", "complete", "man"];

/// True for the name of a command, even a former one (`gates`), decided without building the whole grammar.
pub(super) fn is_command(name: &str) -> bool {
    HIDDEN.contains(&name) || name == "gates" || GROUPS.iter().any(|(_, names)| names.contains(&name))
}

/// Pipeline commands for one program or service, and commands for compatibility with the incumbent's files.
const PARTICULAR: &[&str] = &[
    "clawd.invoke",
    "commands.list",
    "email.triage",
    "gog.gmail.search",
    "gog.gmail.send",
    "llm_task.invoke",
    "openclaw.agent",
    "openclaw.invoke",
    "workflows.list",
    "workflows.run",
];

/// The overview: the purpose of lobster and its commands.
pub(crate) fn print_overview() -> CommandResult {
    let room = Room::of_stdout();
    let title = |text: &str| room.paint(BOLD, text);
    let mut text = format!(
        "lobster — the step runtime that can be trusted with side effects

{}
  lobster run FILE.lobster [--arg NAME=VALUE]   run a workflow file
  lobster run '<pipeline>'                      run a one-line pipeline
  lobster run --mode tool ...                   answer with one JSON envelope on stdout
  lobster help TOPIC                            a command, a pipeline command, an error code

{}
  --file PATH        the workflow file, under any name
  --arg NAME=VALUE   one argument of the workflow; --args-json JSON for all of them
  --policy FILE      a policy for native commands
  --dry-run          print what would run, without running it
  --no-cache         run every step, even if its result is cached

{}
  lobster init                                  write a first workflow
  lobster run inbox-triage.lobster --arg folder=inbox
  lobster show @                                the steps of the last run
  lobster \"exec --json --shell 'echo [1,2,3]' | json\"
",
        title("Usage:"),
        title("Options of run (all of them: lobster help run):"),
        title("Examples:"),
    );
    let root = Cli::command();
    let about = |name: &str| {
        let command = root.find_subcommand(name)?;
        Some(command.get_about().map(ToString::to_string).unwrap_or_default())
    };
    for (group, names) in GROUPS {
        text.push_str(&format!("\n{}\n", title(&format!("{group}:"))));
        for name in *names {
            if let Some(about) = about(name) {
                text.push_str(&format_entry(name, 12, &about, room));
            }
        }
    }
    let mut stages = |heading: &str, wanted: &dyn Fn(&str) -> bool| {
        text.push_str(&format!("\n{}\n", title(heading)));
        for spec in builtin().iter().filter(|spec| wanted(spec.name)) {
            text.push_str(&format_entry(spec.name, 16, spec.description, room));
        }
    };
    stages("Pipeline commands (lobster help NAME):", &|name| !PARTICULAR.contains(&name));
    stages("Pipeline commands for particular programs, and for compatibility:", &|name| {
        PARTICULAR.contains(&name)
    });
    text.push_str(
        "\n`lobster --describe` gives all commands, options and schemas as JSON; `lobster skill` is a guide for agents.\n",
    );
    print_page(&text)
}

/// A name with its meaning; at a terminal a long line continues below its beginning.
fn format_entry(name: &str, wide: usize, about: &str, room: Room) -> String {
    let indent = wide + 3;
    let lines = match room.columns {
        Some(columns) if columns > 2 * indent => wrap(about, columns - indent - 1),
        _ => vec![about.to_owned()],
    };
    let about = lines.join(&format!("\n{}", " ".repeat(indent)));
    format!("  {name:<wide$} {about}\n")
}

/// The help of one command of the command line.
pub(crate) fn of_command(name: &str) -> CommandResult {
    match command_help(&[name]) {
        Some(help) => print_page(&help),
        None => print_overview(),
    }
}

/// The help of a command or of a subcommand, such as `approvals show`.
fn command_help(names: &[&str]) -> Option<String> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for name in names {
        command = command.find_subcommand_mut(name)?;
    }
    Some(command.render_long_help().to_string())
}

/// `lobster help [TOPIC]`
pub(crate) fn print_topic(words: &[String]) -> CommandResult {
    let names: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let Some((&first, rest)) = names.split_first() else { return print_overview() };
    // A name may have several meanings: `store` is a command and the code of a failure.
    let alone = rest.is_empty().then_some(first);
    let pages = [
        alone.and_then(|name| builtin().get(name)).map(stage_page),
        command_help(&names).filter(|_| is_command(first)),
        alone
            .and_then(codes::find_page)
            .map(|page| format!("{} — {}\n\n{}\n", page.code, page.title, page.text.trim_end())),
    ];
    let pages: Vec<String> = pages.into_iter().flatten().collect();
    if !pages.is_empty() {
        return print_page(&pages.join("\n"));
    }
    let topic = names.join(" ");
    let error = CommandError::usage(format!("Unknown command: {topic}"));
    let commands = Cli::command();
    let names = commands.get_subcommands().filter(|command| !command.is_hide_set());
    let stages = builtin();
    let names = names
        .map(clap::Command::get_name)
        .chain(stages.iter().map(|spec| spec.name))
        .chain(codes::all_pages().map(|page| page.code));
    Err(match nearest_name(&topic, names) {
        Some(near) => error.with_hint(format!("did you mean `lobster help {near}`?")),
        None => error.with_hint("`lobster help` lists the topics"),
    })
}

fn stage_page(spec: &StageSpec) -> String {
    format!("{} — {}\n\n{}\n", spec.name, spec.description, spec.help.trim_end())
}

fn print_page(text: &str) -> CommandResult {
    let mut out = PagedOutput::through_pager();
    out.write_all(text.as_bytes())?;
    finish(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_a_group_or_hidden() {
        let root = Cli::command();
        let (hidden, shown): (Vec<_>, Vec<_>) =
            root.get_subcommands().partition(|command| command.is_hide_set());
        let sorted = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let names = |commands: Vec<&clap::Command>| {
            sorted(commands.into_iter().map(clap::Command::get_name).collect())
        };
        let listed = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(names(shown), sorted(listed));
        assert_eq!(names(hidden), sorted(HIDDEN.to_vec()));
    }

    #[test]
    fn particular_pipeline_commands_are_some() {
        for name in PARTICULAR {
            assert!(builtin().get(name).is_some(), "{name}");
        }
    }
}
