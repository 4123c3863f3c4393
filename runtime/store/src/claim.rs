//! Who is executing a run.
//!
//! A claim is a file lock, so it ends with the process that holds it, however
//! that ends. A run that is `running` and unclaimed has crashed.
//!
//! The file may be removed under its holder, and then another process claims the run. So each claim is a new row of
//! the database as well, written before its holder reads the journal; and whoever holds a claim appends to the run only
//! while the row is its own, in the same transaction. What the earlier holder had begun stands in the journal then, and
//! it begins nothing more.
//!
//! A process that executes one run and nothing else says in the file who it is, so that whoever is to end the run
//! finds the process. A program that has lobster in it, or serves many runs, says nothing.

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
use rusqlite::{OptionalExtension, Transaction};

use super::db::Durability;
use super::error::StoreError;
use super::event::RunId;
use super::file_lock::{FileLock, Sharing};
use super::{Inner, Store, claim_tables};

/// [`Store::is_claimed`] holds the lock for an instant; a claim outwaits it.
const GLANCE: Duration = Duration::from_millis(20);

/// Whether this process executes one run and nothing else.
static IS_OF_ONE_RUN: AtomicBool = AtomicBool::new(false);

/// Says that this process executes one run and nothing else: whoever ends the run may end the process.
pub fn end_with_run() {
    IS_OF_ONE_RUN.store(true, Ordering::Relaxed);
}

/// A process that executes one run and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunProcess {
    pub pid: u32,
    /// When it began, in ticks since the machine did: no later process with its number has the same.
    began: u64,
    /// The name space of its number.
    namespace: String,
}

impl RunProcess {
    fn own() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, began: began(pid)?, namespace: namespace()? })
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let (pid, began) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { pid, began, namespace: words.next()?.to_owned() })
    }

    /// Whether its number is still its own, as seen from this process.
    #[must_use]
    pub fn is_there(&self) -> bool {
        namespace().as_deref() == Some(&*self.namespace) && began(self.pid) == Some(self.began)
    }

    /// For how long it has been at work.
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

/// When a process began, if there is one of this number.
pub(super) fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets and may have any in it; the time is the 22nd field.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn namespace() -> Option<String> {
    Some(fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned())
}

/// The right to execute a run; ends when dropped.
pub struct RunClaim {
    path: PathBuf,
    lock: FileLock,
    run: RunId,
    /// The store that was asked for it; its appends are checked.
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
        // While it is still locked: whoever opened it before sees, once they
        // have the lock, that it is no longer the file of that name. Another file of the name is another claim's.
        if leads_to(&self.path, self.lock.file()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Store {
    /// Takes the right to execute `run`. Only its holder may append to the run,
    /// except for answers to gates.
    ///
    /// # Errors
    /// [`StoreError::RunBusy`] while another process, or another part of this one, has it.
    pub fn claim_run(&self, run: RunId) -> Result<RunClaim, StoreError> {
        let path = self.claim_path(run);
        let fail = |e| StoreError::io("lock", &path, e);
        // Its file may have been removed.
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
            let Some(held) = FileLock::take(file, Sharing::Exclusive, GLANCE).map_err(fail)? else {
                return Err(StoreError::RunBusy(run.to_string()));
            };
            // Its last holder may have removed it in between; then it locks nothing.
            if leads_to(&path, held.file()) {
                name_holder(held.file());
                self.note_claim(run)?;
                return Ok(RunClaim { path, lock: held, run, inner: Arc::downgrade(&self.inner) });
            }
        }
    }

    /// Makes a new row of the claim, in place of the one before.
    fn note_claim(&self, run: RunId) -> Result<(), StoreError> {
        let number = self.inner.write(Durability::Lazy, |tx| {
            claim_tables::make(tx)?;
            let next = "INSERT OR REPLACE INTO claims (run) VALUES (?1) RETURNING n";
            Ok(tx.prepare_cached(next)?.query_row([run.as_bytes()], |row| row.get::<_, i64>(0))?)
        })?;
        lock(&self.inner.claims).insert(run, number);
        Ok(())
    }

    /// An error if this process had claimed `run` and another one has claimed it since. Whoever has no claim is not
    /// asked for one.
    pub(super) fn check_claim(&self, tx: &Transaction<'_>, run: RunId) -> Result<(), StoreError> {
        let Some(own) = lock(&self.inner.claims).get(&run).copied() else { return Ok(()) };
        let mut newest = tx.prepare_cached("SELECT n FROM claims WHERE run = ?1")?;
        let newest: Option<i64> = newest.query_row([run.as_bytes()], |row| row.get(0)).optional()?;
        if newest == Some(own) { Ok(()) } else { Err(StoreError::ClaimLost(run.to_string())) }
    }

    /// Whether somebody is executing `run` at this moment.
    #[must_use]
    pub fn is_claimed(&self, run: RunId) -> bool {
        regular_file::open_own(File::options().read(true), &self.claim_path(run))
            .and_then(|file| FileLock::take(file, Sharing::Shared, Duration::ZERO))
            .is_ok_and(|lock| lock.is_none())
    }

    /// The process that executes `run` at this moment, if it executes nothing else and this one can see it.
    #[must_use]
    pub fn process_of_run(&self, run: RunId) -> Option<RunProcess> {
        let text = regular_file::read_own_text(&self.claim_path(run)).ok()?;
        // What a killed process left there is of no process, or not of the one that has its number now.
        RunProcess::read(&text).filter(|process| self.is_claimed(run) && process.is_there())
    }

    /// Removes the files of claims that killed processes held on runs which are not there any more; gives how many.
    pub(super) fn sweep_claims(
        &self,
        is_known: &dyn Fn(RunId) -> Result<bool, StoreError>,
        dry_run: bool,
    ) -> Result<u64, StoreError> {
        let mut swept = 0;
        for path in super::gc::entries(&self.inner.dir.join("locks")) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(run) = name.strip_prefix("run-").and_then(|run| run.parse().ok()) else { continue };
            let held = regular_file::open_own(File::options().read(true), &path)
                .and_then(|file| FileLock::take(file, Sharing::Exclusive, Duration::ZERO));
            // Whoever opened it before sees, once they have the lock, that it is no longer the file of that name.
            let Ok(Some(held)) = held else { continue };
            if is_known(run)? || !leads_to(&path, held.file()) {
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
        // A state key's lock ends in `.json`, so the two never meet.
        self.inner.dir.join("locks").join(format!("run-{run}"))
    }
}

/// Writes down who has the lock. Without it the run is executed as well, and nobody else can end it.
fn name_holder(mut file: &File) {
    // Its last holder may have been killed, and stand in it still.
    let _ = file.set_len(0);
    if let Some(own) = RunProcess::own().filter(|_| IS_OF_ONE_RUN.load(Ordering::Relaxed)) {
        let _ = file.write_all(own.to_string().as_bytes());
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    regular_file::open_own(OpenOptions::new().create(true).truncate(false).write(true).mode(0o600), path)
}
