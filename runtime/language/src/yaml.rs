//! YAML 1.2 core as npm's `yaml` 2 reads it, from the events of `saphyr-parser`.
//!
//! Scalars are resolved here by the core schema (YAML 1.2.2 §10.3.2), or by the 1.1 types if a `%YAML
//! 1.1` directive asks for them. Merge keys are not applied under 1.2.

mod surrogates;
mod untyped;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span as EventSpan, Tag};

use super::codes;
use super::diagnostic::{Checked, Diagnostic};
use super::plan::Span;
use super::scalar::{ScalarSchema, key_text, resolve_scalar};
use super::source::{Data, MAX_DEPTH, MappingEntry, Node, Source};
use surrogates::StandIns;
use untyped::Untyped;

/// Most values that aliases may add to a file.
const MAX_ALIASED: usize = 50_000;

/// Parses the source as one YAML document; an empty one is null.
pub(super) fn parse(source: &Arc<Source>) -> Checked<Node> {
    let skipped = source.text.len() - source.text.trim_start_matches('\u{feff}').len();
    let text = &source.text[skipped..];
    let offsets = Offsets::new(text, skipped);
    let mut builder = Builder {
        source,
        offsets,
        schema: if asks_for_yaml_1_1(text) { ScalarSchema::Yaml11 } else { ScalarSchema::Core },
        frames: Vec::new(),
        anchors: HashMap::new(),
        aliased: 0,
        root: None,
        stand_ins: None,
    };
    let hidden = StandIns::put_into(text).map(|(text, stand_ins)| {
        builder.stand_ins = Some(stand_ins);
        text
    });
    let mut documents = 0;
    for event in Parser::new_from_str(hidden.as_deref().unwrap_or(text)) {
        let (event, span) = event.map_err(|error| builder.syntax_error(&error))?;
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let span = builder.offsets.byte_span(span);
                let message = "Source contains multiple documents";
                return Err(builder.error_at(codes::MULTIPLE_DOCUMENTS, span, message));
            }
        }
        builder.on_event(event, span)?;
    }
    let end = Span { start: source.text.len(), end: source.text.len() };
    Ok(builder.root.unwrap_or(Node { data: Data::Null, span: end }))
}

/// True if the directives at the top of the text ask for the 1.1 types.
fn asks_for_yaml_1_1(text: &str) -> bool {
    text.lines()
        .take_while(|line| line.starts_with(['%', '#']) || line.trim().is_empty())
        .any(|line| line.strip_prefix("%YAML").is_some_and(|version| version.trim() == "1.1"))
}

/// Conversion of the parser's character indices to byte offsets.
struct Offsets {
    /// Offset of every character and of the end; empty if all characters have one byte.
    bytes: Vec<usize>,
    skipped: usize,
    len: usize,
}

impl Offsets {
    fn new(text: &str, skipped: usize) -> Self {
        let bytes =
            if text.is_ascii() { Vec::new() } else { text.char_indices().map(|(at, _)| at).collect() };
        Self { bytes, skipped, len: text.len() }
    }

    fn byte_offset(&self, marker: &Marker) -> usize {
        let index = marker.index();
        let byte =
            if self.bytes.is_empty() { index } else { self.bytes.get(index).copied().unwrap_or(self.len) };
        self.skipped + byte.min(self.len)
    }

    fn byte_span(&self, span: EventSpan) -> Span {
        let start = self.byte_offset(&span.start);
        Span { start, end: self.byte_offset(&span.end).max(start) }
    }
}

/// A list or map that is being parsed.
struct Frame {
    start: usize,
    /// End of the last child.
    end: usize,
    anchor: usize,
    kind: FrameKind,
    weight: Weight,
}

enum FrameKind {
    List(Vec<Node>),
    Map(MapFrame),
}

#[derive(Default)]
struct MapFrame {
    entries: Vec<MappingEntry>,
    /// Index of each key in `entries`.
    places: HashMap<String, usize>,
    /// Keys with their kinds: `1` and `"1"` are two keys in YAML and one in JSON.
    seen: HashSet<(u8, String)>,
    /// Key whose value comes next.
    key: Option<(String, Span)>,
}

impl MapFrame {
    /// Sets a key; a key of the map itself overrides a merged one.
    fn set(&mut self, entry: MappingEntry) {
        if let Some(earlier) = self.places.get(&entry.key).and_then(|place| self.entries.get_mut(*place)) {
            *earlier = entry;
        } else {
            self.places.insert(entry.key.clone(), self.entries.len());
            self.entries.push(entry);
        }
    }

    /// The merge key of YAML 1.1: adds entries with new keys.
    fn merge_entries(&mut self, from: Node, key_span: Span) {
        match from.data {
            Data::Map(merged) => {
                for entry in merged {
                    if !self.places.contains_key(&entry.key) {
                        self.set(entry);
                    }
                }
            }
            Data::List(maps) => maps.into_iter().for_each(|map| self.merge_entries(map, key_span)),
            data => {
                self.set(MappingEntry {
                    key: "<<".to_owned(),
                    key_span,
                    value: Node { data, span: from.span },
                });
            }
        }
    }
}

/// Cost of a value when an alias repeats it.
#[derive(Clone, Copy)]
struct Weight {
    values: usize,
    depth: usize,
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    offsets: Offsets,
    schema: ScalarSchema,
    frames: Vec<Frame>,
    anchors: HashMap<usize, (Node, Weight)>,
    aliased: usize,
    root: Option<Node>,
    /// Characters that the parser reads in place of escaped halves of surrogate pairs.
    stand_ins: Option<StandIns>,
}

impl Builder<'_> {
    fn error_at(&self, code: &'static str, span: Span, message: impl Into<String>) -> Box<Diagnostic> {
        Diagnostic::error(self.source, code, span, message)
    }

    fn syntax_error(&self, error: &ScanError) -> Box<Diagnostic> {
        let at = self.offsets.byte_offset(error.marker());
        let span = Span { start: at, end: at + 1 };
        let (info, about) = (error.info(), Untyped::from_error(error));
        if about == Some(Untyped::UnknownAnchor) {
            return self.unresolved_alias(span);
        }
        if about == Some(Untyped::Unprintable) || self.source.text.contains('\0') {
            return self
                .error_at(codes::YAML_SYNTAX, span, format!("The file is not text: {info}"))
                .with_help("a workflow is YAML or JSON in UTF-8")
                .into();
        }
        let line_start = self.source.line_at(at).0;
        let indented_by_tab = self.source.text[line_start..].trim_start_matches(' ').starts_with('\t');
        if indented_by_tab || about == Some(Untyped::Tab) {
            return self
                .error_at(codes::YAML_SYNTAX, span, format!("Tabs are not allowed as indentation: {info}"))
                .with_help("indent with spaces")
                .into();
        }
        if about == Some(Untyped::TooDeep) {
            return self.too_deep(span);
        }
        let help =
            "quote values that contain `: ` or begin with a special character, and check the indentation";
        self.error_at(codes::YAML_SYNTAX, span, format!("The file is not valid YAML: {info}"))
            .with_help(help)
            .into()
    }

    fn unresolved_alias(&self, span: Span) -> Box<Diagnostic> {
        let name: String = self.source.text[span.start..]
            .trim_start_matches('*')
            .chars()
            .take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ']' | '}'))
            .take(60)
            .collect();
        let message = format!("Unresolved alias (the anchor must be set before the alias): {name}");
        self.error_at(codes::ALIAS, span, message)
    }

    fn too_deep(&self, span: Span) -> Box<Diagnostic> {
        self.error_at(codes::TOO_DEEP, span, format!("The file is nested more than {MAX_DEPTH} levels deep"))
    }

    fn on_event(&mut self, event: Event<'_>, at: EventSpan) -> Checked<()> {
        let span = self.offsets.byte_span(at);
        match event {
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
            Event::Alias(anchor) => self.insert_alias(anchor, span),
            Event::Scalar(text, style, anchor, tag) => {
                let span = self.trim_span(span);
                let plain = style == ScalarStyle::Plain;
                let text = match self.stand_ins {
                    Some(stand_ins) => stand_ins.taken_from(&text, style == ScalarStyle::DoubleQuoted),
                    None => text,
                };
                let data = self.scalar_data(&text, plain, tag.as_deref(), span)?;
                self.complete_node(Node { data, span }, anchor, Weight { values: 1, depth: 1 })
            }
            Event::SequenceStart(anchor, _) => self.open_frame(anchor, span, FrameKind::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                let kind = FrameKind::Map(MapFrame::default());
                self.open_frame(anchor, span, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_frame(span),
        }
    }

    /// Trims the white space after block scalars and plain text, which their spans include.
    fn trim_span(&self, span: Span) -> Span {
        let written = self.source.text.get(span.start..span.end).unwrap_or_default();
        Span { start: span.start, end: span.start + written.trim_end().len() }
    }

    fn scalar_data(&self, text: &str, plain: bool, tag: Option<&Tag>, span: Span) -> Checked<Data> {
        let text_of = || Data::Text(text.to_owned());
        let Some(tag) = tag else {
            return Ok(if plain { resolve_scalar(text, self.schema) } else { text_of() });
        };
        if !tag.is_yaml_core_schema() {
            // For an application's own tag, the text is kept, as in other parsers.
            return Ok(text_of());
        }
        let resolved = resolve_scalar(text, self.schema);
        let fits = match tag.suffix.as_str() {
            "null" => resolved == Data::Null,
            "bool" => matches!(resolved, Data::Bool(_)),
            "int" => matches!(&resolved, Data::Number(n) if n.is_i64() || n.is_u64()),
            "float" => matches!(resolved, Data::Number(_) | Data::NotFinite),
            _ => return Ok(text_of()),
        };
        if fits {
            return Ok(resolved);
        }
        let message = format!("The file is not valid YAML: {text:?} is not of the type !!{}", tag.suffix);
        Err(self.error_at(codes::YAML_SYNTAX, span, message))
    }

    fn open_frame(&mut self, anchor: usize, span: Span, kind: FrameKind) -> Checked<()> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        if self.expects_key() {
            return Err(self.error_at(codes::YAML_SYNTAX, span, "Map keys must be plain text"));
        }
        let weight = Weight { values: 1, depth: 1 };
        self.frames.push(Frame { start: span.start, end: span.start, anchor, kind, weight });
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { kind: FrameKind::Map(MapFrame { key: None, .. }), .. }))
    }

    fn close_frame(&mut self, end: Span) -> Checked<()> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let is_flow = self.source.text[frame.start..].starts_with(['[', '{']);
        let end = if is_flow { end.end.max(frame.end) } else { frame.end };
        let data = match frame.kind {
            FrameKind::List(items) => Data::List(items),
            FrameKind::Map(map) => Data::Map(map.entries),
        };
        self.complete_node(Node { data, span: Span { start: frame.start, end } }, frame.anchor, frame.weight)
    }

    fn insert_alias(&mut self, anchor: usize, span: Span) -> Checked<()> {
        let Some((node, weight)) = self.anchors.get(&anchor) else {
            return Err(self.unresolved_alias(span));
        };
        let weight = *weight;
        self.aliased += weight.values;
        if self.aliased > MAX_ALIASED {
            let message = "Excessive alias count indicates a resource exhaustion attack";
            return Err(self.error_at(codes::ALIAS, span, message));
        }
        if self.frames.len() + weight.depth > MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        // Diagnostics about the copy point at the alias.
        let node = Node { data: node.data.clone(), span };
        self.complete_node(node, 0, weight)
    }

    fn complete_node(&mut self, node: Node, anchor: usize, weight: Weight) -> Checked<()> {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        let (source, schema) = (self.source, self.schema);
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.end = frame.end.max(node.span.end);
        frame.weight.values += weight.values;
        frame.weight.depth = frame.weight.depth.max(weight.depth + 1);
        let map = match &mut frame.kind {
            FrameKind::List(items) => {
                items.push(node);
                return Ok(());
            }
            FrameKind::Map(map) => map,
        };
        let Some((key, key_span)) = map.key.take() else {
            let Some((kind, text)) = key_text(&node.data) else {
                return Err(Diagnostic::error(
                    source,
                    codes::YAML_SYNTAX,
                    node.span,
                    "Map keys must be plain text",
                ));
            };
            if !map.seen.insert((kind, text.clone())) {
                let message = format!("Map keys must be unique: {text}");
                return Err(Diagnostic::error(source, codes::DUPLICATE_KEY, node.span, message));
            }
            map.key = Some((text, node.span));
            return Ok(());
        };
        if schema == ScalarSchema::Yaml11 && key == "<<" {
            map.merge_entries(node, key_span);
        } else {
            map.set(MappingEntry { key, key_span, value: node });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source::new("t.lobster", "/t.lobster", text.as_bytes()))
    }

    fn parse_text(text: &str) -> Result<serde_json::Value, String> {
        let described = |e: Box<Diagnostic>| format!("{} {}:{} {}", e.code, e.line, e.column, e.message);
        parse(&source(text)).map(|node| node.to_value()).map_err(described)
    }

    #[test]
    fn documents_read_as_the_incumbent_reads_them() {
        for (text, value) in [
            ("", json!(null)),
            ("# nothing\n", json!(null)),
            ("---\na: 1\n...\n", json!({"a": 1})),
            ("\u{feff}a: x\r\nb: |\r\n  l1\r\n  l2\r\n", json!({"a": "x", "b": "l1\nl2\n"})),
            ("{\"a\": [1, \"\\u00e9\"]}", json!({"a": [1, "é"]})),
            (
                "{\"\\ud83d\\ude80\": \"\\uD83D\\uDE80 \\ud83d\\\\ud83d\"}\n# \\ud83d",
                json!({"🚀": "🚀 \u{fffd}\\ud83d"}),
            ),
            (
                "a: '\\ud83d'\nb: \\ud83d\nc: |\n  \\ud83d㠀\n",
                json!({"a": "\\ud83d", "b": "\\ud83d", "c": "\\ud83d㠀\n"}),
            ),
            ("a: &x {n: 1}\nb: *x\n<<: *x\n", json!({"a": {"n": 1}, "b": {"n": 1}, "<<": {"n": 1}})),
            ("%YAML 1.1\n---\na: yes\nb: 017\nc: 1_000\n", json!({"a": true, "b": 15, "c": 1000})),
            (
                "%YAML 1.1\n---\na: &x {k: 1, m: 2}\nb: {k: 3, <<: *x}\nc: {<<: [*x], k: 4}\n",
                json!({"a": {"k": 1, "m": 2}, "b": {"k": 3, "m": 2}, "c": {"k": 4, "m": 2}}),
            ),
            (
                "a: yes\nb: '1'\nc: !foo 5\nd: !!str 5\ne: !!int '5'\nf:\n",
                json!({"a": "yes", "b": "1", "c": "5", "d": "5", "e": 5, "f": null}),
            ),
            ("1: a\ntrue: b\n~: c\n", json!({"1": "a", "true": "b", "": "c"})),
            ("1: a\n'1': b\n", json!({"1": "b"})),
            ("a: >-\n  x\n  y\n", json!({"a": "x y"})),
            ("a: 12345678901234567890\nb: .inf\n", json!({"a": 12345678901234567890_u64, "b": null})),
        ] {
            assert_eq!(parse_text(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_not_one_sound_document_is_refused_at_its_place() {
        for (text, start) in [
            ("a: 1\nb: 2\na: 3\n", "E0103 3:1 Map keys must be unique: a"),
            ("a: 1\n---\nb: 2\n", "E0104 2:1 Source contains multiple documents"),
            ("a: *nope\n", "E0105 1:4 Unresolved alias (the anchor must be set before the alias): nope"),
            ("a: &a [*a]\n", "E0105 1:8 Unresolved alias (the anchor must be set before the alias): a"),
            ("a:\n\tb: 1\n", "E0101 2:"),
            ("steps:\n  - id: a\n   run: x\n", "E0101 3:"),
            ("run: echo a: b\n", "E0101 1:"),
            ("a: {PE: pe-${x}}\n", "E0101 1:"),
            ("a: 'x\n", "E0101 "),
            ("? [a]\n: b\n", "E0101 1:3 Map keys must be plain text"),
            ("a: !!int x\n", "E0101 1:"),
        ] {
            let error = parse_text(text).expect_err(text);
            assert!(error.starts_with(start), "{text}: {error}");
        }
    }

    #[test]
    fn bombs_are_defused() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..10 {
            let previous = format!("*a{},", level - 1).repeat(9);
            bomb.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
        }
        assert!(parse_text(&bomb).expect_err("bomb").contains("Excessive alias count"));
        let mut chain = "a0: &a0 [x]\n".to_owned();
        for level in 1..400 {
            chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(parse_text(&chain).expect_err("chain").contains("nested more than"));
        for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(5_000), "a:\n ".repeat(10)] {
            assert!(parse_text(&deep).is_err());
        }
    }

    #[test]
    fn spans_cover_what_was_written() {
        let text = "é: [1, {x: 'y z'}]\nm:\n  k: v   \n  l: |\n    t\n\nn: 1\n";
        let source = source(text);
        let tree = parse(&source).unwrap();
        let written = |node: &Node| &text[node.span.start..node.span.end];
        assert_eq!(written(tree.get("é").unwrap()), "[1, {x: 'y z'}]");
        assert_eq!(written(&tree.get("é").unwrap().as_list().unwrap()[1]), "{x: 'y z'}");
        assert_eq!(written(tree.get("m").unwrap().get("k").unwrap()), "v");
        assert_eq!(written(tree.get("m").unwrap().get("l").unwrap()), "t");
        let key = tree.map_entry("m").unwrap().key_span;
        assert_eq!(&text[key.start..key.end], "m");
    }
}
