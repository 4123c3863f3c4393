//! The journals of commits of changes to files, beside the database: what the store knows of them.

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
        let dir = self.dir().join(COMMITS);
        let own = format!("{run}-");
        let look = || -> io::Result<bool> {
            for entry in fs::read_dir(&dir)? {
                let name = entry?.file_name();
                let is_journal = |name: &str| name.starts_with(&own) && name.ends_with(SUFFIX);
                if name.to_str().is_some_and(is_journal) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match look() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => found.map_err(|error| StoreError::io("list", &dir, error)),
        }
    }
}
