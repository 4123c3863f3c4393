//! The three formats of a picture.

use std::collections::HashSet;
use std::fmt::Write;

use super::{Graph, Node};

/// Writes one line. Writing to a `String` cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

pub(super) fn mermaid(graph: &Graph) -> String {
    let keys = mermaid_keys(&graph.nodes);
    let mut out = String::from("flowchart TD\n");
    for (node, key) in graph.nodes.iter().zip(&keys) {
        let label = mermaid_text(&node_label(node, "\\n"));
        match node.gate {
            true => line!(out, "  {key}{{\"{label}\"}}"),
            false => line!(out, "  {key}[\"{label}\"]"),
        }
    }
    out.push('\n');
    for edge in &graph.edges {
        line!(out, "  {} -->|{}| {}", keys[edge.from], mermaid_text(&edge.label), keys[edge.to]);
    }
    out
}

pub(super) fn dot(graph: &Graph) -> String {
    let mut out = String::from("digraph workflow {\n  rankdir=TB;\n");
    for node in &graph.nodes {
        let shape = if node.gate { "diamond" } else { "box" };
        let mut label = dot_text(&node.id);
        if let Some(detail) = &node.detail {
            // Graphviz reads this as a line break.
            label.push_str("\\n");
            label.push_str(&dot_text(detail));
        }
        line!(out, "  \"{}\" [shape={shape},label=\"{label}\"];", dot_text(&node.id));
    }
    out.push('\n');
    for edge in &graph.edges {
        let (from, to) = (&graph.nodes[edge.from].id, &graph.nodes[edge.to].id);
        line!(out, "  \"{}\" -> \"{}\" [label=\"{}\"];", dot_text(from), dot_text(to), dot_text(&edge.label));
    }
    out.push_str("}\n");
    out
}

pub(super) fn ascii(graph: &Graph) -> String {
    let mut out = String::from("Workflow Graph\n\nNodes:\n");
    for node in &graph.nodes {
        match &node.detail {
            Some(detail) => line!(out, "- {} [{}] ({detail})", node.id, node.kind),
            None => line!(out, "- {} [{}]", node.id, node.kind),
        }
    }
    out.push_str("\nEdges:\n");
    for edge in &graph.edges {
        line!(out, "- {} -> {} ({})", graph.nodes[edge.from].id, graph.nodes[edge.to].id, edge.label);
    }
    if graph.edges.is_empty() {
        out.push_str("- (none)\n");
    }
    out
}

fn node_label(node: &Node, separator: &str) -> String {
    match &node.detail {
        Some(detail) => format!("{}{separator}{detail}", node.id),
        None => node.id.clone(),
    }
}

/// Mermaid ids, one for each node.
fn mermaid_keys(nodes: &[Node]) -> Vec<String> {
    let mut taken = HashSet::new();
    nodes
        .iter()
        .map(|node| {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let mut base: String = node.id.chars().map(plain).collect();
            if base.starts_with(|c: char| c.is_ascii_digit()) {
                base.insert_str(0, "s_");
            }
            let mut key = base.clone();
            let mut next = 2_usize;
            while !taken.insert(key.clone()) {
                key = format!("{base}_{next}");
                next += 1;
            }
            key
        })
        .collect()
}

fn mermaid_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' => out.push_str("&#124;"),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn dot_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}
