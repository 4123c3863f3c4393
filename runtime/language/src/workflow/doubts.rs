//! Values that are not what they seem to be: printed text in a condition, variables that are never
//! filled in, two arguments in one variable, half a surrogate pair.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::codes;
use super::super::condition::{Condition, DoubtfulUse};
use super::super::diagnostic::Diagnostic;
use super::super::plan::{ArgSpec, Span, Work};
use super::super::source::{Data, Node, Source};
use super::super::template;
use super::Lowering;
use lobster_base::{json, variable_name};

/// Words in commands that print no line break at the end, or remove it. `check` does not judge the
/// output of a command with one of them.
const WITHOUT_LINE_END: &[&str] = &[
    "printf",
    "echo -n",
    "tr -d",
    "head -c",
    "jq -j",
    "jq -rj",
    "jq -jr",
    "stdout.write",
    "end=\"\"",
    "end=''",
];

/// Words in the names of variables whose values should not appear in a plan.
const PRIVATE: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "HEADERS"];

/// True if the output of the work most likely ends with a line break.
pub(super) fn prints_lines(work: &Work) -> bool {
    let text = match work {
        Work::Shell(text) => text.clone(),
        Work::Exec(argv) => argv.join(" "),
        _ => return false,
    };
    !WITHOUT_LINE_END.iter().any(|words| text.contains(words))
}

impl Lowering<'_> {
    /// `$id.stdout` as a boolean, and in a comparison that is never true.
    pub(super) fn lint_output_as_text(&mut self, node: &Node) {
        let Some(text) = node.as_text() else { return };
        let Ok(condition) = Condition::parse(text) else { return };
        for (reference, doubt) in condition.doubtful_uses() {
            if !self.known.contains(&reference.id) {
                continue;
            }
            let is_same = |(_, found): &(Range<usize>, template::Reference)| found == reference;
            let Some((range, _)) = template::references_in(text).find(is_same) else { continue };
            let (id, span) = (&reference.id, node.part_span(self.source, range));
            let (code, message, help) = match doubt {
                DoubtfulUse::Truth => (
                    codes::OUTPUT_AS_TRUTH,
                    format!("`${id}.stdout` is true for any output of {id}, even for `false` and `0`"),
                    format!(
                        "let {id} print JSON and test `${id}.json`; `${id}.stdout != \"\"` tests for any output"
                    ),
                ),
                DoubtfulUse::WithoutLineEnd(wanted) if self.line_printers.contains(id) => (
                    codes::LINE_END,
                    format!(
                        "`${id}.stdout` ends with the line break that {id} prints, and is never {wanted:?}"
                    ),
                    format!(
                        "let {id} print without one (`printf %s …`, `… | tr -d '\\n'`), or print JSON and compare `${id}.json`"
                    ),
                ),
                DoubtfulUse::WithoutLineEnd(_) => continue,
                DoubtfulUse::NoText(wanted) => (
                    codes::LINE_END,
                    format!("`${id}.stdout` is a text, and never the value {wanted}"),
                    format!("compare `${id}.json`"),
                ),
            };
            self.push_fixed(code, span, message, help, None, "");
        }
    }

    /// `$NAME` and `${NAME}` in the values of `env:`, which no shell reads.
    pub(super) fn lint_unfilled_variables(&mut self, owner: &Node) {
        let entries = owner.get_some("env").and_then(Node::as_map).unwrap_or_default();
        for entry in entries {
            let Some(text) = entry.value.as_text() else { continue };
            for (range, name) in variables_in(text) {
                let is_whole = range == (0..text.len());
                // `KEY: $KEY` passes on a token from lobster's own environment.
                let is_grant =
                    is_whole && name == entry.key && PRIVATE.iter().any(|word| name.contains(word));
                if is_grant || self.arguments.contains(name) {
                    continue;
                }
                let written = text[range.clone()].to_owned();
                let argument = name.strip_prefix("LOBSTER_ARG_").and_then(|rest| {
                    self.arguments.iter().find(|argument| variable_name::for_argument(argument) == rest)
                });
                let fixed = match argument {
                    Some(argument) => format!("${{{argument}}}"),
                    None => format!("${{env.{name}}}"),
                };
                let message = format!("`{written}` is not filled in: {} holds these characters", entry.key);
                let help = match argument {
                    Some(_) => format!("write `{fixed}`"),
                    None => format!("write `{fixed}` for the value of {name} that lobster was started with"),
                };
                let span = entry.value.part_span(self.source, range);
                // Unquoted braces could begin a map where there was none before.
                let value = self.source.text.get(entry.value.span.start..).unwrap_or_default();
                let fix = Some(fixed).filter(|_| written.contains('{') || value.starts_with(['"', '\'']));
                self.push_fixed(codes::UNFILLED_VARIABLE, span, message, help, fix, &written);
            }
        }
    }

    /// Warns of arguments whose values are in the same variable.
    pub(super) fn lint_one_variable(&mut self, root: &Node, specs: &[ArgSpec]) {
        let entries = root.get("args").and_then(Node::as_map).unwrap_or_default();
        let mut first: HashMap<String, &str> = HashMap::new();
        for spec in specs {
            let variable = variable_name::for_argument(&spec.name);
            let Some(earlier) = first.insert(variable.clone(), &spec.name).filter(|_| !variable.is_empty())
            else {
                continue;
            };
            let Some(entry) = entries.iter().find(|entry| entry.key == spec.name) else { continue };
            let message = format!(
                "the arguments {earlier:?} and {:?} are both in LOBSTER_ARG_{variable}, which has the value of the last one",
                spec.name
            );
            let warning = Diagnostic::warning(self.source, codes::ONE_VARIABLE, entry.key_span, message);
            self.warnings.push(warning.with_help("rename one of them"));
        }
    }
}

/// `$NAME` and `${NAME}` in capitals, like environment variables.
fn variables_in(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices('$').filter_map(|(start, _)| {
        let rest = &text[start + 1..];
        let (open, inner) = rest.strip_prefix('{').map_or((0, rest), |inner| (1, inner));
        let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let name = &inner[..inner.find(|c| !is_of_name(c)).unwrap_or(inner.len())];
        let after = inner[name.len()..].chars().next();
        let ends = if open == 1 {
            after == Some('}')
        } else {
            !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.')
        };
        let begins = name.starts_with(|c: char| !c.is_ascii_digit());
        (begins && ends).then(|| (start..start + 1 + 2 * open + name.len(), name))
    })
}

/// Warns of texts that contain half a surrogate pair.
pub(super) fn warn_of_half_pairs(source: &Arc<Source>, root: &Node, warnings: &mut Vec<Diagnostic>) {
    if json::has_half_pair(&source.text) {
        warn_in(source, root, warnings);
    }
}

fn warn_in(source: &Arc<Source>, node: &Node, warnings: &mut Vec<Diagnostic>) {
    match &node.data {
        Data::Text(text) if text.contains(char::REPLACEMENT_CHARACTER) => {
            let Span { start, end } = source.clamp_span(node.span);
            let written = &source.text[start..end];
            if written.starts_with('"') && json::has_half_pair(written) {
                let message = "the text escapes half a surrogate pair, which is read as U+FFFD";
                let warning = Diagnostic::warning(source, codes::HALF_PAIR, node.span, message);
                warnings.push(
                    warning.with_help("write both halves, as in `\\ud83d\\ude80`, or the character itself"),
                );
            }
        }
        Data::List(items) => items.iter().for_each(|item| warn_in(source, item, warnings)),
        Data::Map(entries) => entries.iter().for_each(|entry| warn_in(source, &entry.value, warnings)),
        Data::Text(_) | Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_as_a_shell_would_find_them() {
        let found = |text: &'static str| {
            variables_in(text).map(|(range, name)| (&text[range], name)).collect::<Vec<_>>()
        };
        assert_eq!(found("a:${PATH}:$HOME/x"), [("${PATH}", "PATH"), ("$HOME", "HOME")]);
        assert_eq!(found("$id.stdout ${lower} $Path ${PATH:-x} $A.json ${env.PATH} $1 $"), []);
    }
}
