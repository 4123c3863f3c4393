//! A granted directory as a program sees it: the real directory under the program's own changes, which
//! stay private until they are committed.
//!
//! Names are resolved here, one component at a time, over both layers. The directory is reached only
//! through a handle that the kernel confines to it (`cap-std`), so that a race cannot widen the grant.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::fs::{Dir, FileType, OpenOptions, OpenOptionsExt};

use super::filesystem::{ErrorCode, FsError};
use super::stage::{self, Marks};
pub(crate) use super::stage::{Change, StageHost, Staged, Writer};

/// Most links that one path may follow, as on Linux.
const MAX_LINKS: u32 = 40;

/// Longest path that is resolved, as on Linux.
pub(super) const MAX_PATH: usize = 4096;

/// Longest name of one file or directory, as on Linux.
const MAX_NAME: usize = 255;

/// Most nested directories: each is looked up for every name below it.
const MAX_DEPTH: usize = 256;

/// Number of names that are read between two checks of the time.
const LOOK_AFTER: usize = 64;

/// One granted directory.
pub(crate) struct Tree {
    lower: Dir,
    /// Path of `lower` when it was granted.
    pub(crate) host: PathBuf,
    writable: bool,
    /// Changes by path from the root of the tree. A directory that still exists in the lower layer has
    /// no entry; any entry hides the lower layer below it.
    pub(crate) changes: BTreeMap<String, Change>,
    stage: Arc<StageHost>,
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    Link,
    /// A device, pipe or socket: listed but never opened.
    Other,
}

/// Metadata of a name.
pub(crate) struct Info {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) modified: Option<SystemTime>,
}

/// An opened file: its position and the budget for writes to it.
pub(crate) struct Opened {
    pub(crate) file: Arc<File>,
    pub(crate) writer: Option<Writer>,
}

/// Options of opening a file.
#[derive(Clone, Copy, Default)]
pub(crate) struct Open {
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
}

impl Tree {
    pub(crate) fn new(lower: Dir, host: &Path, writable: bool, stage: Arc<StageHost>) -> Self {
        Self { lower, host: host.to_owned(), writable, changes: BTreeMap::new(), stage }
    }

    #[cfg(test)]
    pub(crate) fn open(host: &Path, writable: bool, stage: Arc<StageHost>) -> io::Result<Self> {
        let lower = Dir::open_ambient_dir(host, cap_std::ambient_authority())?;
        Ok(Self::new(lower, host, writable, stage))
    }

    /// The stage that holds its private files.
    pub(crate) fn stage(&self) -> &StageHost {
        &self.stage
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Resolves `path` from the directory `base`. The result contains no links, except for a last name
    /// that is a link and must not be followed, and never leaves `base`. The last name may be missing.
    pub(crate) fn resolve_path(&self, base: &str, path: &str, follow: bool) -> Result<String, FsError> {
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
        let mut at: Vec<String> = path_names(base).map(str::to_owned).collect();
        let floor = at.len();
        let mut rest = reversed_names(path)?;
        let (mut links, mut seen) = (0, 0_usize);
        while let Some(name) = rest.pop() {
            seen += 1;
            if seen.is_multiple_of(LOOK_AFTER) {
                self.stage.check_stop()?;
            }
            if name == ".." {
                if at.len() <= floor {
                    return Err(ErrorCode::NotPermitted.into());
                }
                at.pop();
                continue;
            }
            let fits = name.len() <= MAX_NAME && at.len() < MAX_DEPTH;
            at.push(name);
            let here = at.join("/");
            if !fits || here.len() > MAX_PATH {
                return Err(ErrorCode::NameTooLong.into());
            }
            let last = rest.is_empty();
            match self.path_info(&here)?.map(|info| info.kind) {
                Some(Kind::Link) if !last || follow || must_be_dir => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(ErrorCode::Loop.into());
                    }
                    let target = self.read_link(&here)?;
                    at.pop();
                    rest.extend(reversed_names(&target)?);
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

    /// Metadata of a resolved path.
    pub(crate) fn path_info(&self, path: &str) -> Result<Option<Info>, FsError> {
        let new = |kind, size, modified: SystemTime| Ok(Some(Info { kind, size, modified: Some(modified) }));
        match self.changes.get(path) {
            Some(Change::Gone) => Ok(None),
            Some(Change::Directory { made }) => new(Kind::Directory, 0, *made),
            Some(Change::Link { target, modified, .. }) => new(Kind::Link, target.len() as u64, *modified),
            Some(Change::File(staged)) => {
                let meta = self.stage.file_metadata(&staged.name)?;
                let modified = if staged.is_written() { meta.modified().ok() } else { staged.modified };
                Ok(Some(Info { kind: Kind::File, size: meta.len(), modified }))
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
        let kind = file_kind(meta.file_type());
        // The size of a directory only reveals details of the host's file system.
        let size = if kind == Kind::Directory { 0 } else { meta.len() };
        Ok(Some(Info { kind, size, modified: meta.modified().ok().map(cap_std::time::SystemTime::into_std) }))
    }

    /// True if a change above `path` hides the lower layer there.
    fn lower_hidden(&self, path: &str) -> bool {
        path.match_indices('/').any(|(at, _)| self.changes.contains_key(&path[..at]))
    }

    pub(crate) fn read_link(&self, path: &str) -> Result<String, FsError> {
        if let Some(change) = self.changes.get(path) {
            return match change {
                Change::Link { target, .. } => Ok(target.clone()),
                Change::Gone => Err(ErrorCode::NoEntry.into()),
                Change::Directory { .. } | Change::File(_) => Err(ErrorCode::Invalid.into()),
            };
        }
        let target = self.lower.read_link_contents(path)?;
        target.into_os_string().into_string().map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    /// Names in a directory, in order.
    pub(crate) fn list_names(&self, path: &str) -> Result<BTreeMap<String, Kind>, FsError> {
        let mut names = BTreeMap::new();
        if !self.changes.contains_key(path) && !self.lower_hidden(path) {
            let entries = if path.is_empty() { self.lower.entries()? } else { self.lower.read_dir(path)? };
            for (index, entry) in entries.enumerate() {
                if index.is_multiple_of(LOOK_AFTER) {
                    self.stage.check_stop()?;
                }
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    return Err(ErrorCode::IllegalByteSequence.into());
                };
                names.insert(name, file_kind(entry.file_type()?));
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
                Change::Directory { .. } => names.insert(name.to_owned(), Kind::Directory),
                Change::Link { .. } => names.insert(name.to_owned(), Kind::Link),
                Change::File(_) => names.insert(name.to_owned(), Kind::File),
            };
        }
        Ok(names)
    }

    /// Opens what is at `path`; `None` means a directory. With `wants_dir`, only a directory is opened.
    pub(crate) fn open_entry(
        &mut self,
        path: &str,
        how: Open,
        wants_dir: bool,
    ) -> Result<Option<Opened>, FsError> {
        match self.path_info(path)?.map(|info| info.kind) {
            Some(Kind::Directory) if how.create && how.exclusive => Err(ErrorCode::Exist.into()),
            Some(Kind::Directory) if how.write || how.truncate => Err(ErrorCode::IsDirectory.into()),
            Some(Kind::Directory) => Ok(None),
            Some(_) if wants_dir => Err(ErrorCode::NotDirectory.into()),
            None if wants_dir => Err(ErrorCode::NoEntry.into()),
            Some(_) | None => self.open_file(path, how).map(Some),
        }
    }

    /// Opens the file at a resolved path. A file that may be written becomes a private copy.
    pub(crate) fn open_file(&mut self, path: &str, how: Open) -> Result<Opened, FsError> {
        if (how.write || how.create || how.truncate) && !self.writable {
            // If the file exists, a request to create it only opens it.
            if how.write || how.truncate || self.path_info(path)?.is_none() {
                return Err(ErrorCode::ReadOnly.into());
            }
        }
        match self.path_info(path)?.map(|info| info.kind) {
            Some(_) if how.exclusive && how.create => Err(ErrorCode::Exist.into()),
            Some(Kind::File) if how.write || how.truncate => {
                self.copy_up(path, !how.truncate)?;
                let opened = self.open_staged(path)?;
                if how.truncate {
                    opened.file.set_len(0)?;
                    if let Some(writer) = &opened.writer {
                        writer.marks.mark_written();
                    }
                }
                Ok(opened)
            }
            Some(Kind::File) => match self.changes.get(path) {
                Some(Change::File(staged)) => {
                    Ok(Opened { file: Arc::new(self.stage.open_private_file(&staged.name)?), writer: None })
                }
                _ => Ok(Opened { file: Arc::new(self.open_lower(path)?), writer: None }),
            },
            Some(Kind::Link) => Err(ErrorCode::Loop.into()),
            Some(Kind::Directory) => Err(ErrorCode::IsDirectory.into()),
            Some(Kind::Other) => Err(ErrorCode::NotPermitted.into()),
            None if how.create => {
                let (_, name) = self.stage.create_file()?;
                let staged = Staged { name, marks: Marks::of_new(), mode: 0o644, modified: None };
                self.put_change(path, Change::File(staged))?;
                self.open_staged(path)
            }
            None => Err(ErrorCode::NoEntry.into()),
        }
    }

    /// Opens the file in a way that is safe even if it was replaced by a pipe or a link.
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

    fn open_staged(&self, path: &str) -> Result<Opened, FsError> {
        match self.changes.get(path) {
            Some(Change::File(staged)) => {
                let writer = Writer { marks: staged.marks.clone(), stage: self.stage.clone() };
                Ok(Opened {
                    file: Arc::new(self.stage.open_private_file(&staged.name)?),
                    writer: Some(writer),
                })
            }
            _ => Err(ErrorCode::NoEntry.into()),
        }
    }

    /// Makes the file at `path` private, with its content or empty.
    fn copy_up(&mut self, path: &str, content: bool) -> Result<(), FsError> {
        if matches!(self.changes.get(path), Some(Change::File(_))) {
            return Ok(());
        }
        let source = self.open_lower(path)?;
        let meta = source.metadata()?;
        let (mut file, name) = self.stage.create_file()?;
        if content {
            self.stage.spend_bytes(meta.len())?;
            stage::copy_sparse(&source, &mut file, || self.stage.check_stop())?;
        }
        let mode = std::os::unix::fs::MetadataExt::mode(&meta) & 0o777;
        let staged = Staged { name, marks: Arc::default(), mode, modified: meta.modified().ok() };
        self.put_change(path, Change::File(staged))
    }

    /// Records a change if there is room for its name.
    fn put_change(&mut self, path: &str, change: Change) -> Result<(), FsError> {
        self.stage.names_fit(change.memory_use(path))?;
        self.put_anyway(path.to_owned(), change);
        Ok(())
    }

    fn put_anyway(&mut self, path: String, change: Change) {
        self.take_change(&path);
        self.stage.hold_name(change.memory_use(&path));
        self.changes.insert(path, change);
    }

    fn take_change(&mut self, path: &str) -> Option<Change> {
        let change = self.changes.remove(path)?;
        self.stage.drop_name(change.memory_use(path));
        Some(change)
    }

    fn must_be_writable(&self) -> Result<(), FsError> {
        if self.writable { Ok(()) } else { Err(ErrorCode::ReadOnly.into()) }
    }

    /// Like [`Tree::must_be_writable`], for a name that must be free.
    fn must_be_free(&self, path: &str) -> Result<(), FsError> {
        if self.path_info(path)?.is_some() {
            return Err(ErrorCode::Exist.into());
        }
        self.must_be_writable()?;
        self.stage.spend_entry()
    }

    pub(crate) fn create_dir(&mut self, path: &str) -> Result<(), FsError> {
        self.must_be_free(path)?;
        self.put_change(path, Change::Directory { made: SystemTime::now() })
    }

    /// `slash` is true if the name ended with a slash, as that of a directory.
    pub(crate) fn create_symlink(&mut self, target: &str, path: &str, slash: bool) -> Result<(), FsError> {
        if target.starts_with('/') || target.is_empty() || target.len() > MAX_PATH || target.contains('\0') {
            return Err(ErrorCode::NotPermitted.into());
        }
        if slash && self.path_info(path)?.is_none() {
            return Err(ErrorCode::NoEntry.into());
        }
        self.must_be_free(path)?;
        self.put_change(path, new_link(target.to_owned()))
    }

    pub(crate) fn remove_file(&mut self, path: &str) -> Result<(), FsError> {
        match self.path_info(path)?.map(|info| info.kind) {
            None => Err(ErrorCode::NoEntry.into()),
            Some(Kind::Directory) => Err(ErrorCode::IsDirectory.into()),
            Some(Kind::File | Kind::Link | Kind::Other) => {
                self.must_be_writable()?;
                self.remove_name(path)
            }
        }
    }

    pub(crate) fn remove_dir(&mut self, path: &str) -> Result<(), FsError> {
        match self.path_info(path)?.map(|info| info.kind) {
            None => Err(ErrorCode::NoEntry.into()),
            Some(Kind::Directory) if path.is_empty() => Err(ErrorCode::Busy.into()),
            Some(Kind::Directory) if !self.list_names(path)?.is_empty() => Err(ErrorCode::NotEmpty.into()),
            Some(Kind::Directory) => {
                self.must_be_writable()?;
                self.remove_name(path)
            }
            Some(Kind::File | Kind::Link | Kind::Other) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    /// Removes the name.
    fn remove_name(&mut self, path: &str) -> Result<(), FsError> {
        self.take_change(path);
        if self.lower_exists(path)? {
            self.stage.spend_entry()?;
            self.put_change(path, Change::Gone)?;
        }
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<(), FsError> {
        self.must_be_writable()?;
        let source = self.path_info(from)?.ok_or(ErrorCode::NoEntry)?.kind;
        if from == to {
            return Ok(());
        }
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) || from.is_empty() || to.is_empty()
        {
            return Err(ErrorCode::Invalid.into());
        }
        // As in overlayfs, a directory that the program did not create is moved by copying.
        if source == Kind::Directory && !matches!(self.changes.get(from), Some(Change::Directory { .. })) {
            return Err(ErrorCode::CrossDevice.into());
        }
        match (source, self.path_info(to)?.map(|info| info.kind)) {
            (Kind::Directory, Some(Kind::Directory)) => self.remove_dir(to)?,
            (Kind::Directory, Some(_)) => return Err(ErrorCode::NotDirectory.into()),
            (_, Some(Kind::Directory)) => return Err(ErrorCode::IsDirectory.into()),
            (_, _) => {}
        }
        let moved = self.moved_with(from, to)?;
        match source {
            Kind::Other => return Err(ErrorCode::NotPermitted.into()),
            Kind::File => {
                self.copy_up(from, true)?;
                if let Some(Change::File(staged)) = self.changes.get(from) {
                    staged.marks.changed.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
            Kind::Link if !self.changes.contains_key(from) => {
                let target = self.read_link(from)?;
                self.put_change(from, new_link(target))?;
            }
            Kind::Link | Kind::Directory => {}
        }
        for (path, target) in moved {
            // Marks of names removed from the lower layer stay in place.
            if matches!(self.changes.get(&path), Some(Change::Gone)) {
                continue;
            }
            if let Some(change) = self.take_change(&path) {
                if self.lower_exists(&path)? {
                    self.put_anyway(path, Change::Gone);
                }
                self.put_anyway(target, change);
            }
        }
        if let Some(change) = self.take_change(from) {
            self.put_anyway(to.to_owned(), change);
        }
        self.remove_name(from)
    }

    /// Everything below `from` with its new names, unless these are too long.
    fn moved_with(&self, from: &str, to: &str) -> Result<Vec<(String, String)>, FsError> {
        let below = format!("{from}/");
        let mut moved = Vec::new();
        let mut more = 0;
        for path in self.changes.range(below.clone()..).map(|(path, _)| path) {
            let Some(rest) = path.strip_prefix(&below) else { break };
            if moved.len().is_multiple_of(LOOK_AFTER) {
                self.stage.check_stop()?;
            }
            let target = format!("{to}/{rest}");
            if target.len() > MAX_PATH || path_names(&target).count() > MAX_DEPTH {
                return Err(ErrorCode::NameTooLong.into());
            }
            // The marks left at the old names use room as well.
            more += (target.len() + path.len()) as u64;
            moved.push((path.clone(), target));
        }
        self.stage.names_fit(more)?;
        Ok(moved)
    }

    /// True if the lower layer has an entry at `path`, visible or hidden. Paths through a link lead
    /// elsewhere.
    fn lower_exists(&self, path: &str) -> Result<bool, FsError> {
        for (at, _) in path.match_indices('/') {
            if self.lower_info(&path[..at])?.is_none_or(|info| info.kind != Kind::Directory) {
                return Ok(false);
            }
        }
        Ok(self.lower_info(path)?.is_some())
    }

    /// Sets the modification time of a file or a link.
    pub(crate) fn set_modified(&mut self, path: &str, time: SystemTime) -> Result<(), FsError> {
        self.must_be_writable()?;
        match self.path_info(path)?.map(|info| info.kind) {
            Some(Kind::File) => self.copy_up(path, true)?,
            Some(Kind::Link) if !self.changes.contains_key(path) => {
                let target = self.read_link(path)?;
                self.stage.spend_entry()?;
                self.put_change(path, new_link(target))?;
            }
            Some(Kind::Link) => {}
            Some(_) => return Err(ErrorCode::Unsupported.into()),
            None => return Err(ErrorCode::NoEntry.into()),
        }
        match self.changes.get_mut(path) {
            Some(Change::File(staged)) => {
                staged.modified = Some(time);
                staged.marks.set_time();
            }
            Some(Change::Link { modified, times_set, .. }) => (*modified, *times_set) = (time, true),
            Some(Change::Gone | Change::Directory { .. }) | None => {}
        }
        Ok(())
    }

    pub(crate) fn lower_dir(&self) -> &Dir {
        &self.lower
    }
}

fn new_link(target: String) -> Change {
    Change::Link { target, modified: SystemTime::now(), times_set: false }
}

fn file_kind(file_type: FileType) -> Kind {
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

fn path_names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// Names of `path`, last first. An absolute path leads out of the grant.
fn reversed_names(path: &str) -> Result<Vec<String>, FsError> {
    if path.starts_with('/') {
        return Err(ErrorCode::NotPermitted.into());
    }
    Ok(path_names(path).rev().map(str::to_owned).collect())
}
