//! Wrappers that build command lines from a list: `xargs` and `parallel`.

use super::super::analysis::{Analysis, Arg, CommandInput, Flow};
use super::super::command::Invocation;
use super::super::output::DISPUTED;
use super::{Kind, Split, new_wrapper};

/// Known long options of `xargs`.
const XARGS_LONG: &[&str] = text_list!("../lists/xargs-long-options.txt");

/// Options of `xargs` that take a value: letter, name, and true if the value is optional and so has to
/// be attached.
const XARGS_VALUES: &[(char, &str, bool)] = &[
    ('I', "", false),
    ('i', "replace", true),
    ('J', "", false),
    ('R', "", false),
    ('n', "max-args", false),
    ('P', "max-procs", false),
    ('s', "max-chars", false),
    ('d', "delimiter", false),
    ('E', "", false),
    ('e', "eof", true),
    ('L', "", false),
    ('l', "max-lines", true),
    ('a', "arg-file", false),
    ('V', "process-slot-var", false),
];

/// Longest input that every xargs puts on one command line: busybox stops at 20 kB, and others stop
/// earlier if the environment is large.
const ONE_COMMAND_LINE: usize = 4096;

/// Effects of the options of `xargs` on its command lines.
#[derive(Default)]
struct XargsOptions {
    /// Placeholder that each item replaces.
    replace: Option<String>,
    /// The items come from a file.
    from_file: bool,
    /// Some option sets how the text is divided or how many items a command gets.
    divides: bool,
    /// Position of the command.
    command_at: usize,
    /// Positions of the words that are the separate value of an option.
    values: Vec<usize>,
}

impl Analysis<'_> {
    pub(super) fn follow_xargs(&mut self, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        let XargsOptions { replace, from_file, divides, command_at, values } = self.xargs_options(args);
        let (own, rest) = args.split_at(command_at.min(args.len()));
        self.own_words("xargs", own, &values, rest);
        let mut template = rest.to_vec();
        if template.is_empty() {
            template.push(Arg::literal("echo"));
        }
        if inv.input.is_disputed() && !from_file {
            self.flag_unsupported(DISPUTED);
        }
        let known = inv.input.known_text().filter(|_| !from_file);
        let mut lists: Vec<Vec<Arg>> = Vec::new();
        if let Some(text) = known {
            let item = |word: &str| Arg::literal(word.trim_matches(['\'', '"']));
            let words: Vec<Arg> = match replace {
                Some(_) => text.lines().map(str::trim_start).filter(|l| !l.is_empty()).map(item).collect(),
                None => text.split([' ', '\t', '\n', '\0']).filter(|w| !w.is_empty()).map(item).collect(),
            };
            lists.push(words);
        }
        // The division of this text is not followed. The text was still searched above for forbidden
        // commands.
        if !known.is_some_and(|text| !divides && is_divided_alike(text, replace.is_some())) {
            let vital = matches!(&inv.input, CommandInput::Pipe(flow) if flow.vital && !from_file);
            let loose = replace.is_none();
            lists.push(vec![Arg { taint: inv.input.taint(), vital, loose, ..Arg::unknown() }]);
            self.facts.dynamic = true;
        }
        let mut flow = Flow::default();
        for items in lists {
            if items.len() > 256 {
                self.add_denial("limit:values", "xargs starts too many commands to be read");
            }
            let unknown = items.iter().any(|i| i.unknown);
            match &replace {
                Some(mark) => {
                    for item in items.iter().take(256) {
                        let args = template.iter().map(|arg| substitute_mark(arg, mark, item)).collect();
                        flow = flow.join(self.inner_without_input(args, inv));
                    }
                }
                None => {
                    let mut all = template.clone();
                    all.extend(items);
                    flow = flow.join(self.inner_without_input(all, inv));
                }
            }
            self.facts.dynamic |= unknown;
        }
        flow
    }

    fn xargs_options(&mut self, args: &[Arg]) -> XargsOptions {
        let mut options = XargsOptions::default();
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if text.len() < 2 || !text.starts_with('-') {
                break;
            }
            at += 1;
            if text == "--" {
                break;
            }
            let mut attached = None;
            let taken = if let Some(long) = text.strip_prefix("--") {
                let name = long.split_once('=').map_or(long, |(name, value)| {
                    attached = Some(value);
                    name
                });
                if !XARGS_LONG.contains(&name) {
                    self.require_approval("wrapper", format!("option --{name} of xargs is not known"));
                }
                options.divides |= name == "null";
                XARGS_VALUES.iter().find(|(_, long, _)| !name.is_empty() && long.starts_with(name))
            } else {
                let flags = &text[1..];
                let values = |c| XARGS_VALUES.iter().find(|(letter, ..)| *letter == c && c != 'V');
                let end = flags.find(|c| values(c).is_some()).unwrap_or(flags.len());
                if !flags[..end].chars().all(|c| "0rtpxo".contains(c)) {
                    self.require_approval("wrapper", format!("option {text} of xargs is not known"));
                }
                options.divides |= flags[..end].contains('0');
                attached = flags.get(end + 1..).filter(|rest| !rest.is_empty());
                flags[end..].chars().next().and_then(values)
            };
            let Some((letter, _, optional)) = taken else { continue };
            let value = match attached {
                Some(value) => Arg { text: value.to_owned(), ..arg.clone() },
                None if *optional || arg.unknown => Arg { text: String::new(), ..arg.clone() },
                None => {
                    options.values.push(at);
                    at += 1;
                    args.get(at - 1).cloned().unwrap_or_default()
                }
            };
            match letter {
                'I' | 'i' => {
                    if *letter == 'I' && value.text.is_empty() {
                        self.require_approval("wrapper", "xargs -I needs a text to replace");
                    }
                    let mark = if value.text.is_empty() { "{}".to_owned() } else { value.text };
                    options.replace = Some(mark);
                }
                // All items replace one word.
                'J' => {
                    options.divides = true;
                    options.replace = Some(value.text);
                }
                'a' => {
                    options.from_file = true;
                    self.read_path(&value);
                }
                'V' => self.check_exported(&value.text, &Arg::unknown_number()),
                'P' => {}
                _ => options.divides = true,
            }
        }
        XargsOptions { command_at: at, ..options }
    }

    /// The command of xargs gets no input: the input was the list.
    pub(super) fn inner_without_input(&mut self, args: Vec<Arg>, inv: &Invocation) -> Flow {
        let outer =
            Invocation { input: CommandInput::Empty, is_plain: inv.is_plain, ..Invocation::default() };
        self.follow_wrapped_command(args, &outer, false)
    }

    pub(super) fn follow_parallel(&mut self, inv: &Invocation) -> Flow {
        self.record_draw("parallel", Vec::new(), false);
        self.require_approval("wrapper", "parallel builds command lines from its input");
        let args = &inv.args[1..];
        let split = args.iter().position(|a| a.text.starts_with(":::")).unwrap_or(args.len());
        let Split { rest: template, .. } = new_wrapper(
            &[],
            "jNnLISad",
            &["jobs", "max-args", "arg-file", "colsep", "joblog", "results", "delay", "timeout", "retries"],
            0,
            Kind::Through,
        )
        .split_args(&args[..split]);
        let mut items: Vec<Arg> =
            args[split..].iter().filter(|a| !a.text.starts_with(":::")).cloned().collect();
        if split == args.len() {
            if inv.input.is_disputed() {
                self.flag_unsupported(DISPUTED);
            }
            items = match inv.input.known_text() {
                Some(text) => text.lines().map(Arg::literal).collect(),
                None => vec![Arg::unknown()],
            };
        }
        let template = template.to_vec();
        let mut flow = Flow::default();
        for item in items.iter().take(256) {
            let mut words: Vec<Arg> = template.iter().map(|a| substitute_mark(a, "{}", item)).collect();
            if !template.iter().any(|a| a.text.contains("{}")) {
                words.push(item.clone());
            }
            if item.unknown && !template.is_empty() {
                // parallel quotes the items that it inserts: the line is judged as a command with one
                // unknown word.
                flow = flow.join(self.inner_without_input(words, inv));
            } else {
                flow = flow.join(self.run_code(&words, "parallel"));
            }
        }
        flow
    }
}

/// True if every xargs makes the same items of `text` and one command of them (with `by_line`, one per
/// line).
fn is_divided_alike(text: &str, by_line: bool) -> bool {
    let blank = |c: char| c.is_whitespace() && !matches!(c, ' ' | '\t' | '\n');
    text.len() <= ONE_COMMAND_LINE
        && !text.contains(['\'', '"', '\\', '\0'])
        && !text.contains(blank)
        && (!by_line || text.lines().all(|line| line == line.trim()))
}

/// Replaces every `mark` in `arg` by `item`.
pub(crate) fn substitute_mark(arg: &Arg, mark: &str, item: &Arg) -> Arg {
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
        loose: arg.loose || item.loose,
        item: arg.item || !arg.unknown,
        vital: arg.vital || item.vital,
        taint: arg.taint.join(item.taint),
        ..arg.clone()
    }
}
