//! Whether the files that this process has open are still the ones at their
//! path. A state directory that is removed, moved or replaced while lobster runs
//! leaves every descriptor usable: SQLite would go on committing into files
//! that nobody else can open, effects would be done without a record that
//! anyone can read, and questions asked that nobody could answer.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::StoreError;
use super::wal_file::log_path;

/// What names a file for as long as somebody has it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self { device: meta.dev(), inode: meta.ino() })
    }
}

/// The database and its write-ahead log as they were when they were opened.
pub(super) struct Identity {
    path: PathBuf,
    log: PathBuf,
    database_id: FileId,
    /// Known from the first commit on, which makes the log if there is none.
    log_id: OnceLock<FileId>,
}

impl Identity {
    /// Of the database that `open` opens at `path`. Should the file be replaced
    /// while it is opened, it is opened again.
    pub(super) fn around<T>(
        path: &Path,
        open: impl Fn() -> Result<T, StoreError>,
    ) -> Result<(T, Self), StoreError> {
        const TRIES: usize = 3;
        let unusable = |source| StoreError::Unusable { path: path.to_owned(), source };
        for _ in 0..TRIES {
            let before = FileId::of(path).ok();
            let opened = open()?;
            let after = FileId::of(path).map_err(unusable)?;
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

    /// Remembers the log, once there is one.
    pub(super) fn note_log(&self) {
        if self.log_id.get().is_none()
            && let Ok(id) = FileId::of(&self.log)
        {
            let _ = self.log_id.set(id);
        }
    }

    /// An error unless others who open the store now open the same files.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let same = |path: &Path, expected: &FileId| FileId::of(path).is_ok_and(|found| found == *expected);
        if same(&self.path, &self.database_id) && self.log_id.get().is_none_or(|id| same(&self.log, id)) {
            return Ok(());
        }
        Err(StoreError::Replaced { path: self.path.clone() })
    }
}
