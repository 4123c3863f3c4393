//! Contents of the state directory, and what removes each part (invariant S8). Used by `store stats`, `gc`, `verify`
//! and the documentation of the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use lobster_base::locked_directory::{left_in, remove_left, remove_left_files};

use serde::Serialize;

use super::error::StoreError;
use super::gc::dir_entries;
use super::{SCRATCH, Store, UNFINISHED_BLOB};

/// Prefix of the directories for the layers of a staged step.
pub const LAYERS_PREFIX: &str = "lobster-layers-";

/// Prefix of the home directory of a confined step.
pub const HOME_PREFIX: &str = "lobster-home-";

/// Prefix of the directories with copies of approved files.
pub const COPIES_PREFIX: &str = "approved-";

/// A file or directory below the state directory.
#[derive(Clone, Copy, Debug)]
pub struct StatePart {
    /// Path relative to the state directory. A path that ends with `/` includes everything below it; `*` is any text.
    pub path: &'static str,
    /// Description of the content.
    pub holds: &'static str,
    /// Operation that removes it.
    pub removed_by: &'static str,
}

const fn state_part(path: &'static str, holds: &'static str, removed_by: &'static str) -> StatePart {
    StatePart { path, holds, removed_by }
}

/// After a kill, the next run or `store gc` removes parts with the sign.
const NEXT_RUN: &str = "the end of the step†";
const WITH_RUN: &str = "`store gc`, with the runs that name it";
const NOTHING: &str = "nothing";

/// All parts.
pub const STATE_PARTS: &[StatePart] = &[
    state_part(
        "store/lobster.db*",
        "runs, journals, approvals, the action cache, small blobs (SQLite)",
        "`store gc`, run by run",
    ),
    state_part("store/blobs/", "blobs over 64 KiB, named by their BLAKE3", WITH_RUN),
    state_part(
        "store/output/",
        "the output of steps that are running, or were when lobster was killed",
        "the end of the step, `resume`, or `store gc` with the run",
    ),
    state_part("store/layers/", "what running staged steps write", NEXT_RUN),
    state_part("store/homes/", "homes of running steps under a policy", NEXT_RUN),
    state_part("store/workers/", "what running workers keep of their orders", "the end of the worker†"),
    state_part("store/trees/", "listings of the files that approvals cover", "a limit of 256 MiB"),
    state_part("approved-*/", "copies of approved files, for running steps", NEXT_RUN),
    state_part("store/tmp/", "blobs being written, and bundles being read", "the end of the write†"),
    state_part(
        "store/locks/",
        "locks: of runs, and one empty file for each state key",
        "the end of the run; after a kill `store gc`, with the run",
    ),
    state_part(
        "store/commits/",
        "commits of changes to files that are not finished",
        "the commit; after a kill the next command",
    ),
    state_part("store/code/", "compiled components", "a limit of 1 GiB; `store gc`"),
    state_part(
        "store/answers/",
        "answers of models that are kept under a policy",
        "`store gc --older-than`, by age",
    ),
    state_part("store/trust/", "project policies that a person trusts", "`policy untrust`"),
    state_part("store/name", "the store's name", NOTHING),
    state_part("store/high-water*", "the newest durable records, outside the database", NOTHING),
    state_part("store/collected", "when the last collection began", NOTHING),
    state_part("store/gc.lock", "the lock of collections", NOTHING),
    state_part("store/new-*", "a database being created", "its creation; after a kill `store gc`"),
    state_part("models/", "which channels of a model pool rest, and until when", NOTHING),
    state_part("logins/", "logins at MCP servers", "`mcp logout`"),
    state_part(
        ".lobster-*",
        "a state file being written, a copy being made",
        "the end of the write; after a kill `store gc`",
    ),
    state_part(
        "*.json",
        "what `state.set` and `diff.last` keep, one readable file for each key",
        "`state.set`",
    ),
];

/// The part to which a path below the state directory belongs.
#[must_use]
pub fn part_of(path: &str) -> Option<&'static StatePart> {
    STATE_PARTS.iter().find(|part| {
        let (pattern, is_tree) = match part.path.strip_suffix('/') {
            Some(tree) => (tree, true),
            None => (part.path, false),
        };
        let depth = pattern.split('/').count();
        let own: Vec<&str> = path.splitn(depth + 1, '/').collect();
        if own.len() < depth || own.len() > depth && !is_tree {
            return false;
        }
        match pattern.split_once('*') {
            None => own[..depth].join("/") == pattern,
            Some((begin, end)) => {
                let own = own[..depth].join("/");
                own.len() >= begin.len() + end.len() && own.starts_with(begin) && own.ends_with(end)
            }
        }
    })
}

/// Space taken by one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartUse {
    /// The path of its [`StatePart`]; for files that belong to no part, their own path.
    pub path: String,
    /// True if it belongs to a known part.
    pub is_known: bool,
    pub files: u64,
    pub bytes: u64,
}

/// Most files without a part that are listed.
const NAMED_AT_MOST: usize = 20;

/// Directories in use: their parent directory and the prefix of their name.
const LOCKED: [(&str, &str); 5] = [
    ("store/layers", LAYERS_PREFIX),
    ("store/homes", HOME_PREFIX),
    ("store/workers", SCRATCH),
    ("store/tmp", SCRATCH),
    ("", COPIES_PREFIX),
];

/// Removes remains of killed processes in the background; dropping it waits for the end.
#[derive(Debug, Default)]
pub struct Sweep(Option<JoinHandle<()>>);

impl Drop for Sweep {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

impl Store {
    fn state_dir(&self) -> &Path {
        self.inner.dir.parent().unwrap_or(&self.inner.dir)
    }

    /// Space taken by each part of the state directory, except the blobs, which the database counts.
    #[must_use]
    pub fn part_uses(&self) -> Vec<PartUse> {
        let mut uses: Vec<PartUse> = Vec::new();
        let mut unnamed = 0;
        walk_files(self.state_dir(), "", &mut |path, bytes| {
            let known = part_of(path);
            let name = known.map_or(path, |part| part.path);
            let number = match uses.iter().position(|used| used.path == name) {
                Some(number) => number,
                None if known.is_none() && unnamed == NAMED_AT_MOST => uses.len() - 1,
                None => {
                    unnamed += usize::from(known.is_none());
                    uses.push(PartUse {
                        path: name.to_owned(),
                        is_known: known.is_some(),
                        ..PartUse::default()
                    });
                    uses.len() - 1
                }
            };
            uses[number].files += 1;
            uses[number].bytes += bytes;
        });
        let order = |used: &PartUse| STATE_PARTS.iter().position(|part| part.path == used.path);
        uses.sort_by_key(|used| order(used).unwrap_or(usize::MAX));
        uses
    }

    /// Removes kept model answers that are older than this many milliseconds.
    pub(super) fn forget_answers(&self, age_ms: i64) -> Result<(), StoreError> {
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
        for path in dir_entries(&self.inner.dir.join("answers")) {
            let made =
                fs::metadata(&path).ok().filter(fs::Metadata::is_file).and_then(|meta| meta.modified().ok());
            if made.and_then(|made| made.elapsed().ok()).is_some_and(|past| past > age) {
                fs::remove_file(&path).map_err(|error| StoreError::io("remove", &path, error))?;
            }
        }
        Ok(())
    }

    /// Directories left by killed processes: none of them is locked.
    #[must_use]
    pub fn left_directories(&self) -> Vec<PathBuf> {
        let left = LOCKED.iter().flat_map(|(dir, prefix)| left_in(&self.state_dir().join(dir), prefix));
        left.map(|left| left.path().to_owned()).collect()
    }

    /// Removes the directories left by killed processes, and returns their number.
    pub fn remove_left_directories(&self) -> u64 {
        LOCKED.iter().map(|(dir, prefix)| remove_left(&self.state_dir().join(dir), prefix)).sum()
    }

    /// The same in the background.
    #[must_use]
    pub fn start_sweep(&self) -> Sweep {
        remove_left_files(&self.state_dir().join("store/tmp"), UNFINISHED_BLOB);
        let mut left = Vec::new();
        for (dir, prefix) in LOCKED {
            left.extend(left_in(&self.state_dir().join(dir), prefix));
        }
        if left.is_empty() {
            return Sweep::default();
        }
        let remove = move || left.into_iter().for_each(|left| drop(left.remove()));
        Sweep(std::thread::Builder::new().name("sweep".to_owned()).spawn(remove).ok())
    }
}

/// Passes each file below a directory to `each`, without following links.
fn walk_files(dir: &Path, below: &str, each: &mut impl FnMut(&str, u64)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let path = match below {
            "" => name.to_string_lossy().into_owned(),
            below => format!("{below}/{}", name.to_string_lossy()),
        };
        let Ok(meta) = entry.metadata() else { continue };
        if path == "store/blobs" {
            continue;
        }
        if meta.is_dir() { walk_files(&entry.path(), &path, each) } else { each(&path, meta.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_belongs_to_one_part() {
        for (path, part) in [
            ("store/lobster.db-wal", Some("store/lobster.db*")),
            ("store/layers/lobster-layers-x/0/upper/a", Some("store/layers/")),
            ("approved-x/0", Some("approved-*/")),
            ("key.json", Some("*.json")),
            ("store/key.json", None),
            ("notes.txt", None),
        ] {
            assert_eq!(part_of(path).map(|part| part.path), part, "{path}");
        }
    }

    #[test]
    fn the_page_about_the_store_has_every_part() {
        let page: Vec<&str> = include_str!("../../../docs/store.md").split_whitespace().collect();
        let page = page.join(" ");
        for StatePart { path, holds, removed_by } in STATE_PARTS {
            let item = format!("- `{path}`: {holds} ({removed_by})");
            assert!(page.contains(&item), "docs/store.md lacks {item}");
        }
    }
}
