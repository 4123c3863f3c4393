//! Text in columns of a terminal: how wide it is, where it is cut, how what
//! cannot be seen is made visible.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Whether a character shows nothing, commands the terminal or turns the direction of
/// writing. Line breaks and tabs do not count, nor a joiner that `may_join`.
fn is_hidden(c: char, may_join: bool) -> bool {
    match c {
        '\n' | '\t' => false,
        _ if is_joiner(c) => !may_join,
        _ => c.is_control() || is_blank(c),
    }
}

/// Joiners and variation selectors belong to emoji and to scripts that need them; in a
/// command or an address they only hide a difference.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

fn is_selector(c: char) -> bool {
    !matches!(c, '\u{200c}' | '\u{200d}')
}

/// Characters without a picture of their own, besides the plain blanks.
fn is_blank(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text with each hidden character put in other words.
pub(super) fn visible(text: &str, words: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    // The character that a joiner would change, and the one right before.
    let (mut base, mut last) = (' ', ' ');
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let keycap = characters.peek().is_some_and(|(_, next)| *next == '\u{20e3}');
        let once = is_joiner(last) && (is_selector(last) == is_selector(c));
        let may_join = (!base.is_ascii() && !is_blank(base) && !once) || keycap;
        if is_hidden(c, may_join) {
            words(out.get_or_insert_with(|| text[..at].to_owned()), c);
        } else if let Some(out) = &mut out {
            out.push(c);
        }
        last = c;
        if !is_joiner(c) {
            base = c;
        }
    }
    out.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The text to the letter: `^[` for an escape, `<U+202E>` for what turns the writing.
pub(crate) fn exact(text: &str) -> Cow<'_, str> {
    visible(text, |out, c| match u32::from(c) {
        code @ 0..0x20 => out.extend(['^', char::from_u32(code + 0x40).unwrap_or('?')]),
        0x7f => out.push_str("^?"),
        code => out.push_str(&format!("<U+{code:04X}>")),
    })
}

/// How many columns a terminal may use for a text without line breaks.
pub(crate) fn width(text: &str) -> usize {
    let mut before = 0;
    let sum = text.chars().map(|c| {
        before = columns(c, before);
        before
    });
    sum.sum::<usize>().max(UnicodeWidthStr::width(text))
}

/// The columns of a character after one of so many.
fn columns(c: char, before: usize) -> usize {
    match c {
        // It makes a picture of a narrow sign. At the beginning of a piece that sign is
        // whatever the piece is put behind.
        '\u{fe0f}' if before < 2 => 1,
        _ => c.width().unwrap_or(1),
    }
}

/// The longest beginning that is no wider than `max`, as its length in bytes.
fn fitting(text: &str, max: usize) -> usize {
    let (mut used, mut before) = (0, 0);
    for (at, c) in text.char_indices() {
        before = columns(c, before);
        used += before;
        if used > max {
            return at;
        }
    }
    text.len()
}

/// The text on one line of at most `max` columns; `…` says that something is missing.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if width(text) <= max {
        return text.into();
    }
    match max {
        0 => "".into(),
        _ => {
            let mut end = fitting(text, max - 1);
            // The measure of a whole can be above that of its parts.
            while end > 0 && width(&text[..end]) >= max {
                end = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
            }
            format!("{}…", &text[..end]).into()
        }
    }
}

/// The text in lines of at most `max` columns: at its own line breaks, at blanks where there are
/// some, and anywhere else. Nothing is lost but the blanks that end a line.
pub(crate) fn wrap(text: &str, max: usize) -> Vec<String> {
    let max = max.max(2);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = line.replace('\t', "    ");
        let mut rest = line.as_str();
        while width(rest) > max {
            let mut end = fitting(rest, max).max(rest.chars().next().map_or(0, char::len_utf8));
            while width(&rest[..end]) > max && end > 1 {
                let shorter = rest[..end].char_indices().next_back().map_or(0, |(at, _)| at);
                if shorter == 0 {
                    break;
                }
                end = shorter;
            }
            // A word goes to the next line, unless it takes up most of this one.
            let blank = if rest[end..].starts_with(' ') { Some(end) } else { rest[..end].rfind(' ') };
            let end = blank.filter(|at| *at >= end / 2 && *at > 0).unwrap_or(end);
            lines.push(rest[..end].trim_end().to_owned());
            rest = rest[end..].trim_start_matches(if blank.is_some() { ' ' } else { '\0' });
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// The text filled up to `wide` columns, at its end or its beginning.
pub(crate) fn pad(text: &str, wide: usize, right: bool) -> String {
    let blanks = " ".repeat(wide.saturating_sub(width(text)));
    if right { format!("{blanks}{text}") } else { format!("{text}{blanks}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_named() {
        assert_eq!(
            exact("a\u{1b}[2J\u{7f}\u{9b}\u{202e}b\u{200b}c\u{ad}"),
            "a^[[2J^?<U+009B><U+202E>b<U+200B>c<U+00AD>"
        );
        for fine in ["Grüße,\n\t你好", "👩‍🚀 ☁️ 1️⃣ 🏳️‍🌈", "می‌خواهم"] {
            assert_eq!(exact(fine), fine);
        }
        // Between Latin letters a joiner only hides a difference.
        assert_eq!(exact("git\u{200d}hub\u{fe0f}"), "git<U+200D>hub<U+FE0F>");
        assert_eq!(exact("é\u{200d}\u{200d}"), "é\u{200d}<U+200D>");
        assert_eq!(exact("x\u{e0041}\u{3164}"), "x<U+E0041><U+3164>");
    }

    #[test]
    fn lines_keep_every_character_but_the_blanks_at_their_ends() {
        assert_eq!(wrap("one two  three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("你好你好", 5), ["你好", "你好"]);
        assert_eq!(wrap("a\n\n\tb", 10), ["a", "", "    b"]);
        assert_eq!(wrap("你", 1), ["你"]);
        assert_eq!(
            (cut("abcdef", 4), cut("你好", 3), cut("ab", 2)),
            ("abc…".into(), "你…".into(), "ab".into())
        );
    }
}
