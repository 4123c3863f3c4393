//! Extended attributes of files and directories, among them access control lists.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{fgetxattr, fgetxattr_query, flistxattr, flistxattr_query};
use rustix::io::Errno;

use crate::digest::Digest;

/// The digest of the names and values of all attributes; `None` if there are none.
///
/// # Errors
/// If they cannot be read.
pub(super) fn digest_attributes(file: impl AsFd) -> io::Result<Option<Digest>> {
    let length = match flistxattr_query(&file) {
        Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
        Ok(length) => length,
        Err(error) => return Err(error.into()),
    };
    let mut list = vec![0; length];
    let length = flistxattr(&file, list.as_mut_slice())?;
    let mut names: Vec<&[u8]> =
        list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        let mut value = vec![0; fgetxattr_query(&file, name)?];
        if !value.is_empty() {
            let length = fgetxattr(&file, name, value.as_mut_slice())?;
            value.truncate(length);
        }
        for part in [name, value.as_slice()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(Some(Digest::from(hasher.finalize())))
}
