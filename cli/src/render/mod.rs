//! How things look to a person.

pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod units;

use std::borrow::Cow;

/// The text without what commands a terminal or turns the direction of writing:
/// steps, models and files say it, and a person decides by what they see.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let commands = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(commands) {
        return text.into();
    }
    text.chars().map(|c| if commands(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_replaced_and_nothing_else() {
        assert_eq!(harmless("Grüße,\n\t你好 👩‍🚀"), "Grüße,\n\t你好 👩‍🚀");
        assert_eq!(harmless("delete\x1b[2K\rkeep\u{9b}1m\x07"), "delete�[2K�keep�1m�");
        assert_eq!(harmless("a\u{202e}b\u{2066}c"), "a�b�c");
    }
}
