//! Suggestions for words of `run` that cannot run.

use std::path::Path;

use clap::CommandFactory;
use lobster_runtime::code::Code;
use lobster_runtime::envelope::Failure;
use lobster_runtime::language::mistyped::nearest_name;
use lobster_runtime::language::source::has_workflow_extension;
use lobster_runtime::runtime::workflow_file;

use super::Cli;
use crate::which;

/// The long options of a subcommand, including the global ones, with their dashes.
pub(super) fn options_of(subcommand: &str) -> Vec<String> {
    let root = Cli::command();
    let own = root.find_subcommand(subcommand).map(clap::Command::get_arguments).into_iter().flatten();
    let longs = own.chain(root.get_arguments()).filter_map(clap::Arg::get_long);
    longs.map(|long| format!("--{long}")).collect()
}

/// Refuses a workflow file followed by words, which would be an unintended pipeline, and a directory in
/// place of a file.
pub(super) fn refuse_words(words: &[String]) -> Result<(), Failure> {
    let [first, rest @ ..] = words else { return Ok(()) };
    if words.iter().any(|word| word == "|") {
        return Ok(());
    }
    let path = Path::new(first);
    if rest.is_empty() && path.is_dir() && first.contains(['/', '.']) {
        return Err(Failure::new(
            Code::WorkflowFile,
            format!("{first} is a directory; name a workflow file{}", files_in(path)),
        ));
    }
    if first.starts_with("--") && !first.contains(char::is_whitespace) {
        return Err(unknown_option(first));
    }
    if rest.is_empty() || !has_workflow_extension(path) || workflow_file(path).is_err() {
        return Ok(());
    }
    let word = &rest[0];
    if word.starts_with("--") {
        return Err(unknown_option(word));
    }
    let hint = match word.split_once('=') {
        Some((name, _)) if !name.is_empty() => format!("write --arg '{word}'"),
        _ => "arguments are given with --arg NAME=VALUE or --args-json JSON".to_owned(),
    };
    Err(Failure::parse_error(format!("run takes one workflow file, and {word:?} follows {first}; {hint}")))
}

/// The error for an unknown option of `run`, with the likely intended one.
fn unknown_option(word: &str) -> Failure {
    let name = word.split('=').next().unwrap_or_default();
    let hint = match nearest_name(name, options_of("run").iter().map(String::as_str)) {
        _ if name == "--args" => "; arguments are given with --arg NAME=VALUE or --args-json JSON".to_owned(),
        Some(near) if near == name => {
            return Failure::parse_error(format!("{name} takes no value, as in {word:?}"));
        }
        Some(near) => format!("; did you mean {near}?"),
        None => "; `lobster help run` lists them".to_owned(),
    };
    Failure::parse_error(format!("run has no option {name}{hint}"))
}

fn files_in(folder: &Path) -> String {
    let mut names: Vec<String> =
        which::workflow_files(folder).iter().map(|file| file.display().to_string()).collect();
    names.truncate(3);
    if names.is_empty() { String::new() } else { format!(", such as {}", names.join(", ")) }
}

/// The likely intended file for a missing workflow file, or the existing files.
pub(super) fn file_like(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = which::workflow_files(folder);
    let names = || files.iter().filter_map(|file| file.file_name()?.to_str());
    let wanted = path.file_name()?.to_str()?;
    match nearest_name(wanted, names()) {
        Some(near) => Some(format!("did you mean {}?", path.with_file_name(near).display())),
        None if !folder.is_dir() => Some(format!("there is no directory {}", folder.display())),
        None if files.is_empty() => None,
        None => {
            let some: Vec<&str> = names().take(3).collect();
            Some(format!("in that directory: {}", some.join(", ")))
        }
    }
}

/// The likely intended command for an unknown first word.
pub(super) fn command_like(words: &[String]) -> Option<String> {
    // The whole pipeline may be a single word.
    let text = words.join(" ");
    let first = text.split_whitespace().next()?;
    if first.starts_with('-') || lobster_runtime::stages::builtin().get(first).is_some() {
        return None;
    }
    let path = Path::new(first);
    if has_workflow_extension(path) {
        return file_like(path).filter(|_| !path.is_file()).map(|hint| format!("  {hint}"));
    }
    if first.contains('@') {
        return Some(format!("  to see that run: lobster show {first}"));
    }
    if let Some((_, ours)) = ELSEWHERE.iter().find(|(name, _)| *name == first) {
        return Some(format!("  the command is `lobster {ours}`"));
    }
    let root = Cli::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    if let Some(near) = nearest_name(first, names) {
        return Some(format!("  did you mean `lobster {near}`?"));
    }
    is_program(first).then(|| {
        let command = text.replace('\'', "'\\''");
        format!("  to run a program: lobster exec --shell '{command}'")
    })
}

/// True if a shell would find a program of this name.
fn is_program(word: &str) -> bool {
    let is_file = |path: &Path| path.is_file();
    if word.contains('/') {
        return is_file(Path::new(word));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_file(&folder.join(word)))
}

/// Names that other programs use for lobster's commands.
const ELSEWHERE: &[(&str, &str)] = &[
    ("history", "runs"),
    ("inspect", "show RUN"),
    ("lint", "check FILE"),
    ("list", "runs"),
    ("log", "logs RUN"),
    ("new", "init"),
    ("ps", "runs"),
    ("start", "run FILE"),
    ("status", "runs"),
    ("test", "step test DIR"),
    ("validate", "check FILE"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_those_that_the_command_line_takes() {
        let run = options_of("run");
        for option in ["--arg", "--dry-run", "--log"] {
            assert!(run.iter().any(|known| known == option), "{option}: {run:?}");
        }
        assert!(!run.iter().any(|known| known == "--approve"));
    }
}
