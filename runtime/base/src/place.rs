//! Places in a run, as the journal writes them: `loop[3]/sub#2|1.0`. This is the only parser of this notation;
//! `engine::path` writes it.
//!
//! In a step's id, characters with a meaning in the notation are escaped: `100%` becomes `100%25`, and `a/b` becomes
//! `a%2Fb`.

use std::borrow::Cow;
use std::fmt::Write;

use crate::percent;

/// Characters that may follow the id of a step: for its content, an iteration, an attempt, a stage, a gate.
const ENDS: [char; 5] = ['/', '[', '#', '|', '!'];

/// An id in the notation of places.
#[must_use]
pub fn escape_id(id: &str) -> Cow<'_, str> {
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

/// The id of an escaped name; names not written by lobster are left unchanged.
fn unescape_id(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return Cow::Borrowed(name);
    }
    percent::decode(name).map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The id at the start of the rest of a place.
fn id_of(name: &str) -> Cow<'_, str> {
    unescape_id(name.split(ENDS).next().unwrap_or_default())
}

/// The id of the innermost step: `sub` for `loop[3]/sub#2|1.0`. Empty for a place outside all steps.
#[must_use]
pub fn step_id(place: &str) -> Cow<'_, str> {
    id_of(place.rsplit('/').next().unwrap_or_default())
}

/// The id of the outermost step: `loop` for `loop[3]/sub#2|1.0`. Empty for a place outside all steps.
#[must_use]
pub fn top_id(place: &str) -> Cow<'_, str> {
    id_of(place)
}

/// True if `place` is `around` or is inside it. All places are inside the run, whose place is empty.
#[must_use]
pub fn is_within(place: &str, around: &str) -> bool {
    // Ids may contain dots; only after a stage does a dot precede the number of an effect.
    let is_stage = || around.rsplit(['/', '[', '#', '!']).next().is_some_and(|last| last.contains('|'));
    place.strip_prefix(around).is_some_and(|rest| {
        around.is_empty()
            || rest.is_empty()
            || rest.starts_with(ENDS)
            || (rest.starts_with('.') && is_stage())
    })
}

/// The places that contain a place, from the outside in, and the place itself.
pub fn containing_places(place: &str) -> impl DoubleEndedIterator<Item = &str> {
    let ends = place.char_indices().filter(|(_, c)| *c == '.' || ENDS.contains(c)).map(|(at, _)| at);
    let around = ends.map(|at| &place[..at]).filter(|around| !around.is_empty() && is_within(place, around));
    around.chain([place])
}

/// True if a place is a later attempt at an earlier place, and not inside that.
#[must_use]
pub fn is_later_attempt(place: &str) -> bool {
    place.rfind(ENDS).is_some_and(|at| place[at..].starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_no_beginning_of_a_text() {
        let around = |place| containing_places(place).collect::<Vec<_>>();
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
            let name = escape_id(id);
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
