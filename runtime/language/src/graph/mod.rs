//! A workflow as a picture: Mermaid, Graphviz or plain text.
//!
//! There is one node per step of the file, an edge from each step to the next, and an edge for every
//! reference in `stdin`, `for_each` and the condition. Branches, loop bodies and sub-workflows are not
//! expanded.

mod render;

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::plan::{Stdin, Step, Wait, Work, Workflow};
use crate::template;
use lobster_base::text::{self, Count};

/// Format of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Mermaid,
    Dot,
    Ascii,
}

/// A name that is not a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("graph --format must be one of: mermaid, dot, ascii")]
pub struct FormatError;

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Self, FormatError> {
        match name {
            "mermaid" => Ok(Self::Mermaid),
            "dot" => Ok(Self::Dot),
            "ascii" => Ok(Self::Ascii),
            _ => Err(FormatError),
        }
    }
}

/// Draws a workflow, with a final newline. Labels that use arguments show their values.
#[must_use]
pub fn draw_workflow(workflow: &Workflow, args: &Map<String, Value>, format: Format) -> String {
    let graph = Graph::from_workflow(workflow, args);
    match format {
        Format::Mermaid => render::mermaid(&graph),
        Format::Dot => render::dot(&graph),
        Format::Ascii => render::ascii(&graph),
    }
}

/// Steps of a workflow and the edges between them, as data for drawing.
#[derive(Clone, Debug)]
pub struct Graph {
    pub nodes: Vec<Node>,
    /// Edges without exact duplicates, ordered by their target step.
    pub edges: Vec<Edge>,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: String,
    pub kind: &'static str,
    /// Work of the step on one line.
    pub detail: Option<String>,
    /// True if a person is asked.
    pub gate: bool,
}

/// An edge from one step to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Index of a node.
    pub from: usize,
    pub to: usize,
    /// `next`, `needs`, or the field by which the second step reads the first.
    pub label: String,
}

/// Most UTF-16 code units in a detail and in the label of a condition.
const MAX_DETAIL: usize = 80;
const MAX_CONDITION: usize = 70;

impl Graph {
    /// Builds the graph of a workflow. Labels that use arguments show their values.
    #[must_use]
    pub fn from_workflow(workflow: &Workflow, args: &Map<String, Value>) -> Self {
        let nodes = workflow.steps.iter().map(|step| Node::from_step(step, args)).collect();
        let ids = workflow.steps.iter().enumerate().map(|(index, step)| (step.id.as_str(), index)).collect();
        let mut edges = Edges { ids, seen: HashSet::new(), list: Vec::new() };
        for (to, step) in workflow.steps.iter().enumerate() {
            match &step.needs {
                None if to > 0 => edges.add_edge(to - 1, to, "next"),
                None => {}
                Some(needs) => needs.iter().for_each(|need| edges.add_need(need, to)),
            }
            match &step.stdin {
                Stdin::None => {}
                Stdin::Text(text) => edges.add_references(text, to, "stdin"),
                Stdin::Literal(value) => edges.add_value_references(value, to),
            }
            if let Work::ForEach { over, .. } = &step.work {
                edges.add_references(over, to, "for_each");
            }
            if let Work::Switch { on, .. } = &step.work {
                edges.add_references(on, to, "switch");
            }
            let label = shorten_text(&format!("when: {}", one_line(step.when.source_text())), MAX_CONDITION);
            edges.add_references(step.when.source_text(), to, &label);
        }
        Self { nodes, edges: edges.list }
    }
}

struct Edges<'a> {
    ids: HashMap<&'a str, usize>,
    seen: HashSet<Edge>,
    list: Vec<Edge>,
}

impl Edges<'_> {
    fn add_edge(&mut self, from: usize, to: usize, label: &str) {
        let edge = Edge { from, to, label: label.to_owned() };
        if self.seen.insert(edge.clone()) {
            self.list.push(edge);
        }
    }

    fn add_need(&mut self, id: &str, to: usize) {
        if let Some(from) = self.ids.get(id).copied() {
            self.add_edge(from, to, "needs");
        }
    }

    fn add_references(&mut self, text: &str, to: usize, label: &str) {
        for (_, reference) in template::references_in(text) {
            if let Some(from) = self.ids.get(reference.id.as_str()).copied() {
                self.add_edge(from, to, label);
            }
        }
    }

    fn add_value_references(&mut self, value: &Value, to: usize) {
        match value {
            Value::String(text) => self.add_references(text, to, "stdin"),
            Value::Array(items) => items.iter().for_each(|item| self.add_value_references(item, to)),
            Value::Object(map) => map.values().for_each(|item| self.add_value_references(item, to)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl Node {
    fn from_step(step: &Step, args: &Map<String, Value>) -> Self {
        let (kind, detail) = match &step.work {
            Work::Parallel { wait, .. } => {
                let wait = if *wait == Wait::Any { "any" } else { "all" };
                ("parallel", Some(format!("parallel ({wait})")))
            }
            Work::ForEach { over, .. } => ("for_each", Some(format!("for_each: {over}"))),
            Work::Repeat { until, max, .. } => {
                ("repeat", Some(format!("repeat until {}, at most {max} rounds", until.source_text())))
            }
            Work::Switch { on, cases, default } => {
                let values = cases.iter().map(|case| case.value.as_str());
                let values: Vec<&str> = values.chain(default.as_ref().map(|_| "default")).collect();
                ("switch", Some(format!("switch: {on} ({})", values.join(", "))))
            }
            Work::Workflow { path, .. } => ("workflow", Some(format!("workflow: {path}"))),
            Work::Pipeline(text) => ("pipeline", Some(format!("pipeline: {text}"))),
            Work::Shell(text) => ("run", Some(format!("run: {text}"))),
            Work::Exec(argv) => ("exec", Some(format!("exec: {}", argv.join(" ")))),
            Work::Component { component, .. } => ("component", Some(format!("component: {component}"))),
            Work::Mcp { server, tool, .. } => ("mcp", Some(format!("mcp: {server} {tool}"))),
            Work::Js(text) => ("js", Some(format!("js: {text}"))),
            Work::Input(_) => ("input", Some("input request".to_owned())),
            Work::Wait(wait) => ("wait", Some(format!("wait: {}", wait.display_text()))),
            Work::Nothing if step.approval.is_some() => ("approval", Some("approval gate".to_owned())),
            Work::Nothing => ("step", None),
        };
        let detail =
            detail.map(|text| shorten_text(&one_line(&template::fill_args(&text, args)), MAX_DETAIL));
        Self { id: step.id.clone(), kind, detail, gate: step.approval.is_some() }
    }
}

/// Joins text of several lines, with a symbol for each line break.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> =
        text.trim_end().split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.len() < 2 { text.trim_end_matches(['\n', '\r']).to_owned() } else { lines.join(" ↵ ") }
}

/// At most `max` UTF-16 code units; the last one is an ellipsis if something was cut.
fn shorten_text(text: &str, max: usize) -> String {
    text::fit(text, max, Count::Utf16).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::source::Source;
    use crate::workflow::{bind_args, load};

    const FULL: &str = "\
args: {who: {default: ada}}
steps:
  - {id: fetch, run: 'echo ${who} ${nope}'}
  - {id: clean, pipeline: json, stdin: [{x: $fetch.json}, $fetch.stdout]}
  - {id: ok-1, approval: Sure?, stdin: $clean.json}
  - {id: ask, input: {prompt: Name?, responseSchema: {}}}
  - {id: both, parallel: {wait: any, branches: [{id: x, run: echo 1}]}}
  - {id: each, for_each: $fetch.json.rows, steps: [{id: s, run: echo}]}
  - {id: child, workflow: 'sub/${who}.lobster'}
  - id: send
    run: |
      echo \"<x> | $HOME\\n\"
      send
    approval: true
    when: $ok-1.approved && $ask.response.ok == true && $nope.x && $send.y
";

    fn draw_text(text: &str, format: Format) -> String {
        let source = Arc::new(Source::new("t", "/t", text.as_bytes()));
        let (workflow, _) = load(&source, &|_| Err(io::ErrorKind::NotFound.into())).unwrap();
        let args = bind_args(&workflow, &json!({})).unwrap();
        draw_workflow(&workflow, &args, format)
    }

    #[test]
    fn ascii() {
        let expected = "\
Workflow Graph

Nodes:
- fetch [run] (run: echo ada ${nope})
- clean [pipeline] (pipeline: json)
- ok-1 [approval] (approval gate)
- ask [input] (input request)
- both [parallel] (parallel (any))
- each [for_each] (for_each: $fetch.json.rows)
- child [workflow] (workflow: sub/ada.lobster)
- send [run] (run: echo \"<x> | $HOME\\n\" ↵ send)

Edges:
- fetch -> clean (next)
- fetch -> clean (stdin)
- clean -> ok-1 (next)
- clean -> ok-1 (stdin)
- ok-1 -> ask (next)
- ask -> both (next)
- both -> each (next)
- fetch -> each (for_each)
- each -> child (next)
- child -> send (next)
- ok-1 -> send (when: $ok-1.approved && $ask.response.ok == true && $nope.x && $send.y)
- ask -> send (when: $ok-1.approved && $ask.response.ok == true && $nope.x && $send.y)
- send -> send (when: $ok-1.approved && $ask.response.ok == true && $nope.x && $send.y)
";
        let expected = expected.replace("&& $nope.x && $send.y", "&& $nope.x &&…");
        let expected = expected.replace("&& $nope.x &&…", &cut_rest());
        assert_eq!(draw_text(FULL, Format::Ascii), expected);
        assert_eq!(
            draw_text("steps: [{id: only, run: echo hi}]", Format::Ascii),
            "Workflow Graph\n\nNodes:\n- only [run] (run: echo hi)\n\nEdges:\n- (none)\n"
        );
    }

    /// End of the long condition after the cut.
    fn cut_rest() -> String {
        let start = "when: $ok-1.approved && $ask.response.ok == true ";
        shorten_text(&format!("{start}&& $nope.x && $send.y"), MAX_CONDITION)[start.len()..].to_owned()
    }

    #[test]
    fn mermaid_keys_are_unique_and_text_is_escaped() {
        let text = "steps: [{id: a-b, run: x}, {id: a_b, run: x}, {id: a.b, run: x}, {id: 1-a, run: x}, {id: 1_a, run: x}, {id: '☃', run: 'a <b> & \"c\" | d\\n'}]";
        assert_eq!(
            draw_text(text, Format::Mermaid),
            "flowchart TD\n  a_b[\"a-b\\nrun: x\"]\n  a_b_2[\"a_b\\nrun: x\"]\n  a_b_3[\"a.b\\nrun: x\"]\n  s_1_a[\"1-a\\nrun: x\"]\n  s_1_a_2[\"1_a\\nrun: x\"]\n  _[\"☃\\nrun: a &lt;b&gt; &amp; &quot;c&quot; &#124; d\\n\"]\n\n  a_b -->|next| a_b_2\n  a_b_2 -->|next| a_b_3\n  a_b_3 -->|next| s_1_a\n  s_1_a -->|next| s_1_a_2\n  s_1_a_2 -->|next| _\n"
        );
        assert_eq!(
            draw_text("steps: [{id: g, run: x, approval: true}]", Format::Mermaid),
            "flowchart TD\n  g{\"g\\nrun: x\"}\n\n"
        );
    }

    #[test]
    fn dot_breaks_the_line_inside_labels() {
        let text = "steps: [{id: 'q\"', run: 'say \"hi\" \\n'}, {id: g, approval: true}]";
        assert_eq!(
            draw_text(text, Format::Dot),
            "digraph workflow {\n  rankdir=TB;\n  \"q\\\"\" [shape=box,label=\"q\\\"\\nrun: say \\\"hi\\\" \\\\n\"];\n  \"g\" [shape=diamond,label=\"g\\napproval gate\"];\n\n  \"q\\\"\" -> \"g\" [label=\"next\"];\n}\n"
        );
    }

    #[test]
    fn long_text_is_cut_in_utf16_units() {
        let cut_to = |text: &str| shorten_text(text, MAX_DETAIL).encode_utf16().count();
        assert_eq!(cut_to(&"x".repeat(80)), 80);
        assert_eq!(shorten_text(&"x".repeat(81), MAX_DETAIL), format!("{}…", "x".repeat(79)));
        assert!(cut_to(&"😀".repeat(60)) <= 80);
        assert_eq!("DOT".parse::<Format>(), Err(FormatError));
    }
}
