//! Source of a bundle: a file, or a pipe to which data may never be written.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lobster_base::cancel::CancelToken;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

/// A file that is read until its end, or until `cancel` stops the work.
pub(super) struct BundleSource<'c> {
    file: File,
    cancel: &'c CancelToken,
}

impl<'c> BundleSource<'c> {
    /// Opens it without waiting for the other end of a pipe.
    pub(super) fn open(path: &Path, cancel: &'c CancelToken) -> io::Result<Self> {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        Ok(Self { file, cancel })
    }
}

impl Read for BundleSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let called_off = PollFd::from_borrowed_fd(self.cancel.pollable_fd()?, PollFlags::IN);
            poll(&mut [PollFd::new(&self.file, PollFlags::IN), called_off], None)?;
            if self.cancel.is_cancelled() {
                return Err(io::Error::other("the reading was interrupted"));
            }
            match self.file.read(buffer) {
                // Another reader of the same pipe was faster.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}
