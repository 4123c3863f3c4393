//! Protected paths that do not exist yet: an empty directory, or a file where
//! a directory would be in the way, stands there during the run, for the
//! read-only mount to lie on.
//!
//! Made and removed by lobster, outside the jail. Whoever needs one holds a
//! shared lock on it; it is removed only by someone who gets the exclusive
//! one, because removing the mount point of another run would lift that run's
//! protection.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, mkdirat, open, openat, openat2, unlinkat,
};
use rustix::io::Errno;

use super::super::{JailSpec, SpawnError};
use lobster_base::sync::lock;

/// What stands where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// An empty directory.
    Directory,
    /// A file with this in it.
    File(&'static [u8]),
}

/// What this process has made and must remove.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<BTreeMap<PathBuf, Stand>>);

/// The protected paths of one run; dropping it tidies up.
pub(super) struct Placeholders<'a> {
    register: &'a Register,
    held: Vec<(PathBuf, OwnedFd)>,
}

impl<'a> Placeholders<'a> {
    /// Makes sure that every protected path inside a write root exists.
    ///
    /// Refuses a path that is, or lies behind, a symbolic link: the step could
    /// replace the link and make the path anew.
    pub(super) fn stand_in(
        spec: &JailSpec,
        more: &[(PathBuf, Stand)],
        register: &'a Register,
    ) -> Result<Self, SpawnError> {
        let mut all = Self { register, held: Vec::new() };
        let named = spec.protect.iter().map(|path| (path, Stand::Directory));
        for (path, stand) in named.chain(more.iter().map(|(path, stand)| (path, *stand))) {
            let Some(root) = spec.write.iter().find(|root| path.starts_with(root)) else { continue };
            all.hold(root, path, stand).map_err(|error| {
                let source = match error {
                    Errno::LOOP => io::Error::other("it is, or lies behind, a symbolic link"),
                    error => error.into(),
                };
                SpawnError::Io { doing: format!("protect {path:?}"), source }
            })?;
        }
        Ok(all)
    }

    fn hold(&mut self, root: &Path, path: &Path, stand: Stand) -> rustix::io::Result<()> {
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
                    match stand.make(&parent, name) {
                        Ok(()) => _ = self.register.lock().insert(so_far.clone(), stand),
                        // Another run was faster.
                        Err(Errno::EXIST) => {}
                        // Where this user can make nothing the step can make nothing either: it runs as the same
                        // user, and what it owns itself it could give itself the right to.
                        Err(Errno::ACCESS | Errno::ROFS) if !is_owned(&parent) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                    step_into(&parent, name)?
                }
                other => other?,
            };
            // What exists is locked only if it is ours, or may be another lobster's:
            // nobody ever removes anything else.
            if self.register.lock().contains_key(&so_far) || stand.looks_like(&so_far) {
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
    fn make(self, parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
        match self {
            Self::Directory => mkdirat(parent, name, Mode::from_raw_mode(0o755)),
            Self::File(content) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
                rustix::io::write(&file, content).map(drop)
            }
        }
    }

    /// Whether what is at this path may be such a placeholder.
    fn looks_like(self, path: &Path) -> bool {
        match self {
            Self::Directory => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
            Self::File(content) => fs::read(path).is_ok_and(|now| now == content),
        }
    }

    /// Only what nobody has put anything into.
    fn remove(self, path: &Path) {
        let flags = match self {
            Self::Directory => AtFlags::REMOVEDIR,
            Self::File(content) if fs::read(path).is_ok_and(|now| now == content) => AtFlags::empty(),
            Self::File(_) => return,
        };
        let _ = unlinkat(CWD, path, flags);
    }
}

/// Whether this user owns the directory, and could so change who may write there.
fn is_owned(directory: &OwnedFd) -> bool {
    rustix::fs::fstat(directory).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

fn step_into(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

impl Drop for Placeholders<'_> {
    fn drop(&mut self) {
        // The innermost first, so that their parents are empty in turn.
        while let Some((path, lock)) = self.held.pop() {
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let mut register = self.register.lock();
            // One that is not empty any more is the user's now.
            if let Some(stand) = register.remove(&path) {
                stand.remove(&path);
            }
        }
    }
}

impl Register {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, Stand>> {
        lock(&self.0)
    }
}
