//! The write-ahead journal of a commit: one file, replaced whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::set::ChangeSet;
use crate::steps::Step;
use lobster_base::fault::point;
use lobster_base::regular_file;

/// How far a commit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// New contents are being laid ready: nothing is visible, a crash throws it away.
    Preparing,
    /// All is ready: a crash is followed by the rest of the commit.
    Applying,
    /// Somebody changed a file meanwhile: a crash is followed by the rest of the way back.
    Reverting,
    /// All is visible or all is back; what was laid ready is thrown away.
    Cleaning,
}

/// What stands in the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) id: String,
    pub(crate) phase: Phase,
    pub(crate) set: ChangeSet,
    /// In the order in which they are done.
    pub(crate) steps: Vec<Step>,
    /// Whether what is being cleaned up was committed.
    #[serde(default)]
    pub(crate) committed: bool,
}

impl Journal {
    /// What it takes to throw away what lies ready: before anything is visible, and when all is done.
    pub(crate) fn brief(&self) -> Self {
        let set = self.set.without_changes();
        Self { id: self.id.clone(), phase: self.phase, set, steps: Vec::new(), committed: self.committed }
    }
}

/// Where a journal is kept.
pub(crate) trait Log {
    /// Durable when it returns, whole or not at all.
    fn write(&self, journal: &Journal) -> io::Result<()>;
    /// Durable some time: a journal that says *cleaning* and comes back finds nothing to clean.
    fn clear(&self) -> io::Result<()>;
}

/// A journal as a file.
pub(crate) struct LogFile {
    path: PathBuf,
}

/// What journals are called.
const SUFFIX: &str = "commit";

/// And what they are called until they are whole.
const DRAFT: &str = "new";

/// A draft is written in an instant. One that is so old is of a process that was killed; if it was stopped and goes on,
/// it finds no draft, and its commit fails before anything changes, or is finished by the next recovery.
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

    /// Where it is kept.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What stands in it; `None` when its commit has ended.
    pub(crate) fn read(&self) -> Option<io::Result<Journal>> {
        match regular_file::read_own(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))),
        }
    }

    /// The journals that are left in a directory; of one that cannot be read, why not.
    pub(crate) fn pending(dir: &Path) -> io::Result<Vec<(Self, io::Result<Journal>)>> {
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
                found.extend(log.read().map(|journal| (log, journal)));
            } else if path.extension().is_some_and(|extension| extension == DRAFT) {
                remove_left_behind(&path);
            }
        }
        found.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        Ok(found)
    }
}

impl Log for LogFile {
    fn write(&self, journal: &Journal) -> io::Result<()> {
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

    fn clear(&self) -> io::Result<()> {
        point("journal")?;
        fs::remove_file(&self.path)
    }
}

fn sync_above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
