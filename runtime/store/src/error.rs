//! Errors of the store, with messages that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use lobster_base::digest::Digest;

/// Errors of the store. Nothing was lost unless the message says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory cannot be created, opened or written.
    #[error(
        "the state directory {} cannot be used: {source}; \
         set LOBSTER_STATE_DIR to a directory you can write", .path.display()
    )]
    Unusable { path: PathBuf, source: io::Error },
    /// The store can be read but not written.
    #[error(
        "{} is read-only, so nothing can be recorded; make it writable or set LOBSTER_STATE_DIR to another directory",
        .path.display()
    )]
    ReadOnly { path: PathBuf },
    /// The disk or the quota is full.
    #[error("no space left for {}; free some space (`lobster store gc` may help) and try again", .path.display())]
    Full { path: PathBuf },
    /// The store was written by a later lobster.
    #[error(
        "{} was written by a newer lobster (store version {found}, this one knows up to {supported}); \
         use that newer version, or set LOBSTER_STATE_DIR to another directory", .path.display()
    )]
    Newer { path: PathBuf, found: i64, supported: i64 },
    /// The database or a file beside it was changed or damaged.
    #[error(
        "{} is damaged: {what}; it was left as it is. `lobster store salvage DIR` writes a new store with all that \
         is whole; or restore a backup, or move the directory away to start with an empty store", .path.display()
    )]
    Damaged { path: PathBuf, what: String },
    /// Kept runs are damaged, so the blobs that they name are unknown.
    #[error(
        "no blob was collected ({runs} runs were): the damaged part may name any of them: {damage}. \
         `lobster store verify` names all damage; `lobster store salvage DIR` writes a new store with all that is \
         whole; or remove the damaged runs with --keep or --older-than"
    )]
    CannotCollect { runs: u64, damage: String },
    /// Existing content does not allow the operation.
    #[error("{0}")]
    Refused(String),
    /// The target of a copy exists.
    #[error("{} is there already; name a directory that is not, or remove that one", .path.display())]
    Exists { path: PathBuf },
    /// Promised records are missing from the database.
    #[error(
        "{} is older than what was recorded{}: its end was lost, or it is an older copy, so \
         later answers and effects would be repeated; no question is answered and no run continues. \
         `lobster store verify` lists what is missing. Use the newer {}, or continue with this one as a new \
         store: `lobster store verify --accept-rollback`",
        .path.display(),
        .elsewhere.as_ref().map(|place| format!(" in its copy {place}")).unwrap_or_default(),
        if .elsewhere.is_some() { "copy" } else { "files" },
    )]
    RolledBack { path: PathBuf, elsewhere: Option<String> },
    /// The database has the name of another store.
    #[error(
        "{} is the database of another store, put in the place of this one, so answers and effects may be repeated; \
         no question is answered and no run continues. Put this store's own database back, or continue with this \
         one as a new store: `lobster store verify --accept-rollback`", .path.display()
    )]
    OtherStore { path: PathBuf },
    /// The database was removed or replaced after it was opened.
    #[error(
        "{} is no longer the file that this lobster opened: the state directory was removed, moved or replaced \
         meanwhile; lobster stops here, because later records could not be found. \
         Put the directory back if it was moved, then restart lobster; `lobster runs` shows what was recorded",
        .path.display()
    )]
    Replaced { path: PathBuf },
    /// The path of the working directory cannot be stored exactly.
    #[error(
        "the working directory {path:?} is not UTF-8 text, so the record cannot name it; \
         start lobster in another directory, or rename this one"
    )]
    NotUnicode { path: PathBuf },
    /// The machine's clock is set before 1970.
    #[error("the clock of this machine is set before 1970, which no record can hold; set it and try again")]
    ClockBeforeEpoch,
    /// Another process held the database for too long.
    #[error("{} was kept busy by another process for {seconds} s; try again", .path.display())]
    Busy { path: PathBuf, seconds: u64 },
    /// An earlier sync failed, so nothing written since can be promised to survive a power cut.
    #[error("{} could not be made durable earlier ({first}); restart lobster and resume the run", .path.display())]
    NotDurable { path: PathBuf, first: String },
    /// The blob is unknown.
    #[error(
        "blob {0} is not in the store; it was never recorded here, or was collected with the runs that used it"
    )]
    MissingBlob(Digest),
    /// The blob is listed, but its file is missing.
    #[error(
        "blob {digest} is lost: its file {} is gone. \
         Record the same content again to heal it, or restore it from a backup", .path.display()
    )]
    LostBlob { digest: Digest, path: PathBuf },
    /// The blob was left out of the bundle that its run came in.
    #[error(
        "blob {0} is not in the store; it was left out of the bundle that the run came in \
         (`lobster bundle export --redact`)"
    )]
    RedactedBlob(Digest),
    /// The result was redacted.
    #[error("the result of step '{0}' was redacted")]
    LeftOut(String),
    /// The blob's bytes do not match its digest.
    #[error(
        "blob {digest} is damaged: its bytes hash to {found} ({place}); \
         they are not used. Record the same content again to heal it, or restore it from a backup"
    )]
    DamagedBlob { digest: Digest, found: Digest, place: String },
    /// The blob is larger than the caller's limit.
    #[error("blob {digest} has {len} bytes, more than the {max} that fit here")]
    BlobTooLarge { digest: Digest, len: u64, max: u64 },
    /// The blob exceeds the writer's limit.
    #[error("more than {limit} bytes were written; nothing was kept")]
    OverLimit { limit: u64 },
    /// No run has this id.
    #[error("no run {0:?}; `lobster runs` lists them")]
    UnknownRun(String),
    /// Several runs have an id with this prefix.
    #[error("{prefix:?} could be any of {}; give more of the id", .candidates.join(", "))]
    AmbiguousRun { prefix: String, candidates: Vec<String> },
    /// The copy or anchor of the audit, required by the policy, cannot be written.
    #[error(
        "{} cannot be kept: {source}; [audit] of the policy names it, and no run continues without it",
        .path.display()
    )]
    AuditTrail { path: PathBuf, source: io::Error },
    /// Another process is executing the run.
    #[error("run {0} is being executed by another process; wait for it or stop it")]
    RunBusy(String),
    /// The lock of this process was removed, and another process has claimed the run.
    #[error(
        "run {0} is being executed by another process now, since the lock of this one was removed from the state \
         directory; this process does nothing more of it"
    )]
    ClaimLost(String),
    /// A person has ended the run.
    #[error(
        "run {run} is over: {}. Start the workflow again, or `lobster fork {run}` to take over what was done",
        if .how == "rejected" { "a person rejected it" } else { "a person cancelled it" }
    )]
    CalledOff { run: String, how: String },
    /// A collection is running.
    #[error("another `lobster store gc` is still running; wait for it")]
    GcBusy,
    /// The run exists already.
    #[error("run {0} is already in this store; nothing was changed")]
    RunExists(String),
    /// The journal of a run is not the chain of records that was written.
    #[error("the journal of run {run} is damaged at record {seq}: {why}")]
    BrokenChain { run: String, seq: u64, why: String },
    /// No gate has this token or id.
    #[error("approval {0:?} not found; `lobster approvals` lists the open ones")]
    UnknownGate(String),
    /// The prefix of a gate's id is too short.
    #[error("{typed:?} is too short: at least {least} digits of an id; `lobster approvals` lists them")]
    ShortGate { typed: String, least: usize },
    /// The gate was answered before.
    #[error("{id} was already {how}{}", .by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default())]
    ConsumedGate { id: String, how: &'static str, by: Option<String> },
    /// The gate has expired.
    #[error("{id} expired at {} and can no longer be answered; `lobster resume {run}` asks again", super::clock::iso(*.at))]
    ExpiredGate { id: String, at: i64, run: String },
    /// Several gates have an id with this prefix.
    #[error("{prefix:?} could be any of {}; give more of the id", .candidates.join(", "))]
    AmbiguousGate { prefix: String, candidates: Vec<String> },
    /// The key of a user state contains no character that a file name may have.
    #[error("state key is empty/invalid")]
    StateKey,
    /// A user state file is not JSON.
    #[error("{} is not JSON: {why}", .path.display())]
    StateText { path: PathBuf, why: String },
    /// Another process holds the lock of a state key.
    #[error("state {} was locked by {holder} for {seconds} s; end that process or try again", .path.display())]
    StateLocked { path: PathBuf, holder: String, seconds: u64 },
    /// Any other failure of the file system.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// Any other failure of the database.
    #[error("the store's database failed: {0}")]
    Database(#[source] rusqlite::Error),
    /// A value cannot be written as JSON, or a stored JSON text has the wrong shape.
    #[error("{what}: {source}")]
    Json { what: &'static str, source: lobster_base::json::JsonError },
}

impl StoreError {
    /// The blob that could not be read.
    #[must_use]
    pub fn unreadable_blob(&self) -> Option<Digest> {
        if let Self::MissingBlob(digest)
        | Self::RedactedBlob(digest)
        | Self::LostBlob { digest, .. }
        | Self::DamagedBlob { digest, .. }
        | Self::BlobTooLarge { digest, .. } = self
        {
            Some(*digest)
        } else {
            None
        }
    }

    /// The variant for a failure of the file system at `path`.
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::Io { doing, path, source },
        }
    }

    /// Adds the path to a database error, and picks the variant for it.
    pub(super) fn with_path(self, path: &Path) -> Self {
        let Self::Database(error) = self else { return self };
        let at = path.to_owned();
        let Some(code) = error.sqlite_error_code() else { return Self::Database(error) };
        match code {
            rusqlite::ErrorCode::DiskFull => Self::Full { path: at },
            rusqlite::ErrorCode::ReadOnly => Self::ReadOnly { path: at },
            rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked => {
                Self::Busy { path: at, seconds: super::clock::longest_wait().as_secs() }
            }
            rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase => {
                Self::Damaged { path: at, what: error.to_string() }
            }
            rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::PermissionDenied => {
                Self::Unusable { path: at, source: io::Error::other(error.to_string()) }
            }
            rusqlite::ErrorCode::SystemIoFailure => {
                Self::Io { doing: "read or write", path: at, source: io::Error::other(error.to_string()) }
            }
            _ => Self::Database(error),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// Lets code that writes through `io::Write` get the store's own error back.
impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Io { source, .. } | StoreError::Unusable { source, .. } => source.kind(),
            StoreError::Full { .. } => io::ErrorKind::StorageFull,
            StoreError::ReadOnly { .. } => io::ErrorKind::ReadOnlyFilesystem,
            StoreError::OverLimit { .. } | StoreError::BlobTooLarge { .. } => io::ErrorKind::FileTooLarge,
            StoreError::MissingBlob(_) | StoreError::LostBlob { .. } | StoreError::RedactedBlob(_) => {
                io::ErrorKind::NotFound
            }
            StoreError::DamagedBlob { .. } | StoreError::Damaged { .. } => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
