//! The inside of the namespaces: identity, network, and a file system made of
//! nothing but what was granted.
//!
//! Runs in the first process of new namespaces, which is also the step's
//! supervisor. Everything is prepared on detached mounts and put together on
//! an empty file system, so the host's own tree is never in reach of a mistake.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, access, chmodat, fstat,
    fstatfs, mkdirat, openat, openat2, seek, symlinkat, tell,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::super::opened_roots::FileId;
use super::sys;
use super::wire::{Confined, Layer, Network, Stage};

/// `TMPFS_MAGIC`.
const TMPFS: i64 = 0x0102_1994;

/// The devices every program may expect.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The mode of a directory that can be gone through and not listed.
const THROUGH: u32 = 0o111;

/// Where the new root is assembled; covered only inside the namespace.
const WORKBENCH: &str = "/proc";

/// What could not be done, in which part of the work, and where.
pub(super) struct Obstacle {
    pub(super) stage: Stage,
    pub(super) error: io::Error,
    pub(super) detail: String,
}

pub(super) fn at<E: Into<io::Error>>(stage: Stage, detail: impl Into<String>) -> impl FnOnce(E) -> Obstacle {
    let detail = detail.into();
    move |error| Obstacle { stage, error: error.into(), detail }
}

fn setup<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Obstacle {
    at(Stage::Namespaces, doing)
}

/// Who the process was outside: read before the user namespace is made.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    uid: u32,
    gid: u32,
}

impl Identity {
    pub(super) fn current() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// Makes the network of these namespaces usable, and gives the namespaces.
    pub(super) fn settle(self) -> Result<[OwnedFd; 2], Obstacle> {
        self.keep().map_err(setup("map the user"))?;
        sys::loopback_up().map_err(setup("start the loopback interface"))?;
        let open = |kind: &str| fs::File::open(format!("/proc/self/ns/{kind}")).map(OwnedFd::from);
        let both = || Ok([open("user")?, open("net")?]);
        both().map_err(|error: io::Error| setup("hold the network")(error))
    }

    /// Stays the same inside: one user, one group, nobody else exists.
    fn keep(self) -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{0} {0} 1", self.uid))?;
        fs::write("/proc/self/gid_map", format!("{0} {0} 1", self.gid))
    }
}

/// Furnishes the namespaces this process has been started in. `stdin` is what the step will read.
pub(super) fn furnish(spec: &Confined, identity: Identity, stdin: &mut OwnedFd) -> Result<(), Obstacle> {
    identity.keep().map_err(setup("map the user"))?;
    rustix::system::sethostname(b"lobster").map_err(setup("name the host"))?;
    if matches!(spec.network, Network::None | Network::Proxy) {
        sys::loopback_up().map_err(setup("start the loopback interface"))?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(setup("detach mounts"))?;
    if let Some(restricted) = read_only(stdin, identity).map_err(setup("restrict stdin"))? {
        *stdin = restricted;
    }
    let plan = plan(spec)?;
    let proc = file_system("proc", &[], MountAttrFlags::empty()).map_err(setup("mount /proc"))?;
    if let Some(processes) = spec.processes {
        bound_numbers(&proc, processes).map_err(at(Stage::ProcessNumbers, "bound the process numbers"))?;
    }
    sys::set_mount_attributes(&proc, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
        .map_err(setup("mount /proc"))?;
    let hides = plan.iter().any(|piece| matches!(piece.what, What::Hidden));
    let root = Root::new(hides)?;
    for piece in &plan {
        root.place(piece)?;
    }
    // All that leads on from there has been made by now.
    for piece in &plan {
        if let What::Passage { tree } = &piece.what {
            close_ways(tree, &piece.path, &spec.own)?;
            sys::set_mount_attributes(tree, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
                .map_err(setup("hide a path"))?;
        }
    }
    // Had somebody put a link or another file there meanwhile, the copy would
    // lie elsewhere.
    for (path, copy) in spec.replaced.iter().zip(&spec.copies) {
        let copy = open_exactly(copy).map_err(at(Stage::Root, copy.display().to_string()))?;
        root.check_same(&copy, path)?;
    }
    root.devices()?;
    root.attach(&proc, Path::new("/proc"), Kind::Directory)?;
    root.enter()
}

/// The same file, opened on a read-only mount of its own: by a descriptor from the host its owner could change
/// its mode and times there, and then open it for writing. `None` for what nothing can be changed of: a pipe
/// has no place on the host, and a file without a name is nobody's.
fn read_only(file: &OwnedFd, identity: Identity) -> io::Result<Option<OwnedFd>> {
    let given = fstat(file)?;
    let kind = FileType::from_raw_mode(given.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::CharacterDevice) || given.st_nlink == 0 {
        return Ok(None);
    }
    let link = |file: &OwnedFd| format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, fs::read_link(link(file))?, flags)?;
    let found = fstat(&tree)?;
    if (found.st_dev, found.st_ino) != (given.st_dev, given.st_ino) {
        return Err(Errno::STALE.into());
    }
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
    sys::set_mount_attributes(&tree, attributes.bits(), false)?;
    let opened =
        match openat(CWD, link(&tree), OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()) {
            // Of somebody else, so the step may change nothing of it either.
            Err(Errno::ACCESS) if given.st_uid != identity.uid => return Ok(None),
            opened => opened?,
        };
    if kind == FileType::RegularFile {
        seek(&opened, SeekFrom::Start(tell(file)?))?;
    }
    Ok(Some(opened))
}

/// Numbers below this are given out once and not again (`RESERVED_PIDS`).
const RESERVED: u64 = 300;

/// Bounds the processes of this namespace by its `pid_max`. Between the limit
/// and [`RESERVED`] more can be alive at once.
fn bound_numbers(proc: &OwnedFd, processes: u64) -> rustix::io::Result<()> {
    // Before Linux 6.14 the file is the whole machine's, and root may write it.
    let release = rustix::system::uname();
    let mut numbers = release.release().to_bytes().split(|byte| !byte.is_ascii_digit());
    let mut next = || std::str::from_utf8(numbers.next()?).ok()?.parse::<u32>().ok();
    if (next(), next()) < (Some(6), Some(14)) {
        return Err(Errno::NOSYS);
    }
    let file = openat(proc, "sys/kernel/pid_max", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, RESERVED.saturating_add(processes).to_string().as_bytes()).map(drop)
}

/// What goes where.
struct Piece {
    path: PathBuf,
    what: What,
}

/// In the order in which pieces of the same path are placed.
enum What {
    /// A tree of the host's, perhaps read-only.
    Tree { tree: OwnedFd, kind: Kind, exact: bool },
    /// An empty file system of its own.
    Private { tree: OwnedFd },
    /// What is there already, mounted on itself: a mount point can be neither moved nor replaced. Unless
    /// it is `needed`, it may have gone by then.
    Held { needed: bool },
    /// Nothing to see: an unreadable file or directory.
    Hidden,
    /// The same, with a way through to what is the step's own.
    Passage { tree: OwnedFd },
}

impl What {
    fn exactly(self) -> Self {
        match self {
            Self::Tree { tree, kind, .. } => Self::Tree { tree, kind, exact: true },
            other => other,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

impl Kind {
    fn of(stat: &Stat) -> Self {
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            Self::Directory
        } else {
            Self::File
        }
    }
}

/// Takes hold of all trees while the host's file system is still in sight.
fn plan(spec: &Confined) -> Result<Vec<Piece>, Obstacle> {
    let mut pieces = Vec::new();
    for path in &spec.private {
        let size = spec.private_size.to_string();
        let tree = file_system("tmpfs", &[("mode", "1777"), ("size", &size)], MountAttrFlags::empty())
            .map_err(setup("mount a private directory"))?;
        pieces.push(Piece { path: path.clone(), what: What::Private { tree } });
    }
    for path in expand(&spec.read)? {
        let what = match spec.held_at(&path) {
            Some(id) => Some(tree_of(open_held(&path, id)?, &path, true)?),
            None => tree(&path, true)?,
        };
        pieces.extend(what.map(|what| Piece { path, what }));
    }
    for path in expand(&spec.write)? {
        let what = match (spec.layer_at(&path), spec.held_at(&path)) {
            (Some(over), held) => layer(over, held)?,
            (None, Some(id)) => tree_of(open_held(&path, id)?, &path, false)?,
            (None, None) => tree(&path, false)?.ok_or_else(|| missing(&path))?,
        };
        pieces.push(Piece { path, what });
    }
    for over in spec.layers().filter(|over| !spec.write.iter().any(|root| root == over.root)) {
        pieces.push(Piece { path: over.root.to_owned(), what: layer(over, spec.held_at(over.root))? });
    }
    // What a link leads to is hidden where it is.
    let hidden: Vec<PathBuf> = spec.deny.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    // What is hidden with its directory is not there to be changed.
    let all_hidden: BTreeSet<&Path> = hidden.iter().map(PathBuf::as_path).collect();
    let is_seen = |path: &&Path| path.ancestors().skip(1).all(|above| !all_hidden.contains(above));
    let protected = spec.protect.iter().map(PathBuf::as_path).filter(|path| is_kept(spec, path));
    let protected: Vec<&Path> = protected.filter(is_seen).filter(|path| may_be_there(path)).collect();
    // A directory above what is hidden or protected could be moved away, and the path made anew, for this
    // step or for the next one: unless it is a mount point too.
    let above_protected = held_above(spec, &protected);
    let above_hidden = held_above(spec, &hidden);
    pieces.extend(above_hidden.difference(&above_protected).map(|path| hold(path, false)));
    pieces.extend(above_protected.iter().map(|path| hold(path, true)));
    for path in protected {
        // The placeholder of a path that does not exist has been made by now.
        let what = tree(path, true)?.ok_or_else(|| missing(path))?;
        // In a layer a file has other numbers.
        let what = if spec.layer_over(path).is_some() { what } else { what.exactly() };
        pieces.push(Piece { path: path.to_owned(), what });
    }
    for (path, copy) in spec.replaced.iter().zip(&spec.copies) {
        let what = tree(copy, true)?.ok_or_else(|| missing(copy))?;
        pieces.push(Piece { path: path.clone(), what });
    }
    for path in &spec.deny {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if spec.own.contains(&real) {
            continue;
        }
        let leads_on = spec.own.iter().any(|own| own.starts_with(&real));
        pieces.push(if leads_on { passage(real)? } else { Piece { path: path.clone(), what: What::Hidden } });
    }
    // From the outside in. The sort is stable: of two pieces for one path the
    // later and stricter in this order lies on top.
    pieces.sort_by_key(|piece| piece.path.components().count());
    Ok(pieces)
}

/// What lies between such a directory and the step's own can be gone through and not listed, as it can itself.
fn close_ways(tree: &OwnedFd, path: &Path, own: &[PathBuf]) -> Result<(), Obstacle> {
    for inner in own.iter().filter_map(|own| own.strip_prefix(path).ok()) {
        for way in inner.ancestors().skip(1).filter(|way| !way.as_os_str().is_empty()) {
            match chmodat(tree, way, Mode::from_raw_mode(THROUGH), AtFlags::empty()) {
                // Where nothing is, there was nothing to be hidden.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(setup("hide a path")(error)),
            }
        }
    }
    Ok(())
}

/// A directory that can be gone through and not listed.
fn passage(path: PathBuf) -> Result<Piece, Obstacle> {
    let options = [("mode", &*format!("{THROUGH:o}")), ("size", "1m")];
    let tree = file_system("tmpfs", &options, MountAttrFlags::empty()).map_err(setup("hide a path"))?;
    Ok(Piece { path, what: What::Passage { tree } })
}

fn hold(path: &Path, needed: bool) -> Piece {
    Piece { path: path.to_owned(), what: What::Held { needed } }
}

/// Whether a protected path is in something that the step may change: what is not there is not in a copy,
/// and what the step makes there is not committed.
fn is_kept(spec: &Confined, path: &Path) -> bool {
    spec.write.iter().any(|root| path.starts_with(root))
        && place_in_copy(spec, path).is_none_or(|place| place.symlink_metadata().is_ok())
}

/// Where a path of a copied root lies in its copy.
fn place_in_copy(spec: &Confined, path: &Path) -> Option<PathBuf> {
    let over = spec.layer_over(path)?;
    Some(over.copy?.join(path.strip_prefix(over.root).ok()?))
}

/// The directories between write roots and these paths. The kernel moves no directory of a layer that lay
/// below it, so nothing there has to be held, but in a copy.
fn held_above<'p>(spec: &Confined, paths: &'p [impl AsRef<Path>]) -> BTreeSet<&'p Path> {
    let mut all = BTreeSet::new();
    for path in paths {
        for above in path.as_ref().ancestors().skip(1) {
            let inside = spec.write.iter().any(|root| above.starts_with(root) && above != root);
            let movable = || match spec.layer_over(above) {
                None => true,
                Some(_) => place_in_copy(spec, above).is_some_and(|place| place.is_dir()),
            };
            if !inside || all.contains(above) {
                break;
            }
            if movable() {
                all.insert(above);
            }
        }
    }
    all
}

/// The root directory as a root means everything in it, but never the host's
/// processes and devices.
fn expand(roots: &[PathBuf]) -> Result<Vec<PathBuf>, Obstacle> {
    let mut all = Vec::new();
    for root in roots {
        if root.parent().is_some() {
            all.push(root.clone());
            continue;
        }
        for entry in fs::read_dir("/").map_err(at(Stage::Root, "/"))? {
            let path = entry.map_err(at(Stage::Root, "/"))?.path();
            if path != Path::new("/proc") && path != Path::new("/dev") {
                all.push(path);
            }
        }
    }
    Ok(all)
}

/// Whether it is there, or this user could make it. What nobody here can make has no placeholder either.
fn may_be_there(path: &Path) -> bool {
    let above = path.ancestors().find(|above| above.symlink_metadata().is_ok());
    above == Some(path) || above.is_some_and(|above| access(above, Access::WRITE_OK).is_ok())
}

fn missing(path: &Path) -> Obstacle {
    at(Stage::Root, path.display().to_string())(Errno::NOENT)
}

/// Opens a path that no symbolic link leads to. What may be written must be
/// named by its real path: an earlier step could have put a link there.
pub(super) fn open_exactly(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Opens a path where the file that was judged must be, and no link leads to it.
pub(super) fn open_held(path: &Path, judged: FileId) -> Result<OwnedFd, Obstacle> {
    let failed = |error: Errno| at(Stage::Root, path.display().to_string())(error);
    let opened = open_exactly(path).map_err(failed)?;
    let found = fstat(&opened).map_err(failed)?;
    if (found.st_dev, found.st_ino) == (judged.device, judged.inode) {
        Ok(opened)
    } else {
        Err(failed(Errno::STALE))
    }
}

/// A detached copy of the tree that was opened.
fn tree_of(opened: OwnedFd, path: &Path, read_only: bool) -> Result<What, Obstacle> {
    let flags = CLONED | OpenTreeFlags::AT_EMPTY_PATH;
    let tree =
        open_tree(opened, "", flags).map_err(at(Stage::Namespaces, format!("bind {}", path.display())))?;
    restricted(tree, path, read_only)
}

/// A root with a layer over it: what is done there goes to the layer. One without an upper
/// directory is only read.
fn layer(over: Layer<'_>, held: Option<FileId>) -> Result<What, Obstacle> {
    let path = over.root;
    let failed = || at(Stage::Layer, format!("mount a layer over {}", path.display()));
    let root = match held {
        Some(id) => open_held(path, id)?,
        None => open_exactly(path).map_err(at(Stage::Root, path.display().to_string()))?,
    };
    let open = |path: &Path| open_exactly(path).map_err(failed());
    if let Some(copy) = over.copy {
        return tree_of(open(copy)?, path, over.upper.is_none());
    }
    // By their descriptors: a path may have a comma or a colon in it.
    let named = |file: &OwnedFd| format!("/proc/self/fd/{}", file.as_raw_fd());
    let below = over.below.map(open).transpose()?;
    let lower = below.iter().chain([&root]).map(named).collect::<Vec<_>>().join(":");
    let mut options = vec![("lowerdir", lower.as_str()), ("userxattr", "")];
    let upper = match over.upper {
        Some((upper, work)) => Some((open(upper)?, open(work)?)),
        None => None,
    };
    let names = upper.as_ref().map(|(upper, work)| (named(upper), named(work)));
    if let Some((upper, work)) = &names {
        options.extend([("upperdir", upper.as_str()), ("workdir", work.as_str())]);
    }
    let mount = |options: &[(&'static str, &str)]| file_system("overlay", options, MountAttrFlags::empty());
    // A layer is thrown away after a crash: no file that is copied into it, nor its end, need wait for the disk.
    let volatile = [&options[..], &[("volatile", "")]].concat();
    let tree = match mount(if upper.is_some() { &volatile } else { &options }) {
        Err(Errno::INVAL) if upper.is_some() => mount(&options),
        other => other,
    };
    restricted(tree.map_err(failed())?, path, upper.is_none())
}

const CLONED: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);

/// A detached copy of the host's tree at `path`; `None` when there is none.
fn tree(path: &Path, read_only: bool) -> Result<Option<What>, Obstacle> {
    let opened = if read_only {
        open_tree(CWD, path, CLONED)
    } else {
        open_exactly(path).and_then(|found| open_tree(found, "", CLONED | OpenTreeFlags::AT_EMPTY_PATH))
    };
    let tree = match opened {
        Ok(tree) => tree,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error @ (Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG)) => {
            return Err(at(Stage::Root, path.display().to_string())(error));
        }
        Err(error) => return Err(at(Stage::Namespaces, format!("bind {}", path.display()))(error)),
    };
    restricted(tree, path, read_only).map(Some)
}

fn restricted(tree: OwnedFd, path: &Path, read_only: bool) -> Result<What, Obstacle> {
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if read_only {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    sys::set_mount_attributes(&tree, attributes.bits(), true)
        .map_err(at(Stage::Namespaces, format!("restrict the mount of {}", path.display())))?;
    let kind = fstat(&tree).map(|stat| Kind::of(&stat)).map_err(setup("look at a root"))?;
    Ok(What::Tree { tree, kind, exact: false })
}

/// A new, detached file system.
fn file_system(
    name: &'static str,
    options: &[(&'static str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    fsconfig_create(context.as_fd())?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The new root while it is being put together.
struct Root {
    root: OwnedFd,
    /// Holds an unreadable file and directory, where something is to be hidden:
    /// taking a mount away again is slow.
    nothing: Option<OwnedFd>,
}

/// Where [`Root::nothing`] is mounted until the root is complete.
const NOTHING: &str = ".nothing";

impl Root {
    fn new(hides: bool) -> Result<Self, Obstacle> {
        let small = [("mode", "0755"), ("size", "1m")];
        let none = MountAttrFlags::empty();
        let root = file_system("tmpfs", &small, none).map_err(setup("mount a new root"))?;
        move_mount(&root, "", CWD, WORKBENCH, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(setup("place the new root"))?;
        if !hides {
            return Ok(Self { root, nothing: None });
        }
        let nothing = file_system("tmpfs", &small, none).map_err(setup("mount a new root"))?;
        let work = || -> rustix::io::Result<()> {
            mkdirat(&nothing, "directory", Mode::empty())?;
            openat(&nothing, "file", OFlags::CREATE | OFlags::CLOEXEC, Mode::empty())?;
            mkdirat(&root, NOTHING, Mode::RWXU)?;
            move_mount(&nothing, "", &root, NOTHING, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        };
        work().map_err(setup("prepare the new root"))?;
        Ok(Self { root, nothing: Some(nothing) })
    }

    fn place(&self, piece: &Piece) -> Result<(), Obstacle> {
        match &piece.what {
            What::Tree { tree, kind, exact } => {
                if *exact {
                    self.check_same(tree, &piece.path)?;
                }
                self.attach(tree, &piece.path, *kind)
            }
            What::Private { tree } => self.attach(tree, &piece.path, Kind::Directory),
            What::Held { needed } => self.hold(&piece.path, *needed),
            What::Hidden => self.hide(&piece.path),
            // Where nothing is, there is nothing to be hidden.
            What::Passage { tree } if self.resolve(&piece.path).is_ok() => {
                self.attach(tree, &piece.path, Kind::Directory)
            }
            What::Passage { .. } => Ok(()),
        }
    }

    /// Mounts what is at `path` on itself, with whatever rights it has there.
    fn hold(&self, path: &Path, needed: bool) -> Result<(), Obstacle> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let target = match openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !needed => return Ok(()),
            Err(error) => return Err(at(Stage::Root, path.display().to_string())(error)),
        };
        let failed = || at(Stage::Namespaces, format!("hold {}", path.display()));
        let tree = open_tree(&target, "", CLONED | OpenTreeFlags::AT_EMPTY_PATH).map_err(failed())?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        match move_mount(&tree, "", &target, "", flags) {
            Err(Errno::NOENT) if !needed => Ok(()),
            other => other.map_err(failed()),
        }
    }

    /// Covers what is at `path`, whatever that is by now. Where nothing is,
    /// there is nothing to be seen.
    fn hide(&self, path: &Path) -> Result<(), Obstacle> {
        let Some(nothing) = &self.nothing else { return Ok(()) };
        let Ok(target) = self.resolve(path) else { return Ok(()) };
        let kind = fstat(&target).map(|stat| Kind::of(&stat)).map_err(setup("hide a path"))?;
        let name = if kind == Kind::File { "file" } else { "directory" };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(nothing, name, flags).map_err(setup("hide a path"))?;
        sys::set_mount_attributes(&tree, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
            .map_err(setup("hide a path"))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        match move_mount(&tree, "", &target, "", flags) {
            // Removed meanwhile.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(at(Stage::Namespaces, format!("hide {}", path.display()))(error)),
        }
    }

    /// A protected path must be itself, not something that a link leads to:
    /// the step could replace the link.
    fn check_same(&self, tree: &OwnedFd, path: &Path) -> Result<(), Obstacle> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let same = || -> rustix::io::Result<bool> {
            let target = openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
            let (one, other) = (fstat(tree)?, fstat(&target)?);
            Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
        };
        match same() {
            Ok(true) => Ok(()),
            Ok(false) => Err(at(Stage::Root, path.display().to_string())(Errno::LOOP)),
            Err(error) => Err(at(Stage::Root, path.display().to_string())(error)),
        }
    }

    /// Mounts `tree` at `path` of the new root.
    fn attach(&self, tree: &OwnedFd, path: &Path, kind: Kind) -> Result<(), Obstacle> {
        let target = self.target(path, kind).map_err(at(Stage::Root, path.display().to_string()))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", &target, "", flags)
            .map_err(at(Stage::Namespaces, format!("mount {}", path.display())))
    }

    /// The place for a mount, made where it is missing and the file system is ours.
    fn target(&self, path: &Path, kind: Kind) -> rustix::io::Result<OwnedFd> {
        if let Ok(found) = self.resolve(path) {
            return Ok(found);
        }
        let ours = fstat(&self.root)?.st_dev;
        let mut current = self.resolve(Path::new("."))?;
        let mut so_far = PathBuf::new();
        let mut names = path.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
        while let Some(name) = names.next() {
            so_far.push(name);
            current = match self.resolve(&so_far) {
                Ok(found) => found,
                Err(Errno::NOENT) if self.may_create_in(&current, ours)? => {
                    if names.peek().is_some() || kind == Kind::Directory {
                        mkdirat(&current, name.as_os_str(), Mode::from_raw_mode(0o755))?;
                    } else {
                        let mode = Mode::from_raw_mode(0o644);
                        openat(&current, name.as_os_str(), OFlags::CREATE | OFlags::CLOEXEC, mode)?;
                    }
                    self.resolve(&so_far)?
                }
                Err(error) => return Err(error),
            };
        }
        Ok(current)
    }

    /// Only in memory; on the host's own file systems nothing is created.
    fn may_create_in(&self, directory: &OwnedFd, ours: u64) -> rustix::io::Result<bool> {
        Ok(fstat(directory)?.st_dev == ours || fstatfs(directory)?.f_type == TMPFS)
    }

    /// Follows links as the step will: inside the new root.
    fn resolve(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// A `/dev` with nothing in it that reaches further.
    fn devices(&self) -> Result<(), Obstacle> {
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            // Taken from the host's /dev, which is still the one in sight.
            let device = open_tree(CWD, &path, flags).map_err(setup("bind a device"))?;
            // What is written to a device is not written to its file system; its mode and times are.
            let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
            sys::set_mount_attributes(&device, attributes.bits(), false).map_err(setup("bind a device"))?;
            self.attach(&device, &path, Kind::File)?;
        }
        let links = [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")];
        let directory = self.resolve(Path::new("dev")).map_err(setup("make /dev"))?;
        for (name, to) in links {
            match symlinkat(to, &directory, name) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(setup("make /dev")(error)),
            }
        }
        Ok(())
    }

    /// Makes it the root, read-only, and lets go of the host's.
    fn enter(self) -> Result<(), Obstacle> {
        if self.nothing.is_some() {
            unmount_nothing(&self.root).map_err(setup("finish the new root"))?;
        }
        sys::set_mount_attributes(&self.root, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
            .map_err(setup("finish the new root"))?;
        let pivot = || {
            fchdir(&self.root)?;
            pivot_root(".", ".")?;
            // The old root lies on top of the new one now.
            unmount(".", UnmountFlags::DETACH)?;
            chdir("/")
        };
        pivot().map_err(setup("change the root"))
    }
}

fn unmount_nothing(root: &OwnedFd) -> rustix::io::Result<()> {
    fchdir(root)?;
    unmount(NOTHING, UnmountFlags::DETACH)?;
    rustix::fs::unlinkat(root, NOTHING, AtFlags::REMOVEDIR)
}
