//! Roots as open files: a step gets the very file or directory that the policy judged, or none.

use std::fs::{File, FileType, Metadata, metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use super::SpawnError;

/// An opened file or directory and its path at that time. The handle is kept, so no other file can have its
/// identity as long as this value lives.
#[derive(Clone, Debug)]
pub struct HeldRoot {
    path: PathBuf,
    id: FileId,
    kind: FileType,
    handle: Arc<File>,
}

/// Device and inode, which identify a file for as long as a process has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl FileId {
    fn from_metadata(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// Identity of a [`HeldRoot`] as plain data. It is unique as long as a process has the file open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootId {
    /// Path when it was opened, without links.
    pub path: PathBuf,
    device: u64,
    inode: u64,
}

impl RootId {
    /// Opens the file with this identity.
    ///
    /// # Errors
    /// If its path now leads to another file or to none.
    pub fn open(&self) -> Result<HeldRoot, SpawnError> {
        let id = FileId { device: self.device, inode: self.inode };
        match HeldRoot::open(&self.path) {
            Ok(root) if root.id == id && root.path == self.path => Ok(root),
            Ok(_) | Err(_) => Err(SpawnError::Replaced { path: self.path.clone() }),
        }
    }
}

impl HeldRoot {
    /// Path and identity of the file.
    #[must_use]
    pub fn root_id(&self) -> RootId {
        RootId { path: self.path.clone(), device: self.id.device, inode: self.id.inode }
    }

    /// Opens the file that is now at `path` and follows links.
    ///
    /// # Errors
    /// If there is no file, or if it has been moved or removed.
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // Without O_PATH, opening a pipe must not wait for its other end.
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let handle = File::from(open(path, flags, Mode::empty())?);
        let path = path_of(&handle)?;
        let own = handle.metadata()?;
        let id = FileId::from_metadata(&own);
        if metadata(&path).is_ok_and(|named| FileId::from_metadata(&named) == id) {
            return Ok(Self { path, id, kind: own.file_type(), handle: Arc::new(handle) });
        }
        Err(io::Error::other("it was moved or removed while it was opened"))
    }

    /// Path when it was opened, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its device and inode.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        (self.id.device, self.id.inode)
    }

    /// True if it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind.is_dir()
    }

    /// True if it is a unix socket.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.kind.is_socket()
    }

    #[cfg(target_os = "linux")]
    pub(super) fn file_id(&self) -> FileId {
        self.id
    }

    /// The open file.
    #[cfg(target_os = "linux")]
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl PartialEq for HeldRoot {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, self.id) == (&other.path, other.id)
    }
}

impl Eq for HeldRoot {}

#[cfg(target_os = "linux")]
fn path_of(handle: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn path_of(handle: &File) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = rustix::fs::getpath(handle)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn it_is_what_was_opened_whatever_its_name_means_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(real.join("a")).unwrap();
        fs::create_dir(real.join("b")).unwrap();
        symlink("a", real.join("link")).unwrap();
        let through_link = HeldRoot::open(&real.join("link")).unwrap();
        let held = HeldRoot::open(&real.join("a")).unwrap();
        assert_eq!(held.path(), real.join("a"));
        assert!(held.is_dir() && !held.is_socket());
        assert_eq!(through_link, held);
        fs::rename(real.join("a"), real.join("c")).unwrap();
        fs::rename(real.join("b"), real.join("a")).unwrap();
        assert_ne!(HeldRoot::open(&real.join("a")).unwrap(), held);
        assert_eq!(FileId::from_metadata(&held.handle.metadata().unwrap()), held.id);
        assert!(HeldRoot::open(&real.join("gone")).is_err());
    }
}
