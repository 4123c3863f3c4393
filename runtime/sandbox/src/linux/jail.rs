//! The inside of the namespaces: identity, network, and a file system that contains only what was granted.
//!
//! Runs in the first process of new namespaces, which is also the step's supervisor. Everything is prepared
//! on detached mounts and assembled on an empty file system, so a mistake can never reach the host's own
//! tree.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, access, chmodat, fstat,
    openat, openat2, seek, tell,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change, open_tree,
};

use super::super::opened_roots::FileId;
use super::super::proxy;
use super::wire::{Confined, Network, Stage, WireLayer};
use super::{sys, system_files};
use new_root::Root;

mod new_root;

/// `TMPFS_MAGIC`.
const TMPFS: i64 = 0x0102_1994;

/// Devices that every program may expect.
pub(super) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", TTY];

/// Controlling terminal of the opening process. A step has none unless it makes one. Not every host has this
/// device.
const TTY: &str = "tty";

/// Directory of the jail's own terminals.
pub(super) const TERMINALS: &str = "/dev/pts";

/// Mode of a directory that can be traversed but not listed.
const THROUGH: u32 = 0o111;

/// Mount point at which the new root is assembled; covered only inside the namespace.
const WORKBENCH: &str = "/proc";

/// A failure, with the stage and a description of the operation or path.
pub(super) struct Obstacle {
    pub(super) stage: Stage,
    pub(super) error: io::Error,
    pub(super) detail: String,
}

pub(super) fn obstacle_at<E: Into<io::Error>>(
    stage: Stage,
    detail: impl Into<String>,
) -> impl FnOnce(E) -> Obstacle {
    let detail = detail.into();
    move |error| Obstacle { stage, error: error.into(), detail }
}

fn setup_obstacle<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Obstacle {
    obstacle_at(Stage::Namespaces, doing)
}

/// User and group of the process outside, read before the user namespace is made.
#[derive(Clone, Copy)]
pub(super) struct JailIdentity {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl JailIdentity {
    pub(super) fn current() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// Makes the network of these namespaces usable, and returns the namespaces.
    pub(super) fn set_up_network(self) -> Result<[OwnedFd; 2], Obstacle> {
        self.map_identity().map_err(setup_obstacle("map the user"))?;
        sys::loopback_up().map_err(setup_obstacle("start the loopback interface"))?;
        let open = |kind: &str| fs::File::open(format!("/proc/self/ns/{kind}")).map(OwnedFd::from);
        let both = || Ok([open("user")?, open("net")?]);
        both().map_err(|error: io::Error| setup_obstacle("hold the network")(error))
    }

    /// Keeps the identity inside: one user and one group, and no others exist.
    fn map_identity(self) -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{0} {0} 1", self.uid))?;
        fs::write("/proc/self/gid_map", format!("{0} {0} 1", self.gid))
    }
}

/// Sets up the namespaces in which this process was started. `stdin` is the input of the step, `home` its
/// home directory.
pub(super) fn set_up_namespaces(
    spec: &Confined,
    identity: JailIdentity,
    home: &[u8],
    stdin: &mut OwnedFd,
) -> Result<(), Obstacle> {
    identity.map_identity().map_err(setup_obstacle("map the user"))?;
    rustix::system::sethostname(system_files::HOST_NAME.as_bytes())
        .map_err(setup_obstacle("name the host"))?;
    if matches!(spec.network, Network::None | Network::Proxy) {
        sys::loopback_up().map_err(setup_obstacle("start the loopback interface"))?;
        for (number, address) in proxy::foreign_addresses(&spec.hosts).into_iter().enumerate() {
            sys::add_loopback_address(number, address)
                .map_err(setup_obstacle("add an address to the loopback interface"))?;
        }
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(setup_obstacle("detach mounts"))?;
    if let Some(restricted) = read_only(stdin, identity).map_err(setup_obstacle("restrict stdin"))? {
        *stdin = restricted;
    }
    let plan = plan_mounts(spec, identity, home)?;
    let proc = file_system("proc", &[]).map_err(setup_obstacle("mount /proc"))?;
    if let Some(processes) = spec.processes {
        bound_numbers(&proc, processes)
            .map_err(obstacle_at(Stage::ProcessNumbers, "limit the process numbers"))?;
    }
    sys::set_mount_attributes(&proc, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
        .map_err(setup_obstacle("mount /proc"))?;
    let hides = plan.iter().any(|piece| matches!(piece.what, What::Hidden));
    let root = Root::new(hides)?;
    for piece in &plan {
        root.place_piece(piece)?;
    }
    // All paths inside the passages have been made by now.
    for piece in &plan {
        if let What::Passage { tree } = &piece.what {
            close_ways(tree, &piece.path, &spec.own)?;
            sys::set_mount_attributes(tree, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
                .map_err(setup_obstacle("hide a path"))?;
        }
    }
    // If a link or another file has been put there meanwhile, the copy is mounted elsewhere.
    for (path, copy) in spec.replaced.iter().zip(&spec.copies) {
        let copy = open_exactly(copy).map_err(obstacle_at(Stage::Root, copy.display().to_string()))?;
        root.check_same(&copy, path)?;
    }
    root.make_devices()?;
    root.attach_tree(&proc, Path::new("/proc"), Kind::Directory)?;
    root.enter_root()
}

/// The same file, opened on a read-only mount. Through a descriptor from the host, its owner could change its
/// mode and times and then open it for writing. `None` if nothing about it can be changed: a pipe has no path
/// on the host, and a file without a name cannot be opened again.
fn read_only(file: &OwnedFd, identity: JailIdentity) -> io::Result<Option<OwnedFd>> {
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
            // It belongs to another user, so the step cannot change anything about it either.
            Err(Errno::ACCESS) if given.st_uid != identity.uid => return Ok(None),
            opened => opened?,
        };
    if kind == FileType::RegularFile {
        seek(&opened, SeekFrom::Start(tell(file)?))?;
    }
    Ok(Some(opened))
}

/// Process numbers below this are not given out again (`RESERVED_PIDS`).
const RESERVED: u64 = 300;

/// Limits the processes of this namespace by its `pid_max`. Because of [`RESERVED`], more than the limit can
/// be alive at once.
fn bound_numbers(proc: &OwnedFd, processes: u64) -> rustix::io::Result<()> {
    // Before Linux 6.14 the file belongs to the whole machine, and root may write it.
    let release = rustix::system::uname();
    let mut numbers = release.release().to_bytes().split(|byte| !byte.is_ascii_digit());
    let mut next = || std::str::from_utf8(numbers.next()?).ok()?.parse::<u32>().ok();
    if (next(), next()) < (Some(6), Some(14)) {
        return Err(Errno::NOSYS);
    }
    let file = openat(proc, "sys/kernel/pid_max", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, RESERVED.saturating_add(processes).to_string().as_bytes()).map(drop)
}

/// A path of the new root and its content.
struct Piece {
    path: PathBuf,
    what: What,
}

/// In the order in which pieces of the same path are placed.
enum What {
    /// A tree of the host, perhaps read-only.
    Tree { tree: OwnedFd, kind: Kind, exact: bool },
    /// An empty file system for the step.
    Private { tree: OwnedFd },
    /// A symbolic link, which can only lead to something in the jail.
    Link { to: PathBuf },
    /// A generated file, independent of the host.
    Made { content: Vec<u8> },
    /// The existing file or directory, mounted on itself, because a mount point can be neither moved nor
    /// replaced. Unless it is `needed`, it may be gone by then.
    Held { needed: bool },
    /// Hidden by an unreadable file or directory.
    Hidden,
    /// Hidden in the same way, but the step's own paths inside can be reached.
    Passage { tree: OwnedFd },
}

impl What {
    fn with_exact(self) -> Self {
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
    fn from_stat(stat: &Stat) -> Self {
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            Self::Directory
        } else {
            Self::File
        }
    }
}

/// Opens all trees while the host's file system can still be reached.
fn plan_mounts(spec: &Confined, identity: JailIdentity, home: &[u8]) -> Result<Vec<Piece>, Obstacle> {
    let mut pieces = Vec::new();
    for path in &spec.private {
        let size = spec.private_size.to_string();
        let tree = file_system("tmpfs", &[("mode", "1777"), ("size", &size)])
            .map_err(setup_obstacle("mount a private directory"))?;
        pieces.push(Piece { path: path.clone(), what: What::Private { tree } });
    }
    for path in expand_roots(&spec.read)? {
        if let Some(to) = system_files::link_of(spec, &path) {
            pieces.push(Piece { path, what: What::Link { to } });
            continue;
        }
        let what = match spec.held_at(&path) {
            Some(id) => Some(tree_of(open_held(&path, id)?, &path, true)?),
            None => clone_tree(&path, true)?,
        };
        pieces.extend(what.map(|what| Piece { path, what }));
    }
    for (path, content) in system_files::generate_files(spec, identity, home) {
        pieces.push(Piece { path, what: What::Made { content } });
    }
    for path in expand_roots(&spec.write)? {
        let what = match (spec.layer_at(&path), spec.held_at(&path)) {
            (Some(over), held) => mount_layer(over, held)?,
            (None, Some(id)) => tree_of(open_held(&path, id)?, &path, false)?,
            (None, None) => clone_tree(&path, false)?.ok_or_else(|| missing_root(&path))?,
        };
        pieces.push(Piece { path, what });
    }
    for over in spec.all_layers().filter(|over| !spec.write.iter().any(|root| root == over.root)) {
        pieces.push(Piece { path: over.root.to_owned(), what: mount_layer(over, spec.held_at(over.root))? });
    }
    // The target of a link is hidden at its real path.
    let hidden: Vec<PathBuf> = spec.deny.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    // Paths in a hidden directory cannot be changed.
    let all_hidden: BTreeSet<&Path> = hidden.iter().map(PathBuf::as_path).collect();
    let is_seen = |path: &&Path| path.ancestors().skip(1).all(|above| !all_hidden.contains(above));
    let protected = spec.protect.iter().map(PathBuf::as_path).filter(|path| is_kept(spec, path));
    let protected: Vec<&Path> = protected.filter(is_seen).filter(|path| may_be_there(path)).collect();
    // The step could move a directory above a hidden or protected path away and make the path anew, for
    // itself or for the next step. A mount point cannot be moved.
    let above_protected = held_above(spec, &protected);
    let above_hidden = held_above(spec, &hidden);
    pieces.extend(above_hidden.difference(&above_protected).map(|path| held_piece(path, false)));
    pieces.extend(above_protected.iter().map(|path| held_piece(path, true)));
    for path in protected {
        // The placeholder of a path that does not exist has been made by now.
        let what = clone_tree(path, true)?.ok_or_else(|| missing_root(path))?;
        // In a layer a file has another device and inode.
        let what = if spec.layer_over(path).is_some() { what } else { what.with_exact() };
        pieces.push(Piece { path: path.to_owned(), what });
    }
    for (path, copy) in spec.replaced.iter().zip(&spec.copies) {
        let what = clone_tree(copy, true)?.ok_or_else(|| missing_root(copy))?;
        pieces.push(Piece { path: path.clone(), what });
    }
    for path in &spec.deny {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if spec.own.contains(&real) {
            continue;
        }
        let leads_on = spec.own.iter().any(|own| own.starts_with(&real));
        pieces.push(if leads_on {
            make_passage(real)?
        } else {
            Piece { path: path.clone(), what: What::Hidden }
        });
    }
    // From the outside in. The sort is stable: of two pieces for one path the one pushed later, which is
    // stricter, is mounted on top.
    pieces.sort_by_key(|piece| piece.path.components().count());
    Ok(pieces)
}

/// Lets the directories between such a directory and the step's own paths be traversed but not listed.
fn close_ways(tree: &OwnedFd, path: &Path, own: &[PathBuf]) -> Result<(), Obstacle> {
    for inner in own.iter().filter_map(|own| own.strip_prefix(path).ok()) {
        for way in inner.ancestors().skip(1).filter(|way| !way.as_os_str().is_empty()) {
            match chmodat(tree, way, Mode::from_raw_mode(THROUGH), AtFlags::empty()) {
                // A path that does not exist need not be hidden.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(setup_obstacle("hide a path")(error)),
            }
        }
    }
    Ok(())
}

/// A directory that can be traversed but not listed.
fn make_passage(path: PathBuf) -> Result<Piece, Obstacle> {
    let options = [("mode", &*format!("{THROUGH:o}")), ("size", "1m")];
    let tree = file_system("tmpfs", &options).map_err(setup_obstacle("hide a path"))?;
    Ok(Piece { path, what: What::Passage { tree } })
}

fn held_piece(path: &Path, needed: bool) -> Piece {
    Piece { path: path.to_owned(), what: What::Held { needed } }
}

/// True if a protected path is in something that the step may change. A path that is missing in a copy need
/// not be protected: if the step makes it, it is not committed.
fn is_kept(spec: &Confined, path: &Path) -> bool {
    spec.write.iter().any(|root| path.starts_with(root))
        && place_in_copy(spec, path).is_none_or(|place| place.symlink_metadata().is_ok())
}

/// Location of a path of a copied root in its copy.
fn place_in_copy(spec: &Confined, path: &Path) -> Option<PathBuf> {
    let over = spec.layer_over(path)?;
    Some(over.copy?.join(path.strip_prefix(over.root).ok()?))
}

/// The directories between write roots and these paths. The kernel does not move the lower directories of a
/// layer, so below a layer only directories of a copy have to be held.
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

/// Expands the root directory to all its entries, but never the host's processes and devices.
fn expand_roots(roots: &[PathBuf]) -> Result<Vec<PathBuf>, Obstacle> {
    let mut all = Vec::new();
    for root in roots {
        if root.parent().is_some() {
            all.push(root.clone());
            continue;
        }
        for entry in fs::read_dir("/").map_err(obstacle_at(Stage::Root, "/"))? {
            let path = entry.map_err(obstacle_at(Stage::Root, "/"))?.path();
            if path != Path::new("/proc") && path != Path::new("/dev") {
                all.push(path);
            }
        }
    }
    Ok(all)
}

/// True if the path exists or this user could make it. If no process here can make it, it has no placeholder
/// either.
fn may_be_there(path: &Path) -> bool {
    let above = path.ancestors().find(|above| above.symlink_metadata().is_ok());
    above == Some(path) || above.is_some_and(|above| access(above, Access::WRITE_OK).is_ok())
}

fn missing_root(path: &Path) -> Obstacle {
    obstacle_at(Stage::Root, path.display().to_string())(Errno::NOENT)
}

/// Opens a path that contains no symbolic link. Writable paths must be real paths, because an earlier step
/// could have put a link there.
pub(super) fn open_exactly(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Opens a path that contains no link and must lead to the file that the policy judged.
pub(super) fn open_held(path: &Path, judged: FileId) -> Result<OwnedFd, Obstacle> {
    let failed = |error: Errno| obstacle_at(Stage::Root, path.display().to_string())(error);
    let opened = open_exactly(path).map_err(failed)?;
    let found = fstat(&opened).map_err(failed)?;
    if (found.st_dev, found.st_ino) == (judged.device, judged.inode) {
        Ok(opened)
    } else {
        Err(failed(Errno::STALE))
    }
}

/// A detached copy of the opened tree.
fn tree_of(opened: OwnedFd, path: &Path, read_only: bool) -> Result<What, Obstacle> {
    let flags = CLONED | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(opened, "", flags)
        .map_err(obstacle_at(Stage::Namespaces, format!("bind {}", path.display())))?;
    restrict_tree(tree, path, read_only)
}

/// A root with a layer over it, which receives the changes. Without an upper directory it is read-only.
fn mount_layer(over: WireLayer<'_>, held: Option<FileId>) -> Result<What, Obstacle> {
    let path = over.root;
    let failed = || obstacle_at(Stage::Layer, format!("mount a layer over {}", path.display()));
    let root = match held {
        Some(id) => open_held(path, id)?,
        None => open_exactly(path).map_err(obstacle_at(Stage::Root, path.display().to_string()))?,
    };
    let open = |path: &Path| open_exactly(path).map_err(failed());
    if let Some(copy) = over.copy {
        return tree_of(open(copy)?, path, over.upper.is_none());
    }
    // By their descriptors, because a path may contain a comma or a colon.
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
    let mount = |options: &[(&'static str, &str)]| file_system("overlay", options);
    // A layer is discarded after a crash, so neither copying files into it nor unmounting it needs to wait
    // for the disk.
    let volatile = [&options[..], &[("volatile", "")]].concat();
    let tree = match mount(if upper.is_some() { &volatile } else { &options }) {
        Err(Errno::INVAL) if upper.is_some() => mount(&options),
        other => other,
    };
    restrict_tree(tree.map_err(failed())?, path, upper.is_none())
}

const CLONED: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);

/// A detached copy of the host's tree at `path`; `None` if there is none.
fn clone_tree(path: &Path, read_only: bool) -> Result<Option<What>, Obstacle> {
    let opened = if read_only {
        open_tree(CWD, path, CLONED)
    } else {
        open_exactly(path).and_then(|found| open_tree(found, "", CLONED | OpenTreeFlags::AT_EMPTY_PATH))
    };
    let tree = match opened {
        Ok(tree) => tree,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error @ (Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG)) => {
            return Err(obstacle_at(Stage::Root, path.display().to_string())(error));
        }
        Err(error) => return Err(obstacle_at(Stage::Namespaces, format!("bind {}", path.display()))(error)),
    };
    restrict_tree(tree, path, read_only).map(Some)
}

fn restrict_tree(tree: OwnedFd, path: &Path, read_only: bool) -> Result<What, Obstacle> {
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if read_only {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    sys::set_mount_attributes(&tree, attributes.bits(), true)
        .map_err(obstacle_at(Stage::Namespaces, format!("restrict the mount of {}", path.display())))?;
    let kind = fstat(&tree).map(|stat| Kind::from_stat(&stat)).map_err(setup_obstacle("inspect a root"))?;
    Ok(What::Tree { tree, kind, exact: false })
}

/// A new, detached file system, without devices.
fn file_system(name: &'static str, options: &[(&'static str, &str)]) -> rustix::io::Result<OwnedFd> {
    mount_detached(name, options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// A new, detached file system with these attributes.
fn mount_detached(
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
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
