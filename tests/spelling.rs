//! The words of documents, help, codes and messages: spelt as in `words/british.txt` or `words/project.txt`,
//! and none of those that `words/avoid.txt` has better ones for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lobster_runtime::language::codes;
use serde_json::Value;

use crate::binary::repository;
use crate::home::Home;
use crate::markdown::{Document, documents};

fn word_list(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("tests/words").join(name)).unwrap();
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// A line of prose with where it stands, without code, links and markup.
fn prose() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    // The pages of commands are the help, which comes below.
    let is_help = |document: &Document| {
        ["commands.md", "pipeline-commands.md"].iter().any(|page| document.path.ends_with(page))
    };
    for document in documents().into_iter().filter(|document| !is_help(document)) {
        for (number, line) in document.prose() {
            lines.push((document.place(number), line.to_owned()));
        }
    }
    let described: Value = serde_json::from_str(&Home::new().lobster(["--describe"]).run().stdout).unwrap();
    push_help(&described["commands"], "lobster", &mut lines);
    for stage in described["stages"].as_array().unwrap() {
        let place = format!("lobster help {}", stage["name"].as_str().unwrap());
        lines.push((place, stage["description"].as_str().unwrap().to_owned()));
    }
    for page in codes::all_pages() {
        let place = format!("lobster help {}", page.code);
        lines.push((place.clone(), page.title.to_owned()));
        lines.extend(
            page.text
                .lines()
                .filter(|line| !line.starts_with("  "))
                .map(|line| (place.clone(), line.to_owned())),
        );
    }
    lines.extend(messages());
    lines.into_iter().map(|(place, line)| (place, without_markup(&line))).collect()
}

/// The messages of the sources: literals of three words and more, tests aside.
fn messages() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for root in ["runtime", "cli/src"] {
        push_sources(&repository().join(root), &mut files);
    }
    let mut lines = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(repository()).unwrap().display().to_string();
        for literal in literals(source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()) {
            let text = without_placeholders(&literal);
            if is_prose(&text) {
                lines.push((place.clone(), text));
            }
        }
    }
    lines
}

/// Whether a literal is a sentence, or a part of one: neither SQL nor a list of names.
fn is_prose(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let of_sentences = [
        "a", "and", "are", "be", "by", "cannot", "for", "has", "in", "is", "no", "not", "of", "the", "to",
        "was",
    ];
    let of_sql = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "VALUES"];
    words.len() >= 3
        && words.iter().any(|word| of_sentences.contains(word))
        && !words.iter().any(|word| of_sql.contains(word))
}

/// Source files but for those of tests: a module behind `#[cfg(test)]` is one.
fn push_sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut of_tests: BTreeSet<String> = ["tests", "examples", "target"].map(str::to_owned).into();
    for source in entries.iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let text = std::fs::read_to_string(source).unwrap();
        for rest in text.split("#[cfg(test)]\n").skip(1) {
            let module =
                rest.trim_start_matches("pub(crate) ").trim_start_matches("pub ").strip_prefix("mod ");
            of_tests.extend(module.and_then(|rest| rest.split([';', ' ']).next()).map(str::to_owned));
        }
    }
    for path in entries {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if of_tests.contains(&name) {
            continue;
        }
        if path.is_dir() {
            push_sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The string literals of a source, comments aside, with their escapes read.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let (before, from) = rest.split_at(at);
        let used = if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if let Some(after) = from.strip_prefix('"') {
            let hashes = before.len() - before.trim_end_matches('#').len();
            let is_raw = before.trim_end_matches('#').ends_with('r');
            let end =
                if is_raw { after.find(&format!("\"{}", "#".repeat(hashes))) } else { end_of_literal(after) };
            let end = end.unwrap_or(after.len());
            found.push(if is_raw { after[..end].to_owned() } else { unescaped(&after[..end]) });
            end + 2
        } else if from.starts_with('\'') {
            // A character, or a lifetime.
            let mut characters = from.char_indices().skip(1);
            match (characters.next(), characters.next()) {
                (Some((_, '\\')), _) => from[2..].find('\'').map_or(1, |end| (end + 3).max(4)),
                (Some(_), Some((end, '\''))) => end + 1,
                _ => 1,
            }
        } else {
            1
        };
        rest = from.get(used..).unwrap_or_default();
    }
    found
}

/// Where a literal ends that begins here.
fn end_of_literal(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// A literal with blanks for its escapes; one that goes on in the next line is one text.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, if c == '\\' { characters.next() } else { None }) {
            ('\\', Some('"')) => out.push('"'),
            ('\\', _) => out.push(' '),
            (c, _) => out.push(c),
        }
    }
    out
}

/// A message without what is filled in, and without code in backticks.
fn without_placeholders(text: &str) -> String {
    let mut out = String::new();
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        out.push(if depth > 0 || c == '}' { ' ' } else { c });
    }
    out
}

fn push_help(commands: &Value, before: &str, lines: &mut Vec<(String, String)>) {
    for command in commands.as_array().into_iter().flatten() {
        let place = format!("{before} {}", command["name"].as_str().unwrap_or_default());
        let arguments =
            command["arguments"].as_array().into_iter().flatten().map(|argument| &argument["help"]);
        for text in std::iter::once(&command["about"]).chain(arguments).filter_map(Value::as_str) {
            lines.extend(text.lines().map(|line| (place.clone(), line.to_owned())));
        }
        push_help(&command["commands"], &place, lines);
    }
}

fn without_markup(line: &str) -> String {
    let mut out = String::new();
    let without_code = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut rest = without_code.as_str();
    while let Some(at) = rest.find(['<', ']', ':']) {
        out.push_str(&rest[..at]);
        // Tags, targets of links, and addresses.
        let end = match &rest[at..] {
            tag if tag.starts_with('<') => tag.find('>').map(|end| at + end + 1),
            link if link.starts_with("](") => link.find(')').map(|end| at + end + 1),
            address if address.starts_with("://") => {
                Some(at + address.find(char::is_whitespace).unwrap_or(address.len()))
            }
            _ => None,
        };
        out.push(' ');
        rest = &rest[end.unwrap_or(at + 1)..];
    }
    out + rest
}

/// The words of a line that a dictionary may know: no names of things in code, no abbreviations.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '’' | '_' | '.' | '/' | '@')))
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| {
            word.chars().count() > 1 && word.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’'))
        })
        .filter(|word| !word.chars().skip(1).any(char::is_uppercase))
        .map(|word| word.to_lowercase().replace('’', "'"))
        .map(|word| word.strip_suffix("'s").unwrap_or(&word).to_owned())
}

#[test]
fn every_word_is_spelt_as_in_a_list() {
    let known: BTreeSet<String> =
        word_list("british.txt").into_iter().chain(word_list("project.txt")).collect();
    let mut unknown = BTreeMap::<String, String>::new();
    for (place, line) in prose() {
        for word in words(&line).filter(|word| !known.contains(word)) {
            unknown.entry(word).or_insert_with(|| place.clone());
        }
    }
    assert!(
        unknown.is_empty(),
        "misspelt, or to be added to tests/words/project.txt:\n{}",
        unknown.iter().map(|(word, place)| format!("{word}  ({place})\n")).collect::<String>()
    );
}

#[test]
fn the_lists_are_sorted_and_hold_nothing_twice() {
    for name in ["british.txt", "project.txt"] {
        let list = word_list(name);
        let sorted: Vec<String> = list.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!(list.iter().zip(&sorted).find(|(a, b)| a != b), None, "tests/words/{name}");
        assert_eq!(list.len(), sorted.len(), "tests/words/{name}");
    }
}

/// A line of `avoid.txt`: `phrase = better words`, and how often it may still stand.
#[test]
fn words_that_have_a_better_one_are_avoided() {
    let mut found = Vec::new();
    let lines: Vec<(String, String)> =
        prose().into_iter().map(|(place, line)| (place, format!(" {} ", line.to_lowercase()))).collect();
    for rule in word_list("avoid.txt") {
        let (phrase, rest) = rule.split_once(" = ").expect("phrase = better words");
        let (better, left) = rest.split_once(" | ").unwrap_or((rest, "0"));
        let places: Vec<&str> = lines
            .iter()
            .filter(|(_, line)| line.match_indices(phrase).any(|(at, _)| is_whole(line, at, phrase.len())))
            .map(|(place, _)| place.as_str())
            .collect();
        if places.len() > left.parse().expect("a number behind |") {
            found.push(format!(
                "{phrase:?} (say: {better}; at most {left} are left to mend) in\n  {}",
                places.join("\n  ")
            ));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The former name of the command still works, but no text shows it.
#[test]
fn texts_name_the_command_approvals() {
    let pages = ["failures.txt", "mistakes.txt"].map(|file| format!("runtime/language/src/{file}"));
    let others = pages.into_iter().chain(["cli/src/commands/skill.md".to_owned()]);
    let mut files: Vec<PathBuf> = others.map(|path| repository().join(path)).collect();
    files.extend(documents().iter().map(|document| repository().join(&document.path)));
    for root in ["runtime", "cli/src"] {
        push_sources(&repository().join(root), &mut files);
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let shown = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let former = ["lobster gates", "`gates "].into_iter().find(|words| shown.contains(words));
        assert_eq!(former, None, "{} shows the former name of `lobster approvals`", file.display());
    }
}

/// Whether no word goes on at either end.
fn is_whole(line: &str, at: usize, len: usize) -> bool {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    !letter(line[..at].chars().next_back()) && !letter(line[at + len..].chars().next())
}

#[test]
fn literals_are_found_beside_comments_characters_and_lifetimes() {
    let source = r##"
        // "a comment" isn't one
        fn f<'a>(x: &'a str) -> char { say("one \"two\" \
            three"); '"' }
        const R: &str = r#"four "five""#; let c = ('\'', '\u{2e}', "six"); // 'x "
    "##;
    let found: Vec<String> =
        literals(source).iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(found, ["one \"two\" three", "four \"five\"", "six"]);
}
