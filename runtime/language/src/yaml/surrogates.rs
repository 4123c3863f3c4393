//! Escaped surrogate pairs in double-quoted text, as ASCII JSON writers print an emoji:
//! `"\ud83d\ude80"`.
//!
//! The parser only accepts characters. Each half is therefore replaced with the number of a character
//! that the file does not contain, with the same number of letters. In the texts from the parser, the
//! halves are restored as pairs or as U+FFFD.

use std::borrow::Cow;

/// First digits of the numbers that may replace `d`: each gives 2,048 numbers (`3800` to `3fff`), one
/// for every half. Blocks that few files use come first.
const DIGITS: &[u8] = b"3eaf4bc192567";

/// First digits that replace `d` and `D` in the escapes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StandIns {
    lower: u8,
    upper: u8,
}

impl StandIns {
    /// Text for the parser, of the same length; `None` if it has no halves or no numbers are free.
    pub(super) fn put_into(text: &str) -> Option<(String, Self)> {
        let halves: Vec<usize> = surrogate_positions(text.as_bytes()).collect();
        if halves.is_empty() {
            return None;
        }
        let mut free = DIGITS.iter().copied().filter(|digit| is_free(text, *digit));
        let stand_ins = Self { lower: free.next()?, upper: free.next()? };
        let mut bytes = text.as_bytes().to_vec();
        for at in halves {
            bytes[at] = if bytes[at] == b'd' { stand_ins.lower } else { stand_ins.upper };
        }
        Some((String::from_utf8(bytes).ok()?, stand_ins))
    }

    /// Text of the parser with the halves of the file. Only double-quoted text has escapes.
    pub(super) fn taken_from<'t>(self, text: &'t str, is_double_quoted: bool) -> Cow<'t, str> {
        let block = |digit: u8| {
            u16::from_str_radix(char::from(digit).encode_utf8(&mut [0; 4]), 16).unwrap_or(0) << 12
        };
        let (lower, upper) = (block(self.lower), block(self.upper));
        let half = |c: char| {
            let unit = u16::try_from(u32::from(c)).ok()?;
            let is_half = unit & 0x800 != 0 && (unit & 0xf000 == lower || unit & 0xf000 == upper);
            is_half.then_some(unit & 0xfff | 0xd000)
        };
        let text = match is_double_quoted && text.chars().any(|c| half(c).is_some()) {
            false => Cow::Borrowed(text),
            true => {
                let mut buffer = [0; 2];
                let units = text.chars().flat_map(|c| match half(c) {
                    Some(unit) => vec![unit],
                    None => c.encode_utf16(&mut buffer).to_vec(),
                });
                let units: Vec<u16> = units.collect();
                Cow::Owned(String::from_utf16_lossy(&units))
            }
        };
        // Escapes outside of double quotes are plain text.
        let looks_alike: Vec<usize> = escape_positions(text.as_bytes(), &[self.lower, self.upper]).collect();
        if looks_alike.is_empty() {
            return text;
        }
        let mut bytes = text.into_owned().into_bytes();
        for at in looks_alike {
            bytes[at] = if bytes[at] == self.lower { b'd' } else { b'D' };
        }
        Cow::Owned(String::from_utf8(bytes).unwrap_or_default())
    }
}

/// True if no character of the text, written or escaped, has a number in this block.
fn is_free(text: &str, digit: u8) -> bool {
    let digit = digit.to_ascii_lowercase();
    let first = char::from(digit).to_digit(16).unwrap_or(0);
    let is_in_block = |c: char| u32::from(c) >> 12 == first && u32::from(c) & 0x800 != 0;
    let lowercase = text.to_ascii_lowercase();
    let long = format!("\\U0000{}", char::from(digit)).to_ascii_lowercase();
    let short = format!("\\u{}", char::from(digit));
    !text.chars().any(is_in_block) && !lowercase.contains(&long) && !lowercase.contains(&short)
}

/// Position of the first digit of each escape of a half.
fn surrogate_positions(text: &[u8]) -> impl Iterator<Item = usize> {
    escape_positions(text, b"dD")
}

/// Position of the first digit of each `\uXYZZ` in which X is in `first` and Y is `8` to `f`. A second
/// backslash does not begin an escape.
fn escape_positions<'t>(text: &'t [u8], first: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + text.get(from..)?.iter().position(|byte| *byte == b'\\')?;
            from = at + 2;
            if let Some([b'u', digit, second, rest @ ..]) = text.get(at + 1..at + 6)
                && first.contains(digit)
                && matches!(second, b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                && rest.iter().all(u8::is_ascii_hexdigit)
            {
                return Some(at + 2);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_come_back_as_they_were_written() {
        let text = r#"{"a": "\ud83d\ude80 \uD83D\uDE80", "b\\ud83d": 'x \ud83d', "c": "\ud83d!"} # \uE000"#;
        let (hidden, stand_ins) = StandIns::put_into(text).unwrap();
        assert_eq!((hidden.len(), stand_ins), (text.len(), StandIns { lower: b'3', upper: b'a' }));
        assert_eq!(stand_ins.taken_from(&hidden, false), text);
        let pairs = "\u{383d}\u{3e80} \u{a83d}\u{ae80}\u{383d}";
        assert_eq!(stand_ins.taken_from(pairs, true), "🚀 🚀\u{fffd}");
        assert_eq!(StandIns::put_into(r#""\\ud83d \ud7ff \u00e9""#), None);
        // Blocks of characters that the file contains are not used.
        let (_, others) = StandIns::put_into("㿿 \u{afff} \\ud83d \\u4e2d").unwrap();
        assert_eq!((others.lower, others.upper), (b'e', b'f'));
    }
}
