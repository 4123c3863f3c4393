//! The width of text in terminal columns, and ways to cut and wrap it.

use std::borrow::Cow;

pub use lobster_runtime::visible::exact;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Most columns that a terminal may use for a text without line breaks.
pub fn display_width(text: &str) -> usize {
    let mut before = 0;
    let sum = text.chars().map(|c| {
        before = char_columns(c, before);
        before
    });
    sum.sum::<usize>().max(UnicodeWidthStr::width(text))
}

/// The columns of a character that follows one of `before` columns.
fn char_columns(c: char, before: usize) -> usize {
    match c {
        // It turns a narrow sign into a wide picture. At the beginning of a piece, the sign before it
        // is unknown.
        '\u{fe0f}' if before < 2 => 1,
        _ => c.width().unwrap_or(1),
    }
}

/// The longest beginning that is no wider than `max`, as its length in bytes.
fn fitting_len(text: &str, max: usize) -> usize {
    let (mut used, mut before) = (0, 0);
    for (at, c) in text.char_indices() {
        before = char_columns(c, before);
        used += before;
        if used > max {
            return at;
        }
    }
    text.len()
}

/// The text on one line of at most `max` columns; `…` marks a cut.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if display_width(text) <= max {
        return text.into();
    }
    match max {
        0 => "".into(),
        _ => {
            let mut end = fitting_len(text, max - 1);
            // The width of a whole can exceed the sum of its parts.
            while end > 0 && display_width(&text[..end]) >= max {
                end = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
            }
            format!("{}…", &text[..end]).into()
        }
    }
}

/// The text in lines of at most `max` columns: broken at its own line breaks, at blanks if there are
/// any, and anywhere else. Only blanks at ends of lines are lost.
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    let max = max.max(2);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = line.replace('\t', "    ");
        let mut rest = line.as_str();
        // For a text of a megabyte, only the beginning is measured for each line.
        loop {
            let fits = fitting_len(rest, max);
            if fits == rest.len() && display_width(rest) <= max {
                break;
            }
            let mut end = fits.max(rest.chars().next().map_or(0, char::len_utf8));
            while display_width(&rest[..end]) > max && end > 1 {
                let shorter = rest[..end].char_indices().next_back().map_or(0, |(at, _)| at);
                if shorter == 0 {
                    break;
                }
                end = shorter;
            }
            // A word moves to the next line, unless it fills most of this one.
            let blank = if rest[end..].starts_with(' ') { Some(end) } else { rest[..end].rfind(' ') };
            let end = blank.filter(|at| *at >= end / 2 && *at > 0).unwrap_or(end);
            lines.push(rest[..end].trim_end().to_owned());
            rest = rest[end..].trim_start_matches(if blank.is_some() { ' ' } else { '\0' });
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// The text padded to `wide` columns, at its end or its beginning.
pub fn pad(text: &str, wide: usize, right: bool) -> String {
    let blanks = " ".repeat(wide.saturating_sub(display_width(text)));
    if right { format!("{blanks}{text}") } else { format!("{text}{blanks}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_every_character_but_the_blanks_at_their_ends() {
        assert_eq!(wrap("one two  three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("你好你好", 5), ["你好", "你好"]);
        assert_eq!(wrap("a\n\n\tb", 10), ["a", "", "    b"]);
        assert_eq!(wrap("你", 1), ["你"]);
        assert_eq!(wrap(&"x".repeat(1 << 20), 64).len(), 1 << 14, "it is not measured again and again");
        assert_eq!(
            (cut("abcdef", 4), cut("你好", 3), cut("ab", 2)),
            ("abc…".into(), "你…".into(), "ab".into())
        );
    }
}
