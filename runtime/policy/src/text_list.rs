//! Lists of words that live in text files of `lists/` and are divided while compiling.

/// The words of a file beside this one, as a `&'static [&'static str]`: one on each line, where `#` begins a comment.
macro_rules! word_list {
    ($file:literal) => {{
        const TEXT: &str = include_str!($file);
        const WORDS: [&str; $crate::word_list::divide::<0>(TEXT).1] = $crate::word_list::divide(TEXT).0;
        &WORDS
    }};
}

/// The first `N` words of a text, and how many words it has.
pub(crate) const fn divide<const N: usize>(text: &str) -> ([&str; N], usize) {
    let (mut words, mut count, mut rest) = ([""; N], 0, text);
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
                words[count] = line;
            }
            count += 1;
        }
    }
    (words, count)
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn comments_and_empty_lines_are_no_words() {
        const TEXT: &str = "# List.\n\nfirst\n# More.\nsecond word\n";
        assert_eq!(divide::<2>(TEXT), (["first", "second word"], 2));
        assert_eq!(divide::<0>(TEXT).1, 2);
    }
}
