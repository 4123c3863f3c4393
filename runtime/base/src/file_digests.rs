//! Digests of files, without reading unchanged files again.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::digest::Digest;
use crate::regular_file;
use crate::sync::lock;

/// A file's digest is remembered only if the file was unchanged for this long before it was read: a second write
/// within the resolution of the file system's clock would leave the same times. FAT has a resolution of 2 seconds, the
/// coarsest of the file systems in use.
const SETTLED: i128 = 2_500_000_000;

/// Most files that are remembered at once.
const MAX_KNOWN: usize = 100_000;

/// Identifies the content of a file. Users cannot set `changed`, the time of the last change of content, size, name or
/// rights.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    /// In nanoseconds since 1970.
    modified: i128,
    changed: i128,
}

impl Stamp {
    fn from_metadata(file: &Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            dev: file.dev(),
            ino: file.ino(),
            size: file.size(),
            modified: nanos(file.mtime(), file.mtime_nsec()),
            changed: nanos(file.ctime(), file.ctime_nsec()),
        }
    }

    /// True if any write after `now` gives the file other times.
    fn is_settled(&self, now: i128) -> bool {
        self.modified.max(self.changed) + SETTLED <= now
    }
}

/// The digests of files that have not changed since they were read.
#[derive(Default)]
pub struct FileDigests {
    known: Mutex<HashMap<Stamp, Digest>>,
}

impl FileDigests {
    /// The digest of a regular file's content.
    pub fn digest(&self, path: &Path) -> io::Result<Digest> {
        self.of_at(path, SystemTime::now())
    }

    fn of_at(&self, path: &Path, now: SystemTime) -> io::Result<Digest> {
        // One handle for metadata and content, even if its name leads to another file by then.
        let file = regular_file::open(path)?;
        let before = Stamp::from_metadata(&file.metadata()?);
        if let Some(digest) = self.lock_known().get(&before) {
            return Ok(*digest);
        }
        let digest = Digest::of_reader(&file)?;
        let after = Stamp::from_metadata(&file.metadata()?);
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        if before == after && before.is_settled(i128::try_from(now).unwrap_or(0)) {
            let mut known = self.lock_known();
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(before, digest);
        }
        Ok(digest)
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, HashMap<Stamp, Digest>> {
        lock(&self.known)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    /// A time at which the file has been unchanged for long enough.
    fn settled_time() -> SystemTime {
        SystemTime::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_rewrite_within_the_same_instant_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let files = FileDigests::default();
        // As fast as possible: the clock of most file systems does not advance in between.
        for round in 0..200_u32 {
            let content = format!("{round:06}");
            fs::write(&path, &content).unwrap();
            assert_eq!(files.digest(&path).unwrap(), Digest::of_bytes(content.as_bytes()), "round {round}");
        }
        assert!(files.lock_known().is_empty(), "a file that was just written is not remembered");
    }

    #[test]
    fn a_settled_file_is_read_once_and_any_change_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let files = FileDigests::default();
        fs::write(&path, "one").unwrap();
        let one = files.of_at(&path, settled_time()).unwrap();
        assert_eq!(files.lock_known().len(), 1);
        let stamp = *files.lock_known().keys().next().unwrap();
        // Remembered: the digest is not computed again.
        files.lock_known().insert(stamp, Digest::of_bytes(b"remembered"));
        assert_eq!(files.of_at(&path, settled_time()).unwrap(), Digest::of_bytes(b"remembered"));
        // The same size and, after resetting it, the same time of modification.
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "two").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let two = files.of_at(&path, settled_time()).unwrap();
        assert_eq!((one, two), (Digest::of_bytes(b"one"), Digest::of_bytes(b"two")));
        // Another file in its place.
        fs::write(dir.path().join("new"), "six").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(files.of_at(&path, settled_time()).unwrap(), Digest::of_bytes(b"six"));
    }

    #[test]
    fn times_to_come_are_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let future = SystemTime::now() + Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_modified(future).unwrap();
        let files = FileDigests::default();
        files.of_at(&path, settled_time()).unwrap();
        assert!(files.lock_known().is_empty());
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FileDigests::default().digest(dir.path()).is_err());
        assert!(FileDigests::default().digest(&dir.path().join("gone")).is_err());
    }
}
