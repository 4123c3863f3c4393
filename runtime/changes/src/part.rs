//! Parts of a change set: what a person agrees to, and what is left when some files are left alone.
//!
//! A part can always be committed by itself. It has the new directories that its files lie in, it removes a
//! directory only with all that was in it, and it has every name of a file or none.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::set::{ByteText, Change, ChangeSet, Entry, RelPath, RootChanges};

/// A place that nothing in a change set is about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing at {path} changes", path = .path.display())]
pub struct NotChanged {
    /// The place.
    pub path: PathBuf,
}

impl ChangeSet {
    /// The part that is about these places and all that is in them, with what it cannot do without.
    ///
    /// # Errors
    /// When nothing changes at one of them.
    pub fn only(&self, places: &[PathBuf]) -> Result<Self, NotChanged> {
        let is_at =
            |place: &Path, root: &ByteText, change: &Change| whole(root, &change.path).starts_with(place);
        for place in places {
            if !self.changes().any(|(root, change)| is_at(place, root, change)) {
                return Err(NotChanged { path: place.clone() });
            }
        }
        Ok(self.part(
            |root, change| places.iter().any(|place| is_at(place, root, change)),
            |index, change| index.needs(change),
        ))
    }

    /// What is left without these paths: also without what needs them.
    #[must_use]
    pub fn without(&self, paths: &[(ByteText, RelPath)]) -> Self {
        let left = |root: &ByteText, change: &Change| {
            paths.iter().any(|(of, path)| of == root && *path == change.path)
        };
        let dropped = self.part(left, |index, change| index.needed_by(change));
        let is_dropped = |root: &ByteText, change: &Change| {
            let of_root = dropped.roots.iter().find(|dropped| dropped.root == *root);
            of_root.is_some_and(|dropped| dropped.changes.iter().any(|other| other.path == change.path))
        };
        self.filtered(|root, change| !is_dropped(root, change))
    }

    /// The changes that are meant, and all that follow from them.
    fn part(
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
        self.filtered(|root, change| parts.get(root).is_some_and(|found| found.contains(&change.path)))
    }

    fn filtered(&self, is_in: impl Fn(&ByteText, &Change) -> bool) -> Self {
        let roots = self.roots.iter().map(|of_root| RootChanges {
            root: of_root.root.clone(),
            changes: of_root.changes.iter().filter(|change| is_in(&of_root.root, change)).cloned().collect(),
        });
        Self::new(roots.collect())
    }
}

/// The changes of a root, to be found by their paths.
struct Index<'c> {
    all: BTreeMap<&'c RelPath, &'c Change>,
    /// The further names of a file, by its first.
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

    /// What a change cannot be committed without: the new directories that it is put into, and of a
    /// directory that goes, what is in it.
    fn needs(&self, change: &Change) -> Vec<RelPath> {
        let is_new = |it: &&Change| !is_directory(it.before.as_ref()) && is_directory(it.after.as_ref());
        let above = change
            .path
            .ancestors()
            .filter(|above| change.after.is_some() && self.all.get(above).is_some_and(is_new));
        let goes = is_directory(change.before.as_ref()) && !is_directory(change.after.as_ref());
        let inside = self.inside(&change.path).filter(|_| goes).map(|other| other.path.clone());
        above.chain(inside).collect()
    }

    /// What cannot be committed without a change: what is put into the directory that it makes, and the
    /// going of a directory that it would have emptied.
    fn needed_by(&self, change: &Change) -> Vec<RelPath> {
        let is_going = |it: &&Change| is_directory(it.before.as_ref()) && !is_directory(it.after.as_ref());
        let comes = is_directory(change.after.as_ref()) && !is_directory(change.before.as_ref());
        let inside = self.inside(&change.path).filter(|other| comes && other.after.is_some());
        let above = change
            .path
            .ancestors()
            .filter(|above| change.before.is_some() && self.all.get(above).is_some_and(is_going));
        inside.map(|other| other.path.clone()).chain(above).collect()
    }

    /// The other names of a file, as far as they change.
    fn other_names(&self, change: &Change) -> Vec<RelPath> {
        let further = self.names.get(&change.path).into_iter().flatten().copied();
        first_name(change).into_iter().chain(further).cloned().collect()
    }

    fn inside<'s>(&'s self, path: &'s RelPath) -> impl Iterator<Item = &'c Change> + use<'s, 'c> {
        // All that is in it stands together, behind its own name and a slash.
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

fn whole(root: &ByteText, path: &RelPath) -> PathBuf {
    Path::new(OsStr::from_bytes(root.as_bytes())).join(OsStr::from_bytes(path.as_bytes()))
}
