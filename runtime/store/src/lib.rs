//! Lobster's durable state: blobs, runs and their journals, gates, the action cache and users' state. No other crate
//! writes durable state.
//!
//! [`STATE_PARTS`] lists the contents of the state directory, and what removes each part.
//!
//! Threads may share a [`Store`], and processes may share its directory.

mod backup;
mod blob;
mod cache;
mod chain;
mod claim;
mod claim_tables;
mod clock;
mod commits;
mod db;
mod dependants;
mod dump;
mod error;
mod event;
mod fault;
mod file_lock;
mod gate;
mod gc;
mod group;
mod high_water;
mod identity;
mod journal;
mod leaves;
mod listing;
mod named_blobs;
mod output;
mod pending;
mod private;
mod rebuilt_gates;
mod redact;
mod rescue;
mod secret_spellings;
mod service;
mod service_tables;
mod spelling;
mod spent;
mod spent_tables;
mod state_parts;
mod statement;
mod store_name;
mod transfer;
mod unreadable;
mod user_state;
mod verify;
mod wal_file;

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rusqlite::Transaction;

pub use backup::CopyReport;
pub use blob::{Blob, BlobReader, BlobWriter, INLINE_MAX};
pub use cache::is_reserved_key;
pub use chain::{ReadOn, ReadTo};
pub use claim::{RunClaim, RunProcess, end_with_run};
pub use clock::{Clock, iso, shorten_patience, system_clock};
pub use commits::COMMITS;
pub use db::{Durability, damage_met};
pub use error::StoreError;
pub use event::{
    Begun, CUT_OFF, Event, RunId, RunStatus, StepOutcome, StepStatus, UnknownWord, is_interrupted_end,
    is_resumed_by_service,
};
pub use gate::{Answerer, Gate, GateAnswer, GateFilter, GateKey, GateKind, GateRecord, GateStatus};
pub use gc::{GcPolicy, GcReport};
pub use high_water::{Mark, Rollback};
pub use journal::parse_record;
pub use journal::{BrokenChain, NewRun, Record, RunFilter, RunSummary};
pub use output::{
    KeptOutput, OUTPUT_ORDER, OutputLog, OutputPiece, OutputStream, PARTIAL_STDOUT, WHOLE_STDERR,
};
pub use redact::Redactions;
pub use redact::Redactor;
pub use rescue::{LostRows, Rescued};
pub use service::{
    Accepted, Counted, Credential, CredentialKind, Deed, Delivery, ListedStart, MAX_EVENT_DATA,
    NewCredential, NewDelivery, NewNotice, NewStart, NewTick, NewWait, Notice, NoticeState, Occasion,
    Passkey, Refuses, Registered, Registration, Retraction, SAME_DELIVERY_MS, ScheduleRow, Sent, SentEvent,
    Served, Service, Settlement, Signed, SpecOfSchedule, Standing, Start, StartState, Tick, TickState,
    WaitRow, Watched,
};
pub use spent::{Day, DayFull, DayLimit, DaySpent};
pub use state_parts::{
    COPIES_PREFIX, HOME_PREFIX, LAYERS_PREFIX, PartUse, STATE_PARTS, StatePart, Sweep, part_of,
};
pub use transfer::Redacted;
pub use unreadable::unreadable_blobs;
pub use user_state::{LockedState, UserState, home_dir, state_dir};
pub use verify::{Problem, StoreStats, VerifyReport};

use lobster_base::digest::Digest;
use lobster_base::locked_directory::LockedDirectory;
use lobster_base::sync::lock;

/// Prefix of the directories that hold temporary stores.
const SCRATCH: &str = "lobster-scratch-";

/// Prefix of the files of unfinished blobs.
const UNFINISHED_BLOB: &str = "blob-";

/// The store of one state directory. Clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    /// `<state directory>/store`.
    dir: PathBuf,
    db: db::Database,
    clock: Clock,
    redactions: Arc<redact::Current>,
    pending: Mutex<pending::Pending>,
    known: Mutex<cache::CachedActions>,
    checked: Mutex<HashMap<Digest, blob::Fingerprint>>,
    high_water: high_water::HighWater,
    /// Claims of this process, with their numbers.
    claims: Mutex<HashMap<RunId, i64>>,
    /// Output files of this process's running steps.
    outputs: Mutex<HashMap<(RunId, String), PathBuf>>,
    /// Called after each commit.
    witnesses: RwLock<Witnesses>,
    /// Directory of a temporary store; removed last.
    scratch: Option<LockedDirectory>,
}

impl Store {
    /// Opens the store under the state directory `dir`, or creates it if the directory is empty. A store on a
    /// read-only disk can be read, but writes fail with [`StoreError::ReadOnly`].
    ///
    /// # Errors
    /// If the directory cannot be used, or its content is not a store that this version supports.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_with(dir, system_clock())
    }

    /// Like [`Store::open`], but also records under `outside` how far the store has got, so that lobster notices when
    /// all of `dir` is restored to an earlier state.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_noted(dir: &Path, outside: Option<&Path>) -> Result<Self, StoreError> {
        Self::build(dir, outside, system_clock(), true, None)
    }

    /// Like [`Store::open`], with the given clock.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(dir: &Path, clock: Clock) -> Result<Self, StoreError> {
        Self::build(dir, None, clock, true, None)
    }

    /// A store that never syncs and is removed when it is dropped; for tests, benchmarks and dry runs.
    ///
    /// # Errors
    /// If there is no room for temporary files.
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::in_memory_with(system_clock())
    }

    /// Like [`Store::in_memory`], with the given clock.
    ///
    /// # Errors
    /// As [`Store::in_memory`].
    pub fn in_memory_with(clock: Clock) -> Result<Self, StoreError> {
        // It uses the same files as any other store, so that both take the same code path.
        let memory = Some(Path::new("/dev/shm")).filter(|memory| memory.is_dir());
        let scratch = memory
            .and_then(|memory| LockedDirectory::new(memory, SCRATCH).ok())
            .map_or_else(|| LockedDirectory::new(&std::env::temp_dir(), SCRATCH), Ok)
            .map_err(|source| StoreError::Unusable { path: std::env::temp_dir(), source })?;
        let dir = scratch.path().to_owned();
        Self::build(&dir, None, clock, false, Some(scratch))
    }

    /// A temporary store in a new directory below `parent`, which is created if it is missing. It is removed when this
    /// value is dropped. If the process is killed, the next temporary store there removes its remains; below a store's
    /// own `tmp`, a collection does.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn scratch_in(parent: &Path) -> Result<Self, StoreError> {
        let scratch = LockedDirectory::new(parent, SCRATCH)
            .map_err(|source| StoreError::Unusable { path: parent.to_owned(), source })?;
        let dir = scratch.path().to_owned();
        Self::build(&dir, None, system_clock(), false, Some(scratch))
    }

    fn build(
        dir: &Path,
        outside: Option<&Path>,
        clock: Clock,
        sync: bool,
        scratch: Option<LockedDirectory>,
    ) -> Result<Self, StoreError> {
        // The working directory may change under an open store.
        let state_dir = std::path::absolute(dir)
            .map_err(|source| StoreError::Unusable { path: dir.to_owned(), source })?;
        private::close_to_others(&state_dir)?;
        let dir = state_dir.join("store");
        let inner = Inner {
            db: db::Database::open(&dir, sync)?,
            high_water: high_water::HighWater::new(&dir, outside, sync),
            dir,
            clock,
            redactions: Arc::default(),
            pending: Mutex::default(),
            known: Mutex::default(),
            checked: Mutex::default(),
            claims: Mutex::default(),
            outputs: Mutex::default(),
            witnesses: RwLock::default(),
            scratch,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Fails if the store's files were removed, moved or replaced since it was opened: this process would then read
    /// and write other data than everybody else. Every write checks it too.
    ///
    /// # Errors
    /// [`StoreError::Replaced`].
    pub fn check_identity(&self) -> Result<(), StoreError> {
        self.inner.db.check_identity()
    }

    /// Frees the memory that speeds up reads and writes, for a process that will be idle for a while. The next access
    /// loads it again.
    pub fn give_back_memory(&self) {
        self.inner.db.give_back_memory();
    }

    /// Fails if records are missing from the database (see [`Store::find_rollback`]): nothing may be built on it then.
    ///
    /// # Errors
    /// [`StoreError::RolledBack`], [`StoreError::OtherStore`], or if the database cannot be read.
    pub fn check_rollback(&self) -> Result<(), StoreError> {
        self.inner.db.read_snapshot(|db| self.inner.high_water.check_rollback(db, self.inner.db.path()))
    }

    /// A warning for readers of this store if its database is not the one recorded last. `None` if it is, or if it
    /// cannot be read; in that case reading reports the error.
    #[must_use]
    pub fn rollback_warning(&self) -> Option<String> {
        let path = self.inner.db.path().display();
        match self.check_rollback() {
            Err(StoreError::RolledBack { elsewhere, .. }) => {
                let place = elsewhere.map(|place| format!(" in its copy {place}")).unwrap_or_default();
                Some(format!(
                    "{path} is older than what was recorded{place}, so runs and questions are shown as they were \
                     then; `lobster store verify` lists what is missing"
                ))
            }
            Err(StoreError::OtherStore { .. }) => Some(format!(
                "{path} is the database of another store, put in the place of this one; `lobster store verify` says \
                 how to continue"
            )),
            Ok(()) | Err(_) => None,
        }
    }

    /// Records that were promised under this store's name and are missing from its database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn find_rollback(&self) -> Result<Option<Rollback>, StoreError> {
        self.inner.db.read_snapshot(|db| self.inner.high_water.find_rollback(db))
    }

    /// Accepts the current database and makes it a new store: gates can be answered again. Waiting starts may have run
    /// after the copy was made, so a person decides about them. Returns false if nothing was missing.
    ///
    /// # Errors
    /// If the database cannot be read or written.
    pub fn accept_rollback(&self) -> Result<bool, StoreError> {
        let is_behind = self.find_rollback()?.is_some();
        if is_behind {
            let now = self.clock_ms();
            self.write_transaction(Durability::Synced, |tx| {
                self.inner.high_water.accept_rollback(tx)?;
                service::refuse_waiting_starts(tx, now)
            })?;
        }
        Ok(is_behind)
    }

    /// The directory that holds the database and the blobs: `<state directory>/store`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Sets what is hidden in everything written from now on, including blobs that are being written: events,
    /// questions, answers, cached outcomes and blobs. Earlier records stay as they are.
    pub fn set_redactions(&self, redactions: Redactions) {
        self.inner.redactions.set(redactions);
    }

    /// `text` as the store would write it, with secrets hidden.
    #[must_use]
    pub fn hide_secrets<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        match self.current_redactions().hide_in_text(text) {
            std::borrow::Cow::Borrowed(_) => text.into(),
            std::borrow::Cow::Owned(clean) => clean.into(),
        }
    }

    /// Hides secrets in a value as the store does when it writes one.
    pub fn hide_in(&self, value: &mut serde_json::Value) {
        self.current_redactions().hide_in_value(value);
    }

    /// An outcome as the store would write it, with secrets hidden.
    ///
    /// # Errors
    /// If the outcome cannot be written as JSON.
    pub fn hide_outcome(&self, outcome: StepOutcome) -> Result<StepOutcome, StoreError> {
        let redactions = self.current_redactions();
        if redactions.is_empty() {
            return Ok(outcome);
        }
        let not_json =
            |e: serde_json::Error| StoreError::Json { what: "an outcome has no JSON text", source: e.into() };
        let mut value = serde_json::to_value(outcome).map_err(not_json)?;
        redactions.hide_in_value(&mut value);
        serde_json::from_value(value).map_err(not_json)
    }

    /// Hides secrets in a stream. `None` if there is nothing to hide.
    pub fn new_redactor(&self) -> Option<Redactor> {
        Redactor::new(&self.inner.redactions)
    }

    /// Milliseconds since 1970, by the store's clock.
    #[must_use]
    pub fn clock_ms(&self) -> i64 {
        self.now()
    }

    /// Number of syncs that this process has requested through this store.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        self.inner.db.group.sync_count()
    }

    /// Replaces "unknown" by "damaged" if the database is damaged, because the missing object may have been lost.
    fn or_damaged(&self, error: StoreError) -> StoreError {
        if !self.inner.db.is_rescued() {
            return error;
        }
        let what = match error {
            StoreError::UnknownGate(name) => format!("approval {name:?} is not in what can be read of it"),
            StoreError::UnknownRun(name) => format!("run {name:?} is not in what can be read of it"),
            other => return other,
        };
        StoreError::Damaged { path: self.inner.db.path().to_owned(), what }
    }

    fn current_redactions(&self) -> Arc<Redactions> {
        self.inner.redactions.get()
    }

    fn now(&self) -> i64 {
        self.inner.now()
    }

    fn write_transaction<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let witnesses = self.witnesses();
        if witnesses.is_empty() {
            return self.inner.write_transaction(durability, work);
        }
        WITNESSED.take();
        let value = self.inner.write_transaction(durability, work)?;
        let records = WITNESSED.take();
        if !records.is_empty() {
            for witness in witnesses.iter() {
                witness.records_committed(self, &records, durability)?;
            }
        }
        Ok(value)
    }

    /// Executes one statement in its own transaction, and tells how many rows it changed.
    fn write_statement(
        &self,
        durability: Durability,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<usize, StoreError> {
        self.write_transaction(durability, |tx| Ok(statement::execute(tx, sql, values)?))
    }

    fn witnesses(&self) -> Witnesses {
        Arc::clone(&self.inner.witnesses.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a witness, called after the earlier ones for every commit from now on.
    pub fn add_witness(&self, witness: impl Witness + 'static) {
        let mut held = self.inner.witnesses.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut held).push(Arc::new(witness));
    }
}

/// Copies committed records to a place outside the store. If it fails, the write fails, although the commit stays.
pub trait Witness: Send + Sync {
    /// Called when these records were committed, and synced if that was requested.
    fn records_committed(
        &self,
        store: &Store,
        records: &[Record],
        durability: Durability,
    ) -> Result<(), StoreError>;

    /// Called when a collection has removed these runs.
    fn runs_removed(&self, runs: &[RunId]) -> Result<(), StoreError>;
}

/// Called after each commit.
type Witnesses = Arc<Vec<Arc<dyn Witness>>>;

thread_local! {
    /// The newest record that the transaction of this thread has appended.
    static NEWEST: Cell<Option<Mark>> = const { Cell::new(None) };
    /// Records appended by the transaction of this thread, if there are witnesses.
    static WITNESSED: Cell<Vec<Record>> = const { Cell::new(Vec::new()) };
}

impl Inner {
    fn now(&self) -> i64 {
        (self.clock)()
    }

    /// Runs one write transaction, which also writes all blobs held back so far.
    fn write_transaction<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        NEWEST.take();
        // Another process may make a commit durable at once, so the files that it names must be durable before. They
        // are synced here so that the database is not locked meanwhile.
        if lock(&self.pending).has_files() {
            self.db.group.sync_files()?;
        }
        let work = |tx: &Transaction<'_>| {
            self.high_water.check_once(tx)?;
            let batch = lock(&self.pending).begin_transaction();
            if !batch.files.is_empty() {
                // Files added since.
                self.db.group.sync_files()?;
            }
            blob::insert_batch(tx, &batch, self.now())?;
            cache::insert_batch(tx, &batch)?;
            work(tx)
        };
        let value = self.db.write_transaction(durability, work, |committed| {
            lock(&self.pending).end_transaction(committed)
        })?;
        if let (Durability::Synced, Some(mark)) = (durability, NEWEST.take()) {
            self.high_water.add_mark(mark);
        }
        Ok(value)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No event names these blobs, since no transaction has written them: a failure here breaks no promise.
        if !lock(&self.pending).nothing_waits() {
            let _ = self.write_transaction(Durability::Lazy, |_| Ok(()));
        }
    }
}

#[cfg(test)]
mod tests;
