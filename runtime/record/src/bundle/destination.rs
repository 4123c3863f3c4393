//! Destination of a bundle, which never overwrites anything but bundles.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::format::MAGIC;

/// Reason why a file is not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("cannot write {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{} exists and is not a bundle, so it is not replaced; choose another name, or use --force", .0.display()
    )]
    NotABundle(PathBuf),
}

/// A bundle that is being written.
pub(super) enum Destination {
    /// A file that gets its name only when it is complete.
    Whole { file: NamedTempFile, path: PathBuf },
    /// A pipe or a device, which receives the bytes as they come.
    Stream { file: File, path: PathBuf },
}

impl Destination {
    /// Opens the target of `path`. Links are followed, and a file that is not a bundle is replaced only with
    /// `force`.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self, Refused> {
        let failed = |source| Refused::Io { path: path.to_owned(), source };
        let there = match fs::metadata(path) {
            Ok(there) => there,
            // A dangling link must not be replaced by the file that it was meant to name.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
                return Err(failed(io::Error::new(error.kind(), "it is a link to a missing file")));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::whole_file(path.to_owned()).map_err(failed);
            }
            Err(error) => return Err(failed(error)),
        };
        if there.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        if !there.is_file() {
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok(Self::Stream { file, path: path.to_owned() });
        }
        if !force && there.len() > 0 && !is_bundle(path).map_err(failed)? {
            return Err(Refused::NotABundle(path.to_owned()));
        }
        Self::whole_file(fs::canonicalize(path).map_err(failed)?).map_err(failed)
    }

    fn whole_file(path: PathBuf) -> io::Result<Self> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Self::Whole { file: NamedTempFile::new_in(dir)?, path })
    }

    pub(super) fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Whole { file, .. } => file,
            Self::Stream { file, .. } => file,
        }
    }

    /// Completes the bundle: all bytes are written.
    pub(super) fn finish(self) -> Result<(), Refused> {
        match self {
            Self::Whole { file, path } => file
                .as_file()
                .sync_all()
                .and_then(|()| file.persist(&path).map_err(|error| error.error))
                .map(drop)
                .map_err(|source| Refused::Io { path, source }),
            Self::Stream { mut file, path } => file.flush().map_err(|source| Refused::Io { path, source }),
        }
    }
}

/// True if a file begins like a bundle of any version.
fn is_bundle(path: &Path) -> io::Result<bool> {
    let mut begins = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64 - 1).read_to_end(&mut begins)?;
    Ok(begins == MAGIC[..MAGIC.len() - 1])
}
