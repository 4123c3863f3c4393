//! Static word expansion: what a word is, as far as that can be known without
//! running anything.

mod parameters;

use brush_parser::word::{
    self, BraceExpressionOrText, Parameter, ParameterExpr, SpecialParameter, TildeExpr, WordPiece,
    WordPieceWithSource,
};

use super::analysis::{Analysis, Arg, Flow, MAX_VALUE_LEN, is_too_much};
use super::dialect::{Dialect, Shell};
use super::parse::{PARSER_OPTIONS, guarded};
use super::paths::{expand_root, normalise};
use super::quoting::{brace_words, decode_ansi_c, has_huge_number, unescape_backquoted};

/// Variables the shell sets itself, with values nobody can know beforehand.
const SHELL_SET: &[&str] = &[
    "OLDPWD",
    "RANDOM",
    "SRANDOM",
    "SECONDS",
    "LINENO",
    "HOSTNAME",
    "HOSTTYPE",
    "MACHTYPE",
    "OSTYPE",
    "BASH",
    "BASHPID",
    "BASH_VERSION",
    "BASH_SOURCE",
    "BASH_COMMAND",
    "BASH_SUBSHELL",
    "BASH_ARGV0",
    "BASH_REMATCH",
    "BASH_LINENO",
    "FUNCNAME",
    "PIPESTATUS",
    "UID",
    "EUID",
    "GROUPS",
    "SHLVL",
    "OPTIND",
    "OPTARG",
    "REPLY",
    "MAPFILE",
    "COLUMNS",
    "LINES",
    "EPOCHSECONDS",
    "EPOCHREALTIME",
    "DIRSTACK",
    "PS4",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "BASH_VERSINFO",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_MONOSECONDS",
    "BASH_TRAPSIG",
    "COPROC",
    "_",
];
/// Variables that a shell or lobster sets when the step starts, whatever they are in the known environment.
const SET_AT_START: &[&str] = &["LOBSTER_RUN_ID", "TRACEPARENT", "PS1", "PS2", "OPTERR"];
/// Integers of a shell itself: some version of bash evaluates what they are given.
const SHELL_INTEGERS: &[&str] = &[
    "RANDOM",
    "SRANDOM",
    "SECONDS",
    "LINENO",
    "BASHPID",
    "UID",
    "EUID",
    "SHLVL",
    "OPTIND",
    "HISTCMD",
    "EPOCHSECONDS",
    "BASH_MONOSECONDS",
    "BASH_SUBSHELL",
];
/// Numbers that are only given to the shell by itself.
const SHELL_SIZES: &[&str] = &["COLUMNS", "LINES"];

/// The words being put together from pieces.
#[derive(Default)]
struct Fields {
    done: Vec<Arg>,
    current: Option<Arg>,
    split: bool,
}

impl Fields {
    fn current(&mut self) -> &mut Arg {
        self.current.get_or_insert_default()
    }

    fn push_text(&mut self, text: &str, quoted: bool) {
        let split = self.split;
        let current = self.current();
        current.quoted |= quoted;
        if !quoted && split && text.contains(['*', '?', '[']) {
            current.glob = true;
        }
        current.text.push_str(text);
    }

    /// Appends a value; unquoted ones are split at blanks as bash would.
    fn push_value(&mut self, value: &Arg, quoted: bool, ifs: Option<&str>) {
        if !quoted && self.split && value.text.is_empty() && !value.unknown {
            // It leaves no word.
            return;
        }
        if quoted || !self.split || ifs.is_none_or(|ifs| !value.text.contains(|c| ifs.contains(c))) {
            self.push_text(&value.text.clone(), quoted);
            self.mark(value, quoted);
            return;
        }
        let ifs = ifs.unwrap_or(" \t\n");
        let mut parts = value.text.split(|c| ifs.contains(c)).peekable();
        let mut end = 0;
        while let Some(part) = parts.next() {
            end += part.len();
            if !part.is_empty() {
                self.push_text(part, false);
                self.current().from_split = true;
                if value.matched || (value.unknown && end >= value.unknown_at) {
                    // What is not known may be before, in or behind this word.
                    self.mark(value, false);
                    self.current().unknown_start |= value.unknown;
                }
            }
            if parts.peek().is_some() {
                self.done.extend(self.current.take());
            }
            end += 1;
        }
        if value.unknown {
            self.mark(value, false);
        }
    }

    fn mark(&mut self, value: &Arg, quoted: bool) {
        let may_split = self.split && !quoted;
        let current = self.current();
        if value.unknown {
            if !current.unknown {
                // Of a split value only its last word is there.
                current.unknown_at = current.text.len().saturating_sub(value.text.len()) + value.unknown_at;
            }
            current.inherited |= value.inherited;
            let begins = current.text.len() == value.text.len() && !current.unknown;
            current.unset = value.unset && (current.unset || !current.unknown);
            current.unknown_start |= begins && value.unknown_start;
            // Behind a letter a digit is part of a name.
            let before = &current.text[..current.text.len().saturating_sub(value.text.len())];
            current.numeric =
                value.numeric && (current.numeric || !current.unknown) && !ends_in_a_name(before);
            current.unknown = true;
            current.loose |= value.loose || may_split;
        }
        current.glob |= value.glob && !quoted;
        current.matched |= value.matched;
        current.supervisor |= value.supervisor;
        current.vital |= value.vital;
        current.taint = current.taint.join(value.taint);
    }

    fn finish(mut self) -> Vec<Arg> {
        self.done.extend(self.current.take());
        if self.split {
            // A value that is empty and not quoted is no word.
            self.done.retain(|word| word.quoted || word.unknown || !word.text.is_empty());
        }
        for word in &mut self.done {
            // A bracket without its partner is not a pattern: the commands [ and [[.
            if matches!(word.text.as_str(), "[" | "[[") {
                word.glob = false;
            }
        }
        self.done
    }
}

impl Analysis<'_> {
    /// Expands one word of a command line into the words it becomes.
    pub(crate) fn expand(&mut self, raw: &str) -> Vec<Arg> {
        if !raw.contains(|c| "$`\"'\\*?[~{".contains(c)) {
            return vec![Arg::literal(raw)];
        }
        if has_huge_number(raw) {
            self.deny("limit:number", "a number in braces or after a tilde is too long");
            return vec![Arg::unknown()];
        }
        if raw.contains('{') {
            let braces = guarded(|| word::parse_brace_expansions(raw, &PARSER_OPTIONS));
            if let Some(Ok(Some(pieces))) = braces
                && pieces.iter().any(|p| matches!(p, BraceExpressionOrText::Expr(_)))
            {
                let Some(words) = brace_words(&pieces) else {
                    self.ask("dynamic", format!("{raw} expands to too many words to be shown"));
                    return vec![Arg::unknown()];
                };
                return words.iter().flat_map(|word| self.expand_pieces(word, true)).collect();
            }
        }
        let words = self.expand_pieces(raw, true);
        self.mention_wildcards(&words);
        words
    }

    /// Expands a word that never splits: an assignment, a here-string, a
    /// redirect target in quotes.
    pub(crate) fn expand_whole(&mut self, raw: &str) -> Arg {
        // `"$@"` in a place that takes one word joins its parts.
        joined(&self.expand_pieces(raw, false))
    }

    pub(crate) fn expand_pieces(&mut self, raw: &str, split: bool) -> Vec<Arg> {
        let mut fields = Fields { split, ..Fields::default() };
        match guarded(|| word::parse(raw, &PARSER_OPTIONS)) {
            Some(Ok(pieces)) => self.pieces(&pieces, raw, false, &mut fields),
            Some(Err(_)) | None => {
                self.deny("syntax", format!("the word {raw} cannot be read"));
                return vec![Arg::unknown()];
            }
        }
        fields.finish()
    }

    /// Expands the body of a here-document whose delimiter is not quoted.
    pub(crate) fn expand_here_document(&mut self, raw: &str) -> Arg {
        let mut fields = Fields::default();
        match guarded(|| word::parse_heredoc(raw, &PARSER_OPTIONS)) {
            Some(Ok(pieces)) => self.pieces(&pieces, raw, true, &mut fields),
            Some(Err(_)) | None => {
                self.deny("syntax", "the here-document cannot be read");
                return Arg::unknown();
            }
        }
        fields.finish().into_iter().next().unwrap_or_default()
    }

    fn pieces(&mut self, pieces: &[WordPieceWithSource], raw: &str, quoted: bool, fields: &mut Fields) {
        for piece in pieces {
            match &piece.piece {
                WordPiece::Text(text) => fields.push_text(text, quoted),
                WordPiece::SingleQuotedText(text) => fields.push_text(text, true),
                WordPiece::AnsiCQuotedText(text) => match decode_ansi_c(text) {
                    Some(text) => fields.push_text(&text, true),
                    None => {
                        self.deny("unshowable", "a quoted escape stands for a control character");
                        fields.push_value(&Arg::unknown(), true, None);
                    }
                },
                WordPiece::DoubleQuotedSequence(inner) | WordPiece::GettextDoubleQuotedSequence(inner) => {
                    // "$@" of an empty list is no word.
                    if !inner.iter().all(|piece| is_list(&piece.piece)) || inner.is_empty() {
                        fields.current().quoted = true;
                    }
                    self.pieces(inner, raw, true, fields);
                }
                WordPiece::TildeExpansion(tilde) => {
                    let value = self.tilde(tilde);
                    fields.push_value(&value, true, None);
                }
                WordPiece::ParameterExpansion(expr) => self.parameter(expr, quoted, fields),
                WordPiece::CommandSubstitution(code) => {
                    let value = self.substitution(code);
                    fields.push_value(&value, quoted, None);
                }
                WordPiece::BackquotedCommandSubstitution(code) => {
                    let value = self.substitution(&unescape_backquoted(code));
                    fields.push_value(&value, quoted, None);
                }
                WordPiece::EscapeSequence(text) => {
                    let escaped = text.strip_prefix('\\').unwrap_or(text);
                    if escaped != "\n" {
                        fields.push_text(escaped, true);
                    }
                }
                WordPiece::ArithmeticExpression(expr) => {
                    let source = raw.get(piece.start_index..piece.end_index).unwrap_or("");
                    self.arithmetic_read.push(source.to_owned());
                    self.arithmetic(&expr.value);
                    fields.push_value(&Arg::number(), true, None);
                }
            }
        }
    }

    pub(crate) fn ambiguous(&mut self, source: &str) {
        self.deny_hint(
            "ambiguous",
            format!("{source:?} can be read as arithmetic or as commands"),
            "write $(( ... )) with both parentheses together, or $( ( ... ) ) with blanks",
        );
    }

    /// Refuses text that another shell may read as something else.
    pub(crate) fn ambiguous_text(&mut self, source: &str, readings: &str) {
        self.deny_hint(
            "ambiguous",
            format!("{source:?} can be read as {readings}"),
            "put a blank between them",
        );
    }

    fn substitution(&mut self, code: &str) -> Arg {
        self.codes_read.push(code.to_owned());
        let flow = if self.choice.as_ref().is_some_and(|c| c.repeated) {
            Flow::default()
        } else {
            let choice = self.choice.take();
            let saved = (self.span, std::mem::take(&mut self.facts));
            let flow = self.deeper(|a| a.subshell(|a| a.walk_text(code)));
            (self.span, self.facts) = saved;
            self.choice = choice;
            flow
        };
        let names_vital = |text: &String| {
            text.split_whitespace().any(|word| self.roots.is_vital(&normalise(&self.scope.cwd, word)))
        };
        let vital = flow.vital || flow.known.as_ref().is_some_and(names_vital);
        Arg { taint: flow.taint, numeric: flow.numeric, vital, ..Arg::unknown() }
    }

    fn tilde(&self, tilde: &TildeExpr) -> Arg {
        match tilde {
            TildeExpr::Home => Arg::literal(match self.env.vars.get("HOME") {
                Some(home) => expand_root(home, self.env),
                None => self.env.home.clone(),
            }),
            TildeExpr::UserHome(user) if user == "root" => Arg::literal("/root"),
            TildeExpr::UserHome(user) => Arg::literal(format!("/home/{user}")),
            TildeExpr::WorkingDir => Arg::literal(self.scope.cwd.clone()),
            TildeExpr::OldWorkingDir
            | TildeExpr::NthDirFromTopOfDirStack { .. }
            | TildeExpr::NthDirFromBottomOfDirStack { .. } => Arg::unknown(),
        }
    }

    /// The value of `name` in the reading being made.
    pub(crate) fn variable(&mut self, name: &str) -> Arg {
        if let Some(values) = self.values_of(name) {
            let index = match (&mut self.choice, values.len()) {
                (_, 0) => return Arg::unset(),
                (None, _) | (_, 1) => 0,
                (Some(choice), count) => choice.pick(name, count),
            };
            if self.choice.is_none() && values.len() > 1 {
                return Arg::unknown();
            }
            // An earlier reading of the same command may have changed them.
            return values.get(index).cloned().unwrap_or_else(Arg::unknown);
        }
        if let Some(array) = self.array(name) {
            return element(&array, 0);
        }
        self.initial(name)
    }

    /// The values that the text may have given `name`; `None` if it assigns it nowhere.
    fn values_of(&self, name: &str) -> Option<Vec<Arg>> {
        if !self.at_any_time || self.is_settled(name) {
            return self.scope.vars.get(name).cloned();
        }
        let mut values = self.assigned.values(name)?.to_vec();
        if self.assigned.has_array(name) {
            return Some(vec![Arg::unknown()]);
        }
        let initial = self.initial(name);
        if !self.scope.certain.contains(name) && !values.contains(&initial) {
            values.push(initial);
        }
        Some(values)
    }

    /// Whether the walk has seen the last value that `name` can have here.
    fn is_settled(&self, name: &str) -> bool {
        self.scope.certain.contains(name) && self.assigned.is_steady(name)
    }

    /// The elements that the text has given `name`.
    pub(crate) fn array(&self, name: &str) -> Option<Vec<Arg>> {
        let array = self.scope.arrays.get(name)?;
        let sure = !self.at_any_time
            || self.is_settled(name)
            || (self.assigned.has_one_list(name) && self.scope.certain.contains(name));
        Some(if sure { array.clone() } else { vec![Arg::unknown()] })
    }

    /// What `name` is when the text begins.
    pub(crate) fn initial(&self, name: &str) -> Arg {
        match name {
            "PWD" => Arg::literal(self.scope.cwd.clone()),
            "IFS" => Arg::literal(" \t\n"),
            "PPID" => Arg { supervisor: true, ..Arg::number() },
            // They do not reach the shell as they are, or not at all.
            _ if SET_AT_START.contains(&name)
                || name.starts_with("GIT_CONFIG_")
                || Shell::is_start_up_variable(name) =>
            {
                Arg::inherited()
            }
            // Only bash sets them.
            _ if is_set_by_shell(name)
                && self.dialect != Dialect::Bash
                && !matches!(name, "LINENO" | "OPTIND" | "OPTARG" | "OLDPWD" | "PS4" | "_") =>
            {
                Arg::inherited()
            }
            _ if SHELL_INTEGERS.contains(&name) || SHELL_SIZES.contains(&name) => Arg::number(),
            _ if SHELL_SET.contains(&name) => Arg::unknown(),
            _ => match self.env.vars.get(name) {
                // A private home of the step is judged as the caller's.
                Some(value) if name == "HOME" => Arg::literal(expand_root(value, self.env)),
                Some(value) => Arg::literal(value.clone()),
                None => Arg::inherited(),
            },
        }
    }

    fn values(&mut self, parameter: &Parameter) -> Vec<Arg> {
        // Nobody knows how many words what is not known in a list stands for.
        let is_list = matches!(
            parameter,
            Parameter::Special(SpecialParameter::AllPositionalParameters { .. })
                | Parameter::NamedWithAllIndices { .. }
        );
        let mut values = self.listed_values(parameter);
        values.iter_mut().for_each(|value| value.loose = is_list && value.unknown);
        values
    }

    fn listed_values(&mut self, parameter: &Parameter) -> Vec<Arg> {
        match parameter {
            Parameter::Named(name) => vec![self.variable(name)],
            Parameter::Positional(n) => {
                let index = usize::try_from(*n).unwrap_or(usize::MAX).wrapping_sub(1);
                vec![match self.scope.positional.get(index) {
                    None if self.scope.positional_unknown => Arg::unknown(),
                    Some(_) | None => element(&self.scope.positional, index),
                }]
            }
            Parameter::Special(special) => match special {
                SpecialParameter::AllPositionalParameters { .. } => {
                    if self.scope.positional_unknown {
                        vec![Arg::unknown()]
                    } else {
                        self.scope.positional.clone()
                    }
                }
                SpecialParameter::PositionalParameterCount
                | SpecialParameter::LastExitStatus
                | SpecialParameter::ProcessId
                | SpecialParameter::LastBackgroundProcessId => vec![Arg::number()],
                SpecialParameter::CurrentOptionFlags | SpecialParameter::ShellName => {
                    vec![Arg::unknown()]
                }
            },
            Parameter::NamedWithIndex { name, index } => {
                self.arithmetic(index);
                match (self.array(name), index.trim().parse::<usize>()) {
                    (Some(array), Ok(at)) => vec![element(&array, at)],
                    (Some(_), Err(_)) => vec![Arg::unknown()],
                    (None, Ok(0)) => vec![self.variable(name)],
                    (None, _) => vec![Arg::unknown()],
                }
            }
            Parameter::NamedWithAllIndices { name, .. } => match self.array(name) {
                Some(array) => array,
                None => vec![self.variable(name)],
            },
        }
    }

    fn parameter(&mut self, expr: &ParameterExpr, quoted: bool, fields: &mut Fields) {
        let mut values = self.parameter_values(expr);
        if quoted && parameters::joins_its_words(expr) && values.len() > 1 {
            values = vec![joined(&values)];
        }
        // A known IFS splits; without one the default does.
        let ifs = self.variable("IFS");
        let ifs = ifs.known().unwrap_or(" \t\n").to_owned();
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                if fields.split {
                    fields.done.extend(fields.current.take());
                } else {
                    fields.push_text(" ", true);
                }
            }
            fields.push_value(value, quoted, Some(&ifs));
            if let Some(current) = &mut fields.current
                && current.text.len() > MAX_VALUE_LEN
            {
                self.deny("limit:value", "an expanded word is too long");
                current.text.clear();
                current.unknown = true;
            }
        }
    }

    /// Records an assignment; protected variables are refused.
    pub(crate) fn assign(&mut self, name: &str, value: Arg) {
        self.check_assignment(name, &value);
        self.set_variable(name, value);
    }

    /// Records a value without judging the name.
    pub(crate) fn set_variable(&mut self, name: &str, value: Arg) {
        self.mention_word(&value);
        self.add_values(name, vec![value], self.conditional > 0);
        self.note_assigned(name);
    }

    fn add_values(&mut self, name: &str, new: Vec<Arg>, keep_old: bool) {
        // Another reading of the same command adds its value to that of the first.
        let repeated = self.choice.as_ref().is_some_and(|choice| choice.repeated);
        let mut values = match self.scope.vars.get(name) {
            Some(values) if keep_old || repeated => values.clone(),
            None if keep_old => vec![self.variable(name)],
            Some(_) | None => Vec::new(),
        };
        for mut value in new {
            if self.is_integer(name) {
                self.arithmetic_data(&value);
                value = Arg { taint: value.taint, ..Arg::unknown() };
            } else if is_set_by_shell(name) {
                value = Arg { taint: value.taint, ..Arg::unknown() };
            }
            self.assigned.record(name, &value);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        if is_too_much(&values) {
            values = vec![Arg::unknown()];
        }
        if keep_old && self.scope.arrays.contains_key(name) {
            self.scope.arrays.insert(name.to_owned(), vec![Arg::unknown()]);
        } else {
            self.scope.arrays.remove(name);
        }
        self.scope.vars.insert(name.to_owned(), values);
    }

    /// Whether the shell evaluates what the variable is given.
    pub(crate) fn is_integer(&self, name: &str) -> bool {
        self.assigned.integers.contains(name) || SHELL_INTEGERS.contains(&name)
    }

    /// Records the elements of an array.
    pub(crate) fn set_array(&mut self, name: &str, elements: Vec<Arg>) {
        let elements =
            if is_set_by_shell(name) || is_too_much(&elements) { vec![Arg::unknown()] } else { elements };
        self.assigned.record_array(name, &elements);
        let repeated = self.choice.as_ref().is_some_and(|choice| choice.repeated);
        let kept = (self.conditional > 0 || repeated) && self.scope.arrays.get(name) != Some(&elements);
        self.scope.arrays.insert(name.to_owned(), if kept { vec![Arg::unknown()] } else { elements });
        self.scope.vars.remove(name);
        self.note_assigned(name);
    }

    /// Records all the values a variable will take in turn.
    pub(crate) fn set_values(&mut self, name: &str, values: Vec<Arg>) {
        values.iter().for_each(|value| self.mention_word(value));
        if let Some(value) = values.first() {
            self.check_assignment(name, &value.clone());
        }
        self.add_values(name, values, self.conditional > 0);
        let certain = self.scope.certain.clone();
        self.note_assigned(name);
        // Without any value it keeps the one it had.
        self.scope.certain = certain;
    }
}

/// Whether the piece gives each element of a list as a word of its own.
fn is_list(piece: &WordPiece) -> bool {
    matches!(
        piece,
        WordPiece::ParameterExpansion(ParameterExpr::Parameter {
            parameter: Parameter::Special(SpecialParameter::AllPositionalParameters { concatenate: false })
                | Parameter::NamedWithAllIndices { concatenate: false, .. },
            ..
        })
    )
}

/// Whether a digit behind `text` would be part of the name of a variable.
fn ends_in_a_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &text[text.trim_end_matches(is_part).len()..];
    name.contains(|c: char| !c.is_ascii_digit())
}

/// A value with another behind it.
pub(crate) fn appended(value: &Arg, more: &Arg) -> Arg {
    let mut fields = Fields::default();
    fields.push_value(value, true, None);
    fields.push_value(more, true, None);
    fields.finish().pop().unwrap_or_default()
}

/// Words as one, with blanks between them.
fn joined(words: &[Arg]) -> Arg {
    if let [word] = words {
        return word.clone();
    }
    let mut joined = Arg::default();
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            joined.text.push(' ');
        }
        joined.text.push_str(&word.text);
        joined.unknown |= word.unknown;
        joined.unknown_start |= i == 0 && word.unknown_start;
        joined.matched |= word.matched;
        joined.taint = joined.taint.join(word.taint);
        joined.vital |= word.vital;
    }
    joined
}

/// The word at a place of a list, some of whose words may stand for several or none.
fn element(list: &[Arg], at: usize) -> Arg {
    let before = &list[..at.min(list.len())];
    match list.get(at) {
        _ if before.iter().any(|word| word.unknown || word.stands_for_names()) => Arg::unknown(),
        Some(word) => word.clone(),
        None => Arg::unset(),
    }
}

/// Whether shells give `name` values of their own.
pub(crate) fn is_set_by_shell(name: &str) -> bool {
    SHELL_SET.contains(&name)
        || SHELL_INTEGERS.contains(&name)
        || SHELL_SIZES.contains(&name)
        || matches!(name, "PWD" | "PPID")
}

/// Whether `text` can name a shell variable.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
