//! git: its reading verbs, and the many ways in which it runs programs.

use super::super::analysis::{Analysis, Arg};
use super::super::paths::{leaves_upwards, normalise_path, rule_path};
use super::options::{CommandLine, Operands, Part, find_entry, read_command_line};

/// Options whose value is a message, a pattern or a format.
const TEXT_FLAGS: &[&str] = text_list!("../lists/git-text-flags.txt");

/// Options before the verb that change neither what git runs nor where.
const PLAIN_OPTIONS: &[&str] = text_list!("../lists/git-plain-options.txt");

/// Options of verbs whose value is a command.
const CODE_OPTIONS: &[&str] = text_list!("../lists/git-code-options.txt");

const SWITCH: &[&str] = &["", "true", "false", "yes", "no", "on", "off", "1", "0", "auto", "always", "never"];

/// Settings, by their whole names, that only change the output, with their values.
const HARMLESS_SETTINGS: &[(&str, &[&str])] = &[
    ("color.ui", SWITCH),
    ("color.branch", SWITCH),
    ("color.diff", SWITCH),
    ("color.grep", SWITCH),
    ("color.status", SWITCH),
    ("column.ui", SWITCH),
    ("core.quotepath", SWITCH),
    ("core.abbrev", &["auto", "no", "7", "8", "10", "12", "16", "40"]),
    (
        "log.date",
        &["iso", "iso8601", "iso-strict", "short", "relative", "local", "default", "rfc", "raw", "unix"],
    ),
    ("log.decorate", &["", "short", "full", "auto", "no", "true", "false"]),
    ("diff.renames", &["", "true", "false", "copy", "copies"]),
    ("diff.algorithm", &["default", "myers", "minimal", "patience", "histogram"]),
    ("advice.detachedhead", SWITCH),
    ("advice.statushints", SWITCH),
    ("status.branch", SWITCH),
    ("status.relativepaths", SWITCH),
    ("status.renames", &["", "true", "false", "copy", "copies"]),
    ("status.short", SWITCH),
    ("status.showstash", SWITCH),
    ("status.showuntrackedfiles", &["no", "normal", "all"]),
];

/// True if a word after `-c` is one of these settings with one of its values.
fn is_harmless_setting(setting: &Arg) -> bool {
    let (key, value) = setting.text.split_once('=').unwrap_or((&setting.text, ""));
    let key = key.to_ascii_lowercase();
    let mut known = HARMLESS_SETTINGS.iter();
    setting.is_settled() && known.any(|(name, values)| *name == key && values.contains(&value))
}

/// Options with values that lead into other repositories or to other programs, and the values that do
/// not.
const ONLY_VALUES: &[(&str, &[&str])] = &[
    // A submodule has settings of its own.
    ("ignore-submodules", &["all", "dirty"]),
    ("submodule", &["short", "log"]),
    // To merge again, git runs the repository's merge drivers.
    (
        "diff-merges",
        &["off", "none", "on", "first-parent", "1", "separate", "m", "combined", "c", "dense-combined", "cc"],
    ),
];

struct Parts {
    verb: Option<usize>,
    directory: Option<Arg>,
    config: Vec<Arg>,
    refused: Option<String>,
}

/// Splits off git's own options before the verb.
fn split_options(args: &[Arg]) -> Parts {
    let mut parts = Parts { verb: None, directory: None, config: Vec::new(), refused: None };
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = arg.text.as_str();
        if !arg.keeps_its_place(false) {
            parts.refused = Some(format!("{} may change what git runs or where", arg.display_text()));
        }
        match text {
            "-C" => {
                let directory = args.get(at + 1).cloned();
                if parts.directory.is_some() || directory.as_ref().is_some_and(|d| !d.is_settled()) {
                    parts.refused = Some("-C leads to a directory that is not known".to_owned());
                }
                parts.directory = directory;
                at += 2;
            }
            "-c" => {
                parts.config.extend(args.get(at + 1).cloned());
                at += 2;
            }
            _ if PLAIN_OPTIONS.contains(&text) => at += 1,
            _ if text.starts_with("-c") && text.len() > 2 && !text.starts_with("--") => {
                parts.config.push(Arg { text: text[2..].to_owned(), ..arg.clone() });
                at += 1;
            }
            _ if text.starts_with('-') || arg.unknown_start => {
                parts.refused = Some(format!("{} changes what git runs or where", arg.display_text()));
                // These options take a separate word.
                at += if matches!(
                    text,
                    "--git-dir"
                        | "--work-tree"
                        | "--namespace"
                        | "--super-prefix"
                        | "--attr-source"
                        | "--config-env"
                ) {
                    2
                } else {
                    1
                };
            }
            _ => {
                parts.verb = Some(at);
                break;
            }
        }
    }
    parts
}

/// Marks the words that are a message, pattern or format.
pub(super) fn text_words(args: &[Arg]) -> Vec<bool> {
    let verb = split_options(args).verb;
    let line = verb.and_then(|at| {
        Some(read_command_line(find_entry(&format!("git/{}", args[at].text))?, &args[at + 1..]))
    });
    let known = |at: usize| {
        let (verb, line) = (verb?, line.as_ref()?);
        let part = line.parts.get(at.checked_sub(verb + 1)?)?;
        Some(matches!(part, Part::TextValue | Part::OptionWithText | Part::Pattern))
    };
    let guessed = |at: usize| {
        let text = &args[at].text;
        let attached = TEXT_FLAGS.iter().any(|flag| {
            if flag.starts_with("--") {
                text.split_once('=').is_some_and(|(given, _)| given == *flag)
            } else {
                text.starts_with(flag) && text.len() > 2
            }
        });
        let after_flag = at > 0 && {
            let before = args[at - 1].text.as_str();
            TEXT_FLAGS.contains(&before)
                // `commit -am message`
                || (before.starts_with('-')
                    && !before.starts_with("--")
                    && before.ends_with('m')
                    && before.len() <= 4)
        };
        attached || after_flag
    };
    (0..args.len()).map(|at| verb == Some(at) || known(at).unwrap_or_else(|| guessed(at))).collect()
}

impl Analysis<'_> {
    pub(super) fn judge_git(&mut self, args: &[Arg]) -> Result<bool, String> {
        let parts = split_options(args);
        self.git_code(args, &parts);
        let outer = (self.scope.cwd.clone(), self.scope.visited.clone());
        if let Some(directory) = &parts.directory {
            self.read_path(directory);
            self.scope.cwd = normalise_path(&outer.0, &directory.text);
            if directory.text.starts_with('/') {
                self.scope.visited.clear();
            }
        }
        let verdict = self.git_verb(args, &parts);
        (self.scope.cwd, self.scope.visited) = outer;
        verdict
    }

    /// Checks every place in which git takes a command, for any verb.
    fn git_code(&mut self, args: &[Arg], parts: &Parts) {
        for setting in &parts.config {
            if let Some((_, value)) = setting.text.split_once('=') {
                self.probe_code(value, "a git setting");
            }
        }
        let Some(verb) = parts.verb else { return };
        let rest = &args[verb + 1..];
        match args[verb].text.as_str() {
            "submodule" | "bisect" | "rebase" | "filter-branch" | "difftool" | "mergetool" | "clone"
            | "fetch" | "pull" | "push" | "ls-remote" | "archive" | "config" | "worktree" | "grep"
            | "send-email" | "maintenance" | "replay" => {
                let mut words = rest.iter();
                while let Some(word) = words.next() {
                    let text = word.text.as_str();
                    if matches!(text, "foreach" | "run") {
                        let code: Vec<&str> = words
                            .clone()
                            .skip_while(|w| w.text.starts_with("--"))
                            .map(|w| w.text.as_str())
                            .collect();
                        self.probe_code(&code.join(" "), "git");
                    }
                    if let Some((_, value)) = text.split_once('=') {
                        self.probe_code(value, "a git option");
                    } else if text.contains(char::is_whitespace) || words.clone().count() == 0 {
                        self.probe_text(text, "a git option", !text.starts_with('!'));
                    } else if CODE_OPTIONS.contains(&text)
                        && let Some(code) = words.clone().next()
                    {
                        self.probe_code(&code.text.clone(), "a git option");
                    }
                    if let Some(code) = text.strip_prefix("ext::") {
                        self.probe_code(code, "a git remote");
                    }
                }
            }
            _ => {}
        }
    }

    fn git_verb(&mut self, args: &[Arg], parts: &Parts) -> Result<bool, String> {
        if let Some(refused) = &parts.refused {
            return Err(refused.clone());
        }
        if parts.directory.as_ref().is_some_and(|directory| leaves_upwards(&directory.text)) {
            return Err("`..` in -C may lead out of the target of a link".to_owned());
        }
        for setting in &parts.config {
            if !is_harmless_setting(setting) {
                return Err(format!("-c {} may run a program", setting.display_text()));
            }
        }
        let Some(verb_at) = parts.verb else {
            return if args.is_empty()
                || args.iter().any(|a| a.text == "--version" || a.text == "-v" || a.text.ends_with("-path"))
            {
                Ok(true)
            } else {
                Err("there is no verb".to_owned())
            };
        };
        let verb = args[verb_at].text.as_str();
        let rest = &args[verb_at + 1..];
        let reading =
            find_entry(&format!("git/{verb}")).map(|entry| (entry.operands, read_command_line(entry, rest)));
        let Some((operands, line)) = reading else {
            let text = text_words(args);
            for (at, operand) in rest.iter().enumerate() {
                if !operand.text.starts_with('-') && !text[verb_at + 1 + at] {
                    self.git_operand(operand, true);
                }
            }
            return Err(format!("git {verb} is not known to only read"));
        };
        let problem = line.problem.clone().or_else(|| {
            let reads = verb_reads(verb, &line, rest);
            (!reads).then(|| format!("git {verb} used like this is not known to only read"))
        });
        for path in line.path_values() {
            self.read_path(path);
        }
        self.refuse_git_hunt(verb, &line, rest);
        for at in line.operand_positions() {
            self.git_operand(&rest[at], problem.is_some() && operands != Operands::Pattern);
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
        let asks_for_signatures =
            |value: &Arg| value.text.contains("%G") || value.text.contains("(signature");
        if line.option_values(&["format", "pretty"]).any(asks_for_signatures) {
            return Err("the format checks signatures, which runs a program".to_owned());
        }
        for (option, values) in ONLY_VALUES {
            let other = |value: &&Arg| !value.known_text().is_some_and(|text| values.contains(&text));
            if let Some(value) = line.option_values(&[option]).find(other) {
                return Err(format!("--{option}={} is not known to only read", value.display_text()));
            }
        }
        // The settings are listed in the directory in which the step starts.
        let is_own = |directory: &String| *directory == self.start;
        if !is_own(&self.scope.cwd) || !self.scope.visited.iter().all(is_own) {
            return Err("a repository in another directory may have settings that run code".to_owned());
        }
        Ok(true)
    }

    /// A revision, path, or `revision:path`.
    fn git_operand(&mut self, operand: &Arg, writes: bool) {
        if operand.unknown_start {
            return;
        }
        let text = operand.text.as_str();
        let path = text.split_once(':').filter(|_| !text.contains("://")).map_or(text, |(_, path)| path);
        let path = normalise_path(&self.scope.cwd, path);
        self.refuse_secret(&path, operand.stands_for_names());
        if writes && self.roots.is_protected(&path) {
            self.add_denial("protected", format!("{} is protected", rule_path(&path, self.env)));
        } else if text.starts_with('/') && !writes && !self.roots.is_readable(&path) {
            self.ask_to_read_outside(&path);
        }
    }
}

/// True if a verb that can change things only reads with these words.
fn verb_reads(verb: &str, line: &CommandLine, args: &[Arg]) -> bool {
    let operands: Vec<&str> = line.operand_positions().map(|at| args[at].text.as_str()).collect();
    let first = operands.first().copied();
    const FILTERS: &[&str] =
        &["list", "contains", "no-contains", "merged", "no-merged", "points-at", "show-current"];
    match verb {
        "branch" => operands.is_empty() || line.has_option(FILTERS),
        "tag" => operands.is_empty() || line.has_option(FILTERS) || line.has_option(&["l"]),
        "remote" => matches!(first, None | Some("get-url")),
        "stash" => matches!(first, Some("list" | "show")),
        "worktree" => first == Some("list"),
        "notes" => matches!(first, None | Some("list" | "show")),
        "reflog" => match first {
            None | Some("show" | "exists" | "HEAD") => true,
            Some(reference) => reference.contains('@'),
        },
        "bisect" => matches!(first, Some("log" | "terms")),
        // They ignore `diff.ignoreSubmodules`: only their own option keeps them out of the submodules.
        "diff-files" => line.has_option(&["ignore-submodules"]),
        "diff-index" => line.has_option(&["cached", "ignore-submodules"]),
        "symbolic-ref" => operands.len() == 1,
        "config" => {
            line.has_option(&[
                "get",
                "get-all",
                "get-regexp",
                "get-urlmatch",
                "list",
                "l",
                "get-color",
                "get-colorbool",
            ]) || matches!(first, Some("get" | "list"))
                || (operands.len() == 1 && operands[0].contains('.') && !line.has_option(&["default"]))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_read_only(verb: &str, words: &[&str]) -> bool {
        let args: Vec<Arg> = words.iter().map(|word| Arg::literal(*word)).collect();
        let line = read_command_line(find_entry(&format!("git/{verb}")).unwrap(), &args);
        line.problem.is_none() && verb_reads(verb, &line, &args)
    }

    #[test]
    fn forms_that_only_read_are_known() {
        assert!(is_read_only("branch", &[]));
        assert!(is_read_only("branch", &["-a", "-v"]));
        assert!(is_read_only("branch", &["--list", "v*"]));
        assert!(is_read_only("branch", &["--contains", "HEAD"]));
        assert!(!is_read_only("branch", &["new"]));
        assert!(!is_read_only("branch", &["-D", "main"]));
        assert!(!is_read_only("branch", &["-vD", "main"]));
        assert!(!is_read_only("branch", &["--delete", "main"]));
        assert!(!is_read_only("branch", &["--del", "main"]));
        assert!(is_read_only("log", &["-S", "rm -rf", "--oneline", "-20"]));
        assert!(is_read_only("diff", &["--stat", "HEAD~1", "--", "*.sh"]));
        assert!(!is_read_only("log", &["--outp=x"]));
        assert!(!is_read_only("log", &["--show-signature"]));
        assert!(is_read_only("diff-files", &["--ignore-submodules", "-p"]));
        assert!(!is_read_only("diff-files", &["-p"]));
        assert!(is_read_only("diff-index", &["--cached", "HEAD"]));
        assert!(!is_read_only("diff-index", &["HEAD"]));
        assert!(!is_read_only("diff-index", &["HEAD", "--", "--cached"]));
        assert!(is_read_only("describe", &["--tags", "--always"]));
        assert!(!is_read_only("describe", &["--always", "--dirty"]));
        assert!(!is_read_only("log", &["--unheard-of"]));
        assert!(!is_read_only("reflog", &["--all", "expire"]));
        assert!(!is_read_only("remote", &["-v", "update"]));
        assert!(is_read_only("config", &["--get", "user.email"]));
        assert!(is_read_only("config", &["user.email"]));
        assert!(!is_read_only("config", &["edit"]));
        assert!(!is_read_only("config", &["user.email", "x"]));
        assert!(!is_read_only("config", &["set", "user.email", "x"]));
    }
}
