//! `notify:`, from the tree of a file to [`Told`]. It has only names; the operator defines them.

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::Told;
use super::super::source::{Data, Node};
use super::Lowering;

/// Occasions of notifications.
pub(super) const OCCASIONS: &[&str] = &["question", "ok", "failed", "missed"];

impl Lowering<'_> {
    /// Recipients of notifications about the workflow. Errors are reported and their entries left out:
    /// no run needs them.
    pub(super) fn lower_notify(&mut self, root: &Node) -> Vec<Told> {
        let Some(node) = root.get_some("notify") else { return Vec::new() };
        self.read_told(node).unwrap_or_else(|error| {
            self.push_trigger_error(*error);
            Vec::new()
        })
    }

    fn read_told(&self, node: &Node) -> Checked<Vec<Told>> {
        let mut all: Vec<Told> = Vec::new();
        let Data::Map(entries) = &node.data else {
            for target in self.lower_targets(node, "notify")? {
                all.push(Told { target, on: Vec::new() });
            }
            return Ok(all);
        };
        self.reject_unknown_keys(node, OCCASIONS, "notify")?;
        for entry in entries {
            for target in self.lower_targets(&entry.value, &format!("notify.{}", entry.key))? {
                match all.iter_mut().find(|known| known.target == target) {
                    Some(known) => known.on.push(entry.key.clone()),
                    None => all.push(Told { target, on: vec![entry.key.clone()] }),
                }
            }
        }
        Ok(all)
    }

    /// One name, or a list of different ones.
    fn lower_targets(&self, node: &Node, name: &str) -> Checked<Vec<String>> {
        let nodes = match &node.data {
            Data::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut found = Vec::with_capacity(nodes.len());
        for node in nodes {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let Some(target) = node.as_text().filter(|text| !text.is_empty() && text.chars().all(fits))
            else {
                let message =
                    format!("{name} names targets of the server, with letters, digits, `-`, `_` and `.`");
                let help =
                    "commands and addresses are set under [[notify]] in the file of `lobster serve --config`";
                return self.reject_with_help(codes::TRIGGER, node.span, message, help);
            };
            if found.iter().any(|known| known == target) {
                let message = format!("{name} names {target} twice");
                return Err(Diagnostic::error(self.source, codes::TRIGGER, node.span, message));
            }
            found.push(target.to_owned());
        }
        Ok(found)
    }
}
