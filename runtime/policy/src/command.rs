//! One simple command: its assignments, the builtins of the shell, and the program that it starts.

use super::Policy;
use super::analysis::{Analysis, Arg, CommandInput, FindingLevel, Flow};
use super::dialect::Shell;
use super::shell::is_evaluated;
use super::wrappers::is_shell;

/// A simple command with its words expanded.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    pub(crate) args: Vec<Arg>,
    pub(crate) assignments: Vec<(String, Vec<Arg>)>,
    pub(crate) input: CommandInput,
    /// Functions and shell builtins may have this name.
    pub(crate) builtins: bool,
    /// The command is in the text itself rather than inside a wrapper.
    pub(crate) is_plain: bool,
}

/// Variables of lobster itself, and variables that change how memory is checked.
const OWN_PREFIXES: &[&str] = &["LOBSTER_", "MALLOC_"];

/// Variables that any command may be given.
const HARMLESS_VARIABLES: &[&str] = text_list!("lists/harmless-variables.txt");

/// Variables whose value some common program runs or loads.
const LOADED_VARIABLES: &[&str] = text_list!("lists/loaded-variables.txt");
const LOADED_PREFIXES: &[&str] = text_list!("lists/loaded-prefixes.txt");

fn matches_any(name: &str, exact: &[&str], prefixes: &[&str]) -> bool {
    exact.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// True if any command may be given the variable.
pub(super) fn is_harmless_variable(name: &str) -> bool {
    HARMLESS_VARIABLES.contains(&name) || name.starts_with("LC_")
}

impl Policy {
    /// True if a variable decides which code runs, so that a step may not set it.
    pub fn is_protected_variable(name: &str) -> bool {
        Shell::decides_what_runs(name) || matches_any(name, &[], OWN_PREFIXES)
    }
}

impl Analysis<'_> {
    /// Judges an assignment that only this shell sees.
    pub(crate) fn check_assignment(&mut self, name: &str, value: &Arg) {
        let name = name.split('[').next().unwrap_or(name);
        if Policy::is_protected_variable(name) {
            self.add_denial(
                "protected-variable",
                format!("{name} changes which code runs and may not be assigned"),
            );
        } else if is_evaluated(name) {
            self.flag_unsupported("the value of a variable that shells evaluate or refuse");
            self.judge_evaluated(value);
        } else if matches_any(name, LOADED_VARIABLES, LOADED_PREFIXES) && !HARMLESS_VARIABLES.contains(&name)
        {
            self.probe_value(value);
            self.require_approval("variable", format!("{name} decides what some programs run or load"));
        }
    }

    /// Judges an assignment that programs see.
    pub(crate) fn check_exported(&mut self, name: &str, value: &Arg) {
        self.check_assignment(name, value);
        if !is_harmless_variable(name) && !Policy::is_protected_variable(name) {
            self.probe_value(value);
            self.require_approval(
                "variable",
                format!("{name} is not among the variables known to be harmless"),
            );
        }
    }

    /// Probes a value that may be run: a hard block in it applies to the command.
    fn probe_value(&mut self, value: &Arg) {
        if !value.text.is_empty() {
            let text = value.text.clone();
            self.probe_code(&text, "the value of a variable");
        }
    }

    /// Judges a command and returns the contents of its output.
    pub(crate) fn judge_command(&mut self, mut inv: Invocation) -> Flow {
        let assignments = std::mem::take(&mut inv.assignments);
        if inv.args.is_empty() {
            for (name, values) in assignments {
                self.assign_list(&name, values);
            }
            return Flow { known: Some(String::new()), ..Flow::default() };
        }
        let first = inv.args[0].clone();
        let is_read = first.known_text() == Some("read");
        for (name, values) in assignments {
            let value = values.into_iter().next().unwrap_or_default();
            // `IFS= read` sets it for that one builtin only.
            if !(is_read && name == "IFS" && !value.unknown) {
                self.check_exported(&name, &value);
            }
            if !is_read {
                self.in_optional_code(|a| a.set_variable(&name, value));
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
        if first.from_split && !self.policy.is_open() {
            let would: Vec<String> = inv.args.iter().map(Arg::display_text).collect();
            self.facts.dynamic = true;
            self.require_approval(
                "dynamic-program",
                format!("a value is split into the command {:?}", would.join(" ")),
            );
            self.record_draw("a program that is not known", Vec::new(), false);
            self.record_command(&inv.args, None, Vec::new());
            return Flow { shell: true, ..Flow::default() };
        }
        if !first.text.is_ascii() {
            self.add_denial(
                "program-name",
                format!("the program name {} is not ASCII", first.text.escape_unicode()),
            );
            return Flow::default();
        }
        if first.text.is_empty() {
            self.record_draw("a program that is not known", Vec::new(), false);
            self.require_approval("program-name", "the program name is empty");
            return Flow::default();
        }
        if inv.builtins
            && let Some(flow) = self.call_function(&inv)
        {
            // If the function is not defined yet, a program of that name runs; the text asks anyway.
            let mut probe = self.start_probe();
            probe.no_function(inv);
            let refusals = probe.findings.into_iter().filter(|finding| finding.level > FindingLevel::Ask);
            refusals.for_each(|finding| self.add_finding(finding));
            return flow;
        }
        self.no_function(inv)
    }

    /// Judges a builtin or a program: a wrapper, a shell or another program.
    fn no_function(&mut self, inv: Invocation) -> Flow {
        let full = inv.args[0].text.clone();
        if !full.contains('/')
            && inv.builtins
            && let Some(flow) = self.follow_builtin(&full, &inv)
        {
            return flow;
        }
        let name = full.rsplit('/').next().unwrap_or(&full).to_owned();
        if full.contains('/') && !self.is_trusted_path(&full) {
            // Its name is only a label, but a hard block applies at any path.
            return self.judge_untrusted_program(&full, &name, &inv);
        }
        if let Some(flow) = self.follow_wrapper(&name, &inv) {
            return flow;
        }
        if is_shell(&name) {
            return self.shell_command(&name, &inv);
        }
        self.judge_program(&name, &inv)
    }

    /// Judges a program whose name is known only at run time.
    fn dynamic_program(&mut self, inv: &Invocation) -> Flow {
        self.facts.dynamic = true;
        let first = &inv.args[0];
        if first.taint.network {
            self.add_hard_block("download-run", "the program name comes from the network", None);
        }
        self.require_approval("dynamic-program", "the program's name is only known when the command runs");
        self.record_draw("a program that is not known", Vec::new(), false);
        self.record_command(&inv.args, None, Vec::new());
        let (shape, suffix) = (&inv.args[1..], first.text.as_str());
        let named = |name: &str| [std::slice::from_ref(&Arg::literal(name)), shape].concat();
        if first.unset && !suffix.is_empty() {
            // For hard blocks, a variable that is never set is empty.
            let mut probe = self.start_probe();
            let (args, input) = (named(suffix), inv.input.clone());
            probe.judge_command(Invocation { args, input, ..Invocation::default() });
            self.adopt_hard_of(&probe);
        }
        let mut guesses: Vec<Vec<Arg>> = vec![shape.to_vec()];
        let device = shape.iter().any(|a| a.text.starts_with("/dev/"));
        let guesses_by_name: &[&str] = match (shape.is_empty(), device) {
            (true, _) => &[],
            (false, true) => &["rm", "dd", "sh", "mkfs", "chmod", "find", "tee"],
            (false, false) => &["rm", "dd", "sh", "chmod", "find"],
        };
        guesses.extend(guesses_by_name.iter().map(|guess| named(guess)));
        if !suffix.is_empty() {
            guesses.push(named(suffix.rsplit('/').next().unwrap_or(suffix)));
        }
        for args in guesses.into_iter().filter(|args| !args.is_empty()) {
            let mut probe = self.start_probe();
            probe.judge_command(Invocation { args, input: inv.input.clone(), ..Invocation::default() });
            if let Some(hit) = probe.hard_finding() {
                let message = format!("a program that is not known, used as in: {}", hit.message);
                self.add_denial("dynamic-destructive", message);
                break;
            }
        }
        Flow { shell: true, ..Flow::default() }
    }

    /// Follows the command inside a wrapper that passes everything on.
    pub(crate) fn follow_wrapped_command(
        &mut self,
        args: Vec<Arg>,
        outer: &Invocation,
        builtins: bool,
    ) -> Flow {
        if args.is_empty() {
            return Flow::default();
        }
        if self.wrapped >= super::analysis::WRAPPER_DEPTH {
            self.add_denial("limit:wrappers", "there are too many wrappers around the command");
            return Flow::default();
        }
        self.wrapped += 1;
        let saved = if builtins { Some(std::mem::take(&mut self.scope.functions)) } else { None };
        let flow = self.judge_command(Invocation {
            args,
            input: outer.input.clone(),
            builtins,
            ..Invocation::default()
        });
        if let Some(functions) = saved {
            self.scope.functions = functions;
        }
        self.wrapped -= 1;
        flow
    }

    /// Joins `args` with blanks into one text of code; refuses unknown code.
    pub(crate) fn code_text(&mut self, args: &[Arg], by: &str) -> Option<String> {
        let origin = combined_taint(args);
        if origin.network {
            self.refuse_download(format!("{by} runs code that comes from the network"));
            return None;
        }
        let text = args.iter().map(|a| a.text.as_str()).collect::<Vec<_>>().join(" ");
        if args.iter().any(Arg::depends_on_data) {
            self.facts.opaque = true;
            if origin.decoded {
                self.add_denial("obfuscated", format!("{by} runs decoded data"));
            }
            if args.iter().filter(|a| a.depends_on_data()).all(|a| a.item && !a.unknown_start) {
                self.record_draw(by, Vec::new(), false);
                self.require_approval(
                    "item-code",
                    format!("{by} runs text into which file names are put; they may hold code"),
                );
                return Some(text);
            }
            self.deny_hint(
                "opaque-code",
                format!("{by} runs code that is only known when it runs"),
                "write the command out, or pass the data as an argument after the code",
            );
            self.probe_code(&text, by);
            return None;
        }
        Some(text)
    }

    /// Refuses code that comes from the network.
    pub(crate) fn refuse_download(&mut self, message: String) {
        let hint = "download to a file, read it, and run it as a separate step";
        self.add_hard_block("download-run", message, Some(hint));
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

/// Origins of the data in any of the words.
pub(crate) fn combined_taint(args: &[Arg]) -> super::analysis::Taint {
    args.iter().fold(Default::default(), |taint, arg| arg.taint.join(taint))
}
