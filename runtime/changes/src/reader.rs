//! Reads the changes of a step, either from the upper directory of its layer or from the copy on which it
//! worked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{getxattr, lgetxattr, llistxattr};
use rustix::io::Errno;

use crate::acl::Acl;
use crate::copy::Copied;
use crate::disk::attribute_names;
use crate::files::{RootedPath, Seen, What};
use crate::layer::{Keep, LayerError};
use crate::pile::{Below, as_path};
use crate::set::{ByteText, Change, Entry, RelPath, Time};

pub(crate) struct Reader<'k> {
    below: Below,
    upper: PathBuf,
    root: ByteText,
    made: Time,
    keep: &'k mut dyn Keep,
    /// The copy on which the step worked instead of a layer.
    copied: Option<&'k Copied>,
    changes: Vec<Change>,
    /// First name of each new file that has several.
    files: BTreeMap<u64, RelPath>,
    /// First name, and new content, of each file below that had several names.
    pairs: BTreeMap<u64, (RelPath, Entry)>,
    /// Files that the kernel copied from below, but without a file below at their paths, each with the
    /// kernel's note of its origin.
    moved: Vec<(RelPath, Vec<u8>)>,
    /// Files below at the paths where the step changed something.
    lower_files: Vec<(RelPath, u64)>,
}

impl<'k> Reader<'k> {
    pub(crate) fn new(
        below: Below,
        upper: PathBuf,
        root: ByteText,
        made: Time,
        keep: &'k mut dyn Keep,
    ) -> Self {
        let (changes, files, pairs) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (moved, lower_files) = (Vec::new(), Vec::new());
        Self { below, upper, root, made, keep, copied: None, changes, files, pairs, moved, lower_files }
    }

    /// Reads a copy, if there is one, instead of the upper directory of a layer.
    pub(crate) fn compare_with(&mut self, copied: Option<&'k Copied>) {
        self.copied = copied;
    }

    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    pub(crate) fn read_status(&self, place: &RootedPath) -> Result<Option<Seen>, LayerError> {
        self.below.read_status(place).map_err(|source| self.read_error(Some(&place.path), source))
    }

    /// True if the layer has a copy of the file below at its own name only.
    fn is_copied_in_place(&self, path: &RelPath) -> bool {
        let at = self.in_upper(path);
        let is_one = fs::symlink_metadata(&at).is_ok_and(|found| found.is_file() && found.nlink() == 1);
        is_one && matches!(overlay_origin(&at), Ok(Some(_)))
    }

    /// Checks the origins of copies without a file below. If the step moved or linked a file, its origin is
    /// below at another name, which the layer hides or links. Otherwise another program removed that file
    /// meanwhile. If the kernel only notes that it made a copy, any such file may be the origin.
    pub(crate) fn check_origins(&self) -> Result<(), LayerError> {
        if self.moved.is_empty() {
            return Ok(());
        }
        // Files that the layer hides, or has under several names.
        let hidden = self.lower_files.iter().filter(|(path, _)| !self.is_copied_in_place(path));
        let hidden: BTreeSet<u64> = hidden.map(|(_, inode)| *inode).collect();
        let is_there = |origin: &[u8]| match origin.get(ORIGIN_FILE..) {
            Some(file) => {
                file.windows(4).any(|word| hidden.iter().any(|inode| *word == inode.to_le_bytes()[..4]))
            }
            None => !hidden.is_empty(),
        };
        match self.moved.iter().find(|(_, origin)| !is_there(origin)) {
            Some((path, _)) => Err(self.edited_error(path)),
            None => Ok(()),
        }
    }

    /// Reads a directory of the layer. `below` means that the directory also exists below the layer, and
    /// `anew` that it hides everything there.
    pub(crate) fn read_directory(
        &mut self,
        path: Option<&RelPath>,
        below: bool,
        anew: bool,
    ) -> Result<(), LayerError> {
        let dir = path.map_or_else(|| self.upper.clone(), |path| self.in_upper(path));
        let list = || -> io::Result<Vec<OsString>> {
            let mut names =
                fs::read_dir(&dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
            let copied = self.copied.filter(|_| below).map_or(&[][..], |copied| copied.copied_names(path));
            names.extend(copied.iter().map(|name| OsString::from_vec(name.clone())));
            names.sort();
            names.dedup();
            Ok(names)
        };
        let names = with_access(&dir, 0o500, list).map_err(|source| self.read_error(path, source))?;
        for name in names {
            let path = RelPath::below(path, name.as_bytes());
            self.read_entry(&path, below, anew)?;
        }
        Ok(())
    }

    fn read_entry(&mut self, path: &RelPath, below: bool, anew: bool) -> Result<(), LayerError> {
        let at = self.in_upper(path);
        let place = RootedPath { root: 0, path: path.clone() };
        let found = match (fs::symlink_metadata(&at), self.copied) {
            (Err(error), Some(_)) if error.kind() == io::ErrorKind::NotFound => None,
            (Ok(found), Some(copied)) if !found.is_dir() && copied.is_unchanged(path, &found) => {
                return Ok(());
            }
            (found, _) => Some(found.map_err(|source| self.read_error(Some(path), source))?),
        };
        let lower = if below { self.read_status(&place)? } else { None };
        let is_whiteout = |found: &fs::Metadata| {
            self.copied.is_none() && found.file_type().is_char_device() && found.rdev() == 0
        };
        let Some(found) = found.filter(|found| !is_whiteout(found)) else {
            return match lower {
                Some(lower) => self.add_removal(path, lower),
                // A file that the step removed is also gone below.
                None => Err(self.edited_error(path)),
            };
        };
        let kind = found.file_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            return Err(LayerError::Special { root: self.root.clone(), path: path.clone() });
        }
        if kind.is_dir() {
            return self.changed_directory(path, found.mode() & 0o7777, lower, anew);
        }
        if lower.is_none()
            && self.copied.is_none()
            && let Some(origin) = overlay_origin(&at).map_err(|source| self.read_error(Some(path), source))?
        {
            self.moved.push((path.clone(), origin));
        }
        let before = self.former_entry(path, lower)?;
        let after = if kind.is_symlink() {
            let target = fs::read_link(&at).map_err(|source| self.read_error(Some(path), source))?;
            let modified = Some(modified_of(&found));
            Entry::Link { target: target.into_os_string().into_vec().into(), modified }
        } else {
            self.read_file(path, &found, lower)?
        };
        if let Entry::File { same_as: None, .. } | Entry::Link { .. } = &after
            && before.as_ref().is_some_and(|before| before.is_same(&after))
        {
            return Ok(());
        }
        if self.copied.is_some() && self.is_same_pair(lower, &before, &after)? {
            return Ok(());
        }
        let shared = shared_inode(lower);
        self.changes.push(Change { path: path.clone(), before, after: Some(after), shared });
        Ok(())
    }

    /// True if a further name of a file was one before, and the file is unchanged.
    fn is_same_pair(
        &self,
        lower: Option<Seen>,
        before: &Option<Entry>,
        after: &Entry,
    ) -> Result<bool, LayerError> {
        let (Some(lower), Some(before)) = (lower, before) else { return Ok(false) };
        let Entry::File { same_as: Some(first), .. } = after else { return Ok(false) };
        let place = RootedPath { root: 0, path: first.clone() };
        let was_one = self.read_status(&place)?.is_some_and(|first| first.inode == lower.inode);
        Ok(was_one && before.is_same(after))
    }

    /// A file that the step made or changed.
    fn read_file(
        &mut self,
        path: &RelPath,
        found: &fs::Metadata,
        lower: Option<Seen>,
    ) -> Result<Entry, LayerError> {
        let at = self.in_upper(path);
        let mode = found.mode() & 0o7777;
        let replaced = lower.filter(|lower| lower.what == What::File);
        if mode & 0o6000 & !replaced.map_or(0, |old| old.mode) != 0 {
            return Err(LayerError::Rights { root: self.root.clone(), path: path.clone() });
        }
        self.check_attributes(path, &at, lower)?;
        let (mode, acl) = self.mode_and_lists(path, &at, mode, replaced)?;
        let keep = &mut self.keep;
        let kept = with_access(&at, 0o400, || keep.keep_file(&mut File::open(&at)?));
        let (digest, size) = kept.map_err(|source| self.read_error(Some(path), source))?;
        let modified = Some(modified_of(found));
        let entry = |same_as| Entry::File { digest, size, mode, modified, same_as, acl: acl.clone() };
        if found.nlink() > 1 {
            let first = self.files.entry(found.ino()).or_insert_with(|| path.clone());
            if first != path {
                return Ok(entry(Some(first.clone())));
            }
        }
        // Two names of one file below with the same new content still belong to one file.
        if let Some(lower) = lower.filter(|lower| lower.what == What::File && lower.names > 1) {
            match self.pairs.get(&lower.inode) {
                Some((first, after)) if after.is_same(&entry(None)) => return Ok(entry(Some(first.clone()))),
                Some(_) => {}
                None => {
                    self.pairs.insert(lower.inode, (path.clone(), entry(None)));
                }
            }
        }
        Ok(entry(None))
    }

    fn changed_directory(
        &mut self,
        path: &RelPath,
        mode: u32,
        lower: Option<Seen>,
        mut anew: bool,
    ) -> Result<(), LayerError> {
        let at = self.in_upper(path);
        let is_below = lower.is_some_and(|lower| lower.what == What::Directory);
        self.check_attributes(path, &at, lower)?;
        let (mode, acl) = self.mode_and_lists(path, &at, mode, lower.filter(|_| is_below))?;
        match lower {
            Some(lower) if is_below => {
                let had = self.copied.and_then(|copied| copied.directory_mode(path)).unwrap_or(lower.mode);
                if had != mode {
                    let entry = |mode| Some(Entry::Directory { mode, acl: acl.clone() });
                    let (before, after) = (entry(lower.mode), entry(mode));
                    self.changes.push(Change { path: path.clone(), before, after, shared: None });
                }
                // The kernel marks only the outermost directory that was made again.
                anew = anew
                    || self.copied.is_none()
                        && is_opaque(&at).map_err(|source| self.read_error(Some(path), source))?;
                if anew {
                    self.remove_entries(path, false)?;
                }
            }
            other => {
                let before = self.former_entry(path, other)?;
                let after = Some(Entry::Directory { mode, acl });
                self.changes.push(Change { path: path.clone(), before, after, shared: None });
            }
        }
        self.read_directory(Some(path), is_below, anew)
    }

    /// Removes the former entries of a directory: all, or those that the upper directory does not have again.
    fn remove_entries(&mut self, path: &RelPath, all: bool) -> Result<(), LayerError> {
        let names = self.below.names_below(Some(path));
        for name in names.map_err(|source| self.read_error(Some(path), source))? {
            let child = path.join(&name);
            if all || fs::symlink_metadata(self.in_upper(&child)).is_err() {
                let place = RootedPath { root: 0, path: child.clone() };
                let seen = self.read_status(&place)?;
                seen.map_or(Ok(()), |seen| self.add_removal(&child, seen))?;
            }
        }
        Ok(())
    }

    /// Removes everything at a path.
    fn add_removal(&mut self, path: &RelPath, lower: Seen) -> Result<(), LayerError> {
        let before = self.former_entry(path, Some(lower))?;
        // The former entries of a directory have been added by `before`.
        let shared = shared_inode(Some(lower));
        self.changes.push(Change { path: path.clone(), before, after: None, shared });
        Ok(())
    }

    /// The former file at a path. If it was a directory, also removes its entries.
    pub(crate) fn former_entry(
        &mut self,
        path: &RelPath,
        lower: Option<Seen>,
    ) -> Result<Option<Entry>, LayerError> {
        let Some(lower) = lower else { return Ok(None) };
        if lower.what == What::File {
            self.lower_files.push((path.clone(), lower.inode));
        }
        let place = RootedPath { root: 0, path: path.clone() };
        // The step saw the state from the time when the layer was made. For a directory, only its entries
        // matter.
        if lower.what != What::Directory {
            let changed =
                self.below.change_time(&place).map_err(|source| self.read_error(Some(path), source))?;
            if changed.is_none_or(|changed| changed > self.made) {
                return Err(self.edited_error(path));
            }
        }
        let unread = |source| LayerError::Read { root: self.root.clone(), path: path.clone(), source };
        Ok(Some(match lower.what {
            What::Other => return Err(LayerError::Special { root: self.root.clone(), path: path.clone() }),
            What::Link => {
                let target = self.below.read_link(&place).map_err(unread)?;
                Entry::Link { target, modified: Some(lower.modified) }
            }
            What::File => {
                let keep = &mut self.keep;
                let kept = self
                    .below
                    .open_file(&place)
                    .and_then(|mut file| Ok((keep.keep_file(&mut file)?, Acl::of_file(&file)?)));
                let ((digest, size), acl) = kept.map_err(unread)?;
                let modified = Some(lower.modified);
                Entry::File { digest, size, mode: lower.mode, modified, same_as: None, acl }
            }
            What::Directory => {
                self.remove_entries(path, true)?;
                let acl = self.below.acl(&place);
                let acl = acl.map_err(|source| self.read_error(Some(path), source))?;
                Entry::Directory { mode: lower.mode, acl }
            }
        }))
    }

    /// Checks that the attributes equal the attributes of the former file, because change sets do not support
    /// attributes.
    fn check_attributes(&self, path: &RelPath, at: &Path, lower: Option<Seen>) -> Result<(), LayerError> {
        let unread = |error: Errno| self.read_error(Some(path), error.into());
        let names = attribute_names(|list| llistxattr(at, list)).map_err(unread)?;
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            // A step's own `user.overlay.x` is stored as `user.overlay.overlay.x`.
            let is_kernels =
                name.starts_with(b"user.overlay.") && !name.starts_with(b"user.overlay.overlay.");
            // Access control lists are examined separately.
            if is_kernels || name.starts_with(b"system.") || name == b"security.selinux" {
                continue;
            }
            if name == b"security.capability" {
                return Err(LayerError::Rights { root: self.root.clone(), path: path.clone() });
            }
            let value = |at: &Path| {
                let mut value = vec![0; 64 << 10];
                let length = lgetxattr(at, OsStr::from_bytes(name), &mut value).ok()?;
                value.truncate(length);
                Some(value)
            };
            let theirs = PathBuf::from(OsStr::from_bytes(self.root.as_bytes())).join(as_path(path));
            if lower.is_none() || value(at) != value(&theirs) {
                let attribute = name.to_vec().into();
                return Err(LayerError::Attribute { root: self.root.clone(), path: path.clone(), attribute });
            }
        }
        Ok(())
    }

    /// The mode and access control lists for committing a file or directory. If it `replaced` another one, it
    /// keeps that one's lists, so the step may not have set others.
    fn mode_and_lists(
        &self,
        path: &RelPath,
        at: &Path,
        mode: u32,
        replaced: Option<Seen>,
    ) -> Result<(u32, Option<Box<Acl>>), LayerError> {
        let unread = |source| self.read_error(Some(path), source);
        let ours = Acl::of_path(at).map_err(unread)?;
        if replaced.is_none() {
            return Ok((mode, ours));
        }
        let theirs = self.below.acl(&RootedPath { root: 0, path: path.clone() }).map_err(unread)?;
        let Some(ours) = ours else { return Ok((mode, theirs)) };
        if theirs.as_ref().is_some_and(|theirs| theirs.is_like(&ours)) {
            return Ok((mode, theirs));
        }
        // A new file in its place has the lists of its directory.
        let above = at.parent().map(Acl::of_path).transpose().map_err(unread)?.flatten();
        if above.is_some_and(|above| ours.is_inherited(&above)) {
            return Ok((ours.mode_without(mode), theirs));
        }
        let attribute = b"system.posix_acl_access".to_vec().into();
        Err(LayerError::Attribute { root: self.root.clone(), path: path.clone(), attribute })
    }

    fn edited_error(&self, path: &RelPath) -> LayerError {
        LayerError::Edited { root: self.root.clone(), path: path.clone() }
    }

    fn in_upper(&self, path: &RelPath) -> PathBuf {
        self.upper.join(as_path(path))
    }

    fn read_error(&self, path: Option<&RelPath>, source: io::Error) -> LayerError {
        match path {
            Some(path) => LayerError::Read { root: self.root.clone(), path: path.clone(), source },
            None => LayerError::Root { root: OsStr::from_bytes(self.root.as_bytes()).into(), source },
        }
    }
}

fn modified_of(found: &fs::Metadata) -> Time {
    Time(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default())
}

/// Inode of a file that has other names.
pub(crate) fn shared_inode(lower: Option<Seen>) -> Option<u64> {
    lower.filter(|lower| lower.what == What::File && lower.names > 1).map(|lower| lower.inode)
}

/// Executes `work` on a file or directory of this user even if its mode does not permit that to its owner.
fn with_access<T>(path: &Path, needed: u32, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let before = fs::symlink_metadata(path)?.permissions();
            fs::set_permissions(path, Permissions::from_mode(before.mode() | needed))?;
            let done = work();
            fs::set_permissions(path, before)?;
            done
        }
        other => other,
    }
}

/// Offset of the file's identity in the kernel's note of an origin, after a header and the name of the file
/// system. The format depends on the file system, but contains the inode, little-endian.
const ORIGIN_FILE: usize = 21;

/// The kernel's note of the file below from which it copied this one.
fn overlay_origin(at: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut value = [0; 256];
    match lgetxattr(at, "user.overlay.origin", &mut value) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_opaque(at: &Path) -> io::Result<bool> {
    let mut value = [0; 8];
    match getxattr(at, "user.overlay.opaque", &mut value) {
        Ok(length) => Ok(&value[..length] == b"y"),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
