//! Names and limits of the stored listings.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::digest::Digest;

/// Total bytes of stored listings.
const MAX_KEPT: u64 = 256 << 20;

/// Form of a listing's lines; a listing in another form is not read.
const FORM: &[u8] = b"2 ";

pub(super) fn latest_name(root: &Path) -> String {
    Digest::of_bytes(&[FORM, root.as_os_str().as_bytes()].concat()).short()
}

pub(super) fn kept_name(root: &Path, digest: &Digest) -> String {
    format!("{}-{digest}", latest_name(root))
}

/// Removes the oldest listings that exceed the limit.
pub(super) fn remove_oldest(dir: &Path) -> io::Result<()> {
    let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Ok(meta) = entry.metadata() {
            all.push((meta.modified()?, meta.len(), entry.path()));
        }
    }
    all.sort();
    let mut kept = 0_u64;
    for (_, bytes, path) in all.iter().rev() {
        kept = kept.saturating_add(*bytes);
        if kept > MAX_KEPT {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}
