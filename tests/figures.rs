//! Figures of the tree that may only fall: sentences that read as translated, names that say little, words of the
//! documents, lines of product code. `figures.toml` has the ceilings. A change that needs more removes something
//! first; a change that lowers a figure writes the new one there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use fancy_regex::Regex;

use crate::binary::repository;
use crate::markdown::Document;

struct Pattern {
    name: String,
    remedy: String,
    regex: Regex,
}

fn read_toml(path: &str) -> toml::Table {
    std::fs::read_to_string(repository().join(path)).unwrap().parse().unwrap()
}

/// The ceiling `[table] key` of `figures.toml`.
fn ceiling(table: &str, key: &str) -> f64 {
    let figures = read_toml("tests/figures.toml");
    let value = &figures[table][key];
    value.as_float().unwrap_or_else(|| value.as_integer().unwrap() as f64)
}

fn patterns() -> &'static [Pattern] {
    static PATTERNS: OnceLock<Vec<Pattern>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let table = read_toml("tests/words/patterns.toml");
        let text = |entry: &toml::Value, key: &str| entry[key].as_str().unwrap().to_owned();
        let entries = table["pattern"].as_array().unwrap();
        let pattern = |entry| Pattern {
            name: text(entry, "name"),
            remedy: text(entry, "remedy"),
            regex: Regex::new(&text(entry, "regex")).unwrap(),
        };
        entries.iter().map(pattern).collect()
    })
}

/// The texts of the files with this ending below these folders, by path from the root. Built files are left out.
fn texts(folders: &[&str], ending: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    folders.iter().for_each(|folder| collect(folder, ending, &mut found));
    found
}

fn collect(folder: &str, ending: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
                collect(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.insert(path, String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned());
        }
    }
}

/// Places where a pattern matches, per thousand words, and the places themselves.
fn wording(lines: impl Iterator<Item = (String, String)>) -> (f64, Vec<String>) {
    let (mut words, mut places) = (0, Vec::new());
    for (place, line) in lines {
        words += line.split_whitespace().count();
        for pattern in patterns() {
            for found in pattern.regex.find_iter(&line).map(Result::unwrap) {
                let (name, remedy) = (&pattern.name, &pattern.remedy);
                places.push(format!("{place}: {name}: \"{}\": {remedy}", found.as_str()));
            }
        }
    }
    (1000.0 * places.len() as f64 / words.max(1) as f64, places)
}

/// The last `count` lines, which is enough to see the kind.
fn last(places: &[String], count: usize) -> String {
    places[places.len().saturating_sub(count)..].join("\n")
}

fn assert_at_most(table: &str, key: &str, figure: f64, places: &[String]) {
    let most = ceiling(table, key);
    let rounded = (figure * 10.0).round() / 10.0;
    println!("{table}.{key}: {rounded} (at most {most})");
    assert!(
        rounded <= most,
        "{table}.{key} of tests/figures.toml may only fall: {rounded} now, {most} before. Some of the places:\n{}",
        last(places, 400)
    );
}

fn user_documents() -> Vec<Document> {
    let pages = texts(&["docs"], ".md").into_keys();
    pages.chain(["README.md".to_owned()]).map(Document::read).collect()
}

#[test]
fn documents_read_as_written_in_english() {
    let mut lines = Vec::new();
    for document in user_documents() {
        for (number, line) in document.prose() {
            let without_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`x`");
            lines.push((document.place(number), without_code));
        }
    }
    let (rate, places) = wording(lines.into_iter());
    assert_at_most("wording", "documents", rate, &places);
}

#[test]
fn documents_do_not_grow() {
    let words: usize = user_documents().iter().map(|document| document.text.split_whitespace().count()).sum();
    assert_at_most("wording", "document_words", words as f64, &[]);
}

/// The doc comments of a Rust text, and its string literals of a sentence's length, with their line numbers.
fn rust_prose(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if let Some(doc) = code.strip_prefix("///").or_else(|| code.strip_prefix("//!")) {
            found.push((number + 1, doc.trim_start().to_owned()));
        } else if !line.contains("assert") {
            found.extend(literals(line).into_iter().map(|literal| (number + 1, literal)));
        }
    }
    found
}

/// String literals of one line with 25 characters or more.
fn literals(line: &str) -> Vec<String> {
    static LITERAL: OnceLock<Regex> = OnceLock::new();
    let literal = LITERAL.get_or_init(|| Regex::new(r#""((?:[^"\\]|\\.){25,})""#).unwrap());
    let found = literal.captures_iter(line).map(|captures| captures.unwrap()[1].to_owned());
    found.collect()
}

#[test]
fn strings_and_doc_comments_read_as_written_in_english() {
    let mut lines = Vec::new();
    for (path, text) in texts(&["runtime", "cli"], ".rs") {
        lines.extend(rust_prose(&text).into_iter().map(|(line, prose)| (format!("{path}:{line}"), prose)));
    }
    let (rate, places) = wording(lines.into_iter());
    assert_at_most("wording", "code", rate, &places);
}

/// Names that every reader expects as one word.
const USUAL: [&str; 21] = [
    "new", "from", "default", "fmt", "drop", "next", "main", "eq", "hash", "clone", "into", "source",
    "deref", "index", "poll", "build", "run", "get", "set", "len", "iter",
];

fn is_test_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (name, folders) = parts.split_last().unwrap();
    let stem = name.trim_end_matches(".rs");
    folders.iter().any(|folder| ["tests", "test", "benches", "examples", "fuzz"].contains(folder))
        || ["tests", "test"].contains(&stem)
        || stem.ends_with("_tests")
        || stem.ends_with("_test")
}

#[test]
fn names_and_doc_comments_say_what_things_are() {
    let function =
        Regex::new(r"^\s*(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn ([a-z_0-9]+)").unwrap();
    let item = Regex::new(r"^\s*pub(?:\([^)]*\))? (?:struct|enum|trait|type) (\w+)").unwrap();
    let clause =
        Regex::new(r"^(?:What|Who|Whoever|Whatever|Which|That which|Whether|How|Where|When)\b(?!.*\?)")
            .unwrap();
    let (mut functions, mut docs) = (0, 0);
    let (mut one_word, mut clauses) = (Vec::new(), Vec::new());
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in texts(&["runtime", "cli"], ".rs") {
        if is_test_file(&path) {
            continue;
        }
        let crate_name = path.split('/').take(2).collect::<Vec<_>>().join("/");
        let mut after_doc = false;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", number + 1);
            if let Some(found) = function.captures(line).unwrap()
                && !USUAL.contains(&&found[1])
            {
                functions += 1;
                if !found[1].contains('_') {
                    one_word
                        .push(format!("{place}: fn {}: a verb phrase reads better at the call", &found[1]));
                }
            }
            if let Some(found) = item.captures(line).unwrap() {
                types.entry(found[1].to_owned()).or_default().insert(crate_name.clone());
            }
            let doc = line.trim_start().strip_prefix("///").map(str::trim_start);
            if let Some(doc) = doc.filter(|_| !after_doc) {
                docs += 1;
                if clause.is_match(doc).unwrap() {
                    clauses.push(format!("{place}: begins with a clause: {doc}"));
                }
            }
            after_doc = doc.is_some();
        }
    }
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let shared: Vec<String> = types
        .iter()
        .filter(|(_, crates)| crates.len() > 2)
        .map(|(name, crates)| format!("{name}: {}", crates.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert_at_most("names", "one_word_functions", percent(one_word.len(), functions), &one_word);
    assert_at_most("names", "clause_comments", percent(clauses.len(), docs), &clauses);
    assert_at_most("names", "types_in_three_crates", shared.len() as f64, &shared);
}

/// The folders with Rust code of ours.
const ROOMS: [&str; 5] = ["cli", "fuzz", "guest-steps", "runtime", "tests"];

/// Lines of product code of a Rust text: neither blank, nor comments, nor an inline test module.
fn product_lines(text: &str) -> usize {
    let (mut code, mut pending) = (0, false);
    let mut depth: Option<i64> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        let braces = line.matches('{').count() as i64 - line.matches('}').count() as i64;
        if let Some(open) = &mut depth {
            *open += braces;
            if *open <= 0 && line.contains('}') {
                depth = None;
            }
        } else if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
            pending = true;
        } else if pending && trimmed.contains("mod ") && trimmed.ends_with('{') {
            (depth, pending) = (Some(braces), false);
        } else {
            pending &= trimmed.starts_with('#');
            code += usize::from(!trimmed.is_empty() && !trimmed.starts_with("//"));
        }
    }
    code
}

/// The files that `#[cfg(test)] mod name;` declares in a file, as beginnings of paths.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    static DECLARED: OnceLock<Regex> = OnceLock::new();
    let declared = DECLARED.get_or_init(|| {
        Regex::new(r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod (\w+);")
            .unwrap()
    });
    let (folder, name) = path.rsplit_once('/').unwrap();
    let base = match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        name => format!("{folder}/{}", name.trim_end_matches(".rs")),
    };
    let modules = declared.captures_iter(text).map(|found| found.unwrap()[1].to_owned());
    modules.flat_map(|module| [format!("{base}/{module}.rs"), format!("{base}/{module}/")]).collect()
}

#[test]
fn each_crate_keeps_its_line_budget() {
    let files = texts(&ROOMS, ".rs");
    let manifests = texts(&ROOMS, "Cargo.toml");
    let crates: Vec<&str> = manifests.keys().filter_map(|path| Path::new(path).parent()?.to_str()).collect();
    let only_tests: Vec<String> = files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| !is_test_file(path)) {
        let is_test =
            only_tests.iter().any(|test| path == test || test.ends_with('/') && path.starts_with(test));
        let of_path = |name: &&&str| !name.is_empty() && path.starts_with(&format!("{name}/"));
        let home = crates.iter().filter(of_path).max_by_key(|name| name.len());
        if let (false, Some(home)) = (is_test, home) {
            *lines.entry(home).or_default() += product_lines(text);
        }
    }
    let budgets = read_toml("tests/figures.toml");
    let budgets = budgets["lines"].as_table().unwrap();
    let mut over = Vec::new();
    for (name, count) in &lines {
        match budgets.get(*name).and_then(toml::Value::as_integer) {
            Some(most) if *count <= most as usize => {}
            most => over.push(format!("{name}: {count} lines of product code, budget {most:?}")),
        }
    }
    let gone = budgets.keys().filter(|name| !lines.contains_key(name.as_str()));
    over.extend(gone.map(|name| format!("{name}: has a budget in figures.toml and no code")));
    println!("{} lines of product code", lines.values().sum::<usize>());
    assert!(over.is_empty(), "code that is added is paid for by code that is removed:\n{}", over.join("\n"));
}

#[test]
fn figures_are_counted_as_described() {
    let sentence = |text: &str| wording([("x".to_owned(), text.to_owned())].into_iter()).1.len();
    assert_eq!(sentence("What a delivery says fills declared arguments."), 1);
    assert_eq!(sentence("Only declared arguments are filled from the delivery."), 0);
    assert_eq!(sentence("It lies below the store and counts for nothing, too."), 3);
    let text =
        "//! Doc.\n\nfn a() {\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nfn d() {}\n";
    assert_eq!(product_lines(text), 4);
    assert_eq!(
        test_modules("a/src/lib.rs", "#[cfg(test)]\nmod tests;\n"),
        ["a/src/tests.rs", "a/src/tests/"]
    );
    assert!(is_test_file("a/tests/b.rs") && is_test_file("a/src/b_tests.rs") && !is_test_file("a/src/b.rs"));
}

#[test]
fn the_hook_refuses_subjects_that_are_long_or_join_two_things() {
    let dir = tempfile::tempdir().unwrap();
    let message = dir.path().join("message");
    let accepts = |subject: &str| {
        std::fs::write(&message, format!("{subject}\n\nA body; with anything in it.\n")).unwrap();
        let hook = repository().join(".ci/hooks/commit-msg");
        std::process::Command::new(hook).arg(&message).output().unwrap().status.success()
    };
    assert!(accepts("store: a copy names its run") && accepts(&"a".repeat(72)));
    assert!(!accepts("store: a copy names its run; serve: less noise") && !accepts(&"a".repeat(73)));
}
