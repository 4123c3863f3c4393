//! File systems whose times of change prove that the bytes of a file are the same.

use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;

/// File systems on which each change of a file's bytes changes its time of change: ext2 to ext4, XFS, btrfs, F2FS, ZFS
/// and bcachefs. Writes to memory mapped from tmpfs do not change it, and network servers give no guarantee.
#[cfg(target_os = "linux")]
const KEEPS_TIMES: [i128; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];

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
    kind.is_ok_and(|kind| KEEPS_TIMES.contains(&kind) || kind == OVERLAY && is_overlay_of_kept(dir))
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
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let keeps = |path: &str| {
        let kind = rustix::fs::statfs(path).map(|system| i128::from(system.f_type));
        kind.is_ok_and(|kind| KEEPS_TIMES.contains(&kind))
    };
    layers_of(&mounts, &device).is_some_and(|layers| layers.into_iter().all(keeps))
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
}
