//! Writes of a run, private until they are committed (invariant C5).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use lobster_base::cancel::CancelToken;
use lobster_changes::{ChangeSet, Keep, LayerError, LinkRule, RelPath, Tell, Terms, Time, changes_of};

use crate::host::filesystem::{FsError, Mount};
use crate::host::overlay::{Change, StageHost, Tree};
use crate::host::stage;
use crate::{Digest, RunError};

/// Changes of a run to its granted directories. Dropping them discards them; only the commit of
/// [`StagedWrites::change_set`] makes them visible.
pub struct StagedWrites {
    mounts: Vec<Mount>,
    list: Vec<Written>,
}

/// One changed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Path in the program.
    pub guest: String,
    /// Path in the host once committed.
    pub host: PathBuf,
    pub what: WrittenKind,
}

/// Kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenKind {
    File { digest: Digest, size: u64 },
    Directory,
    Link { target: String },
    Removed,
}

/// Reason why the writes of a run make no change set; none of them is visible.
#[derive(Debug, thiserror::Error)]
pub enum WritesError {
    /// The run's time is over, or it was cancelled.
    #[error(transparent)]
    Stopped(RunError),
    /// Another process changed one of the files, or they cannot be read.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A granted directory has been replaced.
    #[error("{path}, which the step was granted, is another directory now", path = .path.display())]
    Replaced {
        /// The directory.
        path: PathBuf,
    },
    /// There is no room for the contents.
    #[error("cannot keep what the step wrote: {0}")]
    Aside(io::Error),
    /// The files cannot be committed.
    #[error(transparent)]
    Commit(#[from] lobster_changes::CommitError),
    /// A content cannot be stored.
    #[error("cannot keep what the step wrote to {path}: {source}", path = .path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl std::fmt::Debug for StagedWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl StagedWrites {
    pub(crate) fn from_mounts(mut mounts: Vec<Mount>) -> Result<Self, RunError> {
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
                        let file = stage.open_private_file(&staged.name).map_err(failed)?;
                        let (digest, size) =
                            stage::digest_file(&file, || check_stop(stage)).map_err(failed)?;
                        WrittenKind::File { digest, size }
                    }
                };
                let guest = format!("{}/{path}", mount.guest.trim_end_matches('/'));
                list.push(Written { guest, host: mount.tree.host.join(path), what });
            }
        }
        Ok(Self { mounts, list })
    }

    /// Changes by directory and path: a directory before its contents.
    #[must_use]
    pub fn written_entries(&self) -> &[Written] {
        &self.list
    }

    /// The writes as a change set, which is committed as a whole or not at all. Contents go to `keep`,
    /// including earlier contents. The run's time limit and cancellation still apply.
    ///
    /// # Errors
    /// Another process changed one of these files while the program ran, or a content cannot be stored.
    pub fn change_set(&self, keep: &mut dyn Keep) -> Result<ChangeSet, WritesError> {
        let mut sets = Vec::new();
        for Mount { tree, .. } in self.mounts.iter().filter(|mount| !mount.tree.changes.is_empty()) {
            let root = self.real_root(tree)?;
            let mut written = BTreeMap::new();
            for (path, change) in &tree.changes {
                let kept = |source: io::Error| match source.downcast() {
                    Ok(reason) => WritesError::Stopped(reason),
                    Err(source) => WritesError::Keep { path: tree.host.join(path), source },
                };
                let name = RelPath::new(path.as_bytes()).map_err(|error| kept(io::Error::other(error)))?;
                written.insert(name, written_as(change, tree.stage(), keep).map_err(kept)?);
            }
            let began = tree.stage().dir_beginning(&tree.host);
            let began =
                began.ok_or_else(|| WritesError::Aside(io::Error::other("its start time is missing")))?;
            sets.push(ChangeSet::new(vec![changes_of(&root, began, &written, keep)?]));
        }
        Ok(ChangeSet::compose(&sets.iter().collect::<Vec<_>>()))
    }

    /// Commits the writes without a record, by the same rules. `journals` is the directory in which
    /// commits of this user keep their journals: the next command that uses it finishes or rolls back
    /// an interrupted commit. `tell` receives the commits that were finished on the way.
    /// `links` is the rule for links.
    ///
    /// # Errors
    /// Nothing was committed.
    pub fn commit_unrecorded(
        &self,
        journals: &Path,
        links: &LinkRule,
        tell: Tell<'_>,
    ) -> Result<(), WritesError> {
        let mut contents = Aside(tempfile::tempdir_in(self.staging_dir()).map_err(WritesError::Aside)?);
        let set = self.change_set(&mut contents)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let id = format!("alone-{}-{}", std::process::id(), now.as_nanos());
        let cancel = &CancelToken::new();
        let terms = Terms { journals, id: &id, links: Some(links), cancel, tell };
        Ok(lobster_changes::commit_changes(&set, &contents, &terms)?)
    }

    fn staging_dir(&self) -> PathBuf {
        let staging = self.mounts.first().map(|mount| mount.tree.stage().parent_dir().to_owned());
        staging.unwrap_or_else(std::env::temp_dir)
    }

    /// Real path of a granted directory, after a check that it is still the granted one.
    fn real_root(&self, tree: &Tree) -> Result<PathBuf, WritesError> {
        use std::os::unix::fs::MetadataExt;
        let replaced = |_| WritesError::Replaced { path: tree.host.clone() };
        let real = std::fs::canonicalize(&tree.host).map_err(replaced)?;
        let found = std::fs::symlink_metadata(&real).map_err(replaced)?;
        let held = tree.lower_dir().dir_metadata().map_err(replaced)?;
        let held = (cap_std::fs::MetadataExt::dev(&held), cap_std::fs::MetadataExt::ino(&held));
        if held == (found.dev(), found.ino()) {
            Ok(real)
        } else {
            Err(WritesError::Replaced { path: tree.host.clone() })
        }
    }
}

/// Converts one change and stores its content.
fn written_as(
    change: &Change,
    stage: &StageHost,
    keep: &mut dyn Keep,
) -> io::Result<lobster_changes::Written> {
    use lobster_changes::Written;
    Ok(match change {
        Change::Gone => Written::Gone,
        Change::Directory { .. } => Written::Directory,
        Change::Link { target, modified, times_set } => Written::Link {
            target: target.clone().into_bytes().into(),
            modified: times_set.then(|| as_time(*modified)),
        },
        Change::File(staged) => {
            let (digest, size) =
                keep.keep_content(&mut Watched { file: stage.open_private_file(&staged.name)?, stage })?;
            Written::File { digest, size, mode: staged.mode, modified: staged.own_time().map(as_time) }
        }
    })
}

/// A program cannot set a time before 1970.
fn as_time(time: SystemTime) -> Time {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Contents in a separate directory, by their digests.
struct Aside(tempfile::TempDir);

impl Keep for Aside {
    fn keep_content(&mut self, content: &mut dyn Read) -> io::Result<(lobster_base::digest::Digest, u64)> {
        let mut file = tempfile::NamedTempFile::new_in(self.0.path())?;
        let size = io::copy(content, &mut file)?;
        let digest = lobster_base::digest::Digest::of_reader(File::open(file.path())?)?;
        file.persist(self.0.path().join(digest.to_string())).map_err(|error| error.error)?;
        Ok((digest, size))
    }
}

impl lobster_changes::Contents for Aside {
    fn open_content(
        &self,
        digest: &lobster_base::digest::Digest,
    ) -> io::Result<lobster_changes::Content<'_>> {
        Ok(lobster_changes::Content::File(File::open(self.0.path().join(digest.to_string()))?))
    }
}

/// A private file that can be read until the run has to end.
struct Watched<'s> {
    file: File,
    stage: &'s StageHost,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        check_stop(self.stage)?;
        self.file.read(buffer)
    }
}

/// Returns the reason to end as a distinct error.
fn check_stop(stage: &StageHost) -> io::Result<()> {
    match stage.check_stop() {
        Ok(()) => Ok(()),
        Err(FsError::Trap(error)) => Err(match error.downcast::<RunError>() {
            Ok(reason) => io::Error::other(reason),
            Err(error) => io::Error::other(error.to_string()),
        }),
        Err(FsError::Code(code)) => Err(io::Error::other(code)),
    }
}
