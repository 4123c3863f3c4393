//! Claims: the right of one process to execute a run.
//!
//! A claim is a file lock, so it ends with the process that holds it, even if that is killed. A run that is `running`
//! and unclaimed has crashed.
//!
//! The file may be removed while the lock is held, and then another process can claim the run. Each claim is therefore
//! also a new row of the database, written before its holder reads the journal. A holder appends to the run only while
//! the row is its own, checked in the same transaction. Effects begun by the earlier holder are in the journal by
//! then, and it begins no others.
//!
//! A process that executes a single run and does nothing else writes its identity into the file, so that a command
//! that stops the run finds the process. Programs that embed lobster or serve many runs write none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lobster_base::file_identity::leads_to;
use lobster_base::regular_file;
use lobster_base::sync::lock;
use lobster_base::ticks::time_of_ticks;
use rusqlite::Transaction;

use super::db::Durability;
use super::error::StoreError;
use super::event::RunId;
use super::file_lock::{FileLock, Sharing};
use super::statement::query_one;
use super::{Inner, Store, claim_tables};

/// [`Store::is_claimed`] holds the lock for an instant; a new claim waits this long for it.
const GLANCE: Duration = Duration::from_millis(20);

/// True if this process executes a single run and does nothing else.
static IS_OF_ONE_RUN: AtomicBool = AtomicBool::new(false);

/// Marks this process as one that executes a single run and does nothing else: stopping the run may kill the process.
pub fn end_with_run() {
    IS_OF_ONE_RUN.store(true, Ordering::Relaxed);
}

/// A process that executes a single run and does nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunProcess {
    pub pid: u32,
    /// Start time in ticks since boot, which tells it from a later process with the same number.
    began: u64,
    /// The name space of its number.
    namespace: String,
}

impl RunProcess {
    fn this_process() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, began: process_start_time(pid)?, namespace: pid_namespace()? })
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let (pid, began) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { pid, began, namespace: words.next()?.to_owned() })
    }

    /// True if this process can see it, and its number has not been reused.
    #[must_use]
    pub fn is_there(&self) -> bool {
        pid_namespace().as_deref() == Some(&*self.namespace)
            && process_start_time(self.pid) == Some(self.began)
    }

    /// Time since it started.
    #[must_use]
    pub fn age(&self) -> Duration {
        let up = fs::read_to_string("/proc/uptime").ok();
        let up = up.and_then(|text| text.split_ascii_whitespace().next()?.parse::<f64>().ok());
        let began = time_of_ticks(self.began);
        up.map_or(Duration::ZERO, |up| Duration::from_secs_f64(up).saturating_sub(began))
    }
}

impl std::fmt::Display for RunProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.pid, self.began, self.namespace)
    }
}

/// Start time of the process with this number, if it exists.
pub(super) fn process_start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in brackets and may itself contain brackets; the start time is the 22nd field.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn pid_namespace() -> Option<String> {
    Some(fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned())
}

/// The right to execute a run; ends when dropped.
pub struct RunClaim {
    path: PathBuf,
    lock: FileLock,
    run: RunId,
    /// The store that granted the claim and checks its appends.
    inner: Weak<Inner>,
}

impl std::fmt::Debug for RunClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunClaim").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            lock(&inner.claims).remove(&self.run);
        }
        // Removed while still locked: a process that opened the file before finds, once it has the lock, that the name
        // no longer leads to it. If the name leads to another file, that belongs to another claim.
        if leads_to(&self.path, self.lock.locked_file()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Store {
    /// Claims the right to execute `run`. Only the holder may append to the run, except for answers to gates.
    ///
    /// # Errors
    /// [`StoreError::RunBusy`] while another process, or another part of this one, has the claim.
    pub fn claim_run(&self, run: RunId) -> Result<RunClaim, StoreError> {
        let path = self.claim_path(run);
        let fail = |e| StoreError::io("lock", &path, e);
        // The file may have been removed, so the lock alone does not show an existing claim.
        if lock(&self.inner.claims).contains_key(&run) {
            return Err(StoreError::RunBusy(run.to_string()));
        }
        loop {
            let file = match open_or_create(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let dir = self.inner.dir.join("locks");
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
                    open_or_create(&path).map_err(fail)?
                }
                other => other.map_err(fail)?,
            };
            let Some(held) = FileLock::try_acquire(file, Sharing::Exclusive, GLANCE).map_err(fail)? else {
                return Err(StoreError::RunBusy(run.to_string()));
            };
            // The last holder may have removed the file in between; then this lock is worthless.
            if leads_to(&path, held.locked_file()) {
                name_holder(held.locked_file());
                self.note_claim(run)?;
                return Ok(RunClaim { path, lock: held, run, inner: Arc::downgrade(&self.inner) });
            }
        }
    }

    /// Replaces the row of the claim by a new one.
    fn note_claim(&self, run: RunId) -> Result<(), StoreError> {
        let number = self.inner.write_transaction(Durability::Lazy, |tx| {
            claim_tables::create_if_missing(tx)?;
            let next = "INSERT OR REPLACE INTO claims (run) VALUES (?1) RETURNING n";
            Ok(tx.prepare_cached(next)?.query_row([run.as_bytes()], |row| row.get::<_, i64>(0))?)
        })?;
        lock(&self.inner.claims).insert(run, number);
        Ok(())
    }

    /// Fails if this process had claimed `run` and another process has claimed it since. Processes without a claim
    /// pass.
    pub(super) fn check_claim(&self, tx: &Transaction<'_>, run: RunId) -> Result<(), StoreError> {
        let Some(own) = lock(&self.inner.claims).get(&run).copied() else { return Ok(()) };
        let sql = "SELECT n FROM claims WHERE run = ?1";
        let newest: Option<i64> = query_one(tx, sql, [run.as_bytes()], |row| row.get(0))?;
        if newest == Some(own) { Ok(()) } else { Err(StoreError::ClaimLost(run.to_string())) }
    }

    /// True if `run` is being executed at this moment.
    #[must_use]
    pub fn is_claimed(&self, run: RunId) -> bool {
        regular_file::open_own(File::options().read(true), &self.claim_path(run))
            .and_then(|file| FileLock::try_acquire(file, Sharing::Shared, Duration::ZERO))
            .is_ok_and(|lock| lock.is_none())
    }

    /// The process that executes `run` at this moment, if it does nothing else and is visible to this one.
    #[must_use]
    pub fn process_of_run(&self, run: RunId) -> Option<RunProcess> {
        let text = regular_file::read_own_text(&self.claim_path(run)).ok()?;
        // The text may be from a killed process whose number is free or has been reused.
        RunProcess::from_text(&text).filter(|process| self.is_claimed(run) && process.is_there())
    }

    /// Removes claim files left by killed processes for runs that no longer exist, and returns their number.
    pub(super) fn sweep_claims(
        &self,
        is_known: &dyn Fn(RunId) -> Result<bool, StoreError>,
        dry_run: bool,
    ) -> Result<u64, StoreError> {
        let mut swept = 0;
        for path in super::gc::dir_entries(&self.inner.dir.join("locks")) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(run) = name.strip_prefix("run-").and_then(|run| run.parse().ok()) else { continue };
            let held = regular_file::open_own(File::options().read(true), &path)
                .and_then(|file| FileLock::try_acquire(file, Sharing::Exclusive, Duration::ZERO));
            // Removed under the lock: a process that opened the file before finds that the name no longer leads to it.
            let Ok(Some(held)) = held else { continue };
            if is_known(run)? || !leads_to(&path, held.locked_file()) {
                continue;
            }
            swept += 1;
            if !dry_run {
                fs::remove_file(&path).map_err(|error| StoreError::io("remove", &path, error))?;
            }
        }
        Ok(swept)
    }

    fn claim_path(&self, run: RunId) -> PathBuf {
        // The lock of a state key ends in `.json`, so the names never clash.
        self.inner.dir.join("locks").join(format!("run-{run}"))
    }
}

/// Writes the holder into the lock file. If that fails, the run is executed anyway, but other processes cannot stop
/// it.
fn name_holder(mut file: &File) {
    // A killed holder's entry may still be in the file.
    let _ = file.set_len(0);
    if let Some(own) = RunProcess::this_process().filter(|_| IS_OF_ONE_RUN.load(Ordering::Relaxed)) {
        let _ = file.write_all(own.to_string().as_bytes());
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    regular_file::open_own(OpenOptions::new().create(true).truncate(false).write(true).mode(0o600), path)
}
