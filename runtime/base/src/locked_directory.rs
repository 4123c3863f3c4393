//! Directories that processes lock while they use them, so that the remains of a killed lobster can be recognised and
//! removed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;

/// Longest wait of a new directory for a concurrent clean-up, so that it is locked before the clean-up sees it.
const PATIENCE: Duration = Duration::from_millis(100);

/// A directory of this process, removed when this value is dropped.
#[derive(Debug)]
pub struct LockedDirectory {
    directory: tempfile::TempDir,
    _lock: OwnedFd,
}

impl LockedDirectory {
    /// Creates a directory in `place` whose name begins with `prefix`. Remains of dead processes there with such names
    /// are removed first.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(place: &Path, prefix: &str) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(place)?;
        let place = fs::canonicalize(place)?;
        remove_left(&place, prefix);
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix).permissions(fs::Permissions::from_mode(0o700));
        let _creation = announce_creation(&place);
        let directory = builder.tempdir_in(place)?;
        let lock = lock_directory(directory.path(), FlockOperation::NonBlockingLockExclusive)?;
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
        // A step may have left directories without write permission, as module caches do.
        let _ = remove_tree(self.directory.path());
    }
}

/// Creates a file in `place` that this process locks. [`remove_left_files`] removes it once the lock has ended.
///
/// # Errors
/// If it cannot be created.
pub fn create_locked_file(place: &Path, prefix: &str) -> io::Result<tempfile::NamedTempFile> {
    let _creation = announce_creation(place);
    let file = tempfile::Builder::new().prefix(prefix).tempfile_in(place)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes files with this prefix that no process has locked.
pub fn remove_left_files(place: &Path, prefix: &str) {
    let names = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut named = names.filter(|path| is_own(path, prefix, fs::Metadata::is_file)).peekable();
    if named.peek().is_none() {
        return;
    }
    let Ok(_alone) = lock_directory(place, FlockOperation::NonBlockingLockExclusive) else { return };
    for path in named {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = open(&path, flags, Mode::empty()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Keeps a concurrent clean-up of `place` from removing a directory between its creation and its lock. In a shared
/// place, another user may hold this lock for ever, so the wait is short.
fn announce_creation(place: &Path) -> io::Result<OwnedFd> {
    let since = Instant::now();
    let mut creation = lock_directory(place, FlockOperation::NonBlockingLockShared);
    while creation.is_err() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
        creation = lock_directory(place, FlockOperation::NonBlockingLockShared);
    }
    creation
}

fn lock_directory(path: &Path, how: FlockOperation) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    flock(&directory, how)?;
    Ok(directory)
}

/// A directory left by a killed process. Other processes do not remove it while this is held.
#[derive(Debug)]
pub struct LeftDirectory {
    path: PathBuf,
    _lock: OwnedFd,
}

impl LeftDirectory {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    ///
    /// # Errors
    /// If something in it cannot be removed; the next clean-up tries again.
    pub fn remove(self) -> io::Result<()> {
        remove_tree(&self.path)
    }
}

/// Directories in `place` with this prefix that belong to this user and are no longer in use.
#[must_use]
pub fn left_in(place: &Path, prefix: &str) -> Vec<LeftDirectory> {
    let names = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut named = names.filter(|path| is_own(path, prefix, fs::Metadata::is_dir)).peekable();
    if named.peek().is_none() {
        return Vec::new();
    }
    // While a directory is being created there, the clean-up is left for another time.
    let Ok(_alone) = lock_directory(place, FlockOperation::NonBlockingLockExclusive) else {
        return Vec::new();
    };
    let left = named.filter_map(|path| {
        let lock = lock_directory(&path, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(LeftDirectory { path, _lock: lock })
    });
    left.collect()
}

/// Removes them, and returns their number.
pub fn remove_left(place: &Path, prefix: &str) -> u64 {
    let left = left_in(place, prefix);
    let count = left.len() as u64;
    // If one cannot be removed, the next clean-up tries again.
    left.into_iter().for_each(|left| drop(left.remove()));
    count
}

/// True if the path has this prefix and belongs to this user.
fn is_own(path: &Path, prefix: &str, is_kind: fn(&fs::Metadata) -> bool) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    // In another user's directory, a link could be inserted during the removal.
    name.is_some_and(|name| name.starts_with(prefix))
        && fs::symlink_metadata(path).is_ok_and(|meta| is_kind(&meta) && meta.uid() == geteuid().as_raw())
}

/// Removes a directory even if its owner has no permission to write to it.
///
/// # Errors
/// If something in it cannot be removed.
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
        let make = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.join("closed/in")).unwrap();
            fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
            path
        };
        let in_use = LockedDirectory::new(place.path(), "home-").unwrap();
        let (left, other) = (make("home-left"), make("other"));
        let next = LockedDirectory::new(place.path(), "home-").unwrap();
        assert_eq!([in_use.path(), &left, &other, next.path()].map(Path::exists), [true, false, true, true]);
        // A directory of another user, whose links could lead elsewhere; only root can create one.
        let foreign = make("home-foreign");
        if std::os::unix::fs::chown(&foreign, Some(65_534), None).is_ok() {
            assert!(left_in(place.path(), "home-").is_empty());
        }
        let gone = next.path().to_owned();
        fs::create_dir_all(gone.join("closed/in")).unwrap();
        fs::set_permissions(gone.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        drop(next);
        assert!(!gone.exists());
    }

    #[test]
    fn a_file_stays_as_long_as_it_is_locked() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("blob-left"), "x").unwrap();
        fs::write(place.path().join("other"), "x").unwrap();
        let in_use = create_locked_file(place.path(), "blob-").unwrap();
        remove_left_files(place.path(), "blob-");
        let mut names: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, [in_use.path(), &place.path().join("other")]);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..300).for_each(|_| remove_left_files(place.path(), "blob-")));
            for _ in 0..300 {
                assert!(create_locked_file(place.path(), "blob-").unwrap().path().exists());
            }
        });
    }

    #[test]
    fn a_directory_that_is_being_made_is_never_taken_for_one_that_was_left() {
        let place = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let own = LockedDirectory::new(place.path(), "home-").unwrap();
                        fs::write(own.path().join("file"), "x").unwrap();
                        assert!(own.path().join("file").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
