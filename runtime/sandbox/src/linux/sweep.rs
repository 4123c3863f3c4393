//! Finds paths that a jail must cover but that no specification can name, by walking its roots before the
//! jail is made.
//!
//! It looks for three things: paths that patterns hide, git directories in the write roots, and unix sockets.
//! Each directory is checked before each step, and read again unless it is certainly unchanged (see
//! [`super::listing`]). Anything that could not be checked is named, so that no promise is made about it.

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
use super::listing::{Memory, Recall, RootListing, Unread, Wanted, kind_of};
use super::mount_stubs::Stand;

/// Entries that are checked before a step. A million take about a second; if the roots of one step have more,
/// the statement reports that patterns are not enforced.
const MOST_ENTRIES: u64 = 1_000_000;

/// Time limit, because a slow file system must not delay a step for ever. It is long, so that a busy machine
/// gets the same result.
const MOST_TIME: Duration = Duration::from_secs(20);

/// Paths that may be hidden. Each takes a mount, and the kernel allows 100,000 in a namespace.
const MOST_FOUND: usize = 10_000;

/// Directories above hidden paths in write roots. Each is also a mount point, so that it cannot be moved.
const MOST_HELD: usize = 50_000;

/// Depth of nested directories. Each needs an open descriptor here.
const MOST_DEPTH: usize = 200;

/// Symbolic links to directories within one path, if the path matters to a pattern.
const MOST_LINKS: usize = 8;

/// Longest path that the kernel accepts, without the final NUL.
const LONGEST_PATH: usize = 4095;

/// Buffer for the entries of one directory at a time.
const BUFFER: usize = 64 * 1024;

/// The kernel's own trees: a jail has another `/proc` and `/dev`, and no user's files are in `/sys`.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Entries of a git directory that make git run programs or use the settings of another directory. If one is
/// missing, its placeholder is something that git treats as absent or as the directory itself.
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

/// Results of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SweptProcess {
    /// Paths to hide.
    pub(super) deny: Vec<PathBuf>,
    /// Read-only paths.
    pub(super) protect: Vec<PathBuf>,
    /// Read-only paths that are made first if they are missing.
    pub(super) stand_ins: Vec<(PathBuf, Stand)>,
    /// Promises that cannot be made, with the reasons.
    pub(super) missing: Vec<Missing>,
}

/// Walks the roots of a jail.
pub(super) fn walk_roots(spec: &JailSpec, memory: &Memory) -> SweptProcess {
    // Nothing to look for.
    if spec.deny_patterns.is_empty() && !spec.protect_repositories && !spec.hides_sockets() {
        return SweptProcess::default();
    }
    let mut found = SweptProcess::default();
    let patterns = Patterns::new(&spec.deny_patterns).unwrap_or_else(|pattern| {
        let why = format!("the pattern {pattern:?} is too long");
        found.missing.push(Missing { promise: Promise::FsDenyPatterns, why });
        Patterns::default()
    });
    let mut sweep = Sweep {
        spec,
        walk: Walk::new(patterns),
        recall: memory.recall_for(&spec.deny_patterns),
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
    let roots = sweep.outer_roots();
    let starts = sweep.starts_in_system_trees();
    let is_inner = |path: &&Path| {
        path.ancestors().skip(1).any(|above| roots.iter().chain(&starts).any(|root| root == above))
    };
    sweep.inner_system = sweep.system.iter().copied().filter(is_inner).collect();
    sweep.inner_denied = spec.deny.iter().map(PathBuf::as_path).filter(is_inner).collect();
    sweep.inner_writable = spec.write.iter().map(PathBuf::as_path).filter(is_inner).collect();
    for root in &roots {
        sweep.walk_root(root, false);
    }
    for start in &starts {
        sweep.walk_root(start, true);
    }
    sweep.other_names_of_hits(&roots);
    sweep.into_result()
}

struct Sweep<'a> {
    spec: &'a JailSpec,
    walk: Walk,
    recall: Recall,
    system: HashSet<&'a Path>,
    /// System trees and write roots that a walk may reach. Usually empty, which matters because looking up
    /// paths is slow.
    inner_system: HashSet<&'a Path>,
    /// Paths that are hidden regardless of their content.
    inner_denied: HashSet<&'a Path>,
    inner_writable: HashSet<&'a Path>,
    found: SweptProcess,
    buffer: Vec<MaybeUninit<u8>>,
    entries: u64,
    begin: Instant,
    /// The first path that was not checked, and the reason.
    unseen: Option<String>,
    /// Inodes with several names of which one is hidden.
    linked: HashSet<(u64, u64)>,
    /// Targets of links, with the patterns that had matched by then.
    followed: HashSet<(PathBuf, StateId)>,
    /// Directories above hidden paths that could be moved.
    above: HashSet<PathBuf>,
}

/// One directory, as seen from its parent.
struct Place {
    path: PathBuf,
    state: StateId,
    /// True inside a write root.
    writable: bool,
    /// True inside a git directory, which is read-only as a whole.
    in_repository: bool,
    depth: usize,
    links: usize,
}

/// A directory that is opened only when necessary; an unchanged one need not be.
struct Directory {
    /// The directory that contains it, unless it is a root.
    parent: Option<Rc<Directory>>,
    name: OsString,
    /// The directory that the policy judged as this root, if it judged one: the path may lead elsewhere by
    /// now.
    held: Option<OwnedFd>,
    opened: OnceCell<OwnedFd>,
}

impl Directory {
    fn at_root(path: &Path, held: Option<OwnedFd>) -> Rc<Self> {
        Rc::new(Self { parent: None, name: path.as_os_str().to_owned(), held, opened: OnceCell::new() })
    }

    fn below(parent: &Rc<Self>, name: OsString) -> Rc<Self> {
        Rc::new(Self { parent: Some(Rc::clone(parent)), name, held: None, opened: OnceCell::new() })
    }

    fn open_once(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened.as_fd());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match (&self.parent, &self.held) {
            (None, None) => openat(CWD, &self.name, flags, Mode::empty()),
            (None, Some(held)) => openat(held, ".", flags, Mode::empty()),
            (Some(parent), _) => {
                openat(parent.open_once()?, &self.name, flags | OFlags::NOFOLLOW, Mode::empty())
            }
        }?;
        Ok(self.opened.get_or_init(|| opened).as_fd())
    }

    fn read_status(&self) -> rustix::io::Result<rustix::fs::Stat> {
        match (&self.parent, &self.held) {
            (None, None) => statat(CWD, &self.name, AtFlags::empty()),
            (None, Some(held)) => fstat(held),
            (Some(parent), _) => statat(parent.open_once()?, &self.name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }
}

impl<'a> Sweep<'a> {
    /// The roots that are inside no other root and are not system trees. Directories made for the step are
    /// empty and left out.
    fn outer_roots(&self) -> Vec<PathBuf> {
        let mut all: BTreeSet<&PathBuf> = self.spec.read.iter().chain(&self.spec.write).collect();
        all.retain(|root| !self.system.contains(root.as_path()) && !self.spec.own.contains(root));
        let others = all.clone();
        let is_inner = |root: &PathBuf| {
            // A walk from above does not enter a system tree in between.
            root.ancestors()
                .skip(1)
                .take_while(|above| !self.system.contains(above))
                .any(|above| others.contains(&above.to_path_buf()))
        };
        all.into_iter().filter(|root| !is_inner(root)).cloned().collect()
    }

    /// Fixed beginnings of the patterns that begin in a system tree.
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

    /// Walks one root. `anchored` limits it to the patterns that begin inside.
    fn walk_root(&mut self, root: &Path, anchored: bool) {
        let names = root.iter().skip(1).map(OsStr::as_bytes);
        let mut progress = self.walk.patterns().along_path(names);
        if anchored {
            for (bits, pattern) in progress.iter_mut().zip(&self.spec.deny_patterns) {
                if !pattern.starts_with('/') {
                    *bits = 0;
                }
            }
        }
        let state = self.walk.intern_state(progress);
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
                self.hide_path(root.to_owned());
            }
            return;
        }
        let directory = match held.map(|held| held.handle().try_clone_to_owned()).transpose() {
            Ok(handle) => Directory::at_root(root, handle),
            Err(error) => return self.leave_out(root, &error.to_string()),
        };
        let place =
            Place { path: root.to_owned(), state, writable, in_repository: false, depth: 0, links: 0 };
        self.visit_directory(&directory, place);
    }

    /// Walks one directory. Returns true if something in it must not be hidden with it.
    fn visit_directory(&mut self, directory: &Rc<Directory>, mut place: Place) -> bool {
        let state = self.walk.get(place.state);
        let hit = state.is_hit;
        let hidden_before = self.found.deny.len();
        if hit && !state.may_except_below {
            self.hide_path(place.path);
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
            // Its owner may make it readable again.
            Contents::Closed => {
                self.hide_path(place.path);
                return false;
            }
            Contents::Unread => {
                if hit {
                    self.hide_path(place.path);
                }
                return !hit;
            }
        };
        if guards && listing.is_git_like {
            place.in_repository = true;
            self.protect_repository(&place.path);
        }
        let mut excepted = !hit || listing.others;
        for (name, kind) in &listing.of_note {
            excepted |= self.visit_entry(directory, &place, name, *kind);
        }
        if hit && !excepted {
            self.found.deny.truncate(hidden_before);
            self.hide_path(place.path);
        }
        excepted
    }

    /// Handles one entry of note. Returns true if something in it must not be hidden with its directory.
    fn visit_entry(
        &mut self,
        directory: &Rc<Directory>,
        place: &Place,
        name: &OsStr,
        kind: FileType,
    ) -> bool {
        let (state, is_new) = self.walk.after_name(place.state, name.as_bytes());
        let is_git =
            name == ".git" && self.spec.protect_repositories && place.writable && !place.in_repository;
        // Most files that match some part of a pattern do not matter here.
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
                    self.protect_repository(&path);
                }
                if place.depth >= MOST_DEPTH {
                    self.leave_out(&path, "it is nested too deeply");
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
                self.visit_directory(&Directory::below(directory, name.to_owned()), below)
            }
            FileType::Socket => {
                if !self.spec.unix.contains(&path) {
                    self.hide_path(path);
                }
                false
            }
            kind => {
                if self.walk.get(state).is_hit {
                    self.hide_path(path);
                    return false;
                }
                if is_git {
                    self.guard_link_or_file(path, kind);
                } else if is_new && kind == FileType::Symlink && self.walk.get(state).may_hit_below {
                    let (depth, links) = (place.depth + 1, place.links + 1);
                    self.follow_link(Place {
                        path,
                        state,
                        writable: false,
                        in_repository: true,
                        depth,
                        links,
                    });
                }
                true
            }
        }
    }

    /// Lists a directory. A hidden directory with exceptions is listed completely.
    fn listing_of(&mut self, directory: &Rc<Directory>, place: &Place, all: bool) -> Contents {
        if self.begin.elapsed() > MOST_TIME {
            self.leave_out(&place.path, &format!("it took longer than {} s", MOST_TIME.as_secs()));
            return Contents::Unread;
        }
        let known =
            if all { None } else { directory.read_status().ok().and_then(|stat| self.recall.get(&stat)) };
        let most = MOST_ENTRIES - self.entries;
        let listing = match known {
            Some(listing) if listing.entries <= most => Ok(listing),
            Some(_) => Err(Unread::TooMany),
            None => match directory.open_once() {
                Ok(opened) if all => {
                    RootListing::read_directory(opened, Wanted::All, most, &mut self.buffer).map(Arc::new)
                }
                Ok(opened) => {
                    self.recall.read_directory(opened, self.walk.matchable_names(), most, &mut self.buffer)
                }
                Err(Errno::ACCESS) => return Contents::Closed,
                // Gone or replaced since its parent was read.
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
                // Prevents further reading.
                self.entries = MOST_ENTRIES;
                let why = format!("the roots of the step have more than {MOST_ENTRIES} entries");
                self.leave_out(&place.path, &why);
                Contents::Unread
            }
        }
    }

    /// Follows a symbolic link whose own name is part of a pattern: paths under the link that the pattern
    /// matches are hidden at their real locations.
    fn follow_link(&mut self, place: Place) {
        let Ok(real) = fs::canonicalize(&place.path) else { return };
        let visible = self.spec.read.iter().chain(&self.spec.write).any(|root| real.starts_with(root));
        if !real.is_dir() || !visible || real.ancestors().any(|above| self.system.contains(above)) {
            return;
        }
        // Links may form circles: the same directory with the same matches shows nothing new.
        if !self.followed.insert((real.clone(), place.state)) {
            return;
        }
        if place.links > MOST_LINKS {
            self.leave_out(&place.path, "too many symbolic links lead to it");
            return;
        }
        self.visit_directory(&Directory::at_root(&real, None), place);
    }

    /// Protects a git directory, except for granted parts.
    fn protect_repository(&mut self, path: &Path) {
        if self.spec.write.iter().any(|root| root == path) {
            let parts = MAKES_GIT_RUN_CODE.iter().map(|(name, stand)| (path.join(name), *stand));
            self.found.stand_ins.extend(parts);
        } else {
            self.found.protect.push(path.to_owned());
        }
    }

    /// Protects the file of a linked working tree or a submodule that names the git directory.
    fn guard_link_or_file(&mut self, path: PathBuf, kind: FileType) {
        if kind == FileType::Symlink {
            let why = format!(
                "{} is a symbolic link, which could be replaced: put git's directory itself in its place",
                path.display()
            );
            self.found.missing.push(Missing { promise: Promise::FsProtect, why });
        } else {
            self.found.protect.push(path);
        }
    }

    fn hide_path(&mut self, path: PathBuf) {
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

    /// Hides the other names of hidden files.
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
        // An incomplete walk is not repeated.
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
        // Omissions of the first walk have been reported already.
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
                self.hide_path(path);
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
            self.unseen = Some(format!("not searched: {} and perhaps more ({why})", path.display()));
        }
    }

    fn into_result(self) -> SweptProcess {
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

/// Result of reading a directory.
enum Contents {
    Listed(Arc<RootListing>),
    Gone,
    /// This user may not read it.
    Closed,
    /// Incomplete, as has been reported.
    Unread,
}

#[cfg(test)]
mod tests;
