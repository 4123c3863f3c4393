//! What a jail must cover that no specification can name: found by walking
//! its roots just before it is made.
//!
//! Three things are looked for: what patterns hide, directories of git's in
//! the write roots, and unix sockets. Nothing is remembered from one step to
//! the next: what was there then says nothing about now. What could not be
//! looked at is named, so that nobody is promised it.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

use super::super::patterns::{Patterns, Progress, Test};
use super::super::{JailSpec, Missing, Promise};
use super::placeholder::Stand;

/// Entries that are looked at before a step. A million take about a second;
/// who has more in the roots of one step is told that patterns do not hold.
const MOST_ENTRIES: u64 = 1_000_000;

/// A file system that answers slowly must not hold a step up for ever. Long, so
/// that a busy machine changes no answer.
const MOST_TIME: Duration = Duration::from_secs(20);

/// Each takes a mount, of which the kernel allows 100,000 in a namespace.
const MOST_FOUND: usize = 10_000;

/// Directories within directories: each is an open descriptor here.
const MOST_DEPTH: usize = 200;

/// Symbolic links to directories within one path, where the path matters to a pattern.
const MOST_LINKS: usize = 8;

/// A path that the kernel takes, with its end.
const LONGEST_PATH: usize = 4095;

/// For the entries of one directory at a time.
const BUFFER: usize = 64 * 1024;

/// The kernel's own trees: the jail has another `/proc`, and neither of the others.
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
#[derive(Debug, Default)]
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
pub(super) fn sweep(spec: &JailSpec) -> Found {
    // Without wishes there is nothing to look for.
    if spec.deny_patterns.is_empty() && !spec.protect_repositories && spec.unix.is_empty() {
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
        patterns,
        writable: spec.write.iter().map(PathBuf::as_path).collect(),
        system: spec.system.iter().map(PathBuf::as_path).chain(KERNEL.map(Path::new)).collect(),
        found,
        buffer: vec![MaybeUninit::uninit(); BUFFER],
        entries: 0,
        begin: Instant::now(),
        unseen: None,
        linked: HashSet::new(),
        followed: HashSet::new(),
    };
    let roots = sweep.roots();
    for root in &roots {
        sweep.root(root);
    }
    for start in sweep.starts_in_system_trees() {
        sweep.root_for(&start, true);
    }
    sweep.other_names_of_hits(&roots);
    sweep.finish()
}

struct Sweep<'a> {
    spec: &'a JailSpec,
    patterns: Patterns,
    writable: HashSet<&'a Path>,
    system: HashSet<&'a Path>,
    found: Found,
    buffer: Vec<MaybeUninit<u8>>,
    entries: u64,
    begin: Instant,
    /// The first thing that was not looked at, and why.
    unseen: Option<String>,
    /// Inodes with several names that are hidden under one of them.
    linked: HashSet<(u64, u64)>,
    /// Directories that links have led to, with what was matched by then.
    followed: HashSet<(PathBuf, Progress)>,
}

/// One directory, as its parent knows it.
struct Place {
    path: PathBuf,
    progress: Progress,
    /// In a write root.
    writable: bool,
    /// In a directory of git's, which is read-only as a whole.
    in_repository: bool,
    depth: usize,
    links: usize,
}

impl<'a> Sweep<'a> {
    /// The roots that lie in no other one and are not the system's.
    fn roots(&self) -> Vec<PathBuf> {
        let mut all: BTreeSet<&PathBuf> = self.spec.read.iter().chain(&self.spec.write).collect();
        all.retain(|root| !self.system.contains(root.as_path()));
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
                !KERNEL.iter().any(|kernel| above == Path::new(kernel))
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
        let mut progress = self.patterns.along(names);
        if anchored {
            for (bits, pattern) in progress.iter_mut().zip(&self.spec.deny_patterns) {
                if !pattern.starts_with('/') {
                    *bits = 0;
                }
            }
        }
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
            if self.patterns.is_hit(&progress) {
                self.hide(root.to_owned());
            }
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match held {
            Some(held) => openat(held.handle(), ".", flags, Mode::empty()),
            None => openat(CWD, root, flags, Mode::empty()),
        };
        let place =
            Place { path: root.to_owned(), progress, writable, in_repository: false, depth: 0, links: 0 };
        self.visit_opened(opened, place);
    }

    /// Enters a directory, or hides it if it cannot be looked at: whoever owns
    /// it may make it readable again. True when something in it is not to be
    /// hidden with it.
    fn visit_opened(&mut self, opened: rustix::io::Result<OwnedFd>, place: Place) -> bool {
        match opened {
            Ok(directory) => self.visit(&directory, place),
            Err(Errno::ACCESS) => {
                self.hide(place.path);
                false
            }
            // Gone, or replaced, since its parent was read.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => false,
            Err(error) => {
                self.leave_out(&place.path, &error.to_string());
                false
            }
        }
    }

    fn visit(&mut self, directory: &OwnedFd, mut place: Place) -> bool {
        let hit = self.patterns.is_hit(&place.progress);
        let hidden_before = self.found.deny.len();
        if hit && !self.patterns.may_except_below(&place.progress) {
            self.hide(place.path);
            return false;
        }
        place.writable |= self.writable.contains(place.path.as_path());
        let guards = self.spec.protect_repositories && place.writable && !place.in_repository;
        if !self.patterns.may_hit_below(&place.progress) && !hit && !guards && self.spec.unix.is_empty() {
            return false;
        }
        let tests = self.patterns.tests(&place.progress);
        let carried = self.patterns.carry(&place.progress);
        let Some(entries) = self.entries_of(directory, &place, &tests, guards) else {
            if hit {
                self.hide(place.path);
            }
            return !hit;
        };
        if guards && entries.git_like == GIT_LIKE {
            place.in_repository = true;
            self.guard(&place.path);
        }
        let mut excepted = false;
        for (name, kind) in entries.of_note {
            let mut progress = carried.clone();
            let passed = tests.iter().filter(|test| self.patterns.passes(**test, name.as_bytes()));
            let mut is_new = false;
            for test in passed {
                self.patterns.advance(&mut progress, *test);
                is_new = true;
            }
            let path = place.path.join(&name);
            let is_git = guards && !place.in_repository && name == ".git";
            match kind {
                FileType::Directory => {
                    if self.system.contains(path.as_path()) {
                        continue;
                    }
                    if is_git {
                        self.guard(&path);
                    }
                    if place.depth >= MOST_DEPTH {
                        self.leave_out(&path, "it lies too deep");
                        continue;
                    }
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let opened = openat(directory, &name, flags, Mode::empty());
                    let below = Place {
                        path,
                        progress,
                        writable: place.writable,
                        in_repository: place.in_repository || is_git,
                        depth: place.depth + 1,
                        links: place.links,
                    };
                    excepted |= self.visit_opened(opened, below);
                }
                FileType::Socket => {
                    if !self.spec.unix.contains(&path) {
                        self.hide(path);
                    }
                }
                kind => {
                    if self.patterns.is_hit(&progress) {
                        self.hide(path);
                        continue;
                    }
                    excepted |= hit;
                    if is_git {
                        self.guard_link_or_file(path, kind);
                    } else if is_new && kind == FileType::Symlink && self.patterns.may_hit_below(&progress) {
                        let links = place.links + 1;
                        self.follow(Place {
                            path,
                            progress,
                            writable: false,
                            in_repository: true,
                            depth: place.depth + 1,
                            links,
                        });
                    }
                }
            }
        }
        excepted |= hit && entries.others;
        if hit && !excepted {
            self.found.deny.truncate(hidden_before);
            self.hide(place.path);
        }
        excepted
    }

    /// The entries of a directory that may matter; `None` when it could not be read to its end.
    fn entries_of(
        &mut self,
        directory: &OwnedFd,
        place: &Place,
        tests: &[Test],
        guards: bool,
    ) -> Option<Entries> {
        let mut entries = Entries { of_note: Vec::new(), others: false, git_like: 0 };
        // Everything in a directory that is hidden but for exceptions matters.
        let all = self.patterns.is_hit(&place.progress);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut listing = RawDir::new(directory, &mut buffer);
        let mut trouble = None;
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    trouble = Some(error.to_string());
                    break;
                }
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                trouble = Some(format!("the roots of the step have more than {MOST_ENTRIES} entries"));
                break;
            }
            if guards {
                entries.git_like |= git_like(name);
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(directory.as_fd(), name),
                kind => kind,
            };
            let of_note = all
                || matches!(kind, FileType::Directory | FileType::Socket)
                || (guards && name == b".git")
                || tests.iter().any(|test| self.patterns.passes(*test, name));
            if of_note {
                entries.of_note.push((OsStr::from_bytes(name).to_owned(), kind));
            } else {
                entries.others = true;
            }
        }
        self.buffer = buffer;
        if trouble.is_none() && self.begin.elapsed() > MOST_TIME {
            trouble = Some(format!("it took longer than {} s", MOST_TIME.as_secs()));
        }
        match trouble {
            None => Some(entries),
            Some(why) => {
                self.leave_out(&place.path, &why);
                None
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
        if !self.followed.insert((real.clone(), place.progress.clone())) {
            return;
        }
        if place.links > MOST_LINKS {
            self.leave_out(&place.path, "too many symbolic links lead to it");
            return;
        }
        let opened = openat(CWD, &real, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        self.visit_opened(opened, place);
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
            if !self.system.contains(path.as_path()) {
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
        let Self { mut found, unseen, spec, patterns, .. } = self;
        if let Some(why) = unseen {
            let mut lose = |promise| found.missing.push(Missing { promise, why: why.clone() });
            if !patterns.is_empty() {
                lose(Promise::FsDenyPatterns);
            }
            if spec.protect_repositories {
                lose(Promise::FsProtect);
            }
            if !spec.unix.is_empty() {
                lose(Promise::UnixDeny);
            }
        }
        found
    }
}

struct Entries {
    of_note: Vec<(std::ffi::OsString, FileType)>,
    /// Whether there are more.
    others: bool,
    /// Which names of [`git_like`] are there.
    git_like: u8,
}

/// All that tells git that a directory is one of its own.
const GIT_LIKE: u8 = 0b111;

fn git_like(name: &[u8]) -> u8 {
    match name {
        b"HEAD" => 1,
        b"objects" => 2,
        b"refs" => 4,
        _ => 0,
    }
}

/// Where the file system does not say it with the name.
fn kind_of(directory: BorrowedFd<'_>, name: &[u8]) -> FileType {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
