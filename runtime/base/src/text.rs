//! Shortens texts for messages, previews and lists.

use std::borrow::Cow;

/// Unit in which the length of a text is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// UTF-8 bytes.
    Bytes,
    /// Unicode scalar values.
    Chars,
    /// UTF-16 code units, by which ECMAScript measures a text's length.
    Utf16,
}

impl Count {
    fn of_char(self, c: char) -> usize {
        match self {
            Self::Bytes => c.len_utf8(),
            Self::Chars => 1,
            Self::Utf16 => c.len_utf16(),
        }
    }
}

/// The longest prefix of a text with a length of at most `max`. No character is split.
#[must_use]
pub fn prefix(text: &str, max: usize, count: Count) -> &str {
    if text.len() <= max {
        return text; // no count is above that of the bytes
    }
    let mut room = max;
    let too_much = text.char_indices().find(|(_, c)| match room.checked_sub(count.of_char(*c)) {
        Some(left) => {
            room = left;
            false
        }
        None => true,
    });
    &text[..too_much.map_or(text.len(), |(at, _)| at)]
}

/// At most `max` of a text, followed by `…` if something was cut.
#[must_use]
pub fn clip(text: &str, max: usize, count: Count) -> Cow<'_, str> {
    let kept = prefix(text, max, count);
    if kept.len() == text.len() { text.into() } else { format!("{kept}…").into() }
}

/// As [`clip`], but `max` includes the `…`.
#[must_use]
pub fn fit(text: &str, max: usize, count: Count) -> Cow<'_, str> {
    if prefix(text, max, count).len() == text.len() {
        return text.into();
    }
    format!("{}…", prefix(text, max.saturating_sub(1), count)).into()
}

/// At most `max` bytes of a text, followed by `… (N more bytes)` if something was cut.
#[must_use]
pub fn clip_telling_rest(text: &str, max: usize) -> Cow<'_, str> {
    let kept = prefix(text, max, Count::Bytes);
    match text.len() - kept.len() {
        0 => text.into(),
        more => format!("{kept}… ({more} more bytes)").into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COUNTS: [Count; 3] = [Count::Bytes, Count::Chars, Count::Utf16];

    fn length(text: &str, count: Count) -> usize {
        text.chars().map(|c| count.of_char(c)).sum()
    }

    #[test]
    fn what_is_cut_is_marked() {
        assert_eq!(clip("abcd", 3, Count::Chars), "abc…");
        assert_eq!(clip("abc", 3, Count::Chars), "abc");
        assert_eq!(fit("abcd", 3, Count::Chars), "ab…");
        assert_eq!(fit("abc", 3, Count::Chars), "abc");
        assert_eq!(clip_telling_rest("aéb", 2), "a… (3 more bytes)");
        assert_eq!(["a🦞b", "abc"].map(|text| prefix(text, 3, Count::Utf16)), ["a🦞", "abc"]);
        assert_eq!(prefix("a🦞b", 2, Count::Utf16), "a");
    }

    proptest! {
        #[test]
        fn a_prefix_is_the_longest_that_fits(text in "\\PC{0,12}", max in 0_usize..30) {
            for count in COUNTS {
                let kept = prefix(&text, max, count);
                prop_assert!(text.starts_with(kept) && length(kept, count) <= max);
                if let Some(next) = text[kept.len()..].chars().next() {
                    prop_assert!(length(kept, count) + count.of_char(next) > max);
                }
                prop_assert!(max == 0 || length(&fit(&text, max, Count::Chars), Count::Chars) <= max);
            }
        }
    }
}
