//! The state directory is accessible to its user only: directories have mode 0700 and files 0600, whatever the umask.
//! When lobster starts, it also closes files left open by an earlier version or another program.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use lobster_base::file_identity::leads_to_file_of;
use lobster_base::glob::glob_match;

use super::error::StoreError;
use super::state_parts::STATE_PARTS;

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;
/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// A directory in which all users keep files (`/tmp`).
const STICKY: u32 = 0o1000;

/// Checked each time the store is opened. If any of them is open to others, anything below may be, so everything is
/// checked.
const LOOKED_AT: [&str; 7] =
    ["", "store", "store/blobs", "store/tmp", "store/locks", "store/lobster.db", "store/lobster.db-wal"];

/// Creates a directory and its missing parents, for this user only.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    // The umask can only remove permissions.
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Closes a state directory to others, as far as this user owns it.
///
/// # Errors
/// If another user owns it or its store, or if others may write to it and that cannot be changed: they could have put
/// anything there.
pub(super) fn close_to_others(state_dir: &Path) -> Result<(), StoreError> {
    let (mut open, mut keeps_mode) = (false, false);
    for name in LOOKED_AT {
        let path = if name.is_empty() { state_dir.to_owned() } else { state_dir.join(name) };
        let Some(meta) = read_metadata(&path)? else { continue };
        check_owner(&path, &meta)?;
        let (is_expected, expected) = match name.contains("lobster.db") {
            true => (meta.is_file(), "file"),
            false => (meta.is_dir(), "directory"),
        };
        if !is_expected {
            return Err(unusable_error(&path, io::Error::other(format!("it is not a {expected}"))));
        }
        let is_open = meta.mode() & OTHERS != 0;
        let is_shared = is_open && name.is_empty() && is_shared(&path, &meta);
        if is_shared
            && meta.mode() & OTHERS_WRITE != 0
            && meta.mode() & STICKY == 0
            && path.parent().is_some()
        {
            let why =
                "others may write to it, and it has files of other programs; give lobster its own directory";
            return Err(unusable_error(&path, io::Error::other(why)));
        }
        keeps_mode |= is_shared;
        open |= is_open && !is_shared;
    }
    if !open {
        return Ok(());
    }
    if keeps_mode { close_below(&state_dir.join("store")) } else { close_below(state_dir) }
}

/// Rejects a directory of another user, who controls its content. A missing directory is accepted.
///
/// # Errors
/// If it belongs to a user other than this one and root.
pub(super) fn check_dir_owner(dir: &Path) -> Result<(), StoreError> {
    match read_metadata(dir)? {
        Some(meta) => check_owner(dir, &meta),
        None => Ok(()),
    }
}

fn read_metadata(path: &Path) -> Result<Option<Metadata>, StoreError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(unusable_error(path, source)),
    }
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), StoreError> {
    let (own, owner) = (rustix::process::geteuid().as_raw(), meta.uid());
    if owner == own || owner == 0 || own == 0 {
        return Ok(());
    }
    let why =
        format!("it belongs to user {owner}, who could have put anything there, and this is user {own}");
    Err(unusable_error(path, io::Error::other(why)))
}

/// True for a shared directory, even if lobster's state is kept in it: `/tmp`, the home directory, and any directory
/// that holds files of other programs.
fn is_shared(dir: &Path, meta: &Metadata) -> bool {
    let is_ours = |name: &str| {
        STATE_PARTS.iter().any(|part| glob_match(part.path.split('/').next().unwrap_or_default(), name))
    };
    let has_other_files = || {
        let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_str().is_none_or(|name| !is_ours(name)))
    };
    let is_home = || std::env::var_os("HOME").is_some_and(|home| leads_to_file_of(Path::new(&home), meta));
    meta.mode() & STICKY != 0 || dir.parent().is_none() || is_home() || has_other_files()
}

/// Closes a directory and everything below it, without following links.
fn close_below(dir: &Path) -> Result<(), StoreError> {
    // The directory comes first: afterwards its content is out of reach for others.
    let target = match fs::metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(unusable_error(dir, source)),
    };
    restrict_mode(dir, &target)?;
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        let Ok(meta) = entry.metadata() else { continue };
        let path = entry.path();
        if meta.is_dir() {
            close_below(&path)?;
        } else if meta.is_file() {
            restrict_mode(&path, &meta)?;
        }
    }
    Ok(())
}

fn restrict_mode(path: &Path, meta: &Metadata) -> Result<(), StoreError> {
    if meta.mode() & OTHERS == 0 {
        return Ok(());
    }
    let mode = meta.mode() & 0o7777 & !OTHERS;
    match fs::set_permissions(path, Permissions::from_mode(mode)) {
        // Removed meanwhile, as may happen to a log or a draft.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Only this user or root can have written a file that others cannot write to.
        Err(_) if meta.mode() & OTHERS_WRITE == 0 => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        Err(error) => {
            let why = format!(
                "others may write to it (mode {:o}), and that cannot be changed: {error}",
                meta.mode() & 0o7777
            );
            Err(unusable_error(path, io::Error::other(why)))
        }
        Ok(()) => Ok(()),
    }
}

fn unusable_error(path: &Path, source: io::Error) -> StoreError {
    StoreError::Unusable { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn file_mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_open_is_closed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (state, outside) = (dir.path().join("state"), dir.path().join("outside"));
        fs::create_dir_all(state.join("store/blobs/ab")).unwrap();
        fs::create_dir_all(state.join("models")).unwrap();
        for file in ["k.json", "models/channels.json", "store/lobster.db", "store/blobs/ab/x"] {
            fs::write(state.join(file), "x").unwrap();
            fs::set_permissions(state.join(file), Permissions::from_mode(0o666)).unwrap();
        }
        fs::write(&outside, "x").unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o644)).unwrap();
        symlink(&outside, state.join("link.json")).unwrap();
        for sub in ["", "store", "store/blobs", "store/blobs/ab", "models"] {
            fs::set_permissions(state.join(sub), Permissions::from_mode(0o777)).unwrap();
        }
        close_to_others(&state).unwrap();
        for sub in ["", "store", "store/blobs", "store/blobs/ab", "models"] {
            assert_eq!(file_mode(&state.join(sub)), 0o700, "{sub}");
        }
        for file in ["k.json", "models/channels.json", "store/lobster.db", "store/blobs/ab/x"] {
            assert_eq!(file_mode(&state.join(file)), 0o600, "{file}");
        }
        assert_eq!(file_mode(&outside), 0o644);
        // A mode that a person sets inside a closed directory stays.
        fs::set_permissions(state.join("k.json"), Permissions::from_mode(0o644)).unwrap();
        close_to_others(&state).unwrap();
        assert_eq!(file_mode(&state.join("k.json")), 0o644);
    }

    #[test]
    fn a_directory_for_everybody_stays_one_and_the_store_in_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("store")).unwrap();
        fs::set_permissions(dir.path().join("store"), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        close_to_others(dir.path()).unwrap();
        assert_eq!((file_mode(dir.path()), file_mode(&dir.path().join("store"))), (0o1777, 0o700));
    }

    #[test]
    fn what_is_no_state_directory_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("file"), dir.path().join("etc"));
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert!(close_to_others(&file).unwrap_err().to_string().contains("it is not a directory"));
        assert_eq!(file_mode(&file), 0o644);
        fs::create_dir_all(other.join("ssl")).unwrap();
        for path in [&other, &other.join("ssl")] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        close_to_others(&other).unwrap();
        fs::create_dir(other.join("store")).unwrap();
        fs::set_permissions(other.join("store"), Permissions::from_mode(0o755)).unwrap();
        close_to_others(&other).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o777)).unwrap();
        assert!(close_to_others(&other).unwrap_err().to_string().contains("its own directory"));
        fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
        let modes = ["", "ssl", "store"].map(|name| file_mode(&other.join(name)));
        assert_eq!(modes, [0o755, 0o755, 0o700]);
    }

    #[test]
    fn what_is_not_there_is_no_error_and_new_directories_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        close_to_others(&state).unwrap();
        check_dir_owner(&state).unwrap();
        make_dir(&state).unwrap();
        assert_eq!((file_mode(&state), file_mode(&dir.path().join("a"))), (0o700, 0o700));
    }
}
