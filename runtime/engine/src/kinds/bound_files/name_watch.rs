//! Notices when a name on the way to an approved file is given to another file.
//!
//! A copy mounted over a file stays with the file: if the file is renamed, the mount moves with it, and the step finds
//! any file that gets the old name. No mount can prevent that, so the names are watched. The kernel queues the event
//! while it locks the directory, so a reader of the directory has seen all events before it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_policy::BoundFile;

/// Most symbolic links on the way to one file.
const MAX_LINKS: usize = 40;

/// The names on the way to approved files.
#[derive(Debug)]
pub(super) struct NameWatch {
    inotify: OwnedFd,
    /// Directories by the kernel's number: the path of each, and the names in it with the files that they lead to.
    directories: BTreeMap<i32, (PathBuf, BTreeMap<OsString, String>)>,
    /// The files themselves, each with its identity.
    files: Vec<(String, PathBuf, Identity)>,
    /// The names of files by the kernel's number, for writes into them.
    contents: BTreeMap<i32, String>,
    changed: Mutex<Option<String>>,
    written: Mutex<Option<String>>,
}

/// Identity of a file. A rename changes the last part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64, i64, i64);

impl Identity {
    fn from_path(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Self(meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
    }
}

impl NameWatch {
    /// Watches all names that lead to `files`: in every directory that a step may write, and in the file's own
    /// directory.
    pub(super) fn start<'a>(
        files: impl Iterator<Item = &'a BoundFile>,
        writable: &[PathBuf],
    ) -> Result<Self, (String, io::Error)> {
        let wrong = |path: &str| {
            let path = path.to_owned();
            move |source: io::Error| (path, source)
        };
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| wrong("(inotify)")(error.into()))?;
        let mut watch = Self {
            inotify,
            directories: BTreeMap::new(),
            files: Vec::new(),
            contents: BTreeMap::new(),
            changed: Mutex::default(),
            written: Mutex::default(),
        };
        let mask = WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for file in files {
            let before = path_lookups(Path::new(&file.path)).map_err(wrong(&file.path))?;
            let last = before.len().saturating_sub(1);
            for (number, (directory, name)) in before.iter().enumerate() {
                if number != last && !writable.iter().any(|root| directory.starts_with(root)) {
                    continue;
                }
                let id = inotify::add_watch(&watch.inotify, directory, mask)
                    .map_err(|error| wrong(&file.path)(error.into()))?;
                let (_, names) =
                    watch.directories.entry(id).or_insert_with(|| (directory.clone(), BTreeMap::new()));
                names.insert(name.clone(), file.path.clone());
            }
            // A change before the watch began is found by a second look.
            let real = PathBuf::from(file.real_path());
            let identity = Identity::from_path(&real).map_err(wrong(&file.path))?;
            if path_lookups(Path::new(&file.path)).map_err(wrong(&file.path))? != before {
                *lock(&watch.changed) = Some(file.path.clone());
            }
            let id = inotify::add_watch(&watch.inotify, &real, WatchFlags::MODIFY)
                .map_err(|error| wrong(&file.path)(error.into()))?;
            watch.contents.insert(id, file.path.clone());
            watch.files.push((file.path.clone(), real, identity));
        }
        Ok(watch)
    }

    /// The file whose name another file has taken, if any.
    pub(super) fn replaced_file(&self) -> Option<String> {
        for (directory, _) in self.directories.values() {
            // Waits for a rename that is under way in the directory.
            let _ = fs::read_dir(directory).map(|mut entries| entries.next().map(drop));
        }
        self.drain_events();
        lock(&self.changed).clone()
    }

    /// The file that was written into, if any. This matters only where a file is not replaced by a copy. Writes
    /// through mapped memory are not noticed.
    pub(super) fn written_file(&self) -> Option<String> {
        self.drain_events();
        lock(&self.written).clone()
    }

    /// Runs `work` with a token that is cancelled as soon as a name changes.
    pub(super) fn run_guarded<T>(
        &self,
        cancel: &CancelToken,
        work: impl FnOnce(&CancelToken) -> T,
    ) -> (T, Option<String>) {
        if self.files.is_empty() {
            return (work(cancel), None);
        }
        let (inner, over) = (cancel.child_token(), CancelToken::new());
        let done = std::thread::scope(|scope| {
            scope.spawn(|| self.look_out(&inner, &over));
            // Stops the watching thread even if `work` panics.
            let _end = End(&over);
            work(&inner)
        });
        (done, self.replaced_file())
    }

    fn look_out(&self, inner: &CancelToken, over: &CancelToken) {
        let Ok(end) = over.pollable_fd() else { return };
        loop {
            let mut sources = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // The names are checked once more after `work` is done.
                Err(_) => return,
            }
            if over.is_cancelled() {
                return;
            }
            self.drain_events();
            if let Some(path) = lock(&self.changed).clone() {
                inner.force_cancel(CancelReason::Requested(format!("{path} was replaced")));
                return;
            }
        }
    }

    /// Reads the queued events.
    fn drain_events(&self) {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut changed = lock(&self.changed);
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    // Some events were lost, so the files themselves are compared.
                    let other = self.files.iter().find(|(_, real, known)| {
                        !Identity::from_path(real).is_ok_and(|identity| identity == *known)
                    });
                    if let Some((path, ..)) = other {
                        changed.get_or_insert_with(|| path.clone());
                    }
                }
                Ok(event) if self.contents.contains_key(&event.wd()) => {
                    if event.events().contains(ReadFlags::MODIFY) {
                        let mut written = lock(&self.written);
                        *written = self.contents.get(&event.wd()).cloned();
                    }
                }
                Ok(event) => {
                    let Some((_, names)) = self.directories.get(&event.wd()) else { continue };
                    let name = event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec()));
                    let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
                    let path = match &name {
                        Some(name) => names.get(name),
                        None if event.events().intersects(gone) => names.values().next(),
                        None => None,
                    };
                    if let Some(path) = path {
                        changed.get_or_insert_with(|| path.clone());
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

/// Stops the watching thread when dropped.
struct End<'a>(&'a CancelToken);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.cancel(CancelReason::Superseded);
    }
}

/// The directories, and the names in them, through which the kernel finds `path`.
fn path_lookups(path: &Path) -> io::Result<Vec<(PathBuf, OsString)>> {
    let mut out = Vec::new();
    let mut current = PathBuf::from("/");
    let mut rest: Vec<OsString> = reversed_names(path);
    let mut links = 0;
    let mut seen = BTreeSet::new();
    while let Some(part) = rest.pop() {
        if part == ".." {
            current.pop();
            continue;
        }
        let next = current.join(&part);
        if seen.insert(next.clone()) {
            out.push((current.clone(), part));
        }
        if fs::symlink_metadata(&next)?.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                current = PathBuf::from("/");
            }
            rest.extend(reversed_names(&target));
        } else {
            current = next;
        }
    }
    Ok(out)
}

/// The names of a path, the last one first.
fn reversed_names(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    parts
}
