//! Locks on the directories of commits. A commit locks its own directories exclusively, and the directories
//! above them shared. So two commits exclude each other exactly if a directory of one is the other's or
//! inside it.
//!
//! The locks belong to open files, and so end with their process in any case.

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

/// Locks of a commit, released on drop.
pub(crate) struct RootLocks(Vec<(PathBuf, File)>);

/// Holder of one of the locks.
pub(crate) struct Holder {
    /// The directory.
    pub(crate) root: ByteText,
    /// Description of the process, if it is known.
    pub(crate) name: String,
}

impl RootLocks {
    /// Takes all locks that a commit of `set` needs, or none, without waiting; `journals` is their directory.
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
            let name = Digest::of_bytes(root.as_os_str().as_bytes()).to_string();
            let at = journals.join(format!("{name}.lock"));
            match take_lock(&at, how)? {
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

/// Takes one lock, or returns its holder.
fn take_lock(at: &Path, how: FlockOperation) -> io::Result<Result<File, String>> {
    loop {
        let file = File::options().create(true).truncate(false).write(true).open(at)?;
        match flock(&file, how) {
            Ok(()) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => return Ok(Err(describe_holder(&file))),
            Err(error) => return Err(error.into()),
        }
        // Its last holder may have removed it meanwhile; then it protects nothing.
        if leads_to(at, &file) {
            return Ok(Ok(file));
        }
    }
}

/// Attempts to find a holder. The system's list is read in pieces, and an entry is missed if an earlier one
/// disappears meanwhile.
const LOOKS: u32 = 20;

/// Describes the process that has a lock, from the system's list of all locks.
fn describe_holder(file: &File) -> String {
    let inode = file.metadata().map(|found| found.ino().to_string()).unwrap_or_default();
    let Some(pid) = (0..LOOKS).find_map(|_| locking_process(&inode)).filter(|pid| *pid > 0) else {
        return "another process".to_owned();
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program is in brackets and may contain brackets itself; the state follows.
    match stat.rsplit_once(") ") {
        Some((_, rest)) if rest.starts_with(['T', 't']) => {
            format!("process {pid}, which is stopped (`kill -CONT {pid}` continues it),")
        }
        _ => format!("process {pid}"),
    }
}

/// Number of the process with a lock on this inode; 0 or less for a process that this one cannot see.
fn locking_process(inode: &str) -> Option<i64> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; a waiting process has `->` as the second word.
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5)?.rsplit(':').next() == Some(inode);
        words.get(4)?.parse().ok().filter(|_| is_it)
    })
}

impl Drop for RootLocks {
    fn drop(&mut self) {
        for (at, file) in &self.0 {
            // The last holder removes it while it is locked. A process that opened it before notices that the
            // name no longer leads to it.
            if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() && leads_to(at, file) {
                let _ = fs::remove_file(at);
            }
            // Closing is not enough, because a process that is being started has a copy of the descriptor.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Locks of other processes come and go while the list is read.
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
            let names = (0..300)
                .map(|_| take_lock(&path, FlockOperation::NonBlockingLockShared).unwrap().unwrap_err());
            let others: Vec<String> = names.filter(|name| *name != me).collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(others, Vec::<String>::new());
        });
    }
}
