//! Opening files whose names come from outside: such a name may be that of a
//! pipe that nobody writes to, of a device without an end, or of this process's
//! own input.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a regular file, without ever waiting for somebody at its other end.
///
/// # Errors
/// When it cannot be opened, and when it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, OFlags::empty())
}

/// Opens a file that lobster keeps for itself, for what `options` say. It is the regular file of that name: a link
/// there is not followed, for it leads to something else than what was kept.
///
/// # Errors
/// As [`open`], and when it is a link.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_with(options, path, OFlags::NOFOLLOW).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("not a regular file: it is a link"),
        _ => error,
    })
}

/// The bytes of a file that lobster keeps for itself.
///
/// # Errors
/// As [`open_own`].
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own(OpenOptions::new().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of such a file.
///
/// # Errors
/// As [`open_own`], and when it is no text.
pub fn read_own_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_own(OpenOptions::new().read(true), path)?)
}

fn open_with(options: &mut OpenOptions, path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | more).bits().cast_signed();
    let file =
        options.custom_flags(flags).open(path).map_err(|error| match Errno::from_io_error(&error) {
            // A socket, or a pipe that nobody reads from.
            Some(Errno::NXIO) => io::Error::other("not a regular file"),
            _ => error,
        })?;
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
            assert!(open_own(OpenOptions::new().write(true), &place(name)).is_err(), "{name}");
        }
        assert!(open_own(OpenOptions::new().append(true).create(true), &place("new")).is_ok());
        assert_eq!(read_own_text(&place("file")).unwrap(), "four");
        for name in ["link", "pipe"] {
            let error = read_own(&place(name)).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{name}: {error}");
        }
    }
}
