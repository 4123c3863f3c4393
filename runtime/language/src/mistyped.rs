//! Proposals for mistyped names.

/// Known name closest to a mistyped one, if one is close: one letter may differ in a short name, and
/// two in a longer one.
#[must_use]
pub fn nearest_name<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = if name.len() < 4 { 1 } else { 2 };
    let with_distance = names.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    with_distance.filter(|(distance, _)| *distance <= allowed).min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest_name("shwo", ["show", "store", "run"]), Some("show"));
        assert_eq!(nearest_name("rnu", ["show", "run"]), Some("run"));
        assert_eq!(nearest_name("wo", ["who"]), Some("who"));
        assert_eq!(nearest_name("ls", ["runs", "logs"]), None);
        assert_eq!(nearest_name("", ["a", "ab"]), Some("a"));
    }
}
