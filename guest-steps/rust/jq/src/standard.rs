//! jq's standard definitions, the interpreter's and those of `own.jq`, of which a filter gets those that it may use.

use std::collections::BTreeSet;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::ops::{Cmp, Math};
use jaq_core::path::{Opt, Part, Path};

/// One standard definition, as `build.rs` found it.
pub(crate) struct Standard {
    name: &'static str,
    /// The names in its body.
    calls: &'static [&'static str],
    make: fn() -> Def<&'static str>,
}

include!(concat!(env!("OUT_DIR"), "/standard.rs"));

/// The definitions that `texts` may call, and those that they call, in their
/// order. All of a name are given: a later one hides an earlier one of the same arity.
pub(crate) fn used_by(texts: &[&str]) -> Vec<Def<&'static str>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@');
    let words = texts.iter().flat_map(|text| text.split(|c| !is_word(c)));
    let mut names = BTreeSet::new();
    let mut waiting: Vec<&str> = words.collect();
    while let Some(name) = waiting.pop() {
        if names.insert(name) {
            let found = STANDARD.iter().filter(|known| known.name == name);
            waiting.extend(found.flat_map(|known| known.calls));
        }
    }
    STANDARD.iter().filter(|known| names.contains(known.name)).map(|known| (known.make)()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trees_are_those_of_the_interpreter() {
        let own = jaq_core::load::parse(include_str!("own.jq"), |parser| parser.defs());
        let own = own.expect("own.jq is parsed by build.rs");
        let theirs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).chain(own);
        let ours = STANDARD.iter().map(|known| (known.make)());
        assert_eq!(format!("{:?}", theirs.collect::<Vec<_>>()), format!("{:?}", ours.collect::<Vec<_>>()));
    }

    #[test]
    fn a_filter_gets_what_it_calls_and_what_that_calls() {
        let names = |texts: &[&str]| used_by(texts).iter().map(|def| def.name).collect::<Vec<_>>();
        assert!(names(&[". | .a[0]"]).is_empty());
        assert_eq!(names(&["select(.a)"]), ["empty", "select"]);
        assert_eq!(names(&[r#""\(.a | not)""#]), ["true", "false", "not"]);
    }
}
