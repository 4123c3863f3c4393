//! Errors of `saphyr-parser`, which have no type.
//!
//! This is the only place where lobster tells its errors apart by their text. The version of the parser
//! is pinned exactly, and the test below provokes each error in the parser itself, so a release that
//! changes a text fails it. An unrecognised error is treated as a syntax error.

use saphyr_parser::ScanError;

/// Subject of such an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untyped {
    /// An alias without an anchor before it.
    UnknownAnchor,
    /// A character that is not allowed in text.
    Unprintable,
    /// A tab where only spaces are allowed.
    Tab,
    /// More levels than the parser supports.
    TooDeep,
}

const WORDS: [(&str, Untyped); 8] = [
    ("while parsing node, found unknown anchor", Untyped::UnknownAnchor),
    ("found unprintable character", Untyped::Unprintable),
    ("tabs disallowed within this context (block indentation)", Untyped::Tab),
    ("tabs disallowed in this context", Untyped::Tab),
    ("tab cannot be used as indentation", Untyped::Tab),
    ("a block scalar content cannot start with a tab", Untyped::Tab),
    ("while scanning a plain scalar, found a tab", Untyped::Tab),
    ("recursion limit exceeded", Untyped::TooDeep),
];

impl Untyped {
    pub(super) fn from_error(error: &ScanError) -> Option<Self> {
        WORDS.iter().find(|(words, _)| *words == error.info()).map(|(_, untyped)| *untyped)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use saphyr_parser::Parser;

    use super::*;

    #[test]
    fn the_parser_says_each() {
        let deep = "[".repeat(300);
        let texts = [
            "a: *b",
            "- \0",
            "a:\n\tb: 1",
            "- \t- a",
            "a: |\n\t b",
            "a: \"b\n\tc\"",
            "a: b\n\tc: d",
            "-\t- a",
            "? \ta: b",
            "? a\n:\tb: c",
            "a:\n  b: c\n\td: e",
            "a: 'b\n\tc'",
            "a: [\n\tb\n]",
            "a:\n- b\n\t- c",
            &deep,
        ];
        let errors = texts.map(|text| Parser::new_from_str(text).find_map(Result::err));
        let said: BTreeSet<_> = errors.iter().flatten().map(ScanError::info).collect();
        for (words, untyped) in WORDS {
            assert!(said.contains(words), "nothing makes the parser say {words:?}: {said:?}");
            let error = errors.iter().flatten().find(|error| error.info() == words);
            assert_eq!(error.and_then(Untyped::from_error), Some(untyped));
        }
    }
}
