//! Who is executing a run.
//!
//! A claim is a file lock, so it ends with the process that holds it, however
//! that ends. A run that is `running` and unclaimed has crashed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use super::Store;
use super::error::StoreError;
use super::event::RunId;
use super::file_lock::{FileLock, Sharing};

/// [`Store::is_claimed`] holds the lock for an instant; a claim outwaits it.
const GLANCE: Duration = Duration::from_millis(20);

/// The right to execute a run; ends when dropped.
#[derive(Debug)]
pub struct RunClaim {
    path: PathBuf,
    _lock: FileLock,
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        // While it is still locked: whoever opened it before sees, once they
        // have the lock, that it is no longer the file of that name.
        let _ = fs::remove_file(&self.path);
    }
}

impl Store {
    /// Takes the right to execute `run`. Only its holder may append to the run,
    /// except for answers to gates.
    ///
    /// # Errors
    /// [`StoreError::RunBusy`] while another process, or another part of this one, has it.
    pub fn claim_run(&self, run: RunId) -> Result<RunClaim, StoreError> {
        let path = self.claim_path(run);
        let fail = |e| StoreError::io("lock", &path, e);
        loop {
            let file = match open_or_create(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let dir = self.inner.dir.join("locks");
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
                    open_or_create(&path).map_err(fail)?
                }
                other => other.map_err(fail)?,
            };
            let Some(lock) = FileLock::take(file, Sharing::Exclusive, GLANCE).map_err(fail)? else {
                return Err(StoreError::RunBusy(run.to_string()));
            };
            let ours = lock.file().metadata().map_err(fail)?;
            // Its last holder may have removed it in between; then it locks nothing.
            if fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino())) {
                return Ok(RunClaim { path, _lock: lock });
            }
        }
    }

    /// Whether somebody is executing `run` at this moment.
    #[must_use]
    pub fn is_claimed(&self, run: RunId) -> bool {
        File::open(self.claim_path(run))
            .and_then(|file| FileLock::take(file, Sharing::Shared, Duration::ZERO))
            .is_ok_and(|lock| lock.is_none())
    }

    fn claim_path(&self, run: RunId) -> PathBuf {
        // A state key's lock ends in `.json`, so the two never meet.
        self.inner.dir.join("locks").join(format!("run-{run}"))
    }
}

fn open_or_create(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}
