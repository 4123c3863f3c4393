//! Locks that belong to an open file (flock(2)) and so end with their process.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Between two looks at a lock that is held.
const POLL: Duration = Duration::from_millis(1);

/// Who may hold a lock at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// All who share it.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock(File);

impl FileLock {
    /// Locks `file`, waiting up to `patience` for others; `None` if they still hold it.
    pub(super) fn take(file: File, sharing: Sharing, patience: Duration) -> io::Result<Option<Self>> {
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

    /// The file that is locked.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing would not do: a process that is just being started has a copy
        // of the descriptor until its exec, and would keep the lock that long.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}
