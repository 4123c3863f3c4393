//! Shell builtins and their effects on later words.

use super::analysis::{Analysis, Arg, Flow};
use super::command::{Invocation, combined_taint, skip_flags};
use super::output::{disputes_printf, echo_output, printf_output};
use super::paths::{leaves_upwards, normalise_path};
use super::shell::is_name;

/// Builtins that only some shells have or that differ between shells, and builtins that change how
/// later text is read.
const BEYOND: &[&str] = text_list!("lists/builtins-beyond.txt");

/// Options of `set` that do not affect later words.
const PLAIN_OPTIONS: &str = "efuxvnCbmh";

/// Options of `set -o` that do not affect later words.
const PLAIN_NAMES: &[&str] = text_list!("lists/plain-shell-options.txt");

impl Analysis<'_> {
    /// Follows a builtin of the shell. `None` if the name is a program.
    pub(crate) fn follow_builtin(&mut self, name: &str, inv: &Invocation) -> Option<Flow> {
        let args = &inv.args[1..];
        let quiet = Flow { known: Some(String::new()), ..Flow::default() };
        if BEYOND.contains(&name) {
            self.flag_unsupported(&format!("`{name}`"));
        }
        match name {
            "eval" => {
                return Some(self.follow_eval(args));
            }
            "trap" => self.follow_trap(args),
            "." | "source" => {
                self.source(args);
                return Some(Flow { shell: true, ..Flow::default() });
            }
            "exec" => return Some(self.follow_exec(inv)),
            "command" => {
                let rest = skip_flags(args);
                self.own_words(name, &args[..args.len() - rest.len()], &[], rest);
                let lookup = args[..args.len() - rest.len()]
                    .iter()
                    .any(|a| a.text.contains(['v', 'V']) && a.text.starts_with('-'));
                if lookup || rest.is_empty() {
                    self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
                    return Some(Flow::default());
                }
                return Some(self.follow_wrapped_command(rest.to_vec(), inv, true));
            }
            "builtin" => {
                let rest = skip_flags(args);
                self.own_words(name, &args[..args.len() - rest.len()], &[], rest);
                if rest.is_empty() {
                    return Some(quiet);
                }
                return Some(self.follow_wrapped_command(rest.to_vec(), inv, true));
            }
            "printf" => {
                self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
                return Some(self.follow_printf(args));
            }
            "echo" => {
                self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
                let (known, disputed) = echo_output(args);
                return Some(Flow { known, disputed, taint: combined_taint(args), ..Flow::default() });
            }
            "[[" => args.iter().for_each(|arg| self.judge_evaluated(arg)),
            "test" | "[" => {
                self.follow_test(args);
                self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
            }
            "cd" | "chdir" => {
                let target = skip_flags(args).first().cloned();
                self.change_directory(target.as_ref());
            }
            "pushd" | "popd" => match args.iter().find(|a| !a.text.starts_with(['-', '+'])) {
                Some(target) => self.change_directory(Some(&target.clone())),
                None => self.note_visited(self.scope.cwd.clone()),
            },
            ":" | "true" | "false" | "pwd" | "exit" | "return" | "break" | "continue" | "jobs" | "fg"
            | "bg" | "times" | "type" | "umask" => {
                self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
            }
            _ if self.variable_builtin(name, args)
                || self.option_builtin(name, args)
                || BEYOND.contains(&name) => {}
            _ => return None,
        }
        Some(quiet)
    }

    /// `test` and `[`: bash evaluates the subscript in the argument of `-v`.
    fn follow_test(&mut self, args: &[Arg]) {
        for (at, arg) in args.iter().enumerate().filter(|(_, arg)| arg.may_be("-v") || arg.may_be("-R")) {
            let next = args.get(at + 1).cloned().unwrap_or_default();
            self.judge_evaluated(&next);
            if arg.known_text().is_some() {
                self.flag_unsupported("`test -v`");
            } else if arg.loose || arg.glob || (next.depends_on_data() && !next.numeric) {
                self.ask_hint(
                    "arithmetic-data",
                    "data that is not quoted may become -v and a subscript, which is evaluated",
                    "put it in double quotes",
                );
            }
        }
    }

    /// Builtins that change variables or positional parameters; false for any other.
    fn variable_builtin(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                let is_flag = |arg: &&Arg| arg.text.starts_with(['-', '+']);
                if name != "export" && args.iter().filter(is_flag).any(|flag| flag.text.contains('n')) {
                    self.add_denial("nameref", "a name reference can stand for any variable");
                }
                for arg in args.iter().filter(|arg| !is_flag(arg)) {
                    self.follow_declaration(name, arg);
                }
                if name == "export" && args.iter().any(|arg| arg.text.starts_with('-') && arg.text != "-p") {
                    self.flag_unsupported("an option of `export`");
                }
            }
            "unset" => {
                for arg in args {
                    if arg.known_text().is_some_and(is_name) {
                        self.assign_variable(&arg.text, Arg::unset());
                    } else {
                        self.flag_unsupported("`unset` with anything but a plain name");
                        self.judge_evaluated(arg);
                        self.check_assignment(&arg.text, &Arg::unset());
                    }
                }
            }
            "read" => {
                for arg in args {
                    match arg.known_text() {
                        Some("-r") => {}
                        Some(name) if is_name(name) => self.assign_variable(name, Arg::unknown()),
                        Some(_) | None => {
                            self.flag_unsupported("`read` with anything but `-r` and plain names");
                            self.check_assignment(&arg.text, &Arg::unknown());
                        }
                    }
                }
                if !args.iter().any(|arg| arg.known_text().is_some_and(is_name)) {
                    self.assign_variable("REPLY", Arg::unknown());
                }
            }
            "getopts" | "mapfile" | "readarray" | "let" => {
                for arg in args {
                    let name: &str = arg.text.split(['=', '+', '[']).next().unwrap_or("");
                    if is_name(name) {
                        self.assign_variable(name, Arg::unknown());
                    }
                    self.judge_evaluated(arg);
                }
            }
            "shift" => {
                self.scope.positional.clear();
                self.scope.positional_unknown = true;
            }
            "wait" => {
                if args.iter().any(|arg| arg.may_be_flag() || arg.text.starts_with('-')) {
                    self.flag_unsupported("an option of `wait`");
                }
            }
            _ => return false,
        }
        true
    }

    /// Follows one argument of `export` or another declaration: a name, with its value if it has one.
    fn follow_declaration(&mut self, by: &str, arg: &Arg) {
        let (name, value) = match arg.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.text.as_str(), None),
        };
        if !is_name(name)
            || (arg.unknown
                && arg.unknown_at <= name.len()
                && value.is_none_or(|_| arg.unknown_at < name.len()))
        {
            self.require_approval("dynamic", format!("{by} gets a name that is not known"));
            self.check_assignment(name, &Arg::unknown());
            return;
        }
        let value_at = name.len() + "=".len();
        let value = match value {
            Some(value) => Arg {
                text: value.to_owned(),
                unknown_at: arg.unknown_at.saturating_sub(value_at),
                unknown_start: arg.unknown && arg.unknown_at <= value_at,
                ..arg.clone()
            },
            None => Arg { unset: true, ..Arg::unknown() },
        };
        if by == "export" {
            self.check_exported(name, &value);
        } else {
            self.check_assignment(name, &value);
        }
        if arg.text.contains('=') {
            self.set_variable(name, value);
        }
    }

    /// Builtins that change how the shell itself works; false for any other.
    fn option_builtin(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "set" => self.set_builtin(args),
            "alias" => {
                if args.iter().any(|a| a.text != "-p") {
                    self.add_denial("alias", "an alias changes what later words mean");
                    for arg in args {
                        if let Some((_, value)) = arg.text.split_once('=') {
                            self.probe_code(value, "an alias");
                        }
                    }
                }
            }
            "hash" => {
                let changes = |a: &Arg| {
                    a.depends_on_data()
                        || a.text.contains('=')
                        || (a.text.starts_with(['-', '+']) && a.text.contains('p'))
                };
                if args.iter().any(changes) {
                    self.add_denial("command-table", "hash changes which file a name runs");
                }
            }
            "enable" => {
                if args.iter().any(|a| a.text.starts_with("-f") || a.unknown) {
                    self.add_denial("command-table", "enable -f loads code into the shell");
                }
            }
            "shopt" => {
                if args.iter().any(|a| a.text == "expand_aliases") {
                    self.add_denial("alias", "aliases change what later words mean");
                }
            }
            "ulimit" => {
                if args.iter().any(|a| !a.text.starts_with('-')) {
                    self.require_approval("limits", "ulimit changes the step's own limits");
                }
            }
            _ => return false,
        }
        true
    }

    fn follow_eval(&mut self, args: &[Arg]) -> Flow {
        if args.is_empty() {
            return Flow::default();
        }
        if let Some(code) = self.code_text(args, "eval") {
            self.one_level_deeper(|a| {
                let span = a.span;
                let flow = a.walk_text(&code);
                a.span = span;
                flow
            })
        } else {
            Flow { shell: true, ..Flow::default() }
        }
    }

    fn follow_trap(&mut self, args: &[Arg]) {
        let args = match args.first() {
            Some(first) if first.text == "--" => &args[1..],
            Some(first) if matches!(first.text.as_str(), "-l" | "-p" | "-") => return,
            _ => args,
        };
        if args.len() < 2 {
            return;
        }
        let code = args[0].clone();
        if code.text.is_empty() && !code.unknown {
            return;
        }
        if let Some(text) = self.code_text(std::slice::from_ref(&code), "trap") {
            // At that time, the shell's directory and arguments are unknown.
            let somewhere = format!("{}/*", self.scope.cwd);
            self.note_visited(somewhere);
            self.one_level_deeper(|a| {
                a.in_subshell(|a| {
                    a.scope.positional.clear();
                    a.scope.positional_unknown = true;
                    a.walk_text(&text);
                });
            });
        }
    }

    fn source(&mut self, args: &[Arg]) {
        self.facts.opaque = true;
        if combined_taint(args).network {
            self.add_hard_block("download-run", "source runs code that comes from the network", None);
        }
        if combined_taint(args).decoded {
            self.add_denial("obfuscated", "source runs decoded data");
        }
        self.record_draw("source", Vec::new(), false);
        self.require_approval("script", "source runs a file whose content is not shown");
        if let Some(file) = args.first() {
            self.read_path(file);
        }
    }

    fn follow_exec(&mut self, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        let mut values = Vec::new();
        let mut at = 0;
        while let Some(arg) = args.get(at)
            && let Some(flags) = arg.text.strip_prefix('-').filter(|flags| !flags.is_empty())
        {
            at += 1;
            if flags == "-" {
                break;
            }
            let name_at = flags.find('a');
            if !flags[..name_at.unwrap_or(flags.len())].chars().all(|c| matches!(c, 'c' | 'l')) {
                self.require_approval(
                    "wrapper",
                    format!("option {} of exec is not known", arg.display_text()),
                );
            }
            if name_at.is_some_and(|name| name + 1 == flags.len()) && !arg.unknown {
                values.push(at);
                at += 1;
            }
        }
        let (own, rest) = args.split_at(at.min(args.len()));
        self.own_words("exec", own, &values, rest);
        self.follow_wrapped_command(rest.to_vec(), inv, false)
    }

    fn follow_printf(&mut self, args: &[Arg]) -> Flow {
        if let Some(first) = args.first()
            && (first.text.starts_with("-v") || (first.depends_on_data() && first.may_be("-v")))
        {
            self.flag_unsupported("`printf -v`");
            if let Some(name) = args.get(1) {
                self.check_assignment(&name.text, &Arg::unknown());
                if let Some(name) = name.known_text().filter(|name| is_name(name)) {
                    let value =
                        printf_output(args.get(2..).unwrap_or(&[])).map_or_else(Arg::unknown, Arg::literal);
                    self.set_variable(name, value);
                }
            }
            return Flow::default();
        }
        let args = if args.first().is_some_and(|a| a.text == "--") { &args[1..] } else { args };
        Flow {
            known: printf_output(args),
            disputed: disputes_printf(args),
            taint: combined_taint(args),
            ..Flow::default()
        }
    }

    fn change_directory(&mut self, target: Option<&Arg>) {
        let home = self.expand_tilde("").text;
        let next = match target {
            None => home,
            // An empty unquoted word is no word: cd goes home.
            Some(arg) if arg.unknown_start && arg.text.is_empty() && !arg.quoted => home,
            Some(arg) => normalise_path(&self.scope.cwd, &arg.text),
        };
        if let Some(arg) = target {
            if arg.known_text() == Some("-") {
                return self.note_visited(self.scope.cwd.clone());
            }
            if !arg.is_settled() {
                self.require_approval("dynamic", "the directory changes to a place that is not known");
            } else {
                self.read_path(arg);
            }
        }
        if let Some(arg) = target {
            self.note_upward(&arg.text);
        }
        self.enter_directory(next);
    }

    /// Notes that `target` may lead to another directory than its words say, if a link precedes a `..`.
    pub(crate) fn note_upward(&mut self, target: &str) {
        if leaves_upwards(target) {
            self.note_visited(format!("{}/{target}", self.scope.cwd));
        }
    }

    /// Records that the shell is in `directory` now, if it could enter it.
    pub(crate) fn enter_directory(&mut self, directory: String) {
        self.scope.cwd = directory.clone();
        if directory != self.start {
            self.note_visited(directory);
        }
    }

    pub(crate) fn note_visited(&mut self, directory: String) {
        if !self.scope.visited.contains(&directory) {
            self.scope.visited.push(directory);
        }
    }

    fn set_builtin(&mut self, args: &[Arg]) {
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let is_plain = match arg.known_text() {
                Some("-o" | "+o") => rest
                    .next()
                    .is_none_or(|name| name.known_text().is_some_and(|name| PLAIN_NAMES.contains(&name))),
                Some(text) => match text.strip_prefix(['-', '+']) {
                    Some(flags) if flags.ends_with('o') => {
                        flags[..flags.len() - 1].chars().all(|c| PLAIN_OPTIONS.contains(c))
                            && rest
                                .next()
                                .and_then(Arg::known_text)
                                .is_some_and(|name| PLAIN_NAMES.contains(&name))
                    }
                    Some(flags) => !flags.is_empty() && flags.chars().all(|c| PLAIN_OPTIONS.contains(c)),
                    None => false,
                },
                None => false,
            };
            if !is_plain {
                self.flag_unsupported("`set` with arguments, or with options that change how text is read");
                let list = args.iter().skip_while(|arg| arg.text.starts_with(['-', '+'])).cloned();
                self.scope.positional = list.map(Arg::after_matching).collect();
                self.scope.positional_unknown = false;
                return;
            }
        }
    }
}
