//! Output of `echo` and `printf`, if it follows from their arguments.

use std::iter::Peekable;
use std::str::Chars;

use super::analysis::Arg;

/// Reason for output that differs from shell to shell and becomes code or words.
pub(crate) const DISPUTED: &str = "text in which shells read the backslashes differently";

/// Output of `echo`, if its arguments are known, and true if another shell may print other text.
pub(crate) fn echo_output(args: &[Arg]) -> (Option<String>, bool) {
    let flagged = args.first().is_some_and(|a| a.text.starts_with('-') && a.text.contains(['e', 'E']));
    (echoed_text(args), flagged || args.iter().any(|a| a.text.contains('\\')))
}

/// True if shells differ on the escapes in the output of `printf`.
pub(crate) fn disputes_printf(args: &[Arg]) -> bool {
    let Some((format, rest)) = args.split_first() else {
        return false;
    };
    !escaped_characters(&format.text).all(|c| matches!(c, 'n' | 't' | '\\' | '1'..='7'))
        || (format.text.contains("%b") && rest.iter().any(|a| a.text.contains('\\')))
}

/// The character after each backslash; a blank for a backslash at the end.
fn escaped_characters(text: &str) -> impl Iterator<Item = char> {
    let mut chars = text.chars();
    std::iter::from_fn(move || {
        chars.by_ref().find(|c| *c == '\\')?;
        Some(chars.next().unwrap_or(' '))
    })
}

fn echoed_text(args: &[Arg]) -> Option<String> {
    let mut words = args;
    let mut newline = true;
    let mut escapes = false;
    while let Some(first) = words.first()
        && let Some(flags) = first.text.strip_prefix('-')
        && !flags.is_empty()
        && flags.bytes().all(|b| matches!(b, b'n' | b'e' | b'E'))
    {
        newline &= !flags.contains('n');
        escapes |= flags.contains('e');
        words = &words[1..];
    }
    let words: Option<Vec<&str>> = words.iter().map(Arg::known_text).collect();
    let mut text = words?.join(" ");
    // dash interprets escapes by default; the longer reading is used.
    if escapes || text.contains('\\') {
        text = decode_escapes(&text)?;
    }
    if newline {
        text.push('\n');
    }
    Some(text)
}

/// Output of `printf`, if the format and arguments are known.
pub(crate) fn printf_output(args: &[Arg]) -> Option<String> {
    let format = decode_escapes(args.first()?.known_text()?)?;
    let words: Option<Vec<&str>> = args[1..].iter().map(Arg::known_text).collect();
    let mut words = words?.into_iter().peekable();
    let mut out = String::new();
    loop {
        let mut consumed = false;
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next()? {
                '%' => out.push('%'),
                's' => {
                    out.push_str(words.next().unwrap_or(""));
                    consumed = true;
                }
                'b' => {
                    out.push_str(&decode_escapes(words.next().unwrap_or(""))?);
                    consumed = true;
                }
                'd' | 'i' => {
                    out.push_str(words.next().unwrap_or("0"));
                    consumed = true;
                }
                _ => return None,
            }
        }
        if !consumed || words.peek().is_none() || out.len() > 65_536 {
            return Some(out);
        }
    }
}

/// Decodes backslash escapes as `echo -e` and `printf` do.
fn decode_escapes(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            None | Some('\\') => out.push('\\'),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('x') => out.push(char::from_u32(take_digits(&mut chars, 0, 16, 2))?),
            Some('0') => out.push(char::from_u32(take_digits(&mut chars, 0, 8, 3))?),
            Some(first @ '1'..='7') => {
                let value = take_digits(&mut chars, first.to_digit(8)?, 8, 2);
                out.push(char::from_u32(value & 0xff)?);
            }
            Some(other) => out.extend(['\\', other]),
        }
    }
    Some(out)
}

/// Value of a number that begins with `start` and has up to `most` more digits.
pub(crate) fn take_digits(chars: &mut Peekable<Chars<'_>>, start: u32, radix: u32, most: usize) -> u32 {
    let digits = std::iter::from_fn(|| chars.next_if(|c| c.is_digit(radix))?.to_digit(radix));
    digits.take(most).fold(start, |value, digit| value * radix + digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal_args(list: &[&str]) -> Vec<Arg> {
        list.iter().map(|w| Arg::literal(*w)).collect()
    }

    #[test]
    fn output_that_follows_from_the_words_is_known() {
        assert_eq!(echoed_text(&literal_args(&["-n", "a", "b"])).as_deref(), Some("a b"));
        assert_eq!(echoed_text(&literal_args(&["-e", r"\x72m"])).as_deref(), Some("rm\n"));
        assert_eq!(printf_output(&literal_args(&["%s\\n", "a", "b"])).as_deref(), Some("a\nb\n"));
        assert_eq!(printf_output(&literal_args(&[r"\162\155 -rf /"])).as_deref(), Some("rm -rf /"));
        assert_eq!(echoed_text(&[Arg::unknown()]), None);
        // dash prints a dot, and bash prints the escape.
        assert_eq!(echo_output(&literal_args(&[r"\056env"])), (Some(".env\n".to_owned()), true));
        assert!(echo_output(&literal_args(&["-e", "a"])).1 && !echo_output(&literal_args(&["a", "b"])).1);
        assert!(
            disputes_printf(&literal_args(&[r"\x2eenv"]))
                && !disputes_printf(&literal_args(&[r"%s\n", r"\x2e"]))
        );
    }
}
