//! Brace expressions, backquotes and `$'...'`: text that stands for other text.

use brush_parser::word::{BraceExpressionMember, BraceExpressionOrText};

use super::analysis::MAX_VALUES;

/// Whether a run of digits stands where the word parser would overflow on it.
pub(crate) fn has_huge_number(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    let mut run = 0usize;
    for (at, byte) in bytes.iter().enumerate() {
        if byte.is_ascii_digit() {
            run += 1;
            if run > 18 {
                let before = at.checked_sub(run).map(|i| bytes[i]);
                if matches!(before, Some(b'~' | b'{' | b'.' | b'+' | b'-' | b',')) {
                    return true;
                }
            }
        } else {
            run = 0;
        }
    }
    false
}

/// All the words a brace expression stands for, or `None` when they are too
/// many.
pub(crate) fn brace_words(pieces: &[BraceExpressionOrText]) -> Option<Vec<String>> {
    let mut words = vec![String::new()];
    for piece in pieces {
        let parts = match piece {
            BraceExpressionOrText::Text(text) => vec![text.clone()],
            BraceExpressionOrText::Expr(members) => {
                let mut parts = Vec::new();
                for member in members {
                    parts.extend(brace_member(member)?);
                }
                parts
            }
        };
        if words.len().saturating_mul(parts.len()) > MAX_VALUES {
            return None;
        }
        words = words.iter().flat_map(|head| parts.iter().map(move |part| format!("{head}{part}"))).collect();
    }
    Some(words)
}

fn brace_member(member: &BraceExpressionMember) -> Option<Vec<String>> {
    match member {
        BraceExpressionMember::Child(pieces) => brace_words(pieces),
        BraceExpressionMember::NumberSequence { start, end, increment } => {
            let step = increment.unsigned_abs().max(1);
            let count = start.abs_diff(*end) / step;
            if count >= MAX_VALUES as u64 {
                return None;
            }
            let step = i64::try_from(step).ok()?;
            let sign = if end < start { -1 } else { 1 };
            (0..=i64::try_from(count).ok()?)
                .map(|i| Some(start.checked_add(sign * step.checked_mul(i)?)?.to_string()))
                .collect()
        }
        BraceExpressionMember::CharSequence { start, end, increment } => {
            let (low, high) = (u32::from(*start), u32::from(*end));
            let step = u32::try_from(increment.unsigned_abs().max(1)).ok()?;
            let count = low.abs_diff(high) / step;
            (0..=count)
                .map(|i| {
                    let code = if high < low { low - i * step } else { low + i * step };
                    char::from_u32(code).map(String::from)
                })
                .collect()
        }
    }
}

pub(crate) fn unescape_backquoted(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' && matches!(chars.peek(), Some('$' | '`' | '\\')) {
            out.extend(chars.next());
        } else {
            out.push(c);
        }
    }
    out
}

/// Decodes the inside of `$'...'`; `None` when it stands for a character that
/// cannot be shown.
pub(crate) fn decode_ansi_c(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let decoded = match rest.next() {
            None => '\\',
            Some('n') => '\n',
            Some('t') => '\t',
            Some(c @ ('\\' | '\'' | '"' | '?')) => c,
            Some('x') => number(&mut rest, 16, 2)?,
            Some('u') => number(&mut rest, 16, 4)?,
            Some('U') => number(&mut rest, 16, 8)?,
            Some(digit @ '0'..='7') => {
                let mut again = rest.clone();
                let mut value = digit.to_digit(8)?;
                for _ in 0..2 {
                    let mut peek = again.clone();
                    match peek.next().and_then(|c| c.to_digit(8)) {
                        Some(next) => {
                            value = value * 8 + next;
                            again = peek;
                        }
                        None => break,
                    }
                }
                rest = again;
                char::from_u32(value & 0xff)?
            }
            // \a \b \e \f \r \v and \cX are control characters.
            Some('a' | 'b' | 'e' | 'E' | 'f' | 'r' | 'v' | 'c') => return None,
            Some(other) => {
                out.push('\\');
                other
            }
        };
        if decoded != '\n' && decoded != '\t' && decoded.is_control() {
            return None;
        }
        out.push(decoded);
    }
    Some(out)
}

fn number(rest: &mut std::str::Chars<'_>, radix: u32, most: usize) -> Option<char> {
    let mut value = 0;
    for _ in 0..most {
        let mut peek = rest.clone();
        match peek.next().and_then(|c| c.to_digit(radix)) {
            Some(digit) => {
                value = value * radix + digit;
                *rest = peek;
            }
            None => break,
        }
    }
    char::from_u32(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ansi_c_quotes_decode() {
        assert_eq!(decode_ansi_c(r"\x72\155\n").as_deref(), Some("rm\n"));
        assert_eq!(decode_ansi_c(r"\57\'").as_deref(), Some("/'"));
        assert_eq!(decode_ansi_c(r"\q"), Some("\\q".to_owned()));
        assert_eq!(decode_ansi_c(r"\e[2K"), None);
        assert_eq!(decode_ansi_c(r"\x00"), None);
    }

    #[test]
    fn huge_numbers_do_not_reach_the_word_parser() {
        assert!(has_huge_number("{1..99999999999999999999}"));
        assert!(has_huge_number("~99999999999999999999"));
        assert!(!has_huge_number("99999999999999999999"));
    }
}
