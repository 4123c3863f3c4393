//! Who is executing a run.
//!
//! A claim is a file lock, so it ends with the process that holds it, however
//! that ends. A run that is `running` and unclaimed has crashed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::Store;
use super::error::StoreError;
use super::event::RunId;

/// The right to execute a run; ends when dropped.
#[derive(Debug)]
pub struct RunClaim {
    path: PathBuf,
    _lock: File,
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
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => return Err(StoreError::RunBusy(run.to_string())),
                Err(errno) => return Err(fail(errno.into())),
            }
            let ours = file.metadata().map_err(fail)?;
            // Its last holder may have removed it in between; then it locks nothing.
            if fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino())) {
                return Ok(RunClaim { path, _lock: file });
            }
        }
    }

    /// Whether somebody is executing `run` at this moment.
    #[must_use]
    pub fn is_claimed(&self, run: RunId) -> bool {
        File::open(self.claim_path(run)).is_ok_and(|file| {
            matches!(rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
        })
    }

    fn claim_path(&self, run: RunId) -> PathBuf {
        // A state key's lock ends in `.json`, so the two never meet.
        self.inner.dir.join("locks").join(format!("run-{run}"))
    }
}

fn open_or_create(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}
