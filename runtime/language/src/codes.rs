//! Codes of diagnostics and their pages for `lobster help <code>`. Together with the codes of failures
//! at run time (`failures.rs`), these are all pages.

use std::sync::LazyLock;

/// One code and its page.
#[derive(Clone, Copy, Debug)]
pub struct CodePage {
    pub code: &'static str,
    pub title: &'static str,
    pub text: &'static str,
}

/// All pages: first the mistakes in files, then the failures at run time.
pub fn all_pages() -> impl Iterator<Item = &'static CodePage> {
    PAGES.iter().chain(super::failures::PAGES.iter())
}

/// Finds the page of a code, in any letter case.
#[must_use]
pub fn find_page(code: &str) -> Option<&'static CodePage> {
    all_pages().find(|page| page.code.eq_ignore_ascii_case(code))
}

/// Pages of all codes of mistakes in files. In the file, a page is a line with code and title, its text as it
/// is shown, and two empty lines.
static PAGES: LazyLock<Vec<CodePage>> = LazyLock::new(|| {
    let read = |page: &'static str| {
        let (head, text) = page.split_once('\n')?;
        let (code, title) = head.split_once(": ")?;
        Some(CodePage { code, title, text })
    };
    include_str!("mistakes.txt").trim_end().split("\n\n\n").filter_map(read).collect()
});

macro_rules! codes {
    ($($name:ident = $code:literal;)*) => {
        $(pub const $name: &str = $code;)*
        /// All codes in order.
        #[cfg(test)]
        const CODES: &[&str] = &[$($code),*];
    };
}

codes! {
    YAML_SYNTAX = "E0101";
    JSON_SYNTAX = "E0102";
    DUPLICATE_KEY = "E0103";
    MULTIPLE_DOCUMENTS = "E0104";
    ALIAS = "E0105";
    TOO_DEEP = "E0106";
    NOT_A_WORKFLOW = "E0201";
    STEP_SHAPE = "E0202";
    FIELD_TYPE = "E0203";
    CONFLICT = "E0204";
    DUPLICATE_ID = "E0205";
    GATE_TYPE = "E0206";
    INPUT_SCHEMA = "E0207";
    SECRET = "E0208";
    CACHE = "E0209";
    TRIGGER = "E0210";
    TRIGGER_DATA = "E0211";
    CONDITION = "E0301";
    UNKNOWN_REFERENCE = "E0302";
    NOT_A_LIST = "E0303";
    NEEDS_CIRCLE = "E0304";
    ARGUMENT = "E0401";
    CHILD = "E0501";
    CHILD_DEPTH = "E0502";
    CHILD_CYCLE = "E0503";
    UNKNOWN_COMMAND = "E0601";
    PIPELINE_SYNTAX = "E0602";
    COMPONENT = "E0603";
    STAGE_ARGUMENTS = "E0604";
    UNKNOWN_FIELD = "W0701";
    IGNORED_VALUE = "W0702";
    CHILD_MISSING = "W0703";
    STAGE_AS_SHELL = "W0801";
    FIELD_WITHOUT_JSON = "W0802";
    PASTED_ARGUMENT = "W0803";
    BRACED_REFERENCE = "W0804";
    REFERENCE_ORDER = "W0805";
    BRACKET_INDEX = "W0806";
    ARGUMENT_SPEC = "W0807";
    PASTED_REFERENCE = "W0808";
    INPUT_OUTSIDE = "W0809";
    STAGE_OPTION = "W0810";
    IDLE_INPUTS = "W0811";
    UNASKED_GRANT = "W0812";
    BARE_NAME = "W0813";
    FOREIGN_NOTATION = "W0814";
    SHELL_VARIABLE = "W0815";
    IDLE_SECRET = "W0816";
    REFUSING_LIMIT = "W0817";
    BOUND_SECRET = "W0818";
    JS_WITHOUT_RETURN = "W0819";
    HALF_PAIR = "W0820";
    LINE_END = "W0821";
    OUTPUT_AS_TRUTH = "W0822";
    UNFILLED_VARIABLE = "W0823";
    ONE_VARIABLE = "W0824";
    WITHHELD = "W0825";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_sorted_and_explained() {
        let errors: Vec<_> = PAGES.iter().map(|page| page.code).collect();
        let mut sorted = errors.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(errors, sorted);
        assert_eq!(errors, CODES);
        let unique: std::collections::HashSet<_> = all_pages().map(|page| page.code).collect();
        assert_eq!(unique.len(), all_pages().count());
        for page in all_pages() {
            assert!(page.text.len() > 60 && !page.title.ends_with('.'), "{}", page.code);
        }
        assert_eq!(find_page("e0301").map(|page| page.code), Some(CONDITION));
        assert!(find_page("E9999").is_none());
    }
}
