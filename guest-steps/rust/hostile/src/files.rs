//! Ways out of a granted directory.

use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

use crate::{Output, StepError, breach, refused, say};

/// The directory that the program sees at `name`.
fn granted(name: &str) -> Result<Descriptor, StepError> {
    let found = get_directories().into_iter().find(|(_, path)| path == name);
    found.map(|(directory, _)| directory).ok_or_else(|| refused(format!("{name} is not granted")))
}

fn read(directory: &Descriptor, path: &str) -> Result<String, ErrorCode> {
    let file =
        directory.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::empty(), DescriptorFlags::READ)?;
    let (bytes, _) = file.read(1 << 16, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads `path` as it stands, from the directory that is granted for reading.
pub(crate) fn open(path: &str, output: &Output) -> Result<(), StepError> {
    let text = read(&granted("/in")?, path).map_err(refused)?;
    say(output, &text)
}

/// Makes a link and reads through it; without `link`, writes where it may only read.
pub(crate) fn make(path: &str, link: &str) -> Result<(), StepError> {
    if link.is_empty() {
        let how = DescriptorFlags::READ | DescriptorFlags::WRITE;
        let made = granted("/in")?.open_at(PathFlags::empty(), path, OpenFlags::CREATE, how);
        return made.map_err(refused).and(Err(breach("wrote where it may only read")));
    }
    let out = granted("/out")?;
    out.symlink_at(link, path).map_err(refused)?;
    read(&out, path).map_err(refused).and(Err(breach("read through its own link")))
}

/// A directory that becomes a link out between the look and the use, and a
/// handle of it that is older than the link.
pub(crate) fn swap() -> Result<(), StepError> {
    let out = granted("/out")?;
    out.create_directory_at("d").map_err(refused)?;
    let both = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
    let held = out.open_at(PathFlags::empty(), "d", OpenFlags::DIRECTORY, both).map_err(refused)?;
    out.rename_at("d", &out, "e").map_err(refused)?;
    out.symlink_at("../../..", "d").map_err(refused)?;
    for path in ["../secret", "../../secret", "../e/../../secret"] {
        if read(&held, path).is_ok() {
            return Err(breach("read through a handle that was moved"));
        }
    }
    read(&out, "d/etc/passwd").map_err(refused).and(Err(breach("read through a swapped directory")))
}

/// From a handle of a directory to the one above it, by every word for it.
pub(crate) fn climb() -> Result<(), StepError> {
    let directory = granted("/in")?;
    let how = DescriptorFlags::READ;
    for path in ["..", "sub/../..", "./..", "sub/..//..", "/", "//", "/proc/self/root", "\\..", "sub/\0/.."] {
        let opened = directory.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::DIRECTORY, how);
        if opened.is_ok() {
            return Err(breach(path));
        }
    }
    let long = "x/".repeat(100_000);
    let sub = directory.open_at(PathFlags::empty(), "sub", OpenFlags::DIRECTORY, how).map_err(refused)?;
    if sub.open_at(PathFlags::SYMLINK_FOLLOW, "..", OpenFlags::DIRECTORY, how).is_ok() {
        return Err(breach("from a directory below"));
    }
    directory.open_at(PathFlags::empty(), &long, OpenFlags::DIRECTORY, how).map_err(refused).map(drop)
}

/// What can be learnt of the machine from names, times and numbers.
pub(crate) fn list(output: &Output) -> Result<(), StepError> {
    let directory = granted("/in")?;
    let names = directory.read_directory().map_err(refused)?;
    while let Some(entry) = names.read_directory_entry().map_err(refused)? {
        let seen = directory.stat_at(PathFlags::empty(), &entry.name).map_err(refused)?;
        let time = seen.data_modification_timestamp.map(|time| time.seconds);
        say(output, &format!("{} {:?} {} {time:?}\n", entry.name, entry.type_, seen.link_count))?;
    }
    Ok(())
}

/// More bytes than it may write, in few files, although it is told to stop.
pub(crate) fn fill() -> Result<(), StepError> {
    let out = granted("/out")?;
    let block = vec![1_u8; 1 << 20];
    for n in 0_u64.. {
        let how = DescriptorFlags::WRITE;
        let file = out
            .open_at(PathFlags::empty(), &format!("{}", n % 7), OpenFlags::CREATE, how)
            .map_err(refused)?;
        file.write(&block, n << 20).map_err(refused)?;
    }
    Ok(())
}

/// More names than it may make.
pub(crate) fn names() -> Result<(), StepError> {
    let out = granted("/out")?;
    (0_u64..).try_for_each(|n| out.create_directory_at(&n.to_string())).map_err(refused)
}
