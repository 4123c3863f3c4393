//! Protected paths that do not exist yet: an empty directory stands there
//! during the run, for the read-only mount to lie on.
//!
//! Made and removed by lobster, outside the jail. Whoever needs one holds a
//! shared lock on it; it is removed only by someone who gets the exclusive
//! one, because removing the mount point of another run would lift that run's
//! protection.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, mkdirat, open, openat2, unlinkat,
};
use rustix::io::Errno;

use super::super::{JailSpec, SpawnError};

/// The directories that this process has made and must remove.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<BTreeSet<PathBuf>>);

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
    pub(super) fn stand_in(spec: &JailSpec, register: &'a Register) -> Result<Self, SpawnError> {
        let mut all = Self { register, held: Vec::new() };
        for path in &spec.protect {
            let Some(root) = spec.write.iter().find(|root| path.starts_with(root)) else { continue };
            all.hold(root, path).map_err(|error| {
                let source = match error {
                    Errno::LOOP => io::Error::other("it is, or lies behind, a symbolic link"),
                    error => error.into(),
                };
                SpawnError::Io { doing: format!("protect {path:?}"), source }
            })?;
        }
        Ok(all)
    }

    fn hold(&mut self, root: &Path, path: &Path) -> rustix::io::Result<()> {
        let inside = path.strip_prefix(root).map_err(|_| Errno::INVAL)?;
        let mut so_far = root.to_owned();
        let mut current = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for part in inside.components() {
            let Component::Normal(name) = part else { return Err(Errno::INVAL) };
            so_far.push(name);
            current = match step_into(&current, name) {
                Err(Errno::NOENT) => {
                    match mkdirat(&current, name, Mode::from_raw_mode(0o755)) {
                        Ok(()) => _ = self.register.lock().insert(so_far.clone()),
                        // Another run was faster.
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    step_into(&current, name)?
                }
                other => other?,
            };
            // Existing files of the user are locked only if they are directories
            // of ours: nobody ever removes anything else.
            if self.register.lock().contains(&so_far) {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let lock = openat2(&current, ".", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
                flock(&lock, FlockOperation::LockShared)?;
                self.held.push((so_far.clone(), lock));
            }
        }
        Ok(())
    }
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
            if register.remove(&path) {
                let _ = unlinkat(CWD, &path, AtFlags::REMOVEDIR);
            }
        }
    }
}

impl Register {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
