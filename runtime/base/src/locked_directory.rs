//! Directories that are in use as long as a process has them open, each locked: so what a killed lobster left
//! behind can be told from what another one works with, and removed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;

/// One that was made less long ago may not be locked yet.
const JUST_MADE: Duration = Duration::from_secs(60);

/// A directory that is this process's alone, gone with this value.
#[derive(Debug)]
pub struct LockedDirectory {
    directory: tempfile::TempDir,
    _lock: OwnedFd,
}

impl LockedDirectory {
    /// A new one in `place`, whose name begins with `prefix`. What processes that are gone have left there under
    /// such names is removed first.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(place: &Path, prefix: &str) -> io::Result<Self> {
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
    #[must_use]
    pub fn path(&self) -> &Path {
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
        let path = entry.path();
        if is_left(&path, prefix) {
            // Whoever comes next tries again.
            let _ = remove_tree(&path);
        }
    }
}

/// Whether there is a directory under such a name.
#[must_use]
pub fn is_named(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(prefix))
        && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

/// Whether it is one of this user that no process uses any more.
#[must_use]
pub fn is_left(path: &Path, prefix: &str) -> bool {
    // In what belongs to somebody else, a link could be put in the way while it is removed.
    let is_ours = |meta: &fs::Metadata| meta.uid() == geteuid().as_raw();
    let is_old = |meta: &fs::Metadata| {
        meta.modified().is_ok_and(|made| made.elapsed().is_ok_and(|age| age > JUST_MADE))
    };
    is_named(path, prefix)
        && fs::symlink_metadata(path).is_ok_and(|meta| is_ours(&meta) && is_old(&meta))
        && lock(path).is_ok()
}

/// Removes a directory whose owner may have taken the right to do so from itself.
///
/// # Errors
/// When something in it cannot be removed.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { remove_tree(&entry.path())? } else { fs::remove_file(entry.path())? }
    }
    fs::remove_dir(dir)
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
        // Of another user, whose links could lead elsewhere; only root can make one.
        let foreign = make("home-foreign", true);
        if std::os::unix::fs::chown(&foreign, Some(65_534), None).is_ok() {
            assert!(!is_left(&foreign, "home-"));
        }
        let gone = next.path().to_owned();
        fs::create_dir_all(gone.join("closed/in")).unwrap();
        fs::set_permissions(gone.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        drop(next);
        assert!(!gone.exists());
    }
}
