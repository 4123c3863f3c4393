//! Changes of a writer that stores them separately by itself, like the host of a component.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lobster_base::digest::Digest;

use crate::beginning::Beginning;
use crate::files::{RootedPath, What};
use crate::layer::{Keep, LayerError, open_root};
use crate::pile::Below;
use crate::reader::{Reader, shared_inode};
use crate::set::{ByteText, Change, Entry, RelPath, RootChanges, Time};

/// The mode of a new directory.
const DIRECTORY: u32 = 0o755;

/// Change of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Removed.
    Gone,
    /// A new directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Its target.
        target: ByteText,
        /// Its time, if one was set.
        modified: Option<Time>,
    },
    /// A file, whose content is stored already.
    File {
        /// Digest of its content.
        digest: Digest,
        /// Size of its content in bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// Time of the last change of its content, if one was set.
        modified: Option<Time>,
    },
}

/// The changes of a directory by a writer that has seen it since `began`. Former contents are stored in
/// `keep`.
///
/// # Errors
/// If another program has changed one of these files since, or if a former content cannot be stored.
pub fn changes_of(
    root: &Path,
    began: &Beginning,
    written: &BTreeMap<RelPath, Written>,
    keep: &mut dyn Keep,
) -> Result<RootChanges, LayerError> {
    let name = {
        use std::os::unix::ffi::OsStrExt;
        ByteText::from(root.as_os_str().as_bytes().to_vec())
    };
    let made = began.time_bound().map_err(|source| LayerError::Root { root: root.to_owned(), source })?;
    let below = Below::new(open_root(root)?, None);
    let mut reader = Reader::new(below, PathBuf::new(), name.clone(), made, keep);
    for (path, what) in written {
        let place = RootedPath { root: 0, path: path.clone() };
        let lower = reader.read_status(&place)?;
        // A removed or replaced directory already accounts for its entries.
        let is_told =
            |above: RelPath| written.get(&above).is_some_and(|above| !matches!(above, Written::Directory));
        let lower = lower.filter(|_| !path.ancestors().any(is_told));
        let after = match what {
            Written::Gone => None,
            Written::Directory => match lower {
                Some(lower) if lower.what == What::Directory => continue,
                _ => Some(Entry::Directory { mode: DIRECTORY, acl: None }),
            },
            Written::Link { target, modified } => {
                Some(Entry::Link { target: target.clone(), modified: *modified })
            }
            Written::File { digest, size, mode, modified } => Some(Entry::File {
                digest: *digest,
                size: *size,
                mode: *mode,
                modified: *modified,
                same_as: None,
                acl: None,
            }),
        };
        let before = reader.former_entry(path, lower)?;
        let change = Change { path: path.clone(), before, after, shared: shared_inode(lower) };
        if change.is_effective() {
            reader.push(change);
        }
    }
    Ok(RootChanges { root: name, changes: reader.into_changes() })
}
