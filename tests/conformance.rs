//! The recorded cases of the incumbent (`conformance/cases`), and those of a
//! second corpus if one lies in `../shared/conformance` or where
//! `LOBSTER_CONFORMANCE` says.
//!
//! `expected-failures.txt` may only shrink: what fails without standing there
//! is a regression, what passes must leave it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::announced::{entries, expected_failures};
use crate::binary;

/// The version that the cases of a second corpus are of.
const EARLIER: &str = "2026.6.11";

#[test]
fn the_recorded_cases_fail_only_where_we_differ_on_purpose() {
    let report = play(&own(), &[]);
    assert!(report.cases.len() > 1000, "only {} cases ran", report.cases.len());
    let expected: BTreeSet<String> = expected_failures().into_iter().map(|failure| failure.case).collect();
    let gone: Vec<_> = expected.difference(&report.cases).collect();
    assert!(gone.is_empty(), "there are no such cases; remove them from expected-failures.txt: {gone:#?}");
    report.fails_only(&expected);
    let passing: Vec<_> = expected.difference(&report.failing).collect();
    assert!(passing.is_empty(), "these cases pass; remove them from expected-failures.txt: {passing:#?}");
}

/// A second corpus has cases that the tree has not: they are played. Those
/// that both have are compared, so that no case here drifts from what was
/// recorded.
#[test]
fn a_second_corpus_agrees() {
    let corpus = std::env::var_os("LOBSTER_CONFORMANCE")
        .map_or_else(|| binary::repository().join("../shared/conformance"), PathBuf::from);
    if !corpus.join("public").is_dir() {
        println!("there is no second corpus at {}", corpus.display());
        return;
    }
    let own_cases = cases_of(&own());
    let mut drifted = Vec::new();
    for (name, theirs) in cases_of(&corpus.join("public")) {
        let Some(ours) = own_cases.get(&name) else { continue };
        let same_question = question(ours) == question(&theirs);
        if !same_question || (answers(ours) != answers(&theirs) && !changed().contains(name.as_str())) {
            drifted.push(name);
        }
    }
    assert!(drifted.is_empty(), "these cases are not what {} has: {drifted:#?}", corpus.display());

    let report = play(&corpus.join("public"), &["--except", &own().to_string_lossy()]);
    let mut expected: BTreeSet<String> =
        expected_failures().into_iter().map(|failure| failure.case).collect();
    expected.extend(changed().into_iter().map(str::to_owned));
    report.fails_only(&expected);
}

#[test]
fn what_changed_since_the_earlier_version_is_listed() {
    let recorded: BTreeSet<String> = cases_of(&own())
        .into_iter()
        .filter(|(_, case)| case["earlier"].get(EARLIER).is_some())
        .map(|(name, _)| name)
        .collect();
    let listed: BTreeSet<String> = changed().into_iter().map(str::to_owned).collect();
    let (unlisted, stale): (Vec<_>, Vec<_>) =
        (recorded.difference(&listed).collect(), listed.difference(&recorded).collect());
    assert!(unlisted.is_empty(), "list these in changed-since-{EARLIER}.txt: {unlisted:#?}");
    assert!(stale.is_empty(), "{EARLIER} gives the same in these, or they are gone: {stale:#?}");
}

/// Cases that the target version answers differently from `EARLIER`.
fn changed() -> BTreeSet<&'static str> {
    entries(include_str!("conformance/changed-since-2026.6.11.txt"))
        .map(|line| {
            let (name, reason) = line.split_once(' ').unwrap_or_else(|| panic!("no reason is given: {line}"));
            assert!(!reason.trim().is_empty(), "no reason is given: {line}");
            name
        })
        .collect()
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases")
}

/// Every case under a directory by `area/id`.
fn cases_of(directory: &Path) -> BTreeMap<String, Value> {
    let mut cases = BTreeMap::new();
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("the recorded cases are missing: {}: {error}", directory.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            cases.extend(cases_of(&path));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let read = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            Some("json") => vec![serde_json::from_str(&text).unwrap()],
            _ => Vec::new(),
        };
        for case in read {
            let name = name(&case);
            assert!(cases.insert(name.clone(), case).is_none(), "there are two cases called {name}");
        }
    }
    cases
}

fn name(case: &Value) -> String {
    format!("{}/{}", case["area"].as_str().unwrap(), case["id"].as_str().unwrap())
}

/// What a case does, without what is expected of it.
fn question(case: &Value) -> Value {
    let mut question = case.clone();
    for field in ["requests", "earlier", "quirk", "note"] {
        question.as_object_mut().unwrap().remove(field);
    }
    for call in question["calls"].as_array_mut().unwrap() {
        call.as_object_mut().unwrap().remove("expect");
    }
    question
}

fn answers(case: &Value) -> Value {
    let expects: Vec<_> = case["calls"].as_array().unwrap().iter().map(|call| &call["expect"]).collect();
    json!({ "expects": expects, "requests": case["requests"] })
}

struct Report {
    cases: BTreeSet<String>,
    failing: BTreeSet<String>,
    said: String,
}

impl Report {
    #[track_caller]
    fn fails_only(&self, expected: &BTreeSet<String>) {
        let new: Vec<_> = self
            .said
            .lines()
            .filter(|line| {
                let id = line.strip_prefix("FAIL ").and_then(|line| line.split([' ', ':']).next());
                id.is_some_and(|id| !expected.contains(id))
            })
            .collect();
        assert!(new.is_empty(), "these cases fail now:\n{}", new.join("\n"));
    }
}

/// Plays the cases of a directory with the runner.
fn play(cases: &Path, options: &[&str]) -> Report {
    let report = tempfile::NamedTempFile::new().unwrap();
    let done = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/run.py"))
        .arg("--bin")
        .arg(binary::lobster())
        .arg("--cases")
        .arg(cases)
        .args(["--jobs", "4", "--json"])
        .arg(report.path())
        .args(options)
        .output()
        .expect("python3 starts");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let read: Value =
        serde_json::from_str(&std::fs::read_to_string(report.path()).unwrap()).unwrap_or_else(|error| {
            panic!("no report ({error}): {said}{}", String::from_utf8_lossy(&done.stderr))
        });
    let cases = read["cases"].as_array().expect("a report lists its cases");
    Report {
        cases: cases.iter().map(name).collect(),
        failing: cases.iter().filter(|case| case["ok"] == false).map(name).collect(),
        said,
    }
}
