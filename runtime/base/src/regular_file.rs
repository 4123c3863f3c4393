//! Opens files whose names come from outside: such a name may belong to a pipe without a writer, to an endless device,
//! or to this process's own input.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a regular file, without ever waiting for the other end of a pipe.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, OFlags::empty())
}

/// Opens one of lobster's own files with `options`. It must be a regular file: a link is not followed, since it leads
/// elsewhere.
///
/// # Errors
/// As [`open`], or if it is a link.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_with(options, path, OFlags::NOFOLLOW).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("not a regular file: it is a link"),
        _ => error,
    })
}

/// The bytes of one of lobster's own files.
///
/// # Errors
/// As [`open_own`].
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own(OpenOptions::new().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of one of lobster's own files.
///
/// # Errors
/// As [`open_own`], or if it is not text.
pub fn read_own_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_own(OpenOptions::new().read(true), path)?)
}

fn open_with(options: &mut OpenOptions, path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | more).bits().cast_signed();
    let file =
        options.custom_flags(flags).open(path).map_err(|error| match Errno::from_io_error(&error) {
            // A socket, or a pipe without a reader.
            Some(Errno::NXIO) => io::Error::other("not a regular file"),
            _ => error,
        })?;
    require_regular(&file.metadata()?)?;
    Ok(file)
}

/// Bytes read from a pipe or a device would be lost to others, or may be written by others.
fn require_regular(file: &Metadata) -> io::Result<()> {
    if file.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if file.is_file() { Ok(()) } else { Err(io::Error::other("not a regular file")) }
}

/// Opens a regular file that has at most `max` bytes.
///
/// # Errors
/// As [`open`], or if it is larger.
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
