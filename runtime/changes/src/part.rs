//! Parts of a change set: the part that a person approves, and the rest if some files are left out.
//!
//! A part can always be committed by itself. It includes the new directories of its files, it removes a
//! directory only together with its former entries, and it has either all names of a file or none.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::set::{ByteText, Change, ChangeSet, Entry, RelPath, RootChanges};

/// A path without changes in a change set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing at {path} changes", path = .path.display())]
pub struct NotChanged {
    /// The path.
    pub path: PathBuf,
}

impl ChangeSet {
    /// The changes at and below these places, with all changes that they require.
    ///
    /// # Errors
    /// If nothing changes at one of the places.
    pub fn only_at(&self, places: &[PathBuf]) -> Result<Self, NotChanged> {
        let is_at =
            |place: &Path, root: &ByteText, change: &Change| full_path(root, &change.path).starts_with(place);
        for place in places {
            if !self.changes().any(|(root, change)| is_at(place, root, change)) {
                return Err(NotChanged { path: place.clone() });
            }
        }
        Ok(self.select_with(
            |root, change| places.iter().any(|place| is_at(place, root, change)),
            |index, change| index.required_paths(change),
        ))
    }

    /// The changes without these paths, and without the changes that require them.
    #[must_use]
    pub fn without_paths(&self, paths: &[(ByteText, RelPath)]) -> Self {
        let left = |root: &ByteText, change: &Change| {
            paths.iter().any(|(of, path)| of == root && *path == change.path)
        };
        let dropped = self.select_with(left, |index, change| index.needed_by(change));
        let is_dropped = |root: &ByteText, change: &Change| {
            let of_root = dropped.roots.iter().find(|dropped| dropped.root == *root);
            of_root.is_some_and(|dropped| dropped.changes.iter().any(|other| other.path == change.path))
        };
        self.filter_changes(|root, change| !is_dropped(root, change))
    }

    /// The selected changes, and all that follow from them.
    fn select_with(
        &self,
        is_meant: impl Fn(&ByteText, &Change) -> bool,
        follow: fn(&Index<'_>, &Change) -> Vec<RelPath>,
    ) -> Self {
        let mut parts = BTreeMap::new();
        for of_root in &self.roots {
            let index = Index::new(&of_root.changes);
            let mut found: BTreeSet<RelPath> = BTreeSet::new();
            let meant = of_root.changes.iter().filter(|change| is_meant(&of_root.root, change));
            let mut open: Vec<RelPath> = meant.map(|change| change.path.clone()).collect();
            while let Some(path) = open.pop() {
                if let Some(change) = index.all.get(&path).filter(|_| found.insert(path.clone())) {
                    open.extend(follow(&index, change));
                    open.extend(index.other_names(change));
                }
            }
            parts.insert(of_root.root.clone(), found);
        }
        self.filter_changes(|root, change| parts.get(root).is_some_and(|found| found.contains(&change.path)))
    }

    fn filter_changes(&self, is_in: impl Fn(&ByteText, &Change) -> bool) -> Self {
        let roots = self.roots.iter().map(|of_root| RootChanges {
            root: of_root.root.clone(),
            changes: of_root.changes.iter().filter(|change| is_in(&of_root.root, change)).cloned().collect(),
        });
        Self::new(roots.collect())
    }
}

/// Changes of a root, indexed by their paths.
struct Index<'c> {
    all: BTreeMap<&'c RelPath, &'c Change>,
    /// Further names of a file, by its first name.
    names: BTreeMap<&'c RelPath, Vec<&'c RelPath>>,
}

impl<'c> Index<'c> {
    fn new(changes: &'c [Change]) -> Self {
        let mut names: BTreeMap<&RelPath, Vec<&RelPath>> = BTreeMap::new();
        for change in changes {
            if let Some(first) = first_name(change) {
                names.entry(first).or_default().push(&change.path);
            }
        }
        Self { all: changes.iter().map(|change| (&change.path, change)).collect(), names }
    }

    /// Changes that a change requires: the new directories above it, and for a removed directory, the removal
    /// of its entries.
    fn required_paths(&self, change: &Change) -> Vec<RelPath> {
        let is_new = |it: &&Change| !is_directory(it.before.as_ref()) && is_directory(it.after.as_ref());
        let above = change
            .path
            .ancestors()
            .filter(|above| change.after.is_some() && self.all.get(above).is_some_and(is_new));
        let goes = is_directory(change.before.as_ref()) && !is_directory(change.after.as_ref());
        let inside = self.changes_inside(&change.path).filter(|_| goes).map(|other| other.path.clone());
        above.chain(inside).collect()
    }

    /// Changes that require a change: the entries of a new directory, and the removal of a directory above
    /// that would not be empty.
    fn needed_by(&self, change: &Change) -> Vec<RelPath> {
        let is_going = |it: &&Change| is_directory(it.before.as_ref()) && !is_directory(it.after.as_ref());
        let comes = is_directory(change.after.as_ref()) && !is_directory(change.before.as_ref());
        let inside = self.changes_inside(&change.path).filter(|other| comes && other.after.is_some());
        let above = change
            .path
            .ancestors()
            .filter(|above| change.before.is_some() && self.all.get(above).is_some_and(is_going));
        inside.map(|other| other.path.clone()).chain(above).collect()
    }

    /// The other changed names of a file.
    fn other_names(&self, change: &Change) -> Vec<RelPath> {
        let further = self.names.get(&change.path).into_iter().flatten().copied();
        first_name(change).into_iter().chain(further).cloned().collect()
    }

    fn changes_inside<'s>(&'s self, path: &'s RelPath) -> impl Iterator<Item = &'c Change> + use<'s, 'c> {
        // Paths inside are consecutive and begin with the directory's own path and a slash.
        let begin = path.join(b"");
        let behind = self.all.range::<RelPath, _>((Bound::Included(&begin), Bound::Unbounded));
        behind.map(|(_, change)| *change).take_while(move |other| other.path.from(path).is_some())
    }
}

fn first_name(change: &Change) -> Option<&RelPath> {
    match &change.after {
        Some(Entry::File { same_as, .. }) => same_as.as_ref(),
        _ => None,
    }
}

fn is_directory(entry: Option<&Entry>) -> bool {
    entry.is_some_and(Entry::is_directory)
}

fn full_path(root: &ByteText, path: &RelPath) -> PathBuf {
    Path::new(OsStr::from_bytes(root.as_bytes())).join(OsStr::from_bytes(path.as_bytes()))
}
