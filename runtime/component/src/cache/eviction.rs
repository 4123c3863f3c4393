//! The size limit of the code cache, and the order in which code is removed.
//!
//! Removal is safe while other processes run: mapped code stays mapped when its file is removed, a
//! program that is being compiled is locked and left alone, and a process whose file disappears between
//! two checks compiles again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lobster_base::regular_file;

/// Size limit of the compiled code in bytes: some 30 programs as large as Python, or thousands in Rust.
/// `lobster store gc --max-code` applies a lower limit once.
pub const MAX_CODE: u64 = 1 << 30;

/// Precision of the time of the last use: recording every use would cost a write per run.
const USE_NOTED_EVERY: Duration = Duration::from_secs(60 * 60);

/// An older draft was left by a process that died.
const DRAFT_AGE: Duration = Duration::from_secs(60 * 60);

/// Size of the compiled code on disk, or of the code that was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeUse {
    /// Number of programs; the same program under two versions of the compiler is two.
    pub programs: u64,
    pub bytes: u64,
}

/// Rules for the compiled code that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLimits {
    /// The least recently used code is removed until the rest takes at most this many bytes.
    pub max_bytes: u64,
    /// Code that was not used for longer than this is removed.
    pub max_age: Option<Duration>,
    /// Only report the code that would be removed.
    pub dry_run: bool,
}

impl Default for CodeLimits {
    fn default() -> Self {
        Self { max_bytes: MAX_CODE, max_age: None, dry_run: false }
    }
}

/// The code of one program.
struct Entry {
    /// Path without the extension.
    stem: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Entry {
    fn program_file(&self, extension: &str) -> PathBuf {
        self.stem.with_extension(extension)
    }

    /// Removes the code unless it is being compiled; false if it stays.
    fn try_remove(&self) -> bool {
        let path = self.program_file("lock");
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let Ok(lock) = regular_file::open_own(&mut options, &path) else {
            return false;
        };
        if lock.try_lock().is_err() {
            return false;
        }
        // The record goes first: code without a record is not read.
        let gone = ["blake3", "seen", "cwasm", "refused"].iter().all(|extension| {
            let removed = fs::remove_file(self.program_file(extension));
            removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        });
        let _ = fs::remove_file(path);
        gone
    }
}

/// Records that code was used now; `record` is the file with its digest.
pub(super) fn note_use(record: &Path) {
    let note = || -> io::Result<()> {
        let age = fs::metadata(record)?.modified()?.elapsed().unwrap_or(Duration::MAX);
        if age < USE_NOTED_EVERY {
            return Ok(());
        }
        regular_file::open_own(File::options().append(true), record)?.set_modified(SystemTime::now())
    };
    if let Err(error) = note() {
        tracing::debug!(path = %record.display(), %error, "cannot record the use of compiled code");
    }
}

/// Size of the cache in `dir`.
pub(crate) fn usage(dir: &Path) -> CodeUse {
    total_use(&list_entries(dir))
}

/// Removes code until the cache in `dir` fits `limits`; returns the size of the removed code.
pub(crate) fn prune(dir: &Path, limits: &CodeLimits) -> CodeUse {
    let mut entries = list_entries(dir);
    entries.sort_by_key(|entry| entry.used);
    let mut left = total_use(&entries).bytes;
    let mut gone = CodeUse::default();
    for entry in &entries {
        let old = limits.max_age.is_some_and(|most| entry.used.elapsed().is_ok_and(|age| age > most));
        if !old && left <= limits.max_bytes {
            continue;
        }
        if limits.dry_run || entry.try_remove() {
            left -= entry.bytes;
            gone.bytes += entry.bytes;
            gone.programs += 1;
        }
    }
    if !limits.dry_run {
        remove_drafts(dir);
    }
    gone
}

fn total_use(entries: &[Entry]) -> CodeUse {
    CodeUse { programs: entries.len() as u64, bytes: entries.iter().map(|entry| entry.bytes).sum() }
}

/// All code below `dir`, including the code of other compilers. Unreadable entries are left out.
fn list_entries(dir: &Path) -> Vec<Entry> {
    let entry = |path: PathBuf| -> Option<Entry> {
        let code = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let stem = path.with_extension("");
        // Code without a record belongs to a process that died before it wrote the record.
        let used = fs::metadata(stem.with_extension("blake3")).unwrap_or_else(|_| code.clone()).modified();
        Some(Entry { stem, bytes: code.len(), used: used.ok()? })
    };
    let is_code = |path: &PathBuf| path.extension().is_some_and(|end| end == "cwasm" || end == "refused");
    list_files(dir).into_iter().filter(is_code).filter_map(entry).collect()
}

/// The files in the directories of all compilers.
fn list_files(dir: &Path) -> Vec<PathBuf> {
    let list = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    list(dir).iter().flat_map(|compiler| list(compiler)).collect()
}

fn remove_drafts(dir: &Path) {
    let is_draft = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(super::DRAFT))
    };
    for draft in list_files(dir).iter().filter(is_draft) {
        let written = fs::symlink_metadata(draft).and_then(|meta| meta.modified());
        if written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > DRAFT_AGE)) {
            let _ = fs::remove_file(draft);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with programs of 100 bytes, each used this many hours ago.
    fn aged_cache(hours: &[u64]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        for (n, hours) in hours.iter().enumerate() {
            let stem = dir.path().join(format!("compiler{}/{n}", n % 2));
            fs::create_dir_all(stem.parent().expect("a parent")).expect("creates");
            fs::write(stem.with_extension("cwasm"), [0; 100]).expect("writes");
            fs::write(stem.with_extension("blake3"), "digest").expect("writes");
            let used = SystemTime::now() - Duration::from_secs(hours * 3600);
            let record = File::options().append(true).open(stem.with_extension("blake3")).expect("opens");
            record.set_modified(used).expect("sets the time");
        }
        dir
    }

    fn file_names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = list_files(dir)
            .iter()
            .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let dir = aged_cache(&[5, 50, 2, 1]);
        let limits = CodeLimits { max_bytes: 250, ..CodeLimits::default() };
        let would = prune(dir.path(), &CodeLimits { dry_run: true, ..limits });
        assert_eq!((would, usage(dir.path()).bytes), (CodeUse { programs: 2, bytes: 200 }, 400));
        assert_eq!(prune(dir.path(), &limits), would);
        assert_eq!(file_names(dir.path()), ["2.blake3", "2.cwasm", "3.blake3", "3.cwasm"]);
        assert_eq!(usage(dir.path()), CodeUse { programs: 2, bytes: 200 });
        let old = CodeLimits { max_age: Some(Duration::from_secs(90 * 60)), ..CodeLimits::default() };
        assert_eq!(prune(dir.path(), &old).programs, 1);
        assert_eq!(file_names(dir.path()), ["3.blake3", "3.cwasm"]);
    }

    #[test]
    fn what_is_being_compiled_stays() {
        let dir = aged_cache(&[5]);
        let lock = File::create(dir.path().join("compiler0/0.lock")).expect("creates");
        lock.lock().expect("locks");
        let all = CodeLimits { max_bytes: 0, ..CodeLimits::default() };
        assert_eq!(prune(dir.path(), &all), CodeUse::default());
        drop(lock);
        assert_eq!(prune(dir.path(), &all).programs, 1);
        assert_eq!(file_names(dir.path()), [""; 0]);
    }

    #[test]
    fn drafts_of_dead_processes_go() {
        let dir = aged_cache(&[1]);
        let draft = |name: &str, hours: u64| {
            let file = File::create(dir.path().join("compiler0").join(name)).expect("creates");
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).expect("sets the time");
        };
        draft(".new-old", 2);
        draft(".new-fresh", 0);
        prune(dir.path(), &CodeLimits::default());
        assert_eq!(file_names(dir.path()), [".new-fresh", "0.blake3", "0.cwasm"]);
    }
}
