//! Words and their expansions, as far as they can be known without running anything.

use super::super::analysis::{Analysis, Arg, Flow, MAX_VALUE_LEN, is_too_much};
use super::super::dialect::Shell;
use super::super::paths::{expand_root, normalise_path};
use super::{Expansion, List, Part, Piece, Word, is_name_byte, name_len};

/// Variables that some shell sets itself, with values that cannot be predicted.
const SHELL_SET: &[&str] = text_list!("../lists/set-by-shells.txt");
/// Variables that a shell or lobster sets when the step starts, even if the known environment has other
/// values.
const SET_AT_START: &[&str] = &["LOBSTER_RUN_ID", "TRACEPARENT", "PS1", "PS2", "OPTERR"];
/// Integer variables of a shell itself: some version of bash evaluates or refuses the text assigned to
/// them.
const SHELL_INTEGERS: &[&str] = text_list!("../lists/shell-integers.txt");

/// Name of the choice between an environment that sets no variable of the text and one that does.
const ENVIRONMENT: &str = "";

/// Words that are being composed from parts.
#[derive(Default)]
struct Fields {
    done: Vec<Arg>,
    current: Option<Arg>,
    split: bool,
}

impl Fields {
    fn current_field(&mut self) -> &mut Arg {
        self.current.get_or_insert_default()
    }

    fn push_text(&mut self, text: &str, quoted: bool) {
        let split = self.split;
        let current = self.current_field();
        current.quoted |= quoted;
        if !quoted && split && text.contains(['*', '?', '[']) {
            current.glob = true;
        }
        current.text.push_str(text);
    }

    /// Appends a value; an unquoted one is split at blanks as shells do.
    fn push_value(&mut self, value: &Arg, quoted: bool) {
        const BLANKS: [char; 3] = [' ', '\t', '\n'];
        if !quoted && self.split && value.text.is_empty() && !value.unknown {
            // The value becomes no word.
            return;
        }
        if quoted || !self.split || !value.text.contains(BLANKS) {
            self.push_text(&value.text.clone(), quoted);
            self.mark_current(value, quoted);
            return;
        }
        let mut parts = value.text.split(BLANKS).peekable();
        let mut end = 0;
        while let Some(part) = parts.next() {
            end += part.len();
            if !part.is_empty() {
                self.push_text(part, false);
                self.current_field().from_split = true;
                if value.matched || (value.unknown && end >= value.unknown_at) {
                    // The unknown part may be before, in or after this word.
                    self.mark_current(value, false);
                    self.current_field().unknown_start |= value.unknown;
                }
            }
            if parts.peek().is_some() {
                self.done.extend(self.current.take());
            }
            end += 1;
        }
        if value.unknown {
            self.mark_current(value, false);
        }
    }

    fn mark_current(&mut self, value: &Arg, quoted: bool) {
        let may_split = self.split && !quoted;
        let current = self.current_field();
        if value.unknown {
            if !current.unknown {
                // Only the last word of a split value is in `current`.
                current.unknown_at = current.text.len().saturating_sub(value.text.len()) + value.unknown_at;
            }
            current.inherited |= value.inherited;
            let begins = current.text.len() == value.text.len() && !current.unknown;
            current.unset = value.unset && (current.unset || !current.unknown);
            current.unknown_start |= begins && value.unknown_start;
            // After a letter, a digit is part of a name.
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

    fn into_words(mut self) -> Vec<Arg> {
        self.done.extend(self.current.take());
        if self.split {
            // An empty unquoted value is no word.
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
    /// Words that one word of a command line expands to.
    pub(crate) fn expand_word(&mut self, word: &Word) -> Vec<Arg> {
        let words = self.expand_parts(&word.parts, true);
        match word.alternatives.is_empty() {
            true => words,
            false => word.alternatives.iter().flat_map(|word| self.expand_parts(&word.parts, true)).collect(),
        }
    }

    /// The single word that an assignment, a here-document or a pattern expands to.
    pub(super) fn expand_whole(&mut self, word: &Word) -> Arg {
        // Where one word is expected, `"$@"` joins its parts.
        join_words(&self.expand_parts(&word.parts, false))
    }

    fn expand_parts(&mut self, parts: &[Part], split: bool) -> Vec<Arg> {
        let mut fields = Fields { split, ..Fields::default() };
        for Part { piece, quoted } in parts {
            match piece {
                Piece::Text(text) => fields.push_text(text, *quoted),
                Piece::Tilde(user) => fields.push_value(&self.expand_tilde(user), true),
                Piece::Parameter(name) => self.expand_parameter(name, *quoted, &mut fields),
                Piece::Code(list) => fields.push_value(&self.expand_substitution(list), *quoted),
                Piece::Process(list) => {
                    self.spread += 1;
                    let taint = self.expand_substitution(list).taint;
                    self.spread -= 1;
                    let text = "/dev/fd/63".to_owned();
                    fields.push_value(&Arg { text, unknown: true, taint, ..Arg::default() }, true);
                }
                Piece::Beyond(expansion, inside) => {
                    let value = self.beyond_value(expansion, inside);
                    fields.push_value(&value, *quoted);
                }
            }
        }
        fields.into_words()
    }

    /// Value of an expansion beyond the language: it is never known, and hard blocks use the word
    /// inside it.
    fn beyond_value(&mut self, expansion: &Expansion, inside: &[Part]) -> Arg {
        let word = join_words(&self.expand_parts(inside, false));
        let taint = word.taint;
        let guess = Arg { unknown: true, unknown_start: true, unset: true, inherited: true, ..word.clone() };
        match expansion {
            Expansion::Number => Arg { taint, ..Arg::unknown_number() },
            Expansion::Unknown => Arg { taint, ..Arg::unknown() },
            Expansion::Unshowable => {
                self.add_denial("unshowable", "a quoted escape stands for a control character");
                Arg::unknown()
            }
            Expansion::Prompt => {
                self.add_denial("prompt-expansion", "${...@P} runs the value as code");
                Arg::unknown()
            }
            Expansion::Checked(name) => self.variable_value(name),
            Expansion::Changed(name) => {
                let value = self.variable_value(name);
                if value.unset { value } else { Arg { taint: value.taint.join(taint), ..Arg::unknown() } }
            }
            Expansion::Default(name) | Expansion::Assign(name) | Expansion::Alternative(name) => {
                if matches!(expansion, Expansion::Assign(_)) {
                    self.check_assignment(name, &guess);
                    self.in_optional_code(|a| a.set_variable(name, word.clone()));
                }
                let value = self.variable_value(name);
                let alternative = matches!(expansion, Expansion::Alternative(_));
                match self.choice.as_mut().map(|choice| choice.pick_index(ENVIRONMENT, 3)) {
                    _ if !value.unset && !alternative && !value.text.is_empty() => value,
                    Some(0) => word,
                    Some(1) if alternative => Arg::default(),
                    Some(_) => Arg { taint, ..Arg::unknown() },
                    None => guess,
                }
            }
        }
    }

    fn expand_substitution(&mut self, list: &List) -> Arg {
        let flow = if self.choice.as_ref().is_some_and(|c| c.repeated) {
            Flow::default()
        } else {
            let choice = self.choice.take();
            let saved = (self.span, std::mem::take(&mut self.facts));
            let input = std::mem::take(&mut self.child_input);
            let flow = self.one_level_deeper(|a| a.in_subshell(|a| a.walk_list(list, &input)));
            (self.span, self.facts) = saved;
            self.choice = choice;
            flow
        };
        let names_vital = |text: &String| {
            text.split_whitespace().any(|word| self.roots.is_vital(&normalise_path(&self.scope.cwd, word)))
        };
        let vital = flow.vital || flow.known.as_ref().is_some_and(names_vital);
        Arg { taint: flow.taint, numeric: flow.numeric, vital, ..Arg::unknown() }
    }

    pub(crate) fn expand_tilde(&self, user: &str) -> Arg {
        Arg::literal(match (user, self.env.vars.get("HOME")) {
            ("", Some(home)) => expand_root(home, self.env),
            ("", None) => self.env.home.clone(),
            ("root", _) => "/root".to_owned(),
            (user, _) => format!("/home/{user}"),
        })
    }

    fn expand_parameter(&mut self, name: &str, quoted: bool, fields: &mut Fields) {
        let mut values = self.possible_values(name);
        if quoted && name == "*" && values.len() != 1 {
            values = vec![join_words(&values)];
        }
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                if fields.split {
                    fields.done.extend(fields.current.take());
                } else {
                    fields.push_text(" ", true);
                }
            }
            fields.push_value(value, quoted);
            if let Some(current) = &mut fields.current
                && current.text.len() > MAX_VALUE_LEN
            {
                self.add_denial("limit:value", "an expanded word is too long");
                current.text.clear();
                current.unknown = true;
            }
        }
    }

    fn possible_values(&mut self, name: &str) -> Vec<Arg> {
        match name {
            "@" | "*" if self.scope.positional_unknown => vec![Arg { loose: true, ..Arg::unknown() }],
            "@" | "*" => {
                let mut values = self.scope.positional.clone();
                // The number of words that an unknown part of a list expands to is unknown.
                values.iter_mut().for_each(|value| value.loose = value.unknown);
                values
            }
            _ if name.ends_with("[@]") => {
                let name = name.trim_end_matches("[@]");
                self.scope.vars.get(name).cloned().unwrap_or_else(|| vec![self.initial_value(name)])
            }
            "#" | "?" | "$" | "!" => vec![Arg::unknown_number()],
            "-" | "0" => vec![Arg::unknown()],
            _ if name.starts_with(|c: char| c.is_ascii_digit()) => {
                let at = name.parse::<usize>().unwrap_or(usize::MAX).wrapping_sub(1);
                let list = &self.scope.positional;
                let before = &list[..at.min(list.len())];
                let is_moved = before.iter().any(|word| word.unknown || word.stands_for_names());
                vec![match list.get(at) {
                    _ if is_moved => Arg::unknown(),
                    Some(word) => word.clone(),
                    None if self.scope.positional_unknown => Arg::unknown(),
                    None => Arg::unset(),
                }]
            }
            _ => vec![self.variable_value(name)],
        }
    }

    /// Value of `name` in the current reading.
    fn variable_value(&mut self, name: &str) -> Arg {
        let Some(values) = self.scope.vars.get(name) else { return self.initial_value(name) };
        match (&mut self.choice, values.as_slice()) {
            (_, []) => Arg::unset(),
            (_, [value]) => value.clone(),
            (None, _) => Arg::unknown(),
            (Some(choice), values) => {
                let index = choice.pick_index(name, values.len());
                // An earlier reading of the same command may have changed them.
                values.get(index).cloned().unwrap_or_else(Arg::unknown)
            }
        }
    }

    /// Value of `name` at the start of the text.
    pub(super) fn initial_value(&self, name: &str) -> Arg {
        match name {
            "PWD" => Arg::literal(self.scope.cwd.clone()),
            "IFS" => Arg::literal(" \t\n"),
            "PPID" => Arg { supervisor: true, ..Arg::unknown_number() },
            // The shell does not get these unchanged, or only some shells set them.
            _ if SET_AT_START.contains(&name)
                || name.starts_with("GIT_CONFIG_")
                || Shell::is_start_up_variable(name)
                || is_set_by_shell(name) =>
            {
                Arg::inherited()
            }
            _ => match self.env.vars.get(name) {
                Some(value) if name == "HOME" => Arg::literal(expand_root(value, self.env)),
                Some(value) => Arg::literal(value.clone()),
                None => Arg::inherited(),
            },
        }
    }

    /// Records a value, and judges the name.
    pub(crate) fn assign_variable(&mut self, name: &str, value: Arg) {
        self.assign_list(name, vec![value]);
    }

    /// Records the elements of an array, or the one value of a variable.
    pub(crate) fn assign_list(&mut self, name: &str, values: Vec<Arg>) {
        self.check_assignment(name, values.first().unwrap_or(&Arg::default()));
        self.add_values(name, values, false);
    }

    /// Records a value without judging the name.
    pub(crate) fn set_variable(&mut self, name: &str, value: Arg) {
        self.add_values(name, vec![value], false);
    }

    /// Adds to a variable the values that it takes in turn.
    pub(super) fn add_values(&mut self, name: &str, new: Vec<Arg>, keep: bool) {
        // A second reading of the same command adds its value to the value of the first.
        let keep = keep || self.choice.as_ref().is_some_and(|choice| choice.repeated);
        let mut values = match self.scope.vars.remove(name) {
            Some(values) if keep => values,
            None if keep => vec![self.initial_value(name)],
            Some(_) | None => Vec::new(),
        };
        for value in new {
            let value =
                if is_set_by_shell(name) { Arg { taint: value.taint, ..Arg::unknown() } } else { value };
            if !values.contains(&value) {
                values.push(value);
            }
        }
        if is_too_much(&values) {
            values = vec![Arg::unknown()];
        }
        self.scope.vars.insert(name.to_owned(), values);
    }

    /// Runs `inside` as code that may be skipped or may end early.
    pub(crate) fn in_optional_code<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.scope.vars.clone();
        let positional = self.scope.positional.clone();
        let out = inside(self);
        if self.scope.positional != positional {
            self.scope.positional.clear();
            self.scope.positional_unknown = true;
        }
        for name in self.scope.vars.keys().cloned().collect::<Vec<_>>() {
            let values = match before.get(&name) {
                Some(values) => values.clone(),
                None => vec![self.initial_value(&name)],
            };
            if self.scope.vars.get(&name) != Some(&values) {
                self.add_values(&name, values, true);
            }
        }
        out
    }

    /// A child process gets exported variables, which are not followed; all others have the values of
    /// its environment.
    pub(super) fn forget_unexported(&mut self) {
        for name in self.scope.vars.keys().cloned().collect::<Vec<_>>() {
            let initial = self.initial_value(&name);
            self.add_values(&name, vec![initial], true);
        }
    }
}

/// True if some shell evaluates or refuses the text when it is assigned to `name`.
pub(crate) fn is_evaluated(name: &str) -> bool {
    SHELL_INTEGERS.contains(&name)
}

/// True if a digit after `text` would be part of a variable name.
fn ends_in_a_name(text: &str) -> bool {
    let name = &text[text.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len()..];
    name.contains(|c: char| !c.is_ascii_digit())
}

/// Joins words with blanks.
fn join_words(words: &[Arg]) -> Arg {
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

/// True if shells set `name` themselves.
pub(crate) fn is_set_by_shell(name: &str) -> bool {
    SHELL_SET.contains(&name) || SHELL_INTEGERS.contains(&name)
}

/// True if `text` is a valid name of a shell variable.
pub(crate) fn is_name(text: &str) -> bool {
    name_len(text) == text.len() && !text.is_empty() && text.bytes().all(is_name_byte)
}
