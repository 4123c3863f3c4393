//! The rule for links: a commit makes no link lead out of its directory or to a protected place.
//!
//! Links are resolved in the tree as the commit will leave it. A missing name counts as a directory, because a later
//! step can create it. A commit can also redirect a link that it does not change, by changing another link on its way.
//! If a commit changes any link, all links of the directory are therefore resolved before and after it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::commit::{CommitError, failed};
use crate::disk::Disk;
use crate::files::{Files, Place, What};
use crate::set::{ByteText, Change, ChangeSet, Entry, RelPath};

/// Most links on one way, as in the kernel.
const MOST_LINKS: usize = 40;

/// Places outside of their directory where links may lead, and places where they may not.
#[derive(Clone, Debug, Default)]
pub struct LinkRule {
    /// Absolute links may lead to these places and below them.
    pub system: Vec<PathBuf>,
    /// No link may lead to these places, below them, or to `.git`.
    pub protected: Vec<PathBuf>,
}

/// A link that the rule refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayLink {
    /// The directory.
    pub root: ByteText,
    /// The link in it.
    pub path: RelPath,
    /// The target of the link, or the other path of a hard link.
    pub target: ByteText,
    /// The place where it leads.
    pub leads: Stray,
}

/// The place where a refused link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stray {
    /// Out of the directory.
    Out,
    /// To a protected place, or below one.
    Protected(ByteText),
}

impl std::fmt::Display for StrayLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the step left a link that leads ")?;
        match &self.leads {
            Stray::Out => write!(f, "out of the granted directory")?,
            Stray::Protected(place) => write!(f, "into `{place}`")?,
        }
        write!(f, ": {}/{} -> {}", self.root, self.path, self.target)
    }
}

impl LinkRule {
    /// Refuses a change set that makes a link lead away.
    ///
    /// # Errors
    /// [`CommitError::Link`] with the first such link.
    pub fn check(&self, set: &ChangeSet) -> Result<(), CommitError> {
        if set.changes().any(|(_, change)| touches_link(change)) {
            self.check_on(&Disk::open(set)?, set)?;
        }
        Ok(())
    }

    pub(crate) fn check_on(&self, files: &Disk, set: &ChangeSet) -> Result<(), CommitError> {
        for (number, of_root) in set.roots.iter().enumerate() {
            if !of_root.changes.iter().any(touches_link) {
                continue;
            }
            let after = of_root.changes.iter().map(|change| (&change.path, change)).collect();
            let tree = Tree { rule: self, files, number, root: &of_root.root, after };
            for Change { path, after, .. } in &of_root.changes {
                match after {
                    Some(Entry::Link { target, .. }) => {
                        let place = Place { root: number, path: path.clone() };
                        let away = tree.end(path, target, true).map_err(failed("follow", set, &place))?;
                        tree.refuse(path, target, away)?;
                    }
                    Some(Entry::File { same_as: Some(of), .. }) => {
                        let names: Vec<&[u8]> = of.names().collect();
                        let stray = tree.protected(&names, path);
                        tree.refuse(path, &of.clone().into(), stray.map(|stray| (stray, Vec::new())))?;
                    }
                    _ => {}
                }
            }
            let moves_link = |change: &Change| is_link(&change.before) || is_link(&change.after);
            let kept = of_root.changes.iter().any(moves_link).then(|| tree.kept_links());
            for (path, target) in kept.into_iter().flatten() {
                // A link into a directory that cannot be read cannot be followed.
                let [before, after] =
                    [false, true].map(|will_be| tree.end(&path, &target, will_be).ok().flatten());
                if before != after {
                    tree.refuse(&path, &target, after)?;
                }
            }
        }
        Ok(())
    }
}

/// True if the change makes, changes or removes a link, or gives a file another name.
fn touches_link(change: &Change) -> bool {
    let is_name = matches!(change.after, Some(Entry::File { same_as: Some(_), .. }));
    is_name || is_link(&change.before) || is_link(&change.after)
}

fn is_link(entry: &Option<Entry>) -> bool {
    matches!(entry, Some(Entry::Link { .. }))
}

/// The place where a link leaves its directory, and the names after it.
type Away = (Stray, Vec<Vec<u8>>);

/// A directory before and after the commit.
struct Tree<'t> {
    rule: &'t LinkRule,
    files: &'t Disk,
    number: usize,
    root: &'t ByteText,
    after: BTreeMap<&'t RelPath, &'t Change>,
}

impl Tree<'_> {
    fn refuse(&self, path: &RelPath, target: &ByteText, away: Option<Away>) -> Result<(), CommitError> {
        let Some((leads, _)) = away else { return Ok(()) };
        let (root, path, target) = (self.root.clone(), path.clone(), target.clone());
        Err(CommitError::Link(Box::new(StrayLink { root, path, target, leads })))
    }

    /// Resolves a link, after the commit if `will_be`; `None` if it leads to an allowed place.
    fn end(&self, link: &RelPath, target: &ByteText, will_be: bool) -> io::Result<Option<Away>> {
        let own: Vec<&[u8]> = link.names().collect();
        let mut at: Vec<Vec<u8>> = own[..own.len() - 1].iter().map(|name| name.to_vec()).collect();
        let mut left: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(target.clone());
        for _ in 0..MOST_LINKS {
            let Some(target) = next.take() else { break };
            let names =
                target.as_bytes().split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
            let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
            if target.as_bytes().first() == Some(&b'/') {
                let Some(inside) = self.inside(&names) else {
                    left.extend(names.iter().rev().cloned());
                    return Ok(self.outside(&names).map(|stray| (stray, left)));
                };
                names.drain(..inside);
                at.clear();
            }
            left.extend(names.into_iter().rev());
            while next.is_none() {
                let Some(name) = left.pop() else { return Ok(None) };
                if name == b".." {
                    if at.pop().is_none() {
                        return Ok(Some((Stray::Out, left)));
                    }
                    continue;
                }
                at.push(name);
                let names: Vec<&[u8]> = at.iter().map(Vec::as_slice).collect();
                if let Some(stray) = self.protected(&names, link) {
                    return Ok(Some((stray, left)));
                }
                next = self.link_at(&RelPath::new(at.join(&b'/')).map_err(io::Error::other)?, will_be)?;
                if next.is_some() {
                    at.pop();
                }
            }
        }
        // The kernel refuses longer ways.
        Ok(None)
    }

    /// Number of names in an absolute path up to the root, if it begins with the root.
    fn inside(&self, names: &[Vec<u8>]) -> Option<usize> {
        let root: Vec<&[u8]> =
            self.root.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        (names.len() >= root.len() && names.iter().zip(&root).all(|(name, root)| name == root))
            .then_some(root.len())
    }

    /// Judges an absolute path outside of the root: a place of the system is allowed.
    fn outside(&self, names: &[Vec<u8>]) -> Option<Stray> {
        let path = PathBuf::from(OsStr::from_bytes(&[b"/", names.join(&b'/').as_slice()].concat()));
        let is_system = self.rule.system.iter().any(|place| path.starts_with(place));
        let is_plain = !names.iter().any(|name| name == b".." || is_git(name));
        (!is_system || !is_plain).then_some(Stray::Out)
    }

    /// The protected place that contains a path of the root, unless it also contains the link.
    fn protected(&self, names: &[&[u8]], link: &RelPath) -> Option<Stray> {
        let root = Path::new(OsStr::from_bytes(self.root.as_bytes()));
        let of_link: Vec<&[u8]> = link.names().collect();
        let is_own = |count: usize| of_link.len() > count && of_link[..count] == names[..count];
        if let Some(at) = names.iter().position(|name| is_git(name))
            && !is_own(at + 1)
        {
            let spelled = names[at].to_vec();
            return Some(Stray::Protected(spelled.into()));
        }
        let place = self.rule.protected.iter().find_map(|place| {
            let inner: Vec<&[u8]> =
                place.strip_prefix(root).ok()?.components().map(|name| name.as_os_str().as_bytes()).collect();
            // The file system may ignore case.
            let same = names.iter().zip(&inner).all(|(name, inner)| name.eq_ignore_ascii_case(inner));
            (names.len() >= inner.len() && same && !is_own(inner.len())).then_some(place)
        })?;
        Some(Stray::Protected(place.as_os_str().as_bytes().to_vec().into()))
    }

    fn link_at(&self, path: &RelPath, will_be: bool) -> io::Result<Option<ByteText>> {
        if will_be {
            if let Some(change) = self.after.get(path) {
                return Ok(match &change.after {
                    Some(Entry::Link { target, .. }) => Some(target.clone()),
                    _ => None,
                });
            }
            if self.is_below_change(path) {
                return Ok(None);
            }
        }
        let place = Place { root: self.number, path: path.clone() };
        match self.files.look(&place) {
            Ok(Some(seen)) if seen.what == What::Link => self.files.read_link(&place).map(Some),
            // The name is too long to exist.
            Err(error) if error.kind() != io::ErrorKind::InvalidFilename => Err(error),
            _ => Ok(None),
        }
    }

    /// True if a directory above it is replaced or removed.
    fn is_below_change(&self, path: &RelPath) -> bool {
        let ends = |above: RelPath| {
            self.after
                .get(&above)
                .is_some_and(|change| !change.after.as_ref().is_some_and(Entry::is_directory))
        };
        path.ancestors().any(ends)
    }

    /// The links that the commit does not change. Unreadable directories are skipped.
    fn kept_links(&self) -> Vec<(RelPath, ByteText)> {
        let root = PathBuf::from(OsStr::from_bytes(self.root.as_bytes()));
        let (mut links, mut dirs) = (Vec::new(), vec![root.clone()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let (path, kind) = (entry.path(), entry.file_type());
                match kind {
                    Ok(kind) if kind.is_dir() => dirs.push(path),
                    Ok(kind) if kind.is_symlink() => {
                        let inner =
                            path.strip_prefix(&root).map(|path| RelPath::new(path.as_os_str().as_bytes()));
                        let (Ok(Ok(inner)), Ok(target)) = (inner, fs::read_link(&path)) else { continue };
                        if !self.after.contains_key(&inner) && !self.is_below_change(&inner) {
                            links.push((inner, target.into_os_string().into_encoded_bytes().into()));
                        }
                    }
                    _ => {}
                }
            }
        }
        links
    }
}

fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}
