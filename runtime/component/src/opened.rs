//! Granted directories that are opened before the permission check. The check sees the paths of the
//! opened directories, and the run uses the same directories, even if their names have since been
//! changed to mean others.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};

use crate::{DirGrant, Grants, RunError};

/// The opened directories of some grants. They stay the same even if their names are replaced by other
/// directories or links.
pub struct OpenedDirs {
    pub(crate) read: Vec<Result<Opened, String>>,
    pub(crate) write: Vec<Result<Opened, String>>,
}

/// A directory and its path.
pub(crate) struct Opened {
    pub(crate) dir: Dir,
    id: DirId,
}

/// Identifies an opened directory for another process of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirId {
    /// Path at the time of opening, without links.
    pub path: PathBuf,
    device: u64,
    inode: u64,
}

impl Grants {
    /// Checks that no two directories have the same path in the program, which could reach only the last.
    /// The same directory may be granted to read and to write. A run does not check this itself: in
    /// a replay, the copies of one directory have several paths on the host.
    ///
    /// # Errors
    /// [`RunError::BadGrant`] for the second directory.
    pub fn check_guest_paths(&self) -> Result<(), RunError> {
        let read = self.read.iter().map(|dir| ("read", dir));
        let write = self.write.iter().map(|dir| ("write", dir));
        let mut known: HashMap<(bool, Vec<&str>), &DirGrant> = HashMap::new();
        for (kind, dir) in read.chain(write) {
            let first = *known.entry(dir.guest_names()).or_insert(dir);
            if first.host != dir.host {
                return Err(RunError::BadGrant {
                    grant: format!("{kind} {}", dir.host.display()),
                    message: format!(
                        "its path in the program, {}, is already the path of {}; give it another",
                        dir.guest,
                        first.host.display()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Opens the directories. A directory that cannot be opened ends its run.
    #[must_use]
    pub fn open_dirs(&self) -> OpenedDirs {
        let open = |grants: &[DirGrant]| -> Vec<_> {
            grants.iter().map(|grant| Opened::new(&grant.host).map_err(|error| error.to_string())).collect()
        };
        OpenedDirs { read: open(&self.read), write: open(&self.write) }
    }

    /// Opens the directories again after a permission check in another process; `None` is a directory
    /// that could not be opened then. A directory that is no longer the same ends its run.
    #[must_use]
    pub fn open_known(&self, read: &[Option<DirId>], write: &[Option<DirId>]) -> OpenedDirs {
        let open = |grants: &[DirGrant], known: &[Option<DirId>]| -> Vec<_> {
            let known = known.iter().map(Option::as_ref).chain(std::iter::repeat(None));
            grants.iter().zip(known).map(|(grant, known)| Opened::reopen_known(&grant.host, known)).collect()
        };
        OpenedDirs { read: open(&self.read, read), write: open(&self.write, write) }
    }
}

impl DirGrant {
    /// The names in the path in the program, and true if it is absolute: the same for all spellings.
    fn guest_names(&self) -> (bool, Vec<&str>) {
        let names = self.guest.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        (self.guest.starts_with('/'), names)
    }
}

impl Opened {
    fn new(path: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        let path = real_path(&dir)?;
        let (named, own) = (std::fs::metadata(&path)?, dir.dir_metadata()?);
        let (device, inode) = (cap_std::fs::MetadataExt::dev(&own), cap_std::fs::MetadataExt::ino(&own));
        if (named.dev(), named.ino()) != (device, inode) {
            return Err(io::Error::other("it was moved or removed while it was opened"));
        }
        Ok(Self { dir, id: DirId { path, device, inode } })
    }

    /// Opens the directory with this identity again.
    fn reopen_known(named: &Path, id: Option<&DirId>) -> Result<Self, String> {
        let Some(id) = id else {
            let why = Self::new(named).err().map(|error| error.to_string());
            return Err(why.unwrap_or_else(|| "it did not exist at the permission check".to_owned()));
        };
        match Self::new(&id.path) {
            Ok(opened) if opened.id == *id => Ok(opened),
            Ok(_) => Err(format!("{} is not the directory of the permission check", id.path.display())),
            Err(error) => Err(error.to_string()),
        }
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
    /// Paths of the directories to read; `None` for a directory that could not be opened.
    pub fn read_paths(&self) -> impl Iterator<Item = Option<&Path>> {
        self.read.iter().map(|opened| Some(opened.as_ref().ok()?.id.path.as_path()))
    }

    /// Paths of the directories to write; `None` for a directory that could not be opened.
    pub fn write_paths(&self) -> impl Iterator<Item = Option<&Path>> {
        self.write.iter().map(|opened| Some(opened.as_ref().ok()?.id.path.as_path()))
    }

    /// Identities of the directories to read; `None` for a directory that could not be opened.
    #[must_use]
    pub fn read_ids(&self) -> Vec<Option<DirId>> {
        self.read.iter().map(|opened| Some(opened.as_ref().ok()?.id.clone())).collect()
    }

    /// Identities of the directories to write; `None` for a directory that could not be opened.
    #[must_use]
    pub fn write_ids(&self) -> Vec<Option<DirId>> {
        self.write.iter().map(|opened| Some(opened.as_ref().ok()?.id.clone())).collect()
    }

    /// A path to the opened directory that was at `real`, valid for as long as this value exists.
    #[must_use]
    pub fn way_to(&self, real: &Path) -> Option<PathBuf> {
        let opened = self.read.iter().chain(&self.write).flatten().find(|opened| opened.id.path == real)?;
        if cfg!(target_os = "linux") {
            Some(PathBuf::from(format!("/proc/self/fd/{}/.", opened.dir.as_raw_fd())))
        } else {
            Some(opened.id.path.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_cannot_have_one_path_in_the_program() {
        let dir = |(host, guest): (&str, &str)| DirGrant { host: host.into(), guest: guest.to_owned() };
        let check = |read: &[(&str, &str)], write: &[(&str, &str)]| {
            let of = |dirs: &[(&str, &str)]| dirs.iter().copied().map(dir).collect();
            Grants { read: of(read), write: of(write), ..Grants::default() }.check_guest_paths()
        };
        for guest in ["/o", "/o/", "//o", "/./o/."] {
            let (first, second) = (("/a", "/o"), ("/b", guest));
            for refused in [check(&[first, second], &[]), check(&[first], &[second])] {
                let Err(RunError::BadGrant { grant, message }) = refused else {
                    panic!("{guest}: {refused:?}")
                };
                assert!(
                    grant.ends_with(" /b") && message.contains(guest) && message.contains("/a"),
                    "{message}"
                );
            }
        }
        // wasi-libc does not distinguish `o` from `/o`, but other programs may.
        for other in ["/o/p", "/p", "o", "/O"] {
            assert!(check(&[("/a", "/o"), ("/b", other)], &[]).is_ok(), "{other}");
        }
        assert!(check(&[("/a", "/o")], &[("/a/.", "/o")]).is_ok());
    }

    #[test]
    fn a_directory_is_opened_again_only_if_it_is_the_same() {
        let root = tempfile::tempdir().unwrap();
        let (dir, link) = (root.path().join("dir"), root.path().join("link"));
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        let grant = |host: &Path| DirGrant { host: host.to_owned(), guest: "/in".to_owned() };
        let missing = root.path().join("missing");
        let grants = Grants { read: vec![grant(&link), grant(&missing)], ..Grants::default() };
        let ids = grants.open_dirs().read_ids();
        assert_eq!((ids[0].as_ref().map(|id| id.path.as_path()), &ids[1]), (Some(&*dir), &None));
        let again = || grants.open_known(&ids, &[]);
        assert!(again().read[0].is_ok() && again().read[1].is_err());
        // Another name now leads to the same directory; a directory that did not exist is not opened
        // later.
        std::fs::remove_file(&link).unwrap();
        std::fs::create_dir(&link).unwrap();
        std::fs::create_dir(&missing).unwrap();
        assert_eq!(again().read_ids(), ids);
        std::fs::rename(&dir, root.path().join("old")).unwrap();
        std::fs::create_dir(&dir).unwrap();
        let refused = again().read.remove(0).err().unwrap();
        assert!(refused.contains("not the directory of the permission check"), "{refused}");
    }
}
