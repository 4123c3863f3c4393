//! The write-ahead journal of a commit: one file, which is always replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::set::ChangeSet;
use crate::steps::CommitStep;
use lobster_base::fault::point;
use lobster_base::regular_file;

/// Progress of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// New contents are being prepared. Nothing is visible; after a crash they are discarded.
    Preparing,
    /// Everything is prepared; after a crash the rest of the commit is executed.
    Applying,
    /// Another program changed a file meanwhile; after a crash the rest is reverted.
    Reverting,
    /// All changes are visible or reverted; prepared files are being removed.
    Cleaning,
}

/// Content of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) id: String,
    pub(crate) phase: Phase,
    pub(crate) set: ChangeSet,
    /// In the order of execution.
    pub(crate) steps: Vec<CommitStep>,
    /// True if the commit being cleaned up succeeded.
    #[serde(default)]
    pub(crate) committed: bool,
}

impl Journal {
    /// The part that is needed to remove prepared files: before anything is visible, and after all steps.
    pub(crate) fn without_steps(&self) -> Self {
        let set = self.set.without_changes();
        Self { id: self.id.clone(), phase: self.phase, set, steps: Vec::new(), committed: self.committed }
    }
}

/// Storage of a journal.
pub(crate) trait Log {
    /// Writes the journal completely or not at all; durable on return.
    fn write_journal(&self, journal: &Journal) -> io::Result<()>;
    /// Removes the journal. This need not be durable: if a journal in the phase *cleaning* reappears, nothing
    /// is left to clean.
    fn remove_journal(&self) -> io::Result<()>;
}

/// A journal in a file.
pub(crate) struct LogFile {
    path: PathBuf,
}

/// File name extension of journals.
const SUFFIX: &str = "commit";

/// File name extension of incomplete journals.
const DRAFT: &str = "new";

/// Age at which a draft is considered as left by a killed process, since writing one takes only an instant.
/// If the process was only stopped and continues, it misses its draft. Its commit then fails before anything
/// changes, or the next recovery finishes it.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

fn remove_left_behind(draft: &Path) {
    let age =
        fs::metadata(draft).and_then(|found| found.modified()).map(|at| at.elapsed().unwrap_or_default());
    if age.is_ok_and(|age| age > LEFT_BEHIND) {
        let _ = fs::remove_file(draft);
    }
}

impl LogFile {
    pub(crate) fn new(dir: &Path, id: &str) -> Self {
        Self { path: dir.join(format!("{id}.{SUFFIX}")) }
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the journal; `None` if its commit has ended.
    pub(crate) fn read_journal(&self) -> Option<io::Result<Journal>> {
        match regular_file::read_own(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))),
        }
    }

    /// The journals that are left in a directory, or the errors of unreadable ones.
    pub(crate) fn list_pending(dir: &Path) -> io::Result<Vec<(Self, io::Result<Journal>)>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == SUFFIX) {
                let log = Self { path };
                // Its commit may have ended since the directory was listed.
                found.extend(log.read_journal().map(|journal| (log, journal)));
            } else if path.extension().is_some_and(|extension| extension == DRAFT) {
                remove_left_behind(&path);
            }
        }
        found.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        Ok(found)
    }
}

impl Log for LogFile {
    fn write_journal(&self, journal: &Journal) -> io::Result<()> {
        point("journal")?;
        let new = self.path.with_extension(DRAFT);
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(journal)?)?;
        file.sync_all()?;
        point("journal")?;
        fs::rename(&new, &self.path)?;
        sync_above(&self.path)?;
        point("journal")
    }

    fn remove_journal(&self) -> io::Result<()> {
        point("journal")?;
        fs::remove_file(&self.path)
    }
}

fn sync_above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
