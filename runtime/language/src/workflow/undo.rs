//! `undo:` of a step: a step that undoes effects other than file changes.
//!
//! It is a separate step that an undo of the run proposes. It can use only the arguments of the file
//! and the result of its own step: other steps may not have run, and their results are not kept for it.

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::{Extras, OnError, Stdin, Step, Work};
use super::super::source::{Data, Node};
use super::super::template;
use super::step::whole_milliseconds;
use super::{Condition, Lowering, fields};

impl Lowering<'_> {
    /// Adds the undo step to the step, if the file has one.
    pub(super) fn with_undo(
        &mut self,
        node: &Node,
        step: Step,
        secrets: &[String],
        prefix: &str,
    ) -> Checked<Step> {
        let Some(undo) = node.get_some("undo") else { return Ok(step) };
        let has_effects = matches!(
            step.work,
            Work::Shell(_)
                | Work::Exec(_)
                | Work::Pipeline(_)
                | Work::Component { .. }
                | Work::Mcp { .. }
                | Work::Workflow { .. }
        );
        if !has_effects {
            let message = format!(
                "{prefix}undo: only run, command, exec, pipeline, component, mcp and workflow steps have it"
            );
            let error = Diagnostic::error(self.source, codes::CONFLICT, undo.span, message);
            return Err(error.with_help("put it on the steps inside whose effects it undoes").into());
        }
        let name = format!("{prefix}undo");
        self.reject_unknown_keys(undo, fields::UNDO_FIELDS, &name)?;
        let said: Vec<&str> =
            fields::UNDO_WORK.iter().copied().filter(|key| undo.get_some(key).is_some()).collect();
        if said.len() != 1 {
            let message = format!("{name} takes one of {}", fields::UNDO_WORK.join(", "));
            let help = "for example `undo: { exec: [gh, release, delete, $id.json.tag] }`";
            return self.reject_with_help(codes::FIELD_TYPE, undo.span, message, help);
        }
        self.only_own_results(undo, &step.id, &name)?;
        let before = std::mem::take(&mut self.known);
        self.known.add_id(&step.id);
        // It may never run.
        let around = std::mem::replace(&mut self.is_tolerated, true);
        let own = self.undo_step(undo, &step, secrets, &format!("{name}: "));
        self.is_tolerated = around;
        self.known = before;
        let undo = Some(Box::new(own?));
        Ok(Step { extras: Extras { undo, ..step.extras.clone() }, ..step })
    }

    /// A field that the undo step leaves out is inherited from its step.
    fn undo_step(&mut self, node: &Node, of: &Step, secrets: &[String], prefix: &str) -> Checked<Step> {
        // No author's id can equal this one: it has a character that is not allowed in references.
        let id = format!("{}:undo", of.id);
        let text = |key: &str| node.get_some(key).and_then(Node::as_text);
        for key in ["run", "workflow"] {
            if let Some(written) = node.get_some(key)
                && text(key).is_none_or(|text| text.trim().is_empty())
            {
                return self.reject_type(written, format!("{prefix}{key} must be a text"));
            }
        }
        let work = self.lower_work(node, &id, prefix, secrets, false)?;
        let mut extras = self.lower_extras(node, &work, secrets, prefix)?;
        let is_call = matches!(work, Work::Workflow { .. });
        if node.get("secrets").is_none() && !is_call {
            extras.secrets.clone_from(&of.extras.secrets);
        }
        if node.get("credentials").is_none() && !is_call {
            extras.credentials.clone_from(&of.extras.credentials);
        }
        if node.get("grants").is_none() && !is_call {
            extras.grants.clone_from(&of.extras.grants);
        }
        if node.get("limits").is_none() && !is_call {
            extras.limits.clone_from(&of.extras.limits);
        }
        let step = Step {
            span: node.span,
            approval: None,
            stdin: self.lower_stdin(node, &id, &work, false),
            env: self.lower_env(node, "env")?,
            cwd: self.lower_cwd(node, "cwd")?,
            retry: None,
            timeout_ms: whole_milliseconds(node.get_some("timeout_ms")),
            on_error: OnError::Stop,
            extras,
            id,
            work,
            when: Condition::Always,
            needs: None,
        };
        self.look_at(node, &step);
        Ok(step)
    }

    /// Rejects references to other steps anywhere in the undo step.
    fn only_own_results(&self, node: &Node, id: &str, name: &str) -> Checked<()> {
        match &node.data {
            Data::Text(text) => {
                let foreign = template::references_in(text)
                    .find(|(_, reference)| reference.id != id && self.known.contains(&reference.id));
                match foreign {
                    None => Ok(()),
                    Some((part, reference)) => {
                        let span = node.part_span(self.source, part);
                        let message = format!("{name} refers to another step: ${reference}");
                        let error = Diagnostic::error(self.source, codes::UNKNOWN_REFERENCE, span, message);
                        let help = format!(
                            "it can use the arguments and the result of its own step, `${id}.stdout` and `${id}.json`; \
                             let the step print what its undo needs"
                        );
                        Err(error.with_help(help).into())
                    }
                }
            }
            Data::List(items) => items.iter().try_for_each(|item| self.only_own_results(item, id, name)),
            Data::Map(entries) => {
                entries.iter().try_for_each(|entry| self.only_own_results(&entry.value, id, name))
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite => Ok(()),
        }
    }
}

/// True if a step's text refers to the result of another step.
#[must_use]
pub fn refers_to(step: &Step, id: &str) -> bool {
    let names = |text: &str| template::references_in(text).any(|(_, reference)| reference.id == id);
    let in_work = match &step.work {
        Work::Shell(text) => names(text),
        Work::Exec(words) => words.iter().any(|word| names(word)),
        Work::Component { component, args } => {
            names(component) || names(&serde_json::Value::Object(args.clone()).to_string())
        }
        Work::Workflow { path, args } => {
            names(path) || names(&serde_json::Value::Object(args.clone()).to_string())
        }
        Work::Nothing
        | Work::Pipeline(_)
        | Work::Js(_)
        | Work::Mcp { .. }
        | Work::Parallel { .. }
        | Work::ForEach { .. }
        | Work::Repeat { .. }
        | Work::Switch { .. }
        | Work::Input(_)
        | Work::Wait(_) => false,
    };
    let in_stdin = matches!(&step.stdin, Stdin::Text(text) if names(text));
    in_work || in_stdin || step.env.iter().any(|(_, value)| names(value))
}
