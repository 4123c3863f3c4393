//! Directories that are in use as long as a process has them open, each locked: so what a killed lobster left
//! behind can be told from what another one works with, and removed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lobster_changes::remove_tree;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

/// One that was made less long ago may not be locked yet.
const JUST_MADE: Duration = Duration::from_secs(60);

/// A directory that is this process's alone, gone with this value.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    directory: tempfile::TempDir,
    _lock: OwnedFd,
}

impl LockedDirectory {
    /// A new one in `place`, whose name begins with `prefix`. What processes that are gone have left there under
    /// such names is removed first.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(place: &Path, prefix: &str) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(place)?;
        let place = fs::canonicalize(place)?;
        remove_leftovers(&place, prefix);
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix).permissions(fs::Permissions::from_mode(0o700));
        let directory = builder.tempdir_in(place)?;
        let lock = lock(directory.path())?;
        Ok(Self { directory, _lock: lock })
    }

    /// Its real path.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for LockedDirectory {
    fn drop(&mut self) {
        // A step may have left directories that it cannot write itself, as caches of modules are.
        let _ = remove_tree(self.directory.path());
    }
}

fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

fn remove_leftovers(place: &Path, prefix: &str) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(prefix);
        if is_ours && is_old(&entry) {
            let path: PathBuf = entry.path();
            if let Ok(_held) = lock(&path) {
                let _ = remove_tree(&path);
            }
        }
    }
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > JUST_MADE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_uses_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str, is_old: bool| {
            let path = place.path().join(name);
            fs::create_dir_all(path.join("closed/in")).unwrap();
            fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
            if is_old {
                let long_ago = std::time::SystemTime::now() - 2 * JUST_MADE;
                fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
            }
            path
        };
        let in_use = LockedDirectory::new(place.path(), "home-").unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * JUST_MADE;
        fs::File::open(in_use.path()).unwrap().set_modified(long_ago).unwrap();
        let (left, fresh, other) = (make("home-left", true), make("home-new", false), make("other", true));
        let next = LockedDirectory::new(place.path(), "home-").unwrap();
        assert_eq!(
            [in_use.path(), &left, &fresh, &other, next.path()].map(Path::exists),
            [true, false, true, true, true]
        );
        let gone = next.path().to_owned();
        fs::create_dir_all(gone.join("closed/in")).unwrap();
        fs::set_permissions(gone.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        drop(next);
        assert!(!gone.exists());
    }
}
