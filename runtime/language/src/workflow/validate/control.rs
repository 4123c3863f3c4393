//! Structure of `repeat`, `switch` and `concurrency`, which the incumbent does not know.

use std::collections::HashSet;

use super::super::super::codes;
use super::super::super::diagnostic::Checked;
use super::super::super::plan::Span;
use super::super::super::source::{Data, Node};
use super::super::fields;
use super::super::nearest_field;
use super::{Check, id_span, whole_number};

/// Most rounds of a loop, or steps of a file, at the same time: each uses a thread.
const MAX_AT_ONCE: f64 = 256.0;

/// Most rounds of `repeat`.
const MAX_ROUNDS: f64 = 1_000_000.0;

impl Check<'_> {
    /// `concurrency:` of a loop, or of a file.
    pub(super) fn at_once(&self, owner: &Node, prefix: &str) -> Checked<()> {
        match owner.get_some("concurrency") {
            Some(node) if !whole_number(node).is_some_and(|n| (1.0..=MAX_AT_ONCE).contains(&n)) => {
                let message = format!("concurrency must be a whole number between 1 and {MAX_AT_ONCE}");
                self.reject_value(node, prefix, &message)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_repeat(&self, step: &Node, prefix: &str) -> Checked<()> {
        let Some(repeat) = step.get_some("repeat") else { return Ok(()) };
        self.reject_unknown_keys(repeat, fields::REPEAT_FIELDS, &format!("{prefix}repeat"))?;
        let max = repeat.get_some("max");
        if !max.and_then(whole_number).is_some_and(|n| (1.0..=MAX_ROUNDS).contains(&n)) {
            let message =
                format!("repeat.max must say after how many rounds it gives up, at most {MAX_ROUNDS}");
            return self.reject_value(max.unwrap_or(repeat), prefix, &message);
        }
        if repeat.get_some("until").is_none() {
            let message =
                "repeat.until must be the condition that ends it, such as $probe.json.ready == true";
            return self.reject_value(repeat, prefix, message);
        }
        if let Some(every) = repeat.get_some("every").filter(|every| every.as_text().is_none()) {
            return self.reject_value(every, prefix, "repeat.every must be a duration such as 5s");
        }
        let list = step.get("steps");
        let Some(steps) = list.and_then(Node::as_list).filter(|steps| !steps.is_empty()) else {
            return self.reject_value(
                list.unwrap_or(repeat),
                prefix,
                "repeat requires a non-empty steps array",
            );
        };
        let variable = [self.loop_variable(step, prefix, "index_var", "index")?];
        // As in any loop, its steps are not visible outside.
        let mut ids = HashSet::new();
        steps.iter().try_for_each(|sub| self.sub_step(sub, "repeat", prefix, &variable, &mut ids))
    }

    pub(super) fn check_switch(&self, step: &Node, prefix: &str, ids: &mut HashSet<String>) -> Checked<()> {
        let Some(switch) = step.get_some("switch") else { return Ok(()) };
        if switch.as_text().is_none_or(|text| text.trim().is_empty()) {
            return self.reject_value(
                switch,
                prefix,
                "switch must be a reference such as $classify.json.kind",
            );
        }
        let Some(cases) = step.get("cases").and_then(Node::as_map).filter(|cases| !cases.is_empty()) else {
            let node = step.get("cases").unwrap_or(switch);
            let message = "switch requires cases: a map from values to lists of steps";
            return self.reject_value(node, prefix, message);
        };
        for case in cases {
            let name = format!("{prefix}case {}", case.key);
            let Some(steps) = case.value.as_list() else {
                return self.reject_value(&case.value, &name, " must be a list of steps; it may be empty");
            };
            steps.iter().try_for_each(|inner| self.case_step(inner, &name, ids))?;
        }
        match step.get_some("default").map(|node| (node, node.as_list())) {
            None => Ok(()),
            Some((_, Some(steps))) => {
                steps.iter().try_for_each(|inner| self.case_step(inner, &format!("{prefix}default"), ids))
            }
            Some((node, None)) => {
                self.reject_value(node, prefix, "default must be a list of steps; it may be empty")
            }
        }
    }

    /// A step of a case, which later steps of the file can refer to.
    fn case_step(&self, step: &Node, case: &str, ids: &mut HashSet<String>) -> Checked<()> {
        let id = self.require_id(
            step,
            &format!("{case} must hold steps"),
            &format!("{case}: a step requires an id"),
        )?;
        self.kind_of_nested(step, &format!("{case} step {id} "))?;
        self.check_nested_step(step, id, ids)?;
        if !ids.insert(id.to_owned()) {
            let message = format!("Duplicate workflow step id: {id}");
            let help =
                "the steps of every case can be referred to after the switch, so each has an id of its own";
            return Err(self.error_at(codes::DUPLICATE_ID, id_span(step), message).with_help(help).into());
        }
        Ok(())
    }

    /// Rejects unknown keys in a map that only lobster has.
    fn reject_unknown_keys(&self, node: &Node, known: &[&str], name: &str) -> Checked<()> {
        let Data::Map(entries) = &node.data else {
            return self.reject_value(node, name, &format!(" must be a map, not {}", node.kind_name()));
        };
        let Some(entry) = entries.iter().find(|entry| !known.contains(&entry.key.as_str())) else {
            return Ok(());
        };
        let span: Span = entry.key_span;
        let error = self.error_at(codes::FIELD_TYPE, span, format!("{name} has no field {:?}", entry.key));
        Err(match nearest_field(&entry.key, known) {
            Some(meant) => error.with_help(format!("did you mean `{meant}`?")).with_fix(span, meant).into(),
            None => error.with_help(format!("it takes {}", known.join(", "))).into(),
        })
    }
}
