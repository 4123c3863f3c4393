//! Searches for credentials in places that may hold secrets.
//!
//! The sandbox hides the secrets that a policy names. A search of the whole workspace for keys is
//! denied as well, since it has no legitimate purpose.

use super::super::analysis::{Analysis, Arg};
use super::super::paths::{is_under, normalise_path};
use super::options::CommandLine;

/// Parts of the names of credentials, as `.env` files write them.
const WORDS: &[&str] = text_list!("../lists/credential-words.txt");

/// Patterns that find every line, or every assignment.
const EVERYTHING: &[&str] = &["", ".", ".*", "..*", ".+", "^", "$", "^.*$", "=", ".=", ".*="];

impl Analysis<'_> {
    /// Denies a recursive search for credentials that no option keeps away from hidden files, and a
    /// search for secret files by name.
    pub(super) fn refuse_hunt(&mut self, name: &str, line: &CommandLine, args: &[Arg]) {
        let recursive = match name {
            "grep" | "egrep" | "fgrep" => {
                line.has_option(&["r", "R", "recursive", "dereference-recursive"])
                    || line.option_values(&["d", "directories"]).any(|how| how.text == "recurse")
            }
            "rg" | "ripgrep" => {
                line.has_option(&["hidden", "."])
                    || line
                        .given
                        .iter()
                        .filter(|given| matches!(given.name.as_str(), "u" | "unrestricted"))
                        .count()
                        > 1
            }
            "ag" | "ack" => line.has_option(&["hidden", "u", "unrestricted"]),
            _ => false,
        };
        let globs = line.option_values(&["include", "g", "glob", "iglob"]).map(|glob| glob.text.as_str());
        let (wanted, others): (Vec<&str>, Vec<&str>) =
            globs.filter(|glob| !glob.starts_with('!')).partition(|glob| self.roots.is_secret_name(glob));
        let narrowed = wanted.is_empty() && !others.is_empty();
        let asked = wanted.first().map(|glob| (*glob).to_owned());
        if let Some(glob) = asked {
            self.add_denial("secret", format!("{name} looks into files named {glob}"));
        }
        if !recursive || narrowed {
            return;
        }
        let mut patterns =
            line.option_values(&["e", "regexp"]).chain(line.pattern_position().map(|at| &args[at]));
        let ignores_case = line.has_option(&["i", "y", "ignore-case"]);
        let hunts = patterns.any(|pattern| {
            EVERYTHING.contains(&pattern.text.as_str()) || names_credential(pattern, ignores_case)
        });
        let mut places =
            line.operand_positions().map(|at| normalise_path(&self.scope.cwd, &args[at].text)).peekable();
        let everywhere = match places.peek() {
            None => is_under(&self.env.workspace, &self.scope.cwd),
            Some(_) => places.any(|place| is_under(&self.env.workspace, &place)),
        };
        if hunts && everywhere {
            self.deny_hint(
                "secret",
                format!("{name} looks for credentials in all files of the workspace, including hidden ones"),
                "name the directory to search, or the files with --include",
            );
        }
    }

    /// Denies a search of the whole repository, or of its history, for credentials. Only a path after `--`
    /// narrows it: a word before may be a revision.
    pub(super) fn refuse_git_hunt(&mut self, verb: &str, line: &CommandLine, args: &[Arg]) {
        let ignores_case = line.has_option(&["i", "ignore-case", "regexp-ignore-case"]);
        let hunts = match verb {
            "grep" => {
                let mut patterns =
                    line.option_values(&["e", "regexp"]).chain(line.pattern_position().map(|at| &args[at]));
                patterns.any(|pattern| {
                    EVERYTHING.contains(&pattern.text.as_str()) || names_credential(pattern, ignores_case)
                })
            }
            // Its `-S` takes a file.
            "blame" | "annotate" => false,
            _ => line.option_values(&["S", "G"]).any(|pattern| names_credential(pattern, ignores_case)),
        };
        let end = args.iter().position(|word| word.text == "--").unwrap_or(args.len());
        let is_narrow = |at: usize| {
            let path = &args[at];
            let is_plain = path.is_settled() && !path.text.starts_with(':');
            let is_plain = is_plain && !path.text.contains(['*', '?', '[']);
            is_plain && !is_under(&self.env.workspace, &normalise_path(&self.scope.cwd, &path.text))
        };
        let mut places = line.operand_positions().filter(|at| *at > end).peekable();
        let narrowed = places.peek().is_some() && places.all(is_narrow);
        if hunts && !narrowed {
            self.deny_hint(
                "secret",
                format!("git {verb} looks for credentials in the whole repository"),
                "name the directory to search after --",
            );
        }
    }
}

/// True if the pattern has a part of a credential's name.
fn names_credential(pattern: &Arg, ignores_case: bool) -> bool {
    let upper = pattern.text.to_ascii_uppercase();
    let text = if ignores_case { &upper } else { &pattern.text };
    WORDS.iter().any(|word| text.contains(word))
}
