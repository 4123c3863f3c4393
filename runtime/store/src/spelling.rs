//! Decodes characters in text: plain, or escaped for a URL, for JSON or a programming language, or for HTML. Also
//! finds line breaks that wrap digits.

/// Longest escape of one character (`\\\\u{10ffff}` and the like).
pub(super) const LONGEST: usize = 16;

/// Most blanks after a line break that belong to it: wrapped digits may be indented.
pub(super) const INDENT: usize = 16;

/// A decoded character, and the position after it.
#[derive(Clone, Copy)]
struct Reading {
    bytes: [u8; 4],
    len: usize,
    next: usize,
}

impl Reading {
    fn from_byte(byte: u8, next: usize) -> Self {
        Self { bytes: [byte, 0, 0, 0], len: 1, next }
    }

    fn from_code_point(code: u32, next: usize) -> Option<Self> {
        let mut bytes = [0; 4];
        let len = char::from_u32(code)?.encode_utf8(&mut bytes).len();
        Some(Self { bytes, len, next })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// True if an escape may begin with this byte.
pub(super) fn begins_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&')
}

/// Calls `each` with the first byte of every decoding of the escape at `at`.
pub(super) fn first_bytes(text: &[u8], at: usize, mut each: impl FnMut(u8)) {
    decode_escape(text, at, &mut |reading| each(reading.bytes[0]));
}

/// Possible first bytes of the escape at a position, found by a quick check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glance {
    /// No escape.
    Nothing,
    /// One of these bytes, which may be equal.
    Bytes(u8, u8),
    /// A line break, or the other byte; and the position after the break.
    Break(u8, u8, usize),
    /// The quick check cannot tell.
    Unclear,
}

/// Checks the `%`, `\\` or `&` at `at`. Agrees with [`first_bytes`] unless it is unclear.
pub(super) fn classify_escape(text: &[u8], at: usize) -> Glance {
    let one = |byte: u8, next: usize| match byte {
        b'\n' | b'\r' => Glance::Break(byte, byte, next),
        byte => Glance::Bytes(byte, byte),
    };
    match (text[at], &text[at + 1..]) {
        (b'%', [high, low, ..]) => match (DIGIT[usize::from(*high)], DIGIT[usize::from(*low)]) {
            (NO_DIGIT, _) | (_, NO_DIGIT) => Glance::Nothing,
            (high, low) => one(high << 4 | low, at + 3),
        },
        (b'&', [b'#', ..]) => Glance::Unclear,
        (b'&', [b'a', ..]) => Glance::Bytes(b'&', b'\''),
        (b'&', [b'l', ..]) => Glance::Bytes(b'<', b'<'),
        (b'&', [b'g', ..]) => Glance::Bytes(b'>', b'>'),
        (b'&', [b'q', ..]) => Glance::Bytes(b'"', b'"'),
        (b'\\', [b'\\', rest @ ..]) => match rest {
            [b'\\', ..] | [] => Glance::Unclear,
            // Two backslashes, or an escaped one.
            [kind, ..] => match escaped_byte(*kind) {
                Some(byte @ (b'\n' | b'\r')) => Glance::Break(byte, b'\\', at + 3),
                Some(byte) => Glance::Bytes(b'\\', byte),
                None if is_code(*kind) => Glance::Unclear,
                None => Glance::Bytes(b'\\', b'\\'),
            },
        },
        (b'\\', [b'u', first, second, third, fourth, ..]) => {
            let digits = [first, second, third, fourth].map(|digit| DIGIT[usize::from(*digit)]);
            if digits.contains(&NO_DIGIT) {
                return Glance::Unclear;
            }
            match digits {
                [0, 0, 0..8, _] => one(digits[2] << 4 | digits[3], at + 6),
                [0, 0..8, ..] => {
                    let lead = 0xc0 | digits[1] << 2 | digits[2] >> 2;
                    Glance::Bytes(lead, lead)
                }
                [0xd, 8..=15, ..] => Glance::Unclear,
                [high, ..] => Glance::Bytes(0xe0 | high, 0xe0 | high),
            }
        }
        (b'\\', [kind, ..]) => match escaped_byte(*kind) {
            Some(byte) => one(byte, at + 2),
            None if is_code(*kind) => Glance::Unclear,
            None => Glance::Nothing,
        },
        // Cut off, so the rest is unknown.
        (_, rest) if rest.len() < LONGEST => Glance::Unclear,
        _ => Glance::Nothing,
    }
}

/// The character that a letter or mark after a backslash represents.
fn escaped_byte(kind: u8) -> Option<u8> {
    let byte = CONTROL[usize::from(kind)];
    (byte != 0).then_some(byte)
}

/// Characters by the letter after the backslash; zero if it represents none.
static CONTROL: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut kind = 0;
    while kind < 128_u8 {
        bytes[kind as usize] = match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'a' => 7,
            b'e' => 27,
            b' ' => b' ',
            other if other.is_ascii_punctuation() => other,
            _ => 0,
        };
        kind += 1;
    }
    bytes
};

/// True if this letter after a backslash introduces or begins a number.
const fn is_code(kind: u8) -> bool {
    matches!(kind, b'u' | b'U' | b'x' | b'0'..=b'7')
}

/// Value of each hexadecimal digit.
pub(super) static DIGIT: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value.to_le_bytes()[0];
        digits[b"0123456789ABCDEF"[value] as usize] = value.to_le_bytes()[0];
        value += 1;
    }
    digits
};

/// In [`DIGIT`]: not a digit.
pub(super) const NO_DIGIT: u8 = 0xff;

/// All decodings of the escape at `at`, without the plain character.
fn decode_escape(text: &[u8], at: usize, each: &mut dyn FnMut(Reading)) {
    match text[at] {
        b'%' => {
            if let Some(byte) = parse_hex(text, at + 1, 2) {
                each(Reading::from_byte(low_byte(byte), at + 3));
            }
        }
        b'+' => each(Reading::from_byte(b' ', at + 1)),
        b'&' => {
            if let Some(reading) = decode_entity(text, at) {
                each(reading);
            }
        }
        b'\\' => decode_backslash(text, at, each),
        _ => {}
    }
}

/// `&#115;`, `&#x73;` and the names of characters that HTML must escape.
fn decode_entity(text: &[u8], at: usize) -> Option<Reading> {
    let rest = &text[at + 1..];
    const NAMES: [(&[u8], u8); 5] =
        [(b"amp", b'&'), (b"lt", b'<'), (b"gt", b'>'), (b"quot", b'"'), (b"apos", b'\'')];
    for (name, byte) in NAMES {
        if rest.starts_with(name) && rest.get(name.len()) == Some(&b';') {
            return Some(Reading::from_byte(byte, at + name.len() + 2));
        }
    }
    let rest = rest.strip_prefix(b"#")?;
    let (radix, digits) = match rest.first()? {
        b'x' | b'X' => (16, &rest[1..]),
        _ => (10, rest),
    };
    let count = digits.iter().take(8).take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let code = u32::from_str_radix(std::str::from_utf8(&digits[..count]).ok()?, radix).ok()?;
    let mut next = text.len() - digits.len() + count;
    if text.get(next) == Some(&b';') {
        next += 1;
    }
    Reading::from_code_point(code, next)
}

/// The escape after a backslash, even if the backslash is itself escaped, any number of times.
fn decode_backslash(text: &[u8], at: usize, each: &mut dyn FnMut(Reading)) {
    let run = text[at..].iter().take(LONGEST).take_while(|byte| **byte == b'\\').count();
    for len in [2, 4] {
        if run >= len {
            each(Reading::from_byte(b'\\', at + len));
        }
    }
    let after = at + run;
    let Some(&kind) = text.get(after) else { return };
    if let Some(byte) = escaped_byte(kind) {
        each(Reading::from_byte(byte, after + 1));
    }
    match kind {
        b'u' => {
            if let Some(reading) = decode_unicode(text, after, &text[at..after]) {
                each(reading);
            }
        }
        b'U' => {
            if let Some(reading) =
                parse_hex(text, after + 1, 8).and_then(|code| Reading::from_code_point(code, after + 9))
            {
                each(reading);
            }
        }
        b'x' => {
            if let Some(byte) = parse_hex(text, after + 1, 2) {
                each(Reading::from_byte(low_byte(byte), after + 3));
            }
        }
        b'0'..=b'7' => {
            let digits = text[after..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let code =
                text[after..after + digits].iter().fold(0, |code, byte| code * 8 + u32::from(byte - b'0'));
            each(Reading::from_byte(low_byte(code), after + digits));
        }
        _ => {}
    }
}

/// `u0073`, `u{73}`, and the two halves of a character beyond 16 bits.
fn decode_unicode(text: &[u8], at: usize, slashes: &[u8]) -> Option<Reading> {
    if text.get(at + 1) == Some(&b'{') {
        let digits = text[at + 2..].iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let code = parse_hex(text, at + 2, digits)?;
        return (text.get(at + 2 + digits) == Some(&b'}'))
            .then(|| Reading::from_code_point(code, at + 3 + digits))?;
    }
    let code = parse_hex(text, at + 1, 4)?;
    if !(0xd800..0xdc00).contains(&code) {
        return Reading::from_code_point(code, at + 5);
    }
    let rest = text[at + 5..].strip_prefix(slashes)?.strip_prefix(b"u")?;
    let second = parse_hex(rest, 0, 4).filter(|second| (0xdc00..0xe000).contains(second))?;
    Reading::from_code_point(
        0x1_0000 + ((code - 0xd800) << 10) + (second - 0xdc00),
        text.len() - rest.len() + 4,
    )
}

fn parse_hex(text: &[u8], at: usize, digits: usize) -> Option<u32> {
    let digits = text.get(at..at + digits).filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0, |code, byte| Some(code * 16 + char::from(*byte).to_digit(16)?))
}

fn low_byte(code: u32) -> u8 {
    (code & 0xff) as u8
}

/// Position after a line break between digits, escaped or not.
pub(super) fn after_break(text: &[u8], at: usize) -> Option<usize> {
    let mut next = at;
    loop {
        match text.get(next) {
            Some(b'\r' | b'\n') => next += 1,
            Some(byte) if begins_escape(*byte) => {
                let mut end = None;
                decode_escape(text, next, &mut |reading| {
                    if matches!(reading.bytes(), [b'\r' | b'\n']) {
                        end = Some(reading.next);
                    }
                });
                match end {
                    Some(end) => next = end,
                    None => break,
                }
            }
            _ => break,
        }
    }
    if next == at {
        return None;
    }
    let indent = text[next..].iter().take(INDENT).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Some(next + indent)
}

/// Kind of a searched text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpellingKind {
    /// Characters.
    Plain,
    /// Digits of base64, which may be wrapped.
    Digits,
    /// Digits of a number, which may be wrapped and in upper or lower case.
    Hex,
}

/// Result of comparing a text with a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpellingFound {
    /// The whole form matches and ends here.
    Whole(usize),
    /// The text ends before the form does.
    Cut,
    No,
}

/// Compares `text` from `at` on with `form`.
pub(super) fn follow_form(text: &[u8], at: usize, form: &[u8], kind: SpellingKind) -> SpellingFound {
    follow_from(text, at, form, kind, false)
}

/// The same for the rest of a form, whose start precedes `at` if `is_rest` is true.
pub(super) fn follow_from(
    text: &[u8],
    at: usize,
    form: &[u8],
    kind: SpellingKind,
    is_rest: bool,
) -> SpellingFound {
    // A byte has few decodings; the limit is for text crafted to have many.
    let mut steps = 64 + 16 * form.len();
    let mut open = vec![(at, 0)];
    let mut cut = false;
    while let Some((at, done)) = open.pop() {
        if done == form.len() {
            return SpellingFound::Whole(at);
        }
        steps -= 1;
        if steps == 0 {
            break;
        }
        let Some(&byte) = text.get(at) else {
            cut |= done > 0 || is_rest;
            continue;
        };
        let wanted = &form[done..];
        if kind != SpellingKind::Plain
            && (done > 0 || is_rest)
            && let Some(next) = after_break(text, at)
        {
            open.push((next, done));
        }
        let mut spelled = false;
        decode_escape(text, at, &mut |reading| {
            // An escape that reaches the end of the text may continue after it.
            spelled |= reading.next < text.len();
            if wanted.starts_with(reading.bytes()) {
                open.push((reading.next, done + reading.len));
            }
        });
        // The start of an escape that is incomplete so far.
        cut |= !spelled && begins_escape(byte) && text.len() - at < LONGEST;
        let is_same = byte == wanted[0] || kind == SpellingKind::Hex && byte.eq_ignore_ascii_case(&wanted[0]);
        if is_same {
            open.push((at + 1, done + 1));
        }
    }
    if cut { SpellingFound::Cut } else { SpellingFound::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_has_many_spellings() {
        let secret = "s3ö\\\"😀 n".as_bytes();
        for text in [
            "s3ö\\\"😀 n",
            "%73%33%c3%B6%5c%22%F0%9f%98%80+n",
            "\\u0073\\u0033\\u00F6\\\\\\\"\\ud83d\\uDE00\\u0020n",
            "\\\\u0073\\x33\\303\\266\\\\\\\"\\u{1f600}\\ n",
            "&#115;&#x33;&#246;&#92;&quot;&#x1F600;&#32n",
            "s%33ö\\\\&quot;😀\\040n",
        ] {
            assert_eq!(
                follow_form(text.as_bytes(), 0, secret, SpellingKind::Plain),
                SpellingFound::Whole(text.len()),
                "{text}"
            );
        }
        assert_eq!(follow_form(b"%73%3", 0, b"s3", SpellingKind::Plain), SpellingFound::Cut);
        assert_eq!(follow_form(b"s4", 0, b"s3", SpellingKind::Plain), SpellingFound::No);
    }

    #[test]
    fn digits_are_wrapped_in_many_ways() {
        for text in ["ab\ncd", "a\r\nb\r\nc\r\nd", "ab\n    cd", "ab\\ncd", "ab%0D%0Acd", "abc&#10;d"] {
            assert_eq!(
                follow_form(text.as_bytes(), 0, b"abcd", SpellingKind::Digits),
                SpellingFound::Whole(text.len()),
                "{text}"
            );
        }
        assert_eq!(follow_form(b"AB\nCd", 0, b"abcd", SpellingKind::Hex), SpellingFound::Whole(5));
        assert_eq!(follow_form(b"ab\ncd", 0, b"abcd", SpellingKind::Plain), SpellingFound::No);
        assert_eq!(follow_form(b"ab\n", 0, b"abcd", SpellingKind::Digits), SpellingFound::Cut);
    }
}
