//! Programs that start other programs.
//!
//! The analysis follows a wrapper to the command that it starts, and that command decides. Some
//! wrappers add effects of their own: a person is asked, or the command is refused.

mod env;
#[cfg(test)]
mod generated;
mod lists;
mod table;

use self::table::{FLAGS, WRAPPERS};
use super::analysis::{Analysis, Arg, Flow};
use super::command::Invocation;

pub(crate) use self::lists::substitute_mark;

/// Treatment of a wrapper's own effect.
#[derive(Clone, Copy)]
enum Kind {
    /// Only the command that it starts decides.
    Through,
    /// It may run its command, but never without a question.
    Ask(&'static str),
    /// It never runs; its command is still searched for hard blocks.
    Refuse(&'static str, &'static str),
}

/// Arguments of a wrapper as the wrapper reads them.
struct Split<'a> {
    /// Values of options that are code.
    code: Vec<Arg>,
    /// Words from the wrapped command on.
    rest: &'a [Arg],
    /// Positions of the words that are the separate value of an option.
    values: Vec<usize>,
}

/// Description of a wrapper's arguments, to find its command.
struct Wrapper {
    names: &'static [&'static str],
    /// Short options that take a value.
    values: &'static str,
    /// Long options that take the next word as value.
    long_values: &'static [&'static str],
    /// Number of its own operands before the command.
    operands: usize,
    /// Short or long options whose value is shell code.
    code: &'static [&'static str],
    kind: Kind,
}

const fn new_wrapper(
    names: &'static [&'static str],
    values: &'static str,
    long_values: &'static [&'static str],
    operands: usize,
    kind: Kind,
) -> Wrapper {
    Wrapper { names, values, long_values, operands, code: &[], kind }
}

/// Command interpreters.
const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "lksh", "pdksh", "rbash", "rksh", "fish",
    "csh", "tcsh", "yash", "posh", "elvish", "nu", "xonsh", "hush",
];

/// True if `name` is a command interpreter.
pub(crate) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

impl Analysis<'_> {
    /// Follows `name` if it is a wrapper.
    pub(crate) fn follow_wrapper(&mut self, name: &str, inv: &Invocation) -> Option<Flow> {
        match name {
            "env" => return Some(self.env_wrapper(inv)),
            "xargs" => return Some(self.follow_xargs(inv)),
            "find" | "gfind" => return Some(self.find_command(inv)),
            "parallel" | "sem" => return Some(self.follow_parallel(inv)),
            "watch" => return Some(self.follow_watch(inv)),
            "flock" => return Some(self.follow_flock(inv)),
            "script" | "scriptreplay" => return Some(self.follow_script(inv)),
            _ => {}
        }
        let wrapper = WRAPPERS.iter().find(|w| w.names.contains(&name))?;
        let Split { code, rest, values } = wrapper.split_args(&inv.args[1..]);
        let own = &inv.args[1..inv.args.len() - rest.len()];
        self.own_words(name, own, &values, rest);
        match wrapper.kind {
            Kind::Through => {}
            Kind::Ask(why) => {
                if !matches!(name, "busybox" | "toybox") {
                    self.record_draw(name, Vec::new(), false);
                }
                self.require_approval("wrapper", format!("{name} {why}"));
            }
            Kind::Refuse(code, why) => self.add_denial(code, format!("{name} {why}")),
        }
        let mut flow = Flow::default();
        for code in code {
            flow = flow.join(self.run_code(&[code], name));
        }
        if matches!(name, "at" | "batch")
            && let Some(text) = inv.input.known_text().map(str::to_owned)
        {
            self.probe_code(&text, name);
        }
        if rest.is_empty() {
            if matches!(name, "setarch" | "linux32" | "linux64" | "i386" | "x86_64" | "uname26") {
                self.require_approval("wrapper", format!("{name} without a command starts a shell"));
                self.record_command(&inv.args, None, Vec::new());
            } else if matches!(wrapper.kind, Kind::Through) {
                self.record_draw(name, Vec::new(), true);
                self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
            } else {
                self.record_command(&inv.args, None, Vec::new());
            }
            return Some(flow);
        }
        if matches!(wrapper.kind, Kind::Through) {
            self.known_options(wrapper, name, own, &values);
        } else {
            self.probe_suffixes(&inv.args[1..]);
        }
        let next = self.follow_wrapped_command(rest.to_vec(), inv, name == "time" && inv.is_plain);
        Some(flow.join(next))
    }

    /// Asks if one of the wrapper's own words may turn into another word, no word or several: its
    /// command would then begin elsewhere. `values` are the positions of the separate values of
    /// options.
    pub(crate) fn own_words(&mut self, name: &str, own: &[Arg], values: &[usize], rest: &[Arg]) {
        let keeps = |(at, arg): (usize, &Arg)| arg.keeps_its_place(values.contains(&at));
        if !own.iter().enumerate().all(keeps) {
            self.require_approval(
                "dynamic",
                format!("what {name} starts depends on words that are not known"),
            );
            self.probe_suffixes(&[own, rest].concat());
        }
    }

    /// Asks about an unknown option, which may take the next word, and about an operand of a kind that
    /// is not expected at its position.
    fn known_options(&mut self, wrapper: &Wrapper, name: &str, own: &[Arg], values: &[usize]) {
        if let Some(option) = wrapper.unknown_option(name, own, values) {
            self.require_approval("wrapper", format!("option {option} of {name} is not known"));
        }
        if wrapper.operands > 0
            && let Some(operand) = own.iter().rfind(|arg| !arg.text.starts_with('-'))
            && !may_be_operand(name, &operand.text)
        {
            self.require_approval(
                "wrapper",
                format!("{} is not valid for {name} there", operand.display_text()),
            );
        }
    }

    fn follow_watch(&mut self, inv: &Invocation) -> Flow {
        let wrapper = new_wrapper(&["watch"], "nqs", &["interval", "equexit", "shotsdir"], 0, Kind::Through);
        let Split { rest, values, .. } = wrapper.split_args(&inv.args[1..]);
        let own = &inv.args[1..inv.args.len() - rest.len()];
        self.own_words("watch", own, &values, rest);
        self.known_options(&wrapper, "watch", own, &values);
        let executes = |(at, a): (usize, &Arg)| {
            let cluster = a.text.strip_prefix('-').unwrap_or("");
            let flags = &cluster[..cluster.find(['n', 'q', 's', 'd']).unwrap_or(cluster.len())];
            !values.contains(&at)
                && (a.text == "--exec" || (!cluster.starts_with('-') && flags.contains('x')))
        };
        if own.iter().enumerate().any(executes) {
            return self.follow_wrapped_command(rest.to_vec(), inv, false);
        }
        self.run_code(rest, "watch")
    }

    fn follow_flock(&mut self, inv: &Invocation) -> Flow {
        let wrapper =
            new_wrapper(&["flock"], "wE", &["timeout", "wait", "conflict-exit-code"], 1, Kind::Through);
        let Split { rest, values, .. } = wrapper.split_args(&inv.args[1..]);
        let own = &inv.args[1..inv.args.len() - rest.len()];
        self.own_words("flock", own, &values, rest);
        self.known_options(&wrapper, "flock", own, &values);
        let rest = rest.to_vec();
        // Without a command, a number is a file that is already open.
        if let Some(file) = own.last()
            && (!rest.is_empty() || file.text.parse::<u32>().is_err())
        {
            self.write_path(&file.clone(), "flock creates its lock file");
        }
        match rest.first() {
            Some(flag) if flag.text == "-c" || flag.text == "--command" => {
                self.run_code(&rest[1..], "flock -c")
            }
            Some(_) | None => self.follow_wrapped_command(rest, inv, false),
        }
    }

    fn follow_script(&mut self, inv: &Invocation) -> Flow {
        self.record_draw("script", Vec::new(), false);
        self.require_approval("wrapper", "script runs the command on its own terminal");
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
                Some(code) => flow = flow.join(self.run_code(&[code], "script -c")),
                None if !text.starts_with('-') => {
                    self.write_path(&arg.clone(), "script writes a typescript");
                }
                None => {}
            }
        }
        flow
    }
}

impl Wrapper {
    /// The first of the wrapper's own words that is an unknown option.
    fn unknown_option(&self, name: &str, own: &[Arg], values: &[usize]) -> Option<String> {
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
        let is_unknown = |(at, a): &(usize, &Arg)| {
            !values.contains(at) && a.text.len() > 1 && a.text.starts_with('-') && !is_known(&a.text)
        };
        let (_, option) = own.iter().enumerate().find(is_unknown)?;
        Some(option.display_text())
    }

    /// Splits a wrapper's arguments. An unknown value attached to an option is assumed to be present.
    fn split_args<'a>(&self, args: &'a [Arg]) -> Split<'a> {
        let mut code = Vec::new();
        let mut values = Vec::new();
        // An architecture may only be named before all options.
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
                            values.push(at);
                            at += 1;
                        }
                    }
                } else if attached.is_none()
                    && !arg.unknown
                    && self.long_values.iter().any(|v| v.starts_with(name))
                {
                    values.push(at);
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
                    if attached.is_empty() && !arg.unknown {
                        if is_code {
                            code.extend(args.get(at).cloned());
                        }
                        values.push(at);
                        at += 1;
                    } else if is_code {
                        code.push(Arg::literal(attached));
                    }
                } else if self.code.iter().any(|c| c.strip_prefix('-') == Some(flags)) {
                    code.extend(args.get(at).cloned());
                    values.push(at);
                    at += 1;
                }
                continue;
            }
            // Assignments before the command, which sudo and similar wrappers accept.
            if matches!(self.kind, Kind::Refuse(..))
                && text.split_once('=').is_some_and(|(name, _)| super::shell::is_name(name))
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
        // `su name -c code` and `sg name -c code` put the option last.
        if let Some(first) = rest.first()
            && self.code.contains(&first.text.as_str())
        {
            code.extend(rest.get(1).cloned());
            rest = rest.get(2..).unwrap_or(&[]);
        }
        Split { code, rest, values }
    }
}

/// True if `text` can be the operand of `name` before the command.
fn may_be_operand(name: &str, text: &str) -> bool {
    match name {
        "timeout" | "gtimeout" => text.starts_with(|c: char| c.is_ascii_digit() || c == '.'),
        "chrt" => text.bytes().all(|b| b.is_ascii_digit()),
        "taskset" => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            digits.bytes().all(|b| b.is_ascii_hexdigit() || b",-:".contains(&b))
        }
        _ => true,
    }
}
