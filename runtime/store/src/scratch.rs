//! Directories of stores that nobody means to keep. Each is locked as long as its store is open, so what a killed
//! process left behind can be told from what another one works with, and removed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use tempfile::TempDir;

use super::file_lock::{FileLock, Sharing};
use super::gc::entries;

/// What their names begin with.
const PREFIX: &str = "lobster-scratch-";

/// One that was made less long ago may not be locked yet.
const JUST_MADE: Duration = Duration::from_secs(60);

/// Such a directory, gone with this value.
pub(super) struct Scratch {
    directory: TempDir,
    /// Given up when the directory is gone.
    _lock: FileLock,
}

impl Scratch {
    /// A new one in `place`, from which what dead processes left is removed first.
    pub(super) fn new_in(place: &Path) -> io::Result<Self> {
        entries(place).iter().filter(|path| is_left(path)).for_each(|path| {
            // Whoever comes next tries again.
            let _ = fs::remove_dir_all(path);
        });
        let mut builder = tempfile::Builder::new();
        let directory =
            builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(place)?;
        let lock = lock(directory.path())?.ok_or(io::ErrorKind::ResourceBusy)?;
        Ok(Self { directory, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Whether a path is that of such a directory.
pub(super) fn is_scratch(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX))
        && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

/// Whether it is one that no process uses any more.
pub(super) fn is_left(path: &Path) -> bool {
    let made = || fs::symlink_metadata(path).and_then(|meta| meta.modified());
    let is_old = || made().is_ok_and(|made| made.elapsed().is_ok_and(|age| age > JUST_MADE));
    is_scratch(path) && is_old() && matches!(lock(path), Ok(Some(_)))
}

fn lock(path: &Path) -> io::Result<Option<FileLock>> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let directory = File::options().read(true).custom_flags(flags).open(path)?;
    FileLock::take(directory, Sharing::Exclusive, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_what_nobody_uses_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let age = |path: &Path| {
            File::open(path).unwrap().set_modified(SystemTime::now() - 2 * JUST_MADE).unwrap();
        };
        let in_use = Scratch::new_in(place.path()).unwrap();
        age(in_use.path());
        let make = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.join("store/blobs")).unwrap();
            path
        };
        let (left, fresh, other) = (make("lobster-scratch-left"), make("lobster-scratch-new"), make("other"));
        age(&left);
        age(&other);
        let next = Scratch::new_in(place.path()).unwrap();
        assert_eq!(
            [in_use.path(), &left, &fresh, &other, next.path()].map(Path::exists),
            [true, false, true, true, true]
        );
        let gone = next.path().to_owned();
        drop(next);
        assert!(!gone.exists());
    }
}
