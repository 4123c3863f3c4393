//! Private files of one run and an account of their use: growth of files, number of names and lengths
//! of names. Functions that process much of it check regularly if the run has to end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use lobster_changes::Beginning;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::filesystem::{ErrorCode, FsError};
use crate::state::Stop;

/// Most changed names in one run, over all directories.
const MAX_CHANGES: u64 = 100_000;

/// Most bytes of changed names (whole paths) and of link targets, over all directories.
pub(crate) const MAX_NAMES: u64 = 64 << 20;

/// Size of an entry besides its name.
const ENTRY: u64 = 96;

/// Bytes that are copied or read between two checks of the time.
const PORTION: u64 = 4 << 20;

/// Private files of one run, in a directory that is deleted with it.
pub(crate) struct StageHost {
    parent: PathBuf,
    dir: std::sync::OnceLock<tempfile::TempDir>,
    next: AtomicU64,
    /// Times at which the run began to see the directories that it may write to.
    began: std::sync::OnceLock<BTreeMap<PathBuf, Beginning>>,
    /// Bytes by which files may still grow.
    budget: AtomicU64,
    pub(crate) exceeded: AtomicBool,
    entries: AtomicU64,
    /// Bytes of names in use.
    names: AtomicU64,
    stop: Arc<Stop>,
}

impl StageHost {
    pub(crate) fn new(parent: PathBuf, budget: u64, stop: Arc<Stop>) -> Arc<Self> {
        Arc::new(Self {
            parent,
            dir: std::sync::OnceLock::new(),
            next: AtomicU64::new(0),
            began: std::sync::OnceLock::new(),
            budget: AtomicU64::new(budget),
            exceeded: AtomicBool::new(false),
            entries: AtomicU64::new(0),
            names: AtomicU64::new(0),
            stop,
        })
    }

    /// Records the time from which the run sees these directories: later changes by others are
    /// conflicts.
    pub(crate) fn record_beginning<'d>(&self, dirs: impl Iterator<Item = &'d Path>) -> io::Result<()> {
        let began: io::Result<_> =
            dirs.map(|dir| Ok((dir.to_owned(), Beginning::now(dir, &self.parent)?))).collect();
        let began = began?;
        self.began.get_or_init(|| began);
        Ok(())
    }

    /// Parent of its directory.
    pub(crate) fn parent_dir(&self) -> &Path {
        &self.parent
    }

    /// Time recorded for a directory.
    pub(crate) fn dir_beginning(&self, dir: &Path) -> Option<&Beginning> {
        self.began.get()?.get(dir)
    }

    /// Returns an error if the run has to end.
    pub(crate) fn check_stop(&self) -> Result<(), FsError> {
        match self.stop.reason() {
            Some(reason) => Err(FsError::Trap(wasmtime::Error::new(reason))),
            None => Ok(()),
        }
    }

    /// Directory of the private files, once there are any.
    fn private_dir(&self) -> Option<&Path> {
        self.dir.get().map(tempfile::TempDir::path)
    }

    pub(crate) fn open_private_file(&self, name: &str) -> io::Result<File> {
        let dir = self.private_dir().ok_or(io::ErrorKind::NotFound)?;
        File::options().read(true).write(true).open(dir.join(name))
    }

    pub(super) fn file_metadata(&self, name: &str) -> io::Result<std::fs::Metadata> {
        let dir = self.private_dir().ok_or(io::ErrorKind::NotFound)?;
        std::fs::metadata(dir.join(name))
    }

    pub(super) fn create_file(&self) -> Result<(File, String), FsError> {
        self.spend_entry()?;
        let dir = match self.dir.get() {
            Some(dir) => dir,
            None => {
                let made = tempfile::Builder::new().prefix("lobster-writes-").tempdir_in(&self.parent)?;
                self.dir.get_or_init(|| made)
            }
        };
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let file = File::options().read(true).write(true).create_new(true).open(dir.path().join(&name))?;
        Ok((file, name))
    }

    /// Charges `bytes` to the write budget of the run.
    pub(crate) fn spend_bytes(&self, bytes: u64) -> Result<(), FsError> {
        let spent = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| b.checked_sub(bytes));
        spent.map(|_| ()).map_err(|_| self.record_excess())
    }

    pub(super) fn spend_entry(&self) -> Result<(), FsError> {
        if self.entries.fetch_add(1, Ordering::Relaxed) >= MAX_CHANGES {
            return Err(self.record_excess());
        }
        Ok(())
    }

    /// Fails if there is no room for this many more bytes of names.
    pub(super) fn names_fit(&self, more: u64) -> Result<(), FsError> {
        if self.names.load(Ordering::Relaxed).saturating_add(more) > MAX_NAMES {
            return Err(self.record_excess());
        }
        Ok(())
    }

    pub(super) fn hold_name(&self, bytes: u64) {
        self.names.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn drop_name(&self, bytes: u64) {
        self.names.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn record_excess(&self) -> FsError {
        self.exceeded.store(true, Ordering::Relaxed);
        ErrorCode::InsufficientSpace.into()
    }
}

/// A change of a name by the program.
pub(crate) enum Change {
    /// Removed from the lower layer.
    Gone,
    /// A new directory.
    Directory {
        made: SystemTime,
    },
    Link {
        target: String,
        modified: SystemTime,
        /// True if the program set the time itself.
        times_set: bool,
    },
    File(Staged),
}

impl Change {
    /// Host memory that it uses under this name.
    pub(super) fn memory_use(&self, path: &str) -> u64 {
        let target = match self {
            Self::Link { target, .. } => target.len(),
            Self::Gone | Self::Directory { .. } | Self::File(_) => 0,
        };
        (path.len() + target) as u64 + ENTRY
    }
}

/// A private file.
pub(crate) struct Staged {
    /// Name in the stage. The file is opened when needed: a run may write more files than a process may
    /// hold open.
    pub(crate) name: String,
    pub(crate) marks: Arc<Marks>,
    pub(crate) mode: u32,
    /// Modification time of the lower file that was copied, or the time that the program set.
    pub(crate) modified: Option<SystemTime>,
}

/// State of a private file.
#[derive(Default)]
pub(crate) struct Marks {
    /// True if it differs from the lower file that was copied, if any.
    pub(crate) changed: AtomicBool,
    /// True if it was written to after it was copied or after its time was set.
    written: AtomicBool,
    /// True if the program set its time.
    times_set: AtomicBool,
}

impl Marks {
    pub(super) fn of_new() -> Arc<Self> {
        let marks = Self::default();
        marks.mark_written();
        Arc::new(marks)
    }

    pub(super) fn mark_written(&self) {
        self.changed.store(true, Ordering::Relaxed);
        self.written.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_time(&self) {
        self.changed.store(true, Ordering::Relaxed);
        self.written.store(false, Ordering::Relaxed);
        self.times_set.store(true, Ordering::Relaxed);
    }
}

impl Staged {
    /// Time that the program set, unless it wrote afterwards.
    pub(crate) fn own_time(&self) -> Option<SystemTime> {
        let set = self.marks.times_set.load(Ordering::Relaxed) && !self.is_written();
        self.modified.filter(|_| set)
    }

    /// True if its time is the time of its last write here.
    pub(super) fn is_written(&self) -> bool {
        self.marks.written.load(Ordering::Relaxed)
    }
}

/// Permission to write to a private file.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) marks: Arc<Marks>,
    pub(crate) stage: Arc<StageHost>,
}

impl Writer {
    /// Charges the growth of the file: a hole costs as much as data.
    pub(crate) fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> Result<usize, FsError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.stage.check_stop()?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(ErrorCode::FileTooLarge)?;
        self.stage.spend_bytes(end.saturating_sub(file.metadata()?.len()))?;
        self.marks.mark_written();
        Ok(std::os::unix::fs::FileExt::write_at(file, bytes, offset)?)
    }

    pub(crate) fn set_len(&self, file: &File, size: u64) -> Result<(), FsError> {
        self.stage.spend_bytes(size.saturating_sub(file.metadata()?.len()))?;
        self.marks.mark_written();
        Ok(file.set_len(size)?)
    }
}

/// Copies a file into an empty one and keeps its holes.
pub(crate) fn copy_sparse<E: From<io::Error>>(
    from: &File,
    to: &mut File,
    look: impl Fn() -> Result<(), E>,
) -> Result<(), E> {
    let len = from.metadata()?.len();
    let mut at = 0;
    let (mut source, mut end);
    while let Some(data) = next_data(from, at, len)? {
        (at, end) = data;
        source = from;
        source.seek(io::SeekFrom::Start(at))?;
        to.seek(io::SeekFrom::Start(at))?;
        while at < end {
            look()?;
            let copied = io::copy(&mut source.take(PORTION.min(end - at)), to)?;
            if copied == 0 {
                // The file was truncated during the copy.
                return Ok(to.set_len(at)?);
            }
            at += copied;
        }
    }
    look()?;
    Ok(to.set_len(len)?)
}

/// Next part of a file after `at` that is not a hole.
fn next_data(file: &File, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= len {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // This file system does not report holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, len))),
        Err(error) => return Err(error.into()),
    };
    if start >= len {
        return Ok(None);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len);
    Ok(Some((start, end.clamp(start, len))))
}

/// Digest and size of a file's content.
pub(crate) fn digest_file<E: From<io::Error>>(
    file: &File,
    look: impl Fn() -> Result<(), E>,
) -> Result<(crate::Digest, u64), E> {
    let mut hasher = blake3::Hasher::new();
    loop {
        look()?;
        let before = hasher.count();
        hasher.update_reader(file.take(PORTION))?;
        if hasher.count() == before {
            return Ok((hasher.finalize(), before));
        }
    }
}
