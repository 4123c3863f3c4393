//! The root file system of a jail, assembled on an empty one.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, fstat, fstatfs, mkdirat, openat, openat2, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::super::sys;
use super::super::wire::Stage;
use super::{
    CLONED, DEVICES, Kind, Obstacle, Piece, TERMINALS, TMPFS, TTY, WORKBENCH, What, file_system,
    mount_detached, obstacle_at, setup_obstacle,
};

/// Terminals that a step may have at a time; the kernel has 4,096 in all.
const MOST_TERMINALS: &str = "256";

/// The new root while it is being assembled.
pub(super) struct Root {
    root: OwnedFd,
    /// Contains an unreadable file and directory for hiding paths. One mount for all, because unmounting is
    /// slow.
    nothing: Option<OwnedFd>,
}

/// Mount point of [`Root::nothing`] until the root is complete.
const NOTHING: &str = ".nothing";

impl Root {
    pub(super) fn new(hides: bool) -> Result<Self, Obstacle> {
        let small = [("mode", "0755"), ("size", "1m")];
        let root = file_system("tmpfs", &small).map_err(setup_obstacle("mount a new root"))?;
        move_mount(&root, "", CWD, WORKBENCH, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(setup_obstacle("place the new root"))?;
        if !hides {
            return Ok(Self { root, nothing: None });
        }
        let nothing = file_system("tmpfs", &small).map_err(setup_obstacle("mount a new root"))?;
        let work = || -> rustix::io::Result<()> {
            mkdirat(&nothing, "directory", Mode::empty())?;
            openat(&nothing, "file", OFlags::CREATE | OFlags::CLOEXEC, Mode::empty())?;
            mkdirat(&root, NOTHING, Mode::RWXU)?;
            move_mount(&nothing, "", &root, NOTHING, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        };
        work().map_err(setup_obstacle("prepare the new root"))?;
        Ok(Self { root, nothing: Some(nothing) })
    }

    pub(super) fn place_piece(&self, piece: &Piece) -> Result<(), Obstacle> {
        match &piece.what {
            What::Tree { tree, kind, exact } => {
                if *exact {
                    self.check_same(tree, &piece.path)?;
                }
                self.attach_tree(tree, &piece.path, *kind)
            }
            What::Private { tree } => self.attach_tree(tree, &piece.path, Kind::Directory),
            What::Link { to } => {
                self.make_link(&piece.path, to).map_err(setup_obstacle("make a system link"))
            }
            What::Made { content } => self
                .write_file(&piece.path, content)
                .map_err(setup_obstacle("make a system file for the jail")),
            What::Held { needed } => self.hold_path(&piece.path, *needed),
            What::Hidden => self.hide_path(&piece.path),
            // A path that does not exist need not be hidden.
            What::Passage { tree } if self.resolve_path(&piece.path).is_ok() => {
                self.attach_tree(tree, &piece.path, Kind::Directory)
            }
            What::Passage { .. } => Ok(()),
        }
    }

    /// Makes a symbolic link unless the path exists already.
    fn make_link(&self, path: &Path, to: &Path) -> rustix::io::Result<()> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        match symlinkat(to, &self.mount_target(above, Kind::Directory)?, name) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    /// A new file with this content.
    fn write_file(&self, path: &Path, content: &[u8]) -> rustix::io::Result<()> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let above = self.mount_target(above, Kind::Directory)?;
        let file = openat(above, name, flags, Mode::from_raw_mode(0o644))?;
        let mut left = content;
        while !left.is_empty() {
            left = &left[rustix::io::write(&file, left)?..];
        }
        Ok(())
    }

    /// Mounts the file at `path` on itself, with its present rights.
    fn hold_path(&self, path: &Path, needed: bool) -> Result<(), Obstacle> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let target = match openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !needed => return Ok(()),
            Err(error) => return Err(obstacle_at(Stage::Root, path.display().to_string())(error)),
        };
        let failed = || obstacle_at(Stage::Namespaces, format!("hold {}", path.display()));
        let tree = open_tree(&target, "", CLONED | OpenTreeFlags::AT_EMPTY_PATH).map_err(failed())?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        match move_mount(&tree, "", &target, "", flags) {
            Err(Errno::NOENT) if !needed => Ok(()),
            other => other.map_err(failed()),
        }
    }

    /// Covers whatever file is at `path` by now. A path that does not exist needs no cover.
    fn hide_path(&self, path: &Path) -> Result<(), Obstacle> {
        let Some(nothing) = &self.nothing else { return Ok(()) };
        let Ok(target) = self.resolve_path(path) else { return Ok(()) };
        let kind =
            fstat(&target).map(|stat| Kind::from_stat(&stat)).map_err(setup_obstacle("hide a path"))?;
        let name = if kind == Kind::File { "file" } else { "directory" };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(nothing, name, flags).map_err(setup_obstacle("hide a path"))?;
        sys::set_mount_attributes(&tree, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
            .map_err(setup_obstacle("hide a path"))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        match move_mount(&tree, "", &target, "", flags) {
            // The file has been removed meanwhile.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(obstacle_at(Stage::Namespaces, format!("hide {}", path.display()))(error)),
        }
    }

    /// A protected path must not contain a link, because the step could replace the link.
    pub(super) fn check_same(&self, tree: &OwnedFd, path: &Path) -> Result<(), Obstacle> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let same = || -> rustix::io::Result<bool> {
            let target = openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
            let (one, other) = (fstat(tree)?, fstat(&target)?);
            Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
        };
        match same() {
            Ok(true) => Ok(()),
            Ok(false) => Err(obstacle_at(Stage::Root, path.display().to_string())(Errno::LOOP)),
            Err(error) => Err(obstacle_at(Stage::Root, path.display().to_string())(error)),
        }
    }

    /// Mounts `tree` at `path` of the new root.
    pub(super) fn attach_tree(&self, tree: &OwnedFd, path: &Path, kind: Kind) -> Result<(), Obstacle> {
        let target =
            self.mount_target(path, kind).map_err(obstacle_at(Stage::Root, path.display().to_string()))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", &target, "", flags)
            .map_err(obstacle_at(Stage::Namespaces, format!("mount {}", path.display())))
    }

    /// Mount target, created if it is missing and the file system is ours.
    fn mount_target(&self, path: &Path, kind: Kind) -> rustix::io::Result<OwnedFd> {
        if let Ok(found) = self.resolve_path(path) {
            return Ok(found);
        }
        let ours = fstat(&self.root)?.st_dev;
        let mut current = self.resolve_path(Path::new("."))?;
        let mut so_far = PathBuf::new();
        let mut names = path.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
        while let Some(name) = names.next() {
            so_far.push(name);
            current = match self.resolve_path(&so_far) {
                Ok(found) => found,
                Err(Errno::NOENT) if self.may_create_in(&current, ours)? => {
                    if names.peek().is_some() || kind == Kind::Directory {
                        mkdirat(&current, name.as_os_str(), Mode::from_raw_mode(0o755))?;
                    } else {
                        let mode = Mode::from_raw_mode(0o644);
                        openat(&current, name.as_os_str(), OFlags::CREATE | OFlags::CLOEXEC, mode)?;
                    }
                    self.resolve_path(&so_far)?
                }
                Err(error) => return Err(error),
            };
        }
        Ok(current)
    }

    /// True only in memory; nothing is created on the host's own file systems.
    fn may_create_in(&self, directory: &OwnedFd, ours: u64) -> rustix::io::Result<bool> {
        Ok(fstat(directory)?.st_dev == ours || fstatfs(directory)?.f_type == TMPFS)
    }

    /// Follows links inside the new root, as the step will.
    fn resolve_path(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// A `/dev` that contains only harmless devices and terminals of the step.
    pub(super) fn make_devices(&self) -> Result<(), Obstacle> {
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            // From the host's /dev, which can still be reached.
            let device = match open_tree(CWD, &path, flags) {
                Err(Errno::NOENT) if name == TTY => continue,
                other => other.map_err(setup_obstacle("bind a device"))?,
            };
            // Data written to a device is not written to its file system, but its mode and times are.
            let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
            sys::set_mount_attributes(&device, attributes.bits(), false)
                .map_err(setup_obstacle("bind a device"))?;
            self.attach_tree(&device, &path, Kind::File)?;
        }
        let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("max", MOST_TERMINALS)];
        // The kernel creates its entries, even on a read-only mount.
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals =
            mount_detached("devpts", &options, attributes).map_err(setup_obstacle("mount terminals"))?;
        self.attach_tree(&terminals, Path::new(TERMINALS), Kind::Directory)?;
        let links = [
            ("fd", "/proc/self/fd"),
            ("stdin", "fd/0"),
            ("stdout", "fd/1"),
            ("stderr", "fd/2"),
            ("ptmx", "pts/ptmx"),
        ];
        for (name, to) in links {
            self.make_link(&Path::new("/dev").join(name), Path::new(to))
                .map_err(setup_obstacle("make /dev"))?;
        }
        Ok(())
    }

    /// Makes it the root, read-only, and detaches the host's.
    pub(super) fn enter_root(self) -> Result<(), Obstacle> {
        if self.nothing.is_some() {
            unmount_nothing(&self.root).map_err(setup_obstacle("finish the new root"))?;
        }
        sys::set_mount_attributes(&self.root, MountAttrFlags::MOUNT_ATTR_RDONLY.bits(), false)
            .map_err(setup_obstacle("finish the new root"))?;
        let pivot = || {
            fchdir(&self.root)?;
            pivot_root(".", ".")?;
            // The old root is mounted on top of the new one now.
            unmount(".", UnmountFlags::DETACH)?;
            chdir("/")
        };
        pivot().map_err(setup_obstacle("change the root"))
    }
}

fn unmount_nothing(root: &OwnedFd) -> rustix::io::Result<()> {
    fchdir(root)?;
    unmount(NOTHING, UnmountFlags::DETACH)?;
    unlinkat(root, NOTHING, AtFlags::REMOVEDIR)
}
