//! Dumps of bytes as printed by `xxd`, `od -tx1`, `od -c` and `hexdump -C`: a line has an offset, the bytes one by
//! one, and often the same bytes as characters.

use super::spelling::{DIGIT, NO_DIGIT};

/// A byte and its position.
pub(super) type Shown = (u8, std::ops::Range<usize>);

/// The bytes that a line shows, with their positions in `text`; `None` if it is not a line of a dump.
pub(super) fn bytes_of(text: &[u8], line: std::ops::Range<usize>) -> Option<Vec<Shown>> {
    let mut found = Vec::new();
    let is_one = read_line(&text[line.clone()], |byte, at| found.push((byte, at)));
    for (_, place) in &mut found {
        *place = place.start + line.start..place.end + line.start;
    }
    is_one.then_some(found)
}

/// Passes each byte that a line shows to `each`, with its position in the line. Returns false if it is not a line of a
/// dump; some bytes may have been passed by then.
pub(super) fn read_line(line: &[u8], mut each: impl FnMut(u8, std::ops::Range<usize>)) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A line never matches both: pairs of digits are not cells of four characters.
    may_be_one(line) && (read_digit_pairs(line, &mut each) || read_characters(line, &mut each))
}

/// A quick check that rules out nearly every line of other text.
fn may_be_one(line: &[u8]) -> bool {
    match line.first() {
        Some(b' ' | b'*') => {}
        Some(byte) if byte.is_ascii_hexdigit() => {}
        _ => return false,
    }
    let blanks = line.iter().take(5).take_while(|byte| **byte == b' ').count();
    let rest = &line[blanks..];
    let hex = rest.iter().take(17).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let next = rest.get(hex);
    match blanks {
        0 => line == b"*" || (hex >= 6 || hex == 2) && matches!(next, None | Some(b':' | b' ')),
        1..4 => !rest.is_empty() && (hex == 2 && matches!(next, None | Some(b' ')) || line.len() >= 4),
        _ => false,
    }
}

/// Reads pairs of digits after the offset.
fn read_digit_pairs(line: &[u8], each: &mut impl FnMut(u8, std::ops::Range<usize>)) -> bool {
    if line == b"*" {
        return true;
    }
    let (mut at, has_colon) = after_place(line);
    let mut found = false;
    loop {
        let blanks = line[at..].iter().take_while(|byte| **byte == b' ').count();
        at += blanks;
        // If a colon follows the offset, one blank separates groups, and two precede the characters.
        if at == line.len() || has_colon && blanks > 1 && found {
            break;
        }
        let len = line[at..].iter().take_while(|byte| DIGIT[usize::from(**byte)] != NO_DIGIT).count();
        let is_group = if has_colon { len > 0 && len % 2 == 0 && len <= 32 } else { len == 2 };
        if !is_group || !matches!(line.get(at + len), None | Some(b' ')) {
            break;
        }
        for (pair, two) in line[at..at + len].chunks_exact(2).enumerate() {
            let byte = DIGIT[usize::from(two[0])] << 4 | DIGIT[usize::from(two[1])];
            each(byte, at + 2 * pair..at + 2 * pair + 2);
        }
        found = true;
        at += len;
    }
    // The last line of a dump has only an offset.
    found || at == line.len() && at > 0
}

/// The end of the offset at the start of a line, and true if a colon follows it.
fn after_place(line: &[u8]) -> (usize, bool) {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    match line.get(digits) {
        Some(b':') if digits >= 6 => (digits + 1, true),
        None | Some(b' ') if digits >= 6 => (digits, false),
        _ => (0, false),
    }
}

/// Reads characters in cells of four, as printed by `od -c`.
fn read_characters(line: &[u8], each: &mut impl FnMut(u8, std::ops::Range<usize>)) -> bool {
    let (mut at, _) = after_place(line);
    let begin = at;
    while at < line.len() {
        let Some(cell) = line.get(at..at + 4) else { return false };
        let byte = match cell {
            [b' ', b' ', b' ', byte] => *byte,
            [b' ', b' ', b'\\', kind] => match kind {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'0' => 0,
                b'a' => 7,
                b'b' => 8,
                b'v' => 11,
                b'f' => 12,
                b'\\' => b'\\',
                _ => return false,
            },
            [b' ', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7'] => {
                (high - b'0') * 64 + (middle - b'0') * 8 + (low - b'0')
            }
            _ => return false,
        };
        each(byte, at..at + 4);
        at += 4;
    }
    at > begin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_line(line: &str) -> Option<String> {
        let bytes = bytes_of(line.as_bytes(), 0..line.len())?;
        Some(bytes.iter().map(|(byte, _)| char::from(*byte)).collect())
    }

    #[test]
    fn lines_of_the_usual_programs_are_read() {
        for (line, bytes) in [
            ("00000000: 7333 6372 0a                              s3cr.", "s3cr\n"),
            ("00000000: 6265 6566                                beef", "beef"),
            ("00000010: 73 33                                            s3", "s3"),
            ("00000000  73 33 63 72 33 74 2d 76  61 6c 75 65              |s3cr3t-value|", "s3cr3t-value"),
            ("0000000 73 33 63", "s3c"),
            (" 73 33 63", "s3c"),
            ("0000000   s   3   \u{5c}n".replace("   \u{5c}n", "  \\n").as_str(), "s3\n"),
            ("   s   3 303 266", "s3\u{c3}\u{b6}"),
            ("0000020", ""),
            ("*", ""),
        ] {
            assert_eq!(decode_line(line).as_deref(), Some(bytes), "{line}");
        }
        for line in [
            "",
            "hello there",
            "deadbeef is a word",
            "  indented text",
            "    four",
            "12 apples",
            "2026-01-01",
        ] {
            assert!(decode_line(line).is_none_or(|bytes| bytes.len() < 2), "{line}: {:?}", decode_line(line));
        }
    }
}
