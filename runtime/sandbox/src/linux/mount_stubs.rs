//! Placeholders for protected paths that do not exist yet. During the run, the read-only mount is made on an
//! empty directory, or on a file where a directory would be in the way.
//!
//! Lobster makes and removes placeholders outside the jail. Each run that needs one holds a shared lock on
//! it, and removing it requires the exclusive lock, because removing the mount point of another run would end
//! that run's protection. A special modification time marks placeholders. If lobster is killed, its guard
//! removes them, otherwise the next run that needs them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, Timespec, Timestamps, flock, mkdirat, open,
    openat, openat2, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::super::{JailSpec, SpawnError};

/// Modification time of every placeholder, in seconds. Any later change of the file or directory replaces it.
pub(super) const STAMP: i64 = 987_654_322;

/// Kind of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// An empty directory.
    Directory,
    /// A file with this content.
    File(&'static [u8]),
}

/// The protected paths of one run. Dropping it removes the placeholders.
#[derive(Debug, Default)]
pub(crate) struct Placeholders {
    held: Vec<(PathBuf, OwnedFd)>,
    /// Time when the last one was made; `None` if others had made them all.
    made: Option<Instant>,
}

impl Placeholders {
    /// Makes sure that every protected path inside a write root exists.
    ///
    /// Refuses a path that contains a symbolic link, because the step could replace the link and make the
    /// path anew.
    pub(super) fn stand_in(spec: &JailSpec, more: &[(PathBuf, Stand)]) -> Result<Self, SpawnError> {
        let mut all = Self::default();
        let named = spec.protect.iter().map(|path| (path, Stand::Directory));
        for (path, stand) in named.chain(more.iter().map(|(path, stand)| (path, *stand))) {
            let Some(root) = spec.write.iter().find(|root| path.starts_with(root)) else { continue };
            all.hold_path(root, path, stand).map_err(|error| {
                let source = match error {
                    Errno::LOOP => io::Error::other("it is a symbolic link, or its path contains one"),
                    error => error.into(),
                };
                SpawnError::Io { doing: format!("protect {path:?}"), source }
            })?;
        }
        Ok(all)
    }

    /// The paths that are or may be placeholders.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.held.iter().map(|(path, _)| path.as_path())
    }

    pub(crate) fn made(&self) -> Option<Instant> {
        self.made
    }

    fn hold_path(&mut self, root: &Path, path: &Path, stand: Stand) -> rustix::io::Result<()> {
        let inside = path.strip_prefix(root).map_err(|_| Errno::INVAL)?;
        let mut so_far = root.to_owned();
        let mut current = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut parts = inside.components().peekable();
        while let Some(part) = parts.next() {
            let Component::Normal(name) = part else { return Err(Errno::INVAL) };
            so_far.push(name);
            let stand = if parts.peek().is_none() { stand } else { Stand::Directory };
            let parent = current;
            current = match step_into(&parent, name) {
                Err(Errno::NOENT) => {
                    match stand.make_in(&parent, name) {
                        Ok(()) => self.made = Some(Instant::now()),
                        // Another run has made it already.
                        Err(Errno::EXIST) => {}
                        // If this user cannot make the path, the step cannot either, because it runs as the
                        // same user. But in a directory that it owns, it could give itself the right.
                        Err(Errno::ACCESS | Errno::ROFS) if !is_owned(&parent) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                    step_into(&parent, name)?
                }
                other => other?,
            };
            // An existing path is locked only if it may be lobster's, because lobster removes nothing else.
            if stand.looks_like(&so_far) || is_stamped(&parent, name) {
                let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let lock = openat2(&parent, name, flags, Mode::empty(), resolve)?;
                flock(&lock, FlockOperation::LockShared)?;
                self.held.push((so_far.clone(), lock));
            }
        }
        Ok(())
    }
}

impl Stand {
    fn make_in(self, parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
        let is_in_placeholder = is_stamped(parent, OsStr::new("."));
        match self {
            Self::Directory => mkdirat(parent, name, Mode::from_raw_mode(0o755))?,
            Self::File(content) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
                rustix::io::write(&file, content)?;
            }
        }
        stamp_placeholder(parent, name);
        if is_in_placeholder {
            stamp_placeholder(parent, OsStr::new("."));
        }
        Ok(())
    }

    /// True if the file or directory at this path may be such a placeholder.
    fn looks_like(self, path: &Path) -> bool {
        match self {
            Self::Directory => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
            Self::File(content) => fs::read(path).is_ok_and(|now| now == content),
        }
    }
}

fn is_stamped(directory: impl AsFd, name: &OsStr) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_mtime == STAMP)
}

/// Sets the time of a placeholder. If that fails, it stays as an empty directory or file.
fn stamp_placeholder(directory: impl AsFd, name: &OsStr) {
    let time = Timespec { tv_sec: STAMP, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let _ = utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
}

/// Removes a placeholder if it is still empty.
fn remove_placeholder(path: &Path) {
    if !is_stamped(CWD, path.as_os_str()) {
        return;
    }
    let above = path.parent().map(Path::as_os_str).filter(|above| is_stamped(CWD, above));
    let _ = unlinkat(CWD, path, AtFlags::REMOVEDIR).or_else(|_| unlinkat(CWD, path, AtFlags::empty()));
    above.into_iter().for_each(|above| stamp_placeholder(CWD, above));
}

/// The paths of a jail that may be placeholders, the innermost first, one on each line.
pub(super) fn placeholder_lines(protect: &[PathBuf], write: &[PathBuf]) -> Vec<u8> {
    let root = |path: &&Path| write.iter().any(|root| path.starts_with(root) && *path != root);
    let mut all: Vec<&Path> = protect.iter().flat_map(|path| path.ancestors().take_while(root)).collect();
    all.sort_by_key(|path| std::cmp::Reverse((path.components().count(), path.as_os_str())));
    all.dedup();
    let lines = all.iter().map(|path| path.as_os_str().as_bytes()).filter(|path| !path.contains(&b'\n'));
    lines.flat_map(|path| [path, b"\n"].concat()).collect()
}

/// Removes the placeholders of a killed lobster, given such a list.
pub(super) fn remove_left(list: &[u8]) {
    for path in list.split(|byte| *byte == b'\n').map(OsStr::from_bytes).map(Path::new) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(lock) = open(path, flags, Mode::empty()) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_placeholder(path);
        }
    }
}

/// True if this user owns the directory, and so could change its write permissions.
fn is_owned(directory: &OwnedFd) -> bool {
    rustix::fs::fstat(directory).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

fn step_into(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        // The innermost first, so that their parents become empty in turn.
        while let Some((path, lock)) = self.held.pop() {
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                remove_placeholder(&path);
            }
        }
    }
}
