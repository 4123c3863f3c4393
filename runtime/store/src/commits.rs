//! The journals of commits of changes to files, beside the database: what the store knows of them.

use std::collections::HashSet;
use std::fs;
use std::io;

use super::Store;
use super::error::StoreError;
use super::event::RunId;

/// The directory of the journals, in that of the store. Each is called after the run that its commit is of.
pub const COMMITS: &str = "commits";

/// How the name of a journal ends.
const SUFFIX: &str = ".commit";

impl Store {
    /// Whether a commit of this run has begun and is not over: its files may be half changed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn has_unfinished_commit(&self, run: RunId) -> Result<bool, StoreError> {
        Ok(self.unfinished_commits()?.contains(&run))
    }

    /// The runs of which a commit has begun and is not over.
    ///
    /// # Errors
    /// When the directory cannot be read.
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
