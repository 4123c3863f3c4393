//! Positions of a step's fields, for errors that are found after the file was read.

use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::plan::{Span, Step};
use crate::source::{Node, Source};

/// A workflow file with the positions of its steps.
pub struct Places {
    source: Arc<Source>,
    root: Option<Node>,
}

impl Places {
    pub fn new(source: Arc<Source>) -> Self {
        let root = source.parse().ok();
        Self { source, root }
    }

    /// An error about a step; it points at the first of these fields that the step has.
    pub fn error(&self, code: &'static str, step: &Step, fields: &[&str], message: String) -> Diagnostic {
        *Diagnostic::error(&self.source, code, self.field(step, fields), message)
    }

    /// Like [`Places::error`], for a problem that does not stop the run.
    pub fn warning(&self, code: &'static str, step: &Step, fields: &[&str], message: String) -> Diagnostic {
        Diagnostic::warning(&self.source, code, self.field(step, fields), message)
    }

    /// An error about a part of the text that a field holds.
    pub fn error_in(
        &self,
        code: &'static str,
        step: &Step,
        (field, part): (&str, Range<usize>),
        message: String,
    ) -> Diagnostic {
        let node = self.step(step).and_then(|node| node.get(field));
        let span = node.map_or(step.span, |node| node.part(&self.source, part));
        *Diagnostic::error(&self.source, code, span, message)
    }

    /// `a.b` is the key `b` inside `a`.
    fn field(&self, step: &Step, fields: &[&str]) -> Span {
        let find = |field: &&str| {
            let node = self.step(step)?;
            let (outer, inner) = match field.split_once('.') {
                Some((outer, inner)) => (outer, Some(inner)),
                None => (*field, None),
            };
            let entry = node.entry(outer)?;
            Some(match inner {
                Some(inner) => entry.value.entry(inner)?.key_span,
                None => entry.key_span,
            })
        };
        fields.iter().find_map(find).unwrap_or(step.span)
    }

    fn step(&self, step: &Step) -> Option<&Node> {
        fn find(node: &Node, span: Span) -> Option<&Node> {
            if node.get("id").map_or(node.span, |id| id.span) == span && node.as_map().is_some() {
                return Some(node);
            }
            let inside = node.as_map().into_iter().flatten().map(|entry| &entry.value);
            inside.chain(node.as_list().into_iter().flatten()).find_map(|node| find(node, span))
        }
        find(self.root.as_ref()?, step.span)
    }
}
