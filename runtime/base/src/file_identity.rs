//! Checks that a path still leads to an open file, by device and inode number.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// True if a path leads to this open file.
#[must_use]
pub fn leads_to(path: &Path, file: &File) -> bool {
    file.metadata().is_ok_and(|own| leads_to_file_of(path, &own))
}

/// True if a path leads to the file with the metadata `own`.
#[must_use]
pub fn leads_to_file_of(path: &Path, own: &Metadata) -> bool {
    fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
}
