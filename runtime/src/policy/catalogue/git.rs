//! git: its reading verbs, and the many ways it runs programs.

use super::super::analysis::{Analysis, Arg};
use super::super::effects::plain_operands;
use super::super::paths::normalise;
use super::super::rules::is_flag;

/// Verbs that only read, whatever their operands.
const READS: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "annotate",
    "shortlog",
    "describe",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "cat-file",
    "check-ignore",
    "check-attr",
    "check-mailmap",
    "check-ref-format",
    "grep",
    "name-rev",
    "merge-base",
    "for-each-ref",
    "show-ref",
    "show-branch",
    "diff-tree",
    "diff-index",
    "diff-files",
    "whatchanged",
    "count-objects",
    "var",
    "cherry",
    "range-diff",
    "verify-pack",
    "fsck",
    "version",
    "patch-id",
    "get-tar-commit-id",
    "stripspace",
    "column",
    "interpret-trailers",
];

/// Options that make a reading verb run a program or write a file.
const REFUSED: &[&str] = &[
    "--ext-diff",
    "--output",
    "--open-files-in-pager",
    "--textconv",
    "--filters",
    "--exec",
    "--upload-pack",
    "--lost-found",
    "--in-place",
];

/// Words whose value is a message, a pattern or a format.
const TEXT_FLAGS: &[&str] = &[
    "-m",
    "--message",
    "--grep",
    "--author",
    "--committer",
    "-S",
    "-G",
    "--format",
    "--pretty",
    "-L",
    "--since",
    "--until",
    "--after",
    "--before",
    "--date",
    "-e",
    "--sort",
    "-n",
    "-U",
    "--trailer",
    "--title",
    "--body",
];

/// Configuration that changes nothing but what is printed.
const HARMLESS_CONFIG: &[&str] = &[
    "color.",
    "core.quotepath",
    "log.date",
    "log.decorate",
    "diff.renames",
    "column.",
    "advice.",
    "core.abbrev",
    "diff.algorithm",
    "status.",
];

struct Parts {
    verb: Option<usize>,
    directory: Option<Arg>,
    config: Vec<Arg>,
    refused: Option<String>,
}

/// Splits off git's own options before the verb.
fn split(args: &[Arg]) -> Parts {
    let mut parts = Parts { verb: None, directory: None, config: Vec::new(), refused: None };
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let text = arg.text.as_str();
        match text {
            "-C" => {
                parts.directory = args.get(at + 1).cloned();
                at += 2;
            }
            "-c" | "--config-env" => {
                parts.config.extend(args.get(at + 1).cloned());
                at += 2;
            }
            "--no-pager"
            | "-P"
            | "--no-optional-locks"
            | "--literal-pathspecs"
            | "--glob-pathspecs"
            | "--noglob-pathspecs"
            | "--icase-pathspecs"
            | "--no-replace-objects"
            | "--version"
            | "-v"
            | "--no-lazy-fetch"
            | "--no-advice"
            | "--exec-path"
            | "--html-path"
            | "--man-path"
            | "--info-path" => at += 1,
            _ if text.starts_with("-c") && text.len() > 2 && !text.starts_with("--") => {
                parts.config.push(Arg { text: text[2..].to_owned(), ..arg.clone() });
                at += 1;
            }
            _ if text.starts_with('-') || arg.unknown_start => {
                parts.refused = Some(format!("{} changes what git runs or where", arg.shown()));
                // These take a word of their own.
                at += if matches!(
                    text,
                    "--git-dir" | "--work-tree" | "--namespace" | "--super-prefix" | "--attr-source"
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

/// Whether the word at `at` is a message, pattern or format.
pub(super) fn is_text_at(args: &[Arg], at: usize) -> bool {
    let text = &args[at].text;
    let verb = split(args).verb;
    if verb == Some(at) {
        return true;
    }
    let attached = TEXT_FLAGS.iter().any(|flag| {
        if flag.starts_with("--") {
            text.split_once('=').is_some_and(|(given, _)| given == *flag)
        } else {
            text.starts_with(flag) && text.len() > 2
        }
    });
    let pattern = verb.is_some_and(|v| {
        args[v].text == "grep"
            && args[v + 1..].iter().position(|a| !a.text.starts_with('-')).map(|n| v + 1 + n) == Some(at)
    });
    let after_flag = at > 0
        && {
            let before = args[at - 1].text.as_str();
            TEXT_FLAGS.contains(&before)
            // `commit -am message`
            || (before.starts_with('-') && !before.starts_with("--") && before.ends_with('m') && before.len() <= 4)
        };
    attached || pattern || after_flag
}

impl Analysis<'_> {
    pub(super) fn git(&mut self, args: &[Arg]) -> Result<bool, String> {
        let parts = split(args);
        self.git_code(args, &parts);
        let cwd = self.scope.cwd.clone();
        if let Some(directory) = &parts.directory {
            self.read_path(directory);
            self.scope.cwd = normalise(&cwd, &directory.text);
        }
        let verdict = self.git_verb(args, &parts);
        self.scope.cwd = cwd;
        verdict
    }

    /// Looks at every place where git takes a command, whatever the verb.
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
                    } else if matches!(
                        text,
                        "--exec"
                            | "-x"
                            | "--upload-pack"
                            | "-u"
                            | "--receive-pack"
                            | "--extcmd"
                            | "--tree-filter"
                            | "--index-filter"
                            | "--msg-filter"
                            | "--env-filter"
                            | "--commit-filter"
                            | "--parent-filter"
                            | "--tag-name-filter"
                    ) && let Some(code) = words.clone().next()
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
        for setting in &parts.config {
            if !HARMLESS_CONFIG.iter().any(|key| setting.text.to_ascii_lowercase().starts_with(key)) {
                return Err(format!("-c {} may run a program", setting.shown()));
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
        let before_paths: Vec<&Arg> = rest.iter().take_while(|a| a.text != "--").collect();
        if before_paths.iter().any(|a| a.may_be_flag()) {
            return Err("a word that is not known yet may turn into an option".to_owned());
        }
        for arg in &before_paths {
            if let Some(flag) = REFUSED.iter().find(|flag| arg.text.len() > 4 && is_flag(&arg.text, flag)) {
                return Err(format!("{flag} runs a program or writes a file"));
            }
        }
        if verb == "grep" && before_paths.iter().any(|a| a.text.starts_with("-O")) {
            return Err("-O opens the matches with a program".to_owned());
        }
        let words: Vec<&str> = before_paths.iter().map(|a| a.text.as_str()).collect();
        let reads = match verb {
            verb if READS.contains(&verb) => true,
            "branch" => lists(
                &words,
                &["-d", "-D", "-m", "-M", "-c", "-C", "-u", "-f", "-t", "-l"],
                &[
                    "--delete",
                    "--move",
                    "--copy",
                    "--set-upstream-to",
                    "--unset-upstream",
                    "--edit-description",
                    "--force",
                    "--track",
                    "--no-track",
                    "--create-reflog",
                ],
            ),
            "tag" => lists(
                &words,
                &["-a", "-s", "-u", "-f", "-d", "-m", "-F", "-e", "-v"],
                &[
                    "--annotate",
                    "--sign",
                    "--local-user",
                    "--force",
                    "--delete",
                    "--message",
                    "--file",
                    "--edit",
                    "--verify",
                    "--create-reflog",
                ],
            ),
            "remote" => matches!(words.as_slice(), [] | ["-v" | "--verbose"] | ["get-url", ..]),
            "stash" => matches!(words.first(), Some(&"list" | &"show")),
            "worktree" => words.first() == Some(&"list"),
            "submodule" => matches!(words.first(), None | Some(&"status" | &"summary")),
            "notes" => matches!(words.first(), None | Some(&"list" | &"show")),
            "reflog" => {
                matches!(words.first(), None | Some(&"show" | &"exists"))
                    || words.first().is_some_and(|w| w.starts_with('-') || w.contains('@'))
            }
            "bisect" => matches!(words.first(), Some(&"log" | &"view" | &"terms")),
            "symbolic-ref" => {
                words.iter().filter(|w| !w.starts_with('-')).count() == 1
                    && !words.iter().any(|w| w.starts_with("-d") || w.starts_with("--d"))
            }
            "config" => self.git_config_reads(&before_paths),
            _ => false,
        };
        if reads {
            for operand in plain_operands(rest) {
                self.git_operand(&operand, false);
            }
            return Ok(true);
        }
        for (at, operand) in rest.iter().enumerate() {
            if !operand.text.starts_with('-') && !is_text_at(args, verb_at + 1 + at) {
                self.git_operand(operand, true);
            }
        }
        Err(format!("git {verb} is not known to only read"))
    }

    fn git_config_reads(&mut self, words: &[&Arg]) -> bool {
        const READ: &[&str] = &[
            "--get",
            "--get-all",
            "--get-regexp",
            "--get-urlmatch",
            "--list",
            "-l",
            "--get-color",
            "--get-colorbool",
            "get",
            "list",
        ];
        const SCOPE: &[&str] = &[
            "--global",
            "--local",
            "--system",
            "--worktree",
            "--show-origin",
            "--show-scope",
            "-z",
            "--null",
            "--name-only",
            "--bool",
            "--int",
            "--path",
            "--includes",
            "--no-includes",
            "--all",
            "--default",
            "--regexp",
        ];
        let mut verb = false;
        let mut operands = 0;
        let mut iter = words.iter();
        while let Some(word) = iter.next() {
            let text = word.text.as_str();
            if READ.contains(&text) && operands == 0 {
                verb = true;
            } else if text == "-f" || text == "--file" || text == "--blob" {
                if let Some(file) = iter.next() {
                    self.read_path(&(*file).clone());
                }
            } else if let Some(file) = text.strip_prefix("--file=") {
                self.read_path(&Arg::literal(file));
            } else if SCOPE.contains(&text) || text.starts_with("--type=") || text.starts_with("--default=") {
            } else if text.starts_with('-') {
                return false;
            } else {
                operands += 1;
            }
        }
        verb || operands == 1
    }

    /// A revision, path, or `revision:path`.
    fn git_operand(&mut self, operand: &Arg, writes: bool) {
        if operand.unknown_start {
            return;
        }
        let text = operand.text.as_str();
        let path = text.split_once(':').filter(|_| !text.contains("://")).map_or(text, |(_, path)| path);
        let path = normalise(&self.scope.cwd, path);
        self.refuse_secret(&path, operand.glob);
        if writes && self.roots.is_protected(&path) {
            self.deny("protected", format!("{path} is protected"));
        } else if text.starts_with('/') && !writes && !self.roots.is_readable(&path) {
            self.ask("read-outside", format!("{path} is outside the read roots"));
        }
    }
}

/// Whether `branch` or `tag` with these words only lists.
fn lists(words: &[&str], short: &[&str], long: &[&str]) -> bool {
    const TAKES: &[&str] = &[
        "--contains",
        "--no-contains",
        "--merged",
        "--no-merged",
        "--points-at",
        "--sort",
        "--format",
        "-n",
        "--column",
        "--color",
    ];
    let refused = words.iter().any(|w| {
        short.iter().any(|f| is_flag(w, f) && *f != "-l") || long.iter().any(|f| w.len() > 3 && is_flag(w, f))
    });
    if refused {
        return false;
    }
    let listing = words.iter().any(|w| matches!(*w, "-l" | "--list"));
    let mut operands = 0;
    let mut iter = words.iter().peekable();
    while let Some(word) = iter.next() {
        if TAKES.contains(word) {
            if iter.peek().is_some_and(|next| !next.starts_with('-')) {
                iter.next();
            }
        } else if !word.starts_with('-') {
            operands += 1;
        }
    }
    listing || operands == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_and_tag_list_forms_are_known() {
        let branch = |w: &[&str]| lists(w, &["-d", "-D", "-m", "-f"], &["--delete", "--force"]);
        assert!(branch(&[]));
        assert!(branch(&["-a", "-v"]));
        assert!(branch(&["--list", "v*"]));
        assert!(branch(&["--contains", "HEAD"]));
        assert!(!branch(&["new"]));
        assert!(!branch(&["-D", "main"]));
        assert!(!branch(&["--delete", "main"]));
        assert!(!branch(&["--del", "main"]));
    }
}
