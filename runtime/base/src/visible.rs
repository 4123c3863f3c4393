//! Makes text from others safe to show to people: characters that are invisible, change the direction of writing or
//! control the terminal are made visible or removed.

use std::borrow::Cow;

/// True if a character is invisible, controls the terminal or changes the direction of writing. Line breaks and tabs
/// are excluded, and so is a joiner if `may_join`.
fn is_hidden(c: char, may_join: bool) -> bool {
    match c {
        '\n' | '\t' => false,
        _ if is_joiner(c) => !may_join,
        _ => c.is_control() || is_blank(c),
    }
}

/// Joiners and variation selectors belong to emoji and to scripts that need them; in a command or an address they only
/// hide a difference.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

fn is_selector(c: char) -> bool {
    !matches!(c, '\u{200c}' | '\u{200d}')
}

/// Blank characters other than the ordinary blanks.
fn is_blank(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text, with each hidden character written by `words`.
#[must_use]
pub fn replace_hidden(text: &str, words: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    // The character that a joiner would change, and the previous one.
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

/// Spaces that look like the ordinary one and do not separate the words of a command.
fn is_other_space(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// Fewest blanks in a row that are shown by their number, because on a screen they look like the end of a line.
const MANY_BLANKS: usize = 32;

const ORDINARY_BLANKS: [char; 2] = [' ', '\t'];

/// The exact text: `^[` for an escape, `<U+202E>` for a change of direction, `<U+00A0>` for another space than the
/// ordinary one, `<40 blanks>` for a long run of ordinary ones.
#[must_use]
pub fn exact(text: &str) -> Cow<'_, str> {
    let name = |out: &mut String, c: char| match u32::from(c) {
        code @ 0..0x20 => out.extend(['^', char::from_u32(code + 0x40).unwrap_or('?')]),
        0x7f => out.push_str("^?"),
        code => out.push_str(&format!("<U+{code:04X}>")),
    };
    let mut shown = replace_hidden(text, name);
    if shown.contains(is_other_space) {
        let mut out = String::with_capacity(shown.len());
        for c in shown.chars() {
            if is_other_space(c) { name(&mut out, c) } else { out.push(c) }
        }
        shown = Cow::Owned(out);
    }
    match shown.split(|c: char| !ORDINARY_BLANKS.contains(&c)).any(|blanks| blanks.len() >= MANY_BLANKS) {
        true => Cow::Owned(count_blanks(&shown)),
        false => shown,
    }
}

/// The text with the number of blanks for each long run of them.
fn count_blanks(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        let after = rest.trim_start_matches(ORDINARY_BLANKS);
        let (blanks, _) = rest.split_at(rest.len() - after.len());
        match blanks.len() < MANY_BLANKS {
            true => out.push_str(blanks),
            false => out.push_str(&format!("<{} blanks>", blanks.len())),
        }
        let (word, more) = after.split_at(after.find(ORDINARY_BLANKS).unwrap_or(after.len()));
        out.push_str(word);
        rest = more;
    }
    out
}

/// Prefix of each line that quotes a text of others.
pub const BAR: &str = "│ ";

/// The text with a bar before each line except the first, as far to the right as the first line.
#[must_use]
pub fn bar_further_lines(text: &str) -> String {
    let indent = text.len() - text.trim_start_matches(' ').len();
    text.replace('\n', &format!("\n{}{BAR}", " ".repeat(indent)))
}

/// The text without characters that control the terminal, change the direction of writing or are invisible. It comes
/// from steps, models and files, and a person decides by what they see.
#[must_use]
pub fn harmless(text: &str) -> Cow<'_, str> {
    replace_hidden(text, |out, _| out.push(char::REPLACEMENT_CHARACTER))
}

/// The same on one line, since a second line could pass for one of lobster's.
#[must_use]
pub fn one_line(text: &str) -> String {
    harmless(text).split(['\n', '\t']).collect::<Vec<_>>().join(" ")
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
        // Between Latin letters, a joiner only hides a difference.
        assert_eq!(exact("git\u{200d}hub\u{fe0f}"), "git<U+200D>hub<U+FE0F>");
        assert_eq!(exact("é\u{200d}\u{200d}"), "é\u{200d}<U+200D>");
        assert_eq!(exact("x\u{e0041}\u{3164}"), "x<U+E0041><U+3164>");
        // Prose may have other spaces; in a command they only look like two arguments.
        assert_eq!(exact("rm a\u{a0}b\u{3000}c\u{200b}"), "rm a<U+00A0>b<U+3000>c<U+200B>");
        assert_eq!(harmless("10\u{a0}km"), "10\u{a0}km");
    }

    #[test]
    fn many_blanks_are_counted() {
        let blanks = |count: usize| " ".repeat(count);
        let fine = format!("a{}b\n{}\tc", blanks(31), blanks(30));
        assert_eq!(exact(&fine), fine);
        assert_eq!(exact(&format!("a{}b c", blanks(3000))), "a<3000 blanks>b c");
        assert_eq!(
            exact(&format!("{}\t\n{}a\u{a0}", blanks(31), blanks(32))),
            "<32 blanks>\n<32 blanks>a<U+00A0>"
        );
        assert_eq!(exact(&" \t".repeat(20)), "<40 blanks>");
    }

    #[test]
    fn further_lines_have_a_bar() {
        assert_eq!(bar_further_lines("   run: a\n4. b\n"), "   run: a\n   │ 4. b\n   │ ");
        assert_eq!(bar_further_lines("a"), "a");
    }
}
