//! Programs that start other programs.
//!
//! A wrapper is read down to what it starts, and that decides. Some wrappers
//! add something of their own: a person is asked, or the command is refused.

use super::analysis::{Analysis, Arg, Flow, Input};
use super::command::Invocation;
use super::paths::normalise;

/// How a wrapper's own effect counts.
#[derive(Clone, Copy)]
enum Kind {
    /// Only what it starts counts.
    Through,
    /// It may run what it starts, but never unasked.
    Ask(&'static str),
    /// It never runs; what it starts is still read for hard blocks.
    Refuse(&'static str, &'static str),
}

/// How to find the command among a wrapper's arguments.
struct Wrapper {
    names: &'static [&'static str],
    /// Short options that take a value.
    values: &'static str,
    /// Long options that take the next word as value.
    long_values: &'static [&'static str],
    /// Words of its own before the command.
    operands: usize,
    /// Short or long options whose value is shell code.
    code: &'static [&'static str],
    kind: Kind,
}

const fn wrapper(
    names: &'static [&'static str],
    values: &'static str,
    long_values: &'static [&'static str],
    operands: usize,
    kind: Kind,
) -> Wrapper {
    Wrapper { names, values, long_values, operands, code: &[], kind }
}

/// Options without a value of the wrappers that are read through.
const FLAGS: &[(&[&str], &str, &[&str])] = &[
    (&["nice"], "0123456789", &[]),
    (&["ionice"], "t", &["ignore"]),
    (&["timeout", "gtimeout"], "fpv", &["foreground", "preserve-status", "verbose"]),
    (&["setsid"], "cfw", &["ctty", "fork", "wait"]),
    (&["unbuffer"], "p", &[]),
    (&["time", "gtime"], "apvq", &["append", "portability", "verbose", "quiet"]),
    (
        &["chrt"],
        "abdfiomrRv",
        &["all-tasks", "batch", "deadline", "fifo", "idle", "other", "max", "rr", "reset-on-fork", "verbose"],
    ),
    (&["taskset"], "acp", &["all-tasks", "cpu-list", "pid"]),
    (
        &["setarch", "linux32", "linux64", "i386", "x86_64", "uname26"],
        "BFILRSTXZ3v",
        &[
            "32bit",
            "addr-no-randomize",
            "addr-compat-layout",
            "mmap-page-zero",
            "read-implies-exec",
            "3gb",
            "verbose",
        ],
    ),
];

const PRIVILEGE: Kind = Kind::Refuse("privilege", "raises privileges, which a step cannot and may not");
const OUTSIDE: Kind = Kind::Refuse("outside", "starts the command outside the step's sandbox");

static WRAPPERS: &[Wrapper] = &[
    wrapper(&["nice"], "n", &["adjustment"], 0, Kind::Through),
    wrapper(&["ionice"], "cnpPu", &["class", "classdata"], 0, Kind::Through),
    wrapper(&["timeout", "gtimeout"], "sk", &["signal", "kill-after"], 1, Kind::Through),
    wrapper(&["nohup", "setsid", "eatmydata", "unbuffer"], "", &[], 0, Kind::Through),
    wrapper(&["stdbuf"], "ioe", &["input", "output", "error"], 0, Kind::Through),
    wrapper(&["time", "gtime"], "f", &["format"], 0, Kind::Through),
    wrapper(&["chrt"], "TPD", &["sched-runtime", "sched-deadline", "sched-period"], 1, Kind::Through),
    wrapper(&["taskset"], "", &[], 1, Kind::Through),
    wrapper(&["numactl"], "CNmpil", &["cpunodebind", "membind", "physcpubind"], 0, Kind::Through),
    wrapper(&["linux32", "linux64", "i386", "x86_64", "uname26"], "", &[], 0, Kind::Through),
    wrapper(&["setarch"], "p", &[], 1, Kind::Through),
    wrapper(
        &["busybox", "toybox"],
        "",
        &[],
        0,
        Kind::Ask("has programs of its own, which read options differently"),
    ),
    wrapper(&["choom"], "np", &["adjust", "pid"], 0, Kind::Ask("changes who dies when memory runs out")),
    wrapper(&["prlimit"], "p", &["pid"], 0, Kind::Ask("changes the step's limits")),
    wrapper(
        &["strace", "ltrace"],
        "abeEIoOpPsSuUX",
        &["output", "attach", "trace"],
        0,
        Kind::Ask("traces the command"),
    ),
    wrapper(
        &["valgrind", "heaptrack", "rr", "catchsegv"],
        "",
        &[],
        0,
        Kind::Ask("runs the command under another program"),
    ),
    wrapper(
        &[
            "dbus-run-session",
            "xvfb-run",
            "xvfb",
            "fakeroot",
            "fakechroot",
            "proot",
            "torsocks",
            "torify",
            "tsocks",
            "proxychains",
            "proxychains4",
            "cgexec",
            "runcon",
            "faketime",
            "firejail",
            "bwrap",
            "nsjail",
            "setpriv",
            "capsh",
            "chpst",
            "s6-setuidgid",
            "softlimit",
            "envdir",
            "tini",
            "dumb-init",
            "catatonit",
            "daemonize",
            "dtach",
            "abduco",
            "aa-exec",
            "newgrp",
            "sshpass",
            "rlwrap",
            "pv",
            "ts",
            "hyperfine",
            "entr",
            "reptyr",
            "cpulimit",
            "trickle",
            "systemd-inhibit",
            "systemd-cat",
            "start-stop-daemon",
        ],
        "",
        &[],
        0,
        Kind::Ask("runs the command under another program"),
    ),
    wrapper(
        &["unshare"],
        "SGRwl",
        &["root", "wd", "setuid", "setgid", "map-user", "map-group", "propagation"],
        0,
        Kind::Ask("changes namespaces"),
    ),
    wrapper(
        &["npx", "bunx", "uvx", "pipx", "dlx", "nix", "nix-shell"],
        "",
        &[],
        0,
        Kind::Ask("may download what it runs"),
    ),
    wrapper(
        &[
            "direnv", "mise", "asdf", "rtx", "rustup", "poetry", "pipenv", "uv", "conda", "bundle", "rbenv",
            "pyenv", "nvm", "volta",
        ],
        "",
        &[],
        1,
        Kind::Ask("chooses the program itself"),
    ),
    wrapper(
        &["sudo"],
        "CDghpRrTtuU",
        &[
            "user",
            "group",
            "host",
            "prompt",
            "chdir",
            "chroot",
            "role",
            "type",
            "close-from",
            "other-user",
            "command-timeout",
        ],
        0,
        PRIVILEGE,
    ),
    wrapper(&["doas"], "uC", &[], 0, PRIVILEGE),
    wrapper(&["gosu", "su-exec"], "", &[], 1, PRIVILEGE),
    wrapper(
        &["pkexec", "run0", "sudoedit", "calife", "super", "priv", "please", "ksu"],
        "u",
        &["user"],
        0,
        PRIVILEGE,
    ),
    Wrapper {
        code: &["-c", "--command", "--session-command"],
        ..wrapper(
            &["su", "runuser"],
            "cgGsuw",
            &["group", "supp-group", "shell", "user", "whitelist-environment"],
            1,
            PRIVILEGE,
        )
    },
    Wrapper { code: &["-c"], ..wrapper(&["sg"], "", &[], 1, PRIVILEGE) },
    wrapper(
        &["chroot"],
        "",
        &["userspec", "groups"],
        1,
        Kind::Refuse("privilege", "changes the root directory, which needs privileges"),
    ),
    wrapper(
        &["nsenter"],
        "tSGrwW",
        &["target", "setuid", "setgid", "root", "wd"],
        0,
        Kind::Refuse("namespaces", "enters the namespaces of another process"),
    ),
    wrapper(
        &["systemd-run"],
        "pMtugEH",
        &[
            "property",
            "unit",
            "slice",
            "machine",
            "uid",
            "gid",
            "setenv",
            "description",
            "on-active",
            "on-calendar",
        ],
        0,
        OUTSIDE,
    ),
    wrapper(
        &["systemd-nspawn", "machinectl", "lxc-attach", "lxc-execute"],
        "DMu",
        &["directory", "machine"],
        0,
        OUTSIDE,
    ),
    wrapper(&["at", "batch"], "fqtM", &[], 0, OUTSIDE),
];

/// Whether `name` is a command interpreter.
pub(crate) fn is_shell(name: &str) -> bool {
    matches!(
        name,
        "sh" | "bash"
            | "dash"
            | "ash"
            | "zsh"
            | "ksh"
            | "ksh93"
            | "mksh"
            | "lksh"
            | "pdksh"
            | "rbash"
            | "rksh"
            | "fish"
            | "csh"
            | "tcsh"
            | "yash"
            | "posh"
            | "elvish"
            | "nu"
            | "xonsh"
            | "hush"
    )
}

impl Analysis<'_> {
    /// Follows `name` when it is a wrapper.
    pub(crate) fn wrapper(&mut self, name: &str, inv: &Invocation) -> Option<Flow> {
        self.mention_wrapper(name, &inv.args[1..]);
        match name {
            "env" => return Some(self.env_wrapper(inv)),
            "xargs" => return Some(self.xargs(inv)),
            "find" | "gfind" => return Some(self.find_command(inv)),
            "parallel" | "sem" => return Some(self.parallel(inv)),
            "watch" => return Some(self.watch(inv)),
            "flock" => return Some(self.flock(inv)),
            "script" | "scriptreplay" => return Some(self.script(inv)),
            _ => {}
        }
        let wrapper = WRAPPERS.iter().find(|w| w.names.contains(&name))?;
        let (code, rest) = wrapper.split(&inv.args[1..]);
        match wrapper.kind {
            Kind::Through => {}
            Kind::Ask(why) => {
                if !matches!(name, "busybox" | "toybox") {
                    self.draw(name, Vec::new(), false);
                }
                self.ask("wrapper", format!("{name} {why}"));
            }
            Kind::Refuse(code, why) => self.deny(code, format!("{name} {why}")),
        }
        let mut flow = Flow::default();
        for code in code {
            if let Some(text) = self.code_text(&[code], name) {
                flow = flow.join(self.walk_sh(&text));
            }
        }
        if matches!(name, "at" | "batch")
            && let Some(text) = inv.input.known().map(str::to_owned)
        {
            self.probe_code(&text, name);
        }
        if rest.is_empty() {
            if matches!(name, "setarch" | "linux32" | "linux64" | "i386" | "x86_64" | "uname26") {
                self.ask("wrapper", format!("{name} without a command starts a shell"));
                self.record(&inv.args, None, Vec::new());
            } else if matches!(wrapper.kind, Kind::Through) {
                self.draw(name, Vec::new(), true);
                self.record(&inv.args, None, vec!["catalogue".to_owned()]);
            } else {
                self.record(&inv.args, None, Vec::new());
            }
            return Some(flow);
        }
        // An option that is not known may take the next word.
        if matches!(wrapper.kind, Kind::Through)
            && let Some(option) = wrapper.unknown_option(name, &inv.args[1..inv.args.len() - rest.len()])
        {
            self.ask("wrapper", format!("option {option} of {name} is not known"));
        }
        // A word before the command that may vanish or be a flag moves it.
        let own = &inv.args[1..inv.args.len() - rest.len()];
        if own.iter().any(|a| a.unknown && !a.numeric) {
            self.ask("dynamic", format!("what {name} starts depends on words that are not known"));
        }
        if !matches!(wrapper.kind, Kind::Through) {
            self.probe_suffixes(&inv.args[1..]);
        }
        let rest = rest.to_vec();
        let next = if name == "time" && inv.is_plain {
            self.inner(rest, inv, true)
        } else if name == "busybox" {
            let outer = std::mem::replace(&mut self.is_applet, true);
            let flow = self.inner(rest, inv, false);
            self.is_applet = outer;
            flow
        } else {
            self.inner(rest, inv, false)
        };
        Some(flow.join(next))
    }

    fn env_wrapper(&mut self, inv: &Invocation) -> Flow {
        let mut args: Vec<Arg> = inv.args[1..].to_vec();
        let cwd = self.scope.cwd.clone();
        let mut at = 0;
        while at < args.len() {
            let arg = args[at].clone();
            let text = arg.text.as_str();
            at += 1;
            if text == "--" {
                continue;
            }
            if let Some((name, value)) = text.split_once('=')
                && !text.starts_with('-')
            {
                let value = Arg { text: value.to_owned(), ..arg.clone() };
                self.check_exported(name, &value);
                continue;
            }
            let long = text.strip_prefix("--");
            let is_long = |full: &str| {
                long.is_some_and(|l| {
                    let l = l.split('=').next().unwrap_or(l);
                    !l.is_empty() && full.starts_with(l)
                })
            };
            if text == "-" {
                continue;
            }
            if text.starts_with('-') {
                let short = text.strip_prefix('-').filter(|_| long.is_none()).unwrap_or("");
                let value_at = short.find(['u', 'C', 'S', 'a']);
                let takes = if is_long("unset") {
                    Some('u')
                } else if is_long("chdir") {
                    Some('C')
                } else if is_long("split-string") {
                    Some('S')
                } else if is_long("argv0") {
                    Some('a')
                } else {
                    value_at.and_then(|i| short[i..].chars().next())
                };
                let is_known = match long {
                    Some(long) => {
                        const LONG: &[&str] = &[
                            "ignore-environment",
                            "null",
                            "unset",
                            "chdir",
                            "split-string",
                            "argv0",
                            "block-signal",
                            "default-signal",
                            "ignore-signal",
                            "list-signal-handling",
                            "debug",
                            "help",
                            "version",
                        ];
                        LONG.contains(&long.split('=').next().unwrap_or(long))
                    }
                    None => {
                        short[..value_at.unwrap_or(short.len())].chars().all(|c| matches!(c, 'i' | '0' | 'v'))
                    }
                };
                if !is_known {
                    self.ask("wrapper", format!("option {} of env is not known", arg.shown()));
                }
                let Some(takes) = takes else { continue };
                let attached = match (long, value_at) {
                    (Some(l), _) => l.split_once('=').map(|(_, v)| v.to_owned()),
                    (None, Some(i)) => Some(short[i + 1..].to_owned()).filter(|v| !v.is_empty()),
                    (None, None) => None,
                };
                let value = match attached {
                    Some(text) => Arg { text, ..arg.clone() },
                    None => {
                        at += 1;
                        args.get(at - 1).cloned().unwrap_or_default()
                    }
                };
                match takes {
                    'C' => {
                        self.read_path(&value);
                        self.scope.cwd = normalise(&self.scope.cwd, &value.text);
                    }
                    'S' => {
                        if value.unknown {
                            self.deny("opaque-code", "env -S splits text that is not known");
                        }
                        let words = split_words(&value.text).into_iter().map(Arg::literal);
                        let at = at.min(args.len());
                        args.splice(at..at, words);
                    }
                    _ => {}
                }
                continue;
            }
            if arg.unknown && text.is_empty() {
                self.ask("dynamic", "env starts a program that is not known");
            }
            at -= 1;
            break;
        }
        let rest = args.split_off(at.min(args.len()));
        let flow = if rest.is_empty() {
            self.draw("env", Vec::new(), true);
            self.record(&inv.args, None, vec!["catalogue".to_owned()]);
            Flow::default()
        } else {
            self.inner(rest, inv, false)
        };
        self.scope.cwd = cwd;
        flow
    }

    fn xargs(&mut self, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        let mut replace: Option<String> = None;
        let mut from_file = false;
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if !text.starts_with('-') || text == "-" {
                break;
            }
            at += 1;
            if text == "--" {
                break;
            }
            if let Some(long) = text.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let is = |full: &str| full.starts_with(name) && name.len() > 1;
                const LONG: &[&str] = &[
                    "null",
                    "no-run-if-empty",
                    "verbose",
                    "interactive",
                    "exit",
                    "open-tty",
                    "show-limits",
                    "eof",
                    "max-lines",
                    "replace",
                    "arg-file",
                    "delimiter",
                    "max-args",
                    "max-procs",
                    "max-chars",
                    "process-slot-var",
                    "help",
                    "version",
                ];
                if !LONG.contains(&name) {
                    self.ask("wrapper", format!("option --{name} of xargs is not known"));
                }
                if is("replace") {
                    replace = Some(value.unwrap_or_else(|| "{}".to_owned()));
                } else if is("arg-file") {
                    from_file = true;
                    let file = match value {
                        Some(value) => Arg::literal(value),
                        None => {
                            at += 1;
                            args.get(at - 1).cloned().unwrap_or_default()
                        }
                    };
                    self.read_path(&file);
                } else if value.is_none()
                    && ["delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"]
                        .iter()
                        .any(|full| is(full))
                {
                    at += 1;
                }
                continue;
            }
            let flags = &text[1..];
            let takes = ['I', 'i', 'n', 'P', 's', 'd', 'E', 'e', 'L', 'l', 'a', 'J', 'R'];
            if !flags[..flags.find(takes).unwrap_or(flags.len())].chars().all(|c| "0rtpxo".contains(c)) {
                self.ask("wrapper", format!("option {text} of xargs is not known"));
            }
            let Some(i) = flags.find(takes) else { continue };
            let flag = &flags[i..=i];
            let attached = &flags[i + 1..];
            let optional = matches!(flag, "i" | "e" | "l");
            let value = if !attached.is_empty() || optional {
                Arg::literal(attached)
            } else {
                at += 1;
                args.get(at - 1).cloned().unwrap_or_default()
            };
            match flag {
                "I" | "J" => replace = Some(value.text),
                "i" => {
                    replace = Some(if value.text.is_empty() { "{}".to_owned() } else { value.text });
                }
                "a" => {
                    from_file = true;
                    self.read_path(&value);
                }
                _ => {}
            }
        }
        let mut template = args[at.min(args.len())..].to_vec();
        if template.is_empty() {
            template.push(Arg::literal("echo"));
        }
        if inv.input.is_disputed() && !from_file {
            self.refuse_disputed("xargs");
        }
        let items: Vec<Arg> = match inv.input.known().filter(|_| !from_file) {
            Some(text) => text
                .split(|c: char| c.is_whitespace() || c == '\0')
                .filter(|w| !w.is_empty())
                .map(|w| Arg::literal(w.trim_matches(['\'', '"'])))
                .collect(),
            None => {
                let vital = matches!(&inv.input, Input::Pipe(flow) if flow.vital && !from_file);
                vec![Arg { taint: inv.input.taint(), vital, ..Arg::unknown() }]
            }
        };
        let unknown = items.iter().any(|i| i.unknown);
        if items.len() > 256 {
            self.deny("limit:values", "xargs starts too many commands to be read");
        }
        let mut flow = Flow::default();
        match replace {
            Some(mark) => {
                for item in items.iter().take(256) {
                    let args = template.iter().map(|arg| substitute(arg, &mark, item)).collect();
                    flow = flow.join(self.inner_without_input(args, inv));
                }
            }
            None => {
                let mut all = template.clone();
                all.extend(items);
                flow = flow.join(self.inner_without_input(all, inv));
            }
        }
        if unknown {
            self.facts.dynamic = true;
        }
        flow
    }

    /// What xargs starts reads nothing: the input was the list.
    fn inner_without_input(&mut self, args: Vec<Arg>, inv: &Invocation) -> Flow {
        let outer = Invocation { input: Input::Empty, is_plain: inv.is_plain, ..Invocation::default() };
        self.inner(args, &outer, false)
    }

    fn watch(&mut self, inv: &Invocation) -> Flow {
        let wrapper = wrapper(&["watch"], "nq", &["interval", "equexit"], 0, Kind::Through);
        let (_, rest) = wrapper.split(&inv.args[1..]);
        if inv.args[1..].iter().any(|a| a.text == "-x" || a.text == "--exec") {
            return self.inner(rest.to_vec(), inv, false);
        }
        let rest = rest.to_vec();
        match self.code_text(&rest, "watch") {
            Some(code) => self.walk_sh(&code),
            None => Flow::default(),
        }
    }

    fn flock(&mut self, inv: &Invocation) -> Flow {
        let wrapper = wrapper(&["flock"], "wE", &["timeout", "wait", "conflict-exit-code"], 1, Kind::Through);
        let (_, rest) = wrapper.split(&inv.args[1..]);
        let rest = rest.to_vec();
        if let Some(file) = inv.args[1..inv.args.len() - rest.len()].last()
            && file.text.parse::<u32>().is_err()
        {
            self.write_path(&file.clone(), "flock creates its lock file");
        }
        match rest.first() {
            Some(flag) if flag.text == "-c" || flag.text == "--command" => {
                match self.code_text(&rest[1..], "flock -c") {
                    Some(code) => self.walk_sh(&code),
                    None => Flow::default(),
                }
            }
            Some(_) | None => self.inner(rest, inv, false),
        }
    }

    fn script(&mut self, inv: &Invocation) -> Flow {
        self.draw("script", Vec::new(), false);
        self.ask("wrapper", "script runs the command on a terminal of its own");
        let mut flow = Flow::default();
        let mut rest = inv.args[1..].iter();
        while let Some(arg) = rest.next() {
            let text = arg.text.as_str();
            let code = if let Some(code) = text.strip_prefix("--command=") {
                Some(Arg::literal(code))
            } else if text == "--command"
                || (text.starts_with('-') && !text.starts_with("--") && text.ends_with('c'))
            {
                rest.next().cloned()
            } else {
                None
            };
            match code {
                Some(code) => {
                    if let Some(code) = self.code_text(&[code], "script -c") {
                        flow = flow.join(self.walk_sh(&code));
                    }
                }
                None if !text.starts_with('-') => {
                    self.write_path(&arg.clone(), "script writes a typescript");
                }
                None => {}
            }
        }
        flow
    }

    fn parallel(&mut self, inv: &Invocation) -> Flow {
        self.draw("parallel", Vec::new(), false);
        self.ask("wrapper", "parallel builds command lines from its input");
        let args = &inv.args[1..];
        let split = args.iter().position(|a| a.text.starts_with(":::")).unwrap_or(args.len());
        let (_, template) = wrapper(
            &[],
            "jNnLISad",
            &["jobs", "max-args", "arg-file", "colsep", "joblog", "results", "delay", "timeout", "retries"],
            0,
            Kind::Through,
        )
        .split(&args[..split]);
        let mut items: Vec<Arg> =
            args[split..].iter().filter(|a| !a.text.starts_with(":::")).cloned().collect();
        if split == args.len() {
            if inv.input.is_disputed() {
                self.refuse_disputed("parallel");
            }
            items = match inv.input.known() {
                Some(text) => text.lines().map(Arg::literal).collect(),
                None => vec![Arg::unknown()],
            };
        }
        let template = template.to_vec();
        let mut flow = Flow::default();
        for item in items.iter().take(256) {
            let mut words: Vec<Arg> = template.iter().map(|a| substitute(a, "{}", item)).collect();
            if !template.iter().any(|a| a.text.contains("{}")) {
                words.push(item.clone());
            }
            if item.unknown && !template.is_empty() {
                // Parallel quotes what it inserts: the line is judged as a
                // command with one word that is not known.
                flow = flow.join(self.inner_without_input(words, inv));
            } else if let Some(code) = self.code_text(&words, "parallel") {
                flow = flow.join(self.walk_sh(&code));
            }
        }
        flow
    }
}

impl Wrapper {
    /// The first of the wrapper's own words that is an option of no known kind.
    fn unknown_option(&self, name: &str, own: &[Arg]) -> Option<String> {
        let (_, flags, long_flags) =
            FLAGS.iter().find(|(names, ..)| names.contains(&name)).copied().unwrap_or((&[], "", &[]));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_known = |text: &str| match text.strip_prefix("--") {
            Some("") | Some("help" | "version") => true,
            Some(long) => {
                let (long, value) = long.split_once('=').map_or((long, false), |(long, _)| (long, true));
                self.long_values.contains(&long) || (!value && long_flags.contains(&long))
            }
            None => {
                let cluster = &text[1..];
                let end = cluster.find(|c| self.values.contains(c)).unwrap_or(cluster.len());
                is_number(cluster) || cluster[..end].chars().all(|c| flags.contains(c))
            }
        };
        let option =
            own.iter().find(|a| a.text.len() > 1 && a.text.starts_with('-') && !is_known(&a.text))?;
        Some(option.shown())
    }

    /// Splits a wrapper's arguments into values that are code, and the words
    /// from the wrapped command on.
    fn split<'a>(&self, args: &'a [Arg]) -> (Vec<Arg>, &'a [Arg]) {
        let mut code = Vec::new();
        // An architecture is only named before all options.
        let begins_with_option = args.first().is_some_and(|arg| arg.text.starts_with('-'));
        let is_setarch = self.names.contains(&"setarch");
        let mut operands = if is_setarch && begins_with_option { 0 } else { self.operands };
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if text == "--" {
                at += 1;
                break;
            }
            if let Some(long) = text.strip_prefix("--") {
                at += 1;
                let (name, attached) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (long, None),
                };
                let takes_code =
                    self.code.iter().any(|c| c.strip_prefix("--").is_some_and(|c| c.starts_with(name)));
                if takes_code {
                    match attached {
                        Some(value) => code.push(Arg::literal(value)),
                        None => {
                            code.extend(args.get(at).cloned());
                            at += 1;
                        }
                    }
                } else if attached.is_none() && self.long_values.iter().any(|v| v.starts_with(name)) {
                    at += 1;
                }
                continue;
            }
            let flags = text.strip_prefix('-').filter(|flags| !flags.is_empty());
            if let Some(flags) = flags {
                at += 1;
                if let Some(i) = flags.find(|c| self.values.contains(c)) {
                    let flag = &flags[i..=i];
                    let attached = &flags[i + 1..];
                    let is_code = self.code.iter().any(|c| c.strip_prefix('-') == Some(flag));
                    if attached.is_empty() {
                        if is_code {
                            code.extend(args.get(at).cloned());
                        }
                        at += 1;
                    } else if is_code {
                        code.push(Arg::literal(attached));
                    }
                } else if self.code.iter().any(|c| c.strip_prefix('-') == Some(flags)) {
                    code.extend(args.get(at).cloned());
                    at += 1;
                }
                continue;
            }
            // Assignments sudo and its like take before the command.
            if matches!(self.kind, Kind::Refuse(..))
                && text.split_once('=').is_some_and(|(name, _)| super::expand::is_name(name))
            {
                at += 1;
                continue;
            }
            if operands == 0 {
                break;
            }
            operands -= 1;
            at += 1;
            if operands == 0 {
                at += usize::from(args.get(at).is_some_and(|a| a.text == "--"));
                break;
            }
        }
        let mut rest = args.get(at.min(args.len())..).unwrap_or(&[]);
        if operands > 0 {
            rest = rest.get(operands.min(rest.len())..).unwrap_or(&[]);
        }
        // `su name -c code` and `sg name -c code` put the flag last.
        if let Some(first) = rest.first()
            && self.code.contains(&first.text.as_str())
        {
            code.extend(rest.get(1).cloned());
            rest = rest.get(2..).unwrap_or(&[]);
        }
        (code, rest)
    }
}

/// Replaces every `mark` in `arg` by `item`.
pub(crate) fn substitute(arg: &Arg, mark: &str, item: &Arg) -> Arg {
    if mark.is_empty() || !arg.text.contains(mark) {
        return arg.clone();
    }
    let starts = arg.text.starts_with(mark);
    Arg {
        text: arg.text.replace(mark, &item.text),
        unknown: arg.unknown || item.unknown,
        unknown_start: arg.unknown_start || (starts && item.unknown_start),
        unset: false,
        numeric: false,
        item: arg.item || !arg.unknown,
        vital: arg.vital || item.vital,
        taint: arg.taint.join(item.taint),
        ..arg.clone()
    }
}

/// Splits text into words as `env -S` does: blanks, quotes, backslashes.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, '\\') if quote != Some('\'') => {
                if let Some(next) = chars.next() {
                    word.get_or_insert_default().push(next);
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
