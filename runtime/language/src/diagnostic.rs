//! Diagnostics about a source: a message, a position and advice.

use std::fmt::{self, Write};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;
use unicode_width::UnicodeWidthChar;

use super::plan::Span;
use super::source::Source;

/// A result whose error is a diagnostic.
pub type Checked<T> = Result<T, Box<Diagnostic>>;

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A warning; the file runs.
    Warning,
    /// An error; the file is rejected.
    Error,
}

/// A message about one position in a source.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Explained by [`super::codes::find_page`].
    pub code: &'static str,
    /// One sentence, without the position.
    pub message: String,
    /// Name of the source.
    pub file: String,
    /// Byte range in the source's text.
    pub span: Span,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
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
        let span = source.clamp_span(span);
        let (line, column) = source.line_and_column(span.start);
        let file = source.name.clone();
        let source = Arc::clone(source);
        Self { severity, code, message, file, span, line, column, help: None, fix: None, source }
    }

    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_fix(mut self, span: Span, replacement: impl Into<String>) -> Self {
        self.fix = Some(Fix { span, replacement: replacement.into() });
        self
    }

    /// Source that the diagnostic refers to.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The diagnostic for a terminal, without a final newline.
    #[must_use]
    pub fn render_human(&self, color: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let (line_start, line) = self.source.line_at(self.span.start);
        let shown = shown_line(line, self.span.start - line_start, self.marked_len(line_start, line));
        let snippet = Snippet::source(shown.text.as_str())
            .line_start(self.line)
            .path(self.file.as_str())
            .annotation(AnnotationKind::Primary.span(shown.start..shown.end));
        let mut group = level.primary_title(self.message.as_str()).id(self.code).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut rendered = renderer.term_width(RENDERED).render(&[group]);
        // For a shortened line, the renderer knows only the column in the shown part.
        let in_snippet = shown.text[..shown.start].chars().count() + 1;
        let place = format!("{}:{}:{in_snippet}", self.file, self.line);
        let arrow = rendered.find("--> ").unwrap_or_default();
        if let Some(at) = rendered[arrow..].find(&place).map(|at| arrow + at) {
            let true_place = format!("{}:{}:{}", self.file, self.line, self.column);
            rendered.replace_range(at..at + place.len(), &true_place);
        }
        rendered
    }

    /// The diagnostic as an error message of an envelope: the message, followed by the position and the
    /// line, as plain text.
    #[must_use]
    pub fn one_line_with_snippet(&self) -> String {
        let mut out = format!("{} ({}:{}:{})", self.message, self.file, self.line, self.column);
        let (line_start, line) = self.source.line_at(self.span.start);
        let shown = shown_line(line, self.span.start - line_start, self.marked_len(line_start, line));
        let number = self.line.to_string();
        let before = text_width(&shown.text[..shown.start]);
        let marks = text_width(&shown.text[shown.start..shown.end]).max(1);
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

    /// Number of marked bytes in the line.
    fn marked_len(&self, line_start: usize, line: &str) -> usize {
        self.span.end.min(line_start + line.len()).saturating_sub(self.span.start)
    }
}

/// Displayed part of a line: a window around the mark, without invisible characters.
struct ShownLine {
    text: String,
    start: usize,
    end: usize,
}

/// Terminal columns that are shown on either side of the start of the mark.
const SHOWN_BEFORE: usize = 60;
const SHOWN_AFTER: usize = 80;

/// Wider than any displayed line, so that the renderer cuts nothing itself.
const RENDERED: usize = 4 * (SHOWN_BEFORE + SHOWN_AFTER);

/// Most characters that share a column, such as the marks on a letter.
const MOST_IN_A_COLUMN: usize = 4;

/// Number of columns of a displayed character. An invisible character is displayed as a symbol.
fn char_width(c: char) -> usize {
    c.width().unwrap_or(1)
}

fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Number of bytes of these characters that fit in `room` columns.
fn fitting_bytes(characters: impl Iterator<Item = char>, mut room: usize) -> usize {
    let fits =
        characters.take(room * MOST_IN_A_COLUMN).take_while(|c| match room.checked_sub(char_width(*c)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        });
    fits.map(char::len_utf8).sum()
}

fn shown_line(line: &str, start: usize, len: usize) -> ShownLine {
    let start = start.min(line.len());
    let end = (start + len).min(line.len());
    let from = start - fitting_bytes(line[..start].chars().rev(), SHOWN_BEFORE);
    // A mark without its letter would appear on another letter.
    let marks = line[from..start].chars().take_while(|c| from > 0 && char_width(*c) == 0);
    let from = from + marks.map(char::len_utf8).sum::<usize>();
    let marked = fitting_bytes(line[start..end].chars(), SHOWN_AFTER);
    let room = SHOWN_AFTER - text_width(&line[start..start + marked]);
    let after = if start + marked == end { fitting_bytes(line[end..].chars(), room) } else { 0 };

    let mut text = if from > 0 { "…".to_owned() } else { String::new() };
    // A byte order mark at the start is not part of a line.
    push_visible(&mut text, line[from..start].trim_start_matches('\u{feff}'));
    let shown_start = text.len();
    push_visible(&mut text, &line[start..start + marked]);
    let shown_end = text.len();
    push_visible(&mut text, &line[start + marked..start + marked + after]);
    if start + marked + after < line.len() {
        text.push('…');
    }
    ShownLine { text, start: shown_start, end: shown_end }
}

/// Appends each character in the number of columns given by [`char_width`].
fn push_visible(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            // Invisible characters and characters that change the direction of the line are replaced;
            // marks on letters stay.
            c if c.is_control() => out.push('\u{fffd}'),
            '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' => {}
            c => out.push(c),
        }
    }
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

    fn sample_diagnostic(text: &str, span: Span) -> Diagnostic {
        let source = Arc::new(Source::new("flow.lobster", "/w/flow.lobster", text.as_bytes()));
        Diagnostic::error(&source, codes::FIELD_TYPE, span, "Workflow step a retry must be an object")
            .with_help("write `retry: {max: 3}`")
    }

    #[test]
    fn envelope_text_names_place_and_line() {
        let text = "steps:\n  - id: a\n    retry: null\n";
        let at = text.find("null").unwrap();
        assert_eq!(
            sample_diagnostic(text, Span { start: at, end: at + 4 }).one_line_with_snippet(),
            "Workflow step a retry must be an object (flow.lobster:3:12)\n  \
             3 |     retry: null\n    |            ^^^^\n  help: write `retry: {max: 3}`"
        );
    }

    #[test]
    fn human_text_points_at_the_place() {
        let text = "steps:\n  - id: a\n    retry: null\n";
        let at = text.find("null").unwrap();
        let shown = sample_diagnostic(text, Span { start: at, end: at + 4 }).render_human(false);
        for part in ["error[E0203]", "flow.lobster:3:12", "retry: null", "^^^^", "help: write"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(sample_diagnostic(text, Span::default()).render_human(true).contains("\u{1b}["));
    }

    /// Carets of a rendered diagnostic: the columns before them, and their number.
    fn find_carets(shown: &str) -> (usize, usize) {
        let line = shown.lines().find(|line| line.contains('^')).unwrap_or_else(|| panic!("{shown}"));
        (text_width(line.split('^').next().unwrap()), line.matches('^').count())
    }

    #[test]
    fn carets_stand_below_what_they_mark_in_lines_of_any_length() {
        for filler in
            ["x", "\t", "漢", "e\u{301}", "a\u{300}\u{301}\u{302}", "😀", "\u{7}", "\u{202e}x", "é漢\t"]
        {
            for (before, after) in [(0, 0), (0, 10_000), (10, 10), (59, 3), (10_000, 0), (10_000, 10_000)] {
                for target in ["MARK", "漢字", "n\u{303}o"] {
                    let (before, after) = (filler.repeat(before), filler.repeat(after));
                    let text = format!("steps:\n{before}{target}{after}\nlast\n");
                    let start = "steps:\n".len() + before.len();
                    let diagnostic = sample_diagnostic(&text, Span { start, end: start + target.len() });
                    let place = format!("flow.lobster:2:{}", before.chars().count() + 1);
                    for shown in [diagnostic.one_line_with_snippet(), diagnostic.render_human(false)] {
                        assert!(shown.contains(&place), "{place} is not in {shown}");
                        let line = shown
                            .lines()
                            .find(|line| line.contains(target))
                            .unwrap_or_else(|| panic!("{shown}"));
                        let at = text_width(line.split(target).next().unwrap());
                        assert_eq!(find_carets(&shown), (at, text_width(target)), "{shown}");
                        assert!(text_width(line) <= SHOWN_BEFORE + SHOWN_AFTER + 10, "{shown}");
                        assert_eq!(
                            line.matches('…').count(),
                            usize::from(text_width(&before) > SHOWN_BEFORE)
                                + usize::from(text_width(&after) > SHOWN_AFTER - text_width(target)),
                            "{shown}"
                        );
                        assert!(!shown.contains(['\t', '\u{7}', '\u{202e}']), "{shown:?}");
                        assert!(shown.len() < 2000, "{shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_lines_are_shown_around_the_mark() {
        let text = format!("{}漢 MARK{}\n", "e\u{301}".repeat(5000), " 漢".repeat(5000));
        let start = text.find("MARK").unwrap();
        let diagnostic = sample_diagnostic(&text, Span { start, end: start + 4 });
        let line = format!("…{}漢 MARK{} …", "e\u{301}".repeat(57), " 漢".repeat(25));
        let carets = format!("{}^^^^", " ".repeat(61));
        assert_eq!(
            diagnostic.one_line_with_snippet(),
            format!(
                "Workflow step a retry must be an object (flow.lobster:1:10003)\n  1 | {line}\n    | {carets}\n  \
                 help: write `retry: {{max: 3}}`"
            )
        );
        assert_eq!(
            diagnostic.render_human(false),
            format!(
                "error[E0203]: Workflow step a retry must be an object\n --> flow.lobster:1:10003\n  |\n\
                 1 | {line}\n  | {carets}\n  |\n  = help: write `retry: {{max: 3}}`"
            )
        );
    }

    #[test]
    fn hostile_spans_and_lines_are_shown_without_panic() {
        let long = format!("{}☃é\u{7}\t{}", "x".repeat(500), "y".repeat(500));
        for text in ["", "\u{feff}", "\r\n\r\n", "é", long.as_str()] {
            for start in [0, 1, 2, 501, 502, 503, 900, 5000] {
                for len in [0, 1, 3, 400, 9000] {
                    let diagnostic = sample_diagnostic(text, Span { start, end: start + len });
                    assert!(diagnostic.span.end <= text.len());
                    assert!(diagnostic.one_line_with_snippet().chars().count() < 700);
                    assert!(!diagnostic.render_human(false).is_empty());
                }
            }
        }
    }
}
