//! Finds the paths that a program names when it was refused something. A path is quoted, absolute, alone between two
//! colons, the object of a known message, or a last word with a slash or a dot. Other words of sentences are not paths.

use std::path::{Component, Path, PathBuf};

use super::READ_ONLY;

/// Messages that consist of these words and a path.
const BEFORE_A_PATH: [&str; 5] =
    ["cannot create ", "unable to create file ", "open ", "mkdir ", "failed to open the file "];

/// The same, but other words follow them as well: what follows has to be a file or look like its name.
const BEFORE_A_FILE: [&str; 5] =
    ["cannot open ", "can't open ", "could not open ", "cannot write ", "unable to open "];

/// Words of messages at the place of a path.
const NO_PATHS: [&str; 16] = [
    "error",
    "fatal",
    "warning",
    "failed",
    "failure",
    "open",
    "write",
    "writing",
    "file",
    "directory",
    "output",
    "archive",
    "temporary",
    "link",
    "socket",
    "pipe",
];

/// Words of messages about two paths of which only the last is changed.
const COPIES: [&str; 4] = ["copy", "copyfile", "link", "symlink"];

/// The paths that a message is about. `words` begin at `at`: C libraries put the path just before them, other programs
/// after them. The beginning of the line is the program that printed it, or its script and the line number.
pub(super) fn paths(line: &str, at: usize, words: &str, cwd: &Path) -> Vec<PathBuf> {
    let before = line[..at].trim_end_matches([' ', ':', '(', '[', ',']);
    let mut parts: Vec<&str> = before.split(": ").collect();
    let is_alone = parts.len() == 1;
    if !is_alone {
        parts.remove(0);
    }
    let found = changed_paths(parts.last().copied().unwrap_or_default(), cwd);
    if !found.is_empty() {
        return found;
    }
    // Perl adds the place in its script.
    let after = &line[at + words.len()..];
    let after = if after.contains(" line ") { after.split(" at ").next().unwrap_or_default() } else { after };
    let found = changed_paths(after, cwd);
    if !found.is_empty() {
        return found;
    }
    for part in parts.iter().rev() {
        let found = changed_paths(part, cwd);
        if !found.is_empty() {
            return found;
        }
        let object = object_of(part, cwd);
        let word = object.or_else(|| (!is_alone).then_some(*part)).unwrap_or_default();
        let may_be_new = object.is_some() || words == READ_ONLY || word.contains('/');
        if let Some(path) = bare_path(word, may_be_new, cwd) {
            return vec![path];
        }
    }
    Vec::new()
}

/// The path in a message of a known form, or at the end of any message if it looks like a path.
fn object_of<'a>(part: &'a str, cwd: &Path) -> Option<&'a str> {
    let object = |forms: &[&str]| {
        forms.iter().find_map(|form| {
            let start = part.get(..form.len())?;
            start.eq_ignore_ascii_case(form).then(|| &part[form.len()..])
        })
    };
    let is_word = |word: &&str| !word.contains(char::is_whitespace);
    let is_file = |word: &&str| is_like_a_file(word) || joined(cwd, word).symlink_metadata().is_ok();
    let last = || part.rsplit_once(char::is_whitespace).map(|(_, word)| word);
    let named = object(&BEFORE_A_PATH).filter(is_word);
    let named = named.or_else(|| object(&BEFORE_A_FILE).filter(is_word).filter(is_file));
    named.or_else(|| last().filter(|word| is_like_a_file(word)))
}

/// True if a word has a slash, or a dot within, and a letter.
pub(super) fn is_like_a_file(word: &str) -> bool {
    word.trim_matches('.').contains(['/', '.']) && word.contains(|c: char| c.is_alphabetic())
}

/// A path without quotes, if the file exists, or if it may be new and its directory exists.
fn bare_path(word: &str, may_be_new: bool, cwd: &Path) -> Option<PathBuf> {
    if !is_name(word) {
        return None;
    }
    let path = joined(cwd, word);
    let is_there = path.symlink_metadata().is_ok();
    let is_word = NO_PATHS.iter().any(|other| word.eq_ignore_ascii_case(other));
    let is_possible = || may_be_new && !is_word && path.parent().is_some_and(Path::is_dir);
    (is_there || is_possible()).then_some(path)
}

/// True if a word can be the name of a file, and is neither the name of an error nor a number.
fn is_name(word: &str) -> bool {
    let is_error = |word: &str| {
        word.len() > 3
            && word.starts_with('E')
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    !word.is_empty()
        && !is_error(word)
        && !word.contains(['[', ']', '(', ')'])
        && !word.contains(char::is_whitespace)
        && !word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The quoted and absolute paths of a text; for a copy, only the changed path.
fn changed_paths(text: &str, cwd: &Path) -> Vec<PathBuf> {
    let mut found = paths_in(text, cwd);
    if found.len() > 1 {
        if text.contains(" => ") {
            found.truncate(1);
        } else if is_copy(text) {
            found.drain(..found.len() - 1);
        }
    }
    found
}

/// True if a message is about a copy of a file or a link to it.
pub(super) fn is_copy(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphabetic());
    words.any(|word| COPIES.iter().any(|copy| word.eq_ignore_ascii_case(copy)))
}

pub(super) fn is_quote(c: char) -> bool {
    "'\"`‘’“”".contains(c)
}

/// Quoted texts. An apostrophe within a word is no quote.
fn quoted(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open: Option<(char, usize)> = None;
    let mut before = ' ';
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map_or(' ', |(_, next)| *next);
        match open {
            None if is_quote(c) && !before.is_alphanumeric() => open = Some((c, at + c.len_utf8())),
            Some((quote, start)) if closes(quote, c) && !after.is_alphanumeric() => {
                found.push(&text[start..at]);
                open = None;
            }
            _ => {}
        }
        before = c;
    }
    found
}

fn closes(open: char, c: char) -> bool {
    match open {
        '‘' | '`' => "’'`".contains(c),
        '“' => c == '”',
        open => c == open,
    }
}

/// Quoted paths, and words that begin with a slash. A quoted text with a blank has to name a place.
fn paths_in(text: &str, cwd: &Path) -> Vec<PathBuf> {
    let is_path = |word: &&str| {
        let is_sentence = word.contains(char::is_whitespace);
        let path = joined(cwd, word);
        let is_place = || word.contains('/') && path.parent().is_some_and(Path::is_dir);
        !word.trim().is_empty() && (!is_sentence || is_place() || path.symlink_metadata().is_ok())
    };
    let quoted: Vec<&str> = quoted(text).into_iter().filter(is_path).collect();
    let mut rest = text.to_owned();
    for word in quoted.iter().filter(|word| word.contains(char::is_whitespace)) {
        rest = rest.replace(*word, " ");
    }
    let absolute: Vec<PathBuf> = rest
        .split(|c: char| c.is_whitespace() || is_quote(c))
        .map(|word| word.trim_matches([':', ',', ';', '(', ')', '[', ']']))
        .filter(|word| word.starts_with('/') && word.len() > 1)
        .map(|word| joined(cwd, word))
        .collect();
    let mut found: Vec<PathBuf> = quoted.iter().map(|word| joined(cwd, word)).chain(absolute).collect();
    let mut known = Vec::new();
    found.retain(|path| {
        let is_new = !known.contains(path);
        known.push(path.clone());
        is_new
    });
    found
}

/// A text in which each error of a chain ("Caused by:") is on one line with its cause.
pub(super) fn join_causes(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_cause = false;
    for line in text.lines() {
        match line.trim() {
            "Caused by:" => {
                is_cause = true;
                while lines.last().is_some_and(|line| line.trim().is_empty()) {
                    lines.pop();
                }
            }
            cause if is_cause && !lines.is_empty() => {
                is_cause = false;
                if let Some(last) = lines.last_mut() {
                    last.push_str(": ");
                    last.push_str(cause);
                }
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// A path as the working directory has it, without `.` and `..`.
pub(super) fn joined(cwd: &Path, word: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in cwd.join(word).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_enclose_words_and_apostrophes_do_not() {
        for (text, expected) in [
            ("Can't open \"out/k\" for writing", vec!["out/k"]),
            ("cannot move 'a' to 'b'", vec!["a", "b"]),
            ("cannot remove ‘old’", vec!["old"]),
            ("cannot create `x'", vec!["x"]),
            ("it's the user's file", vec![]),
            ("unable to open 'it's here'", vec!["it's here"]),
        ] {
            assert_eq!(quoted(text), expected, "{text}");
        }
    }

    #[test]
    fn a_cause_is_on_the_line_of_its_error() {
        let said = "error: failed to write `/w/Cargo.lock`\n\nCaused by:\n  failed to open: /w/Cargo.lock\n\n\
                    Caused by:\n  Read-only file system (os error 30)\nlast\n";
        let joined = "error: failed to write `/w/Cargo.lock`: failed to open: /w/Cargo.lock: Read-only file system \
                      (os error 30)\nlast";
        assert_eq!(join_causes(said), joined);
        assert_eq!(join_causes("Caused by:\n  x\n"), "  x");
    }

    #[test]
    fn a_word_of_a_sentence_is_no_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        let paths = |line: &str| -> Vec<String> {
            let at = line.to_ascii_lowercase().find(READ_ONLY).unwrap();
            let found = paths(line, at, READ_ONLY, dir.path()).into_iter();
            let name = |path: PathBuf| match path.strip_prefix(dir.path()) {
                Ok(rest) => rest.display().to_string(),
                Err(_) => path.display().to_string(),
            };
            found.map(name).collect()
        };
        for (line, expected) in [
            ("tar: out/t.tar: Cannot open: Read-only file system", vec!["out/t.tar"]),
            ("genrsa: Can't open \"out/k\" for writing, Read-only file system", vec!["out/k"]),
            ("/usr/bin/ld: cannot open output file out/h: Read-only file system", vec!["out/h"]),
            ("Error opening output out/a.png: Read-only file system", vec!["out/a.png"]),
            ("patch: **** Can't create temporary file a.oX : Read-only file system", vec!["a.oX"]),
            ("./out: Read-only file system", vec![]),
            ("x: wants version 1.2: Read-only file system", vec![]),
            ("zip I/O error: Read-only file system", vec![]),
            ("zip error: Read-only file system", vec![]),
            ("x: cannot open file: Read-only file system", vec![]),
            ("x: Cannot write: Read-only file system", vec![]),
            ("x: Unable to make a link: Read-only file system", vec![]),
            ("x: cannot create directory: Read-only file system", vec![]),
            ("x: out.txt: error: Read-only file system", vec!["out.txt"]),
            ("x: none/there: Read-only file system", vec![]),
            (
                "fatal: cannot copy '/usr/share/t' to '/work/.git/t': Read-only file system",
                vec!["/work/.git/t"],
            ),
            ("Error: EROFS: read-only file system, copyfile 'a' -> 'out/b'", vec!["out/b"]),
            ("ln: failed to create hard link 'b' => 'a': Read-only file system", vec!["b"]),
            ("mv: cannot move 'a' to '../b': Read-only file system", vec!["a", "../b"]),
        ] {
            let outside = joined(dir.path(), "../b").display().to_string();
            let expected: Vec<String> = expected
                .into_iter()
                .map(|path| if path == "../b" { outside.clone() } else { path.to_owned() })
                .collect();
            assert_eq!(paths(line), expected, "{line}");
        }
    }
}
