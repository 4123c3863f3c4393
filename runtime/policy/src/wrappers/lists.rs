//! Wrappers that make command lines of a list: `xargs` and `parallel`.

use super::super::analysis::{Analysis, Arg, Flow, Input};
use super::super::command::Invocation;
use super::{Kind, wrapper};

/// The long options of `xargs` that are known.
const XARGS_LONG: &[&str] = &[
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

/// What the options of `xargs` say of the commands that it makes.
#[derive(Default)]
struct XargsOptions {
    /// The text that an item takes the place of.
    replace: Option<String>,
    /// The items are those of a file.
    from_file: bool,
    /// Where the command begins.
    command_at: usize,
}

impl Analysis<'_> {
    pub(super) fn xargs(&mut self, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        let XargsOptions { replace, from_file, command_at } = self.xargs_options(args);
        let mut template = args[command_at.min(args.len())..].to_vec();
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

    fn xargs_options(&mut self, args: &[Arg]) -> XargsOptions {
        let mut options = XargsOptions::default();
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
                if !XARGS_LONG.contains(&name) {
                    self.ask("wrapper", format!("option --{name} of xargs is not known"));
                }
                if is("replace") {
                    options.replace = Some(value.unwrap_or_else(|| "{}".to_owned()));
                } else if is("arg-file") {
                    options.from_file = true;
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
                "I" | "J" => options.replace = Some(value.text),
                "i" => {
                    options.replace = Some(if value.text.is_empty() { "{}".to_owned() } else { value.text });
                }
                "a" => {
                    options.from_file = true;
                    self.read_path(&value);
                }
                _ => {}
            }
        }
        XargsOptions { command_at: at, ..options }
    }

    /// What xargs starts reads nothing: the input was the list.
    pub(super) fn inner_without_input(&mut self, args: Vec<Arg>, inv: &Invocation) -> Flow {
        let outer = Invocation { input: Input::Empty, is_plain: inv.is_plain, ..Invocation::default() };
        self.inner(args, &outer, false)
    }

    pub(super) fn parallel(&mut self, inv: &Invocation) -> Flow {
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
