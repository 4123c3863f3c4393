//! The real file system. The kernel resolves every path below the root's own descriptor, without following
//! links or entering other mounts (`openat2`).

use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps, fchmod,
    fchown, fgetxattr, flistxattr, fsetxattr, fstat, fsync, ioctl_ficlone, linkat, mkdirat, openat, openat2,
    readlinkat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use lobster_base::whole_sync::{can_sync_file_system, sync_file_system};

use crate::acl::Acl;
use crate::commit::{CommitError, Content};
use crate::files::{Files, Looks, RootedPath, Seen, What};
use crate::set::{ByteText, ChangeSet, RelPath, Time};
use lobster_base::fault::point;

/// Restrictions on the resolution of paths.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Steps from which one sync of the whole file system is cheaper than one for each file.
const MANY: usize = 32;

/// The kernel accepts paths up to 4096 bytes; longer paths are walked in parts.
const PART: usize = 3000;

pub(crate) struct Disk {
    roots: Vec<Root>,
}

struct Root {
    top: OwnedFd,
    /// A directory of the root that stays open.
    held: OnceLock<(RelPath, OwnedFd)>,
}

/// The directory that contains a place.
enum Above<'d> {
    Open(BorrowedFd<'d>),
    Opened(OwnedFd),
}

impl AsFd for Above<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(dir) => *dir,
            Self::Opened(dir) => dir.as_fd(),
        }
    }
}

impl Disk {
    /// Opens the roots of a change set and holds them open.
    pub(crate) fn open(set: &ChangeSet) -> Result<Self, CommitError> {
        let roots = set.roots.iter().map(|root| open_root(&root.root)).collect::<Result<_, _>>()?;
        Ok(Self { roots })
    }

    /// Opens one directory.
    pub(crate) fn of_root(root: &ByteText) -> Result<Self, CommitError> {
        Ok(Self { roots: vec![open_root(root)?] })
    }

    /// Time of the last change of the file at a place: of its content, status or names. No program can set
    /// it.
    pub(crate) fn change_time(&self, place: &RootedPath) -> io::Result<Option<Time>> {
        match statat(self.parent_of(place)?, last_name(place), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Time(stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or_default()))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Owner of the file at a place: a user and a group.
    pub(crate) fn owner(&self, place: &RootedPath) -> io::Result<Option<(u32, u32)>> {
        if self.read_status(place)?.is_none() {
            return Ok(None);
        }
        let stat = statat(self.parent_of(place)?, last_name(place), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Some((stat.st_uid, stat.st_gid)))
    }

    /// Access control lists of the file at a place.
    pub(crate) fn acl(&self, place: &RootedPath) -> io::Result<Option<Box<Acl>>> {
        Acl::of_file(&self.open_file(place, OFlags::RDONLY)?)
    }

    fn root(&self, root: usize) -> io::Result<&Root> {
        self.roots.get(root).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens the directory at a path, or the root itself for `None`.
    fn open_directory(&self, root: usize, path: Option<&RelPath>, flags: OFlags) -> io::Result<OwnedFd> {
        let Root { top, held } = self.root(root)?;
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(path) = path else { return Ok(openat(top, ".", flags, Mode::empty())?) };
        if let Some((_, held)) = held.get().filter(|held| held.0 == *path) {
            return Ok(openat(held, ".", flags, Mode::empty())?);
        }
        let mut at: Option<OwnedFd> = None;
        let mut rest = path.as_bytes();
        while !rest.is_empty() {
            let cut = if rest.len() <= PART {
                rest.len()
            } else {
                rest[..PART].iter().rposition(|byte| *byte == b'/').unwrap_or(rest.len())
            };
            let part = OsStr::from_bytes(&rest[..cut]);
            rest = rest.get(cut + 1..).unwrap_or_default();
            let flags =
                if rest.is_empty() { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC };
            let from = at.as_ref().unwrap_or(top).as_fd();
            let next = openat2(from, part, flags, Mode::empty(), BENEATH)?;
            at = Some(next);
        }
        at.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The directory that contains a place.
    fn parent_of(&self, place: &RootedPath) -> io::Result<Above<'_>> {
        let Root { top, held } = self.root(place.root)?;
        let Some(above) = place.path.parent() else { return Ok(Above::Open(top.as_fd())) };
        match held.get() {
            Some((path, held)) if *path == above => Ok(Above::Open(held.as_fd())),
            _ => Ok(Above::Opened(self.open_directory(place.root, Some(&above), OFlags::PATH)?)),
        }
    }

    /// The names in the first root.
    pub(crate) fn names_in_root(&self) -> io::Result<Vec<Vec<u8>>> {
        names_in(self.open_directory(0, None, OFlags::RDONLY)?)
    }

    pub(crate) fn open_file(&self, place: &RootedPath, flags: OFlags) -> io::Result<File> {
        // Opening a pipe must not wait.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = &place.path;
        let is_held = |Root { held, .. }: &Root| held.get().is_some_and(|held| path.from(&held.0).is_some());
        let root = self.root(place.root)?;
        let file = if is_held(root) || path.as_bytes().len() > PART {
            openat2(self.parent_of(place)?, last_name(place), flags, Mode::empty(), BENEATH)?
        } else {
            openat2(&root.top, OsStr::from_bytes(path.as_bytes()), flags, Mode::empty(), BENEATH)?
        };
        Ok(file.into())
    }
}

fn open_root(root: &ByteText) -> Result<Root, CommitError> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let path = OsStr::from_bytes(root.as_bytes());
    let top = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|error| CommitError::Root { root: root.clone(), source: error.into() })?;
    Ok(Root { top, held: OnceLock::new() })
}

fn names_in(dir: OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn last_name(place: &RootedPath) -> &OsStr {
    OsStr::from_bytes(place.path.last_name())
}

/// Converts the result of a stat.
fn seen_by_stat(stat: &Stat) -> Seen {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => What::File,
        FileType::Directory => What::Directory,
        FileType::Symlink => What::Link,
        _ => What::Other,
    };
    #[allow(clippy::useless_conversion, reason = "32 bits wide on aarch64")]
    let names = stat.st_nlink.into();
    Seen {
        what,
        inode: stat.st_ino,
        size: stat.st_size.unsigned_abs(),
        modified: Time(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or_default()),
        mode: stat.st_mode & 0o7777,
        names,
    }
}

fn set_time(file: &File, time: Time) -> io::Result<()> {
    file.set_times(FileTimes::new().set_modified(time_of(time)))
}

/// Sets the modification time of a link, not of its target.
pub(crate) fn set_link_time(above: impl AsFd, name: &OsStr, Time(seconds, nanos): Time) -> io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(above, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Converts a time to the type of the standard library.
pub(crate) fn time_of(Time(seconds, nanos): Time) -> SystemTime {
    let since = Duration::new(seconds.unsigned_abs(), 0);
    let whole = if seconds >= 0 { SystemTime::UNIX_EPOCH + since } else { SystemTime::UNIX_EPOCH - since };
    whole + Duration::new(0, nanos)
}

/// Copies owner and attributes of the replaced file. Returns true if anything had to be changed, because the
/// mode may have changed as well.
fn make_like(file: &File, like: &File) -> io::Result<bool> {
    let (ours, theirs) = (fstat(file)?, fstat(like)?);
    let mut has_changed = false;
    if (ours.st_uid, ours.st_gid) != (theirs.st_uid, theirs.st_gid) {
        let owner = rustix::fs::Uid::from_raw(theirs.st_uid);
        let group = rustix::fs::Gid::from_raw(theirs.st_gid);
        fchown(file, Some(owner), Some(group))?;
        has_changed = true;
    }
    let list = attribute_names(|list| flistxattr(like, list))?;
    let mut value = if list.is_empty() { Vec::new() } else { vec![0; LONGEST_ATTRIBUTES] };
    for attribute in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // A capability belongs to the content for which it was granted.
        if attribute == b"security.capability" || attribute == b"security.selinux" {
            continue;
        }
        let attribute = OsStr::from_bytes(attribute);
        let length = fgetxattr(like, attribute, &mut value)?;
        fsetxattr(file, attribute, &value[..length], rustix::fs::XattrFlags::empty())?;
        has_changed = true;
    }
    Ok(has_changed)
}

/// The kernel's limit for the value of an attribute, and for the names of all attributes of a file.
const LONGEST_ATTRIBUTES: usize = 64 << 10;

/// The names of a file's attributes, each followed by a NUL, as `list` writes them to a buffer.
pub(crate) fn attribute_names(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    // Most files have none, and most files in a layer have only the kernel's own.
    let mut some = [0; 512];
    match list(&mut some) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(Errno::RANGE) => {}
        length => return Ok(some[..length?].to_vec()),
    }
    let mut all = vec![0; LONGEST_ATTRIBUTES];
    let length = list(&mut all)?;
    all.truncate(length);
    Ok(all)
}

impl Files for Disk {
    fn hold_directory(&self, place: &RootedPath) {
        let held = self.open_directory(place.root, Some(&place.path), OFlags::PATH);
        // If it cannot be held, it is looked up each time, and the error is found then.
        if let (Ok(held), Ok(root)) = (held, self.root(place.root)) {
            let _ = root.held.set((place.path.clone(), held));
        }
    }

    fn read_status(&self, place: &RootedPath) -> io::Result<Option<Seen>> {
        let above = match self.parent_of(place) {
            Err(error) => {
                let code = error.raw_os_error().map(Errno::from_raw_os_error);
                let gone = matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
                return if gone { Ok(None) } else { Err(error) };
            }
            Ok(above) => above,
        };
        match statat(above, last_name(place), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(seen_by_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_file<'a>(&'a self, place: &RootedPath) -> io::Result<Box<dyn Read + 'a>> {
        Ok(Box::new(self.open_file(place, OFlags::RDONLY)?))
    }

    fn read_link(&self, place: &RootedPath) -> io::Result<ByteText> {
        Ok(readlinkat(self.parent_of(place)?, last_name(place), Vec::new())?.into_bytes().into())
    }

    fn list_names(&self, place: &RootedPath) -> io::Result<Vec<Vec<u8>>> {
        names_in(self.open_directory(place.root, Some(&place.path), OFlags::RDONLY)?)
    }

    fn make_directory(&self, place: &RootedPath, mode: u32) -> io::Result<()> {
        point("make directory")?;
        let above = self.parent_of(place)?;
        mkdirat(&above, last_name(place), Mode::RWXU)?;
        Acl::remove_from(&self.open_file(place, OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        // Independent of the umask.
        self.set_mode(place, mode, false)
    }

    fn give_lists(&self, place: &RootedPath, acl: &Acl, mode: u32) -> io::Result<()> {
        acl.give_to(&self.open_file(place, OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        self.set_mode(place, mode, false)
    }

    fn make_file(
        &self,
        place: &RootedPath,
        content: &mut Content<'_>,
        Looks { mode, modified, like, acl }: &Looks<'_>,
        sync: bool,
    ) -> io::Result<()> {
        point("make file")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Setting attributes requires write permission.
        let rights = Mode::from_raw_mode(*mode & 0o777) | Mode::RUSR | Mode::WUSR;
        let mut file: File = openat(self.parent_of(place)?, last_name(place), flags, rights)?.into();
        fill_file(&mut file, content)?;
        let mut has_mode = fstat(&file)?.st_mode & 0o7777 == *mode;
        if let Some(like) = like {
            has_mode &= !make_like(&file, &self.open_file(like, OFlags::RDONLY)?)?;
        } else if let Some(acl) = acl {
            acl.give_to(&file)?;
            has_mode = false;
        }
        if !has_mode {
            fchmod(&file, Mode::from_raw_mode(*mode))?;
        }
        modified.map_or(Ok(()), |time| set_time(&file, time))?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    fn make_link(&self, place: &RootedPath, target: &ByteText, modified: Option<Time>) -> io::Result<()> {
        point("make link")?;
        let above = self.parent_of(place)?;
        symlinkat(OsStr::from_bytes(target.as_bytes()), &above, last_name(place))?;
        modified.map_or(Ok(()), |time| set_link_time(&above, last_name(place), time))
    }

    fn make_name(&self, of: &RootedPath, place: &RootedPath) -> io::Result<()> {
        point("make name")?;
        Ok(linkat(
            self.parent_of(of)?,
            last_name(of),
            self.parent_of(place)?,
            last_name(place),
            AtFlags::empty(),
        )?)
    }

    fn rename(&self, from: &RootedPath, to: &RootedPath) -> io::Result<()> {
        point("rename")?;
        let flags = RenameFlags::NOREPLACE;
        Ok(renameat_with(self.parent_of(from)?, last_name(from), self.parent_of(to)?, last_name(to), flags)?)
    }

    fn exchange(&self, a: &RootedPath, b: &RootedPath) -> io::Result<()> {
        point("exchange")?;
        match renameat_with(
            self.parent_of(a)?,
            last_name(a),
            self.parent_of(b)?,
            last_name(b),
            RenameFlags::EXCHANGE,
        ) {
            Err(Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
            other => Ok(other?),
        }
    }

    fn set_mode(&self, place: &RootedPath, mode: u32, sync: bool) -> io::Result<()> {
        point("set mode")?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(mode);
        match openat2(self.parent_of(place)?, last_name(place), flags, Mode::empty(), BENEATH) {
            Ok(file) => {
                fchmod(&file, mode)?;
                if sync { Ok(fsync(file)?) } else { Ok(()) }
            }
            // No user may read it, but its owner may change that.
            Err(Errno::ACCESS) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat2(self.parent_of(place)?, last_name(place), flags, Mode::empty(), BENEATH)?;
                if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Symlink {
                    return Err(Errno::LOOP.into());
                }
                let held = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
                rustix::fs::chmod(held, mode)?;
                if sync { self.sync_contents(place.root) } else { Ok(()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn rewrite_file(&self, from: &RootedPath, to: &RootedPath) -> io::Result<()> {
        point("rewrite")?;
        let source = self.open_file(from, OFlags::RDONLY)?;
        let told = source.metadata()?;
        let mut file = self.open_file(to, OFlags::WRONLY)?;
        file.set_len(0)?;
        point("rewrite")?;
        fill_file(&mut file, &mut Content::File(source))?;
        file.set_permissions(told.permissions())?;
        file.set_times(FileTimes::new().set_modified(told.modified()?))?;
        file.sync_all()
    }

    fn remove_file(&self, place: &RootedPath) -> io::Result<()> {
        point("remove file")?;
        Ok(unlinkat(self.parent_of(place)?, last_name(place), AtFlags::empty())?)
    }

    fn remove_directory(&self, place: &RootedPath) -> io::Result<()> {
        point("remove directory")?;
        Ok(unlinkat(self.parent_of(place)?, last_name(place), AtFlags::REMOVEDIR)?)
    }

    fn syncs_as_one(&self, root: usize, steps: usize) -> bool {
        steps > MANY && self.root(root).is_ok_and(|root| can_sync_file_system(&root.top))
    }

    fn sync_contents(&self, root: usize) -> io::Result<()> {
        point("sync contents")?;
        sync_file_system(&self.root(root)?.top)
    }

    fn sync_directory(&self, root: usize, path: Option<&RelPath>) -> io::Result<()> {
        point("sync directory")?;
        Ok(fsync(self.open_directory(root, path, OFlags::RDONLY)?)?)
    }
}

/// Writes the content of an empty file.
pub(crate) fn fill_file(file: &mut File, content: &mut Content<'_>) -> io::Result<()> {
    if let Content::File(from) = content
        && ioctl_ficlone(&*file, &*from).is_ok()
    {
        return Ok(());
    }
    copy_sparse(content, file)
}

/// Blocks of zeros become holes, as in sparse files.
pub(crate) fn copy_sparse(from: &mut dyn Read, to: &mut File) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    // Most files are small.
    let mut block = vec![0; 4 << 10];
    let mut length = 0;
    let mut ends_in_hole = false;
    loop {
        let mut filled = 0;
        while filled < block.len() {
            match from.read(&mut block[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled < block.len() {
            to.write_all(&block[..filled])?;
            return if filled == 0 && ends_in_hole { to.set_len(length) } else { Ok(()) };
        }
        length += filled as u64;
        ends_in_hole = block.iter().all(|byte| *byte == 0);
        if ends_in_hole {
            to.seek(SeekFrom::Start(length))?;
        } else {
            to.write_all(&block)?;
        }
        block.resize(64 << 10, 0);
    }
}
