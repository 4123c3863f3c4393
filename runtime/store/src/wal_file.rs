//! The file of the write-ahead log.
//!
//! The file is kept longer than the log and filled with zeros. The sync of an overwritten file waits only for its
//! bytes; if the file has grown, the sync also waits for the file system's metadata, which takes several times as
//! long. SQLite reads a log up to the first invalid frame, so the zeros after it do not matter.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lobster_base::regular_file;

/// The size of the file is a multiple of this.
const ROOM: u64 = 512 * 1024;

/// The write-ahead log of the database at `path`.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// The log's file, for the writer.
pub(super) struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

impl LogFile {
    pub(super) fn new(database: &Path) -> Self {
        Self { path: log_path(database), file: None }
    }

    /// Extends the file with zeros if commits had to append to it. Call it only inside a write transaction that has
    /// written nothing yet: then no other process writes to the log, and bytes after its end are unused.
    ///
    /// Without the zeros, commits are only slower, so an error is ignored.
    pub(super) fn make_room(&mut self) {
        let _ = self.try_make_room();
    }

    fn try_make_room(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            slot => slot.insert(regular_file::open_own(OpenOptions::new().write(true), &self.path)?),
        };
        let len = file.metadata()?.len();
        // A file of this length was already extended, perhaps by another process.
        if len > 0 && len.is_multiple_of(ROOM) {
            return Ok(());
        }
        let target = (len + ROOM / 2).next_multiple_of(ROOM);
        let zeros = vec![0; usize::try_from(target - len).unwrap_or(0)];
        file.write_all_at(&zeros, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    /// Pages that the next process would have to read.
    fn log_pages(store: &Store) -> i64 {
        let ask = "PRAGMA wal_checkpoint(NOOP)";
        store.inner.db.read_snapshot(|db| Ok(db.query_row(ask, [], |row| row.get(1))?)).unwrap()
    }

    #[test]
    fn a_log_has_room_and_begins_anew_when_it_is_long() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("store").join("lobster.db-wal");
        let store = Store::open(dir.path()).unwrap();
        let blobs: Vec<_> = (0_u16..100)
            .map(|n| {
                let blob = store.put_blob(&n.to_le_bytes().repeat(1500)).unwrap();
                store.sync().unwrap();
                blob
            })
            .collect();
        let written = u64::try_from(log_pages(&store)).unwrap() * 4096;
        let len = std::fs::metadata(&log).unwrap().len();
        assert!(written > ROOM && len > written && len.is_multiple_of(ROOM), "{written} in {len}");
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(log_pages(&store) < 3, "{}", log_pages(&store));
        assert_eq!(std::fs::metadata(&log).unwrap().len(), len);
        for blob in blobs {
            assert_eq!(store.load_blob(&blob.digest, u64::MAX).unwrap().len() as u64, blob.len);
        }
    }
}
