//! Paths of a run, as the journal writes them: `loop[3]/sub#2|1.0`.

/// The places that a path lies in, from the outside in, and itself.
pub fn places(path: &str) -> impl Iterator<Item = &str> {
    let mut in_stage = false;
    let ends = path.char_indices().filter(move |(_, c)| match c {
        '/' | '[' | '#' | '!' => {
            in_stage = false;
            true
        }
        '|' => {
            in_stage = true;
            true
        }
        // Ids have dots, too; only those of a stage number its effects.
        '.' => in_stage,
        _ => false,
    });
    ends.map(|(at, _)| &path[..at]).filter(|place| !place.is_empty()).chain([path])
}

/// Whether a path is `place` or lies inside it.
pub fn is_within(path: &str, place: &str) -> bool {
    places(path).any(|around| around == place)
}

/// Whether a path is a later attempt at what stands beside it, and not inside it.
pub fn is_later_attempt(path: &str) -> bool {
    path.rfind(['/', '[', '|', '!', '#']).is_some_and(|at| path[at..].starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_no_beginning_of_a_text() {
        let around = |path| places(path).collect::<Vec<_>>();
        assert_eq!(
            around("loop[3]/sub#2|1.0"),
            ["loop", "loop[3]", "loop[3]/sub", "loop[3]/sub#2", "loop[3]/sub#2|1", "loop[3]/sub#2|1.0"]
        );
        assert_eq!(around("|0.0"), ["|0", "|0.0"]);
        assert!(is_within("a/b", "a") && is_within("a", "a") && is_within("a.b!approval", "a.b"));
        assert!(!is_within("ab", "a") && !is_within("a.b", "a") && !is_within("a", "a/b"));
        assert!(is_later_attempt("l[0]/a#2") && !is_later_attempt("a#2|0.0") && !is_later_attempt("a"));
    }
}
