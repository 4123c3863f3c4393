//! What is said about a source: one message, one place, one way out.

use std::fmt::{self, Write};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use super::plan::Span;
use super::source::Source;

/// A result whose error is a diagnostic.
pub type Checked<T> = Result<T, Box<Diagnostic>>;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; the file runs.
    Warning,
    /// The file is refused.
    Error,
}

/// One thing to say about one place of a source.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Explained by [`super::codes::explain`].
    pub code: &'static str,
    /// One sentence, without the place.
    pub message: String,
    /// The name of the source.
    pub file: String,
    /// Bytes of the source's text.
    pub span: Span,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    #[serde(skip)]
    source: Arc<Source>,
}

/// An edit that removes the cause of a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub span: Span,
    pub replacement: String,
}

impl Diagnostic {
    pub(crate) fn error(
        source: &Arc<Source>,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> Box<Self> {
        Box::new(Self::new(source, Severity::Error, code, span, message.into()))
    }

    pub(crate) fn warning(
        source: &Arc<Source>,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> Self {
        Self::new(source, Severity::Warning, code, span, message.into())
    }

    fn new(
        source: &Arc<Source>,
        severity: Severity,
        code: &'static str,
        span: Span,
        message: String,
    ) -> Self {
        let span = source.clamp(span);
        let (line, column) = source.position(span.start);
        let file = source.name.clone();
        let source = Arc::clone(source);
        Self { severity, code, message, file, span, line, column, help: None, fix: None, source }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_fix(mut self, span: Span, replacement: impl Into<String>) -> Self {
        self.fix = Some(Fix { span, replacement: replacement.into() });
        self
    }

    /// The text that the diagnostic points into.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The diagnostic as people read it in a terminal, ending without a newline.
    #[must_use]
    pub fn render_human(&self, color: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let (line_start, line) = self.source.line_at(self.span.start);
        let shown = shown_line(line, self.span.start - line_start, self.marked(line_start, line));
        let snippet = Snippet::source(shown.text.as_str())
            .line_start(self.line)
            .path(self.file.as_str())
            .annotation(AnnotationKind::Primary.span(shown.start..shown.end));
        let mut group = level.primary_title(self.message.as_str()).id(self.code).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    /// The diagnostic as an error message of an envelope: the message first,
    /// then the place and the line, as plain text.
    #[must_use]
    pub fn one_line_with_snippet(&self) -> String {
        let mut out = format!("{} ({}:{}:{})", self.message, self.file, self.line, self.column);
        let (line_start, line) = self.source.line_at(self.span.start);
        let shown = shown_line(line, self.span.start - line_start, self.marked(line_start, line));
        let number = self.line.to_string();
        let before = shown.text[..shown.start].chars().count();
        let marks = shown.text[shown.start..shown.end].chars().count().max(1);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "\n  {number} | {}\n  {:pad$} | {:before$}{}",
            shown.text,
            "",
            "",
            "^".repeat(marks),
            pad = number.len(),
        );
        if let Some(help) = &self.help {
            let _ = write!(out, "\n  help: {help}");
        }
        out
    }

    /// How many bytes of the line are marked.
    fn marked(&self, line_start: usize, line: &str) -> usize {
        self.span.end.min(line_start + line.len()).saturating_sub(self.span.start)
    }
}

/// A line as it is shown: cut to a window around the mark and free of control characters.
struct ShownLine {
    text: String,
    start: usize,
    end: usize,
}

/// Characters shown on either side of the start of the mark.
const SHOWN_BEFORE: usize = 60;
const SHOWN_AFTER: usize = 80;

fn shown_line(line: &str, start: usize, len: usize) -> ShownLine {
    let start = start.min(line.len());
    let end = (start + len).min(line.len());
    // A byte order mark is invisible and would shift the marks.
    let visible = |c: char| match c {
        '\u{feff}' => None,
        '\t' => Some(' '),
        c if c.is_control() => Some('\u{fffd}'),
        c => Some(c),
    };
    let before: Vec<char> = line[..start].chars().filter_map(visible).collect();
    let marked: Vec<char> = line[start..end].chars().filter_map(visible).collect();
    let after: Vec<char> = line[end..].chars().filter_map(visible).collect();
    let mut text = String::new();
    if before.len() > SHOWN_BEFORE {
        text.push('…');
    }
    text.extend(before.iter().skip(before.len().saturating_sub(SHOWN_BEFORE)));
    let start = text.len();
    text.extend(marked.iter().take(SHOWN_AFTER));
    let end = text.len();
    let room = SHOWN_AFTER.saturating_sub(marked.len());
    text.extend(after.iter().take(room));
    if marked.len() > SHOWN_AFTER || after.len() > room {
        text.push('…');
    }
    ShownLine { text, start, end }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.one_line_with_snippet())
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::super::codes;
    use super::*;

    fn sample(text: &str, span: Span) -> Diagnostic {
        let source = Arc::new(Source::new("flow.lobster", "/w/flow.lobster", text.as_bytes()));
        Diagnostic::error(&source, codes::FIELD_TYPE, span, "Workflow step a retry must be an object")
            .with_help("write `retry: {max: 3}`")
    }

    #[test]
    fn envelope_text_names_place_and_line() {
        let text = "steps:\n  - id: a\n    retry: null\n";
        let at = text.find("null").unwrap();
        assert_eq!(
            sample(text, Span { start: at, end: at + 4 }).one_line_with_snippet(),
            "Workflow step a retry must be an object (flow.lobster:3:12)\n  \
             3 |     retry: null\n    |            ^^^^\n  help: write `retry: {max: 3}`"
        );
    }

    #[test]
    fn human_text_points_at_the_place() {
        let text = "steps:\n  - id: a\n    retry: null\n";
        let at = text.find("null").unwrap();
        let shown = sample(text, Span { start: at, end: at + 4 }).render_human(false);
        for part in ["error[E0203]", "flow.lobster:3:12", "retry: null", "^^^^", "help: write"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(sample(text, Span::default()).render_human(true).contains("\u{1b}["));
    }

    #[test]
    fn hostile_spans_and_lines_are_shown_without_panic() {
        let long = format!("{}☃é\u{7}\t{}", "x".repeat(500), "y".repeat(500));
        for text in ["", "\u{feff}", "\r\n\r\n", "é", long.as_str()] {
            for start in [0, 1, 2, 501, 502, 503, 900, 5000] {
                for len in [0, 1, 3, 400, 9000] {
                    let diagnostic = sample(text, Span { start, end: start + len });
                    assert!(diagnostic.span.end <= text.len());
                    assert!(diagnostic.one_line_with_snippet().chars().count() < 700);
                    assert!(!diagnostic.render_human(false).is_empty());
                }
            }
        }
    }
}
