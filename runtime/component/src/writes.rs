//! What a run wrote, private until it is committed (invariant C5).

use std::fs::FileTimes;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use cap_std::fs::{Dir, OpenOptions, Permissions, PermissionsExt};

use crate::Digest;
use crate::host::filesystem::Mount;
use crate::host::overlay::{Change, Stage, Staged};

/// The changes a run made to its granted directories. Dropping them discards
/// them; [`StagedWrites::commit`] makes them visible.
pub struct StagedWrites {
    mounts: Vec<Mount>,
    list: Vec<Written>,
}

/// One changed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where the program saw it.
    pub guest: String,
    /// Where it is in the host once committed.
    pub host: PathBuf,
    pub what: WrittenKind,
}

/// What became of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenKind {
    File { digest: Digest, size: u64 },
    Directory,
    Link { target: String },
    Removed,
}

/// Why the writes of a run could not be made visible. Those before the failing
/// one, in the order of [`StagedWrites::list`], are.
#[derive(Debug, thiserror::Error)]
#[error("cannot commit {path}: {source}", path = path.display())]
pub struct CommitError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl std::fmt::Debug for StagedWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl StagedWrites {
    pub(crate) fn collect(mut mounts: Vec<Mount>) -> io::Result<Self> {
        let mut list = Vec::new();
        for mount in &mut mounts {
            mount.tree.changes.retain(|_, change| match change {
                Change::File(staged) => staged.changed.load(Ordering::Relaxed),
                Change::Gone | Change::Directory | Change::Link(_) => true,
            });
            for (path, change) in &mount.tree.changes {
                let what = match change {
                    Change::Gone => WrittenKind::Removed,
                    Change::Directory => WrittenKind::Directory,
                    Change::Link(target) => WrittenKind::Link { target: target.clone() },
                    Change::File(staged) => {
                        let mut hasher = blake3::Hasher::new();
                        hasher.update_reader(mount.tree.stage().open(&staged.name)?)?;
                        WrittenKind::File { digest: hasher.finalize(), size: hasher.count() }
                    }
                };
                let guest = format!("{}/{path}", mount.guest.trim_end_matches('/'));
                list.push(Written { guest, host: mount.tree.host.join(path), what });
            }
        }
        Ok(Self { mounts, list })
    }

    /// What changes, by directory and path: a directory before what is in it.
    #[must_use]
    pub fn list(&self) -> &[Written] {
        &self.list
    }

    /// The content of a written file, before it is committed.
    ///
    /// # Errors
    /// When there is no such written file, or it cannot be read.
    pub fn open(&self, written: &Written) -> io::Result<impl Read + use<>> {
        for mount in &self.mounts {
            let Ok(path) = written.host.strip_prefix(&mount.tree.host) else { continue };
            if let Some(Change::File(staged)) = path.to_str().and_then(|path| mount.tree.changes.get(path)) {
                return mount.tree.stage().open(&staged.name);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Makes the changes visible: removals first, then everything else, each
    /// file by one rename, so that a reader sees the old or the new content and
    /// never a part. The whole is not one transaction: a crash between two
    /// names leaves some of them old. What others changed meanwhile under the
    /// same name is replaced.
    ///
    /// # Errors
    /// At the first name that cannot be written.
    pub fn commit(self) -> Result<Vec<Written>, CommitError> {
        for mount in &self.mounts {
            let failed = |path: &str| {
                let path = mount.tree.host.join(path);
                move |source| CommitError { path, source }
            };
            let root = mount.tree.lower();
            // The last in order are the deepest.
            for (path, change) in mount.tree.changes.iter().rev() {
                match change {
                    Change::Gone => remove(root, path),
                    // By now nothing is left in it.
                    Change::File(_) | Change::Link(_) if is_dir(root, path) => root.remove_dir(path),
                    Change::File(_) | Change::Link(_) | Change::Directory => Ok(()),
                }
                .map_err(failed(path))?;
            }
            for (path, change) in &mount.tree.changes {
                match change {
                    Change::Gone => Ok(()),
                    Change::Directory => make_dir(root, path),
                    Change::Link(target) => make_link(root, path, target),
                    Change::File(staged) => put_file(root, path, staged, mount.tree.stage()),
                }
                .map_err(failed(path))?;
            }
        }
        Ok(self.list)
    }
}

/// Whether there is a directory at `path` itself, not behind a link.
fn is_dir(root: &Dir, path: &str) -> bool {
    let real = |path: &str| root.symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    path.match_indices('/').all(|(at, _)| real(&path[..at])) && real(path)
}

fn remove(root: &Dir, path: &str) -> io::Result<()> {
    let removed = match root.symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => root.remove_dir(path),
        Ok(_) => root.remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn make_dir(root: &Dir, path: &str) -> io::Result<()> {
    match root.symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => {
            root.remove_file(path)?;
            root.create_dir(path)
        }
        Err(_) => root.create_dir(path),
    }
}

fn make_link(root: &Dir, path: &str, target: &str) -> io::Result<()> {
    let temporary = temporary_name(path);
    root.symlink(target, &temporary)?;
    root.rename(&temporary, root, path).inspect_err(|_| {
        let _ = root.remove_file(&temporary);
    })
}

/// Copies into the directory of the target, then renames over it: the stage
/// may be on another file system.
fn put_file(root: &Dir, path: &str, staged: &Staged, stage: &Stage) -> io::Result<()> {
    let temporary = temporary_name(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = root.open_with(&temporary, &options)?;
    let put = || -> io::Result<()> {
        io::copy(&mut stage.open(&staged.name)?, &mut file)?;
        file.flush()?;
        file.set_permissions(Permissions::from_mode(staged.mode))?;
        let file = file.into_std();
        if let Some(modified) = staged.modified.filter(|_| staged.times_set) {
            file.set_times(FileTimes::new().set_modified(modified))?;
        }
        // A rename that survives a crash must not find the content missing.
        file.sync_data()?;
        root.rename(&temporary, root, path)
    };
    put().inspect_err(|_| {
        let _ = root.remove_file(&temporary);
    })
}

fn temporary_name(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').map_or(("", path), |(dir, name)| (dir, name));
    let slash = if dir.is_empty() { "" } else { "/" };
    let tag = blake3::hash(format!("{name}{}", std::process::id()).as_bytes()).to_hex();
    format!("{dir}{slash}.lobster-{}", &tag[..16])
}
