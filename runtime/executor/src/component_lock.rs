//! `lobster.lock`: the digests of a project's components. `lobster add` writes it; every run or check of a component
//! that it names compares the file with it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use lobster_base::digest::Digest;

/// The format that this lobster reads and writes.
const VERSION: u32 = 1;

/// The first lines of the file.
const HEADING: &str = "# Written by `lobster add`: the components of this project, each by its bytes.\n\n";

/// The components of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentLock {
    /// Format version; 1.
    version: u32,
    /// The components by the names under which they were added.
    #[serde(default, rename = "step")]
    pub steps: BTreeMap<String, LockedStep>,
}

/// One component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedStep {
    /// The file, relative to the directory of the lock.
    pub file: PathBuf,
    /// BLAKE3 of its bytes.
    pub blake3: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Its source in the words given to `lobster add`: a name, an address, a file.
    pub source: String,
    /// The public key with which it must be signed: a SubjectPublicKeyInfo in Base64. Other bytes are accepted only
    /// with a signature by the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The reason why a component or a lock is refused.
#[derive(Debug, thiserror::Error)]
pub enum ComponentLockError {
    #[error("cannot use {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a lock file of this lobster: {why}", .path.display())]
    Wrong { path: PathBuf, why: String },
    #[error(
        "{} is not the file that was added as {name}: it is blake3:{found}, and {} has blake3:{locked}. `lobster add \
         --locked` fetches what was added; if the new bytes are meant, `lobster add {} --name {name}` takes them",
        .file.display(), .lock.display(), .file.display()
    )]
    Differs { file: PathBuf, lock: PathBuf, name: String, locked: Box<Digest>, found: Box<Digest> },
}

impl Default for ComponentLock {
    fn default() -> Self {
        Self { version: VERSION, steps: BTreeMap::new() }
    }
}

impl ComponentLock {
    /// The name of the lock in the directory of the project.
    pub const FILE: &str = "lobster.lock";

    /// The lock for files in a directory: the nearest one in it or above it, within the repository.
    #[must_use]
    pub fn find_nearest(dir: &Path) -> Option<PathBuf> {
        for dir in dir.ancestors() {
            let lock = dir.join(Self::FILE);
            // Any entry of this name is the lock, even an unreadable one: nothing is locked only if there is no entry.
            let is_absent = std::fs::symlink_metadata(&lock).is_err_and(|error| {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            });
            if !is_absent {
                return Some(lock);
            }
            if dir.join(".git").exists() {
                return None;
            }
        }
        None
    }

    /// Reads a lock; an empty one if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, ComponentLockError> {
        let wrong = |why: String| ComponentLockError::Wrong { path: path.to_owned(), why };
        let io = |source| ComponentLockError::Io { path: path.to_owned(), source };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            found => found.map_err(io)?,
        };
        // A dangling link is not a missing lock, and opening a pipe would wait for its other end.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(wrong("it is not a file".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        let lock: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if lock.version != VERSION {
            return Err(wrong(format!("its version is {}, and this lobster knows {VERSION}", lock.version)));
        }
        Ok(lock)
    }

    /// Writes the lock, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ComponentLockError> {
        let io = |source: io::Error| ComponentLockError::Io { path: path.to_owned(), source };
        let text = toml::to_string(self).map_err(|error| io(io::Error::other(error)))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut draft = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(dir)
            .map_err(io)?;
        draft.write_all(HEADING.as_bytes()).and_then(|()| draft.write_all(text.as_bytes())).map_err(io)?;
        draft.as_file().sync_all().map_err(io)?;
        draft.persist(path).map(drop).map_err(|error| io(error.error))
    }

    /// The entry of a file, if it was added; `lock` is the path of this lock.
    fn find_entry(&self, lock: &Path, file: &Path) -> Option<(&String, &LockedStep)> {
        let dir = lock.parent()?;
        self.steps
            .iter()
            .find(|(_, step)| dir.join(&step.file).canonicalize().is_ok_and(|known| known == file))
    }
}

/// Compares the bytes of a component with the lock of its project.
///
/// # Errors
/// If they differ from the bytes that were added, or the lock cannot be read.
pub fn check(file: &Path, found: &Digest) -> Result<(), ComponentLockError> {
    // A path that cannot be resolved cannot be read either; the reader reports that.
    let Ok(file) = file.canonicalize() else { return Ok(()) };
    let Some(path) = file.parent().and_then(ComponentLock::find_nearest) else { return Ok(()) };
    let lock = ComponentLock::read(&path)?;
    match lock.find_entry(&path, &file) {
        Some((name, step)) if step.blake3 != *found => Err(ComponentLockError::Differs {
            file,
            name: name.clone(),
            locked: Box::new(step.blake3),
            found: Box::new(*found),
            lock: path.clone(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_lock_counts_and_none_beyond_the_repository() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let steps = root.join("repo/sub/steps");
        std::fs::create_dir_all(&steps).unwrap();
        std::fs::write(root.join(ComponentLock::FILE), "").unwrap();
        assert_eq!(ComponentLock::find_nearest(&steps), Some(root.join(ComponentLock::FILE)));
        std::fs::create_dir(root.join("repo/.git")).unwrap();
        assert_eq!(ComponentLock::find_nearest(&steps), None);
        let lock = root.join("repo/sub").join(ComponentLock::FILE);
        std::fs::write(&lock, "").unwrap();
        assert_eq!(ComponentLock::find_nearest(&steps), Some(lock));
    }

    #[test]
    fn what_is_no_file_is_no_missing_lock() {
        let place = tempfile::tempdir().unwrap();
        let (file, lock) = (place.path().join("a.wasm"), place.path().join(ComponentLock::FILE));
        std::fs::write(&file, "one").unwrap();
        let is_refused = |what: &str| {
            assert_eq!(ComponentLock::find_nearest(place.path()), Some(lock.clone()), "{what}");
            assert!(ComponentLock::read(&lock).is_err(), "{what}");
            assert!(check(&file, &Digest::of_bytes(b"one")).is_err(), "{what}");
        };
        std::fs::create_dir(&lock).unwrap();
        is_refused("a directory");
        std::fs::remove_dir(&lock).unwrap();
        std::os::unix::fs::symlink("nowhere", &lock).unwrap();
        is_refused("a link that leads nowhere");
        std::fs::remove_file(&lock).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        is_refused("a pipe");
        std::fs::remove_file(&lock).unwrap();
        assert!(check(&file, &Digest::of_bytes(b"one")).is_ok());
    }

    #[test]
    fn only_the_bytes_that_were_added_pass_also_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (file, path) = (place.path().join("a.wasm"), place.path().join(ComponentLock::FILE));
        std::fs::write(&file, "one").unwrap();
        let step = LockedStep {
            file: PathBuf::from("a.wasm"),
            blake3: Digest::of_bytes(b"one"),
            size: 3,
            source: "./a.wasm".to_owned(),
            key: None,
        };
        let mut lock = ComponentLock::default();
        lock.steps.insert("a".to_owned(), step);
        lock.write(&path).unwrap();
        assert_eq!(ComponentLock::read(&path).unwrap(), lock);
        std::os::unix::fs::symlink("a.wasm", place.path().join("link.wasm")).unwrap();
        for name in ["a.wasm", "link.wasm"] {
            assert!(check(&place.path().join(name), &Digest::of_bytes(b"one")).is_ok());
            let error = check(&place.path().join(name), &Digest::of_bytes(b"two")).unwrap_err();
            assert!(matches!(error, ComponentLockError::Differs { .. }), "{error}");
        }
        assert!(check(&place.path().join("b.wasm"), &Digest::of_bytes(b"two")).is_ok());
        for wrong in ["version = 2\n", "version = 1\nmore = 1\n", "[step"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(
                matches!(check(&file, &Digest::of_bytes(b"one")), Err(ComponentLockError::Wrong { .. })),
                "{wrong}"
            );
        }
    }
}
