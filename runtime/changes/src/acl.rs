//! POSIX access control lists. With a list, the group bits of a file's mode are the list's mask. Without the
//! list, these bits would give the group permissions that only the entries of the list have.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, lgetxattr};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::set::ByteText;

/// Permissions besides the permission bits, in the kernel's format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acl {
    /// List of the file or directory itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access: Option<ByteText>,
    /// List for files that are made in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<ByteText>,
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The kernel's limit for an attribute; a list has only a few entries of 8 bytes.
const LONGEST: usize = 64 << 10;

/// Length of a list's version in the kernel's format. Entries follow, each a tag, permissions and an id,
/// little-endian.
const HEAD: usize = 4;
const ENTRY: usize = 8;

const USER_OBJ: u8 = 1;
const GROUP_OBJ: u8 = 4;
const MASK: u8 = 16;
const OTHER: u8 = 32;

impl Acl {
    /// The lists of the file or directory at a path.
    pub(crate) fn of_path(path: &Path) -> io::Result<Option<Box<Self>>> {
        Self::read_with(|name, value| lgetxattr(path, name, value))
    }

    /// The lists of an open file or directory.
    pub(crate) fn of_file(file: &File) -> io::Result<Option<Box<Self>>> {
        Self::read_with(|name, value| fgetxattr(file, name, value))
    }

    fn read_with(get: impl Fn(&str, &mut [u8]) -> Result<usize, Errno>) -> io::Result<Option<Box<Self>>> {
        let list = |name| -> io::Result<Option<ByteText>> {
            let mut some = [0; 256];
            match get(name, &mut some) {
                Ok(length) => Ok(Some(some[..length].to_vec().into())),
                Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
                Err(Errno::RANGE) => {
                    let mut all = vec![0; LONGEST];
                    let length = get(name, &mut all)?;
                    all.truncate(length);
                    Ok(Some(all.into()))
                }
                Err(error) => Err(error.into()),
            }
        };
        let found = Self { access: list(ACCESS)?, default: list(DEFAULT)? };
        Ok((found != Self::default()).then(|| Box::new(found)))
    }

    /// Sets the lists of a new file or directory. Its mode must be set afterwards.
    pub(crate) fn give_to(&self, file: &File) -> io::Result<()> {
        for (name, list) in [(ACCESS, &self.access), (DEFAULT, &self.default)] {
            if let Some(list) = list {
                fsetxattr(file, OsStr::new(name), list.as_bytes(), XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Removes the lists that a new file or directory has inherited from its directory.
    pub(crate) fn remove_from(file: &File) -> io::Result<()> {
        for name in [ACCESS, DEFAULT] {
            match rustix::fs::fremovexattr(file, name) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// True if both grant the same permissions to the same users and groups, apart from the mode.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (named_entries(&self.access), named_entries(&self.default))
            == (named_entries(&other.access), named_entries(&other.default))
    }

    /// True if the kernel gives these lists to a new file or directory whose parent has the lists of `above`.
    pub(crate) fn is_inherited(&self, above: &Self) -> bool {
        named_entries(&self.access) == named_entries(&above.default)
            && (self.default.is_none() || named_entries(&self.default) == named_entries(&above.default))
    }

    /// The mode without the list: the group's permissions come from its entry, not from the mask.
    pub(crate) fn mode_without(&self, mode: u32) -> u32 {
        let Some(list) = &self.access else { return mode };
        let group = acl_entries(list.as_bytes()).find(|entry| entry[0] == GROUP_OBJ);
        let may = group.map_or(0, |entry| u32::from(entry[2] & 7) << 3);
        (mode & !0o070) | (mode & may)
    }
}

fn acl_entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.get(HEAD..).unwrap_or_default().chunks_exact(ENTRY)
}

/// The entries of a list, without the permissions that the mode expresses.
fn named_entries(list: &Option<ByteText>) -> Option<Vec<[u8; ENTRY]>> {
    let list = list.as_ref()?.as_bytes();
    let has_mask = acl_entries(list).any(|entry| entry[0] == MASK);
    let of_mode = |tag: u8| matches!(tag, USER_OBJ | MASK | OTHER) || (tag == GROUP_OBJ && !has_mask);
    let mut named: Vec<[u8; ENTRY]> = acl_entries(list).filter_map(|entry| entry.try_into().ok()).collect();
    for entry in named.iter_mut().filter(|entry| of_mode(entry[0])) {
        entry[2] = 0;
    }
    Some(named)
}
