//! Who commits in which directories. Each directory of a change set is locked for its commit alone, and those above
//! it are shared with other commits, so two commits exclude each other exactly when one's directory is the other's or
//! in it.
//!
//! The locks belong to open files and so end with their process, however that ends.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lobster_base::digest::Digest;
use lobster_base::file_identity::leads_to;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::set::{ByteText, ChangeSet};

/// The locks of a commit; they end when this is dropped.
pub(crate) struct RootLocks(Vec<(PathBuf, File)>);

/// Who has one of them.
pub(crate) struct Holder {
    /// The directory.
    pub(crate) root: ByteText,
    /// The process, as far as it can be told.
    pub(crate) name: String,
}

impl RootLocks {
    /// Takes all locks that a commit of `set` needs, or none; `journals` is where they are kept. Waits for nobody.
    pub(crate) fn try_take(journals: &Path, set: &ChangeSet) -> io::Result<Result<Self, Holder>> {
        fs::create_dir_all(journals)?;
        let mut needed = BTreeMap::new();
        for root in &set.roots {
            let path = Path::new(OsStr::from_bytes(root.root.as_bytes()));
            for above in path.ancestors().skip(1) {
                needed.entry(above).or_insert(FlockOperation::NonBlockingLockShared);
            }
            needed.insert(path, FlockOperation::NonBlockingLockExclusive);
        }
        let mut held = Self(Vec::new());
        for (root, how) in needed {
            let name = Digest::of(root.as_os_str().as_bytes()).to_string();
            let at = journals.join(format!("{name}.lock"));
            match take(&at, how)? {
                Ok(file) => held.0.push((at, file)),
                Err(name) => {
                    let root = root.as_os_str().as_bytes().to_vec().into();
                    return Ok(Err(Holder { root, name }));
                }
            }
        }
        Ok(Ok(held))
    }
}

/// Takes one lock, or says who has it.
fn take(at: &Path, how: FlockOperation) -> io::Result<Result<File, String>> {
    loop {
        let file = File::options().create(true).truncate(false).write(true).open(at)?;
        match flock(&file, how) {
            Ok(()) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => return Ok(Err(holder(&file))),
            Err(error) => return Err(error.into()),
        }
        // Its last holder may have removed it in between; then it locks nothing.
        if leads_to(at, &file) {
            return Ok(Ok(file));
        }
    }
}

/// As often it is looked for a holder. The system's list is read in pieces, and is read past an entry if one before it
/// goes meanwhile.
const LOOKS: u32 = 20;

/// What can be told of a process that has a lock, from what the system tells of all locks.
fn holder(file: &File) -> String {
    let inode = file.metadata().map(|found| found.ino().to_string()).unwrap_or_default();
    let Some(pid) = (0..LOOKS).find_map(|_| locker(&inode)).filter(|pid| *pid > 0) else {
        return "another process".to_owned();
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may have any in it; the state follows.
    match stat.rsplit_once(") ") {
        Some((_, rest)) if rest.starts_with(['T', 't']) => {
            format!("process {pid}, which is stopped (`kill -CONT {pid}` continues it),")
        }
        _ => format!("process {pid}"),
    }
}

/// The process that has a lock on the file of this number; one that this process cannot see has the number 0 or less.
fn locker(inode: &str) -> Option<i64> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; who waits has `->` for the second word.
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5)?.rsplit(':').next() == Some(inode);
        words.get(4)?.parse().ok().filter(|_| is_it)
    })
}

impl Drop for RootLocks {
    fn drop(&mut self) {
        for (at, file) in &self.0 {
            // The last one removes it, while it is locked: whoever opened it before sees that it is not of that name
            // any more.
            if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() && leads_to(at, file) {
                let _ = fs::remove_file(at);
            }
            // Closing would not do: a process that is just being started has a copy of the descriptor.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Locks of others come and go while the list of all is read.
    #[test]
    fn the_holder_is_named_however_many_others_lock() {
        let dir = tempfile::tempdir().unwrap();
        let held = File::create(dir.path().join("held")).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let (is_over, me) = (AtomicBool::new(false), format!("process {}", std::process::id()));
        std::thread::scope(|scope| {
            for at in 0..2 {
                let files: Vec<File> =
                    (0..200).map(|n| File::create(dir.path().join(format!("{at}-{n}"))).unwrap()).collect();
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        for how in [FlockOperation::LockShared, FlockOperation::Unlock] {
                            files.iter().for_each(|file| flock(file, how).unwrap());
                        }
                    }
                });
            }
            let path = dir.path().join("held");
            let names =
                (0..300).map(|_| take(&path, FlockOperation::NonBlockingLockShared).unwrap().unwrap_err());
            let others: Vec<String> = names.filter(|name| *name != me).collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(others, Vec::<String>::new());
        });
    }
}
