//! Granted directories as they were opened: whoever decides about them is told where
//! the opened ones are, and the run uses those, whatever their names mean by then.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::{DirGrant, Grants};

/// The directories of some grants, opened. They stay what they are when somebody
/// puts another directory, or a link, under the name.
pub struct OpenedDirs {
    pub(crate) read: Vec<Result<Opened, String>>,
    pub(crate) write: Vec<Result<Opened, String>>,
}

/// A directory and where it is.
pub(crate) struct Opened {
    pub(crate) dir: Dir,
    real: PathBuf,
}

impl Grants {
    /// Opens the directories. One that cannot be opened ends the run that it is for.
    #[must_use]
    pub fn open(&self) -> OpenedDirs {
        let open = |grants: &[DirGrant]| -> Vec<_> {
            grants.iter().map(|grant| Opened::new(&grant.host).map_err(|error| error.to_string())).collect()
        };
        OpenedDirs { read: open(&self.read), write: open(&self.write) }
    }
}

impl Opened {
    fn new(path: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        let real = real_path(&dir)?;
        let (named, own) = (std::fs::metadata(&real)?, dir.dir_metadata()?.into_std_ids());
        if (named.dev(), named.ino()) != own {
            return Err(io::Error::other("it was moved or removed while it was opened"));
        }
        Ok(Self { dir, real })
    }
}

/// What tells a file from all others.
trait Ids {
    fn into_std_ids(self) -> (u64, u64);
}

impl Ids for cap_std::fs::Metadata {
    fn into_std_ids(self) -> (u64, u64) {
        use cap_std::fs::MetadataExt as _;
        (self.dev(), self.ino())
    }
}

#[cfg(target_os = "linux")]
fn real_path(dir: &Dir) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn real_path(dir: &Dir) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = rustix::fs::getpath(dir)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())))
}

impl OpenedDirs {
    /// Where the directories to read are; none for one that could not be opened.
    pub fn read(&self) -> impl Iterator<Item = Option<&Path>> {
        self.read.iter().map(|opened| Some(opened.as_ref().ok()?.real.as_path()))
    }

    /// Where the directories to write are; none for one that could not be opened.
    pub fn write(&self) -> impl Iterator<Item = Option<&Path>> {
        self.write.iter().map(|opened| Some(opened.as_ref().ok()?.real.as_path()))
    }

    /// A path that leads to the opened directory that is at `real`, for as long as
    /// this value lives.
    #[must_use]
    pub fn way_to(&self, real: &Path) -> Option<PathBuf> {
        let opened = self.read.iter().chain(&self.write).flatten().find(|opened| opened.real == real)?;
        if cfg!(target_os = "linux") {
            Some(PathBuf::from(format!("/proc/self/fd/{}/.", opened.dir.as_raw_fd())))
        } else {
            Some(opened.real.clone())
        }
    }
}
