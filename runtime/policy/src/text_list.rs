//! Lists in text files, which are split into lines at compile time.

/// Lines of a file as a `&'static [&'static str]`, without empty lines and lines that begin with `#`.
macro_rules! text_list {
    ($file:literal) => {{
        const TEXT: &str = include_str!($file);
        const LINES: [&str; $crate::text_list::divide::<0>(TEXT).1] = $crate::text_list::divide(TEXT).0;
        &LINES
    }};
}

/// First `N` entries of a text, and the total number of entries.
pub(crate) const fn divide<const N: usize>(text: &str) -> ([&str; N], usize) {
    let (mut entries, mut count, mut rest) = ([""; N], 0, text);
    while !rest.is_empty() {
        let bytes = rest.as_bytes();
        let mut end = 0;
        while bytes[end] != b'\n' {
            end += 1;
        }
        let (line, after) = rest.split_at(end);
        rest = after.split_at(1).1;
        if end > 0 && bytes[0] != b'#' {
            if count < N {
                entries[count] = line;
            }
            count += 1;
        }
    }
    (entries, count)
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn comments_and_empty_lines_are_no_entries() {
        const TEXT: &str = "# List.\n\nfirst\n# More.\nsecond word\n";
        assert_eq!(divide::<2>(TEXT), (["first", "second word"], 2));
        assert_eq!(divide::<0>(TEXT).1, 2);
    }
}
