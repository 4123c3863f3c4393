//! The places of a run, as the journal writes them: `loop[3]/sub#2|1.0`. This is the one
//! reading of that text; `engine::path` makes it.
//!
//! A step's id stands in it with the characters that mean something escaped: `100%` is
//! `100%25`, and `a/b` is `a%2Fb`.

use std::borrow::Cow;
use std::fmt::Write;

use crate::percent;

/// What may follow the id of a step: what is inside it, a round, an attempt, a stage, a gate.
const ENDS: [char; 5] = ['/', '[', '#', '|', '!'];

/// An id as a place has it.
#[must_use]
pub fn escaped(id: &str) -> Cow<'_, str> {
    let is_special = |c: char| c == '%' || ENDS.contains(&c);
    if !id.contains(is_special) {
        return Cow::Borrowed(id);
    }
    let mut text = String::with_capacity(id.len() + 2);
    for c in id.chars() {
        if is_special(c) {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{:02X}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

/// The id that a name stands for; what lobster did not write stays as it is.
fn unescaped(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return Cow::Borrowed(name);
    }
    percent::decode(name).map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The id at the beginning of what is left of a place.
fn id_of(name: &str) -> Cow<'_, str> {
    unescaped(name.split(ENDS).next().unwrap_or_default())
}

/// The id of the innermost step: of `loop[3]/sub#2|1.0` it is `sub`. Empty for what is in no step.
#[must_use]
pub fn step_id(place: &str) -> Cow<'_, str> {
    id_of(place.rsplit('/').next().unwrap_or_default())
}

/// The id of the outermost step: of `loop[3]/sub#2|1.0` it is `loop`. Empty for what is in no step.
#[must_use]
pub fn top_id(place: &str) -> Cow<'_, str> {
    id_of(place)
}

/// Whether `place` is `around` or lies inside it. All places lie inside the run, whose place is empty.
#[must_use]
pub fn is_within(place: &str, around: &str) -> bool {
    // Ids have dots, too; only those of a stage number its effects.
    let is_stage = || around.rsplit(['/', '[', '#', '!']).next().is_some_and(|last| last.contains('|'));
    place.strip_prefix(around).is_some_and(|rest| {
        around.is_empty()
            || rest.is_empty()
            || rest.starts_with(ENDS)
            || (rest.starts_with('.') && is_stage())
    })
}

/// The places that a place lies in, from the outside in, and itself.
pub fn places(place: &str) -> impl DoubleEndedIterator<Item = &str> {
    let ends = place.char_indices().filter(|(_, c)| *c == '.' || ENDS.contains(c)).map(|(at, _)| at);
    let around = ends.map(|at| &place[..at]).filter(|around| !around.is_empty() && is_within(place, around));
    around.chain([place])
}

/// Whether a place is a later attempt at what stands beside it, and not inside it.
#[must_use]
pub fn is_later_attempt(place: &str) -> bool {
    place.rfind(ENDS).is_some_and(|at| place[at..].starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_no_beginning_of_a_text() {
        let around = |place| places(place).collect::<Vec<_>>();
        assert_eq!(
            around("loop[3]/sub#2|1.0"),
            ["loop", "loop[3]", "loop[3]/sub", "loop[3]/sub#2", "loop[3]/sub#2|1", "loop[3]/sub#2|1.0"]
        );
        assert_eq!(
            (around("|0.0"), around("a.b!approval")),
            (vec!["|0", "|0.0"], vec!["a.b", "a.b!approval"])
        );
        for (place, outer) in
            [("a/b", "a"), ("a", "a"), ("a!changes", "a"), ("a[1]", "a"), ("|1.0", "|1"), ("a", "")]
        {
            assert!(is_within(place, outer), "{place} in {outer}");
        }
        for (place, outer) in [("ab", "a"), ("a.b", "a"), ("a", "a/b"), ("a[31]", "a[3"), ("a[3]", "a[31]")] {
            assert!(!is_within(place, outer), "{place} in {outer}");
        }
        assert!(is_later_attempt("l[0]/a#2") && !is_later_attempt("a#2|0.0") && !is_later_attempt("a"));
    }

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for id in ["ask", "100%", "a/b", "a/b[0]#2|!%", "größe", "100%25", "a.b"] {
            let name = escaped(id);
            for place in [format!("{name}"), format!("loop[3]/{name}#2|1.0"), format!("{name}!approval")] {
                assert_eq!(step_id(&place), id, "{place}");
            }
            assert_eq!(top_id(&format!("{name}[0]/sub|1")), id);
            assert!(is_within(&format!("{name}/x"), &name));
        }
        assert_eq!((step_id("|1.0"), step_id("")), ("".into(), "".into()));
        assert_eq!(step_id("50%/x%zz"), "x%zz");
    }
}
