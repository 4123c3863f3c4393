//! Decoding of percent-encoded text, which rejects invalid escapes.

use percent_encoding::percent_decode_str;

/// The decoded text; `None` if a `%` does not begin an escape, or the result is not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let decoded = || percent_decode_str(text).decode_utf8().ok().map(Into::into);
    text.split('%').skip(1).all(is_escape).then(decoded).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_digits_are_an_escape() {
        for (text, meant) in [("", ""), ("a+b", "a+b"), ("%41%c3%A9", "Aé"), ("%25+f", "%+f")] {
            assert_eq!(decode(text).as_deref(), Some(meant), "{text}");
        }
        for text in ["%", "%4", "%+f", "%-1", "% 1", "%%41", "%ff", "a%4g"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
