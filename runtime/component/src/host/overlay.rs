//! A granted directory as a program sees it: the real one, and over it the
//! program's own changes, which stay private until they are committed.
//!
//! Names are resolved here, one component at a time, over both layers; the
//! directory itself is only ever reached through a handle that the kernel keeps
//! from leaving it (`cap-std`), so that a race cannot widen the grant either.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType, OpenOptions, OpenOptionsExt};

use super::filesystem::{ErrorCode, FsError};

/// As many links as Linux follows in one path.
const MAX_LINKS: u32 = 40;

/// Longest path that is resolved, as on Linux.
const MAX_PATH: usize = 4096;

/// Changed names in one run, over all directories.
const MAX_CHANGES: usize = 100_000;

/// One granted directory.
pub(crate) struct Tree {
    lower: Dir,
    /// Where `lower` was when it was granted.
    pub(crate) host: PathBuf,
    writable: bool,
    /// By path from the root of the tree. A directory of the lower layer that
    /// is still there has no entry; any entry hides the lower layer below it.
    pub(crate) changes: BTreeMap<String, Change>,
    stage: Arc<Stage>,
}

/// What the program did to a name.
pub(crate) enum Change {
    /// Removed from the lower layer.
    Gone,
    /// A new directory.
    Directory,
    Link(String),
    File(Staged),
}

/// A private file.
pub(crate) struct Staged {
    /// Its name in the stage. It is opened when needed: a run may write more
    /// files than a process may hold open.
    pub(crate) name: String,
    /// Whether it differs from the lower file it was copied from, if any.
    pub(crate) changed: Arc<AtomicBool>,
    pub(crate) mode: u32,
    pub(crate) modified: Option<SystemTime>,
    /// Whether the program set that time itself.
    pub(crate) times_set: bool,
}

/// The private files of one run: a directory that goes away with it.
pub(crate) struct Stage {
    parent: PathBuf,
    dir: std::sync::OnceLock<tempfile::TempDir>,
    next: AtomicU64,
    /// Bytes that may still be written.
    budget: AtomicU64,
    pub(crate) exceeded: AtomicBool,
    entries: AtomicU64,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    Link,
    /// A device, pipe or socket: seen, never opened.
    Other,
}

/// What is known of a name.
pub(crate) struct Info {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) modified: Option<SystemTime>,
}

/// An opened file: where it is, and what pays for writes to it.
pub(crate) struct Opened {
    pub(crate) file: Arc<File>,
    pub(crate) writer: Option<Writer>,
}

/// The right to write to a private file.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) changed: Arc<AtomicBool>,
    pub(crate) stage: Arc<Stage>,
}

/// How a file is opened.
#[derive(Clone, Copy, Default)]
pub(crate) struct Open {
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
}

impl Stage {
    pub(crate) fn new(parent: PathBuf, budget: u64) -> Arc<Self> {
        Arc::new(Self {
            parent,
            dir: std::sync::OnceLock::new(),
            next: AtomicU64::new(0),
            budget: AtomicU64::new(budget),
            exceeded: AtomicBool::new(false),
            entries: AtomicU64::new(0),
        })
    }

    /// Where the private files are, once there are some.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.dir.get().map(tempfile::TempDir::path)
    }

    pub(crate) fn open(&self, name: &str) -> io::Result<File> {
        let dir = self.path().ok_or(io::ErrorKind::NotFound)?;
        File::options().read(true).write(true).open(dir.join(name))
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        let dir = self.path().ok_or(io::ErrorKind::NotFound)?;
        Ok(std::fs::metadata(dir.join(name))?.len())
    }

    fn create(&self) -> io::Result<(File, String)> {
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

    /// Takes `bytes` from what the run may write.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), FsError> {
        let spent = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| b.checked_sub(bytes));
        spent.map(|_| ()).map_err(|_| self.exceed())
    }

    fn spend_entry(&self) -> Result<(), FsError> {
        if self.entries.fetch_add(1, Ordering::Relaxed) >= MAX_CHANGES as u64 {
            return Err(self.exceed());
        }
        Ok(())
    }

    fn exceed(&self) -> FsError {
        self.exceeded.store(true, Ordering::Relaxed);
        ErrorCode::InsufficientSpace.into()
    }
}

impl Tree {
    pub(crate) fn open(host: &Path, writable: bool, stage: Arc<Stage>) -> io::Result<Self> {
        let lower = Dir::open_ambient_dir(host, ambient_authority())?;
        Ok(Self { lower, host: host.to_owned(), writable, changes: BTreeMap::new(), stage })
    }

    /// Where its private files are.
    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// The path that `path`, taken from the directory `base`, stands for. It
    /// has no links left in it, unless the last name is one and is not to be
    /// followed, and never leaves `base`. The last name may be missing.
    pub(crate) fn resolve(&self, base: &str, path: &str, follow: bool) -> Result<String, FsError> {
        if path.is_empty() {
            return Err(ErrorCode::NoEntry.into());
        }
        if path.len() > MAX_PATH {
            return Err(ErrorCode::NameTooLong.into());
        }
        if path.contains('\0') {
            return Err(ErrorCode::Invalid.into());
        }
        let must_be_dir = path.ends_with('/') || path.ends_with("/.") || path == ".";
        let mut at: Vec<String> = split(base).map(str::to_owned).collect();
        let floor = at.len();
        let mut rest = pending(path)?;
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                if at.len() <= floor {
                    return Err(ErrorCode::NotPermitted.into());
                }
                at.pop();
                continue;
            }
            at.push(name);
            let last = rest.is_empty();
            match self.info(&at.join("/"))?.map(|info| info.kind) {
                Some(Kind::Link) if !last || follow || must_be_dir => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(ErrorCode::Loop.into());
                    }
                    let target = self.read_link(&at.join("/"))?;
                    at.pop();
                    rest.extend(pending(&target)?);
                }
                Some(Kind::Directory) => {}
                Some(_) if last && !must_be_dir => {}
                Some(_) => return Err(ErrorCode::NotDirectory.into()),
                None if last => {}
                None => return Err(ErrorCode::NoEntry.into()),
            }
        }
        Ok(at.join("/"))
    }

    /// What a resolved path stands for.
    pub(crate) fn info(&self, path: &str) -> Result<Option<Info>, FsError> {
        let new = |kind, size| Ok(Some(Info { kind, size, modified: None }));
        match self.changes.get(path) {
            Some(Change::Gone) => Ok(None),
            Some(Change::Directory) => new(Kind::Directory, 0),
            Some(Change::Link(target)) => new(Kind::Link, target.len() as u64),
            Some(Change::File(staged)) => {
                let size = self.stage.size(&staged.name)?;
                Ok(Some(Info { kind: Kind::File, size, modified: staged.modified }))
            }
            None if self.lower_hidden(path) => Ok(None),
            None => self.lower_info(path),
        }
    }

    fn lower_info(&self, path: &str) -> Result<Option<Info>, FsError> {
        let meta =
            if path.is_empty() { self.lower.dir_metadata() } else { self.lower.symlink_metadata(path) };
        let meta = match meta {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let kind = kind(meta.file_type());
        // How large a directory is says something about the host's file system only.
        let size = if kind == Kind::Directory { 0 } else { meta.len() };
        Ok(Some(Info { kind, size, modified: meta.modified().ok().map(cap_std::time::SystemTime::into_std) }))
    }

    /// Whether a change above `path` hides what the lower layer has there.
    fn lower_hidden(&self, path: &str) -> bool {
        path.match_indices('/').any(|(at, _)| self.changes.contains_key(&path[..at]))
    }

    pub(crate) fn read_link(&self, path: &str) -> Result<String, FsError> {
        if let Some(change) = self.changes.get(path) {
            return match change {
                Change::Link(target) => Ok(target.clone()),
                Change::Gone => Err(ErrorCode::NoEntry.into()),
                Change::Directory | Change::File(_) => Err(ErrorCode::Invalid.into()),
            };
        }
        let target = self.lower.read_link_contents(path)?;
        target.into_os_string().into_string().map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    /// The names in a directory, in order.
    pub(crate) fn list(&self, path: &str) -> Result<BTreeMap<String, Kind>, FsError> {
        let mut names = BTreeMap::new();
        if !self.changes.contains_key(path) && !self.lower_hidden(path) {
            let entries = if path.is_empty() { self.lower.entries()? } else { self.lower.read_dir(path)? };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    return Err(ErrorCode::IllegalByteSequence.into());
                };
                names.insert(name, kind(entry.file_type()?));
            }
        }
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        for (changed, change) in self.changes.range(prefix.clone()..) {
            let Some(name) = changed.strip_prefix(&prefix) else { break };
            if name.is_empty() || name.contains('/') {
                continue;
            }
            match change {
                Change::Gone => names.remove(name),
                Change::Directory => names.insert(name.to_owned(), Kind::Directory),
                Change::Link(_) => names.insert(name.to_owned(), Kind::Link),
                Change::File(_) => names.insert(name.to_owned(), Kind::File),
            };
        }
        Ok(names)
    }

    /// Opens the file at a resolved path. A file that may be written is a
    /// private copy from then on.
    pub(crate) fn open_file(&mut self, path: &str, how: Open) -> Result<Opened, FsError> {
        if (how.write || how.create || how.truncate) && !self.writable {
            // A program that asks to create what is there only wants to open it.
            if how.write || how.truncate || self.info(path)?.is_none() {
                return Err(ErrorCode::ReadOnly.into());
            }
        }
        match self.info(path)?.map(|info| info.kind) {
            Some(_) if how.exclusive && how.create => Err(ErrorCode::Exist.into()),
            Some(Kind::File) if how.write || how.truncate => {
                self.copy_up(path, !how.truncate)?;
                let opened = self.staged(path)?;
                if how.truncate {
                    opened.file.set_len(0)?;
                    if let Some(writer) = &opened.writer {
                        writer.changed.store(true, Ordering::Relaxed);
                    }
                }
                Ok(opened)
            }
            Some(Kind::File) => match self.changes.get(path) {
                Some(Change::File(staged)) => {
                    Ok(Opened { file: Arc::new(self.stage.open(&staged.name)?), writer: None })
                }
                _ => Ok(Opened { file: Arc::new(self.open_lower(path)?), writer: None }),
            },
            Some(Kind::Link) => Err(ErrorCode::Loop.into()),
            Some(Kind::Directory) => Err(ErrorCode::IsDirectory.into()),
            Some(Kind::Other) => Err(ErrorCode::NotPermitted.into()),
            None if how.create => {
                let (_, name) = self.stage_file()?;
                let changed = Arc::new(AtomicBool::new(true));
                let staged = Staged { name, changed, mode: 0o644, modified: None, times_set: false };
                self.changes.insert(path.to_owned(), Change::File(staged));
                self.staged(path)
            }
            None => Err(ErrorCode::NoEntry.into()),
        }
    }

    /// Opened so that neither a pipe nor a link put there meanwhile does harm.
    fn open_lower(&self, path: &str) -> Result<File, FsError> {
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = self.lower.open_with(path, &options)?.into_std();
        if !file.metadata()?.is_file() {
            return Err(ErrorCode::NotPermitted.into());
        }
        Ok(file)
    }

    fn staged(&self, path: &str) -> Result<Opened, FsError> {
        match self.changes.get(path) {
            Some(Change::File(staged)) => {
                let writer = Writer { changed: staged.changed.clone(), stage: self.stage.clone() };
                Ok(Opened { file: Arc::new(self.stage.open(&staged.name)?), writer: Some(writer) })
            }
            _ => Err(ErrorCode::NoEntry.into()),
        }
    }

    fn stage_file(&self) -> Result<(File, String), FsError> {
        self.stage.spend_entry()?;
        Ok(self.stage.create()?)
    }

    /// Makes the file at `path` private, with its content or empty.
    fn copy_up(&mut self, path: &str, content: bool) -> Result<(), FsError> {
        if matches!(self.changes.get(path), Some(Change::File(_))) {
            return Ok(());
        }
        let mut source = self.open_lower(path)?;
        let meta = source.metadata()?;
        let (mut file, name) = self.stage_file()?;
        if content {
            self.stage.spend(meta.len())?;
            io::copy(&mut source, &mut file)?;
        }
        let mode = std::os::unix::fs::MetadataExt::mode(&meta) & 0o777;
        let staged =
            Staged { name, changed: Arc::default(), mode, modified: meta.modified().ok(), times_set: false };
        self.changes.insert(path.to_owned(), Change::File(staged));
        Ok(())
    }

    fn must_be_writable(&self) -> Result<(), FsError> {
        if self.writable { Ok(()) } else { Err(ErrorCode::ReadOnly.into()) }
    }

    /// Like [`Tree::must_be_writable`], for a name that must be free.
    fn must_be_free(&self, path: &str) -> Result<(), FsError> {
        if self.info(path)?.is_some() {
            return Err(ErrorCode::Exist.into());
        }
        self.must_be_writable()?;
        self.stage.spend_entry()
    }

    pub(crate) fn create_dir(&mut self, path: &str) -> Result<(), FsError> {
        self.must_be_free(path)?;
        self.changes.insert(path.to_owned(), Change::Directory);
        Ok(())
    }

    pub(crate) fn symlink(&mut self, target: &str, path: &str) -> Result<(), FsError> {
        if target.starts_with('/') || target.is_empty() || target.len() > MAX_PATH || target.contains('\0') {
            return Err(ErrorCode::NotPermitted.into());
        }
        self.must_be_free(path)?;
        self.changes.insert(path.to_owned(), Change::Link(target.to_owned()));
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &str) -> Result<(), FsError> {
        match self.info(path)?.map(|info| info.kind) {
            None => Err(ErrorCode::NoEntry.into()),
            Some(Kind::Directory) => Err(ErrorCode::IsDirectory.into()),
            Some(Kind::File | Kind::Link | Kind::Other) => {
                self.must_be_writable()?;
                self.forget(path)
            }
        }
    }

    pub(crate) fn remove_dir(&mut self, path: &str) -> Result<(), FsError> {
        match self.info(path)?.map(|info| info.kind) {
            None => Err(ErrorCode::NoEntry.into()),
            Some(Kind::Directory) if path.is_empty() => Err(ErrorCode::Busy.into()),
            Some(Kind::Directory) if !self.list(path)?.is_empty() => Err(ErrorCode::NotEmpty.into()),
            Some(Kind::Directory) => {
                self.must_be_writable()?;
                self.forget(path)
            }
            Some(Kind::File | Kind::Link | Kind::Other) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    /// Takes the name away.
    fn forget(&mut self, path: &str) -> Result<(), FsError> {
        self.changes.remove(path);
        if self.lower_exists(path)? {
            self.stage.spend_entry()?;
            self.changes.insert(path.to_owned(), Change::Gone);
        }
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<(), FsError> {
        self.must_be_writable()?;
        let source = self.info(from)?.ok_or(ErrorCode::NoEntry)?.kind;
        if from == to {
            return Ok(());
        }
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) || from.is_empty() || to.is_empty()
        {
            return Err(ErrorCode::Invalid.into());
        }
        // As in overlayfs: what the program has not made itself is moved by copying.
        if source == Kind::Directory && !matches!(self.changes.get(from), Some(Change::Directory)) {
            return Err(ErrorCode::CrossDevice.into());
        }
        match (source, self.info(to)?.map(|info| info.kind)) {
            (Kind::Directory, Some(Kind::Directory)) => self.remove_dir(to)?,
            (Kind::Directory, Some(_)) => return Err(ErrorCode::NotDirectory.into()),
            (_, Some(Kind::Directory)) => return Err(ErrorCode::IsDirectory.into()),
            (_, _) => {}
        }
        match source {
            Kind::Other => return Err(ErrorCode::NotPermitted.into()),
            Kind::File => {
                self.copy_up(from, true)?;
                if let Some(Change::File(staged)) = self.changes.get(from) {
                    staged.changed.store(true, Ordering::Relaxed);
                }
            }
            Kind::Link => {
                let target = self.read_link(from)?;
                self.changes.insert(from.to_owned(), Change::Link(target));
            }
            Kind::Directory => {}
        }
        let below = format!("{from}/");
        let moved: Vec<String> = self
            .changes
            .range(below.clone()..)
            .take_while(|(path, _)| path.starts_with(&below))
            .map(|(path, _)| path.clone())
            .collect();
        for path in moved {
            // Traces of what the lower layer had below stay where they are.
            if let Some(change) = self.changes.remove(&path) {
                if matches!(change, Change::Gone) {
                    self.changes.insert(path, change);
                } else {
                    let target = format!("{to}/{}", &path[below.len()..]);
                    if self.lower_exists(&path)? {
                        self.changes.insert(path, Change::Gone);
                    }
                    self.changes.insert(target, change);
                }
            }
        }
        if let Some(change) = self.changes.remove(from) {
            self.changes.insert(to.to_owned(), change);
        }
        self.forget(from)
    }

    /// Whether the lower layer has something at `path`, shown or hidden. What
    /// lies behind a link lies elsewhere.
    fn lower_exists(&self, path: &str) -> Result<bool, FsError> {
        for (at, _) in path.match_indices('/') {
            if self.lower_info(&path[..at])?.is_none_or(|info| info.kind != Kind::Directory) {
                return Ok(false);
            }
        }
        Ok(self.lower_info(path)?.is_some())
    }

    /// Sets when a file was modified.
    pub(crate) fn set_modified(&mut self, path: &str, time: SystemTime) -> Result<(), FsError> {
        self.must_be_writable()?;
        match self.info(path)?.map(|info| info.kind) {
            Some(Kind::File) => self.copy_up(path, true)?,
            Some(_) => return Err(ErrorCode::Unsupported.into()),
            None => return Err(ErrorCode::NoEntry.into()),
        }
        if let Some(Change::File(staged)) = self.changes.get_mut(path) {
            staged.modified = Some(time);
            staged.times_set = true;
            staged.changed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn lower(&self) -> &Dir {
        &self.lower
    }
}

impl Writer {
    pub(crate) fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> Result<usize, FsError> {
        self.stage.spend(bytes.len() as u64)?;
        self.changed.store(true, Ordering::Relaxed);
        Ok(std::os::unix::fs::FileExt::write_at(file, bytes, offset)?)
    }

    pub(crate) fn set_len(&self, file: &File, size: u64) -> Result<(), FsError> {
        self.stage.spend(size.saturating_sub(file.metadata()?.len()))?;
        self.changed.store(true, Ordering::Relaxed);
        Ok(file.set_len(size)?)
    }
}

fn kind(file_type: FileType) -> Kind {
    if file_type.is_dir() {
        Kind::Directory
    } else if file_type.is_file() {
        Kind::File
    } else if file_type.is_symlink() {
        Kind::Link
    } else {
        Kind::Other
    }
}

fn split(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// The names of `path`, last first. An absolute one leads out of the grant.
fn pending(path: &str) -> Result<Vec<String>, FsError> {
    if path.starts_with('/') {
        return Err(ErrorCode::NotPermitted.into());
    }
    Ok(split(path).rev().map(str::to_owned).collect())
}
