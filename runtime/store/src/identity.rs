//! Checks that the files that this process has open are still the files at their paths. If a state directory is
//! removed, moved or replaced while lobster runs, every descriptor stays usable: SQLite would keep committing into
//! files that no other process can open, effects would happen without a readable record, and questions would be asked
//! that could not be answered.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::StoreError;
use super::wal_file::log_path;

/// Identifies an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of_path(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self { device: meta.dev(), inode: meta.ino() })
    }
}

/// The database and its write-ahead log as they were when opened.
pub(super) struct Identity {
    path: PathBuf,
    log: PathBuf,
    database_id: FileId,
    /// Known after the first commit, which creates the log if it is missing.
    log_id: OnceLock<FileId>,
}

impl Identity {
    /// Runs `open` for the database at `path` and records its identity. If the file is replaced meanwhile, it is
    /// opened again.
    pub(super) fn open_with<T>(
        path: &Path,
        open: impl Fn() -> Result<T, StoreError>,
    ) -> Result<(T, Self), StoreError> {
        const TRIES: usize = 3;
        let unusable = |source| StoreError::Unusable { path: path.to_owned(), source };
        for _ in 0..TRIES {
            let before = FileId::of_path(path).ok();
            let opened = open()?;
            let after = FileId::of_path(path).map_err(unusable)?;
            if before.is_none_or(|before| before == after) {
                let identity = Self {
                    path: path.to_owned(),
                    log: log_path(path),
                    database_id: after,
                    log_id: OnceLock::new(),
                };
                return Ok((opened, identity));
            }
        }
        Err(StoreError::Replaced { path: path.to_owned() })
    }

    /// Remembers the log, once it exists.
    pub(super) fn note_log(&self) {
        if self.log_id.get().is_none()
            && let Ok(id) = FileId::of_path(&self.log)
        {
            let _ = self.log_id.set(id);
        }
    }

    /// Fails unless a process that opens the store now opens the same files.
    pub(super) fn check_unchanged(&self) -> Result<(), StoreError> {
        let same =
            |path: &Path, expected: &FileId| FileId::of_path(path).is_ok_and(|found| found == *expected);
        if same(&self.path, &self.database_id) && self.log_id.get().is_none_or(|id| same(&self.log, id)) {
            return Ok(());
        }
        Err(StoreError::Replaced { path: self.path.clone() })
    }
}
