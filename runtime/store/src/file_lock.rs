//! Locks of an open file (flock(2)), which end with their process.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Time between two attempts to take a held lock.
const POLL: Duration = Duration::from_millis(1);

/// Kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// Any number of holders at once.
    Shared,
    /// One holder only.
    Exclusive,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock(File);

impl FileLock {
    /// Locks `file`, waiting up to `patience` for other holders; `None` if it is still held then.
    pub(super) fn try_acquire(file: File, sharing: Sharing, patience: Duration) -> io::Result<Option<Self>> {
        let how = match sharing {
            Sharing::Shared => FlockOperation::NonBlockingLockShared,
            Sharing::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        let since = Instant::now();
        loop {
            match rustix::fs::flock(&file, how) {
                Ok(()) => return Ok(Some(Self(file))),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if since.elapsed() >= patience => return Ok(None),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(POLL),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The locked file.
    pub(super) fn locked_file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is being started has a copy of the descriptor until its exec, and would
        // keep the lock until then.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}
