//! The conformance corpus, if it lies beside the repository (in
//! `../shared/conformance`) or where `LOBSTER_CONFORMANCE` says.
//!
//! `expected-failures.txt` may only shrink: what fails without standing there
//! is a regression, what passes must leave it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::binary;

#[test]
fn the_corpus_fails_only_where_we_differ_on_purpose() {
    let corpus = std::env::var_os("LOBSTER_CONFORMANCE")
        .map_or_else(|| binary::repository().join("../shared/conformance"), PathBuf::from);
    if !corpus.join("run.py").is_file() {
        println!("skipped: there is no conformance corpus at {}", corpus.display());
        return;
    }
    let report = tempfile::NamedTempFile::new().unwrap();
    let done = Command::new("python3")
        .arg(corpus.join("run.py"))
        .arg("--bin")
        .arg(binary::lobster())
        .arg("--cases")
        .arg(corpus.join("public"))
        .args(["--jobs", "4", "--json"])
        .arg(report.path())
        .output()
        .expect("python3 starts");
    let said = String::from_utf8_lossy(&done.stdout);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report.path()).unwrap())
        .unwrap_or_else(|error| {
            panic!("no report ({error}): {said}{}", String::from_utf8_lossy(&done.stderr))
        });
    let cases = report["cases"].as_array().expect("a report lists its cases");
    assert!(cases.len() > 900, "only {} cases ran", cases.len());
    let name = |case: &Value| format!("{}/{}", case["area"].as_str().unwrap(), case["id"].as_str().unwrap());
    let known: BTreeSet<String> = cases.iter().map(name).collect();
    let failing: BTreeSet<String> = cases.iter().filter(|case| case["ok"] == false).map(name).collect();
    let expected = expected();
    // Cases that stand in the list and not in the corpus are another corpus's business.
    let missing: Vec<_> =
        expected.iter().filter(|id| known.contains(*id) && !failing.contains(*id)).collect();
    let new: Vec<_> = said
        .lines()
        .filter(|line| {
            let id = line.strip_prefix("FAIL ").and_then(|line| line.split([' ', ':']).next());
            id.is_some_and(|id| !expected.contains(id))
        })
        .collect();
    assert!(new.is_empty(), "these cases fail now:\n{}", new.join("\n"));
    assert!(missing.is_empty(), "these cases pass; remove them from expected-failures.txt: {missing:#?}");
}

fn expected() -> BTreeSet<String> {
    include_str!("conformance/expected-failures.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (id, reason) = line.split_once(' ').unwrap_or_else(|| panic!("no reason is given: {line}"));
            assert!(!reason.trim().is_empty(), "no reason is given: {line}");
            id.to_owned()
        })
        .collect()
}
