//! Probable mistakes in a file that can run: `lobster check`.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::super::codes;
use super::super::diagnostic::Diagnostic;
use super::super::plan::{Span, Step, Work, Workflow};
use super::super::source::{Data, MappingEntry, Node, Source};
use super::super::template::{self, Reference};
use super::control::steps_inside;
use super::mistakes::{Meant, shell_cure};
use super::step::bracket_index;
use super::{Loader, Loading, Lowering, nearest_field};
use lobster_stage::Registry;

/// Most steps of a file whose errors are reported; a file with more was probably not written for
/// lobster.
const MAX_ERRORS: usize = 50;

/// Result of `lobster check` for a file.
#[derive(Debug)]
pub struct Report {
    /// Diagnostics in source order, after the errors of the file itself.
    pub diagnostics: Vec<Diagnostic>,
    /// The workflow, unless it was rejected.
    pub workflow: Option<Workflow>,
}

/// Checks a workflow file and its sub-workflows for errors and probable mistakes. A step with an error
/// is set aside, so that the steps after it are also checked.
#[must_use]
pub fn check(source: &Arc<Source>, loader: Loader<'_>, commands: &Registry) -> Report {
    let mut loading = Loading::new(loader, Some(commands));
    let mut diagnostics = Vec::new();
    let mut aside = BTreeSet::new();
    let workflow = loop {
        loading.loaded = 0;
        let loaded = loading.file_without(source, &aside);
        let warnings = std::mem::take(&mut loading.warnings);
        let error = match loaded {
            Ok(workflow) => {
                diagnostics.extend(warnings);
                break Some(workflow);
            }
            Err(error) => *error,
        };
        let step = (error.file == source.name).then(|| loading.step_at(source, &error)).flatten();
        let is_last = aside.len() >= MAX_ERRORS || !step.is_some_and(|step| aside.insert(step));
        diagnostics.push(error);
        if is_last {
            diagnostics.extend(warnings);
            break None;
        }
    };
    let is_refused = !aside.is_empty();
    diagnostics.sort_by(|a, b| (&a.file, a.span.start, a.code).cmp(&(&b.file, b.span.start, b.code)));
    diagnostics.dedup_by(|a, b| {
        (&a.file, a.span.start, a.code, &a.message) == (&b.file, b.span.start, b.code, &b.message)
    });
    Report { diagnostics, workflow: workflow.filter(|_| !is_refused) }
}

/// Pipeline commands that are not shell commands. Names of common programs, such as `head` and `sort`,
/// are left out.
const STAGES: &[&str] = &[
    "approve",
    "ask",
    "where",
    "pick",
    "dedupe",
    "groupBy",
    "json",
    "llm.embed",
    "llm.invoke",
    "llm_task.invoke",
    "openclaw.invoke",
    "openclaw.agent",
    "clawd.invoke",
    "gog.gmail.search",
    "gog.gmail.send",
    "email.triage",
    "state.get",
    "state.set",
    "diff.last",
    "commands.list",
    "workflows.list",
    "workflows.run",
];

/// Possible fields in the record of a step.
pub(crate) const RECORD_FIELDS: &[&str] = &[
    "id",
    "json",
    "stdout",
    "approved",
    "approvedBy",
    "initiatedBy",
    "subject",
    "response",
    "skipped",
    "error",
    "errorMessage",
];

/// Names of the exit code of a step in other tools.
const EXIT_CODES: &[&str] =
    &["exit_code", "exitCode", "exitcode", "code", "returncode", "rc", "status", "exit"];

/// Collects all ids of steps, branches and sub-steps at any depth.
pub(super) fn collect_ids(node: &Node, ids: &mut HashSet<String>) {
    for step in node.get("steps").and_then(Node::as_list).unwrap_or_default() {
        collect_step(step, ids);
    }
}

pub(super) fn collect_step(step: &Node, ids: &mut HashSet<String>) {
    ids.extend(step.get("id").and_then(Node::as_text).map(str::to_owned));
    steps_inside(step).into_iter().for_each(|inside| collect_step(inside, ids));
}

impl Lowering<'_> {
    /// Checks a step for certain failures and for probable mistakes.
    pub(super) fn look_at(&mut self, node: &Node, step: &Step) {
        let Some(commands) = self.lint else { return };
        if let (Work::Pipeline(text), Some(written)) = (&step.work, node.get("pipeline")) {
            self.check_stages(written, text, commands, &step.id);
        }
        if !self.is_full() {
            self.lint_step(node, step);
        }
    }

    fn lint_step(&mut self, node: &Node, step: &Step) {
        if let Work::Pipeline(text) = &step.work {
            self.lint_pipeline_secrets(node, text, step);
        }
        if let Work::Shell(text) = &step.work {
            let key = if node.get("run").and_then(Node::as_text) == Some(text) { "run" } else { "command" };
            if let Some(entry) = node.map_entry(key) {
                self.lint_shell(entry, text);
            }
        }
        for key in ["run", "command", "pipeline", "workflow", "cwd", "for_each", "switch"] {
            if let Some(value) = node.get(key) {
                self.lint_text(value, matches!(key, "run" | "command"));
            }
        }
        for key in ["stdin", "env", "workflow_args", "args", "exec", "wait"] {
            if let Some(value) = node.get(key) {
                self.lint_texts(value);
            }
        }
        self.lint_unfilled_variables(node);
        if let Some(every) = node.get("repeat").and_then(|repeat| repeat.get("every")) {
            self.lint_text(every, false);
        }
        self.lint_js(node, step);
        self.lint_first_mistakes(node, step);
        let condition = node.get_some("when").or_else(|| node.get_some("condition"));
        if let Some(condition) = condition {
            self.lint_condition(condition);
        }
    }

    pub(super) fn lint_condition(&mut self, condition: &Node) {
        for (range, reference) in condition.as_text().into_iter().flat_map(template::references_in) {
            self.lint_record_field(condition, range, &reference);
        }
        self.lint_output_as_text(condition);
    }

    fn lint_texts(&mut self, node: &Node) {
        match &node.data {
            Data::Text(_) => self.lint_text(node, false),
            Data::List(items) => items.iter().for_each(|item| self.lint_texts(item)),
            Data::Map(entries) => entries.iter().for_each(|entry| self.lint_texts(&entry.value)),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite => {}
        }
    }

    fn lint_text(&mut self, node: &Node, is_shell: bool) {
        let Some(text) = node.as_text() else { return };
        for (range, reference) in template::references_in(text) {
            self.lint_order(node, range.clone(), &reference);
            self.lint_record_field(node, range.clone(), &reference);
            if let Some((bracket, index)) = bracket_index(&text[range.end..]).filter(|(b, _)| b.start == 0)
                && self.known.contains(&reference.id)
            {
                let span = node.part_span(self.source, range.start..range.end + bracket.end);
                let message = format!("list elements are written `.{index}`, not `[{index}]`");
                let fixed = format!("${reference}.{index}");
                let help = format!("write `{fixed}`");
                self.push_warning(codes::BRACKET_INDEX, span, message, help, Some(fixed));
            }
        }
        for (range, reference) in braced_references(text) {
            if self.declared.contains(&reference.id) || self.known.contains(&reference.id) {
                let span = node.part_span(self.source, range);
                let path: Vec<&str> = reference.path.iter().map(String::as_str).collect();
                let fixed = self.reference_to(&reference.id, &path);
                let message = format!("`${{{reference}}}` is not a reference and stays as it is");
                // Inside shell text, the insertion would cause another mistake.
                let (help, fix) = if is_shell {
                    let help = format!(
                        "hand it over with `env: {{NAME: {fixed}}}` and use \"$NAME\", or with `stdin:`"
                    );
                    (help, None)
                } else {
                    (format!("write `{fixed}`"), Some(fixed))
                };
                self.push_warning(codes::BRACED_REFERENCE, span, message, help, fix);
            }
        }
    }

    /// Warns of references that stay unchanged because their step comes later or does not exist.
    fn lint_order(&mut self, node: &Node, range: Range<usize>, reference: &Reference) {
        // A sole reference in stdin or for_each has already been checked.
        let is_said = node.as_text().and_then(template::strict_reference).is_some();
        if self.known.contains(&reference.id) || self.aside.contains(&reference.id) || is_said {
            return;
        }
        let span = node.part_span(self.source, range);
        if self.declared.contains(&reference.id) {
            let message = format!("`${reference}` names a step that has no result here, and stays as it is");
            let help = "only earlier steps, and steps of the same loop, can be referred to";
            self.push_warning(codes::REFERENCE_ORDER, span, message, help.to_owned(), None);
        } else if RECORD_FIELDS.contains(&reference.path[0].as_str()) {
            let message = format!("`${reference}` names no step, and stays as it is");
            let names = self.known.known_ids();
            let help = match nearest_field(&reference.id, &names) {
                Some(near) => format!("did you mean `${near}.{}`?", reference.path.join(".")),
                None => "only earlier steps can be referred to".to_owned(),
            };
            self.push_warning(codes::REFERENCE_ORDER, span, message, help, None);
        }
    }

    /// Warns of `$id.field` if the field can only be part of the output.
    fn lint_record_field(&mut self, node: &Node, range: Range<usize>, reference: &Reference) {
        if !self.known.contains(&reference.id) || RECORD_FIELDS.contains(&reference.path[0].as_str()) {
            return;
        }
        let span = node.part_span(self.source, range);
        let (first, rest) = (reference.path[0].as_str(), &reference.path[1..]);
        let (message, help, fix) = if let Some(near) = self.near_record_field(&reference.id, first) {
            let fixed = [&[format!("${}", reference.id), near.to_owned()], rest].concat().join(".");
            let message = format!("`${reference}` is always empty: the record of a step has no `{first}`");
            (message, format!("did you mean `{fixed}`?"), Some(fixed))
        } else if EXIT_CODES.contains(&first) {
            let message =
                format!("`${reference}` is always empty: a step that ends with another code than 0 fails");
            let help =
                format!("with `on_error: continue` on {}, test `${}.error`", reference.id, reference.id);
            (message, help, None)
        } else if let Some(part) = self.gates.get(&reference.id) {
            let message = format!("`${reference}` is always empty: the answer is in .{part}");
            (message, format!("write `${}.{part}`", reference.id), None)
        } else {
            let message =
                format!("`${reference}` is always empty: the output of a step is in .json or .stdout");
            let fixed = format!("${}.json.{}", reference.id, reference.path.join("."));
            (message, format!("write `{fixed}`"), Some(fixed))
        };
        self.push_warning(codes::FIELD_WITHOUT_JSON, span, message, help, fix);
    }

    fn lint_shell(&mut self, entry: &MappingEntry, text: &str) {
        let node = &entry.value;
        let quoting = byte_quoting(text);
        if let Some((range, stage)) = stage_in_shell(text, &quoting) {
            let span = node.part_span(self.source, range);
            let message =
                format!("`{stage}` is a lobster command, but `{}` is text for the shell", entry.key);
            let alone = text.trim().starts_with(stage) && !text.contains([';', '&', '\n', '`', '>', '<']);
            let (help, fix) = match stage {
                "approve" => ("use a step with `approval: <question>`".to_owned(), None),
                _ if alone => (format!("write `pipeline: {stage} ...`"), Some("pipeline".to_owned())),
                _ => (format!("put it in a separate step, with `pipeline: {stage} ...`"), None),
            };
            let mut warning =
                Diagnostic::warning(self.source, codes::STAGE_AS_SHELL, span, message).with_help(help);
            if let Some(replacement) = fix {
                warning = warning.with_fix(entry.key_span, replacement);
            }
            self.warnings.push(warning);
        }
        for (range, name) in template::args_in(text) {
            if !self.arguments.contains(name) {
                continue;
            }
            let meant = Meant::Argument(name.to_owned());
            let (help, fix) = shell_cure(&meant, quoting.get(range.start).copied());
            let span = node.part_span(self.source, range);
            let message = format!("the value of argument `{name}` becomes part of the shell command");
            self.push_warning(codes::PASTED_ARGUMENT, span, message, help, fix);
        }
        for (range, reference) in template::references_in(text) {
            let harmless = matches!(reference.path[0].as_str(), "approved" | "skipped" | "id" | "error");
            if self.known.contains(&reference.id) && !harmless {
                let span = node.part_span(self.source, range);
                let message = format!("the output `${reference}` becomes part of the shell command");
                let help = format!(
                    "hand it over with `env: {{NAME: ${reference}}}` and use \"$NAME\", or with `stdin:`"
                );
                self.push_warning(codes::PASTED_REFERENCE, span, message, help, None);
            }
        }
    }

    fn push_warning(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        help: String,
        fix: Option<String>,
    ) {
        // Longer than the text if the position was only guessed; then nothing is edited there.
        let written = self.source.text.get(span.start..span.end).filter(|text| text.starts_with('$'));
        let written = written.unwrap_or_default().to_owned();
        self.push_fixed(code, span, message, help, fix.filter(|_| !written.is_empty()), &written);
    }
}

/// `${id.path}`, which looks like a reference but is not.
fn braced_references(text: &str) -> impl Iterator<Item = (Range<usize>, Reference)> {
    text.match_indices("${").filter_map(|(start, _)| {
        let inner = format!("${}", text[start + 2..].split('}').next()?);
        let end = start + 2 + inner.len();
        let reference = template::strict_reference(&inner)?;
        (text.get(end - 1..end) == Some("}")).then_some((start..end, reference))
    })
}

/// Quoting of a byte of shell text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    None,
    Single,
    Double,
}

/// Quoting of every byte of a shell text. Here-documents and nested substitutions are not followed;
/// this is only for warnings.
pub(super) fn byte_quoting(text: &str) -> Vec<Quote> {
    let mut state = Quote::None;
    let mut escaped = false;
    let mut out = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        let next = match (state, byte) {
            _ if escaped => state,
            (Quote::None, b'\'') => Quote::Single,
            (Quote::None, b'"') => Quote::Double,
            (Quote::Single, b'\'') | (Quote::Double, b'"') => Quote::None,
            (state, _) => state,
        };
        escaped = !escaped && byte == b'\\' && state != Quote::Single;
        // The quotes themselves are also quoted.
        out.push(if state == Quote::None { next } else { state });
        state = next;
    }
    out
}

/// The first word of a shell command that is a lobster command.
fn stage_in_shell(text: &str, quoting: &[Quote]) -> Option<(Range<usize>, &'static str)> {
    let mut starts = vec![0];
    for (at, byte) in text.bytes().enumerate() {
        if matches!(byte, b'|' | b';' | b'&' | b'\n' | b'(') && quoting.get(at) == Some(&Quote::None) {
            starts.push(at + 1);
        }
    }
    starts.into_iter().find_map(|start| {
        let rest = &text[start..];
        let blank = rest.len() - rest.trim_start().len();
        let begin = start + blank;
        let len = text[begin..]
            .find(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | ')'))
            .unwrap_or(text.len() - begin);
        let word = &text[begin..begin + len];
        STAGES.iter().find(|stage| **stage == word).map(|stage| (begin..begin + len, *stage))
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::diagnostic::Severity;

    fn lint_findings(text: &str) -> Vec<(&'static str, String, Option<String>)> {
        let source = Arc::new(Source::new("t.lobster", "/t.lobster", text.as_bytes()));
        let report = check(&source, &|_| Err(io::ErrorKind::NotFound.into()), &lobster_stages::builtin());
        let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
        assert!(!report.diagnostics.iter().any(is_error), "{:?}", report.diagnostics);
        let marked = |d: &Diagnostic| d.source().text[d.span.start..d.span.end].to_owned();
        report
            .diagnostics
            .iter()
            .map(|d| (d.code, marked(d), d.fix.as_ref().map(|f| f.replacement.clone())))
            .collect()
    }

    #[test]
    fn mistakes_of_real_authors_are_found_with_their_fix() {
        let found = lint_findings(
            "args:\n  who: {default: x, required: yes, type: str}\n  bare: 5\n\
             steps:\n  - id: a\n    command: clawd.invoke --tool x\n    timeoutMs: 5\n    on_success: b\n\
             \x20 - id: b\n    run: echo ${who} \"${who}\" $a.json.x ${a.json.y} $c.json $a.json.l[0] $typo.stdout $HOME.bak\n\
             \x20 - id: c\n    command: cat x | state.set k\n    when: $a.ok == true\n    env: {N: 5, M: $b.name}\n\
             \x20 - id: d\n    run: approve --prompt ok\n",
        );
        let expected: Vec<(&str, &str, Option<&str>)> = vec![
            ("W0807", "yes", None),
            ("W0807", "str", Some("string")),
            ("W0807", "5", Some("{default: 5}")),
            ("W0801", "clawd.invoke", Some("pipeline")),
            ("W0701", "timeoutMs", Some("timeout_ms")),
            ("W0701", "on_success", None),
            ("W0803", "${who}", Some("\"$LOBSTER_ARG_WHO\"")),
            ("W0803", "${who}", Some("$LOBSTER_ARG_WHO")),
            ("W0808", "$a.json.x", None),
            ("W0804", "${a.json.y}", None),
            ("W0805", "$c.json", None),
            ("W0806", "$a.json.l[0]", Some("$a.json.l.0")),
            ("W0808", "$a.json.l", None),
            ("W0805", "$typo.stdout", None),
            ("W0801", "state.set", None),
            ("W0802", "$a.ok", Some("$a.json.ok")),
            ("W0702", "5", None),
            ("W0802", "$b.name", Some("$b.json.name")),
            ("W0801", "approve", None),
        ];
        let found: Vec<_> =
            found.iter().map(|(code, marked, fix)| (*code, marked.as_str(), fix.as_deref())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn sound_files_are_left_in_peace() {
        let found = lint_findings(
            "name: x\nversion: 1\nargs: {who: {default: x, type: string, required: true, enum: [x, y]}}\n\
             steps:\n  - id: a\n    name: first\n    description: d\n    run: echo \"$LOBSTER_ARG_WHO\" | head -n 1 | sort; echo 'approve'\n\
             \x20 - {id: g, approval: ok?, stdin: $a.json}\n  - {id: l, for_each: $a.json.items, steps: [{id: s, run: cat, stdin: $item.json.x, when: $g.approved}]}\n\
             \x20 - {id: p, pipeline: 'where x==1 | json', stdin: $l.json}\n",
        );
        assert_eq!(found, []);
    }

    #[test]
    fn pipelines_are_looked_into() {
        let found = lint_findings(
            "steps:\n  - {id: a, run: x}\n  - id: b\n    on_error: continue\n    pipeline: exec echo | jsn | head --nn 3 | $a.stdout\n  - {id: c, on_error: continue, pipeline: \"exec 'oops\"}\n",
        );
        let found: Vec<_> = found.iter().map(|(code, marked, _)| (*code, marked.as_str())).collect();
        assert_eq!(found, [("E0601", "jsn"), ("W0810", "head"), ("E0602", "'")]);
    }

    #[test]
    fn shell_quoting_is_followed() {
        let text = r#"a 'b "c' "d 'e\"" f"#;
        let states = byte_quoting(text);
        for (part, state) in [
            ("a", Quote::None),
            ("b", Quote::Single),
            ("c", Quote::Single),
            ("d", Quote::Double),
            ("e", Quote::Double),
            ("f", Quote::None),
        ] {
            assert_eq!(states[text.find(part).unwrap()], state, "{part}");
        }
    }
}
