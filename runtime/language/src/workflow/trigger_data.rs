//! Keeps data from outside out of commands: arguments that a trigger sets, and the positions at which
//! the text of an argument is inserted.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::codes;
use super::super::diagnostic::Diagnostic;
use super::super::plan::{Step, Work, Workflow};
use super::super::source::{Node, Source as Text};
use super::super::template;
use super::super::triggers::{Source, Triggers};
use super::control::steps_inside;
use super::{Loading, Lowering};
use lobster_base::variable_name;
use lobster_stage::McpServer;

impl Lowering<'_> {
    /// Rejects `${name}` in the text of a command if a trigger sets the argument.
    pub(super) fn refuse_data_in_commands(&mut self, root: &Node, found: &Triggers) {
        let brought = brought_arguments(found);
        if !brought.is_empty() {
            self.refuse_data_in_steps(root, &brought);
        }
    }

    fn refuse_data_in_steps(&mut self, owner: &Node, brought: &HashSet<&str>) {
        for step in owner.get("steps").and_then(Node::as_list).unwrap_or_default() {
            self.refuse_data_in_step(step, brought);
        }
    }

    fn refuse_data_in_step(&mut self, step: &Node, brought: &HashSet<&str>) {
        let program = step.get("exec").and_then(Node::as_list).and_then(<[Node]>::first);
        let mcp = step.get("mcp").and_then(|mcp| mcp.get("command")).and_then(Node::as_list);
        let fields = ["run", "command", "pipeline", "workflow", "component"];
        let texts = fields.iter().filter_map(|field| step.get(field)).chain(program);
        for node in texts.chain(mcp.unwrap_or_default()) {
            let Some(text) = node.as_text() else { continue };
            for (range, name) in template::args_in(text).filter(|(_, name)| brought.contains(name)) {
                let span = node.part_span(self.source, range);
                let message = format!("argument {name:?}, which a trigger sets, becomes part of a command");
                let error = Diagnostic::error(self.source, codes::TRIGGER_DATA, span, message);
                let variable = variable_name::for_argument(name);
                let help =
                    format!("read \"$LOBSTER_ARG_{variable}\" in shell text, or hand it over with `stdin:`");
                self.warnings.push(error.with_help(help));
            }
        }
        steps_inside(step).into_iter().for_each(|inside| self.refuse_data_in_step(inside, brought));
    }
}

impl Loading<'_> {
    /// Like [`Lowering::refuse_data_in_commands`], for arguments that a step passes to a sub-workflow.
    pub(super) fn refuse_data_in_children(&mut self, source: &Arc<Text>, workflow: &Workflow) {
        let brought = brought_arguments(&workflow.triggers);
        if brought.is_empty() {
            return;
        }
        for step in workflow.all_steps() {
            let Some(place) = pasted_below(workflow, step, &brought) else { continue };
            let message = format!(
                "step {} passes on data of a trigger, which becomes part of a command in {place}",
                step.id
            );
            let error = Diagnostic::error(source, codes::TRIGGER_DATA, step.span, message);
            let help = "read the argument as \"$LOBSTER_ARG_NAME\" there, or hand it over with `stdin:`";
            self.warnings.push(error.with_help(help));
        }
    }
}

/// Arguments whose values come from outside the file.
fn brought_arguments(found: &Triggers) -> HashSet<&str> {
    (found.webhooks.iter().map(|w| &w.args))
        .chain(found.after.iter().map(|a| &a.args))
        .chain(found.watch.iter().map(|w| &w.args))
        .flatten()
        .filter(|(_, source)| matches!(source, Source::Path(_)))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Position at which a sub-workflow of the step, at any depth, inserts one of these arguments into a
/// command.
fn pasted_below(workflow: &Workflow, step: &Step, brought: &HashSet<&str>) -> Option<String> {
    let Work::Workflow { path, args } = &step.work else { return None };
    let child = workflow.children.get(path)?;
    let is_brought = |text: &str| template::args_in(text).any(|(_, name)| brought.contains(name));
    let handed_on: HashSet<&str> = args
        .iter()
        .filter(|(_, value)| value.as_str().is_some_and(is_brought))
        .map(|(name, _)| name.as_str())
        .collect();
    if handed_on.is_empty() {
        return None;
    }
    let is_handed_on = |text: &str| template::args_in(text).any(|(_, name)| handed_on.contains(name));
    child.all_steps().into_iter().find_map(|inside| {
        let is_pasted = match &inside.work {
            Work::Shell(text)
            | Work::Pipeline(text)
            | Work::Workflow { path: text, .. }
            | Work::Component { component: text, .. } => is_handed_on(text),
            Work::Exec(argv) => argv.first().is_some_and(|program| is_handed_on(program)),
            Work::Mcp { server: McpServer::Command(argv), .. } => argv.iter().any(|word| is_handed_on(word)),
            Work::Mcp { .. }
            | Work::Nothing
            | Work::Js(_)
            | Work::Parallel { .. }
            | Work::ForEach { .. }
            | Work::Repeat { .. }
            | Work::Switch { .. }
            | Work::Input(_)
            | Work::Wait(_) => false,
        };
        if is_pasted {
            return Some(format!("step {} of {path}", inside.id));
        }
        pasted_below(child, inside, &handed_on)
    })
}
