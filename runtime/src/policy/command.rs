//! One simple command: its assignments, the shell's own commands, and the way
//! to whatever program it starts.

use super::analysis::{Analysis, Arg, Call, Flow, Input};
use super::expand::is_name;
use super::paths::normalise;
use super::wrappers::is_shell;

/// A simple command with its words expanded.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    pub(crate) args: Vec<Arg>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) input: Input,
    /// Functions and shell builtins may answer to the name.
    pub(crate) functions: bool,
    /// The command stands in the text itself, not behind a wrapper.
    pub(crate) is_plain: bool,
}

/// `name=value`, `name+=value`, `name[i]=value` or `name=(...)`.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) index: Option<String>,
    pub(crate) array: bool,
    pub(crate) append: bool,
    pub(crate) value: Vec<Arg>,
}

/// Variables that change what later words mean or which code is loaded.
const PROTECTED_VARIABLES: &[&str] = &[
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "BASH_XTRACEFD",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "MALLOC_TRACE",
    "NLSPATH",
    "TZDIR",
    "BASH_LOADABLES_PATH",
    "ZDOTDIR",
    "FPATH",
    "EXECIGNORE",
];
const PROTECTED_PREFIXES: &[&str] = &["LD_", "DYLD_", "BASH_FUNC_", "LOBSTER_", "MALLOC_"];

/// Variables any command may be given.
const HARMLESS_VARIABLES: &[&str] = &[
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "COLORTERM",
    "CI",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CARGO_TERM_COLOR",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "DEBIAN_FRONTEND",
    "GIT_OPTIONAL_LOCKS",
    "GIT_TERMINAL_PROMPT",
    "NODE_ENV",
    "BLOCKSIZE",
    "BLOCK_SIZE",
    "POSIXLY_CORRECT",
    "TIMEFORMAT",
    "SYSTEMD_COLORS",
    "GREP_COLORS",
    "GREP_COLOR",
    "LS_COLORS",
    "QUOTING_STYLE",
    "TIME_STYLE",
];

/// Variables whose value some common program runs or loads.
const LOADED_VARIABLES: &[&str] = &[
    "PAGER",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "SHELL",
    "LESSOPEN",
    "LESSCLOSE",
    "LESS",
    "LESSEDIT",
    "MANPAGER",
    "MANOPT",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "LUA_PATH",
    "LUA_INIT",
    "LUA_CPATH",
    "CLASSPATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "RUSTC_WRAPPER",
    "RUSTC",
    "RUSTFLAGS",
    "CC",
    "CXX",
    "LD",
    "CFLAGS",
    "LDFLAGS",
    "MAKEFLAGS",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "RIPGREP_CONFIG_PATH",
    "TAR_OPTIONS",
    "GZIP",
    "ZIPOPT",
    "HOME",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "RSYNC_RSH",
    "CVS_RSH",
    "SYSTEMD_PAGER",
    "SYSTEMD_EDITOR",
    "FCEDIT",
    "HISTFILE",
    "CDPATH",
    "GLOBIGNORE",
    "BASH_COMPAT",
    "KUBECONFIG",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "AWK_PATH",
    "AWKPATH",
    "AWKLIBPATH",
    "PKG_CONFIG_PATH",
    "OPENSSL_CONF",
    "SSLKEYLOGFILE",
    "CURL_HOME",
];
const LOADED_PREFIXES: &[&str] =
    &["GIT_", "CARGO_", "npm_config_", "NPM_CONFIG_", "PIP_", "PERL", "PYTHON", "RUBY", "JAVA_"];

fn matches_any(name: &str, exact: &[&str], prefixes: &[&str]) -> bool {
    exact.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

impl Analysis<'_> {
    /// Judges an assignment that only this shell sees.
    pub(crate) fn check_assignment(&mut self, name: &str, value: &Arg) {
        if matches_any(name, PROTECTED_VARIABLES, PROTECTED_PREFIXES) {
            self.deny(
                "protected-variable",
                format!("{name} changes which code runs and may not be assigned"),
            );
        } else if matches_any(name, LOADED_VARIABLES, LOADED_PREFIXES) && !HARMLESS_VARIABLES.contains(&name)
        {
            self.probe_value(value);
            self.ask("variable", format!("{name} decides what some programs run or load"));
        }
    }

    /// Judges an assignment that programs see.
    pub(crate) fn check_exported(&mut self, name: &str, value: &Arg) {
        self.check_assignment(name, value);
        let harmless = HARMLESS_VARIABLES.contains(&name) || name.starts_with("LC_");
        if !harmless && !matches_any(name, PROTECTED_VARIABLES, PROTECTED_PREFIXES) {
            self.probe_value(value);
            self.ask("variable", format!("{name} is not among the variables known to be harmless"));
        }
    }

    /// A value that may be run: a hard block in it is one of the command.
    fn probe_value(&mut self, value: &Arg) {
        if !value.text.is_empty() {
            let text = value.text.clone();
            self.probe_code(&text, "the value of a variable");
        }
    }

    /// Judges a command and says what its output carries.
    pub(crate) fn invoke(&mut self, mut inv: Invocation) -> Flow {
        if inv.args.is_empty() {
            for assignment in std::mem::take(&mut inv.assignments) {
                self.store(assignment, false);
            }
            return Flow { known: Some(String::new()), ..Flow::default() };
        }
        let first = inv.args[0].clone();
        let is_read = first.known() == Some("read");
        for assignment in std::mem::take(&mut inv.assignments) {
            let value = assignment.value.first().cloned().unwrap_or_default();
            // `IFS= read` sets it for that one builtin only.
            if !(is_read && assignment.name == "IFS" && !value.unknown) {
                self.check_exported(&assignment.name, &value);
            }
            if !is_read {
                self.maybe(|a| a.set_variable(&assignment.name, value));
            }
        }
        if first.glob {
            self.deny_hint(
                "program-glob",
                format!("the program name {:?} is a wildcard", first.text),
                "write the program's name",
            );
            return Flow::default();
        }
        if first.unknown {
            return self.dynamic_program(&inv);
        }
        if !first.text.is_ascii() {
            self.deny(
                "program-name",
                format!("the program name {} is not ASCII", first.text.escape_unicode()),
            );
            return Flow::default();
        }
        if first.text.is_empty() {
            self.ask("program-name", "the program name is empty");
            return Flow::default();
        }
        if inv.functions && self.scope.functions.contains_key(&first.text) {
            let args = inv.args.split_off(1);
            return self.call(&first.text, &args, &inv.input);
        }
        if inv.functions
            && let Some(call) = self.calls.iter().find(|call| call.name == first.text)
            && self.spread > call.spread
        {
            self.hard("fork-bomb", format!("{} starts itself again", first.text), None);
            return Flow::default();
        }
        if !first.text.contains('/')
            && inv.functions
            && let Some(flow) = self.builtin(&first.text, &inv)
        {
            return flow;
        }
        self.program_command(inv)
    }

    /// A program whose name only the run will show.
    fn dynamic_program(&mut self, inv: &Invocation) -> Flow {
        self.facts.dynamic = true;
        let first = &inv.args[0];
        if first.taint.network {
            self.hard("download-run", "the program name comes from the network", None);
        }
        self.ask("dynamic-program", "the program's name is only known when the command runs");
        self.record(&inv.args, None, Vec::new());
        let shape = inv.args[1..].to_vec();
        let suffix = first.text.clone();
        let mut guesses: Vec<Vec<Arg>> = vec![shape.clone()];
        for guess in ["rm", "dd", "sh", "mkfs", "kill", "chmod", "find", "mv", "tee"] {
            let mut args = vec![Arg::literal(guess)];
            args.extend(shape.iter().cloned());
            guesses.push(args);
        }
        if !suffix.is_empty() {
            let base = suffix.rsplit('/').next().unwrap_or(&suffix).to_owned();
            let mut args = vec![Arg::literal(base)];
            args.extend(shape);
            guesses.push(args);
        }
        for args in guesses {
            if args.is_empty() {
                continue;
            }
            let mut probe = self.probe();
            probe.invoke(Invocation { args, input: inv.input.clone(), ..Invocation::default() });
            if let Some(hit) = probe.hard_finding() {
                let message = format!("a program that is not known, used as in: {}", hit.message);
                self.deny("dynamic-destructive", message);
                break;
            }
        }
        Flow { shell: true, ..Flow::default() }
    }

    /// The shell's own commands. `None` when the name is a program.
    fn builtin(&mut self, name: &str, inv: &Invocation) -> Option<Flow> {
        let args = &inv.args[1..];
        let quiet = Flow { known: Some(String::new()), ..Flow::default() };
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
                if rest.is_empty() {
                    return Some(quiet);
                }
                let saved = std::mem::take(&mut self.scope.functions);
                let flow = self.inner(rest.to_vec(), inv, true);
                self.scope.functions = saved;
                return Some(flow);
            }
            "export" | "declare" | "typeset" | "local" | "readonly" => self.declare(name, args),
            "unset" => {
                for arg in skip_flags(args) {
                    self.refuse_subscript(arg);
                    let name = arg.text.clone();
                    self.check_assignment(&name, &Arg::unset());
                    if !arg.unknown {
                        self.scope.arrays.remove(&name);
                        self.set_variable(&name, Arg::unset());
                    }
                }
            }
            "read" => self.read(args, "REPLY", "adinNptu"),
            "mapfile" | "readarray" => self.read(args, "MAPFILE", "dnOsuCc"),
            "getopts" => {
                if let Some(name) = args.get(1) {
                    let name = name.text.clone();
                    self.assign(&name, Arg::unknown());
                }
            }
            "let" => {
                for arg in args {
                    self.arithmetic_data(arg);
                    let text = arg.text.clone();
                    self.arithmetic(&text);
                }
            }
            "printf" => {
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
                return Some(self.printf(args));
            }
            "echo" => {
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
                return Some(Flow { known: echo(args), taint: taint(args), ..Flow::default() });
            }
            "test" | "[" => {
                for pair in args.windows(2) {
                    if pair[0].text == "-v" {
                        self.refuse_subscript(&pair[1]);
                    }
                }
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
            }
            "cd" => {
                let target = skip_flags(args).first().cloned();
                self.change_directory(target.as_ref());
            }
            "pushd" => {
                if let Some(target) = args.iter().find(|a| !a.text.starts_with(['-', '+'])) {
                    let target = target.clone();
                    self.change_directory(Some(&target));
                }
            }
            "popd" => {
                // Back to a directory an earlier pushd left, inside the roots.
            }
            "set" => self.set_builtin(args),
            "shopt" => {
                if args.iter().any(|a| !a.text.starts_with('-') || a.unknown)
                    && args.iter().any(|a| a.text.starts_with("-s") || a.text.starts_with("-u"))
                {
                    if args.iter().any(|a| a.text == "expand_aliases") {
                        self.deny("alias", "aliases change what later words mean");
                    }
                    self.ask("shell-option", "shopt changes how later text is read");
                }
            }
            "alias" => {
                if args.iter().any(|a| a.text != "-p") {
                    self.deny("alias", "an alias changes what later words mean");
                    for arg in args {
                        if let Some((_, value)) = arg.text.split_once('=') {
                            self.probe_code(&value.to_owned(), "an alias");
                        }
                    }
                }
            }
            "hash" => {
                if args.iter().any(|a| a.text.starts_with("-p") || a.unknown) {
                    self.deny("command-table", "hash -p changes which file a name runs");
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
            "shift" => {
                let count = args.first().map_or(Some(1), |a| a.known()?.parse::<usize>().ok());
                match count {
                    Some(count) if self.conditional == 0 => {
                        let count = count.min(self.scope.positional.len());
                        self.scope.positional.drain(..count);
                    }
                    Some(_) | None => self.scope.positional_unknown = true,
                }
            }
            "wait" => {
                if let Some(at) = args.iter().position(|a| a.text == "-p")
                    && let Some(name) = args.get(at + 1)
                {
                    self.refuse_subscript(&name.clone());
                    let name = name.text.clone();
                    self.assign(&name, Arg::number());
                }
            }
            ":" | "true" | "false" | "pwd" | "exit" | "return" | "break" | "continue" | "logout" | "jobs"
            | "fg" | "bg" | "disown" | "times" | "dirs" | "type" | "help" | "caller" | "umask"
            | "unalias" | "suspend" => {
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
            }
            _ => return None,
        }
        Some(quiet)
    }

    /// Runs the command behind a wrapper that passes everything on.
    pub(crate) fn inner(&mut self, args: Vec<Arg>, outer: &Invocation, builtins: bool) -> Flow {
        if args.is_empty() {
            return Flow::default();
        }
        if self.wrapped >= super::analysis::WRAPPER_DEPTH {
            self.deny("limit:wrappers", "there are too many wrappers around the command");
            return Flow::default();
        }
        self.wrapped += 1;
        let saved = if builtins { Some(std::mem::take(&mut self.scope.functions)) } else { None };
        let flow = self.invoke(Invocation {
            args,
            input: outer.input.clone(),
            functions: builtins,
            ..Invocation::default()
        });
        if let Some(functions) = saved {
            self.scope.functions = functions;
        }
        self.wrapped -= 1;
        flow
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

    /// The one text that `args` joined by blanks are; refuses unknown code.
    pub(crate) fn code_text(&mut self, args: &[Arg], by: &str) -> Option<String> {
        let origin = taint(args);
        if origin.network {
            self.hard(
                "download-run",
                format!("{by} runs code that comes from the network"),
                Some("download to a file, read it, and run it as a step of its own"),
            );
            return None;
        }
        if args.iter().any(|a| a.unknown) {
            self.facts.opaque = true;
            if origin.decoded {
                self.deny("obfuscated", format!("{by} runs decoded data"));
            }
            self.deny_hint(
                "opaque-code",
                format!("{by} runs code that is only known when it runs"),
                "write the command out, or pass the data as an argument after the code",
            );
            let known: Vec<&str> = args.iter().map(|a| a.text.as_str()).collect();
            let known = known.join(" ");
            self.probe_code(&known, by);
            return None;
        }
        Some(args.iter().map(|a| a.text.as_str()).collect::<Vec<_>>().join(" "))
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
            self.calls.push(Call { name: String::new(), spread });
            self.maybe(|a| a.deeper(|a| a.walk_text(&text)));
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
        self.ask("script", "source runs a file whose content is not shown");
        if let Some(file) = args.first() {
            self.read_path(file);
        }
    }

    fn exec(&mut self, inv: &Invocation) -> Flow {
        let mut rest = &inv.args[1..];
        while let Some(first) = rest.first() {
            match first.text.as_str() {
                "--" => {
                    rest = &rest[1..];
                    break;
                }
                "-a" => rest = rest.get(2..).unwrap_or(&[]),
                flag if flag.starts_with('-') => rest = &rest[1..],
                _ => break,
            }
        }
        self.inner(rest.to_vec(), inv, false)
    }

    fn declare(&mut self, name: &str, args: &[Arg]) {
        let mut exported = name == "export";
        let mut integer = false;
        for arg in args {
            if arg.unknown_start && !arg.text.contains('=') {
                self.ask("dynamic", format!("{name} gets a name that is not known"));
                continue;
            }
            if let Some(flags) = arg.text.strip_prefix(['-', '+']) {
                if name != "export" && flags.contains('n') {
                    self.deny("nameref", "a name reference can stand for any variable");
                }
                exported |= flags.contains('x');
                integer |= flags.contains('i');
                continue;
            }
            self.refuse_subscript(&Arg {
                text: arg.text.split('=').next().unwrap_or("").to_owned(),
                ..Arg::default()
            });
            match arg.text.split_once('=') {
                Some((target, value)) => {
                    let (target, append) = match target.strip_suffix('+') {
                        Some(target) => (target, true),
                        None => (target, false),
                    };
                    if integer {
                        self.arithmetic(value);
                    }
                    if value.is_empty() && self.scope.arrays.contains_key(target) {
                        continue;
                    }
                    let value = Arg { text: value.to_owned(), ..arg.clone() };
                    let plain = target.split('[').next().unwrap_or(target).to_owned();
                    self.store(
                        Assignment { name: plain, index: None, array: false, append, value: vec![value] },
                        exported,
                    );
                }
                None if exported => {
                    let target = arg.text.clone();
                    let value = self.variable(&target);
                    self.check_exported(&target, &value);
                }
                None => {
                    let target = arg.text.clone();
                    self.check_assignment(&target, &Arg::unset());
                }
            }
        }
    }

    fn read(&mut self, args: &[Arg], default: &str, with_value: &str) {
        let mut names = Vec::new();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let Some(flags) = arg.text.strip_prefix('-').filter(|f| !f.is_empty()) else {
                names.push(arg.clone());
                continue;
            };
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
            self.refuse_subscript(&name);
            if name.unknown {
                self.ask("dynamic", "read assigns a variable whose name is not known");
                continue;
            }
            let plain = name.text.split('[').next().unwrap_or("").to_owned();
            if is_name(&plain) {
                self.assign(&plain, Arg::unknown());
            }
        }
    }

    fn printf(&mut self, args: &[Arg]) -> Flow {
        let mut args = args;
        let mut target = None;
        if let Some(first) = args.first()
            && let Some(attached) = first.text.strip_prefix("-v")
        {
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
        let known = printf(args);
        let Some(name) = target else {
            return Flow { known, taint: taint(args), ..Flow::default() };
        };
        self.refuse_subscript(&name);
        let plain = name.text.split('[').next().unwrap_or("").to_owned();
        let value = known.map_or_else(Arg::unknown, Arg::literal);
        self.assign(&plain, value);
        Flow::default()
    }

    fn change_directory(&mut self, target: Option<&Arg>) {
        let home = self.env.home.clone();
        let next = match target {
            None => home,
            // An empty unquoted word is no word: cd goes home.
            Some(arg) if arg.unknown_start && arg.text.is_empty() && !arg.quoted => home,
            Some(arg) if arg.text == "-" => self.scope.cwd.clone(),
            Some(arg) => normalise(&self.scope.cwd, &arg.text),
        };
        if let Some(arg) = target {
            if arg.unknown || arg.glob {
                self.ask("dynamic", "the directory changes to a place that is not known");
            } else if arg.text != "-" {
                self.read_path(arg);
            }
        }
        self.scope.cwd = next;
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
                    rest.next();
                }
                text if text.starts_with(['-', '+']) => {
                    if text.ends_with('o') {
                        rest.next();
                    }
                }
                _ => {
                    let mut list = vec![arg.clone()];
                    list.extend(rest.cloned());
                    self.set_positional(list);
                    return;
                }
            }
        }
    }

    fn set_positional(&mut self, list: Vec<Arg>) {
        if self.conditional > 0 && self.scope.positional != list {
            self.scope.positional.clear();
            self.scope.positional_unknown = true;
        } else {
            self.scope.positional = list;
            self.scope.positional_unknown = false;
        }
    }

    /// A command that is a program: a wrapper, a shell, or a leaf.
    fn program_command(&mut self, inv: Invocation) -> Flow {
        let full = inv.args[0].text.clone();
        let name = full.rsplit('/').next().unwrap_or(&full).to_owned();
        if full.contains('/') && !self.is_trusted_path(&full) {
            // Its name is only a label, but a hard block is one under any path.
            return self.untrusted(&full, &name, &inv);
        }
        if let Some(flow) = self.wrapper(&name, &inv) {
            return flow;
        }
        if is_shell(&name) {
            return self.shell_command(&name, &inv);
        }
        self.leaf(&name, &inv)
    }
}

/// Everything after leading flags and one `--`.
pub(crate) fn skip_flags(args: &[Arg]) -> &[Arg] {
    let mut rest = args;
    while let Some(first) = rest.first() {
        if first.text == "--" {
            return &rest[1..];
        }
        if !first.text.starts_with('-') || first.text == "-" {
            break;
        }
        rest = &rest[1..];
    }
    rest
}

/// What any of the words carry.
pub(crate) fn taint(args: &[Arg]) -> super::analysis::Taint {
    args.iter().fold(Default::default(), |taint, arg| arg.taint.join(taint))
}

/// The output of `echo`, when its words are known.
fn echo(args: &[Arg]) -> Option<String> {
    let mut words = args;
    let mut newline = true;
    let mut escapes = false;
    while let Some(first) = words.first()
        && let Some(flags) = first.text.strip_prefix('-')
        && !flags.is_empty()
        && flags.bytes().all(|b| matches!(b, b'n' | b'e' | b'E'))
    {
        newline &= !flags.contains('n');
        escapes |= flags.contains('e');
        words = &words[1..];
    }
    let words: Option<Vec<&str>> = words.iter().map(Arg::known).collect();
    let mut text = words?.join(" ");
    // dash interprets escapes without being asked; the longer reading is taken.
    if escapes || text.contains('\\') {
        text = unescape(&text)?;
    }
    if newline {
        text.push('\n');
    }
    Some(text)
}

/// The output of `printf`, when format and arguments are known.
fn printf(args: &[Arg]) -> Option<String> {
    let format = unescape(args.first()?.known()?)?;
    let words: Option<Vec<&str>> = args[1..].iter().map(Arg::known).collect();
    let mut words = words?.into_iter().peekable();
    let mut out = String::new();
    loop {
        let mut consumed = false;
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next()? {
                '%' => out.push('%'),
                's' => {
                    out.push_str(words.next().unwrap_or(""));
                    consumed = true;
                }
                'b' => {
                    out.push_str(&unescape(words.next().unwrap_or(""))?);
                    consumed = true;
                }
                'd' | 'i' => {
                    out.push_str(words.next().unwrap_or("0"));
                    consumed = true;
                }
                _ => return None,
            }
        }
        if !consumed || words.peek().is_none() || out.len() > 65_536 {
            return Some(out);
        }
    }
}

/// Backslash escapes as `echo -e` and `printf` read them.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let (radix, most) = match chars.next() {
            None => {
                out.push('\\');
                break;
            }
            Some('n') => {
                out.push('\n');
                continue;
            }
            Some('t') => {
                out.push('\t');
                continue;
            }
            Some('\\') => {
                out.push('\\');
                continue;
            }
            Some('x') => (16, 2),
            Some('0') => (8, 3),
            Some(digit @ '1'..='7') => {
                let mut value = digit.to_digit(8)?;
                for _ in 0..2 {
                    match chars.peek().and_then(|c| c.to_digit(8)) {
                        Some(next) => {
                            value = value * 8 + next;
                            chars.next();
                        }
                        None => break,
                    }
                }
                out.push(char::from_u32(value & 0xff)?);
                continue;
            }
            Some(other) => {
                out.push('\\');
                out.push(other);
                continue;
            }
        };
        let mut value = 0;
        for _ in 0..most {
            match chars.peek().and_then(|c| c.to_digit(radix)) {
                Some(next) => {
                    value = value * radix + next;
                    chars.next();
                }
                None => break,
            }
        }
        out.push(char::from_u32(value)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<Arg> {
        list.iter().map(|w| Arg::literal(*w)).collect()
    }

    #[test]
    fn output_that_follows_from_the_words_is_known() {
        assert_eq!(echo(&words(&["-n", "a", "b"])).as_deref(), Some("a b"));
        assert_eq!(echo(&words(&["-e", r"\x72m"])).as_deref(), Some("rm\n"));
        assert_eq!(printf(&words(&["%s\\n", "a", "b"])).as_deref(), Some("a\nb\n"));
        assert_eq!(printf(&words(&[r"\162\155 -rf /"])).as_deref(), Some("rm -rf /"));
        assert_eq!(echo(&[Arg::unknown()]), None);
    }
}
