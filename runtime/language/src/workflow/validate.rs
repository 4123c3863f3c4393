//! Checks that the incumbent also makes, in its order and with its messages.
//!
//! Clients and people know these messages; each is the start of ours. Two groups of checks are gone
//! because the constructs now work: approvals, input requests, sub-workflows, parallel steps and loops
//! inside branches and loops.

mod control;

use std::collections::HashSet;
use std::sync::Arc;

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::Span;
use super::super::source::{Data, Node, Source};
use super::fields::nearest_field;
use lobster_base::json;
use lobster_base::schema::Schema;

const TIMEOUT: &str = "timeout_ms must be a positive integer between 1 and 2147483647";
const MAX_TIMEOUT_MS: f64 = 2_147_483_647.0;

/// Checks a whole file.
pub(super) fn check_workflow(source: &Arc<Source>, root: &Node) -> Checked<()> {
    let check = Check { source };
    if !matches!(root.data, Data::Map(_) | Data::List(_)) {
        let error =
            check.error_at(codes::NOT_A_WORKFLOW, root.span, "Workflow file must be a JSON/YAML object");
        return Err(error.with_help("write `steps:` and a list of steps below it").into());
    }
    let steps = match root.get("steps").map(|steps| (steps, steps.as_list())) {
        Some((_, Some(steps))) if !steps.is_empty() => steps,
        other => {
            let span =
                other.map_or(Span { start: root.span.start, end: root.span.start }, |(node, _)| node.span);
            let message = "Workflow file requires a non-empty steps array";
            let error = check.error_at(codes::NOT_A_WORKFLOW, span, message);
            return Err(match hint_for_missing_steps(root) {
                Some(help) => error.with_help(help).into(),
                None => error,
            });
        }
    };
    check.cost_limit(root)?;
    check.at_once(root, "Workflow ")?;
    let mut ids = HashSet::new();
    steps.iter().try_for_each(|step| check.check_step(step, &mut ids))
}

/// ECMA-262 `Number(value)`; NaN if the value is not a number.
pub(super) fn js_number_of(node: &Node) -> f64 {
    match &node.data {
        Data::Null => 0.0,
        Data::Bool(value) => f64::from(u8::from(*value)),
        Data::Number(number) => number.as_f64().unwrap_or(f64::NAN),
        Data::Text(text) => json::js_number(text),
        Data::List(_) => json::js_number(&json::js_string(&node.to_value())),
        Data::NotFinite | Data::Map(_) => f64::NAN,
    }
}

/// Text for the shell: `run` if it is text, otherwise `command`.
pub(super) fn shell_text(step: &Node) -> Option<&str> {
    let text = |key| step.get(key).and_then(Node::as_text);
    text("run").or_else(|| text("command"))
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// True if the value is an approval or input request, even a mistyped one, which is rejected later.
fn is_gate(node: Option<&Node>) -> bool {
    node.is_some_and(|node| !matches!(node.data, Data::Null | Data::Bool(false)))
}

struct Check<'a> {
    source: &'a Arc<Source>,
}

impl Check<'_> {
    fn error_at(&self, code: &'static str, span: Span, message: impl Into<String>) -> Box<Diagnostic> {
        Diagnostic::error(self.source, code, span, message)
    }

    /// Rejects the value of a field.
    fn reject_value<T>(&self, node: &Node, prefix: &str, message: &str) -> Checked<T> {
        Err(self.error_at(codes::FIELD_TYPE, node.span, format!("{prefix}{message}")))
    }

    fn cost_limit(&self, root: &Node) -> Checked<()> {
        let Some(limit) = root.get("cost_limit") else { return Ok(()) };
        if limit.as_map().is_none() {
            return self.reject_value(limit, "", "Workflow cost_limit must be an object");
        }
        let max = limit.get("max_usd");
        let usd = max.map_or(f64::NAN, js_number_of);
        if !usd.is_finite() || usd < 0.0 {
            let message = "Workflow cost_limit.max_usd must be a non-negative number";
            return self.reject_value(max.unwrap_or(limit), "", message);
        }
        if let Some(action) = limit.get("action")
            && !matches!(action.as_text(), Some("warn" | "stop"))
        {
            return self.reject_value(action, "", "Workflow cost_limit.action must be \"warn\" or \"stop\"");
        }
        match limit.get("unpriced") {
            Some(unpriced) if !matches!(unpriced.as_text(), Some("allow" | "refuse")) => self.reject_value(
                unpriced,
                "",
                "Workflow cost_limit.unpriced must be \"allow\" or \"refuse\"",
            ),
            _ => Ok(()),
        }
    }

    fn check_step(&self, step: &Node, ids: &mut HashSet<String>) -> Checked<()> {
        let id = self.require_id(step, "Workflow step must be an object", "Workflow step requires an id")?;
        let prefix = format!("Workflow step {id} ");
        self.sub_workflow(step, &prefix)?;
        self.check_parallel(step, id, &prefix, ids)?;
        self.for_each(step, &prefix)?;
        self.check_repeat(step, &prefix)?;
        self.check_switch(step, &prefix, ids)?;
        self.check_executors(step, &prefix)?;
        self.work_types(step, &prefix)?;
        self.gates_and_settings(step, &prefix)?;
        if !ids.insert(id.to_owned()) {
            let message = format!("Duplicate workflow step id: {id}");
            return Err(self.error_at(codes::DUPLICATE_ID, id_span(step), message));
        }
        Ok(())
    }

    fn require_id<'n>(&self, step: &'n Node, not_a_map: &str, no_id: &str) -> Checked<&'n str> {
        if !matches!(step.data, Data::Map(_) | Data::List(_)) {
            return Err(self.error_at(codes::STEP_SHAPE, step.span, not_a_map));
        }
        if let Some(id) = step.get("id").and_then(Node::as_text).filter(|id| !id.is_empty()) {
            return Ok(id);
        }
        let span = step.get("id").map_or_else(|| first_line(self.source, step.span), |id| id.span);
        let error = self.error_at(codes::STEP_SHAPE, span, no_id);
        Err(match (step.map_entry("name"), step.get("id")) {
            (Some(_), None) => error.with_help("steps are named by `id`, not `name`").into(),
            (_, Some(id)) if !id.is_null() && id.as_text().is_none() => {
                error.with_help(format!("the id is {}; quote it to make it text", id.kind_name())).into()
            }
            _ => {
                error.with_help("add `id: some-name`; letters, digits, `_` and `-` can be referred to").into()
            }
        })
    }

    fn sub_workflow(&self, step: &Node, prefix: &str) -> Checked<()> {
        if let Some(path) = step.get("workflow") {
            match path.as_text() {
                None => return self.reject_value(path, prefix, "workflow must be a string (file path)"),
                Some(text) if is_blank(text) => {
                    return self.reject_value(path, prefix, "workflow path cannot be blank");
                }
                Some(_) => {}
            }
        }
        match step.get("workflow_args") {
            Some(args) if args.as_map().is_none() => {
                self.reject_value(args, prefix, "workflow_args must be a plain object")
            }
            _ => Ok(()),
        }
    }

    fn check_parallel(&self, step: &Node, id: &str, prefix: &str, ids: &mut HashSet<String>) -> Checked<()> {
        let Some(parallel) = step.get("parallel") else { return Ok(()) };
        if parallel.as_map().is_none() {
            return self.reject_value(parallel, prefix, "parallel must be an object");
        }
        let branches = parallel.get("branches");
        let Some(list) = branches.and_then(Node::as_list).filter(|list| !list.is_empty()) else {
            return self.reject_value(
                branches.unwrap_or(parallel),
                prefix,
                "parallel requires a non-empty branches array",
            );
        };
        if let Some(wait) = parallel.get("wait")
            && !matches!(wait.as_text(), Some("all" | "any"))
        {
            return self.reject_value(wait, prefix, "parallel wait must be \"all\" or \"any\"");
        }
        self.check_timeout(parallel, &format!("{prefix}parallel "))?;
        let mut own = HashSet::new();
        list.iter().try_for_each(|branch| self.check_branch(branch, id, prefix, &mut own, ids))
    }

    fn check_branch(
        &self,
        branch: &Node,
        step_id: &str,
        prefix: &str,
        own: &mut HashSet<String>,
        ids: &mut HashSet<String>,
    ) -> Checked<()> {
        let not_a_map = format!("{prefix}parallel branches must be objects");
        let id = self.require_id(branch, &not_a_map, &format!("{prefix}parallel branch requires an id"))?;
        let duplicate = |message: String| Err(self.error_at(codes::DUPLICATE_ID, id_span(branch), message));
        if id == step_id {
            return duplicate(format!("{prefix}parallel branch id cannot match the step id: {id}"));
        }
        if !own.insert(id.to_owned()) {
            return duplicate(format!("{prefix}duplicate parallel branch id: {id}"));
        }
        if !ids.insert(id.to_owned()) {
            return duplicate(format!("Duplicate workflow id across steps/parallel branches: {id}"));
        }
        let subject = format!("{prefix}parallel branch {id} ");
        // A command of only blanks is a branch that does nothing.
        let shell = shell_text(branch).is_some() || has_any(branch, &["run", "command"]);
        let kinds = usize::from(shell) + usize::from(branch.get("pipeline").is_some()) + other_kinds(branch);
        self.one_kind(branch, kinds, &subject)?;
        self.work_types(branch, &subject)?;
        self.check_nested_step(branch, id, ids)
    }

    fn one_kind(&self, step: &Node, kinds: usize, subject: &str) -> Checked<()> {
        let span = id_span(step);
        if kinds == 0 && !is_gate(step.get("approval")) && step.get_some("input").is_none() {
            let message = format!("{subject}requires run, command, or pipeline");
            let help = "workflow, parallel, for_each, repeat, switch, component, js, mcp, exec, wait, approval and input \
                        are possible too";
            return Err(self.error_at(codes::STEP_SHAPE, span, message).with_help(help).into());
        }
        if kinds > 1 {
            let message = format!("{subject}can only define one of run, command, or pipeline");
            let help = "this also holds for workflow, parallel, for_each, repeat, switch, component, js, mcp, exec and wait";
            return Err(self.error_at(codes::CONFLICT, span, message).with_help(help).into());
        }
        Ok(())
    }

    /// Checks that a branch or sub-step shares with a step of the file.
    fn check_nested_step(&self, step: &Node, id: &str, ids: &mut HashSet<String>) -> Checked<()> {
        let prefix = format!("Workflow step {id} ");
        self.sub_workflow(step, &prefix)?;
        self.check_parallel(step, id, &prefix, ids)?;
        self.for_each(step, &prefix)?;
        self.check_repeat(step, &prefix)?;
        self.check_switch(step, &prefix, ids)?;
        self.input_alone(step, &prefix)?;
        self.gates_and_settings(step, &prefix)
    }

    fn for_each(&self, step: &Node, prefix: &str) -> Checked<()> {
        let Some(over) = step.get("for_each") else { return Ok(()) };
        if over.as_text().is_none() {
            let message = "for_each must be a string (step reference expression)";
            return self.reject_value(over, prefix, message);
        }
        let list = step.get("steps");
        let Some(steps) = list.and_then(Node::as_list).filter(|steps| !steps.is_empty()) else {
            return self.reject_value(
                list.unwrap_or(over),
                prefix,
                "for_each requires a non-empty steps array",
            );
        };
        if let Some(size) = step.get("batch_size")
            && !whole_number(size).is_some_and(|n| n >= 1.0)
        {
            return self.reject_value(size, prefix, "batch_size must be a positive integer");
        }
        if let Some(pause) = step.get("pause_ms")
            && !pause.as_f64().is_some_and(|n| n >= 0.0)
        {
            return self.reject_value(pause, prefix, "pause_ms must be a finite non-negative number");
        }
        self.at_once(step, prefix)?;
        let has_pauses = step.get("pause_ms").and_then(Node::as_f64).is_some_and(|pause| pause > 0.0);
        let is_concurrent = step.get("concurrency").and_then(Node::as_f64).is_some_and(|rounds| rounds > 1.0);
        if let (Some(node), true, true) = (step.get("pause_ms"), has_pauses, is_concurrent) {
            let message = format!(
                "{prefix}pause_ms has no meaning beside concurrency: rounds have no pauses between them"
            );
            return Err(self.error_at(codes::CONFLICT, node.span, message));
        }
        self.loop_conflicts(step, prefix)?;
        let variables = [
            self.loop_variable(step, prefix, "item_var", "item")?,
            self.loop_variable(step, prefix, "index_var", "index")?,
        ];
        if variables[0] == variables[1] {
            let node = step.get("index_var").or_else(|| step.get("item_var")).unwrap_or(over);
            return self.reject_value(node, prefix, "item_var and index_var cannot be the same");
        }
        // The results of a loop's steps are not visible outside, so their ids need not be unique in the
        // file.
        let mut ids = HashSet::new();
        steps.iter().try_for_each(|sub| self.sub_step(sub, "for_each", prefix, &variables, &mut ids))
    }

    /// Name of a loop's variable.
    fn loop_variable(&self, step: &Node, prefix: &str, key: &str, default: &str) -> Checked<String> {
        match step.get(key) {
            None => Ok(default.to_owned()),
            Some(name) => match name.as_text() {
                Some(text) => Ok(text.to_owned()),
                None => self.reject_value(name, prefix, &format!("{key} must be a string")),
            },
        }
    }

    fn loop_conflicts(&self, step: &Node, prefix: &str) -> Checked<()> {
        let conflict = |node: &Node, message: &str| -> Checked<()> {
            Err(self.error_at(codes::CONFLICT, node.span, format!("{prefix}{message}")))
        };
        if let Some(approval) = step.get("approval").filter(|node| is_gate(Some(node))) {
            let message = "for_each steps cannot define approval (use a separate step after the loop)";
            return conflict(approval, message);
        }
        if let Some(input) = step.get("input") {
            return conflict(
                input,
                "for_each steps cannot define input (use a separate step after the loop)",
            );
        }
        if let Some(stdin) = step.get_some("stdin") {
            let message =
                "for_each steps cannot define stdin (loop input comes from the for_each expression)";
            return conflict(stdin, message);
        }
        let others = ["run", "command", "pipeline", "workflow"];
        let others = others.iter().chain(OTHER_KINDS.iter().filter(|kind| **kind != "for_each"));
        match others.copied().find_map(|key| step.get(key)) {
            Some(node) => {
                conflict(node, "for_each cannot also define run, command, pipeline, workflow, or parallel")
            }
            None => Ok(()),
        }
    }

    fn sub_step(
        &self,
        sub: &Node,
        kind: &str,
        prefix: &str,
        variables: &[String],
        ids: &mut HashSet<String>,
    ) -> Checked<()> {
        let no_id = format!("{prefix}{kind} sub-step requires an id");
        let id = self.require_id(sub, &no_id, &no_id)?;
        let clash = |message: String| Err(self.error_at(codes::DUPLICATE_ID, id_span(sub), message));
        if variables.iter().any(|variable| variable == id) {
            return clash(format!("{prefix}{kind} sub-step id '{id}' conflicts with loop variable"));
        }
        if ids.contains(id) {
            return clash(format!("{prefix}duplicate {kind} sub-step id: {id}"));
        }
        let subject = format!("{prefix}{kind} sub-step {id} ");
        self.kind_of_nested(sub, &subject)?;
        self.check_nested_step(sub, id, ids)?;
        ids.insert(id.to_owned());
        Ok(())
    }

    /// Checks that a step inside another step has one kind of work.
    fn kind_of_nested(&self, sub: &Node, subject: &str) -> Checked<()> {
        self.work_types(sub, subject)?;
        let filled = |key| sub.get(key).and_then(Node::as_text).is_some_and(|text| !is_blank(text));
        let shell = filled("run") || filled("command");
        let kinds = usize::from(shell) + usize::from(filled("pipeline")) + other_kinds(sub);
        self.one_kind(sub, kinds, subject)
    }

    fn check_executors(&self, step: &Node, prefix: &str) -> Checked<()> {
        let run_is_text = step.get("run").is_some_and(|run| run.as_text().is_some());
        let shell = shell_text(step).is_some_and(|text| !text.is_empty())
            || (!run_is_text && step.get("command").is_some_and(|c| c.as_text().is_none() && c.is_truthy()));
        let pipeline = step.get("pipeline").and_then(Node::as_text).is_some_and(|text| !text.is_empty());
        let kinds = usize::from(shell) + usize::from(pipeline) + other_kinds(step);
        let gated = is_gate(step.get("approval")) || step.get("input").is_some();
        if kinds == 0 && !gated {
            let message = format!(
                "{prefix}requires run, command, pipeline, workflow, parallel, for_each, approval, or input"
            );
            let error = self.error_at(codes::STEP_SHAPE, id_span(step), message);
            return Err(error.with_help(hint_for_missing_work(step)).into());
        }
        if kinds > 1 {
            let message = format!(
                "{prefix}can only define one of run, command, pipeline, workflow, parallel, or for_each"
            );
            let help = "repeat, switch, component, js, mcp, exec and wait also conflict; split the step";
            return Err(self.error_at(codes::CONFLICT, id_span(step), message).with_help(help).into());
        }
        self.input_alone(step, prefix)
    }

    fn input_alone(&self, step: &Node, prefix: &str) -> Checked<()> {
        let Some(input) = step.get("input") else { return Ok(()) };
        let shell = shell_text(step).is_some_and(|text| !text.is_empty());
        let pipeline = step.get("pipeline").and_then(Node::as_text).is_some_and(|text| !text.is_empty());
        if shell || pipeline || other_kinds(step) > 0 {
            let message = format!(
                "{prefix}input steps cannot define run, command, pipeline, workflow, parallel, or for_each"
            );
            return Err(self.error_at(codes::CONFLICT, input.span, message));
        }
        if is_gate(step.get("approval")) {
            let message = format!("{prefix}cannot define both approval and input");
            return Err(self.error_at(codes::CONFLICT, input.span, message));
        }
        Ok(())
    }

    fn work_types(&self, step: &Node, subject: &str) -> Checked<()> {
        for key in ["run", "command", "pipeline"] {
            if let Some(node) = step.get(key)
                && node.as_text().is_none()
            {
                let message = format!("{subject}{key} must be a string");
                let error = self.error_at(codes::FIELD_TYPE, node.span, message);
                return Err(if node.as_list().is_some() && key != "pipeline" {
                    error
                        .with_help("for a program and its arguments without a shell, write `exec: [...]`")
                        .into()
                } else {
                    error
                });
            }
        }
        Ok(())
    }

    fn gates_and_settings(&self, step: &Node, prefix: &str) -> Checked<()> {
        self.check_input(step, prefix)?;
        self.check_approval(step, prefix)?;
        self.check_timeout(step, prefix)?;
        if let Some(on_error) = step.get("on_error")
            && !matches!(on_error.as_text(), Some("stop" | "continue" | "skip_rest"))
        {
            let message = "on_error must be \"stop\", \"continue\", or \"skip_rest\"";
            return self.reject_value(on_error, prefix, message);
        }
        self.check_retry(step, prefix)
    }

    fn check_input(&self, step: &Node, prefix: &str) -> Checked<()> {
        let Some(input) = step.get("input") else { return Ok(()) };
        if input.as_map().is_none() {
            return self.reject_value(input, prefix, "input must be an object");
        }
        let prompt = input.get("prompt");
        if prompt.and_then(Node::as_text).is_none() {
            return self.reject_value(prompt.unwrap_or(input), prefix, "input.prompt must be a string");
        }
        let Some(schema) = input.get("responseSchema").filter(|schema| schema.as_map().is_some()) else {
            let node = input.get("responseSchema").unwrap_or(input);
            return self.reject_value(node, prefix, "input.responseSchema must be an object");
        };
        match Schema::compile(&schema.to_value()) {
            Ok(_) => Ok(()),
            Err(reason) => {
                let message = format!("{prefix}input.responseSchema is invalid: {reason}");
                Err(self.error_at(codes::INPUT_SCHEMA, schema.span, message))
            }
        }
    }

    fn check_approval(&self, step: &Node, prefix: &str) -> Checked<()> {
        let Some(approval) = step.get("approval") else { return Ok(()) };
        for key in ["initiated_by", "initiatedBy", "required_approver", "requiredApprover"] {
            if let Some(node) = approval.get(key)
                && node.as_text().is_none()
            {
                return self.reject_value(node, prefix, &format!("approval.{key} must be a string"));
            }
        }
        for key in ["require_different_approver", "requireDifferentApprover"] {
            if let Some(node) = approval.get(key)
                && node.as_bool().is_none()
            {
                return self.reject_value(node, prefix, &format!("approval.{key} must be a boolean"));
            }
        }
        Ok(())
    }

    fn check_timeout(&self, owner: &Node, prefix: &str) -> Checked<()> {
        match owner.get("timeout_ms") {
            Some(node) if !whole_number(node).is_some_and(|n| (1.0..=MAX_TIMEOUT_MS).contains(&n)) => {
                self.reject_value(node, prefix, TIMEOUT)
            }
            _ => Ok(()),
        }
    }

    fn check_retry(&self, step: &Node, prefix: &str) -> Checked<()> {
        let Some(retry) = step.get("retry") else { return Ok(()) };
        if retry.as_map().is_none() {
            let message = format!("{prefix}retry must be an object");
            let error = self.error_at(codes::FIELD_TYPE, retry.span, message);
            return Err(match whole_number(retry) {
                Some(n) => error.with_help(format!("write `retry: {{max: {n}}}`")).into(),
                None => error,
            });
        }
        if let Some(max) = retry.get("max")
            && !whole_number(max).is_some_and(|n| n >= 1.0)
        {
            return self.reject_value(max, prefix, "retry.max must be a positive integer");
        }
        if let Some(backoff) = retry.get("backoff")
            && !matches!(backoff.as_text(), Some("fixed" | "exponential"))
        {
            return self.reject_value(backoff, prefix, "retry.backoff must be \"fixed\" or \"exponential\"");
        }
        for key in ["delay_ms", "max_delay_ms"] {
            if let Some(delay) = retry.get(key)
                && !delay.as_f64().is_some_and(|n| n >= 0.0)
            {
                return self.reject_value(
                    delay,
                    prefix,
                    &format!("retry.{key} must be a finite non-negative number"),
                );
            }
        }
        match retry.get("jitter") {
            Some(jitter) if jitter.as_bool().is_none() => {
                self.reject_value(jitter, prefix, "retry.jitter must be a boolean")
            }
            _ => Ok(()),
        }
    }
}

/// Kinds of work other than shell, pipeline and sub-workflow.
const OTHER_KINDS: &[&str] =
    &["parallel", "for_each", "repeat", "switch", "component", "js", "mcp", "exec", "wait"];

/// Number of kinds of work in a step, without shell and pipeline.
fn other_kinds(step: &Node) -> usize {
    let workflow = step.get("workflow").and_then(Node::as_text).is_some_and(|text| !is_blank(text));
    usize::from(workflow) + OTHER_KINDS.iter().filter(|key| step.get_some(key).is_some()).count()
}

fn has_any(step: &Node, keys: &[&str]) -> bool {
    keys.iter().any(|key| step.get(key).is_some())
}

fn whole_number(node: &Node) -> Option<f64> {
    node.as_f64().filter(|n| n.fract() == 0.0)
}

/// Position for errors about a step: its id, or its first line.
fn id_span(step: &Node) -> Span {
    step.get("id").map_or(step.span, |id| id.span)
}

fn first_line(source: &Source, span: Span) -> Span {
    let (start, line) = source.line_at(span.start);
    Span { start: span.start, end: span.end.min(start + line.len()) }
}

/// Kinds of steps in other tools, with the correct form.
const FOREIGN_KINDS: &[(&[&str], &str)] = &[
    (&["approve", "confirm", "gate"], "approvals are written `approval: true` or `approval: <prompt>`"),
    (&["foreach", "loop", "each", "map"], "loops are written `for_each: $id.json` with `steps:`"),
    (
        &["until", "while", "poll"],
        "steps are repeated with `repeat: {until: CONDITION, max: N}` and `steps:`",
    ),
    (&["cases", "match", "choose", "case"], "a choice is written `switch: $id.json` with `cases:`"),
    (&["<<"], "YAML merge keys (`<<`) are not applied; repeat the fields, or use a sub-workflow"),
    (&["shell", "script", "bash", "sh", "cmd", "execute"], "a shell command is written `run: <command>`"),
    (
        &["python", "node"],
        "run the program: `run: python3 script.py`, or `exec: [python3, script.py]` without a shell",
    ),
    (&["javascript", "code", "eval"], "JavaScript is written `js: <expression>`; it reads `input`"),
    (&["wasm", "module"], "a WebAssembly component is written `component: <path>`"),
    (
        &["prompt", "ask", "question"],
        "to ask a person, write `approval: <question>` or `input: {prompt, responseSchema}`; \
      to ask a model, `pipeline: llm.invoke --prompt '<text>'`",
    ),
    (&["llm", "agent", "model", "ai"], "a model is asked with `pipeline: llm.invoke --prompt '<text>'`"),
    (
        &["tool", "uses", "action", "call"],
        "a tool is called with `pipeline: openclaw.invoke --tool <name> --action <action>`, \
      or with `mcp:` for an MCP server",
    ),
    (
        &["http", "fetch", "url", "request"],
        "use `run: curl …`, or a component with `grants: {net: [host:port]}`",
    ),
    (&["sleep", "delay", "pause"], "write `wait: 90s`"),
    (&["branches", "concurrent"], "parallel branches are written `parallel: {branches: [...]}`"),
];

/// Kinds of work, approvals and input requests.
const KINDS: &[&str] = &[
    "run",
    "command",
    "pipeline",
    "workflow",
    "parallel",
    "for_each",
    "repeat",
    "switch",
    "component",
    "js",
    "mcp",
    "exec",
    "wait",
    "approval",
    "input",
];

/// Probable meaning of a step without work.
fn hint_for_missing_work(step: &Node) -> String {
    let keys = step.as_map().unwrap_or_default().iter().map(|entry| entry.key.as_str());
    for key in keys {
        if let Some((_, help)) = FOREIGN_KINDS.iter().find(|(names, _)| names.contains(&key)) {
            return (*help).to_owned();
        }
        if let Some(near) = nearest_field(key, KINDS).filter(|near| *near != key) {
            return format!("`{key}` is not known; did you mean `{near}`?");
        }
    }
    if shell_text(step).is_some_and(str::is_empty) {
        return "the command is empty".to_owned();
    }
    "a step can also have exec, component, js or mcp; a shell command is written `run: <command>`".to_owned()
}

/// Names of the list of steps in other tools.
const FOREIGN_STEPS: &[&str] =
    &["jobs", "tasks", "stages", "step", "actions", "nodes", "pipeline", "workflow", "run"];

/// Probable meaning of a file without steps.
fn hint_for_missing_steps(root: &Node) -> Option<String> {
    let keys = root.as_map()?.iter().map(|entry| entry.key.as_str());
    let key = keys.into_iter().find(|key| {
        FOREIGN_STEPS.contains(key) || *key != "steps" && nearest_field(key, &["steps"]).is_some()
    })?;
    Some(format!("`{key}` is not known; the steps are a list under `steps:`, and each has an `id`"))
}
