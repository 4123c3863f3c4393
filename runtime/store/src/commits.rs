//! Journals of commits of file changes, kept beside the database, as far as the store reads them.

use std::collections::HashSet;
use std::fs;
use std::io;

use super::Store;
use super::error::StoreError;
use super::event::RunId;

/// Directory of the journals within the store. Each file is named after the run that commits.
pub const COMMITS: &str = "commits";

/// File name extension of a journal.
const SUFFIX: &str = ".commit";

impl Store {
    /// True if a commit of this run has begun and not ended: its files may be half changed.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn has_unfinished_commit(&self, run: RunId) -> Result<bool, StoreError> {
        Ok(self.unfinished_commits()?.contains(&run))
    }

    /// Runs with a commit that has begun and not ended.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn unfinished_commits(&self) -> Result<HashSet<RunId>, StoreError> {
        let dir = self.dir().join(COMMITS);
        let run_of = |name: &str| name.strip_suffix(SUFFIX)?.rsplit_once('-')?.0.parse::<RunId>().ok();
        let look = || -> io::Result<HashSet<RunId>> {
            let names = fs::read_dir(&dir)?.map(|entry| Ok(entry?.file_name()));
            let names = names.collect::<io::Result<Vec<_>>>()?;
            Ok(names.iter().filter_map(|name| run_of(name.to_str()?)).collect())
        };
        match look() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
            found => found.map_err(|error| StoreError::io("list", &dir, error)),
        }
    }
}
