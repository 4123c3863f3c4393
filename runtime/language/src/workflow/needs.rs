//! `needs`: the order in which the steps of a file can run.
//!
//! A file in which a step has `needs` is a graph rather than a list: a step begins when the steps that
//! it needs have ended. A step needs every step that it refers to. A step without needs or references
//! waits for nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::{OnError, Span, Step};
use super::super::source::{Data, Node};
use super::super::template;
use super::Lowering;
use super::control::steps_inside;
use super::nearest_field;

/// A need of a step for another one.
#[derive(Clone)]
struct Need {
    /// Index of the other step.
    of: usize,
    /// Reason for people: `needs: build`, or the reference.
    why: String,
    span: Span,
}

/// Needs of a file's steps.
struct Needs<'n> {
    nodes: &'n [Node],
    ids: Vec<&'n str>,
    /// Needs by the index of the step that has them.
    of: Vec<Vec<Need>>,
}

/// True if a step of the list has `needs`, so that all steps are ordered by their needs.
pub(super) fn is_graph(steps: &[Node]) -> bool {
    steps.iter().any(|step| step.get_some("needs").is_some())
}

impl Lowering<'_> {
    /// Steps of a file, in sequence or ordered by their needs.
    pub(super) fn file_steps(&mut self, root: &Node, secrets: &[String]) -> Checked<Vec<Step>> {
        let nodes = root.get("steps").and_then(Node::as_list).unwrap_or_default();
        nodes.iter().try_for_each(|node| self.refuse_needs_inside(node))?;
        if !is_graph(nodes) {
            if let Some(entry) = root.map_entry("concurrency").filter(|entry| !entry.value.is_null()) {
                let message = "Workflow concurrency has no effect: no step has `needs`, so they run one after the other";
                let help =
                    "write what each step needs (`needs: []` for nothing), or `concurrency` at a for_each";
                return self.reject_with_help(codes::CONFLICT, entry.key_span, message, help);
            }
            return nodes.iter().map(|node| self.lower_step(node, secrets, true)).collect();
        }
        let needs = self.needs_of(nodes)?;
        let order = self.order_of(&needs)?;
        self.graph_steps(&needs, &order, secrets)
    }

    /// Rejects `needs` of steps inside another step.
    fn refuse_needs_inside(&self, step: &Node) -> Checked<()> {
        for inside in steps_inside(step) {
            if let Some(entry) = inside.map_entry("needs").filter(|entry| !entry.value.is_null()) {
                let id = inside.get("id").and_then(Node::as_text).unwrap_or_default();
                let message = format!("Workflow step {id} needs: only the steps of the file itself have it");
                let error = Diagnostic::error(self.source, codes::CONFLICT, entry.key_span, message);
                let help = "steps inside of others run in their order; put them into a file of their own, \
                            which a step calls with `workflow:`";
                return Err(error.with_help(help).into());
            }
            self.refuse_needs_inside(inside)?;
        }
        Ok(())
    }

    fn needs_of<'n>(&self, nodes: &'n [Node]) -> Checked<Needs<'n>> {
        let ids: Vec<&str> =
            nodes.iter().map(|node| node.get("id").and_then(Node::as_text).unwrap_or_default()).collect();
        let mut owners: HashMap<&str, usize> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            visible_ids(node, &mut |id| {
                owners.insert(id, index);
            });
        }
        let mut of = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let mut found = self.declared_needs(node, &ids, &owners)?;
            let mut references = References { of: index, owners: &owners, found: Vec::new() };
            references.look_into(node, &HashSet::new());
            found.append(&mut references.found);
            let mut seen = BTreeSet::new();
            found.retain(|need| seen.insert(need.of));
            of.push(found);
        }
        Ok(Needs { nodes, ids, of })
    }

    /// Entries of `needs`.
    fn declared_needs(&self, node: &Node, ids: &[&str], owners: &HashMap<&str, usize>) -> Checked<Vec<Need>> {
        let id = node.get("id").and_then(Node::as_text).unwrap_or_default();
        let prefix = format!("Workflow step {id} ");
        let names = self.text_list(node, "needs", &format!("{prefix}needs"))?;
        let written = node.get_some("needs");
        let mut needs = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let span = written.map_or(node.span, |node| {
                node.as_list().and_then(|list| list.get(at)).map_or(node.span, |item| item.span)
            });
            let Some(of) = ids.iter().position(|known| known == name) else {
                if self.aside.contains(name) {
                    continue;
                }
                let message = format!("{prefix}needs {name}, and the file has no such step");
                let error = Diagnostic::error(self.source, codes::UNKNOWN_REFERENCE, span, message);
                return Err(match (owners.get(name.as_str()), nearest_field(name, ids)) {
                    (Some(owner), _) => {
                        error.with_help(format!("it is a step inside {0}; write `needs: [{0}]`", ids[*owner]))
                    }
                    (None, Some(near)) => {
                        error.with_help(format!("did you mean `{near}`?")).with_fix(span, near)
                    }
                    (None, None) => error.with_help(format!("its steps are {}", ids.join(", "))),
                }
                .into());
            };
            needs.push(Need { of, why: format!("needs: {name}"), span });
        }
        Ok(needs)
    }

    /// An order in which every step comes after the steps that it needs, as close to file order as
    /// possible.
    fn order_of(&self, needs: &Needs<'_>) -> Checked<Vec<usize>> {
        let count = needs.nodes.len();
        let mut order = Vec::with_capacity(count);
        let mut taken = vec![false; count];
        while order.len() < count {
            let ready = |index: &usize| !taken[*index] && needs.of[*index].iter().all(|need| taken[need.of]);
            let Some(next) = (0..count).find(ready) else { return Err(self.cycle_error(needs, &taken)) };
            taken[next] = true;
            order.push(next);
        }
        Ok(order)
    }

    /// The error that shows a cycle of steps.
    fn cycle_error(&self, needs: &Needs<'_>, taken: &[bool]) -> Box<Diagnostic> {
        // Each remaining step needs another remaining step, so following the needs leads to a cycle.
        let first = taken.iter().position(|taken| !taken).unwrap_or_default();
        let mut way = vec![first];
        let start = loop {
            let at = way.last().copied().unwrap_or_default();
            let next = needs.of[at].iter().map(|need| need.of).find(|of| !taken[*of]).unwrap_or(at);
            if let Some(start) = way.iter().position(|seen| *seen == next) {
                break start;
            }
            way.push(next);
        };
        let circle = &way[start..];
        let links: Vec<&Need> = (0..circle.len())
            .filter_map(|at| {
                let next = circle[(at + 1) % circle.len()];
                needs.of[circle[at]].iter().find(|need| need.of == next)
            })
            .collect();
        let mut names: Vec<&str> = circle.iter().map(|index| needs.ids[*index]).collect();
        names.extend(names.first().copied());
        let message = match circle {
            [alone] => format!("Workflow step {} needs itself", needs.ids[*alone]),
            _ => format!("Workflow steps wait for each other: {}", names.join(" needs ")),
        };
        let span = links.first().map_or_else(Span::default, |need| need.span);
        let reasons: Vec<String> = circle
            .iter()
            .zip(&links)
            .map(|(index, need)| format!("{} has `{}`", needs.ids[*index], need.why))
            .collect();
        let error = Diagnostic::error(self.source, codes::NEEDS_CIRCLE, span, message);
        error.with_help(format!("{}; remove one of these", reasons.join(", "))).into()
    }

    /// Builds the steps in an order in which each knows the steps that it needs; returns them in file
    /// order.
    fn graph_steps(&mut self, needs: &Needs<'_>, order: &[usize], secrets: &[String]) -> Checked<Vec<Step>> {
        let count = needs.nodes.len();
        let mut visible: Vec<Vec<String>> = vec![Vec::new(); count];
        let mut above: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
        let mut steps: Vec<Option<Step>> = vec![None; count];
        for &index in order {
            let before: BTreeSet<usize> = needs.of[index]
                .iter()
                .flat_map(|need| above[need.of].iter().copied().chain([need.of]))
                .collect();
            let mark = self.known.current_mark();
            // In the order of the run, in which the ids become visible.
            for other in order.iter().filter(|other| before.contains(other)) {
                visible[*other].iter().for_each(|id| self.known.add_id(id));
            }
            let inherited = self.known.current_mark() - mark;
            let surely = |other: &usize| {
                steps[*other]
                    .as_ref()
                    .is_some_and(|step| step.when.is_always() && step.on_error != OnError::SkipRest)
            };
            let fatal = before.iter().all(surely);
            let mut step = self.lower_step(&needs.nodes[index], secrets, fatal)?;
            step.needs = Some(needs.of[index].iter().map(|need| needs.ids[need.of].to_owned()).collect());
            visible[index] = self.known.forget_since(mark).split_off(inherited);
            above[index] = before;
            steps[index] = Some(step);
        }
        Ok(steps.into_iter().flatten().collect())
    }
}

/// Ids by which steps outside of this one can refer to it and to the steps inside it.
fn visible_ids<'n>(step: &'n Node, found: &mut dyn FnMut(&'n str)) {
    if let Some(id) = step.get("id").and_then(Node::as_text) {
        found(id);
    }
    // The contents of a loop exist once per round.
    if step.get_some("for_each").is_none() && step.get_some("repeat").is_none() {
        steps_inside(step).into_iter().for_each(|inside| visible_ids(inside, found));
    }
}

/// Steps that a step refers to.
struct References<'a> {
    of: usize,
    owners: &'a HashMap<&'a str, usize>,
    found: Vec<Need>,
}

/// Fields whose texts are not templates.
const NOTES: &[&str] = &["id", "name", "description", "needs", "item_var", "index_var", "approval", "input"];

impl References<'_> {
    /// Searches all fields of a step, and the steps inside it. `hidden` are ids with another meaning
    /// here.
    fn look_into(&mut self, step: &Node, hidden: &HashSet<&str>) {
        let is_loop = step.get_some("for_each").is_some() || step.get_some("repeat").is_some();
        let mut inner = hidden.clone();
        if is_loop {
            let name = |key: &str| step.get(key).and_then(Node::as_text);
            inner.extend([name("item_var").unwrap_or("item"), name("index_var").unwrap_or("index")]);
            for inside in steps_inside(step) {
                visible_ids(inside, &mut |id| {
                    inner.insert(id);
                });
            }
        }
        for entry in step.as_map().unwrap_or_default() {
            match entry.key.as_str() {
                key if NOTES.contains(&key) => {}
                "steps" | "parallel" | "cases" | "default" => {}
                "js" => self.look_at_code(&entry.value, hidden),
                // The condition can refer to the steps of the round.
                "repeat" => self.look_at(&entry.value, &inner),
                _ => self.look_at(&entry.value, hidden),
            }
        }
        steps_inside(step).into_iter().for_each(|inside| self.look_into(inside, &inner));
    }

    fn look_at(&mut self, node: &Node, hidden: &HashSet<&str>) {
        match &node.data {
            Data::Text(text) => {
                for (_, reference) in template::references_in(text) {
                    self.add_need(&reference.id, format!("${reference}"), node.span, hidden);
                }
            }
            Data::List(items) => items.iter().for_each(|item| self.look_at(item, hidden)),
            Data::Map(entries) => entries.iter().for_each(|entry| self.look_at(&entry.value, hidden)),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite => {}
        }
    }

    /// JavaScript uses `steps.build` and `steps["build"]`.
    fn look_at_code(&mut self, node: &Node, hidden: &HashSet<&str>) {
        let Some(code) = node.as_text() else { return };
        for (at, word) in code.match_indices("steps") {
            let rest = code[at + word.len()..].trim_start();
            let quoted = rest.strip_prefix('[').map(str::trim_start).and_then(|rest| {
                let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
                rest[1..].split(quote).next()
            });
            let plain = rest.strip_prefix('.').or_else(|| rest.strip_prefix("?.")).map(|rest| {
                let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                &rest[..end]
            });
            if let Some(id) = quoted.or(plain) {
                self.add_need(id, format!("steps.{id}"), node.span, hidden);
            }
        }
    }

    fn add_need(&mut self, id: &str, why: String, span: Span, hidden: &HashSet<&str>) {
        match self.owners.get(id) {
            Some(of) if *of != self.of && !hidden.contains(id) => {
                self.found.push(Need { of: *of, why, span })
            }
            _ => {}
        }
    }
}
