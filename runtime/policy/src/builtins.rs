//! The commands bash itself carries out: what they change for later words.

use super::analysis::{Analysis, Arg, Call, Flow, is_too_much};
use super::command::{Assignment, Invocation, skip_flags, taint};
use super::dialect::Dialect;
use super::expand::is_name;
use super::output::{disputes_printf, echo, printf};
use super::paths::normalise;

/// Builtins that bash has and the others have not, or not with the same effect.
const BASH_ONLY: &[&str] = &[
    "source",
    "declare",
    "typeset",
    "let",
    "pushd",
    "popd",
    "dirs",
    "shopt",
    "mapfile",
    "readarray",
    "enable",
    "builtin",
    "caller",
    "compgen",
    "complete",
    "compopt",
    "bind",
    "disown",
    "help",
    "suspend",
    "logout",
    "history",
];

/// Options of `set` that leave the meaning of later words alone.
const PLAIN_OPTIONS: &str = "efuxvnCbmhETo";

/// Options of `shopt` that leave the meaning of later words alone.
const HARMLESS_SHOPT: &[&str] =
    &["nullglob", "failglob", "globstar", "nocaseglob", "nocasematch", "inherit_errexit", "checkwinsize"];

/// What a declaration makes of its names.
struct Declared {
    exported: bool,
    integer: bool,
    readonly: bool,
    local: bool,
    array: bool,
}

impl Analysis<'_> {
    /// The shell's own commands. `None` when the name is a program.
    pub(crate) fn builtin(&mut self, name: &str, inv: &Invocation) -> Option<Flow> {
        let args = &inv.args[1..];
        let quiet = Flow { known: Some(String::new()), ..Flow::default() };
        if self.dialect != Dialect::Bash && BASH_ONLY.contains(&name) {
            let shell = self.dialect.name();
            self.refuse_dialect(format!(
                "{name} is a builtin of bash, and not the same or none at all of {shell}"
            ));
        }
        match name {
            "eval" => {
                return Some(self.eval(args));
            }
            "trap" => self.trap(args),
            "." | "source" => {
                self.source(args);
                return Some(Flow { shell: true, ..Flow::default() });
            }
            "exec" => return Some(self.exec(inv)),
            "command" => {
                let rest = skip_flags(args);
                self.own_words(name, &args[..args.len() - rest.len()], &[], rest);
                let lookup = args[..args.len() - rest.len()]
                    .iter()
                    .any(|a| a.text.contains(['v', 'V']) && a.text.starts_with('-'));
                if lookup || rest.is_empty() {
                    self.record(&inv.args, None, vec!["catalogue".to_owned()]);
                    return Some(Flow::default());
                }
                return Some(self.inner(rest.to_vec(), inv, true));
            }
            "builtin" => {
                let rest = skip_flags(args);
                self.own_words(name, &args[..args.len() - rest.len()], &[], rest);
                if rest.is_empty() {
                    return Some(quiet);
                }
                let saved = std::mem::take(&mut self.scope.functions);
                let flow = self.inner(rest.to_vec(), inv, true);
                self.scope.functions = saved;
                return Some(flow);
            }
            "printf" => {
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
                return Some(self.printf(args));
            }
            "echo" => {
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
                let (known, disputed) = echo(args, self.dialect);
                return Some(Flow { known, disputed, taint: taint(args), ..Flow::default() });
            }
            "test" | "[" => {
                self.test(args);
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
            }
            "cd" | "chdir" if name == "cd" || self.dialect != Dialect::Bash => {
                let target = skip_flags(args).first().cloned();
                self.change_directory(target.as_ref());
            }
            "pushd" => match args.iter().find(|a| !a.text.starts_with(['-', '+'])) {
                Some(target) => self.change_directory(Some(&target.clone())),
                None => self.return_to_visited(),
            },
            "popd" => self.return_to_visited(),
            ":" | "true" | "false" | "pwd" | "exit" | "return" | "break" | "continue" | "logout" | "jobs"
            | "fg" | "bg" | "disown" | "times" | "dirs" | "type" | "help" | "caller" | "umask"
            | "unalias" | "suspend" => {
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
            }
            _ if self.variable_builtin(name, args) || self.option_builtin(name, args) => {}
            _ => return None,
        }
        Some(quiet)
    }

    /// `test` and `[`: bash evaluates the subscript of what follows `-v`.
    fn test(&mut self, args: &[Arg]) {
        let may_ask_for_variable = |arg: &Arg| arg.may_be("-v") || arg.may_be("-R");
        for (at, arg) in args.iter().enumerate().filter(|(_, arg)| may_ask_for_variable(arg)) {
            let in_bash = self.dialect == Dialect::Bash;
            if let Some(name) = args.get(at + 1).filter(|_| in_bash || arg.known().is_some()) {
                self.refuse_subscript(name);
            }
            if in_bash && arg.depends_on_data() && (arg.loose || arg.glob) {
                self.ask_hint(
                    "arithmetic-data",
                    "data that is not quoted may become -v and a subscript, which is evaluated",
                    "put it in double quotes",
                );
            }
        }
    }

    /// The builtins that change variables or positional parameters; false if it is none of them.
    fn variable_builtin(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "export" | "declare" | "typeset" | "local" | "readonly" => self.declare(name, args),
            "unset" => {
                let names = skip_flags(args);
                let flags = &args[..args.len() - names.len()];
                for arg in names {
                    self.refuse_subscript(arg);
                    if arg.depends_on_data() {
                        self.ask("dynamic", "unset gets a name that is not known");
                    }
                    let name = arg.text.split('[').next().unwrap_or("").to_owned();
                    self.check_assignment(&name, &Arg::unset());
                    if flags.iter().any(|flag| flag.text.contains('f') || flag.unknown)
                        || self.assigned.functions.contains(&name)
                    {
                        self.ask("function", "a function that is unset leaves its name to a program");
                    }
                    if arg.text.contains('[') {
                        self.set_array(&name, vec![Arg::unknown()]);
                    } else {
                        self.set_variable(&name, Arg::unset());
                    }
                }
            }
            "read" => self.read(args, "REPLY", "adinNptu"),
            "mapfile" | "readarray" => self.read(args, "MAPFILE", "dnOsuCc"),
            "getopts" => {
                if let Some(name) = args.get(1) {
                    self.assign_named(&name.clone(), Arg::unknown(), "getopts");
                }
            }
            "let" => {
                for arg in args {
                    self.arithmetic_data(arg);
                }
            }
            "shift" => {
                let count = args.first().map_or(Some(1), |a| a.known()?.parse::<usize>().ok());
                self.assigned.record_array("@", args);
                let list = &mut self.scope.positional;
                match count {
                    // Shells differ on what follows if there are not as many.
                    Some(count) if self.conditional == 0 && count <= list.len() => {
                        // What may be several words or none moves all behind it.
                        if list[..count].iter().any(|word| word.unknown || word.stands_for_names()) {
                            list.clear();
                            self.scope.positional_unknown = true;
                        } else {
                            list.drain(..count);
                        }
                    }
                    Some(_) | None => {
                        list.clear();
                        self.scope.positional_unknown = true;
                    }
                }
            }
            "wait" => {
                for (at, arg) in args.iter().enumerate() {
                    let Some((_, attached)) =
                        arg.text.strip_prefix('-').and_then(|flags| flags.split_once('p'))
                    else {
                        continue;
                    };
                    let attached = Some(Arg::literal(attached)).filter(|name| !name.text.is_empty());
                    if let Some(name) = attached.or_else(|| args.get(at + 1).cloned()) {
                        self.assign_named(&name, Arg::unknown(), "wait");
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// The builtins that change how the shell itself works; false if it is none of them.
    fn option_builtin(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "set" => self.set_builtin(args),
            "shopt" => {
                if args.iter().any(|a| !a.text.starts_with('-') || a.unknown)
                    && args.iter().any(|a| a.text.starts_with("-s") || a.text.starts_with("-u"))
                {
                    if args.iter().any(|a| a.text == "expand_aliases") {
                        self.deny("alias", "aliases change what later words mean");
                    }
                    let harmless =
                        |a: &Arg| a.text.starts_with('-') || HARMLESS_SHOPT.contains(&a.text.as_str());
                    if !args.iter().all(|a| !a.unknown && harmless(a)) {
                        self.ask("shell-option", "shopt changes how later text is read");
                    }
                }
            }
            "alias" => {
                if args.iter().any(|a| a.text != "-p") {
                    self.deny("alias", "an alias changes what later words mean");
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
                    self.deny("command-table", "hash changes which file a name runs");
                }
            }
            "enable" => {
                if args.iter().any(|a| a.text.starts_with("-f") || a.unknown) {
                    self.deny("command-table", "enable -f loads code into the shell");
                } else if args.iter().any(|a| !a.text.starts_with('-')) {
                    self.ask("command-table", "enable changes which file a name runs");
                }
            }
            "ulimit" => {
                if args.iter().any(|a| !a.text.starts_with('-')) {
                    self.ask("limits", "ulimit changes the step's own limits");
                }
            }
            "bind" | "complete" | "compopt" | "compgen" | "fc" | "history" => {
                self.ask("interactive", format!("{name} belongs to interactive shells"));
            }
            _ => return false,
        }
        true
    }

    fn eval(&mut self, args: &[Arg]) -> Flow {
        if args.is_empty() {
            return Flow::default();
        }
        if let Some(code) = self.code_text(args, "eval") {
            self.deeper(|a| {
                let span = a.span;
                let flow = a.walk_text(&code);
                a.span = span;
                flow
            })
        } else {
            Flow { shell: true, ..Flow::default() }
        }
    }

    fn trap(&mut self, args: &[Arg]) {
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
            let spread = self.spread;
            self.assigned.has_trap = true;
            self.calls.push(Call { name: String::new(), spread, locals: Vec::new() });
            // Nobody knows where the shell will stand then, nor with which arguments.
            let before = self.scope.visited.clone();
            let somewhere = format!("{}/*", self.scope.cwd);
            self.note_visited(somewhere.clone());
            let positional = std::mem::take(&mut self.scope.positional);
            let unknown = std::mem::replace(&mut self.scope.positional_unknown, true);
            self.maybe(|a| a.deeper(|a| a.walk_text(&text)));
            (self.scope.positional, self.scope.positional_unknown) = (positional, unknown);
            self.scope.visited.retain(|directory| *directory != somewhere || before.contains(directory));
            self.calls.pop();
        }
    }

    fn source(&mut self, args: &[Arg]) {
        self.facts.opaque = true;
        if taint(args).network {
            self.hard("download-run", "source runs code that comes from the network", None);
        }
        if taint(args).decoded {
            self.deny("obfuscated", "source runs decoded data");
        }
        self.draw("source", Vec::new(), false);
        self.ask("script", "source runs a file whose content is not shown");
        if let Some(file) = args.first() {
            self.mention_sourced(file);
            self.read_path(file);
        }
    }

    fn exec(&mut self, inv: &Invocation) -> Flow {
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
                self.ask("wrapper", format!("option {} of exec is not known", arg.display_text()));
            }
            if name_at.is_some_and(|name| name + 1 == flags.len()) && !arg.unknown {
                values.push(at);
                at += 1;
            }
        }
        let (own, rest) = args.split_at(at.min(args.len()));
        self.own_words("exec", own, &values, rest);
        self.inner(rest.to_vec(), inv, false)
    }

    fn declare(&mut self, name: &str, args: &[Arg]) {
        let is_flag = |arg: &&Arg| arg.text.starts_with(['-', '+']) && !arg.text.contains('=');
        let flags: String = args.iter().filter(is_flag).map(|arg| &arg.text[1..]).collect();
        let exported = name == "export" || (name != "local" && flags.contains('x'));
        if name != "export" && flags.contains('n') {
            self.deny("nameref", "a name reference can stand for any variable");
        }
        if name != "export" && flags.contains(['l', 'u', 'c']) {
            self.ask("dynamic", format!("{name} -{flags} makes a variable change the values it is given"));
        }
        let shape = Declared {
            exported: exported || flags.contains('x'),
            integer: name != "export" && flags.contains('i'),
            readonly: name == "readonly" || flags.contains('r'),
            array: flags.contains(['a', 'A']),
            // Whichever shell it is: a function's variable hides that of its caller.
            local: !matches!(name, "export" | "readonly") && !flags.contains('g') && self.in_function(),
        };
        for arg in args.iter().filter(|arg| !is_flag(arg)) {
            let equals = arg.text.find('=');
            let name_end = equals.unwrap_or(arg.text.len());
            let is_in_name = |at: usize| at <= name_end || equals.is_none();
            let wildcard = arg.text.find(['*', '?', '[']).filter(|_| arg.stands_for_names());
            if (arg.unknown && is_in_name(arg.unknown_at))
                || (arg.depends_on_data() && wildcard.is_some_and(is_in_name))
            {
                self.ask("dynamic", format!("{name} gets a name that is not known"));
                continue;
            }
            self.declare_one(arg, &shape);
        }
    }

    fn in_function(&self) -> bool {
        self.calls.last().is_some_and(|call| !call.name.is_empty())
    }

    /// One name of a declaration, with its value if it has one.
    fn declare_one(&mut self, arg: &Arg, shape: &Declared) {
        let (target, value) = match arg.text.split_once('=') {
            Some((target, value)) => (target, Some(value)),
            None => (arg.text.as_str(), None),
        };
        self.refuse_subscript(&Arg { text: target.to_owned(), ..Arg::default() });
        let append = target.ends_with('+');
        let target = target.trim_end_matches('+');
        let plain = target.split('[').next().unwrap_or(target).to_owned();
        if shape.local {
            self.make_local(&plain);
        }
        if shape.integer {
            self.assigned.integers.insert(plain.clone());
        }
        if shape.array {
            self.assigned.declared_arrays.insert(plain.clone());
        }
        if shape.readonly {
            // From now on an assignment fails, and the value stays.
            self.assigned.has_readonly = true;
            let value = self.initial(&plain);
            self.assigned.record(&plain, &value);
        }
        let Some(value) = value else {
            if shape.exported {
                let value = self.variable(&plain);
                self.check_exported(&plain, &value);
                self.scope.exported.insert(plain);
            } else {
                self.check_assignment(&plain, &Arg::unset());
                if shape.local && self.dialect == Dialect::Bash {
                    self.set_variable(&plain, Arg::unset());
                }
            }
            return;
        };
        // `declare a=(...)`: the parser has stored the elements.
        if value.is_empty() && !arg.unknown && self.scope.arrays.contains_key(&plain) {
            return;
        }
        if value.starts_with('(') {
            self.deny("array-text", "the text is read as an array, and code in it runs");
        }
        let value_at = target.len() + usize::from(append) + "=".len();
        let may_begin = (arg.unknown && arg.unknown_at <= value_at)
            || (arg.stands_for_names() && value.starts_with(['*', '?', '[']));
        if may_begin && self.assigned.may_be_array(&plain) {
            self.ask("array-text", "data would be read as an array, and code in it would run");
        }
        let value = Arg {
            text: value.to_owned(),
            unknown_at: arg.unknown_at.saturating_sub(value_at),
            unknown_start: arg.unknown && arg.unknown_at <= value_at,
            ..arg.clone()
        };
        let index = (plain != target).then(|| "?".to_owned());
        if shape.exported {
            self.scope.exported.insert(plain.clone());
        }
        self.store(
            Assignment { name: plain, index, array: false, append, value: vec![value] },
            shape.exported,
        );
    }

    fn read(&mut self, args: &[Arg], default: &str, with_value: &str) {
        let mut names = Vec::new();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let Some(flags) = arg.text.strip_prefix('-').filter(|f| !f.is_empty()) else {
                names.push(arg.clone());
                continue;
            };
            if self.dialect != Dialect::Bash && flags.contains(|c| c != 'r' && c != 'p') {
                self.refuse_dialect(format!("read {} is not the same in every shell", arg.text));
            }
            if let Some(at) = flags.find(|c| with_value.contains(c)) {
                let flag = &flags[at..=at];
                let value = match flags.get(at + 1..) {
                    Some(attached) if !attached.is_empty() => Some(Arg::literal(attached)),
                    _ => rest.next().cloned(),
                };
                if flag == "a" {
                    names.extend(value);
                } else if flag == "C"
                    && let Some(code) = value
                    && let Some(code) = self.code_text(&[code], "mapfile -C")
                {
                    self.walk_child(&code, Vec::new());
                }
            }
        }
        if names.is_empty() {
            names.push(Arg::literal(default));
        }
        for name in names {
            self.assign_named(&name, Arg::unknown(), "read");
        }
    }

    /// Records the value that a builtin gives to the variable, or the element of
    /// an array, that `name` says.
    fn assign_named(&mut self, name: &Arg, value: Arg, by: &str) {
        self.refuse_subscript(name);
        if name.depends_on_data() {
            self.ask("dynamic", format!("{by} assigns a variable whose name is not known"));
            return;
        }
        let plain = name.text.split('[').next().unwrap_or("").to_owned();
        if plain != name.text {
            if self.is_integer(&plain) {
                self.arithmetic_data(&value);
            }
            self.check_assignment(&plain, &value);
            self.set_array(&plain, vec![Arg::unknown()]);
        } else if is_name(&plain) {
            self.assign(&plain, value);
        }
    }

    fn printf(&mut self, args: &[Arg]) -> Flow {
        let mut args = args;
        let mut target = None;
        if let [first, name, ..] = args
            && self.dialect == Dialect::Bash
            && (first.may_be("-v") || first.text.starts_with("-v"))
            && first.depends_on_data()
        {
            self.ask("dynamic", "the first word of printf may be -v, and then it assigns a variable");
            self.refuse_subscript(name);
        }
        if let Some(first) = args.first()
            && let Some(attached) = first.text.strip_prefix("-v")
        {
            if self.dialect != Dialect::Bash {
                self.refuse_dialect("printf -v assigns in bash only".to_owned());
            }
            if attached.is_empty() {
                target = args.get(1).cloned();
                args = args.get(2..).unwrap_or(&[]);
            } else {
                target = Some(Arg::literal(attached));
                args = &args[1..];
            }
        }
        if args.first().is_some_and(|a| a.text == "--") {
            args = &args[1..];
        }
        let (known, disputed) = (printf(args), disputes_printf(args));
        let Some(name) = target else {
            return Flow { known, disputed, taint: taint(args), ..Flow::default() };
        };
        let value = known.filter(|_| !disputed).map_or_else(Arg::unknown, Arg::literal);
        self.assign_named(&name, value, "printf");
        Flow::default()
    }

    fn change_directory(&mut self, target: Option<&Arg>) {
        let home = self.env.home.clone();
        let next = match target {
            None => home,
            // An empty unquoted word is not a word: cd goes home.
            Some(arg) if arg.unknown_start && arg.text.is_empty() && !arg.quoted => home,
            Some(arg) => normalise(&self.scope.cwd, &arg.text),
        };
        if let Some(arg) = target {
            if arg.known() == Some("-") {
                return self.return_to_visited();
            }
            if !arg.is_settled() {
                self.ask("dynamic", "the directory changes to a place that is not known");
            } else {
                self.read_path(arg);
            }
        }
        self.enter(next);
    }

    /// The shell stands in `directory` now, if it could enter it.
    pub(crate) fn enter(&mut self, directory: String) {
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

    /// `cd -`, `popd` and `pushd` without a directory: back to some directory
    /// that was left. Which one is not followed.
    fn return_to_visited(&mut self) {
        self.note_visited(self.scope.cwd.clone());
    }

    fn set_builtin(&mut self, args: &[Arg]) {
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.text.as_str() {
                "--" | "-" => {
                    self.set_positional(rest.cloned().collect());
                    return;
                }
                "-o" | "+o" => {
                    let plain = |option: &str| {
                        matches!(
                            option,
                            "pipefail"
                                | "errexit"
                                | "nounset"
                                | "xtrace"
                                | "verbose"
                                | "noglob"
                                | "noclobber"
                                | "noexec"
                                | "notify"
                                | "monitor"
                                | "errtrace"
                                | "functrace"
                                | "hashall"
                        )
                    };
                    if let Some(option) = rest.next()
                        && !option.known().is_some_and(plain)
                    {
                        self.ask("shell-option", "set -o changes how later text is read");
                    }
                }
                text if text.starts_with(['-', '+']) => {
                    if !text[1..].chars().all(|c| PLAIN_OPTIONS.contains(c)) {
                        self.ask("shell-option", format!("set {text} changes how later text is read"));
                    }
                    if text.ends_with('o') {
                        rest.next();
                    }
                }
                _ => {
                    if arg.may_be_flag() {
                        self.ask("shell-option", "set gets a word that may be an option; write set --");
                    }
                    let mut list = vec![arg.clone()];
                    list.extend(rest.cloned());
                    self.set_positional(list);
                    return;
                }
            }
        }
    }

    fn set_positional(&mut self, list: Vec<Arg>) {
        // More words than are followed are none that is known.
        let list = if is_too_much(&list) { vec![Arg::unknown()] } else { list };
        self.assigned.record_array("@", &list);
        if self.conditional > 0 && self.scope.positional != list {
            self.scope.positional.clear();
            self.scope.positional_unknown = true;
        } else {
            self.scope.positional = list.into_iter().map(Arg::after_matching).collect();
            self.scope.positional_unknown = false;
        }
    }
}
