//! That a file was checked, and has not changed since.
//!
//! Hashing some megabytes of code is most of what it takes to load them. A file
//! that was checked since the machine started need not be checked again while
//! the kernel says that nobody touched it: the time of its last change cannot be
//! set, and whatever a power cut may have done to its content is behind a start.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lobster_base::regular_file;

/// A file that was changed more recently is not trusted: on some kernels two
/// changes within one tick of the clock bear the same time.
const SETTLED: Duration = Duration::from_secs(2);

/// Says this start of the machine apart from all others.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What tells a file, as it is now, from any other and from itself after a change.
pub(super) struct Mark(String);

impl Mark {
    /// None where the kernel does not tell, or where the file has changed just now.
    pub(super) fn of(file: &Path) -> Option<Self> {
        let boot = fs::read_to_string(BOOT_ID).ok()?;
        let meta = fs::metadata(file).ok()?;
        is_settled(&meta).then(|| {
            let (dev, ino, size) = (meta.dev(), meta.ino(), meta.size());
            let (seconds, nanoseconds) = (meta.ctime(), meta.ctime_nsec());
            Self(format!("{} {dev} {ino} {size} {seconds}.{nanoseconds:09}", boot.trim()))
        })
    }

    /// Whether the file was checked in this state; `note` is where that is noted.
    pub(super) fn is_noted(&self, note: &Path) -> bool {
        regular_file::read_own_text(note).is_ok_and(|noted| noted == self.0)
    }

    /// What the note says.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn is_settled(meta: &Metadata) -> bool {
    let changed = u64::try_from(meta.ctime()).map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    changed.is_ok_and(|changed| SystemTime::now().duration_since(changed).is_ok_and(|age| age > SETTLED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_is_another() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (file, note) = (dir.path().join("code"), dir.path().join("note"));
        fs::write(&file, "code").expect("writes");
        assert!(Mark::of(&file).is_none(), "it has changed just now");
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        let mark = Mark::of(&file).expect("a kernel that tells");
        assert!(!mark.is_noted(&note));
        fs::write(&note, mark.as_bytes()).expect("writes");
        assert!(mark.is_noted(&note) && Mark::of(&file).is_some_and(|again| again.is_noted(&note)));
        // The same length, and the time of its content set back: what it was stays unknown.
        let content = fs::metadata(&file).and_then(|meta| meta.modified()).expect("a time");
        fs::write(&file, "c0de").expect("writes");
        fs::File::options().append(true).open(&file).and_then(|f| f.set_modified(content)).expect("sets");
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        assert!(Mark::of(&file).is_some_and(|other| !other.is_noted(&note)));
    }
}
