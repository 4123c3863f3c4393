//! Order in which a person reads a change set: changes that are not visible in a diff first, renames as one
//! change, and generated files last.

use std::collections::{BTreeMap, BTreeSet};

use lobster_base::digest::Digest;

use crate::set::{ByteText, Change, ChangeKind, ChangeSet, Entry, RelPath};

/// Generated files, which people do not read line by line.
const GENERATED: [&str; 12] = [
    "Cargo.lock",
    "Gemfile.lock",
    "Pipfile.lock",
    "bun.lock",
    "composer.lock",
    "flake.lock",
    "go.sum",
    "package-lock.json",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
    "yarn.lock",
];

/// Name endings of such files.
const GENERATED_ENDS: [&str; 5] = [".min.js", ".min.css", ".js.map", ".pb.go", "_pb2.py"];

/// One change with details for a reader.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'c> {
    /// The directory.
    pub root: &'c ByteText,
    /// The change of the path.
    pub change: &'c Change,
    /// Former path of the same file.
    pub renamed_from: Option<&'c RelPath>,
    /// True for a generated file that had such a name before and is not executable.
    pub is_generated: bool,
}

impl ChangeSet {
    /// The changes in reading order. A renamed file occurs once.
    #[must_use]
    pub fn in_reading_order(&self) -> Vec<Reading<'_>> {
        let mut readings = Vec::new();
        for of_root in &self.roots {
            let renamed = find_renames(&of_root.changes);
            let gone: BTreeSet<&RelPath> = renamed.values().copied().collect();
            for change in &of_root.changes {
                let is_gone = change.after.is_none() && gone.contains(&change.path);
                if !is_gone {
                    readings.push(Reading {
                        root: &of_root.root,
                        change,
                        renamed_from: renamed.get(&change.path).copied(),
                        is_generated: is_generated(change),
                    });
                }
            }
        }
        readings.sort_by_key(|reading| {
            (reading.is_generated, reading_rank(reading), reading.root, &reading.change.path)
        });
        readings
    }
}

/// Deletions first, then changes of permissions, links, contents, and new files.
fn reading_rank(reading: &Reading<'_>) -> u8 {
    match reading.change.kind() {
        ChangeKind::Delete => 0,
        ChangeKind::Mode => 1,
        ChangeKind::Create
            if is_executable(reading.change.after.as_ref()) && reading.renamed_from.is_none() =>
        {
            2
        }
        ChangeKind::Link => 3,
        ChangeKind::Create if reading.renamed_from.is_some() => 4,
        ChangeKind::Modify => 5,
        ChangeKind::Create => 6,
    }
}

/// True if it is an executable file.
#[must_use]
pub fn is_executable(entry: Option<&Entry>) -> bool {
    matches!(entry, Some(Entry::File { mode, .. }) if mode & 0o111 != 0)
}

fn is_generated(change: &Change) -> bool {
    // A step chooses the names of new files itself.
    let is_old = matches!(change.before, Some(Entry::File { .. }));
    let runs = [&change.before, &change.after].into_iter().any(|entry| is_executable(entry.as_ref()));
    let name = String::from_utf8_lossy(change.path.last_name());
    is_old && !runs && (GENERATED.contains(&&*name) || GENERATED_ENDS.iter().any(|end| name.ends_with(end)))
}

/// Former path of each renamed file: exactly one removed file has the same content and mode.
fn find_renames(changes: &[Change]) -> BTreeMap<&RelPath, &RelPath> {
    let mut gone: BTreeMap<(Digest, u32), Vec<&RelPath>> = BTreeMap::new();
    let mut new: BTreeMap<(Digest, u32), Vec<&RelPath>> = BTreeMap::new();
    for change in changes {
        match (&change.before, &change.after) {
            (Some(Entry::File { digest, mode, size: 1.., same_as: None, .. }), None) => {
                gone.entry((*digest, *mode)).or_default().push(&change.path);
            }
            (None, Some(Entry::File { digest, mode, size: 1.., same_as: None, .. })) => {
                new.entry((*digest, *mode)).or_default().push(&change.path);
            }
            _ => {}
        }
    }
    let pairs = gone.iter().filter_map(|(file, paths)| match (paths.as_slice(), new.get(file)?.as_slice()) {
        ([from], [to]) => Some((*to, *from)),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::RootChanges;

    #[test]
    fn a_reader_is_told_first_what_no_difference_shows_and_renames_once() {
        let file = |text: &str, mode| {
            let digest = Digest::of_bytes(text.as_bytes());
            Some(Entry::File {
                digest,
                size: text.len() as u64,
                mode,
                modified: None,
                same_as: None,
                acl: None,
            })
        };
        let changes = [
            ("Cargo.lock", file("1", 0o644), file("2", 0o644)),
            ("a", file("a", 0o644), file("b", 0o644)),
            ("b-old", file("moved", 0o644), None),
            ("c-new", None, file("moved", 0o644)),
            ("empty", file("", 0o644), None),
            ("empty2", None, file("", 0o644)),
            ("go.sum", file("1", 0o644), file("2", 0o755)),
            ("helper_pb2.py", None, file("3", 0o644)),
            ("m", file("m", 0o644), file("m", 0o755)),
            ("old_pb2.py", file("1", 0o644), file("4", 0o644)),
            ("run", None, file("run", 0o755)),
            ("twice", file("x", 0o644), None),
            ("x1", None, file("x", 0o644)),
            ("x2", None, file("x", 0o644)),
            ("z", file("z", 0o644), None),
        ];
        let changes = changes.map(|(path, before, after)| Change {
            path: RelPath::new(path).unwrap(),
            before,
            after,
            shared: None,
        });
        let root = ByteText::from(b"/r".to_vec());
        let set = ChangeSet::new(vec![RootChanges { root, changes: changes.into() }]);
        let readings = set.in_reading_order();
        let told: Vec<String> = readings
            .iter()
            .map(|reading| match reading.renamed_from {
                Some(from) => format!("{from} > {}", reading.change.path),
                None => reading.change.path.to_string(),
            })
            .collect();
        assert_eq!(
            told,
            [
                "empty",
                "twice",
                "z",
                "m",
                "run",
                "b-old > c-new",
                "a",
                "go.sum",
                "empty2",
                "helper_pb2.py",
                "x1",
                "x2",
                "Cargo.lock",
                "old_pb2.py"
            ]
        );
    }
}
