//! Opening files whose names come from outside: such a name may be that of a
//! pipe that nobody writes to, of a device without an end, or of this process's
//! own input.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file, without ever waiting for somebody at its other end.
///
/// # Errors
/// When it cannot be opened, and when it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// What is read from a pipe or a device is gone, or comes from somebody else.
fn regular(file: &Metadata) -> io::Result<()> {
    if file.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if file.is_file() { Ok(()) } else { Err(io::Error::other("not a regular file")) }
}

/// Opens a regular file that has at most `max` bytes.
///
/// # Errors
/// As [`open`], and when it is larger.
pub fn open_within(path: &Path, max: u64) -> io::Result<File> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    if size > max {
        let message = format!("it has {size} bytes; at most {max} are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        fs::write(place("file"), "four").unwrap();
        std::os::unix::fs::symlink("file", place("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, place("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let _listener = UnixListener::bind(place("socket")).unwrap();
        for name in ["file", "link"] {
            assert!(open_within(&place(name), 4).is_ok(), "{name}");
            assert!(open_within(&place(name), 3).is_err(), "{name}");
        }
        for name in ["pipe", "socket", ".", "nothing", "/dev/zero", "/dev/null"] {
            assert!(open(&place(name)).is_err(), "{name}");
        }
    }
}
