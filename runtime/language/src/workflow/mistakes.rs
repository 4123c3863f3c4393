//! Common first mistakes: text that was meant to be filled in but is not, because it has the notation
//! of the shell or of another tool, or lacks the name of a part.

use std::collections::HashSet;
use std::ops::Range;

use super::super::codes;
use super::super::diagnostic::Diagnostic;
use super::super::plan::{Span, Step, Work};
use super::super::source::{Data, Node};
use super::super::template::{self, is_id_byte};
use super::Lowering;
use super::fields::nearest_field;
use super::lint::{Quote, RECORD_FIELDS, byte_quoting};
use lobster_base::variable_name;

/// Names of the arguments in other tools.
const ARGUMENT_SCOPES: &[&str] = &["args", "arguments", "inputs", "input", "params", "parameters", "vars"];

/// Names of the results of steps in other tools.
const STEP_SCOPES: &[&str] = &["steps", "outputs", "needs", "jobs"];

/// Segments between a step and a part of its output in other tools.
const OUTPUT_WORDS: &[&str] = &["output", "outputs", "result", "results"];

/// Reader of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Shell,
    /// Filled in by lobster and passed on unchanged.
    Field,
    /// Shown to a person as written.
    Person,
}

/// Probable meaning of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// An argument of the workflow.
    Argument(String),
    /// A reference with its `$`.
    Output(String),
}

impl Meant {
    /// Notation in a field that lobster fills in.
    pub(super) fn in_a_field(&self) -> String {
        match self {
            Self::Argument(name) => format!("${{{name}}}"),
            Self::Output(reference) => reference.clone(),
        }
    }
}

impl Lowering<'_> {
    pub(super) fn lint_first_mistakes(&mut self, node: &Node, step: &Step) {
        let shell = match &step.work {
            Work::Shell(text) => Some(text.as_str()),
            _ => None,
        };
        for key in ["run", "command"] {
            if let Some(value) =
                node.get(key).filter(|value| value.as_text().is_some_and(|t| Some(t) == shell))
            {
                self.lint_notation(value, Reader::Shell);
                self.lint_shell_variables(value, step);
            }
        }
        for key in ["pipeline", "workflow", "cwd", "switch"] {
            if let Some(value) = node.get(key) {
                self.lint_notation(value, Reader::Field);
            }
        }
        for key in ["stdin", "for_each", "env", "args", "workflow_args", "exec", "wait"] {
            let Some(value) = node.get(key) else { continue };
            // A field that is only an unknown reference has already been rejected, and so has a loop
            // over text.
            let is_refused = |text: &Node| {
                matches!(key, "stdin" | "for_each")
                    && text.as_text().and_then(template::strict_reference).is_some()
            };
            self.each_text(value, &mut |this, text| {
                if !is_refused(text) {
                    this.lint_notation(text, Reader::Field);
                }
                match key {
                    "for_each" => {}
                    // The whole of stdin is a name that does not exist.
                    "stdin" if std::ptr::eq(text, value) && !this.lint_bare_name(text) => {
                        this.lint_unknown_name(text);
                    }
                    _ => _ = this.lint_bare_name(text),
                }
            });
        }
        if let Some(approval) = node.get("approval") {
            self.each_text(approval, &mut |this, text| {
                this.lint_notation(text, Reader::Person);
                this.lint_shown_as_written(text);
            });
        }
    }

    fn each_text(&mut self, node: &Node, look: &mut dyn FnMut(&mut Self, &Node)) {
        match &node.data {
            Data::Text(_) => look(self, node),
            Data::List(items) => items.iter().for_each(|item| self.each_text(item, look)),
            Data::Map(entries) => entries.iter().for_each(|entry| self.each_text(&entry.value, look)),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite => {}
        }
    }

    /// Warns of `{{args.x}}`, `${{ x }}`, `$args.x` and `$steps.a.stdout`.
    fn lint_notation(&mut self, node: &Node, reader: Reader) {
        let Some(text) = node.as_text() else { return };
        for (range, inner) in doubly_braced(text) {
            if let Some(meant) = self.meant_by(inner) {
                self.push_notation(node, range, &meant, reader);
            }
        }
        for (range, reference) in template::references_in(text) {
            let scoped = [ARGUMENT_SCOPES, STEP_SCOPES].iter().any(|s| s.contains(&reference.id.as_str()));
            if scoped
                && !self.declared.contains(&reference.id)
                && let Some(meant) = self.meant_by(&reference.to_string())
            {
                self.push_notation(node, range, &meant, reader);
            }
        }
    }

    /// Meaning of `args.x`, `steps.a.outputs.n`, `a.stdout` or `x` in this file.
    pub(super) fn meant_by(&self, name: &str) -> Option<Meant> {
        let segments: Vec<&str> = name.trim().split('.').map(str::trim).collect();
        if segments.iter().any(|s| s.is_empty() || !s.bytes().all(is_id_byte)) {
            return None;
        }
        let (scope, rest) = match segments.split_first() {
            Some((first, rest)) if !rest.is_empty() && !self.declared.contains(*first) => {
                (Some(*first), rest)
            }
            _ => (None, segments.as_slice()),
        };
        let (is_argument, is_step) = match scope {
            Some(scope) => (ARGUMENT_SCOPES.contains(&scope), STEP_SCOPES.contains(&scope)),
            None => (true, true),
        };
        if let ([only], true) = (rest, is_argument)
            && self.arguments.contains(*only)
        {
            return Some(Meant::Argument((*only).to_owned()));
        }
        let (id, path) = rest.split_first().filter(|(id, _)| is_step && self.declared.contains(**id))?;
        let path: Vec<&str> = match path.split_first() {
            Some((first, rest)) if OUTPUT_WORDS.contains(first) => rest.to_vec(),
            _ => path.to_vec(),
        };
        Some(Meant::Output(self.reference_to(id, &path)))
    }

    /// Reference to a part of a step's record or of its output.
    pub(super) fn reference_to(&self, id: &str, path: &[&str]) -> String {
        match path {
            [] => format!("${id}.{}", self.main_part(id)),
            [first, ..] if RECORD_FIELDS.contains(first) => format!("${id}.{}", path.join(".")),
            _ => format!("${id}.json.{}", path.join(".")),
        }
    }

    /// The part of a step's record that is used most often.
    pub(super) fn main_part(&self, id: &str) -> &'static str {
        self.gates.get(id).copied().unwrap_or("json")
    }

    fn push_notation(&mut self, node: &Node, range: Range<usize>, meant: &Meant, reader: Reader) {
        let Some(text) = node.as_text() else { return };
        let written = text[range.clone()].to_owned();
        let quote = if reader == Reader::Shell { byte_quoting(text).get(range.start).copied() } else { None };
        let message = format!("`{written}` is not filled in and stays as it is");
        let (help, fix) = match reader {
            Reader::Person => (SHOW_VALUES.to_owned(), None),
            Reader::Shell => shell_cure(meant, quote),
            Reader::Field => {
                let fixed = meant.in_a_field();
                (format!("write `{fixed}`"), Some(fixed))
            }
        };
        let span = node.part_span(self.source, range);
        self.push_fixed(codes::FOREIGN_NOTATION, span, message, help, fix, &written);
    }

    /// Warns of `$name` that means a step or an argument; true if it is such a name.
    fn lint_bare_name(&mut self, node: &Node) -> bool {
        let (Some(text), Some(name)) = (node.as_text(), bare_name(node)) else { return false };
        let fixed = if self.known.contains(name) {
            format!("${name}.{}", self.main_part(name))
        } else if self.arguments.contains(name) {
            format!("${{{name}}}")
        } else {
            return false;
        };
        let written = format!("${name}");
        let span = node.part_span(self.source, 0..text.len());
        let message =
            format!("`{written}` stays plain text: a reference names a part of the step, such as `.json`");
        let message = if self.known.contains(name) {
            message
        } else {
            format!("`{written}` is not filled in and stays as it is")
        };
        let text = if fixed.ends_with(".json") {
            format!(", or `${name}.stdout` for its text")
        } else {
            String::new()
        };
        let help = format!("write `{fixed}`{text}");
        // Unquoted braces could begin a map.
        let is_quoted = self.source.text[..span.start].ends_with(['"', '\'']);
        let fix = if fixed.contains('{') && !is_quoted { format!("\"{fixed}\"") } else { fixed };
        self.push_fixed(codes::BARE_NAME, span, message, help, Some(fix), &written);
        true
    }

    /// Warns of `$name` if neither a step nor an argument has the name: the text is passed on
    /// literally.
    fn lint_unknown_name(&mut self, node: &Node) {
        let (Some(text), Some(name)) = (node.as_text(), bare_name(node)) else { return };
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        arguments.sort_unstable();
        let help = match arguments.first().filter(|_| ARGUMENT_SCOPES.contains(&name)) {
            Some(first) => format!("name each argument that is meant, as in `\"{first}: ${{{first}}}\"`"),
            None => "the output of a step is `$id.json` or `$id.stdout`, an argument `${name}`".to_owned(),
        };
        let message = format!("`${name}` is not filled in and stays as it is");
        let span = node.part_span(self.source, 0..text.len());
        self.push_fixed(codes::BARE_NAME, span, message, help, None, text);
    }

    /// Warns of a shell variable with the name of an argument or a step, which the shell does not have.
    fn lint_shell_variables(&mut self, node: &Node, step: &Step) {
        let Some(text) = node.as_text() else { return };
        let quotes = byte_quoting(text);
        let mut said = HashSet::new();
        for (range, name) in plain_variables(text) {
            let is_set = self.variables.contains(name)
                || step.env.iter().any(|(variable, _)| variable == name)
                || sets_variable(text, name);
            let quote = quotes.get(range.start).copied();
            if is_set || quote == Some(Quote::Single) || text[range.end..].starts_with('.') {
                continue;
            }
            let (what, meant) = if self.arguments.contains(name) {
                ("the argument", Meant::Argument(name.to_owned()))
            } else if self.known.contains(name) {
                ("the output of the step", Meant::Output(format!("${name}.{}", self.main_part(name))))
            } else {
                continue;
            };
            // Environment variables have such names.
            if !name.bytes().any(|b| b.is_ascii_lowercase()) || !said.insert(name.to_owned()) {
                continue;
            }
            let (help, fix) = shell_cure(&meant, quote);
            let message =
                format!("`${name}` is a variable of the shell and empty; it is not {what} `{name}`");
            let written = text[range.clone()].to_owned();
            let span = node.part_span(self.source, range);
            self.push_fixed(codes::SHELL_VARIABLE, span, message, help, fix, &written);
        }
    }

    /// Warns of references in prompts, which are shown as written.
    fn lint_shown_as_written(&mut self, node: &Node) {
        let Some(text) = node.as_text() else { return };
        let arguments = template::args_in(text)
            .filter(|(_, name)| self.arguments.contains(*name))
            .map(|(range, _)| range);
        let references = template::references_in(text)
            .filter(|(_, reference)| self.declared.contains(&reference.id))
            .map(|(range, _)| range);
        let found: Vec<Range<usize>> = arguments.chain(references).collect();
        for range in found {
            let message = format!(
                "`{}` is not filled in: an approval shows its texts as they are written",
                &text[range.clone()]
            );
            let span = node.part_span(self.source, range);
            self.warnings.push(
                Diagnostic::warning(self.source, codes::FOREIGN_NOTATION, span, message)
                    .with_help(SHOW_VALUES),
            );
        }
    }

    /// A field of a step's record that is close to the first segment of a reference.
    pub(super) fn near_record_field(&self, id: &str, field: &str) -> Option<&'static str> {
        nearest_field(field, RECORD_FIELDS).filter(|near| {
            // An approval has no output. For other steps, a short name is more often a field of the
            // output than a mistyped field of the record.
            self.gates.contains_key(id) || field.len() > 3 || matches!(*near, "json")
        })
    }

    pub(super) fn push_fixed(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        help: String,
        fix: Option<String>,
        written: &str,
    ) {
        let mut warning = Diagnostic::warning(self.source, code, span, message).with_help(help);
        // Folded or escaped text cannot be edited at a guessed position.
        if let Some(fix) = fix.filter(|_| self.source.text.get(span.start..span.end) == Some(written)) {
            warning = warning.with_fix(span, fix);
        }
        self.warnings.push(warning);
    }
}

/// Name in a text that is exactly `$name`.
fn bare_name(node: &Node) -> Option<&str> {
    let name = node.as_text()?.trim().strip_prefix('$')?;
    (!name.is_empty() && name.bytes().all(is_id_byte)).then_some(name)
}

/// Advice on how to show a value to the approver.
const SHOW_VALUES: &str =
    "the person sees the input of the approval step: `stdin: $step.json` on that step shows that output";

/// Advice for shell text.
pub(super) fn shell_cure(meant: &Meant, quote: Option<Quote>) -> (String, Option<String>) {
    match meant {
        Meant::Argument(name) => {
            let variable = format!("$LOBSTER_ARG_{}", variable_name::for_argument(name));
            match quote {
                Some(Quote::Double) => (format!("write `{variable}`"), Some(variable)),
                Some(Quote::Single) => (
                    format!("use double quotes and write `{variable}`, or hand the value over with `stdin:`"),
                    None,
                ),
                _ => (format!("write `\"{variable}\"`"), Some(format!("\"{variable}\""))),
            }
        }
        Meant::Output(reference) => {
            let help = format!(
                "hand it over with `env: {{NAME: {reference}}}` and use \"$NAME\", or with `stdin: {reference}`"
            );
            (help, None)
        }
    }
}

/// `{{ … }}` and `${{ … }}` with the text inside.
fn doubly_braced(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices("{{").filter_map(|(open, _)| {
        let len = text[open + 2..].find("}}")?;
        let start = if text[..open].ends_with('$') { open - 1 } else { open };
        Some((start..open + len + 4, text[open + 2..open + 2 + len].trim()))
    })
}

/// `$name` as a shell reads it.
fn plain_variables(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices('$').filter_map(|(start, _)| {
        let escaped = text[..start].ends_with('\\');
        let rest = &text[start + 1..];
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let len = rest.bytes().take_while(|b| is_name(*b)).count();
        let begins = rest.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        (len > 0 && begins && !escaped).then(|| (start..start + 1 + len, &rest[..len]))
    })
}

/// True if a shell text may set a variable: by assignments, loops or `read`.
fn sets_variable(text: &str, name: &str) -> bool {
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '=' | '+')));
    let mut taking = false;
    words.any(|word| {
        let assigned = word.split_once('=').map(|(left, _)| left.trim_end_matches('+'));
        let is_set = assigned == Some(name) || taking && word == name;
        taking |= matches!(
            word,
            "for" | "read" | "mapfile" | "readarray" | "getopts" | "select" | "export" | "printf"
        );
        is_set
    })
}
