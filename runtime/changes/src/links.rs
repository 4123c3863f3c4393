//! The rule for links: a commit makes no link lead out of its directory or to a protected place.
//!
//! Links are resolved to their end, in the tree as the commit will leave it and through the links of the system. A
//! missing name counts as a directory, because a later step can create it. A commit can also redirect a link that it does
//! not change, by changing another link on its way, or make a bare repository where it leads. All links of the directory
//! are then resolved before and after the commit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::commit::{CommitError, io_failure};
use crate::disk::Disk;
use crate::files::{Files, RootedPath, What};
use crate::set::{ByteText, Change, ChangeSet, Entry, RelPath, RootChanges, is_cut_off};

/// Most links on one way, as in the kernel.
const MOST_LINKS: usize = 40;

/// The names by which git recognises a bare repository. Each may be a link.
const REPOSITORY: [(&[u8], What); 3] =
    [(b"HEAD", What::File), (b"objects", What::Directory), (b"refs", What::Directory)];

/// Places outside of their directory where links may lead, and places where they may not.
#[derive(Clone, Debug, Default)]
pub struct LinkRule {
    /// Absolute links may lead to these places and below them.
    pub system: Vec<PathBuf>,
    /// No link may lead to these places, below them, to `.git` or into a bare repository.
    pub protected: Vec<PathBuf>,
    /// True for an undo: a link that it restores may lead away if it did so before, whatever is on its way.
    pub restores: bool,
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
    /// Away from a place named `.git`, where git would follow it.
    FromGit,
}

impl std::fmt::Display for StrayLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the step left a link ")?;
        match &self.leads {
            Stray::Out => write!(f, "that leads out of the granted directory")?,
            Stray::Protected(place) => write!(f, "that leads into `{place}`")?,
            Stray::FromGit => write!(f, "in the place of git's directory")?,
        }
        write!(f, ": {}/{} -> {}", self.root, self.path, self.target)
    }
}

impl LinkRule {
    /// Refuses a change set that makes a link lead away.
    ///
    /// # Errors
    /// [`CommitError::Link`] with the first such link.
    pub fn check_links(&self, set: &ChangeSet) -> Result<(), CommitError> {
        if set.changes().any(|(_, change)| may_lead_away(change)) {
            self.check_on(&Disk::open(set)?, set)?;
        }
        Ok(())
    }

    pub(crate) fn check_on(&self, files: &Disk, set: &ChangeSet) -> Result<(), CommitError> {
        for (number, of_root) in set.roots.iter().enumerate() {
            if !of_root.changes.iter().any(may_lead_away) {
                continue;
            }
            let tree = Tree::new(self, files, number, of_root);
            for Change { path, after, .. } in &of_root.changes {
                match after {
                    Some(Entry::Link { target, .. }) => {
                        let place = RootedPath { root: number, path: path.clone() };
                        let away = tree.made(path, target).map_err(io_failure("follow", set, &place))?;
                        tree.refuse_stray(path, target, away)?;
                    }
                    Some(Entry::File { same_as: Some(of), .. }) if !self.restores => {
                        let stray = tree.protected_place(&tree.whole(of), path);
                        let bare = || of.ancestors().find_map(|above| tree.bare(&above, path, true));
                        let away = stray.or_else(bare).map(Away::at_once);
                        tree.refuse_stray(path, &of.clone().into(), away)?;
                    }
                    _ => {}
                }
            }
            let moves_link =
                |change: &Change| is_link(&change.before) || is_link(&change.after) || completes_bare(change);
            let kept = of_root.changes.iter().any(moves_link).then(|| tree.kept_links());
            for (path, target) in kept.into_iter().flatten() {
                // A link into a directory that cannot be read cannot be followed.
                let [before, after] =
                    [false, true].map(|will_be| tree.resolve_link(&path, &target, will_be).ok().flatten());
                if before != after {
                    tree.refuse_stray(&path, &target, after)?;
                }
            }
        }
        Ok(())
    }
}

/// True if the change makes, changes or removes a link, gives a file another name or may make a bare repository.
fn may_lead_away(change: &Change) -> bool {
    let is_name = matches!(change.after, Some(Entry::File { same_as: Some(_), .. }));
    is_name || is_link(&change.before) || is_link(&change.after) || completes_bare(change)
}

/// True if the change makes a name by which git recognises a repository.
fn completes_bare(change: &Change) -> bool {
    let kind = |entry: &Entry| std::mem::discriminant(entry);
    REPOSITORY.iter().any(|(name, _)| *name == change.path.last_name())
        && change.after.is_some()
        && change.before.as_ref().map(kind) != change.after.as_ref().map(kind)
}

fn is_link(entry: &Option<Entry>) -> bool {
    matches!(entry, Some(Entry::Link { .. }))
}

/// The place where a link leads away.
#[derive(PartialEq, Eq)]
struct Away {
    leads: Stray,
    /// The names after the place, the last first; outside of the root followed by the names of the place.
    names: Vec<Vec<u8>>,
}

impl Away {
    fn at_once(leads: Stray) -> Self {
        Self { leads, names: Vec::new() }
    }
}

/// A directory before and after the commit.
struct Tree<'t> {
    rule: &'t LinkRule,
    files: &'t Disk,
    number: usize,
    root: &'t ByteText,
    /// The names of the root.
    top: Vec<Vec<u8>>,
    after: BTreeMap<&'t RelPath, &'t Change>,
    /// Directories, before or after the commit, and true for each bare repository.
    bare: RefCell<BTreeMap<(bool, RelPath), bool>>,
}

impl<'t> Tree<'t> {
    fn new(rule: &'t LinkRule, files: &'t Disk, number: usize, of_root: &'t RootChanges) -> Self {
        let after = of_root.changes.iter().map(|change| (&change.path, change)).collect();
        let top = names_of(of_root.root.as_bytes()).map(<[u8]>::to_vec).collect();
        Self { rule, files, number, root: &of_root.root, top, after, bare: RefCell::default() }
    }

    fn refuse_stray(&self, path: &RelPath, target: &ByteText, away: Option<Away>) -> Result<(), CommitError> {
        let Some(Away { leads, .. }) = away else { return Ok(()) };
        let (root, path, target) = (self.root.clone(), path.clone(), target.clone());
        Err(CommitError::Link(Box::new(StrayLink { root, path, target, leads })))
    }

    /// The place where a link of the change set leads away.
    fn made(&self, link: &RelPath, target: &ByteText) -> io::Result<Option<Away>> {
        if is_git(link.last_name()) && !self.rule.restores {
            return Ok(Some(Away::at_once(Stray::FromGit)));
        }
        let away = self.resolve_link(link, target, true)?;
        if away.is_some() && self.rule.restores && self.leads_away_itself(link, target, true)? {
            return Ok(None);
        }
        Ok(away)
    }

    /// Resolves a link, after the commit if `will_be`; `None` if it leads to an allowed place.
    fn resolve_link(&self, link: &RelPath, target: &ByteText, will_be: bool) -> io::Result<Option<Away>> {
        let mut at = self.whole(link);
        at.pop();
        let mut left: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(target.clone());
        for _ in 0..MOST_LINKS {
            let Some(target) = next.take() else { break };
            let mut names: Vec<Vec<u8>> = names_of(target.as_bytes()).map(<[u8]>::to_vec).collect();
            if is_absolute(&target) {
                // The directories above the root are not looked up, since the root is a real path.
                let above = if names.starts_with(&self.top) { self.top.len() } else { 0 };
                at = names.drain(..above).collect();
            }
            left.extend(names.into_iter().rev());
            while next.is_none() {
                let Some(name) = left.pop() else { return Ok(self.end_outside(at)) };
                if name == b".." {
                    if at == self.top {
                        return Ok(Some(Away { leads: Stray::Out, names: left }));
                    }
                    at.pop();
                    continue;
                }
                at.push(name);
                if let Some(leads) = self.protected_place(&at, link) {
                    return Ok(Some(Away { leads, names: left }));
                }
                next = match self.within(&at)? {
                    Some(path) => {
                        if let Some(leads) = self.bare(&path, link, will_be) {
                            return Ok(Some(Away { leads, names: left }));
                        }
                        self.link_at(&path, will_be)?
                    }
                    None if self.is_way_to_system(&at) => system_link(&at),
                    None => return Ok(Some(judge_outside(at, left))),
                };
                if next.is_some() {
                    at.pop();
                }
            }
        }
        // The kernel refuses longer ways.
        Ok(None)
    }

    /// True if a link, or the first link on its way, leads away by its own target: changes to other files on the way
    /// cannot have redirected it.
    fn leads_away_itself(&self, link: &RelPath, target: &ByteText, follows: bool) -> io::Result<bool> {
        if self.resolve_link(link, target, true)?.is_none() {
            return Ok(false);
        }
        let mut at: Vec<Vec<u8>> = link.names().map(<[u8]>::to_vec).collect();
        at.pop();
        let mut names: Vec<&[u8]> = names_of(target.as_bytes()).collect();
        if is_absolute(target) {
            if names.len() < self.top.len() || names.iter().zip(&self.top).any(|(name, top)| name != top) {
                return Ok(true);
            }
            names.drain(..self.top.len());
            at.clear();
        }
        let mut is_below_name = false;
        for name in names {
            if name == b".." {
                if is_below_name {
                    return Ok(false);
                }
                if at.pop().is_none() {
                    return Ok(true);
                }
                continue;
            }
            is_below_name = true;
            at.push(name.to_vec());
            let path = RelPath::new(at.join(&b'/')).map_err(io::Error::other)?;
            if let Some(target) = self.link_at(&path, true)? {
                return if follows { self.leads_away_itself(&path, &target, false) } else { Ok(false) };
            }
        }
        Ok(true)
    }

    /// The names of a path of the root, from `/` on.
    fn whole(&self, path: &RelPath) -> Vec<Vec<u8>> {
        self.top.iter().cloned().chain(path.names().map(<[u8]>::to_vec)).collect()
    }

    /// The path below the root, if there is one.
    fn within(&self, at: &[Vec<u8>]) -> io::Result<Option<RelPath>> {
        match at.strip_prefix(self.top.as_slice()) {
            Some(inner) if !inner.is_empty() => {
                RelPath::new(inner.join(&b'/')).map(Some).map_err(io::Error::other)
            }
            _ => Ok(None),
        }
    }

    /// Judges the end of a way: outside of the root, a place of the system is allowed.
    fn end_outside(&self, at: Vec<Vec<u8>>) -> Option<Away> {
        let path = path_of(&at);
        let is_allowed =
            at.starts_with(&self.top) || self.rule.system.iter().any(|place| path.starts_with(place));
        (!is_allowed).then(|| judge_outside(at, Vec::new()))
    }

    /// True if a place outside of the root belongs to the system, or is above such a place. A repository does not
    /// belong to the system.
    fn is_way_to_system(&self, at: &[Vec<u8>]) -> bool {
        let path = path_of(at);
        let is_on_way = |place: &PathBuf| path.starts_with(place) || place.starts_with(&path);
        at == self.top || self.rule.system.iter().any(is_on_way) && !at.iter().any(|name| is_git(name))
    }

    /// The protected place that contains a path, unless it also contains the link.
    fn protected_place(&self, at: &[Vec<u8>], link: &RelPath) -> Option<Stray> {
        let is_own = |count: usize| {
            let of_link = self.whole(link);
            of_link.len() > count && of_link[..count] == at[..count]
        };
        let top = if at.starts_with(&self.top) { self.top.len() } else { at.len() };
        if let Some(inner) = at[top..].iter().position(|name| is_git(name))
            && !is_own(top + inner + 1)
        {
            return Some(Stray::Protected(at[top + inner].clone().into()));
        }
        let place = self.rule.protected.iter().find(|place| {
            let names: Vec<&[u8]> = names_of(place.as_os_str().as_bytes()).collect();
            // The file system may ignore case.
            let same = at.iter().zip(&names).all(|(name, of_place)| name.eq_ignore_ascii_case(of_place));
            at.len() >= names.len() && same && !is_own(names.len())
        })?;
        Some(Stray::Protected(place.as_os_str().as_bytes().to_vec().into()))
    }

    /// A bare repository at a path, unless it also contains the link. An undo restores links into repositories, and
    /// repositories that links lead into.
    fn bare(&self, path: &RelPath, link: &RelPath, will_be: bool) -> Option<Stray> {
        if self.rule.restores || link.from(path).is_some() || !self.is_bare(path, will_be) {
            return None;
        }
        Some(Stray::Protected(path.clone().into()))
    }

    /// True if git recognises the directory as a repository.
    fn is_bare(&self, dir: &RelPath, will_be: bool) -> bool {
        let key = (will_be, dir.clone());
        if let Some(known) = self.bare.borrow().get(&key) {
            return *known;
        }
        let is_bare = REPOSITORY.iter().all(|(name, what)| {
            let found = self.what_at(&dir.join(name), will_be);
            found == Some(*what) || found == Some(What::Link)
        });
        self.bare.borrow_mut().insert(key, is_bare);
        is_bare
    }

    /// The kind of the file at a path. A file in an unreadable directory has no kind.
    fn what_at(&self, path: &RelPath, will_be: bool) -> Option<What> {
        if let Some(after) = will_be.then(|| self.entry_after(path)).flatten() {
            return after.map(|entry| match entry {
                Entry::File { .. } => What::File,
                Entry::Directory { .. } => What::Directory,
                Entry::Link { .. } => What::Link,
            });
        }
        let place = RootedPath { root: self.number, path: path.clone() };
        self.files.read_status(&place).ok().flatten().map(|seen| seen.what)
    }

    fn link_at(&self, path: &RelPath, will_be: bool) -> io::Result<Option<ByteText>> {
        if let Some(after) = will_be.then(|| self.entry_after(path)).flatten() {
            return Ok(match after {
                Some(Entry::Link { target, .. }) => Some(target.clone()),
                _ => None,
            });
        }
        let place = RootedPath { root: self.number, path: path.clone() };
        match self.files.read_status(&place) {
            Ok(Some(seen)) if seen.what == What::Link => self.files.read_link(&place).map(Some),
            // The name is too long to exist.
            Err(error) if error.kind() != io::ErrorKind::InvalidFilename => Err(error),
            _ => Ok(None),
        }
    }

    /// The entry that the commit leaves at a path; `None` if the commit does not change the path.
    fn entry_after(&self, path: &RelPath) -> Option<Option<&Entry>> {
        match self.after.get(path) {
            Some(change) => Some(change.after.as_ref()),
            None => is_cut_off(path, &self.after).then_some(None),
        }
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
                        if self.entry_after(&inner).is_none() {
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

/// A way that leaves the allowed places outside of the root at `at`.
fn judge_outside(at: Vec<Vec<u8>>, mut left: Vec<Vec<u8>>) -> Away {
    left.extend(at.into_iter().rev());
    // No name: the way begins at `/` and not above the root.
    left.push(Vec::new());
    Away { leads: Stray::Out, names: left }
}

/// The target of a link outside of the root, which no commit changes. An unreadable place is taken for a directory.
fn system_link(at: &[Vec<u8>]) -> Option<ByteText> {
    fs::read_link(path_of(at)).ok().map(|target| target.into_os_string().into_encoded_bytes().into())
}

fn path_of(at: &[Vec<u8>]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&[b"/", at.join(&b'/').as_slice()].concat()))
}

/// The names of a path or target, without those that lead nowhere.
fn names_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

fn is_absolute(target: &ByteText) -> bool {
    target.as_bytes().first() == Some(&b'/')
}

fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}
