//! The errors of `saphyr-parser`, which have no type.
//!
//! This is the only place where lobster reads their words. The parser's version is pinned
//! exactly, and the test below provokes each in the parser itself: a release that words one
//! differently fails it. An error that is not recognised is one of syntax.

use saphyr_parser::ScanError;

/// What such an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untyped {
    /// An alias without an anchor before it.
    UnknownAnchor,
    /// A character that text does not have.
    Unprintable,
    /// A tab where only spaces may be.
    Tab,
    /// More levels than the parser counts.
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
    pub(super) fn of(error: &ScanError) -> Option<Self> {
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
            assert_eq!(error.and_then(Untyped::of), Some(untyped));
        }
    }
}
