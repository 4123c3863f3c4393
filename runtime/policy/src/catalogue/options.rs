//! The options of the catalogue's programs, and the one reading of a command
//! line that every check of a program shares.
//!
//! The reading is that of `getopt_long`, less what programs differ in: a long
//! option is known only by its whole name, and a value that stands alone must
//! not look like an option. Whatever is left over is *unknown*, and a command
//! with something unknown is never covered.

use super::super::analysis::Arg;

// `PROGRAMS` and `VERSIONS`: build.rs makes them from `programs/*.toml`.
include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The kind of a program's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operands {
    Paths,
    Meta,
    Text,
    Pattern,
    None,
    /// Every word is text, options too.
    Free,
    /// One input; a second operand would be written.
    FirstOnly,
    /// Revisions and paths.
    Git,
}

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// A value, attached or the next word.
    Text,
    Path,
    /// A value only when it is attached.
    Attached,
    /// Two words.
    TwoTexts,
    TextAndPath,
    /// It does more than read.
    Refused,
}

/// One option of a program.
#[derive(Clone, Copy, Debug)]
struct Known {
    takes: Takes,
    /// Its value is the pattern, so that no operand is.
    pattern: bool,
}

const fn known(takes: Takes) -> Known {
    Known { takes, pattern: false }
}

const fn pattern(takes: Takes) -> Known {
    Known { takes, pattern: true }
}

/// A program of the catalogue; `programs/README.md` explains the fields.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) operands: Operands,
    /// In order of their letters.
    short: &'static [(char, Known)],
    /// In order of their names.
    long: &'static [(&'static str, Known)],
    /// Without dashes.
    required: &'static [&'static str],
    /// Some option runs another program.
    runs: bool,
    pub(super) verbs: &'static [&'static str],
    one_dash: bool,
    options_first: bool,
    no_equals: bool,
    pub(super) refuse_schemes: bool,
    pub(super) pure: bool,
}

impl Entry {
    fn short_option(&self, name: char) -> Option<Known> {
        let at = self.short.binary_search_by_key(&name, |(short, _)| *short).ok()?;
        Some(self.short[at].1)
    }

    pub(super) fn knows_long(&self, name: &str) -> bool {
        self.long_option(name).is_some()
    }

    fn long_option(&self, name: &str) -> Option<Known> {
        let at = self.long.binary_search_by_key(&name, |(long, _)| *long).ok()?;
        Some(self.long[at].1)
    }

    /// True if a word that turns out to be an option could do harm. An option that would
    /// only write does none: a catalogue command gets no write root.
    fn is_risky(&self) -> bool {
        self.runs
            || !self.required.is_empty()
            || self.options_first
            || matches!(self.operands, Operands::None | Operands::FirstOnly | Operands::Git)
    }

    fn has_refusals(&self) -> bool {
        let mut all =
            self.short.iter().map(|(_, known)| known).chain(self.long.iter().map(|(_, known)| known));
        all.any(|known| known.takes == Takes::Refused)
    }

    /// The options that must be there, as a person writes them.
    fn required_shown(&self) -> String {
        let shown = |name: &&'static str| match name.len() {
            0 => "no argument".to_owned(),
            1 => format!("-{name}"),
            _ if self.one_dash => format!("-{name}"),
            _ => format!("--{name}"),
        };
        self.required.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// The catalogue's entry for a program, or for `program/verb`.
pub(super) fn find_entry(name: &str) -> Option<&'static Entry> {
    let at = PROGRAMS.binary_search_by_key(&name, |(program, _)| *program).ok()?;
    Some(PROGRAMS[at].1)
}

/// The role of a word in the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An option, with whatever is attached to it, or `--`.
    Option,
    /// An option with an attached value that is text.
    OptionWithText,
    /// The value of the option before it.
    TextValue,
    PathValue,
    Pattern,
    Operand,
}

/// An option as it was given.
#[derive(Clone, Debug)]
pub(super) struct GivenOption {
    pub(super) name: String,
    /// Its values, with whether each is a path.
    pub(super) values: Vec<(Arg, bool)>,
}

/// A command line as one program reads it.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandLine {
    pub(super) given: Vec<GivenOption>,
    pub(super) parts: Vec<Part>,
    /// Why the catalogue cannot cover it.
    pub(super) problem: Option<String>,
}

impl CommandLine {
    /// The place behind which words may be others than they are read as,
    /// because one before them may be missing, several, or an option.
    pub(super) fn settled_until(&self, args: &[Arg]) -> usize {
        let keeps = |(part, arg): (&Part, &Arg)| match part {
            Part::TextValue | Part::PathValue => arg.keeps_its_place(true),
            Part::Option | Part::OptionWithText => arg.keeps_its_place(false),
            Part::Pattern | Part::Operand => !arg.may_be_flag() && !arg.loose,
        };
        let first = self.parts.iter().zip(args).position(|word| !keeps(word));
        first.map_or(args.len(), |at| at + 1)
    }

    /// True if any of these options was given. Their names have no dashes.
    pub(super) fn has_option(&self, names: &[&str]) -> bool {
        self.given.iter().any(|given| names.contains(&given.name.as_str()))
    }

    /// The positions of the operands, the pattern not among them.
    pub(super) fn operand_positions(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().enumerate().filter(|(_, part)| **part == Part::Operand).map(|(at, _)| at)
    }

    /// The position of the operand that is the pattern.
    pub(super) fn pattern_position(&self) -> Option<usize> {
        self.parts.iter().position(|part| *part == Part::Pattern)
    }

    /// Every value of these options.
    pub(super) fn option_values<'l>(&'l self, names: &'l [&str]) -> impl Iterator<Item = &'l Arg> {
        let given = self.given.iter().filter(|given| names.contains(&given.name.as_str()));
        given.flat_map(|given| given.values.iter().map(|(value, _)| value))
    }

    /// Every value that is a path.
    pub(super) fn path_values(&self) -> impl Iterator<Item = &Arg> {
        let values = self.given.iter().flat_map(|given| &given.values);
        values.filter(|(_, is_path)| *is_path).map(|(value, _)| value)
    }

    fn record_problem(&mut self, why: impl FnOnce() -> String) {
        if self.problem.is_none() {
            self.problem = Some(why());
        }
    }
}

/// Reads `args` as the program of `entry` does.
pub(super) fn read_command_line(entry: &Entry, args: &[Arg]) -> CommandLine {
    let mut line = CommandLine { parts: Vec::with_capacity(args.len()), ..CommandLine::default() };
    if entry.operands == Operands::Free {
        line.parts.resize(args.len(), Part::TextValue);
        return line;
    }
    let mut pattern_given = false;
    let mut ended = false;
    while let Some(arg) = args.get(line.parts.len()) {
        let text = arg.text.as_str();
        let is_option = !ended && !arg.unknown_start && text.starts_with('-') && (text != "-" || arg.unknown);
        let may_turn = arg.may_be_flag() || arg.loose || (is_option && !arg.keeps_its_place(false));
        if !ended && may_turn && (entry.is_risky() || entry.has_refusals()) {
            line.record_problem(|| "a word that is not known yet may turn into an option".to_owned());
        }
        if !is_option || text == "-" {
            line.parts.push(Part::Operand);
            ended |= entry.options_first;
            continue;
        }
        if text == "--" {
            line.parts.push(Part::Option);
            ended = true;
            continue;
        }
        line.parts.push(Part::Option);
        let word = if entry.one_dash {
            Some(text.strip_prefix("--").unwrap_or(&text[1..]))
        } else {
            text.strip_prefix("--")
        };
        match word {
            Some(word) => {
                let (name, value) = match word.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (word, None),
                };
                let known = entry.long_option(name).filter(|_| value.is_none() || !entry.no_equals);
                pattern_given |= known.is_some_and(|known| known.pattern);
                take_option(&mut line, entry, args, name, known, value);
            }
            None => {
                let cluster = &text[1..];
                for (at, c) in cluster.char_indices() {
                    let rest = &cluster[at + c.len_utf8()..];
                    let known = entry.short_option(c);
                    pattern_given |= known.is_some_and(|known| known.pattern);
                    let name = &cluster[at..at + c.len_utf8()];
                    let takes = known.map_or(Takes::Refused, |known| known.takes);
                    let has_value = !rest.is_empty() && !matches!(takes, Takes::Nothing | Takes::Refused);
                    take_option(&mut line, entry, args, name, known, has_value.then_some(rest));
                    if takes != Takes::Nothing {
                        break;
                    }
                }
            }
        }
    }
    if entry.operands == Operands::Pattern
        && !pattern_given
        && let Some(first) = line.parts.iter().position(|part| *part == Part::Operand)
    {
        line.parts[first] = Part::Pattern;
    }
    check_required(&mut line, entry, args);
    line
}

fn check_required(line: &mut CommandLine, entry: &Entry, args: &[Arg]) {
    let satisfied = entry.required.is_empty()
        || line.has_option(entry.required)
        || line.has_option(&["help", "version"])
        || (args.is_empty() && entry.required.contains(&""));
    if !satisfied {
        line.record_problem(|| format!("only reads with one of {}", entry.required_shown()));
    }
}

/// Notes one option and takes its values.
fn take_option(
    line: &mut CommandLine,
    entry: &Entry,
    args: &[Arg],
    name: &str,
    known: Option<Known>,
    attached: Option<&str>,
) {
    let here = line.parts.len() - 1;
    let arg = &args[here];
    let dashes = if name.len() == 1 || entry.one_dash { "-" } else { "--" };
    let Some(known) = known else {
        let full =
            entry.long.iter().map(|(long, _)| long).find(|long| name.len() > 1 && long.starts_with(name));
        line.record_problem(|| match full {
            Some(full) => format!("{dashes}{name} is not a whole option; write {dashes}{full}"),
            None => format!("option {dashes}{name} is not known to only read"),
        });
        return;
    };
    let takes_word = matches!(known.takes, Takes::Text | Takes::Path | Takes::TwoTexts | Takes::TextAndPath);
    if takes_word && attached.is_none() && !arg.keeps_its_place(false) {
        line.record_problem(|| format!("{dashes}{name} takes the next word if nothing is attached to it"));
    }
    let own = |text: &str| Arg { text: text.to_owned(), unknown_start: false, ..arg.clone() };
    let mut given = GivenOption { name: name.to_owned(), values: Vec::new() };
    match (known.takes, attached) {
        (Takes::Refused, _) => line.record_problem(|| format!("{dashes}{name} does more than read")),
        (Takes::Nothing, None) | (Takes::Attached, None) => {}
        (Takes::Nothing, Some(_)) => {
            line.record_problem(|| format!("{dashes}{name} is not known to take a value"))
        }
        (Takes::Text | Takes::Attached, Some(value)) => {
            line.parts[here] = Part::OptionWithText;
            given.values.push((own(value), false));
        }
        (Takes::Path, Some(value)) => given.values.push((own(value), true)),
        (Takes::Text, None) => given.values.extend(next(line, entry, args, dashes, name, false)),
        (Takes::Path, None) => given.values.extend(next(line, entry, args, dashes, name, true)),
        (Takes::TwoTexts | Takes::TextAndPath, _) => {
            given.values.extend(next(line, entry, args, dashes, name, false));
            given.values.extend(next(line, entry, args, dashes, name, known.takes == Takes::TextAndPath));
        }
    }
    line.given.push(given);
}

/// The next word as a value.
fn next(
    line: &mut CommandLine,
    entry: &Entry,
    args: &[Arg],
    dashes: &str,
    name: &str,
    is_path: bool,
) -> Option<(Arg, bool)> {
    let value = args.get(line.parts.len())?;
    line.parts.push(if is_path { Part::PathValue } else { Part::TextValue });
    // `-5`, `-1 day`; and a lone dash.
    let number = || value.text.as_bytes().get(1).is_none_or(u8::is_ascii_digit);
    let may_harm = entry.is_risky() || entry.has_refusals();
    if may_harm && value.text.starts_with('-') && !value.unknown_start && !number() {
        line.record_problem(|| format!("the value of {dashes}{name} looks like an option; attach it"));
    }
    if entry.is_risky() && !value.keeps_its_place(true) {
        line.record_problem(|| format!("the value of {dashes}{name} may become several words"));
    }
    Some((value.clone(), is_path))
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// One line of the table, for tests that generate command lines.
    pub(in super::super) struct Sample {
        /// Arguments that the catalogue may cover.
        pub(in super::super) base: Vec<String>,
        pub(in super::super) long: Vec<&'static str>,
        /// Short options without a value.
        pub(in super::super) flags: Vec<char>,
        /// Short options with one.
        pub(in super::super) valued: Vec<char>,
        entry: &'static Entry,
    }

    impl Sample {
        /// True if the table has the option, or each option of the cluster.
        pub(in super::super) fn knows_option(&self, option: &str) -> bool {
            read_command_line(self.entry, &[Arg::literal(option)]).given.first().is_some_and(|_| {
                read_command_line(self.entry, &[Arg::literal(option)])
                    .problem
                    .is_none_or(|p| p.starts_with("only"))
            })
        }
    }

    /// Every program, and every verb, that reads options.
    pub(in super::super) fn option_samples() -> Vec<(&'static str, Sample)> {
        let known = PROGRAMS.iter().copied();
        let mut all: Vec<(&'static str, Sample)> = known
            .filter(|(_, entry)| entry.operands != Operands::Free)
            .map(|(name, entry)| {
                let required = entry.required.first().filter(|name| !name.is_empty());
                let required = required.map(|name| match (name.len(), entry.one_dash) {
                    (1, _) | (_, true) => format!("-{name}"),
                    _ => format!("--{name}"),
                });
                let operand = match entry.operands {
                    _ if !entry.verbs.is_empty() => Some(entry.verbs[0].to_owned()),
                    Operands::Pattern => Some("p".to_owned()),
                    _ => None,
                };
                let long = entry.long.iter().map(|(long, _)| *long).collect();
                let flags =
                    entry.short.iter().filter(|(_, known)| known.takes == Takes::Nothing).map(|(c, _)| *c);
                let takes = |known: &Known| !matches!(known.takes, Takes::Nothing | Takes::Refused);
                let valued = entry.short.iter().filter(|(_, known)| takes(known)).map(|(c, _)| *c).collect();
                let base = required.into_iter().chain(operand).collect();
                (name, Sample { base, long, flags: flags.collect(), valued, entry })
            })
            .collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_line(program: &str, words: &[&str]) -> CommandLine {
        let args: Vec<Arg> = words.iter().map(|word| Arg::literal(*word)).collect();
        read_command_line(find_entry(program).unwrap(), &args)
    }

    #[test]
    fn entries_are_what_their_rows_say() {
        assert_eq!(find_entry("sort").unwrap().operands, Operands::Paths);
        assert_eq!(
            find_entry("sort").unwrap().long_option("compress-program").unwrap().takes,
            Takes::Refused
        );
        assert_eq!(find_entry("systemctl").unwrap().verbs[0], "status");
        assert_eq!(find_entry("git/log").unwrap().long_option("ext-diff").unwrap().takes, Takes::Refused);
    }

    #[test]
    fn words_are_read_as_getopt_reads_them() {
        use Part::{Operand, Option, OptionWithText, Pattern, TextValue};
        assert_eq!(
            sample_line("grep", &["-rn", "-e", "x", "src"]).parts,
            [Option, Option, TextValue, Operand]
        );
        assert_eq!(sample_line("grep", &["-rnex", "src"]).parts, [OptionWithText, Operand]);
        assert_eq!(
            sample_line("grep", &["--color=auto", "x", "y"]).parts,
            [OptionWithText, Pattern, Operand]
        );
        assert_eq!(sample_line("head", &["-n5", "--", "-x"]).parts, [OptionWithText, Option, Operand]);
        assert_eq!(sample_line("awk", &["-F", ":", "{}", "-x"]).parts, [Option, TextValue, Pattern, Operand]);
        assert_eq!(sample_line("jq", &["-n", "--arg", "x", "y", "$x"]).parts[4], Pattern);
        assert_eq!(sample_line("openssl/x509", &["-in", "a", "-noout"]).problem, None);
    }

    #[test]
    fn what_the_table_does_not_say_is_a_problem() {
        for (program, words) in [
            ("sort", &["--compress-prog=x"][..]),
            ("sort", &["--unheard-of"]),
            ("sort", &["-nq"]),
            ("sort", &["--reverse=x"]),
            ("sort", &["-k", "--output=x"]),
            ("jq", &["--tab=x"]),
            ("openssl/x509", &["--out", "f"]),
            ("openssl/x509", &["-noout=x"]),
            ("tar", &["-f", "x"]),
        ] {
            assert!(sample_line(program, words).problem.is_some(), "{program} {words:?}");
        }
        assert_eq!(sample_line("sort", &["-k", "-1", "-rn"]).problem, None);
    }
}
