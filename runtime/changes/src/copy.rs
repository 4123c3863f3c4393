//! A copy of a directory, for a step for which the kernel cannot mount a layer.
//!
//! The step works on the copy. Its changes are found by the status of each file (inode, size, times, mode);
//! contents are compared only if that differs.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, ioctl_ficlone};

use crate::acl::Acl;
use crate::disk::{copy_sparse, set_link_time, time_of};
use crate::files::{RootedPath, Seen, What};
use crate::pile::Below;
use crate::set::{RelPath, Time};

/// If a file was written this shortly before the step began, it may have changed since then without different
/// times.
const TICK: i64 = 50_000_000;

/// Fails if there is no space for this many bytes.
pub type Room<'r> = &'r mut dyn FnMut(u64) -> io::Result<()>;

/// Path and cause of a failed copy.
pub(crate) type CopyError = (Option<RelPath>, io::Error);

/// The copied files.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Status of each path in the copy when it was made.
    prints: BTreeMap<RelPath, Print>,
    /// Names that were copied into each directory.
    names: BTreeMap<Option<RelPath>, Vec<Vec<u8>>>,
    /// Time when the copy was complete.
    end: Time,
}

/// The status that changes if a program writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    inode: u64,
    size: u64,
    modified: Time,
    changed: Time,
    mode: u32,
}

impl Print {
    fn from_metadata(found: &Metadata) -> Self {
        let time = |seconds, nanos: i64| Time(seconds, u32::try_from(nanos).unwrap_or_default());
        Self {
            inode: found.ino(),
            size: found.len(),
            modified: time(found.mtime(), found.mtime_nsec()),
            changed: time(found.ctime(), found.ctime_nsec()),
            mode: found.mode(),
        }
    }
}

impl Copied {
    /// Names that were copied into a directory.
    pub(crate) fn copied_names(&self, dir: Option<&RelPath>) -> &[Vec<u8>] {
        self.names.get(&dir.cloned()).map_or(&[], Vec::as_slice)
    }

    /// True if a file in the copy is certainly unchanged.
    pub(crate) fn is_unchanged(&self, path: &RelPath, found: &Metadata) -> bool {
        let nanos = |time: Time| time.0.saturating_mul(1_000_000_000).saturating_add(time.1.into());
        self.prints.get(path).is_some_and(|print| {
            *print == Print::from_metadata(found)
                && nanos(print.changed) < nanos(self.end).saturating_sub(TICK)
        })
    }

    /// Permission bits with which a directory was copied.
    pub(crate) fn directory_mode(&self, dir: &RelPath) -> Option<u32> {
        self.prints.get(dir).map(|print| print.mode & 0o7777)
    }
}

/// Copies everything that a step finds below into the new directory `to`. Pipes, sockets, devices and
/// extended attributes other than access control lists are not copied.
pub(crate) fn copy_below(below: &Below, mode: u32, to: &Path, room: Room<'_>) -> Result<Copied, CopyError> {
    let mut copying = Copying {
        below,
        to,
        room,
        copied: Copied { prints: BTreeMap::new(), names: BTreeMap::new(), end: Time(0, 0) },
        linked: HashMap::new(),
        modes: Vec::new(),
        is_root: rustix::process::geteuid().is_root(),
    };
    DirBuilder::new().mode(0o700).create(to).map_err(|error| (None, error))?;
    let mut open = vec![None];
    while let Some(dir) = open.pop() {
        let names = below.names_below(dir.as_ref()).map_err(|error| (dir.clone(), error))?;
        let mut copied = Vec::new();
        for name in names {
            let path = RelPath::below(dir.as_ref(), &name);
            match copying.copy_entry(&path).map_err(|error| (Some(path.clone()), error))? {
                Some(What::Directory) => open.push(Some(path)),
                Some(What::File | What::Link) => {}
                // It cannot be copied, or is gone by now.
                Some(What::Other) | None => continue,
            }
            copied.push(name);
        }
        copying.copied.names.insert(dir, copied);
    }
    copying.finish_directories(mode)?;
    Ok(copying.copied)
}

struct Copying<'c> {
    below: &'c Below,
    to: &'c Path,
    room: Room<'c>,
    copied: Copied,
    /// First copy of each file that has several names.
    linked: HashMap<u64, RelPath>,
    /// Modes to set when the directories are complete.
    modes: Vec<(RelPath, Seen)>,
    is_root: bool,
}

impl Copying<'_> {
    /// Copies one file, link or directory, without the directory's entries.
    fn copy_entry(&mut self, path: &RelPath) -> io::Result<Option<What>> {
        let place = RootedPath { root: 0, path: path.clone() };
        let Some(seen) = self.below.read_status(&place)? else { return Ok(None) };
        let at = self.path_in_copy(path);
        match seen.what {
            What::Other => return Ok(Some(What::Other)),
            What::Directory => {
                DirBuilder::new().mode(0o700).create(&at)?;
                self.own_like(&place, &at)?;
                self.modes.push((path.clone(), seen));
            }
            What::Link => {
                let target = self.below.read_link(&place)?;
                symlink(OsStr::from_bytes(target.as_bytes()), &at)?;
                self.own_like(&place, &at)?;
                set_link_time(CWD, at.as_os_str(), seen.modified)?;
            }
            What::File => {
                if let Some(first) = self.linked.get(&seen.inode) {
                    fs::hard_link(self.path_in_copy(first), &at)?;
                } else {
                    self.copy_file(&place, &seen, &at)?;
                    if seen.names > 1 {
                        self.linked.insert(seen.inode, path.clone());
                    }
                }
            }
        }
        self.copied.prints.insert(path.clone(), Print::from_metadata(&fs::symlink_metadata(&at)?));
        Ok(Some(seen.what))
    }

    fn copy_file(&mut self, place: &RootedPath, seen: &Seen, at: &Path) -> io::Result<()> {
        let mut from = self.below.open_file(place)?;
        let mut file = File::options().write(true).create_new(true).open(at)?;
        // If the file system can share blocks, they are shared until one of the files is written.
        if ioctl_ficlone(&file, &from).is_err() {
            let found = from.metadata()?;
            let taken = found.blocks().saturating_mul(512);
            (self.room)(taken)?;
            if taken < found.len() {
                copy_sparse(&mut from, &mut file)?;
            } else {
                io::copy(&mut from, &mut file)?;
            }
        }
        self.own_like(place, at)?;
        Acl::of_file(&from)?.map_or(Ok(()), |acl| acl.give_to(&file))?;
        file.set_permissions(Permissions::from_mode(seen.mode))?;
        file.set_times(FileTimes::new().set_modified(time_of(seen.modified)))
    }

    /// Sets the owner. Only root can do that, and it only matters for root.
    fn own_like(&self, place: &RootedPath, at: &Path) -> io::Result<()> {
        match self.is_root.then(|| self.below.owner(place)).transpose()?.flatten() {
            Some((user, group)) => lchown(at, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// Sets the modes and times of directories, and records the final status of all files.
    fn finish_directories(&mut self, mode: u32) -> Result<(), CopyError> {
        for (path, seen) in self.modes.iter().rev() {
            let at = self.path_in_copy(path);
            let give = || -> io::Result<Metadata> {
                let times = FileTimes::new().set_modified(time_of(seen.modified));
                let place = RootedPath { root: 0, path: path.clone() };
                let dir = File::open(&at)?;
                self.below.acl(&place)?.map_or(Ok(()), |acl| acl.give_to(&dir))?;
                dir.set_times(times)?;
                fs::set_permissions(&at, Permissions::from_mode(seen.mode))?;
                fs::symlink_metadata(&at)
            };
            let found = give().map_err(|error| (Some(path.clone()), error))?;
            self.copied.prints.insert(path.clone(), Print::from_metadata(&found));
        }
        // Each new name changes the status of a file.
        let firsts: HashMap<u64, &RelPath> = self
            .linked
            .values()
            .filter_map(|first| Some((self.copied.prints.get(first)?.inode, first)))
            .collect();
        let mut last = Vec::new();
        for (path, print) in &self.copied.prints {
            if let Some(first) = firsts.get(&print.inode) {
                let found = fs::symlink_metadata(self.path_in_copy(first))
                    .map_err(|error| (Some(path.clone()), error))?;
                last.push((path.clone(), Print::from_metadata(&found)));
            }
        }
        self.copied.prints.extend(last);
        let end = fs::set_permissions(self.to, Permissions::from_mode(mode))
            .and_then(|()| fs::symlink_metadata(self.to))
            .map_err(|error| (None, error))?;
        self.copied.end = Print::from_metadata(&end).changed;
        Ok(())
    }

    fn path_in_copy(&self, path: &RelPath) -> PathBuf {
        self.to.join(OsStr::from_bytes(path.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Read;
    use std::time::{Duration, SystemTime};

    use lobster_base::digest::Digest;

    use super::*;
    use crate::layer::{Keep, Layer};
    use crate::set::{Change, ChangeKind};

    struct Forgets;

    impl Keep for Forgets {
        fn keep_content(&mut self, content: &mut dyn Read) -> io::Result<(Digest, u64)> {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            Ok((Digest::of_bytes(&bytes), bytes.len() as u64))
        }
    }

    fn layer_changes(layer: &Layer) -> Vec<(String, ChangeKind)> {
        let set = layer.read_changes(&mut Forgets).unwrap();
        set.changes.iter().map(|change: &Change| (change.path.to_string(), change.kind())).collect()
    }

    /// A layer over a directory whose step works on a copy.
    fn copied_layer(dir: &Path) -> Layer {
        let mut layer = Layer::new(&dir.join("root"), dir.join("layer")).unwrap();
        layer.make_copy(&mut |_| Ok(())).unwrap();
        layer
    }

    #[test]
    fn what_was_done_to_a_copy_is_found_whatever_its_times_say() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("d/e")).unwrap();
        for name in ["a", "d/b", "d/e/c", "same", "touched", "gone"] {
            fs::write(root.join(name), "old").unwrap();
        }
        fs::hard_link(root.join("same"), root.join("d/pair")).unwrap();
        let old = SystemTime::now() - Duration::from_secs(1000);
        let times = FileTimes::new().set_modified(old);
        File::options().write(true).open(root.join("a")).unwrap().set_times(times).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        let layer = copied_layer(dir.path());
        assert_eq!(layer_changes(&layer), []);
        let copy = layer.copy_dir().unwrap();
        let pair = ["same", "d/pair"].map(|name| fs::metadata(copy.join(name)).unwrap().ino());
        assert_eq!(pair[0], pair[1]);
        // The size is the same and the time was set back, so only the change time shows it.
        fs::write(copy.join("a"), "new").unwrap();
        File::options().write(true).open(copy.join("a")).unwrap().set_times(times).unwrap();
        fs::set_permissions(copy.join("same"), Permissions::from_mode(0o600)).unwrap();
        fs::write(copy.join("touched"), "old").unwrap();
        fs::remove_file(copy.join("gone")).unwrap();
        fs::rename(copy.join("d/e"), copy.join("moved")).unwrap();
        let found = layer_changes(&layer);
        let expected = [
            ("a", ChangeKind::Modify),
            ("d/e", ChangeKind::Delete),
            ("d/e/c", ChangeKind::Delete),
            ("d/pair", ChangeKind::Mode),
            ("gone", ChangeKind::Delete),
            ("moved", ChangeKind::Create),
            ("moved/c", ChangeKind::Create),
            ("same", ChangeKind::Link),
        ];
        let mut found: Vec<(&str, ChangeKind)> =
            found.iter().map(|(path, kind)| (path.as_str(), *kind)).collect();
        found.sort_by_key(|(path, _)| *path);
        assert_eq!(found, expected);
        assert_eq!(fs::read(root.join("a")).unwrap(), b"old");
    }

    #[test]
    fn a_write_right_after_the_copy_is_found_though_the_clock_stood_still() {
        for round in 0..40 {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("root")).unwrap();
            fs::write(dir.path().join("root/a"), "old").unwrap();
            let layer = copied_layer(dir.path());
            let a = layer.copy_dir().unwrap().join("a");
            let modified = fs::metadata(&a).unwrap().modified().unwrap();
            fs::write(&a, "new").unwrap();
            let file = File::options().write(true).open(&a).unwrap();
            file.set_times(FileTimes::new().set_modified(modified)).unwrap();
            assert_eq!(layer_changes(&layer), [("a".to_owned(), ChangeKind::Modify)], "round {round}");
        }
    }

    #[test]
    fn nothing_is_copied_without_room() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("root/a"), "old").unwrap();
        let mut layer = Layer::new(&dir.path().join("root"), dir.path().join("layer")).unwrap();
        let said = layer.make_copy(&mut |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err().to_string();
        assert!(said.contains("cannot be copied for the step") && said.contains("at a:"), "{said}");
    }
}
