//! Source text as a tree of values with their positions.
//!
//! Two dialects give the same tree: YAML 1.2 core ([`super::yaml`]) and strict JSON
//! ([`super::json_text`]). All later diagnostics about a file point into this tree.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::codes;
use super::diagnostic::{Checked, Diagnostic};
use super::plan::Span;
use lobster_base::digest::Digest;

/// Deepest nesting of a workflow file. Trees are walked and dropped recursively, so this also limits
/// the stack; real files stay below 20.
pub const MAX_DEPTH: usize = 200;

/// Text and name of a file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name shown to people.
    pub name: String,
    /// Absolute path; sub-workflows are looked up relative to its directory.
    pub path: PathBuf,
    pub text: String,
    /// Digest of the file's bytes.
    pub digest: Digest,
    /// Position of the first bytes that are not UTF-8.
    not_text: Option<usize>,
}

impl Source {
    /// Makes a source from the bytes of a file. Bytes that are not UTF-8 are shown as U+FFFD, and the
    /// source is not parsed.
    #[must_use]
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>, bytes: &[u8]) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            text: String::from_utf8_lossy(bytes).into_owned(),
            digest: Digest::of_bytes(bytes),
            not_text: std::str::from_utf8(bytes).err().map(|error| error.valid_up_to()),
        }
    }

    /// Line and column of a byte offset, both from 1; the column counts characters.
    #[must_use]
    pub fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..self.char_boundary(offset)).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }

    /// Line that contains a byte offset, without its line end, and the offset of its start.
    #[must_use]
    pub fn line_at(&self, offset: usize) -> (usize, &str) {
        let at = self.char_boundary(offset);
        let start = self.text[..at].rfind('\n').map_or(0, |n| n + 1);
        let end = self.text[at..].find('\n').map_or(self.text.len(), |n| at + n);
        (start, self.text[start..end].trim_end_matches('\r'))
    }

    /// Moves `span` onto character boundaries inside the text.
    #[must_use]
    pub fn clamp_span(&self, span: Span) -> Span {
        let start = self.char_boundary(span.start);
        Span { start, end: self.char_boundary(span.end).max(start) }
    }

    fn char_boundary(&self, offset: usize) -> usize {
        let mut at = offset.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// Parses the tree of this source: JSON for `.json`, YAML for all other extensions.
    ///
    /// # Errors
    /// One diagnostic that points at the first error.
    pub(crate) fn parse_tree(self: &Arc<Self>) -> Checked<Node> {
        if let Some(start) = self.not_text {
            // A command with bytes other than those in the file would be another command.
            let code = if is_json(&self.path) { codes::JSON_SYNTAX } else { codes::YAML_SYNTAX };
            let span = Span { start, end: start + char::REPLACEMENT_CHARACTER.len_utf8() };
            let error = Diagnostic::error(self, code, span, "this is not text in UTF-8");
            return Err(error.with_help("a workflow is YAML or JSON in UTF-8").into());
        }
        if is_json(&self.path) { super::json_text::parse(self) } else { super::yaml::parse(self) }
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// True if `run` and `graph` accept the file name as a workflow file.
#[must_use]
pub fn has_workflow_extension(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|e| ["lobster", "yaml", "yml", "json"].iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) data: Data,
    pub(crate) span: Span,
}

/// Contents of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    /// `.inf`, `-.inf` or `.nan`, which JSON cannot represent: null as a value, and not a number for
    /// checks.
    NotFinite,
    Text(String),
    List(Vec<Node>),
    /// Entries in file order; keys are unique.
    Map(Vec<MappingEntry>),
}

/// One key of a map and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MappingEntry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    /// Value of a key; `None` unless this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.map_entry(key).map(|entry| &entry.value)
    }

    /// Entry of a key.
    pub(crate) fn map_entry(&self, key: &str) -> Option<&MappingEntry> {
        self.as_map()?.iter().find(|entry| entry.key == key)
    }

    /// Value of a key, unless it is missing or null.
    pub(crate) fn get_some(&self, key: &str) -> Option<&Self> {
        self.get(key).filter(|node| !node.is_null())
    }

    pub(crate) fn as_map(&self) -> Option<&[MappingEntry]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            Data::Null
            | Data::Bool(_)
            | Data::Number(_)
            | Data::NotFinite
            | Data::Text(_)
            | Data::List(_) => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        if let Data::List(items) = &self.data { Some(items) } else { None }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Data::Text(text) = &self.data { Some(text) } else { None }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Data::Bool(value) = &self.data { Some(*value) } else { None }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        if let Data::Number(number) = &self.data { number.as_f64() } else { None }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.data == Data::Null
    }

    /// ECMA-262 `ToBoolean`. Numbers that JSON cannot represent are true, as in the incumbent.
    pub(crate) fn is_truthy(&self) -> bool {
        self.data == Data::NotFinite || lobster_base::json::to_boolean(Some(&self.to_value()))
    }

    /// Name of the value's kind, for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.data {
            Data::Null => "null",
            Data::Bool(_) => "a boolean",
            Data::Number(_) | Data::NotFinite => "a number",
            Data::Text(_) => "text",
            Data::List(_) => "a list",
            Data::Map(_) => "a map",
        }
    }

    /// The value without its positions.
    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Data::Null | Data::NotFinite => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => items.iter().map(Self::to_value).collect(),
            Data::Map(entries) => Value::Object(to_map(entries)),
        }
    }

    /// Position in the source of a part of this text. It is exact if the source has the text literally;
    /// otherwise it is the first line that contains the fragment, or the whole node.
    pub(crate) fn part_span(&self, source: &Source, part: Range<usize>) -> Span {
        let whole = source.clamp_span(self.span);
        let (Some(text), Some(written)) = (self.as_text(), source.text.get(whole.start..whole.end)) else {
            return whole;
        };
        let Some(fragment) = text.get(part.clone()).filter(|fragment| !fragment.is_empty()) else {
            return whole;
        };
        let quote = usize::from(written.starts_with(['"', '\'']));
        let direct = quote + part.start;
        if written.get(direct..direct + fragment.len()) == Some(fragment)
            && written.get(quote..direct) == text.get(..part.start)
        {
            return Span { start: whole.start + direct, end: whole.start + direct + fragment.len() };
        }
        // Block scalars and folded text: the same occurrence, counted from the start.
        let nth = text[..part.start].matches(fragment).count();
        match written.match_indices(fragment).nth(nth) {
            Some((at, _)) => Span { start: whole.start + at, end: whole.start + at + fragment.len() },
            None => whole,
        }
    }
}

/// Values of a map's entries by key.
pub(crate) fn to_map(entries: &[MappingEntry]) -> Map<String, Value> {
    entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source::new("t.lobster", "/t.lobster", text.as_bytes()))
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = source("\u{feff}a: é☃x\r\nb: 1\n");
        assert_eq!(source.line_and_column(0), (1, 1));
        assert_eq!(source.line_and_column("\u{feff}a: é☃".len()), (1, 6));
        assert_eq!(source.line_and_column(source.text.find('b').unwrap_or(0)), (2, 1));
        assert_eq!(source.line_and_column(9999), (3, 1));
        assert_eq!(source.line_at(4).1, "\u{feff}a: é☃x");
    }

    #[test]
    fn parts_of_text_are_found_in_every_style() {
        for text in [
            "k: echo $a.x end",
            "k: 'echo $a.x end'",
            "k: \"echo $a.x \\x65nd\"",
            "k: |\n  first\n  echo $a.x end\n",
            "k: >\n  echo\n  $a.x end\n",
        ] {
            let source = source(text);
            let tree = source.parse_tree().unwrap();
            let node = tree.get("k").unwrap();
            let at = node.as_text().unwrap().find("$a.x").unwrap();
            let span = node.part_span(&source, at..at + 4);
            assert_eq!(&source.text[span.start..span.end], "$a.x", "{text}");
        }
    }

    #[test]
    fn other_bytes_than_those_of_text_are_not_read() {
        let latin = b"steps:\n  - {id: a, run: rm caf\xe9}\n";
        for name in ["/t.lobster", "/t.json"] {
            let source = Arc::new(Source::new("t", name, latin));
            let error = source.parse_tree().unwrap_err();
            assert_eq!(error.message, "this is not text in UTF-8");
            assert_eq!(source.line_and_column(error.span.start), (2, 24));
        }
        // The replacement character in the file itself is ordinary text.
        assert!(source("run: \u{fffd}").parse_tree().is_ok());
    }

    #[test]
    fn extensions() {
        for (path, known) in
            [("a.lobster", true), ("a.YML", true), ("a.json", true), ("a.txt", false), ("a", false)]
        {
            assert_eq!(has_workflow_extension(Path::new(path)), known, "{path}");
        }
    }
}
