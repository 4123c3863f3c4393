//! File systems whose times of change prove that the bytes of a file are the same.

use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::{fs, os::fd::AsFd, os::fd::AsRawFd, path::Path};

use rustix::fs::OFlags;

/// File systems on which each change of a file's bytes changes its time of change: ext2 to ext4, XFS, btrfs, F2FS, ZFS
/// and bcachefs. Writes to memory mapped from tmpfs do not change it, and network servers give no guarantee.
#[cfg(target_os = "linux")]
const KEEPS_TIMES: [i128; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];

/// Major numbers of loop and network block devices, and the beginnings of their names. Their bytes can change below a
/// file system, which then gives no file another time.
#[cfg(target_os = "linux")]
const IMAGE_MAJORS: [u32; 2] = [7, 43];
#[cfg(target_os = "linux")]
const IMAGE_NAMES: [&str; 2] = ["loop", "nbd"];

/// overlayfs, whose files are on other file systems.
#[cfg(target_os = "linux")]
const OVERLAY: i128 = 0x794c_7630;

/// Flags that open a file only to look at its file system.
#[cfg(target_os = "linux")]
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const LOOK: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// True if the file system of `file`, in the directory `dir`, keeps times.
#[cfg(target_os = "linux")]
pub(super) fn keeps_times(file: BorrowedFd<'_>, dir: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(file).map(|system| i128::from(system.f_type));
    kind.is_ok_and(|kind| match kind {
        OVERLAY => is_overlay_of_kept(dir),
        kind => KEEPS_TIMES.contains(&kind) && !is_on_image(file),
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn keeps_times(_: BorrowedFd<'_>, _: BorrowedFd<'_>) -> bool {
    false
}

/// True if all directories below the overlay with this directory are on file systems that keep times. In a container the names of these
/// directories lead nowhere, so nothing is known of them.
#[cfg(target_os = "linux")]
fn is_overlay_of_kept(dir: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(dir) else { return false };
    let device = format!("{}:{}", rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let keeps = |path: &str| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(layer) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) else { return false };
        let kind = rustix::fs::fstatfs(&layer).map(|system| i128::from(system.f_type));
        kind.is_ok_and(|kind| KEEPS_TIMES.contains(&kind)) && !is_on_image(layer.as_fd())
    };
    layers_of(&mounts, &device).is_some_and(|layers| layers.into_iter().all(keeps))
}

/// True if the file system of this file is on a loop or network block device.
#[cfg(target_os = "linux")]
fn is_on_image(file: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return true };
    if rustix::fs::major(stat.st_dev) != 0 {
        return is_image(stat.st_dev);
    }
    // btrfs and others give their files numbers that are no device's. The mount names the devices.
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).unwrap_or_default().trim();
    let source = source_of(&mounts, id).unwrap_or_default();
    let devices = source.split(':').filter(|path| path.starts_with('/'));
    devices.filter_map(|path| rustix::fs::stat(path).ok()).any(|device| is_image(device.st_rdev))
}

/// The source of the mount with this number, by a list of mounts.
#[cfg(target_os = "linux")]
fn source_of<'m>(mounts: &'m str, id: &str) -> Option<&'m str> {
    let mount = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let (_, system) = mount.split_once(" - ")?;
    system.split(' ').nth(1)
}

/// True for a loop or network block device, a partition of one, and a device mapped onto one.
#[cfg(target_os = "linux")]
fn is_image(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = || fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    IMAGE_MAJORS.contains(&major) || place().is_ok_and(|place| is_place_of_image(&place))
}

/// The same for the directory of the device in `/sys`.
#[cfg(target_os = "linux")]
fn is_place_of_image(place: &Path) -> bool {
    let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let is_named = |name: &str| IMAGE_NAMES.iter().any(|kind| name.strip_prefix(kind).is_some_and(is_number));
    if place.iter().filter_map(|name| name.to_str()).any(is_named) {
        return true;
    }
    // The devices below a partition are listed in the directory of the whole device.
    let dirs = [Some(place), place.parent()].into_iter().flatten();
    let mut below = dirs.filter_map(|dir| fs::read_dir(dir.join("slaves")).ok()).flatten().flatten();
    below.any(|entry| fs::canonicalize(entry.path()).is_ok_and(|place| is_place_of_image(&place)))
}

/// The directories below the overlay with this device, by a list of mounts; `None` if they are unknown.
#[cfg(target_os = "linux")]
fn layers_of<'m>(mounts: &'m str, device: &str) -> Option<Vec<&'m str>> {
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, system) = mount.split_once(" - ")?;
    let mut fields = system.split(' ');
    let options = fields.next().filter(|kind| *kind == "overlay").and_then(|_| fields.nth(1))?;
    let named = options.split(',').filter_map(|option| {
        let (name, value) = option.split_once('=')?;
        let is_layer = ["lowerdir", "lowerdir+", "datadir+", "upperdir"].contains(&name);
        is_layer.then(|| value.split(':').filter(|path| !path.is_empty()))
    });
    let layers: Vec<&str> = named.flatten().collect();
    // A relative name, or a name with escaped characters, does not lead to the directory.
    let is_plain = |path: &&str| path.starts_with('/') && !path.contains('\\');
    (!layers.is_empty() && layers.iter().all(is_plain)).then_some(layers)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_an_overlay_are_read_from_its_mount() {
        let layers = |options: &str| {
            let mounts = format!(
                "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                 40 27 0:44 / /m rw,relatime shared:7 - overlay overlay rw,{options}\n"
            );
            layers_of(&mounts, "0:44").map(|layers| layers.join(" "))
        };
        assert_eq!(layers("lowerdir=/a:/b,upperdir=/u,workdir=/w").as_deref(), Some("/a /b /u"));
        assert_eq!(layers("lowerdir+=/a,lowerdir+=/b,datadir+=/d").as_deref(), Some("/a /b /d"));
        assert_eq!(layers("lowerdir=/a::/d,upperdir=/u").as_deref(), Some("/a /d /u"));
        for unknown in ["", "lowerdir=l,upperdir=/u", "lowerdir=/a\\040b,upperdir=/u"] {
            assert_eq!(layers(unknown), None, "{unknown}");
        }
        assert_eq!(layers_of("27 1 254:0 / / rw - ext4 /dev/vda rw,upperdir=/u", "254:0"), None);
        assert_eq!(layers_of("", "0:44"), None);
    }

    #[test]
    fn the_source_of_a_mount_is_found_by_its_number() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      40 27 0:44 /sub /m rw,relatime shared:7 - btrfs /dev/loop0 rw,subvol=/sub\n";
        assert_eq!(
            (source_of(mounts, "27"), source_of(mounts, "40")),
            (Some("/dev/vda"), Some("/dev/loop0"))
        );
        assert_eq!((source_of(mounts, "4"), source_of(mounts, "")), (None, None));
    }

    #[test]
    fn a_device_on_an_image_is_known_by_its_place() {
        let sys = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let place = sys.path().join(name);
            fs::create_dir_all(&place).unwrap();
            place
        };
        let (disk, part) = (place("pci/virtio1/block/vda"), place("virtual/block/loop0/loop0p1"));
        // A partition of a device that is mapped onto `below`.
        let mapped = |name: &str, below: &Path| {
            let slaves = place(&format!("virtual/block/{name}/slaves"));
            std::os::unix::fs::symlink(below, slaves.join("below")).unwrap();
            place(&format!("virtual/block/{name}/{name}p1"))
        };
        for (place, expected) in [
            (&disk, false),
            (&part, true),
            (&place("virtual/block/nbd3"), true),
            (&place("virtual/block/loopback"), false),
            (&mapped("md0", &disk), false),
            (&mapped("md1", &part), true),
            (&mapped("md2", &place("virtual/block/md1")), true),
        ] {
            assert_eq!(is_place_of_image(place), expected, "{place:?}");
        }
        assert!(is_image(rustix::fs::makedev(7, 0)) && is_image(rustix::fs::makedev(43, 1)));
    }
}
