//! One sync of a whole file system instead of one for each of many files.

use std::io;
use std::os::fd::AsFd;

/// File systems whose `syncfs` returns when everything is on disk, and reports write errors: ext4, XFS, Btrfs, F2FS
/// and, in memory, tmpfs. No network file system, FUSE file system or overlay promises both.
#[cfg(target_os = "linux")]
const THOROUGH: [u32; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];

/// True if [`sync_file_system`] makes everything durable on the file system of this file.
#[cfg(target_os = "linux")]
pub fn can_sync_file_system(file: impl AsFd) -> bool {
    let magic = rustix::fs::fstatfs(file).ok().and_then(|system| u32::try_from(system.f_type).ok());
    magic.is_some_and(|magic| THOROUGH.contains(&magic))
}

/// Other systems have no such sync.
#[cfg(not(target_os = "linux"))]
pub fn can_sync_file_system(_: impl AsFd) -> bool {
    false
}

/// Makes everything durable that was written to the file system of this file.
///
/// # Errors
/// If a part of it could not be written.
#[cfg(target_os = "linux")]
pub fn sync_file_system(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Other systems have no such sync.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn sync_file_system(_: impl AsFd) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
