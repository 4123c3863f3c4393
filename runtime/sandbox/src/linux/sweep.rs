//! What a jail must cover that no specification can name: found by walking
//! its roots just before it is made.
//!
//! Three things are looked for: what patterns hide, directories of git's in
//! the write roots, and unix sockets. Each directory is looked at before each
//! step; what it holds is read again unless it is certain that it is the same
//! (see [`super::listing`]). What could not be looked at is named, so that
//! nobody is promised it.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, openat, statat};
use rustix::io::Errno;

use super::super::patterns::{Patterns, StateId, Walk};
use super::super::{JailSpec, Missing, Promise};
use super::listing::{Listing, Memory, Recall, Unread, Wanted, kind_of};
use super::mount_stubs::Stand;

/// Entries that are looked at before a step. A million take about a second;
/// who has more in the roots of one step is told that patterns do not hold.
const MOST_ENTRIES: u64 = 1_000_000;

/// A file system that answers slowly must not hold a step up for ever. Long, so
/// that a busy machine changes no answer.
const MOST_TIME: Duration = Duration::from_secs(20);

/// Each takes a mount, of which the kernel allows 100,000 in a namespace.
const MOST_FOUND: usize = 10_000;

/// Directories above them in write roots: each is a mount point as well, so that it stays where it is.
const MOST_HELD: usize = 50_000;

/// Directories within directories: each is an open descriptor here.
const MOST_DEPTH: usize = 200;

/// Symbolic links to directories within one path, where the path matters to a pattern.
const MOST_LINKS: usize = 8;

/// A path that the kernel takes, with its end.
const LONGEST_PATH: usize = 4095;

/// For the entries of one directory at a time.
const BUFFER: usize = 64 * 1024;

/// The kernel's own trees: a jail has another `/proc` and `/dev`, and nobody's files lie in `/sys`.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What in a directory of git's makes git run programs or use another
/// directory's settings, and what may stand where there is none: git takes it
/// for absent, or for the directory itself.
const MAKES_GIT_RUN_CODE: [(&str, Stand); 8] = [
    ("hooks", Stand::Directory),
    ("modules", Stand::Directory),
    ("worktrees", Stand::Directory),
    ("config", Stand::File(b"")),
    ("config.worktree", Stand::File(b"")),
    ("commondir", Stand::File(b".\n")),
    ("info/attributes", Stand::File(b"")),
    ("objects/info/alternates", Stand::File(b"")),
];

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// To be hidden.
    pub(super) deny: Vec<PathBuf>,
    /// To be read-only.
    pub(super) protect: Vec<PathBuf>,
    /// To be read-only too, and to be made first where they are missing.
    pub(super) stand_ins: Vec<(PathBuf, Stand)>,
    /// What cannot be promised, and why.
    pub(super) missing: Vec<Missing>,
}

/// Walks the roots of a jail.
pub(super) fn sweep(spec: &JailSpec, memory: &Memory) -> Found {
    // Without wishes there is nothing to look for.
    if spec.deny_patterns.is_empty() && !spec.protect_repositories && !spec.hides_sockets() {
        return Found::default();
    }
    let mut found = Found::default();
    let patterns = Patterns::new(&spec.deny_patterns).unwrap_or_else(|pattern| {
        let why = format!("the pattern {pattern:?} is too long");
        found.missing.push(Missing { promise: Promise::FsDenyPatterns, why });
        Patterns::default()
    });
    let mut sweep = Sweep {
        spec,
        walk: Walk::new(patterns),
        recall: memory.recall(&spec.deny_patterns),
        inner_writable: HashSet::new(),
        system: spec.system.iter().map(PathBuf::as_path).chain(KERNEL.map(Path::new)).collect(),
        inner_system: HashSet::new(),
        inner_denied: HashSet::new(),
        found,
        buffer: vec![MaybeUninit::uninit(); BUFFER],
        entries: 0,
        begin: Instant::now(),
        unseen: None,
        linked: HashSet::new(),
        followed: HashSet::new(),
        above: HashSet::new(),
    };
    let roots = sweep.roots();
    let starts = sweep.starts_in_system_trees();
    let is_inner = |path: &&Path| {
        path.ancestors().skip(1).any(|above| roots.iter().chain(&starts).any(|root| root == above))
    };
    sweep.inner_system = sweep.system.iter().copied().filter(is_inner).collect();
    sweep.inner_denied = spec.deny.iter().map(PathBuf::as_path).filter(is_inner).collect();
    sweep.inner_writable = spec.write.iter().map(PathBuf::as_path).filter(is_inner).collect();
    for root in &roots {
        sweep.root(root);
    }
    for start in &starts {
        sweep.root_for(start, true);
    }
    sweep.other_names_of_hits(&roots);
    sweep.finish()
}

struct Sweep<'a> {
    spec: &'a JailSpec,
    walk: Walk,
    recall: Recall,
    system: HashSet<&'a Path>,
    /// Those of the system's trees and of the write roots that a walk may come
    /// upon: nearly always none, and paths are slow to look up.
    inner_system: HashSet<&'a Path>,
    /// What is hidden whatever is in it.
    inner_denied: HashSet<&'a Path>,
    inner_writable: HashSet<&'a Path>,
    found: Found,
    buffer: Vec<MaybeUninit<u8>>,
    entries: u64,
    begin: Instant,
    /// The first thing that was not looked at, and why.
    unseen: Option<String>,
    /// Inodes with several names that are hidden under one of them.
    linked: HashSet<(u64, u64)>,
    /// Directories that links have led to, with what was matched by then.
    followed: HashSet<(PathBuf, StateId)>,
    /// The directories above what is hidden, as far as they could be moved.
    above: HashSet<PathBuf>,
}

/// One directory, as its parent knows it.
struct Place {
    path: PathBuf,
    state: StateId,
    /// In a write root.
    writable: bool,
    /// In a directory of git's, which is read-only as a whole.
    in_repository: bool,
    depth: usize,
    links: usize,
}

/// A directory that is opened when it must be: one that is as it was need not be.
struct Directory {
    /// The directory that it is in, if it is not a root.
    parent: Option<Rc<Directory>>,
    name: OsString,
    /// What was judged as this root, where something was: the name may lead elsewhere by now.
    held: Option<OwnedFd>,
    opened: OnceCell<OwnedFd>,
}

impl Directory {
    fn root(path: &Path, held: Option<OwnedFd>) -> Rc<Self> {
        Rc::new(Self { parent: None, name: path.as_os_str().to_owned(), held, opened: OnceCell::new() })
    }

    fn below(parent: &Rc<Self>, name: OsString) -> Rc<Self> {
        Rc::new(Self { parent: Some(Rc::clone(parent)), name, held: None, opened: OnceCell::new() })
    }

    fn open(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened.as_fd());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match (&self.parent, &self.held) {
            (None, None) => openat(CWD, &self.name, flags, Mode::empty()),
            (None, Some(held)) => openat(held, ".", flags, Mode::empty()),
            (Some(parent), _) => openat(parent.open()?, &self.name, flags | OFlags::NOFOLLOW, Mode::empty()),
        }?;
        Ok(self.opened.get_or_init(|| opened).as_fd())
    }

    fn status(&self) -> rustix::io::Result<rustix::fs::Stat> {
        match (&self.parent, &self.held) {
            (None, None) => statat(CWD, &self.name, AtFlags::empty()),
            (None, Some(held)) => fstat(held),
            (Some(parent), _) => statat(parent.open()?, &self.name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }
}

impl<'a> Sweep<'a> {
    /// The roots that lie in no other one and are not the system's. What is made for the step is empty.
    fn roots(&self) -> Vec<PathBuf> {
        let mut all: BTreeSet<&PathBuf> = self.spec.read.iter().chain(&self.spec.write).collect();
        all.retain(|root| !self.system.contains(root.as_path()) && !self.spec.own.contains(root));
        let others = all.clone();
        let is_inner = |root: &PathBuf| {
            // A tree of the system in between is not entered from above.
            root.ancestors()
                .skip(1)
                .take_while(|above| !self.system.contains(above))
                .any(|above| others.contains(&above.to_path_buf()))
        };
        all.into_iter().filter(|root| !is_inner(root)).cloned().collect()
    }

    /// Where patterns that begin in a tree of the system begin.
    fn starts_in_system_trees(&self) -> Vec<PathBuf> {
        let fixed = |pattern: &String| -> Option<PathBuf> {
            let names = pattern.strip_prefix('/')?.split('/');
            let fixed = names.take_while(|name| !name.contains(['*', '?', '[', '\\']));
            Some(fixed.fold(PathBuf::from("/"), |path, name| path.join(name)))
        };
        let mut starts: Vec<PathBuf> = self.spec.deny_patterns.iter().filter_map(fixed).collect();
        let in_system = |start: &PathBuf| {
            start.ancestors().any(|above| {
                !["/proc", "/dev"].iter().any(|other| above == Path::new(other))
                    && self.spec.system.iter().any(|tree| tree == above)
            })
        };
        starts.retain(|start| start.parent().is_some() && in_system(start));
        starts.sort();
        starts.dedup();
        starts
    }

    fn root(&mut self, root: &Path) {
        self.root_for(root, false);
    }

    /// Walks one root; `anchored`: for the patterns alone that begin inside.
    fn root_for(&mut self, root: &Path, anchored: bool) {
        let names = root.iter().skip(1).map(OsStr::as_bytes);
        let mut progress = self.walk.patterns().along(names);
        if anchored {
            for (bits, pattern) in progress.iter_mut().zip(&self.spec.deny_patterns) {
                if !pattern.starts_with('/') {
                    *bits = 0;
                }
            }
        }
        let state = self.walk.state(progress);
        let held = self.spec.held_at(root);
        let is_dir = match held {
            Some(held) => held.is_dir(),
            None => match fs::metadata(root) {
                Ok(metadata) => metadata.is_dir(),
                Err(_) => return,
            },
        };
        let writable = self.spec.write.iter().any(|write| root.starts_with(write));
        if !is_dir {
            if self.walk.get(state).is_hit {
                self.hide(root.to_owned());
            }
            return;
        }
        let directory = match held.map(|held| held.handle().try_clone_to_owned()).transpose() {
            Ok(handle) => Directory::root(root, handle),
            Err(error) => return self.leave_out(root, &error.to_string()),
        };
        let place =
            Place { path: root.to_owned(), state, writable, in_repository: false, depth: 0, links: 0 };
        self.visit(&directory, place);
    }

    /// Walks one directory. True when something in it is not to be hidden with it.
    fn visit(&mut self, directory: &Rc<Directory>, mut place: Place) -> bool {
        let state = self.walk.get(place.state);
        let hit = state.is_hit;
        let hidden_before = self.found.deny.len();
        if hit && !state.may_except_below {
            self.hide(place.path);
            return false;
        }
        place.writable |= is_in(&self.inner_writable, &place.path);
        let guards = self.spec.protect_repositories && place.writable && !place.in_repository;
        if !state.may_hit_below && !hit && !guards && !self.spec.hides_sockets() {
            return true;
        }
        let listing = match self.listing_of(directory, &place, hit) {
            Contents::Listed(listing) => listing,
            Contents::Gone => return false,
            // Whoever owns it may make it readable again.
            Contents::Closed => {
                self.hide(place.path);
                return false;
            }
            Contents::Unread => {
                if hit {
                    self.hide(place.path);
                }
                return !hit;
            }
        };
        if guards && listing.is_git_like {
            place.in_repository = true;
            self.guard(&place.path);
        }
        let mut excepted = !hit || listing.others;
        for (name, kind) in &listing.of_note {
            excepted |= self.visit_entry(directory, &place, name, *kind);
        }
        if hit && !excepted {
            self.found.deny.truncate(hidden_before);
            self.hide(place.path);
        }
        excepted
    }

    /// One entry of note. True when something of it is not to be hidden with its directory.
    fn visit_entry(
        &mut self,
        directory: &Rc<Directory>,
        place: &Place,
        name: &OsStr,
        kind: FileType,
    ) -> bool {
        let (state, is_new) = self.walk.step(place.state, name.as_bytes());
        let is_git =
            name == ".git" && self.spec.protect_repositories && place.writable && !place.in_repository;
        // Most files of note to some pattern are of none here.
        let plain = !matches!(kind, FileType::Directory | FileType::Socket);
        if plain && !is_new && !is_git && !self.walk.get(state).is_hit {
            return true;
        }
        let path = place.path.join(name);
        match kind {
            FileType::Directory => {
                if is_in(&self.inner_system, &path) || is_in(&self.inner_denied, &path) {
                    return false;
                }
                if is_git {
                    self.guard(&path);
                }
                if place.depth >= MOST_DEPTH {
                    self.leave_out(&path, "it lies too deep");
                    return false;
                }
                let below = Place {
                    path,
                    state,
                    writable: place.writable,
                    in_repository: place.in_repository || is_git,
                    depth: place.depth + 1,
                    links: place.links,
                };
                self.visit(&Directory::below(directory, name.to_owned()), below)
            }
            FileType::Socket => {
                if !self.spec.unix.contains(&path) {
                    self.hide(path);
                }
                false
            }
            kind => {
                if self.walk.get(state).is_hit {
                    self.hide(path);
                    return false;
                }
                if is_git {
                    self.guard_link_or_file(path, kind);
                } else if is_new && kind == FileType::Symlink && self.walk.get(state).may_hit_below {
                    let (depth, links) = (place.depth + 1, place.links + 1);
                    self.follow(Place { path, state, writable: false, in_repository: true, depth, links });
                }
                true
            }
        }
    }

    /// What a directory holds; of one that is hidden but for exceptions, everything.
    fn listing_of(&mut self, directory: &Rc<Directory>, place: &Place, all: bool) -> Contents {
        if self.begin.elapsed() > MOST_TIME {
            self.leave_out(&place.path, &format!("it took longer than {} s", MOST_TIME.as_secs()));
            return Contents::Unread;
        }
        let known = if all { None } else { directory.status().ok().and_then(|stat| self.recall.get(&stat)) };
        let most = MOST_ENTRIES - self.entries;
        let listing = match known {
            Some(listing) if listing.entries <= most => Ok(listing),
            Some(_) => Err(Unread::TooMany),
            None => match directory.open() {
                Ok(opened) if all => Listing::read(opened, Wanted::All, most, &mut self.buffer).map(Arc::new),
                Ok(opened) => self.recall.read(opened, self.walk.names(), most, &mut self.buffer),
                Err(Errno::ACCESS) => return Contents::Closed,
                // Gone, or replaced, since its parent was read.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Contents::Gone,
                Err(error) => Err(Unread::Error(error.into())),
            },
        };
        match listing {
            Ok(listing) => {
                self.entries += listing.entries;
                Contents::Listed(listing)
            }
            Err(Unread::Error(error)) => {
                self.leave_out(&place.path, &error.to_string());
                Contents::Unread
            }
            Err(Unread::TooMany) => {
                // So that no other directory is read after it.
                self.entries = MOST_ENTRIES;
                let why = format!("the roots of the step have more than {MOST_ENTRIES} entries");
                self.leave_out(&place.path, &why);
                Contents::Unread
            }
        }
    }

    /// A directory behind a symbolic link whose own name is part of a pattern:
    /// what a pattern names under the link is hidden where it really is.
    fn follow(&mut self, place: Place) {
        let Ok(real) = fs::canonicalize(&place.path) else { return };
        let visible = self.spec.read.iter().chain(&self.spec.write).any(|root| real.starts_with(root));
        if !real.is_dir() || !visible || real.ancestors().any(|above| self.system.contains(above)) {
            return;
        }
        // Links may lead round in circles: the same directory with as much matched shows nothing new.
        if !self.followed.insert((real.clone(), place.state)) {
            return;
        }
        if place.links > MOST_LINKS {
            self.leave_out(&place.path, "too many symbolic links lead to it");
            return;
        }
        self.visit(&Directory::root(&real, None), place);
    }

    /// Keeps a directory of git's as it is, as far as it is not granted.
    fn guard(&mut self, path: &Path) {
        if self.spec.write.iter().any(|root| root == path) {
            let parts = MAKES_GIT_RUN_CODE.iter().map(|(name, stand)| (path.join(name), *stand));
            self.found.stand_ins.extend(parts);
        } else {
            self.found.protect.push(path.to_owned());
        }
    }

    /// Of a linked working tree or a submodule: a file that names the directory.
    fn guard_link_or_file(&mut self, path: PathBuf, kind: FileType) {
        if kind == FileType::Symlink {
            let why = format!("{} is a symbolic link, which could be replaced", path.display());
            self.found.missing.push(Missing { promise: Promise::FsProtect, why });
        } else {
            self.found.protect.push(path);
        }
    }

    fn hide(&mut self, path: PathBuf) {
        if path.as_os_str().len() > LONGEST_PATH {
            return self.leave_out(&path, "its path is too long");
        }
        if self.found.deny.len() >= MOST_FOUND {
            let why = format!("there are more than {MOST_FOUND} such paths");
            return self.leave_out(&path, &why);
        }
        let in_write_root = |above: &&Path| self.spec.write.iter().any(|root| above.starts_with(root));
        for above in path.ancestors().skip(1).take_while(in_write_root) {
            if !self.above.insert(above.to_owned()) {
                break;
            }
        }
        if self.above.len() > MOST_HELD {
            let why = format!("there are more than {MOST_HELD} directories above such paths");
            return self.leave_out(&path, &why);
        }
        self.found.deny.push(path);
    }

    /// Another name of a hidden file would show it.
    fn other_names_of_hits(&mut self, roots: &[PathBuf]) {
        for path in &self.found.deny {
            if let Ok(metadata) = fs::metadata(path)
                && metadata.nlink() > 1
                && !metadata.is_dir()
                && !metadata.file_type().is_socket()
            {
                self.linked.insert((metadata.dev(), metadata.ino()));
            }
        }
        // A walk without an end is not begun twice.
        if self.linked.is_empty() || self.unseen.is_some() {
            return;
        }
        for root in roots {
            self.names_below(root, 0);
        }
        self.found.deny.sort();
        self.found.deny.dedup();
    }

    fn names_below(&mut self, directory: &Path, depth: usize) {
        // What was not looked at the first time has been said already.
        let Ok(opened) =
            openat(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        else {
            return;
        };
        let mut below = Vec::new();
        let mut same = Vec::new();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut listing = RawDir::new(&opened, &mut buffer);
        while let Some(Ok(entry)) = listing.next() {
            let name = entry.file_name().to_bytes();
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(opened.as_fd(), name),
                kind => kind,
            };
            if kind == FileType::Directory {
                if !matches!(name, b"." | b"..") && depth < MOST_DEPTH {
                    below.push(directory.join(OsStr::from_bytes(name)));
                }
            } else if self.linked.iter().any(|(_, inode)| *inode == entry.ino()) {
                same.push(directory.join(OsStr::from_bytes(name)));
            }
        }
        self.buffer = buffer;
        drop(opened);
        for path in same {
            let is_same = fs::symlink_metadata(&path)
                .is_ok_and(|metadata| self.linked.contains(&(metadata.dev(), metadata.ino())));
            if is_same {
                self.hide(path);
            }
        }
        for path in below {
            if !is_in(&self.inner_system, &path) {
                self.names_below(&path, depth + 1);
            }
        }
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        if self.unseen.is_none() {
            self.unseen = Some(format!("not looked through: {} and perhaps more ({why})", path.display()));
        }
    }

    fn finish(self) -> Found {
        let Self { mut found, unseen, spec, walk, .. } = self;
        if let Some(why) = unseen {
            let mut lose = |promise| found.missing.push(Missing { promise, why: why.clone() });
            if !walk.patterns().is_empty() {
                lose(Promise::FsDenyPatterns);
            }
            if spec.protect_repositories {
                lose(Promise::FsProtect);
            }
            if spec.hides_sockets() {
                lose(Promise::UnixDeny);
            }
        }
        found
    }
}

fn is_in(paths: &HashSet<&Path>, path: &Path) -> bool {
    !paths.is_empty() && paths.contains(path)
}

/// What came of looking at a directory.
enum Contents {
    Listed(Arc<Listing>),
    Gone,
    /// This user may not read it.
    Closed,
    /// Not to its end, as was said.
    Unread,
}

#[cfg(test)]
mod tests;
