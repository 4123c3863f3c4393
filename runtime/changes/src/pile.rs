//! Uncommitted changes, as later steps see them.
//!
//! Overlayfs accepts changes of a directory in the form of an upper directory: [`write_upper`] makes one from a
//! change set, with whiteouts for removed files. [`Below`] is the view of a step below its own layer: this
//! upper directory, and the directory itself below that.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, FileTimes, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;

use crate::acl::Acl;
use crate::commit::Contents;
use crate::disk::{Disk, fill_file, set_link_time, time_of};
use crate::files::{Files, RootedPath, Seen, What};
use crate::set::{ByteText, Change, ChangeSet, Entry, RelPath, Time, is_cut_off};

/// Marks an inode of the pile, because inodes of the pile and of the directory may have the same numbers.
const OF_PILE: u64 = 1 << 63;

impl ChangeSet {
    /// The changes that a process sees in `dir`, by their paths in it. This includes changes of directories
    /// around and inside of it.
    #[must_use]
    pub fn seen_from(&self, dir: &Path) -> Vec<Change> {
        let dir: ByteText = dir.as_os_str().as_bytes().to_vec().into();
        let changes = self.changes().filter_map(|(root, change)| {
            if *root == dir {
                return Some(change.clone());
            }
            match (dir.path_in(root), root.path_in(&dir)) {
                (Some(inner), _) => change.from(&inner),
                (_, Some(outer)) => Some(change.prefixed_with(&outer)),
                (None, None) => None,
            }
        });
        changes.collect()
    }

    /// True if a change makes, removes or replaces a directory or one above it, so that a process sees a
    /// different directory there before the commit.
    #[must_use]
    pub fn replaces_directory(&self, dir: &Path) -> bool {
        let dir: ByteText = dir.as_os_str().as_bytes().to_vec().into();
        self.changes().any(|(root, change)| {
            let Some(inner) = dir.path_in(root) else { return false };
            let is_kept = |entry: &Option<Entry>| entry.as_ref().is_some_and(Entry::is_directory);
            let is_above = inner == change.path || inner.from(&change.path).is_some();
            is_above && !(is_kept(&change.before) && is_kept(&change.after))
        })
    }
}

/// Writes changes of a directory to the empty directory `to`, in the form of an upper directory. Returns
/// false if the kernel does not accept it, because no whiteout can be made; a pipe represents it then.
pub(crate) fn write_upper(
    changes: &[Change],
    base: &Disk,
    to: &Path,
    contents: &dyn Contents,
) -> io::Result<bool> {
    let becomes: BTreeMap<&RelPath, &Change> = changes.iter().map(|change| (&change.path, change)).collect();
    let mut laid = Laid { to, base, made: BTreeSet::new(), modes: Vec::new() };
    let mut names = Vec::new();
    let mut is_for_kernel = true;
    // Entries of a removed or replaced directory are removed with it.
    for change in changes.iter().filter(|change| !is_cut_off(&change.path, &becomes)) {
        let at = laid.prepare_path(&change.path)?;
        match &change.after {
            None => {
                // In a new directory, a whiteout is harmless.
                match mknodat(CWD, &at, FileType::CharacterDevice, Mode::empty(), 0) {
                    Err(Errno::PERM) => {
                        mknodat(CWD, &at, FileType::Fifo, Mode::RUSR, 0)?;
                        is_for_kernel = false;
                    }
                    other => other?,
                }
            }
            Some(Entry::Directory { mode, acl }) => {
                laid.make_directory(&change.path, *mode, None, acl.as_deref())?
            }
            Some(Entry::Link { target, modified }) => {
                symlink(OsStr::from_bytes(target.as_bytes()), &at)?;
                modified.map_or(Ok(()), |time| set_link_time(CWD, at.as_os_str(), time))?;
            }
            Some(Entry::File { same_as: Some(of), .. }) => names.push((of, at, change)),
            Some(Entry::File { .. }) => laid.write_file(change, &at, contents)?,
        }
    }
    for (of, at, change) in names {
        match fs::hard_link(to.join(as_path(of)), &at) {
            // The other name belongs to an earlier file that did not change.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                laid.write_file(change, &at, contents)?
            }
            other => other?,
        }
    }
    laid.finish_directories()?;
    Ok(is_for_kernel)
}

struct Laid<'l> {
    to: &'l Path,
    base: &'l Disk,
    made: BTreeSet<RelPath>,
    /// Set last, because some of them prevent further changes.
    modes: Vec<(PathBuf, u32, Option<Time>)>,
}

impl Laid<'_> {
    /// Location of a path, after its directories were made.
    fn prepare_path(&mut self, path: &RelPath) -> io::Result<PathBuf> {
        let mut above: Vec<RelPath> = path.ancestors().collect();
        above.reverse();
        for dir in above {
            if self.made.contains(&dir) {
                continue;
            }
            // The directory itself has not changed, so it is made like the existing one.
            let place = RootedPath { root: 0, path: dir.clone() };
            let found = self.base.read_status(&place)?.filter(|found| found.what == What::Directory);
            let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let acl = self.base.acl(&place)?;
            self.make_directory(&dir, found.mode, Some(found.modified), acl.as_deref())?;
        }
        Ok(self.to.join(as_path(path)))
    }

    fn make_directory(
        &mut self,
        path: &RelPath,
        mode: u32,
        modified: Option<Time>,
        acl: Option<&Acl>,
    ) -> io::Result<()> {
        let at = self.to.join(as_path(path));
        DirBuilder::new().mode(0o700).create(&at)?;
        self.own_like(path, &at)?;
        acl.map_or(Ok(()), |acl| acl.give_to(&File::open(&at)?))?;
        self.modes.push((at, mode, modified));
        self.made.insert(path.clone());
        Ok(())
    }

    fn write_file(&self, change: &Change, at: &Path, contents: &dyn Contents) -> io::Result<()> {
        let Some(Entry::File { digest, mode, modified, acl, .. }) = &change.after else { return Ok(()) };
        let mut file = File::options().write(true).create_new(true).open(at)?;
        fill_file(&mut file, &mut contents.open_content(digest)?)?;
        self.own_like(&change.path, at)?;
        acl.as_ref().map_or(Ok(()), |acl| acl.give_to(&file))?;
        file.set_permissions(Permissions::from_mode(*mode))?;
        modified.map_or(Ok(()), |time| file.set_times(FileTimes::new().set_modified(time_of(time))))
    }

    /// Sets the owner of the existing file. Only root can do that, and it only matters for root.
    fn own_like(&self, path: &RelPath, at: &Path) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        match self.base.owner(&RootedPath { root: 0, path: path.clone() })? {
            Some((user, group)) => chown(at, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    fn finish_directories(&self) -> io::Result<()> {
        for (at, mode, modified) in self.modes.iter().rev() {
            if let Some(time) = modified {
                File::open(at)?.set_times(FileTimes::new().set_modified(time_of(*time)))?;
            }
            fs::set_permissions(at, Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}

/// The files that a step sees below its layer.
pub(crate) struct Below {
    base: Disk,
    pile: Option<Disk>,
}

impl Below {
    /// A directory, and the upper directory over it.
    pub(crate) fn new(base: Disk, pile: Option<Disk>) -> Self {
        Self { base, pile }
    }

    /// Status of a place, unless an earlier change removed it.
    pub(crate) fn read_status(&self, place: &RootedPath) -> io::Result<Option<Seen>> {
        match self.of_pile(place)? {
            OfPile::Hides => Ok(None),
            OfPile::Has(seen) => Ok(Some(Seen { inode: seen.inode | OF_PILE, ..seen })),
            OfPile::Nothing => self.base.read_status(place),
        }
    }

    fn of_pile(&self, place: &RootedPath) -> io::Result<OfPile> {
        let Some(pile) = &self.pile else { return Ok(OfPile::Nothing) };
        let hides = |seen: &Seen| seen.what == What::Other;
        match pile.read_status(place)? {
            Some(seen) if hides(&seen) => return Ok(OfPile::Hides),
            Some(seen) => return Ok(OfPile::Has(seen)),
            None => {}
        }
        for above in place.path.ancestors() {
            if let Some(seen) = pile.read_status(&RootedPath { root: place.root, path: above })? {
                let is_through = seen.what == What::Directory;
                return Ok(if is_through { OfPile::Nothing } else { OfPile::Hides });
            }
        }
        Ok(OfPile::Nothing)
    }

    /// Change time of a file in the directory itself. Files of the pile are changed by no other program.
    pub(crate) fn change_time(&self, place: &RootedPath) -> io::Result<Option<Time>> {
        match self.of_pile(place)? {
            OfPile::Nothing => self.base.change_time(place),
            OfPile::Has(_) | OfPile::Hides => Ok(Some(Time(0, 0))),
        }
    }

    /// The file at a place.
    pub(crate) fn open_file(&self, place: &RootedPath) -> io::Result<File> {
        self.disk_holding(place)?.open_file(place, OFlags::RDONLY)
    }

    /// Owner of the file at a place: a user and a group.
    pub(crate) fn owner(&self, place: &RootedPath) -> io::Result<Option<(u32, u32)>> {
        self.disk_holding(place)?.owner(place)
    }

    /// Access control lists of the file at a place.
    pub(crate) fn acl(&self, place: &RootedPath) -> io::Result<Option<Box<Acl>>> {
        self.disk_holding(place)?.acl(place)
    }

    pub(crate) fn read_link(&self, place: &RootedPath) -> io::Result<ByteText> {
        self.disk_holding(place)?.read_link(place)
    }

    fn disk_holding(&self, place: &RootedPath) -> io::Result<&Disk> {
        Ok(match (self.of_pile(place)?, &self.pile) {
            (OfPile::Has(_), Some(pile)) => pile,
            _ => &self.base,
        })
    }

    /// Names in a directory, or in the root itself.
    pub(crate) fn names_below(&self, dir: Option<&RelPath>) -> io::Result<Vec<Vec<u8>>> {
        let names_in = |disk: &Disk| -> io::Result<Vec<Vec<u8>>> {
            let Some(path) = dir else { return disk.names_in_root() };
            let place = RootedPath { root: 0, path: path.clone() };
            let is_directory = disk.read_status(&place)?.is_some_and(|seen| seen.what == What::Directory);
            if is_directory { disk.list_names(&place) } else { Ok(Vec::new()) }
        };
        let mut names: BTreeSet<Vec<u8>> = names_in(&self.base)?.into_iter().collect();
        for name in self.pile.as_ref().map_or_else(|| Ok(Vec::new()), names_in)? {
            let child = RootedPath { root: 0, path: RelPath::below(dir, &name) };
            if matches!(self.of_pile(&child)?, OfPile::Hides) {
                names.remove(&name);
            } else {
                names.insert(name);
            }
        }
        Ok(names.into_iter().collect())
    }
}

/// State of a path in the pile.
enum OfPile {
    /// Removed.
    Hides,
    /// Present.
    Has(Seen),
    /// Not in the pile: the file of the directory below is visible.
    Nothing,
}

pub(crate) fn as_path(path: &RelPath) -> &Path {
    Path::new(OsStr::from_bytes(path.as_bytes()))
}
