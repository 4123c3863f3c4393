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
        let root = source.parse_tree().ok();
        Self { source, root }
    }

    /// An error about a step; it points at the first of these fields that the step has.
    pub fn step_error(
        &self,
        code: &'static str,
        step: &Step,
        fields: &[&str],
        message: String,
    ) -> Diagnostic {
        *Diagnostic::error(&self.source, code, self.field_span(step, fields), message)
    }

    /// Like [`Places::step_error`], for a problem that does not stop the run.
    pub fn step_warning(
        &self,
        code: &'static str,
        step: &Step,
        fields: &[&str],
        message: String,
    ) -> Diagnostic {
        Diagnostic::warning(&self.source, code, self.field_span(step, fields), message)
    }

    /// An error about a part of the text that a field holds.
    pub fn error_in(
        &self,
        code: &'static str,
        step: &Step,
        (field, part): (&str, Range<usize>),
        message: String,
    ) -> Diagnostic {
        let node = self.find_step(step).and_then(|node| node.get(field));
        let span = node.map_or(step.span, |node| node.part_span(&self.source, part));
        *Diagnostic::error(&self.source, code, span, message)
    }

    /// `a.b` is the key `b` inside `a`.
    fn field_span(&self, step: &Step, fields: &[&str]) -> Span {
        let find = |field: &&str| {
            let node = self.find_step(step)?;
            let (outer, inner) = match field.split_once('.') {
                Some((outer, inner)) => (outer, Some(inner)),
                None => (*field, None),
            };
            let entry = node.map_entry(outer)?;
            Some(match inner {
                Some(inner) => entry.value.map_entry(inner)?.key_span,
                None => entry.key_span,
            })
        };
        fields.iter().find_map(find).unwrap_or(step.span)
    }

    fn find_step(&self, step: &Step) -> Option<&Node> {
        fn find_by_span(node: &Node, span: Span) -> Option<&Node> {
            if node.get("id").map_or(node.span, |id| id.span) == span && node.as_map().is_some() {
                return Some(node);
            }
            let inside = node.as_map().into_iter().flatten().map(|entry| &entry.value);
            inside.chain(node.as_list().into_iter().flatten()).find_map(|node| find_by_span(node, span))
        }
        find_by_span(self.root.as_ref()?, step.span)
    }
}
