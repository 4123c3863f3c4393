//! What a run wrote, private until it is committed (invariant C5).

use std::fs::{File, FileTimes};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use cap_std::fs::{Dir, OpenOptions};
use rustix::fs::{AtFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::host::filesystem::{FsError, Mount};
use crate::host::overlay::{Change, Stage, Staged, Tree};
use crate::host::stage;
use crate::{Digest, RunError};

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

impl CommitError {
    /// Why the run was ended, if it was its time or a cancellation that ended the
    /// commit; nothing is visible then.
    #[must_use]
    pub fn run_error(&self) -> Option<&RunError> {
        self.source.get_ref()?.downcast_ref()
    }
}

impl std::fmt::Debug for StagedWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl StagedWrites {
    pub(crate) fn collect(mut mounts: Vec<Mount>) -> Result<Self, RunError> {
        let failed = |error: io::Error| match error.downcast() {
            Ok(stopped) => stopped,
            Err(error) => RunError::StageFailed { message: error.to_string() },
        };
        let mut list = Vec::new();
        for mount in &mut mounts {
            mount.tree.changes.retain(|_, change| match change {
                Change::File(staged) => staged.marks.changed.load(Ordering::Relaxed),
                Change::Gone | Change::Directory { .. } | Change::Link { .. } => true,
            });
            for (path, change) in &mount.tree.changes {
                let what = match change {
                    Change::Gone => WrittenKind::Removed,
                    Change::Directory { .. } => WrittenKind::Directory,
                    Change::Link { target, .. } => WrittenKind::Link { target: target.clone() },
                    Change::File(staged) => {
                        let stage = mount.tree.stage();
                        let file = stage.open(&staged.name).map_err(failed)?;
                        let (digest, size) = stage::digest(&file, || look(stage)).map_err(failed)?;
                        WrittenKind::File { digest, size }
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

    /// Makes the changes visible. First all contents are copied to where they go,
    /// under names that nobody looks for; the run's time and cancellation still end
    /// that, and nothing has happened then. After it come removals and everything
    /// else, each file by one rename, so that a reader sees the old or the new
    /// content and never a part. The whole is not one transaction: a crash between
    /// two names leaves some of them old. What others changed meanwhile under the
    /// same name is replaced.
    ///
    /// # Errors
    /// At the first name that cannot be written.
    pub fn commit(self) -> Result<Vec<Written>, CommitError> {
        let mut prepared = Vec::new();
        for mount in &self.mounts {
            prepared.push(Prepared::new(&mount.tree)?);
        }
        for (mount, prepared) in self.mounts.iter().zip(&prepared) {
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
                    Change::File(_) | Change::Link { .. } if is_dir(root, path) => root.remove_dir(path),
                    Change::File(_) | Change::Link { .. } | Change::Directory { .. } => Ok(()),
                }
                .map_err(failed(path))?;
            }
            for (index, (path, change)) in mount.tree.changes.iter().enumerate() {
                match change {
                    Change::Gone => Ok(()),
                    Change::Directory { .. } => make_dir(root, path),
                    Change::Link { .. } | Change::File(_) => prepared.put(&mount.tree, index, path, change),
                }
                .map_err(failed(path))?;
            }
        }
        Ok(self.list)
    }
}

/// The reason to end as an error that can be told from others.
fn look(stage: &Stage) -> io::Result<()> {
    match stage.look() {
        Ok(()) => Ok(()),
        Err(FsError::Trap(error)) => Err(match error.downcast::<RunError>() {
            Ok(reason) => io::Error::other(reason),
            Err(error) => io::Error::other(error.to_string()),
        }),
        Err(FsError::Code(code)) => Err(io::Error::other(code)),
    }
}

/// The new contents of one granted directory, complete and not yet visible: in a
/// directory of their own, from which they are renamed.
struct Prepared<'a> {
    root: &'a Dir,
    /// None if there can be none: then each content is copied to where it goes.
    dir: Option<(Dir, String)>,
}

impl<'a> Prepared<'a> {
    fn new(tree: &'a Tree) -> Result<Self, CommitError> {
        let root = tree.lower();
        let mut prepared = Self { root, dir: None };
        let is_content = |change: &Change| matches!(change, Change::File(_) | Change::Link { .. });
        if !tree.changes.values().any(is_content) {
            return Ok(prepared);
        }
        let name = temporary_name();
        let mut builder = cap_std::fs::DirBuilder::new();
        cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let made = root.create_dir_with(&name, &builder).and_then(|()| root.open_dir(&name));
        // Who may not write to the directory itself may be allowed to below it.
        let Ok(dir) = made else { return Ok(prepared) };
        prepared.dir = Some((dir, name));
        let Some((dir, _)) = &prepared.dir else { return Ok(prepared) };
        for (index, (path, change)) in tree.changes.iter().enumerate() {
            let failed = |source| CommitError { path: tree.host.join(path), source };
            let made = look(tree.stage()).and_then(|()| match change {
                Change::File(staged) => {
                    make_file(dir, &index.to_string(), staged, tree.stage(), || look(tree.stage()))
                }
                Change::Link { .. } => make_link(dir, &index.to_string(), change),
                Change::Gone | Change::Directory { .. } => Ok(()),
            });
            made.map_err(failed)?;
        }
        look(tree.stage()).map_err(|source| CommitError { path: tree.host.clone(), source })?;
        Ok(prepared)
    }

    /// Gives a content its name.
    fn put(&self, tree: &Tree, index: usize, path: &str, change: &Change) -> io::Result<()> {
        if let Some((dir, _)) = &self.dir {
            match dir.rename(index.to_string(), self.root, path) {
                // Something else is mounted there.
                Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => {}
                other => return other,
            }
        }
        let (above, name) = path.rsplit_once('/').map_or((".", path), |(above, name)| (above, name));
        let dir = self.root.open_dir(above)?;
        let temporary = temporary_name();
        let put = match change {
            // What is half done is finished: nobody looks at the time any more.
            Change::File(staged) => make_file(&dir, &temporary, staged, tree.stage(), || Ok(())),
            _ => make_link(&dir, &temporary, change),
        };
        put.and_then(|()| dir.rename(&temporary, &dir, name)).inspect_err(|_| {
            let _ = dir.remove_file(&temporary);
        })
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        let Some((dir, name)) = self.dir.take() else { return };
        if self.root.remove_dir(&name).is_err() {
            for left in dir.entries().into_iter().flatten().flatten() {
                let _ = dir.remove_file(left.file_name());
            }
            if let Err(error) = dir.remove_open_dir() {
                tracing::warn!(name, %error, "a temporary directory is left behind");
            }
        }
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

fn make_link(dir: &Dir, name: &str, change: &Change) -> io::Result<()> {
    let Change::Link { target, modified, times_set } = change else { return Ok(()) };
    dir.symlink(target, name)?;
    if *times_set {
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = Timespec {
            tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: since.subsec_nanos().into(),
        };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// The content of a private file as a file of `dir`: the stage may be on another file system.
fn make_file(
    dir: &Dir,
    name: &str,
    staged: &Staged,
    stage: &Stage,
    look: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file: File = dir.open_with(name, &options)?.into_std();
    stage::copy(&stage.open(&staged.name)?, &mut file, look)?;
    file.set_permissions(std::fs::Permissions::from_mode(staged.mode))?;
    if let Some(modified) = staged.own_time() {
        file.set_times(FileTimes::new().set_modified(modified))?;
    }
    // A rename that survives a crash must not find the content missing.
    file.sync_data()
}

/// A name that nobody else takes.
fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let tag = format!("{now}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!(".lobster-{}", &blake3::hash(tag.as_bytes()).to_hex()[..16])
}
