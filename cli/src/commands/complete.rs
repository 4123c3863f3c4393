//! `lobster complete`, called by the scripts of `lobster completions`: lists the possible words at the
//! cursor. The grammar decides the kind of word; the store and the directory supply the words.
//!
//! Nothing here may fail, ask, or write: pressing Tab gives words or nothing.

mod words;

use std::io::Write;

use clap::{Arg, ArgAction, Command, CommandFactory};
use lobster_runtime::language::codes;
use lobster_runtime::stages::builtin;

use self::words::KnownWords;
use super::Cli;
use crate::exit::{CommandResult, finish};
use crate::render::one_line;
use crate::stdout::stdout;

/// Lists the possible words at the cursor; for completion scripts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell whose format the list has.
    shell: Dialect,
    /// The line up to the cursor, for shells that split words differently.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    line: Option<String>,
    /// The characters at which such a shell splits words.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, default_value = "")]
    breaks: String,
    /// The words after `lobster` up to the cursor; the last one is completed.
    #[arg(last = true)]
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    Bash,
    Zsh,
    Fish,
}

/// A possible word with its description.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    text: String,
    about: String,
}

impl Candidate {
    fn new(text: impl Into<String>, about: impl Into<String>) -> Self {
        Self { text: text.into(), about: about.into() }
    }

    fn of_command(command: &Command) -> Self {
        Self::new(command.get_name(), first_line(command.get_about()))
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let words = match &args.line {
        Some(line) => split_words(line).into_iter().skip(1).collect(),
        None => args.words.clone(),
    };
    let found = find_candidates(&words, &KnownWords::here());
    let current = words.last().map_or("", String::as_str);
    // The shell replaces only the text after its last break character.
    let kept = current
        .rfind(|c| args.breaks.contains(c))
        .map_or(0, |at| at + current[at..].chars().next().map_or(0, char::len_utf8));
    let mut out = stdout();
    for Candidate { text, about } in found {
        let (text, about) = (one_line(&text), one_line(&about));
        let text = text.get(kept..).unwrap_or_default();
        match args.shell {
            Dialect::Bash => writeln!(out, "{text}")?,
            Dialect::Fish => writeln!(out, "{text}\t{about}")?,
            Dialect::Zsh => {
                let text = text.replace('\\', "\\\\").replace(':', "\\:");
                writeln!(out, "{text}:{about}")?;
            }
        }
    }
    finish(out)
}

/// Splits a line into words approximately like a shell: quotes and backslashes hold words together. The
/// last word is under the cursor, and empty after a blank.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut escaped, mut after_blank) = (None, false, true);
    for c in line.chars() {
        let word = words.len() - 1;
        match (c, quote) {
            (_, _) if escaped => {
                words[word].push(c);
                escaped = false;
            }
            ('\\', None | Some('"')) => escaped = true,
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (' ' | '\t', None) => {
                if !after_blank {
                    words.push(String::new());
                }
                after_blank = true;
                continue;
            }
            (c, _) => words[word].push(c),
        }
        after_blank = false;
    }
    words
}

/// The possible words in place of the last one.
fn find_candidates(words: &[String], known: &KnownWords) -> Vec<Candidate> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let mut root = Cli::command();
    root.build();
    let mut place = Place::after_words(&root, before);
    let mut found = match (place.pending.take(), current.split_once('=')) {
        (Some(option), _) => place.value_candidates(option, current, "", known),
        (None, Some((name, value))) if name.starts_with("--") => match place.find_option(name) {
            Some(option) => place.value_candidates(option, value, &format!("{name}="), known),
            None => Vec::new(),
        },
        (None, _) if current.starts_with('-') => place.option_candidates(),
        (None, _) => place.word_candidates(current, known),
    };
    found.retain(|candidate| candidate.text.starts_with(current.as_str()));
    let mut seen = std::collections::HashSet::new();
    found.retain(|candidate| seen.insert(candidate.text.clone()));
    found
}

/// The cursor's place in the grammar.
struct Place<'c> {
    command: &'c Command,
    /// The names of the commands, without `lobster`.
    path: Vec<&'c str>,
    /// Words of the command that are not options.
    given: Vec<String>,
    /// An option whose value comes next.
    pending: Option<&'c Arg>,
}

impl<'c> Place<'c> {
    fn after_words(root: &'c Command, before: &[String]) -> Self {
        let mut place = Self { command: root, path: Vec::new(), given: Vec::new(), pending: None };
        for word in before {
            if place.pending.take().is_some() {
                continue;
            }
            if word.starts_with('-') && word.len() > 1 {
                let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
                place.pending = place.find_option(word).filter(takes_value);
                continue;
            }
            match place.command.find_subcommand(word) {
                Some(next) if place.given.is_empty() => {
                    place.command = next;
                    place.path.push(next.get_name());
                }
                _ => place.given.push(word.clone()),
            }
        }
        place
    }

    fn find_option(&self, word: &str) -> Option<&'c Arg> {
        let is_it = |arg: &&Arg| match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
            (None, Some(short)) => arg.get_short().is_some_and(|known| short.starts_with(known)),
            (None, None) => false,
        };
        self.command.get_arguments().find(is_it)
    }

    fn option_candidates(&self) -> Vec<Candidate> {
        let shown = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
        shown
            .filter_map(|arg| {
                Some(Candidate::new(format!("--{}", arg.get_long()?), first_line(arg.get_help())))
            })
            .collect()
    }

    /// The commands and the possible values of the next positional word.
    fn word_candidates(&self, current: &str, known: &KnownWords) -> Vec<Candidate> {
        let mut found = Vec::new();
        if self.given.is_empty() {
            let shown = self.command.get_subcommands().filter(|command| !command.is_hide_set());
            found.extend(shown.map(Candidate::of_command));
        }
        match self.path.as_slice() {
            [] => found.extend(known.workflow_files(current)),
            ["help"] => {
                let stages = builtin();
                found.extend(stages.iter().map(|spec| Candidate::new(spec.name, spec.description)));
                found.extend(codes::all_pages().map(|page| Candidate::new(page.code, page.title)));
                found.extend(Cli::command().get_subcommands().map(Candidate::of_command));
            }
            _ => {
                let positionals: Vec<&Arg> = self.command.get_positionals().collect();
                let arg = positionals.get(self.given.len()).or(positionals.last());
                // The last argument may take several words.
                let takes = |arg: &&Arg| {
                    self.given.len() < positionals.len()
                        || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
                };
                if let Some(arg) = arg.copied().filter(takes) {
                    found.extend(self.value_candidates(arg, current, "", known));
                }
            }
        }
        found
    }

    /// The possible values of an argument, each with `prefix` before it.
    fn value_candidates(&self, arg: &Arg, current: &str, prefix: &str, known: &KnownWords) -> Vec<Candidate> {
        let possible = arg.get_possible_values();
        let is_flag = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
        let mut found: Vec<Candidate> = if !possible.is_empty() && !is_flag {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            shown.map(|value| Candidate::new(value.get_name(), first_line(value.get_help()))).collect()
        } else {
            let named = |name: &str| {
                arg.get_value_names().is_some_and(|names| names.iter().any(|known| known.as_str() == name))
            };
            match (self.path.as_slice(), arg.get_id().as_str()) {
                (["approvals", ..] | ["resume"], "id") => known.approval_candidates(),
                (["step", ..], _) if !named("RUN") => known.file_candidates(current, |_| true),
                (_, "run" | "vs" | "before" | "after") => known.run_candidates(current),
                (_, _) if named("RUN") => known.run_candidates(current),
                (_, _) if named("STEP") => known.step_candidates(self.given.first().map(String::as_str)),
                (["runs"], "name") => known.name_candidates(),
                (["run"], "arg") => known.argument_candidates(self.given.first().map(String::as_str)),
                (["run"], "mode") => ["human", "tool"].map(|mode| Candidate::new(mode, "")).into(),
                (["run"], "file" | "words") | (["check"], _) | (["graph"], "file" | "path") => {
                    known.workflow_files(current)
                }
                (["fork"], "workflow") => known.workflow_files(current),
                (["graph"], "format") => {
                    ["mermaid", "dot", "ascii"].map(|format| Candidate::new(format, "")).into()
                }
                _ => known.file_candidates(current, |_| true),
            }
        };
        for candidate in &mut found {
            candidate.text.insert_str(0, prefix);
        }
        found
    }
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete_line(line: &str) -> Vec<String> {
        let words: Vec<String> = split_words(line).into_iter().skip(1).collect();
        find_candidates(&words, &KnownWords::nothing()).into_iter().map(|candidate| candidate.text).collect()
    }

    #[test]
    fn the_line_is_split_as_a_shell_does() {
        let words = |line: &str| split_words(line);
        assert_eq!(words("lobster show "), ["lobster", "show", ""]);
        assert_eq!(words("lobster  'a b' c\\ d \"e f"), ["lobster", "a b", "c d", "e f"]);
        assert_eq!(words("lobster ''"), ["lobster", ""]);
    }

    #[test]
    fn the_grammar_says_what_comes_next() {
        assert_eq!(complete_line("lobster appr"), ["approvals"]);
        assert_eq!(complete_line("lobster approvals ap"), ["approve"]);
        // The former name still works, but is not offered.
        assert_eq!(complete_line("lobster gates ap"), ["approve"]);
        assert!(!complete_line("lobster gat").contains(&"gates".to_owned()));
        assert_eq!(complete_line("lobster runs --stat"), ["--status"]);
        assert!(complete_line("lobster runs --status ").contains(&"failed".to_owned()));
        assert_eq!(complete_line("lobster runs --status=wai"), ["--status=waiting"]);
        assert_eq!(complete_line("lobster help exe")[0], "exec");
        assert_eq!(complete_line("lobster help E030").first().map(String::as_str), Some("E0301"));
        assert_eq!(complete_line("lobster run --mode t"), ["tool"]);
        // Internal commands are not offered.
        assert!(!complete_line("lobster ").iter().any(|name| name == "complete" || name == "man"));
    }

    /// For any typed text, every answer begins with it, and nothing panics.
    #[test]
    fn any_line_has_an_answer() {
        let mut root = Cli::command();
        root.build();
        let names: Vec<String> =
            root.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        for name in names {
            for rest in ["", " ", " -", " --", " x ", " x --", " x y ", " --json ", " --no-such=", " é", " '"]
            {
                let line = format!("lobster {name}{rest}");
                let words: Vec<String> = split_words(&line).into_iter().skip(1).collect();
                let current = words.last().cloned().unwrap_or_default();
                for found in complete_line(&line) {
                    assert!(found.starts_with(&current), "{line:?}: {found:?}");
                }
            }
        }
    }
}
