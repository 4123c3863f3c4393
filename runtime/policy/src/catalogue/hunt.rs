//! Searches for credentials in places that may hold secrets.
//!
//! The sandbox hides the secrets that a policy names. A search of the whole workspace for keys is
//! denied as well, since it has no legitimate purpose.

use super::super::analysis::{Analysis, Arg};
use super::super::paths::{is_under, normalise};
use super::options::CommandLine;

/// Parts of the names of credentials, as `.env` files write them.
const WORDS: &[&str] = &[
    "PASS",
    "SECRET",
    "TOKEN",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "PRIVATE KEY",
    "CREDENTIAL",
    "AWS_",
];

/// Patterns that find every line, or every assignment.
const EVERYTHING: &[&str] = &["", ".", ".*", "..*", ".+", "^", "$", "^.*$", "=", ".=", ".*="];

impl Analysis<'_> {
    /// Denies a recursive search for credentials that no option keeps away from hidden files, and a
    /// search for secret files by name.
    pub(super) fn refuse_hunt(&mut self, name: &str, line: &CommandLine, args: &[Arg]) {
        let recursive = match name {
            "grep" | "egrep" | "fgrep" => {
                line.has(&["r", "R", "recursive", "dereference-recursive"])
                    || line.values(&["d", "directories"]).any(|how| how.text == "recurse")
            }
            "rg" | "ripgrep" => {
                line.has(&["hidden", "."])
                    || line
                        .given
                        .iter()
                        .filter(|given| matches!(given.name.as_str(), "u" | "unrestricted"))
                        .count()
                        > 1
            }
            "ag" | "ack" => line.has(&["hidden", "u", "unrestricted"]),
            _ => false,
        };
        let globs = line.values(&["include", "g", "glob", "iglob"]).map(|glob| glob.text.as_str());
        let (wanted, others): (Vec<&str>, Vec<&str>) =
            globs.filter(|glob| !glob.starts_with('!')).partition(|glob| self.roots.is_secret_name(glob));
        let narrowed = wanted.is_empty() && !others.is_empty();
        let asked = wanted.first().map(|glob| (*glob).to_owned());
        if let Some(glob) = asked {
            self.deny("secret", format!("{name} looks into files named {glob}"));
        }
        if !recursive || narrowed {
            return;
        }
        let patterns = line.values(&["e", "regexp"]).chain(line.pattern().map(|at| &args[at]));
        let ignores_case = line.has(&["i", "y", "ignore-case"]);
        let hunts = patterns.into_iter().any(|pattern| {
            let upper = pattern.text.to_ascii_uppercase();
            let text = if ignores_case { &upper } else { &pattern.text };
            EVERYTHING.contains(&text.as_str()) || WORDS.iter().any(|word| text.contains(word))
        });
        let mut places = line.operands().map(|at| normalise(&self.scope.cwd, &args[at].text)).peekable();
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
}
