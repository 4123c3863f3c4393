//! Converts the tree of a step to its part of the plan.

use std::collections::HashMap;
use std::ops::Range;

use super::super::condition::ARGUMENT_IN_CONDITION;
use super::super::condition::Condition;
use super::super::diagnostic::{Checked, Diagnostic, Fix, Severity};
use super::super::plan::{Approval, InputRequest, OnError, Retry, Span, Stdin, Step, Wait, Work};
use super::super::source::{Data, MappingEntry, Node, to_map};
use super::super::template::{self, Reference};
use super::super::{codes, pipeline};
use super::mistakes::Meant;
use super::validate::shell_text;
use super::{Lowering, certain_failure, doubts, fields};
use lobster_base::variable_name::check_variable_name;

/// Defaults of `retry`.
const DELAY_MS: f64 = 1000.0;
const MAX_DELAY_MS: f64 = 30_000.0;

/// Ids that a step can refer to.
#[derive(Default)]
pub(crate) struct Known {
    counts: HashMap<String, usize>,
    order: Vec<String>,
}

impl Known {
    pub(super) fn add_id(&mut self, id: &str) {
        *self.counts.entry(id.to_owned()).or_default() += 1;
        self.order.push(id.to_owned());
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.counts.get(id).is_some_and(|count| *count > 0)
    }

    pub(crate) fn known_ids(&self) -> Vec<&str> {
        self.counts.iter().filter(|(_, count)| **count > 0).map(|(id, _)| id.as_str()).collect()
    }

    pub(super) fn current_mark(&self) -> usize {
        self.order.len()
    }

    /// Removes the ids that were added after the mark, and returns them.
    pub(super) fn forget_since(&mut self, mark: usize) -> Vec<String> {
        let forgotten = self.order.split_off(mark);
        for id in &forgotten {
            if let Some(count) = self.counts.get_mut(id) {
                *count -= 1;
            }
        }
        forgotten
    }
}

impl Lowering<'_> {
    /// `fatal` is true if a failure of the step is a failure of the run.
    pub(super) fn lower_step(&mut self, node: &Node, secrets: &[String], fatal: bool) -> Checked<Step> {
        let id = node.get("id").and_then(Node::as_text).unwrap_or_default().to_owned();
        let prefix = format!("Workflow step {id} ");
        self.unknown_fields(node, fields::STEP_FIELDS, &format!("step {id}"));
        let on_error = match node.get("on_error").and_then(Node::as_text) {
            Some("continue") => OnError::Continue,
            Some("skip_rest") => OnError::SkipRest,
            _ => OnError::Stop,
        };
        let condition = node.get_some("when").or_else(|| node.get_some("condition"));
        let when = self.condition_of(condition, fatal)?;
        let fatal = fatal && !on_error.passes_over() && when != Condition::Never;
        let tolerated = on_error.passes_over() || when == Condition::Never;
        let around = self.is_tolerated;
        self.is_tolerated |= tolerated;
        let work = self.lower_work(node, &id, &prefix, secrets, fatal)?;
        let step = Step {
            span: node.get("id").map_or(node.span, |id| id.span),
            approval: self.lower_approval(node, &prefix)?,
            stdin: self.lower_stdin(node, &id, &work, fatal),
            env: self.lower_env(node, "env")?,
            cwd: self.lower_cwd(node, "cwd")?,
            retry: node.get("retry").map(|node| self.lower_retry(node)),
            timeout_ms: whole_milliseconds(node.get("timeout_ms")),
            on_error,
            extras: self.lower_extras(node, &work, secrets, &prefix)?,
            id,
            work,
            when,
            needs: None,
        };
        let step = self.with_undo(node, step, secrets, &prefix)?;
        self.without_effect(node, &step);
        self.look_at(node, &step);
        self.is_tolerated = around;
        match (&step.work, &step.approval) {
            (Work::Input(_), _) => drop(self.gates.insert(step.id.clone(), "response")),
            (Work::Nothing, Some(_)) => drop(self.gates.insert(step.id.clone(), "approved")),
            _ => {}
        }
        if self.lint.is_some() && doubts::prints_lines(&step.work) {
            self.line_printers.insert(step.id.clone());
        }
        self.known.add_id(&step.id);
        Ok(step)
    }

    /// Condition in the field; if it is absent, the condition is always true.
    pub(super) fn condition_of(&mut self, node: Option<&Node>, fatal: bool) -> Checked<Condition> {
        let Some(condition) = node else { return Ok(Condition::Always) };
        match self.read_condition(condition, fatal) {
            Err(mut error) if self.is_for_drawing => {
                error.severity = Severity::Warning;
                self.warnings.push(*error);
                Ok(Condition::from_invalid(condition.as_text().unwrap_or_default()))
            }
            read => read,
        }
    }

    fn read_condition(&mut self, condition: &Node, fatal: bool) -> Checked<Condition> {
        match &condition.data {
            Data::Bool(true) => Ok(Condition::Always),
            Data::Bool(false) => Ok(Condition::Never),
            Data::Text(text) => {
                let parsed = Condition::parse(text).map_err(|error| {
                    let width = text[error.at..].chars().next().map_or(0, char::len_utf8);
                    // At the end of the text, the whole condition is marked.
                    let part = if width == 0 { 0..text.len() } else { error.at..error.at + width };
                    let span = condition.part_span(self.source, part);
                    let refused = Diagnostic::error(self.source, codes::CONDITION, span, error.to_string())
                        .with_help(error.reason);
                    match bracket_index(text) {
                        Some((range, index)) => {
                            let bracket = condition.part_span(self.source, range);
                            refused.with_fix(bracket, format!(".{index}"))
                        }
                        None => refused,
                    }
                })?;
                for reference in parsed.all_references() {
                    self.must_be_known(condition, reference, "", fatal);
                }
                Ok(parsed)
            }
            Data::Null | Data::Number(_) | Data::NotFinite | Data::List(_) | Data::Map(_) => {
                let message = "Unsupported condition type";
                let help = format!("a condition is true, false or text, not {}", condition.kind_name());
                self.reject_with_help(codes::CONDITION, condition.span, message, help)
            }
        }
    }

    /// Reports a reference to an unknown step where an earlier step is required.
    pub(super) fn must_be_known(&mut self, node: &Node, reference: &Reference, prefix: &str, fatal: bool) {
        // One certain failure is enough, and there is always room for one.
        let enough = self.is_full() && (!fatal || certain_failure(self.warnings).is_some());
        if enough || self.known.contains(&reference.id) || self.aside.contains(&reference.id) {
            return;
        }
        let message = format!("{prefix}Unknown step reference: {reference}");
        let text = format!("${reference}");
        let part = node.as_text().and_then(|t| t.find(&text)).map_or(0..0, |at| at..at + text.len());
        let span = node.part_span(self.source, part);
        let names = self.known.known_ids();
        // A prefix names a field that arguments can fill in; a condition has none.
        let meant = self.meant_by(&reference.to_string());
        let help = match (meant, fields::nearest_field(&reference.id, &names)) {
            (Some(Meant::Argument(_)), _) if prefix.is_empty() => ARGUMENT_IN_CONDITION.to_owned(),
            (Some(meant), _) => format!("write `{}`", meant.in_a_field()),
            (None, Some(near)) => format!("did you mean `${near}.{}`?", reference.path.join(".")),
            (None, None) if names.is_empty() => "no step comes before this one".to_owned(),
            (None, None) => "only earlier steps and branches can be referred to".to_owned(),
        };
        self.add_failure_when_reached(codes::UNKNOWN_REFERENCE, span, message, fatal).help = Some(help);
    }

    pub(super) fn lower_work(
        &mut self,
        node: &Node,
        id: &str,
        prefix: &str,
        secrets: &[String],
        fatal: bool,
    ) -> Checked<Work> {
        if let Some(input) = node.get_some("input") {
            return self.lower_input(input);
        }
        if let Some(parallel) = node.get("parallel") {
            return self.lower_parallel(parallel, secrets, fatal);
        }
        if let Some(over) = node.get("for_each") {
            return self.for_each(node, over, id, prefix, secrets, fatal);
        }
        if let Some(repeat) = node.get_some("repeat") {
            return self.lower_repeat(node, repeat, prefix, secrets, fatal);
        }
        if let Some(switch) = node.get_some("switch") {
            return self.lower_switch(node, switch, prefix, secrets, fatal);
        }
        if let Some(path) = node.get("workflow").and_then(Node::as_text) {
            let args = node.get("workflow_args").and_then(Node::as_map).map(to_map).unwrap_or_default();
            return Ok(Work::Workflow { path: path.to_owned(), args });
        }
        if let Some(component) = node.get_some("component") {
            return self.lower_component(node, component, prefix);
        }
        if let Some(js) = node.get_some("js") {
            return self.lower_js(js, prefix);
        }
        if let Some(mcp) = node.get_some("mcp") {
            return self.lower_mcp(node, mcp, prefix);
        }
        if let Some(exec) = node.get_some("exec") {
            return self.lower_exec(exec, prefix);
        }
        if let Some(wait) = node.get_some("wait") {
            return self.lower_wait(wait, prefix);
        }
        if let Some(pipeline) = node.get("pipeline").and_then(Node::as_text).filter(|text| !text.is_empty()) {
            return Ok(self.lower_pipeline(node, pipeline, prefix));
        }
        Ok(match shell_text(node) {
            Some(text) if !text.trim().is_empty() => Work::Shell(text.to_owned()),
            // If `run` is blank, a command in the same step is used.
            _ => match node.get("command").and_then(Node::as_text).filter(|text| !text.trim().is_empty()) {
                Some(text) => Work::Shell(text.to_owned()),
                None => Work::Nothing,
            },
        })
    }

    /// Text that nothing can change is parsed now, and again when it runs.
    fn lower_pipeline(&mut self, node: &Node, text: &str, prefix: &str) -> Work {
        if template::is_constant(text)
            && let Err(error) = pipeline::parse(text)
            && let Some(written) = node.get("pipeline")
        {
            let width =
                text.get(error.offset..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
            let part = if width == 0 { 0..text.len() } else { error.offset..error.offset + width };
            let span = written.part_span(self.source, part);
            let message = format!("{prefix}pipeline parse failed: {error}");
            self.add_failure_when_reached(codes::PIPELINE_SYNTAX, span, message, !self.is_tolerated);
        }
        Work::Pipeline(text.to_owned())
    }

    /// Adds a failure that occurs when the step is reached; `fatal` if that certainly ends the run.
    pub(super) fn add_failure_when_reached(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        fatal: bool,
    ) -> &mut Diagnostic {
        let said = if fatal {
            *Diagnostic::error(self.source, code, span, message)
        } else {
            Diagnostic::warning(self.source, code, span, message)
        };
        self.warnings.push(said);
        let last = self.warnings.len() - 1;
        &mut self.warnings[last]
    }

    fn lower_input(&mut self, input: &Node) -> Checked<Work> {
        self.unknown_fields(input, fields::INPUT_FIELDS, "input");
        Ok(Work::Input(InputRequest {
            prompt: input.get("prompt").and_then(Node::as_text).unwrap_or_default().to_owned(),
            schema: input.get("responseSchema").map(Node::to_value).unwrap_or_default(),
            defaults: input.get("defaults").map(Node::to_value),
        }))
    }

    fn lower_parallel(&mut self, parallel: &Node, secrets: &[String], fatal: bool) -> Checked<Work> {
        self.unknown_fields(parallel, fields::PARALLEL_FIELDS, "parallel");
        let wait = match parallel.get("wait").and_then(Node::as_text) {
            Some("any") => Wait::Any,
            _ => Wait::All,
        };
        let mut branches = Vec::new();
        let mut visible = Vec::new();
        // Another branch may be the first to end.
        let around = self.is_tolerated;
        self.is_tolerated |= wait == Wait::Any;
        for branch in parallel.get("branches").and_then(Node::as_list).unwrap_or_default() {
            let mark = self.known.current_mark();
            branches.push(self.lower_step(branch, secrets, fatal && wait == Wait::All)?);
            // Branches cannot refer to each other; the steps after them can refer to all.
            visible.extend(self.known.forget_since(mark));
        }
        self.is_tolerated = around;
        visible.iter().for_each(|id| self.known.add_id(id));
        Ok(Work::Parallel { wait, timeout_ms: whole_milliseconds(parallel.get("timeout_ms")), branches })
    }

    fn for_each(
        &mut self,
        node: &Node,
        over: &Node,
        id: &str,
        prefix: &str,
        secrets: &[String],
        fatal: bool,
    ) -> Checked<Work> {
        let text = over.as_text().unwrap_or_default();
        self.loop_source(over, text, id, prefix, fatal);
        let name =
            |key: &str, default: &str| node.get(key).and_then(Node::as_text).unwrap_or(default).to_owned();
        let (item_var, index_var) = (name("item_var", "item"), name("index_var", "index"));
        let mark = self.known.current_mark();
        self.known.add_id(&item_var);
        self.known.add_id(&index_var);
        let mut steps = Vec::new();
        for sub in node.get("steps").and_then(Node::as_list).unwrap_or_default() {
            // The loop may have no items, so its steps may never fail.
            steps.push(self.lower_step(sub, secrets, false)?);
        }
        self.known.forget_since(mark);
        Ok(Work::ForEach {
            over: text.to_owned(),
            item_var,
            index_var,
            batch_size: whole_milliseconds(node.get("batch_size")).unwrap_or(1),
            pause_ms: whole_milliseconds(node.get("pause_ms")),
            concurrency: whole_milliseconds(node.get_some("concurrency")),
            steps,
        })
    }

    /// Checks that a loop has exactly one reference, which may come from an argument.
    fn loop_source(&mut self, over: &Node, text: &str, id: &str, prefix: &str, fatal: bool) {
        if let Some(reference) = template::strict_reference(text) {
            self.must_be_known(over, &reference, &format!("{prefix}for_each: "), fatal);
        } else if template::args_in(text).next().is_none() {
            let message = format!("Workflow step {id} for_each: expected array, got string");
            let named = text.trim().strip_prefix('$').filter(|name| self.known.contains(name));
            let fixed = named.map(|name| format!("${name}.json"));
            let help = fixed.as_ref().map_or_else(
                || "write one reference to a list, such as `$collect.json`".to_owned(),
                |fixed| format!("write `{fixed}`"),
            );
            let written = over.part_span(self.source, 0..text.len());
            let said = self.add_failure_when_reached(codes::NOT_A_LIST, over.span, message, fatal);
            said.help = Some(help);
            said.fix = fixed.map(|replacement| Fix { span: written, replacement });
        }
    }

    pub(super) fn lower_stdin(&mut self, node: &Node, id: &str, work: &Work, fatal: bool) -> Stdin {
        let Some(stdin) = node.get_some("stdin") else { return Stdin::None };
        let Some(text) = stdin.as_text() else { return Stdin::Literal(stdin.to_value()) };
        // These kinds of step never read their stdin.
        let reads = !matches!(work, Work::Workflow { .. }) && work.inner_steps().is_empty();
        if let Some(reference) = template::strict_reference(text).filter(|_| reads) {
            self.must_be_known(stdin, &reference, &format!("Workflow step {id} stdin: "), fatal);
        }
        Stdin::Text(text.to_owned())
    }

    fn lower_approval(&mut self, node: &Node, prefix: &str) -> Checked<Option<Approval>> {
        let Some(approval) = node.get_some("approval") else { return Ok(None) };
        let refuse = |help: &str| {
            let message = format!(
                "{prefix}approval must be true, a prompt, or an object, not {}",
                approval.kind_name()
            );
            let error = Diagnostic::error(self.source, codes::GATE_TYPE, approval.span, message);
            Err(error.with_help(help).into())
        };
        match &approval.data {
            Data::Bool(false) => Ok(None),
            Data::Bool(true) => Ok(Some(Approval::default())),
            Data::Text(text) if text == "required" => Ok(Some(Approval::default())),
            Data::Text(text) if text.trim().is_empty() => refuse(
                "the prompt is blank, so no one would be asked; write the question, or `approval: true`",
            ),
            Data::Text(text) => Ok(Some(Approval { prompt: Some(text.clone()), ..Approval::default() })),
            Data::Map(_) => Ok(Some(self.approval_map(approval))),
            Data::Null | Data::Number(_) | Data::NotFinite | Data::List(_) => {
                refuse("no one would be asked; write `approval: true` or `approval: <question>`")
            }
        }
    }

    fn approval_map(&mut self, map: &Node) -> Approval {
        self.unknown_fields(map, fields::APPROVAL_FIELDS, "approval");
        let either = |camel: &str, snake: &str| map.get(camel).or_else(|| map.get(snake));
        let identity = |camel: &str, snake: &str| {
            let text = either(camel, snake).and_then(Node::as_text).map(str::trim);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let approval = Approval {
            prompt: map.get("prompt").and_then(Node::as_text).map(str::to_owned),
            items: map
                .get("items")
                .and_then(Node::as_list)
                .map(|items| items.iter().map(Node::to_value).collect()),
            preview: map.get("preview").and_then(Node::as_text).map(str::to_owned),
            initiated_by: identity("initiatedBy", "initiated_by"),
            required_approver: identity("requiredApprover", "required_approver"),
            require_different_approver: either("requireDifferentApprover", "require_different_approver")
                .and_then(Node::as_bool)
                .unwrap_or(false),
        };
        for (key, wanted, fits) in [
            ("prompt", "text", approval.prompt.is_some()),
            ("items", "a list", approval.items.is_some()),
            ("preview", "text", approval.preview.is_some()),
        ] {
            if let Some(node) = map.get_some(key).filter(|_| !fits) {
                let message = format!("approval.{key} is not {wanted} and is not shown");
                self.warn(codes::IGNORED_VALUE, node.span, message);
            }
        }
        approval
    }

    fn lower_retry(&mut self, node: &Node) -> Retry {
        self.unknown_fields(node, fields::RETRY_FIELDS, "retry");
        let number = |key: &str, default: f64| node.get(key).and_then(Node::as_f64).unwrap_or(default);
        Retry {
            max: whole_milliseconds(node.get("max")).unwrap_or(1),
            exponential: node.get("backoff").and_then(Node::as_text) == Some("exponential"),
            delay_ms: number("delay_ms", DELAY_MS),
            max_delay_ms: number("max_delay_ms", MAX_DELAY_MS),
            jitter: node.get("jitter").and_then(Node::as_bool).unwrap_or(false),
        }
    }

    /// Variables with text values; others have no effect.
    pub(super) fn lower_env(&mut self, owner: &Node, key: &str) -> Checked<Vec<(String, String)>> {
        let Some(node) = owner.get_some(key) else { return Ok(Vec::new()) };
        let Some(entries) = node.as_map() else {
            let message = format!("env is {} instead of a map and has no effect", node.kind_name());
            self.warn(codes::IGNORED_VALUE, node.span, message);
            return Ok(Vec::new());
        };
        let mut variables = Vec::new();
        for MappingEntry { key, key_span, value } in entries {
            self.variable_name(key, *key_span)?;
            match value.as_text() {
                None if self.is_full() => {}
                Some(text) => variables.push((key.clone(), text.to_owned())),
                None => {
                    let message =
                        format!("the variable {key} is {} instead of text and is not set", value.kind_name());
                    let warning = Diagnostic::warning(self.source, codes::IGNORED_VALUE, value.span, message);
                    self.warnings.push(warning.with_help("quote the value"));
                }
            }
        }
        Ok(variables)
    }

    /// Rejects a name that would set another variable than it seems to.
    pub(super) fn variable_name(&self, name: &str, span: Span) -> Checked<()> {
        check_variable_name(name)
            .map_err(|error| Diagnostic::error(self.source, codes::FIELD_TYPE, span, error.to_string()))
    }

    pub(super) fn lower_cwd(&self, owner: &Node, key: &str) -> Checked<Option<String>> {
        match owner.get(key) {
            Some(node) if node.as_text().is_none() && node.is_truthy() => {
                self.reject_type(node, format!("cwd must be a directory as text, not {}", node.kind_name()))
            }
            other => Ok(other.and_then(Node::as_text).filter(|text| !text.is_empty()).map(str::to_owned)),
        }
    }

    /// Warns of known fields without effect here.
    fn without_effect(&mut self, node: &Node, step: &Step) {
        if self.is_full() {
            return;
        }
        let mut unused: Vec<(&str, String)> = Vec::new();
        let is_loop = matches!(step.work, Work::ForEach { .. });
        let is_repeat = matches!(step.work, Work::Repeat { .. });
        let is_switch = matches!(step.work, Work::Switch { .. });
        let is_workflow = matches!(step.work, Work::Workflow { .. });
        for key in ["item_var", "batch_size", "pause_ms", "concurrency"] {
            unused.extend((!is_loop).then(|| (key, "belongs to for_each".to_owned())));
        }
        for key in ["steps", "index_var"] {
            unused
                .extend((!is_loop && !is_repeat).then(|| (key, "belongs to for_each and repeat".to_owned())));
        }
        for key in ["cases", "default"] {
            unused.extend((!is_switch).then(|| (key, "belongs to switch".to_owned())));
        }
        unused.extend((!is_workflow).then(|| ("workflow_args", "belongs to workflow".to_owned())));
        if !matches!(step.work, Work::Component { .. } | Work::Mcp { .. }) {
            unused.push(("args", "belongs to component and mcp".to_owned()));
        }
        if node.get_some("when").is_some() {
            unused.push(("condition", "gives way to `when`".to_owned()));
        }
        if matches!(&step.work, Work::Shell(text) if node.get("run").and_then(Node::as_text) == Some(text)) {
            unused.push(("command", "gives way to `run`".to_owned()));
        }
        if is_workflow || is_repeat || is_switch || matches!(step.work, Work::Parallel { .. }) {
            unused.push(("stdin", "is not read by this kind of step".to_owned()));
        }
        for (key, why) in unused {
            if let Some(entry) = node.map_entry(key).filter(|entry| !entry.value.is_null()) {
                let span: Span = entry.key_span;
                let message = format!("`{key}` in step {} has no effect: it {why}", step.id);
                self.warn(codes::INPUT_OUTSIDE, span, message);
            }
        }
    }
}

/// A whole number that has been checked; fractions of a pause are rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be finite and not negative"
)]
pub(super) fn whole_milliseconds(node: Option<&Node>) -> Option<u64> {
    node.and_then(Node::as_f64).map(|number| number.ceil() as u64)
}

/// The first `[3]` in a text, and its number.
pub(crate) fn bracket_index(text: &str) -> Option<(Range<usize>, &str)> {
    text.match_indices('[').find_map(|(start, _)| {
        let len = text[start + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let end = start + 1 + len;
        (len > 0 && text[end..].starts_with(']')).then(|| (start..end + 1, &text[start + 1..end]))
    })
}
