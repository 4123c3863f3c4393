//! Resolves conflicts: adapts a change set to the present files, which differ from those from which it was
//! made.

use std::io::{self, Read};

use crate::commit::{CommitError, Conflict, Contents, find_conflicts};
use crate::disk::Disk;
use crate::files::{Files, RootedPath, What};
use crate::layer::Keep;
use crate::merge::merge_texts;
use crate::set::{Change, ChangeSet, Entry, RelPath};

/// Treatment of files that other programs have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Leaves them unchanged: the change set does not touch them.
    Keep,
    /// Replaces them by the result of the change set, regardless of their present content.
    Overwrite,
    /// Merges texts in which both sides changed different lines.
    Merge,
}

/// Reason why there is no new change set.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Files cannot be compared.
    #[error(transparent)]
    Compare(#[from] CommitError),
    /// A conflict cannot be resolved in this way.
    #[error("{conflict}, and {why}")]
    Unresolved {
        /// The file.
        conflict: Conflict,
        /// The reason.
        why: String,
    },
    /// A file cannot be read or stored.
    #[error("cannot read {}: {source}", .conflict.path)]
    Read {
        /// The file.
        conflict: Conflict,
        /// The system's error.
        source: io::Error,
    },
}

/// Longer texts are not merged.
const MAX_TEXT: u64 = 16 << 20;

/// The change set that can be committed if `set` conflicts. Present contents are stored in `keep`, for an
/// undo.
///
/// # Errors
/// If a conflict cannot be resolved in this way. Nothing is changed in any case.
pub fn resolve_set(
    set: &ChangeSet,
    how: Resolution,
    contents: &dyn Contents,
    keep: &mut dyn Keep,
) -> Result<ChangeSet, ResolveError> {
    let found = find_conflicts(set)?;
    if how == Resolution::Keep {
        let paths: Vec<_> = found.into_iter().map(|conflict| (conflict.root, conflict.path)).collect();
        return Ok(set.without_paths(&paths));
    }
    let disk = Disk::open(set)?;
    let mut resolved = set.clone();
    for conflict in found {
        let places = set.roots.iter().enumerate().find(|(_, of_root)| of_root.root == conflict.root);
        let Some((root, of_root)) = places else { continue };
        let Some(at) = of_root.changes.iter().position(|change| change.path == conflict.path) else {
            continue;
        };
        let change = &of_root.changes[at];
        let mut case = Case { disk: &disk, contents, keep: &mut *keep, conflict, root };
        let now = case.entry_now()?;
        case.check_parent(of_root.changes.as_slice())?;
        let after = match how {
            Resolution::Merge => Some(case.merged_entry(change, now.as_ref())?),
            Resolution::Overwrite | Resolution::Keep => case.overwritten_entry(change)?,
        };
        resolved.roots[root].changes[at] =
            Change { path: change.path.clone(), before: now, after, shared: change.shared };
    }
    for of_root in &mut resolved.roots {
        of_root.changes.retain(Change::is_effective);
    }
    Ok(ChangeSet::new(resolved.roots))
}

/// One file that another program has changed.
struct Case<'c> {
    disk: &'c Disk,
    contents: &'c dyn Contents,
    keep: &'c mut dyn Keep,
    conflict: Conflict,
    root: usize,
}

impl Case<'_> {
    fn file_place(&self) -> RootedPath {
        RootedPath { root: self.root, path: self.conflict.path.clone() }
    }

    fn unresolved_error(&self, why: impl Into<String>) -> ResolveError {
        ResolveError::Unresolved { conflict: self.conflict.clone(), why: why.into() }
    }

    fn read_error(&self, source: io::Error) -> ResolveError {
        ResolveError::Read { conflict: self.conflict.clone(), source }
    }

    /// The present file, with its content stored.
    fn entry_now(&mut self) -> Result<Option<Entry>, ResolveError> {
        let place = self.file_place();
        let Some(seen) = self.disk.read_status(&place).map_err(|source| self.read_error(source))? else {
            return Ok(None);
        };
        let modified = Some(seen.modified);
        Ok(Some(match seen.what {
            What::File => {
                let kept = self.disk.read_file(&place).and_then(|mut file| self.keep.keep_content(&mut file));
                let (digest, size) = kept.map_err(|source| self.read_error(source))?;
                let acl = self.disk.acl(&place).map_err(|source| self.read_error(source))?;
                Entry::File { digest, size, mode: seen.mode, modified, same_as: None, acl }
            }
            What::Link => {
                let target = self.disk.read_link(&place).map_err(|source| self.read_error(source))?;
                Entry::Link { target, modified }
            }
            What::Directory | What::Other => {
                return Err(
                    self.unresolved_error("only files and links can be replaced; keep it, or move it away")
                );
            }
        }))
    }

    /// Checks that its directory exists or is made by the change set.
    fn check_parent(&self, changes: &[Change]) -> Result<(), ResolveError> {
        let Some(above) = self.conflict.path.parent() else { return Ok(()) };
        let is_made = |path: &RelPath| {
            let made = changes.iter().find(|change| change.path == *path).map(|change| change.after.as_ref());
            made.is_some_and(|after| after.is_some_and(Entry::is_directory))
        };
        let place = RootedPath { root: self.root, path: above.clone() };
        let there = self.disk.read_status(&place).map_err(|source| self.read_error(source))?;
        if is_made(&above) || there.is_some_and(|seen| seen.what == What::Directory) {
            Ok(())
        } else {
            Err(self.unresolved_error(
                "the directory that it was in is gone; keep it so, or make the directory again",
            ))
        }
    }

    /// The result of the change set.
    fn overwritten_entry(&self, change: &Change) -> Result<Option<Entry>, ResolveError> {
        let is_directory = |entry: &Option<Entry>| entry.as_ref().is_some_and(Entry::is_directory);
        if is_directory(&change.before) || is_directory(&change.after) {
            return Err(self.unresolved_error("a directory is not overwritten; keep it, or move it away"));
        }
        Ok(change.after.clone())
    }

    /// The text with the changes of both sides.
    fn merged_entry(&mut self, change: &Change, now: Option<&Entry>) -> Result<Entry, ResolveError> {
        let (
            Some(Entry::File { digest: base, size: base_size, mode: base_mode, .. }),
            Some(Entry::File { digest: ours, size: our_size, mode: our_mode, same_as: None, .. }),
            Some(Entry::File { digest: theirs, size: their_size, mode: their_mode, .. }),
        ) = (&change.before, &change.after, now)
        else {
            return Err(self.unresolved_error(
                "only a text that was there before, and is there in both versions, can be merged; keep it, or overwrite it",
            ));
        };
        let mode = match (our_mode == base_mode, their_mode == base_mode) {
            (true, _) => *their_mode,
            (_, true) => *our_mode,
            (false, false) if our_mode == their_mode => *our_mode,
            (false, false) => {
                return Err(self.unresolved_error("both sides changed its mode; keep it, or overwrite it"));
            }
        };
        if [base_size, our_size, their_size].into_iter().any(|size| *size > MAX_TEXT) {
            return Err(self.unresolved_error("it is too large to be merged; keep it, or overwrite it"));
        }
        let [base, one] = [base, ours].map(|digest| {
            let mut text = Vec::new();
            self.contents
                .open_content(digest)
                .and_then(|mut content| content.read_to_end(&mut text))
                .map(|_| text)
        });
        let (base, one) =
            (base.map_err(|source| self.read_error(source))?, one.map_err(|source| self.read_error(source))?);
        let mut other = Vec::new();
        let read = self.disk.read_file(&self.file_place()).and_then(|mut file| file.read_to_end(&mut other));
        read.map_err(|source| self.read_error(source))?;
        if lobster_base::digest::Digest::of_bytes(&other) != *theirs {
            return Err(self.unresolved_error("it is changing at the moment; try again"));
        }
        if [&base, &one, &other].into_iter().any(|text| text.contains(&0)) {
            return Err(self.unresolved_error("it is not text; keep it, or overwrite it"));
        }
        let text = merge_texts(&base, &one, &other).map_err(|line| {
            self.unresolved_error(format!(
                "both sides changed line {line} of it; keep it, overwrite it, or edit it"
            ))
        })?;
        let (digest, size) =
            self.keep.keep_content(&mut text.as_slice()).map_err(|source| self.read_error(source))?;
        Ok(Entry::File { digest, size, mode, modified: None, same_as: None, acl: None })
    }
}
