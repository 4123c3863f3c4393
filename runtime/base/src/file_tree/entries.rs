//! Entries of a tree in the order of a listing, examined by a separate thread: for a known tree, two thirds of the
//! time is spent in the kernel.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::file_identity;

/// Deepest nesting of directories that are entered.
const MAX_DEPTH: usize = 200;

/// Entries that are handed over at a time; the next constant limits the waiting batches.
const BATCH: usize = 128;
const BATCHES: usize = 4;

/// An entry at a path of a tree.
pub(super) enum FoundEntry {
    Entry(TreeEntry),
    /// A part that no digest covers: its path, and the reason.
    Gap(Vec<u8>, String),
}

pub(super) struct TreeEntry {
    /// The directory that contains it.
    pub(super) dir: Arc<OwnedFd>,
    pub(super) stat: Stat,
    /// Its path from the root of the tree.
    path: CString,
    name_at: usize,
}

impl TreeEntry {
    pub(super) fn new(dir: Arc<OwnedFd>, stat: Stat, path: CString, name_at: usize) -> Self {
        Self { dir, stat, path, name_at }
    }

    pub(super) fn path(&self) -> &[u8] {
        self.path.to_bytes()
    }

    pub(super) fn name(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.path.as_bytes_with_nul()[self.name_at..]).unwrap_or_default()
    }
}

/// Calls `note` for everything below `top`, until it fails. Directories come before their content.
///
/// # Errors
/// The error of `note`.
pub(super) fn each_entry<E>(
    top: OwnedFd,
    leaves_out: &(dyn Fn(&Path) -> bool + Sync),
    mut note: impl FnMut(FoundEntry) -> Result<(), E>,
) -> Result<(), E> {
    let top = Arc::new(top);
    std::thread::scope(|scope| {
        let (to, from) = sync_channel::<Vec<FoundEntry>>(BATCHES);
        let dir = Arc::clone(&top);
        let looks = move || {
            let mut batches = Batches { to, batch: Vec::with_capacity(BATCH) };
            let mut finder = Finder { leaves_out, give: &mut |found| batches.add_entry(found) };
            let _ = finder.walk_directory(&dir, &mut Vec::new(), 0).and_then(|()| batches.send_batch());
        };
        if std::thread::Builder::new().spawn_scoped(scope, looks).is_ok() {
            return from.into_iter().flatten().try_for_each(note);
        }
        // If the process may not start a thread, it does the work itself.
        let mut result = Ok(());
        let give = &mut |found| {
            result = note(found);
            if result.is_ok() { Ok(()) } else { Err(Stopped) }
        };
        let _ = Finder { leaves_out, give }.walk_directory(&top, &mut Vec::new(), 0);
        result
    })
}

/// The receiver has stopped.
struct Stopped;

struct Batches {
    to: SyncSender<Vec<FoundEntry>>,
    batch: Vec<FoundEntry>,
}

impl Batches {
    fn add_entry(&mut self, found: FoundEntry) -> Result<(), Stopped> {
        self.batch.push(found);
        if self.batch.len() < BATCH { Ok(()) } else { self.send_batch() }
    }

    fn send_batch(&mut self) -> Result<(), Stopped> {
        let full = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.to.send(full).map_err(|_| Stopped)
    }
}

struct Finder<'a> {
    leaves_out: &'a (dyn Fn(&Path) -> bool + Sync),
    give: &'a mut dyn FnMut(FoundEntry) -> Result<(), Stopped>,
}

impl Finder<'_> {
    fn walk_directory(
        &mut self,
        dir: &Arc<OwnedFd>,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Stopped> {
        let names = match names_in(dir) {
            Ok(names) => names,
            Err(error) => return self.give_gap(path, format!("it cannot be listed ({error})")),
        };
        let length = path.len();
        for name in &names {
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            let done = self.walk_entry(dir, name, path, depth);
            path.truncate(length);
            done?;
        }
        Ok(())
    }

    fn walk_entry(
        &mut self,
        dir: &Arc<OwnedFd>,
        name: &CStr,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Stopped> {
        if (self.leaves_out)(Path::new(OsStr::from_bytes(path))) {
            return Ok(());
        }
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => {
                let why = format!("it cannot be looked at ({})", io::Error::from(error));
                return self.give_gap(path, why);
            }
        };
        let name_at = path.len() - name.count_bytes();
        // The path contains no zero byte, since it consists of names.
        let own = CString::new(path.as_slice()).unwrap_or_default();
        (self.give)(FoundEntry::Entry(TreeEntry::new(Arc::clone(dir), stat, own, name_at)))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(dir, name, flags, Mode::empty());
        match opened.and_then(|inner| Ok((fstat(&inner)?, inner))) {
            Ok((own, inner)) if file_identity(&own) == file_identity(&stat) && depth < MAX_DEPTH => {
                self.walk_directory(&Arc::new(inner), path, depth + 1)
            }
            Ok(_) => self.give_gap(path, "it changes, or directories lie too deep in it".to_owned()),
            Err(error) => self.give_gap(path, format!("it cannot be read ({})", io::Error::from(error))),
        }
    }

    fn give_gap(&mut self, path: &[u8], why: String) -> Result<(), Stopped> {
        (self.give)(FoundEntry::Gap(path.to_owned(), why))
    }
}

/// The names in a directory, sorted by their bytes.
fn names_in(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
