//! Files that are written completely or not at all.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Writes a new file, and creates its parent directories.
pub(crate) fn write_new(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(content.as_ref())
}

/// Replaces the content of a file completely or not at all, or creates it; links and modes are kept.
pub(crate) fn replace_file(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, mode) = match fs::canonicalize(path) {
        Ok(path) => {
            let mode = fs::metadata(&path)?.permissions();
            (path, Some(mode))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => (PathBuf::from(path), None),
        Err(error) => return Err(error),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // A new file gets the mode of the umask; the draft of an existing file is private until it has that
    // file's mode.
    let first = Permissions::from_mode(if mode.is_some() { 0o600 } else { 0o666 });
    let mut draft = tempfile::Builder::new().permissions(first).tempfile_in(folder)?;
    draft.write_all(content.as_ref())?;
    if let Some(mode) = mode {
        draft.as_file().set_permissions(mode)?;
    }
    draft.as_file().sync_all()?;
    draft.persist(&path)?;
    Ok(())
}
