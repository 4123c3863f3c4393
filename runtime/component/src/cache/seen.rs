//! Records that a file was checked and has not changed since.
//!
//! Hashing several megabytes of code is most of the cost of loading them. A file that was checked since
//! the machine started need not be checked again while the kernel reports it as unchanged: the time of
//! its last change (ctime) cannot be set, and any damage from a power cut precedes the current start.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lobster_base::regular_file;

/// A file that was changed more recently than this is not trusted: on some kernels, two changes within
/// one tick of the clock get the same time.
const SETTLED: Duration = Duration::from_secs(2);

/// Identifies this start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Distinguishes the current state of a file from every other file and from its own state after a
/// change.
pub(super) struct SeenMark(String);

impl SeenMark {
    /// `None` if the kernel does not report this, or if the file has changed very recently.
    pub(super) fn for_file(file: &Path) -> Option<Self> {
        let boot = fs::read_to_string(BOOT_ID).ok()?;
        let meta = fs::metadata(file).ok()?;
        is_settled(&meta).then(|| {
            let (dev, ino, size) = (meta.dev(), meta.ino(), meta.size());
            let (seconds, nanoseconds) = (meta.ctime(), meta.ctime_nsec());
            Self(format!("{} {dev} {ino} {size} {seconds}.{nanoseconds:09}", boot.trim()))
        })
    }

    /// True if the file was checked in this state; `note` is the file that records it.
    pub(super) fn is_noted(&self, note: &Path) -> bool {
        regular_file::read_own_text(note).is_ok_and(|noted| noted == self.0)
    }

    /// Content of the note.
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
        assert!(SeenMark::for_file(&file).is_none(), "it has changed just now");
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        let mark = SeenMark::for_file(&file).expect("a kernel that tells");
        assert!(!mark.is_noted(&note));
        fs::write(&note, mark.as_bytes()).expect("writes");
        assert!(mark.is_noted(&note) && SeenMark::for_file(&file).is_some_and(|again| again.is_noted(&note)));
        // The length is the same and the modification time is set back; the earlier content cannot be
        // known.
        let content = fs::metadata(&file).and_then(|meta| meta.modified()).expect("a time");
        fs::write(&file, "c0de").expect("writes");
        fs::File::options().append(true).open(&file).and_then(|f| f.set_modified(content)).expect("sets");
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        assert!(SeenMark::for_file(&file).is_some_and(|other| !other.is_noted(&note)));
    }
}
