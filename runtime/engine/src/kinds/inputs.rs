//! The files that a step's author adds to its action: the files that match the patterns of `inputs`, with their
//! contents.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use lobster_base::file_digests::FileDigests;
use lobster_base::glob::glob_match;

/// Most files that one step's patterns may match: their names and digests become part of every such action.
const MAX_INPUTS: usize = 50_000;

/// An error while reading the inputs of a step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("cannot read the input {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the inputs are more than {MAX_INPUTS} files; name fewer")]
    TooMany,
}

/// The digest of each file that matches a pattern, and null for each pattern without a match. Patterns and names are
/// relative to `dir`.
///
/// `*`, `?` and `[…]` match within a name, `**` any number of directories. A matching directory stands for everything
/// in it. Links to files are read; links to directories are followed only if a pattern names them.
pub(crate) fn digest_files(
    dir: &Path,
    patterns: &[String],
    files: &FileDigests,
) -> Result<Map<String, Value>, InputError> {
    let mut search = Search { files, found: Map::new(), matched: false };
    for pattern in patterns {
        let mut words: Vec<&str> =
            pattern.split('/').filter(|word| !word.is_empty() && *word != ".").collect();
        words.dedup_by(|word, before| *word == "**" && *before == "**");
        let (root, name) = if pattern.starts_with('/') { (Path::new("/"), "/") } else { (dir, "") };
        search.matched = false;
        search.find_matches(root, name, &words)?;
        if !search.matched {
            search.found.insert(format!("{name}{}", words.join("/")), Value::Null);
        }
    }
    Ok(search.found)
}

struct Search<'f> {
    files: &'f FileDigests,
    found: Map<String, Value>,
    /// True if the current pattern has matched anything.
    matched: bool,
}

impl Search<'_> {
    /// Takes the paths that match `words`, from the directory `at` on, which is called `name`.
    fn find_matches(&mut self, at: &Path, name: &str, words: &[&str]) -> Result<(), InputError> {
        let Some((word, rest)) = words.split_first() else { return self.add_path(at, name) };
        if *word == "**" {
            self.find_matches(at, name, rest)?;
            if rest.is_empty() {
                return Ok(()); // the whole pattern is matched
            }
            for entry in list_directory(at)? {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    self.find_matches(&entry.path(), &entry_name(name, &entry.file_name()), words)?;
                }
            }
            return Ok(());
        }
        if !word.contains(['*', '?', '[', '\\']) {
            return self.find_matches(&at.join(word), &entry_name(name, OsStr::new(word)), rest);
        }
        for entry in list_directory(at)? {
            let own = entry.file_name();
            if glob_match(word, &own.to_string_lossy()) {
                self.find_matches(&entry.path(), &entry_name(name, &own), rest)?;
            }
        }
        Ok(())
    }

    /// Takes a file, or everything in a directory.
    fn add_path(&mut self, at: &Path, name: &str) -> Result<(), InputError> {
        let Some(metadata) = none_if_missing(at, fs::metadata(at))? else { return Ok(()) };
        if metadata.is_dir() {
            for entry in list_directory(at)? {
                let (path, name) = (entry.path(), entry_name(name, &entry.file_name()));
                let link_to_directory =
                    entry.file_type().is_ok_and(|kind| kind.is_symlink()) && path.is_dir();
                if !link_to_directory {
                    self.add_path(&path, &name)?;
                }
            }
        } else if metadata.is_file()
            && let Some(digest) = none_if_missing(at, self.files.digest(at))?
        {
            if self.found.len() >= MAX_INPUTS {
                return Err(InputError::TooMany);
            }
            self.matched = true;
            self.found.insert(name.to_owned(), json!(digest));
        }
        Ok(())
    }
}

/// The name of a directory entry; bytes that are not text are escaped.
fn entry_name(dir: &str, name: &OsStr) -> String {
    let slash = if dir.is_empty() || dir.ends_with('/') { "" } else { "/" };
    match name.to_str() {
        Some(name) => format!("{dir}{slash}{name}"),
        None => format!("{dir}{slash}{}", name.as_bytes().escape_ascii()),
    }
}

/// The entries of a directory; empty if it is missing or not a directory.
fn list_directory(dir: &Path) -> Result<Vec<DirEntry>, InputError> {
    let read = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    Ok(none_if_missing(dir, read)?.unwrap_or_default())
}

/// `None` if the file does not exist, or was removed meanwhile.
fn none_if_missing<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, InputError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(InputError::Unreadable { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use lobster_base::digest::Digest;

    fn sample_directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.txt", "c.md", ".hidden", "sub/a.txt", "sub/deep/a.txt", "sub/deep/x"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        dir
    }

    fn matching_names(dir: &Path, patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let found = digest_files(dir, &patterns, &FileDigests::default()).unwrap();
        let mut names: Vec<_> = found
            .into_iter()
            .map(|(name, digest)| if digest.is_null() { format!("no {name}") } else { name })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn patterns_match_files() {
        let dir = sample_directory();
        let root = dir.path();
        symlink("sub", root.join("link")).unwrap();
        symlink("gone", root.join("dangling")).unwrap();
        for (patterns, found) in [
            (&["*.txt"][..], &["a.txt", "b.txt"][..]),
            (&["./a.txt", "c.md"], &["a.txt", "c.md"]),
            (&["**/a.txt"], &["a.txt", "sub/a.txt", "sub/deep/a.txt"]),
            (&["**/**/x"], &["sub/deep/x"]),
            (&["sub/**"], &["sub/a.txt", "sub/deep/a.txt", "sub/deep/x"]),
            (&["sub"], &["sub/a.txt", "sub/deep/a.txt", "sub/deep/x"]),
            (&["sub/*"], &["sub/a.txt", "sub/deep/a.txt", "sub/deep/x"]),
            (&["link/a.txt"], &["link/a.txt"]),
            (&["[ab].txt", "?.md", ".hid*"], &[".hidden", "a.txt", "b.txt", "c.md"]),
            (
                &["*.csv", "none/**", "dangling", "a.txt/x"],
                &["no *.csv", "no a.txt/x", "no dangling", "no none/**"],
            ),
            (&["sub/../a.txt"], &["sub/../a.txt"]),
        ] {
            assert_eq!(matching_names(root, patterns), found, "{patterns:?}");
        }
        let all = matching_names(root, &["**"]);
        assert!(!all.iter().any(|name| name.starts_with("link") || name == "dangling"), "{all:?}");
        assert_eq!(all.len(), 7);
        let absolute = root.join("a.txt").display().to_string();
        assert_eq!(matching_names(root, &[&absolute]), [absolute]);
    }

    #[test]
    fn digests_are_those_of_the_contents() {
        let dir = sample_directory();
        let found = digest_files(dir.path(), &["a.txt".to_owned()], &FileDigests::default()).unwrap();
        assert_eq!(Value::from(found), json!({ "a.txt": Digest::of_bytes(b"a.txt") }));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let dir = sample_directory();
        let long = "x".repeat(5000);
        let error = digest_files(dir.path(), &[long], &FileDigests::default()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the input ") && error.contains("xxx"), "{error}");
    }
}
