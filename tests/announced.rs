//! `docs/differences.md` holds what differs from the incumbent, and nothing that does not.
//!
//! Two lists say what is expected to fail: of the recorded cases
//! (`conformance/expected-failures.txt`) and of the tests that the incumbent
//! ships (`incumbent/expected-failures.txt`). Each entry names the row of
//! `docs/differences.md` that explains it, by its anchor; the last column of
//! that row is derived from the entries. `UPDATE_EXPECTED=1` writes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::binary;

/// A recorded case that is expected to fail.
pub(crate) struct ExpectedFailure {
    /// `area/id`.
    pub(crate) case: String,
    /// The row of `docs/differences.md`.
    anchor: String,
}

/// The recorded cases that lobster answers differently on purpose.
pub(crate) fn expected_failures() -> Vec<ExpectedFailure> {
    entries(include_str!("conformance/expected-failures.txt"))
        .map(|line| {
            let mut words = line.split_whitespace();
            let (case, anchor) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            assert!(case.contains('/') && words.next().is_some(), "not `area/id  anchor  reason`: {line}");
            ExpectedFailure { case: case.to_owned(), anchor: anchor.to_owned() }
        })
        .collect()
}

/// The lines of a list that are not comment.
pub(crate) fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[test]
fn every_expected_failure_is_explained_and_every_explanation_has_its_failures() {
    let path = binary::repository().join("docs/differences.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut failures = failures_by_anchor();
    let (mut written, mut seen) = (String::new(), BTreeSet::new());
    for line in page.lines() {
        match anchor(line) {
            Some(anchor) => {
                assert!(seen.insert(anchor.to_owned()), "two rows of differences.md are called {anchor}");
                let found = failures.remove(anchor);
                let behind =
                    found.or_else(|| names_class(anchor).then(Behind::default)).unwrap_or_else(|| {
                        panic!("nothing stands behind the row `{anchor}`; take its anchor away: {line}")
                    });
                written.push_str(&with_last_cell(line, &behind.to_cell()));
            }
            None => {
                assert!(!names_a_case(line), "a case is named in a row without an anchor: {line}");
                written.push_str(line);
            }
        }
        written.push('\n');
    }
    let unexplained: Vec<_> =
        failures.iter().map(|(anchor, behind)| format!("{anchor}: {}", behind.to_cell())).collect();
    assert!(unexplained.is_empty(), "no row of differences.md has these anchors: {unexplained:#?}");
    if written != page {
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, written).unwrap();
            return;
        }
        let stale: Vec<_> =
            written.lines().zip(page.lines()).filter(|(new, old)| new != old).map(|(new, _)| new).collect();
        panic!(
            "the last column of differences.md is not that of the lists; UPDATE_EXPECTED=1 writes:\n{}",
            stale.join("\n")
        );
    }
}

/// What is expected to fail because of one difference.
#[derive(Default)]
struct Behind {
    cases: BTreeSet<String>,
    /// How many tests of which file of the incumbent's own.
    tests: BTreeMap<String, usize>,
}

impl Behind {
    fn to_cell(&self) -> String {
        let cases = self.cases.iter().map(|id| format!("`{id}`"));
        let tests = self.tests.iter().map(|(file, count)| format!("{count} of `{file}`"));
        cases.chain(tests).collect::<Vec<_>>().join(", ")
    }
}

fn failures_by_anchor() -> BTreeMap<String, Behind> {
    let mut by_anchor: BTreeMap<String, Behind> = BTreeMap::new();
    for failure in expected_failures() {
        let id = failure.case.rsplit('/').next().unwrap_or_default().to_owned();
        by_anchor.entry(failure.anchor).or_default().cases.insert(id);
    }
    let mut file = "";
    for line in entries(include_str!("incumbent/expected-failures.txt")) {
        // `[FILE]`, then `anchor  test  -- why` for each test.
        if let Some(section) = line.strip_prefix('[') {
            file = section.trim_end_matches(']');
            continue;
        }
        let anchor = line.split_whitespace().next().unwrap_or_default();
        assert!(line.contains("  -- "), "not `anchor  test  -- why`: {line}");
        *by_anchor.entry(anchor.to_owned()).or_default().tests.entry(file.to_owned()).or_default() += 1;
    }
    by_anchor
}

/// True for a row that explains a class of differences of random inputs.
fn names_class(anchor: &str) -> bool {
    include_str!("incumbent/differential.py").contains(&format!("    (\"{anchor}\", lambda"))
}

/// The name of a row: `| <a id="name"></a>text | … |`.
fn anchor(line: &str) -> Option<&str> {
    line.strip_prefix("| <a id=\"")?.split('"').next()
}

fn with_last_cell(row: &str, cell: &str) -> String {
    let row = row.strip_suffix('|').unwrap_or(row);
    let before = row.rfind('|').map_or(row, |at| &row[..at]);
    if cell.is_empty() { format!("{before}| |") } else { format!("{before}| {cell} |") }
}

/// Whether the last cell of a row is a list of words in backticks, which only derived cells are.
fn names_a_case(line: &str) -> bool {
    let Some(last) = line.strip_prefix('|').and_then(|line| line.trim_end_matches('|').rsplit('|').next())
    else {
        return false;
    };
    let last = last.trim();
    last.starts_with('`')
        && last.ends_with('`')
        && last.split(", ").all(|id| id.contains('-') && !id.contains(' '))
}
