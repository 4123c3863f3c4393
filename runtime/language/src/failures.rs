//! Codes of failures in envelopes and in the record, and their pages for `lobster help CODE`. Mistakes
//! in workflow files have numbers instead: [`super::codes`].

use std::sync::LazyLock;

use super::codes::CodePage;

/// Pages of all codes of failures at run time: first those of steps and of lobster, then those of
/// components. In the file, a page is a line with code and title, its text, and an empty line.
pub(super) static PAGES: LazyLock<Vec<CodePage>> = LazyLock::new(|| {
    let pages = include_str!("failures.txt").split("\n\n");
    let read = |page: &'static str| {
        let (head, text) = page.trim_end().split_once('\n')?;
        let (code, title) = head.split_once(": ")?;
        Some(CodePage { code, title, text: text.replace('\n', " ").leak() })
    };
    pages.filter_map(read).collect()
});

#[cfg(test)]
mod tests {
    use lobster_base::code::Code;

    use super::*;

    #[test]
    fn every_code_has_its_page() {
        let pages: Vec<_> = PAGES.iter().map(|page| page.code).collect();
        let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(pages, codes);
    }
}
