//! The embedded database: creation, opening, reads and writes.
//!
//! A commit only writes to the write-ahead log; making it durable is a separate `fdatasync` that many commits share
//! (see `group`). `synchronous` is therefore NORMAL: SQLite syncs at checkpoints, which keeps the file intact after a
//! power cut, and the store syncs the log when a promise depends on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Params, Row, Transaction, TransactionBehavior};
use tempfile::TempDir;

use super::clock::longest_wait;
use super::error::StoreError;
use super::file_lock::{FileLock, Sharing};
use super::group::Group;
use super::identity::Identity;
use super::rescue::{Rescued, rescue_database};
use super::statement::{query_one, query_rows};
use super::wal_file::{LogFile, log_path};
use super::{fault, private};
use lobster_base::sync::lock;

/// The layout that this code reads and writes; `PRAGMA user_version`.
const VERSION: i64 = 1;

/// `PRAGMA application_id`: "lobs".
const APPLICATION: i64 = 0x6c6f_6273;

/// Pages in the log at which a commit also checkpoints. A checkpoint takes two syncs and writes every changed page
/// again, so it should be rare. On the other hand, after a crash the next start reads the whole log (32 MiB, some 30
/// ms).
const CHECKPOINT_PAGES: i64 = 8000;

/// Most memory that a connection uses to cache the database. A transaction that changes more pages writes some of them
/// twice.
const CACHE_KIB: u32 = 16 * 1024;

/// The same for a read-only connection, of which there may be several; the system's own cache serves it as well.
const READER_CACHE_KIB: u32 = 2 * 1024;

/// Pages in the log above which it is folded into the database when the store closes, so that the next start has
/// little to read. Folding takes three syncs.
const LOG_KEPT_AT_CLOSE: i64 = 128;

/// Enough for every statement of the store.
const STATEMENTS: usize = 64;

/// Idle read connections that are kept.
const IDLE_READERS: usize = 4;

/// Durability of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// It survives the death of the process at once, and a power cut as soon as a later synced write does. For data
    /// that can be computed again.
    Lazy,
    /// It is on the disk when the call returns. Concurrent calls share the sync.
    Synced,
}

/// The connection that writes, and its log; without the log, writes are not synced.
struct Writer {
    connection: Connection,
    log: Option<LogFile>,
}

pub(super) struct Database {
    path: PathBuf,
    identity: Identity,
    /// Reads are possible, but every write is refused.
    read_only: bool,
    writer: Mutex<Writer>,
    readers: Mutex<Vec<Connection>>,
    /// Set once the database was found to be damaged.
    rescue: OnceLock<Mutex<Rescue>>,
    pub(super) group: Group,
}

/// The readable part of a damaged database.
struct Rescue {
    connection: Connection,
    found: Rescued,
    _dir: TempDir,
}

impl Database {
    /// Opens the database in `dir`, or creates it (and `dir`) if it is missing. A database that cannot be written is
    /// opened anyway, so that its history can be read.
    pub(super) fn open(dir: &Path, sync: bool) -> Result<Self, StoreError> {
        let path = dir.join("lobster.db");
        // True if connecting will create the log; its name must then be made durable.
        let mut log_is_new = !log_path(&path).exists();
        let (connection, identity) = match Identity::open_with(&path, || open_connection(&path)) {
            // Another process may have created it in the meantime.
            Err(StoreError::Unusable { .. }) => {
                if !path.exists() {
                    create_database(dir, &path)?;
                }
                log_is_new = !log_path(&path).exists();
                Identity::open_with(&path, || open_connection(&path))?
            }
            Err(damaged @ StoreError::Damaged { .. }) => return Self::open_rescued(&path, sync, damaged),
            other => other?,
        };
        Ok(Self {
            identity,
            read_only: connection.is_readonly("main")?,
            group: Group::new(path.clone(), sync, log_is_new),
            writer: Mutex::new(Writer { connection, log: sync.then(|| LogFile::new(&path)) }),
            path,
            readers: Mutex::default(),
            rescue: OnceLock::new(),
        })
    }

    /// Opens the readable rest of a database that SQLite cannot open; returns the error itself if nothing is left.
    fn open_rescued(path: &Path, sync: bool, damaged: StoreError) -> Result<Self, StoreError> {
        let Ok(rescue) = Rescue::from_damaged(path) else { return Err(damaged) };
        let runs =
            rescue.connection.query_row("SELECT count(*) FROM runs", [], |row| row.get::<_, i64>(0))?;
        if runs == 0 {
            return Err(damaged);
        }
        let ((), identity) = Identity::open_with(path, || Ok(()))?;
        Ok(Self {
            identity,
            read_only: false,
            group: Group::new(path.to_owned(), sync, false),
            writer: Mutex::new(Writer { connection: Connection::open_in_memory()?, log: None }),
            path: path.to_owned(),
            readers: Mutex::default(),
            rescue: OnceLock::from(Mutex::new(rescue)),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one transaction that no other writer interleaves with. An error rolls everything back. `ended`
    /// is called before other writers continue, with true if the transaction was committed.
    pub(super) fn write_transaction<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
        ended: impl FnOnce(bool),
    ) -> Result<T, StoreError> {
        if self.read_only {
            return Err(StoreError::ReadOnly { path: self.path.clone() });
        }
        // The readable part of a damaged database is incomplete, so nothing is built on it.
        if self.rescue.get().is_some() {
            let what = "parts of it cannot be read".to_owned();
            return Err(StoreError::Damaged { path: self.path.clone(), what });
        }
        let ticket = (durability == Durability::Synced).then(|| self.group.announce_commit());
        let value = self.run_transaction(work, ended).map_err(|e| e.with_path(&self.path))?;
        self.identity.note_log();
        if let Some(ticket) = ticket {
            self.group.wait_until_durable(ticket)?;
        }
        // Checked last, to leave as little time as possible before the effect that waits for the write.
        self.identity.check_unchanged()?;
        Ok(value)
    }

    /// Fails if the files of this store were removed or replaced since it was opened.
    pub(super) fn check_identity(&self) -> Result<(), StoreError> {
        self.identity.check_unchanged()
    }

    fn run_transaction<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
        ended: impl FnOnce(bool),
    ) -> Result<T, StoreError> {
        let mut writer = lock(&self.writer);
        let Writer { connection, log } = &mut *writer;
        let commit = || -> Result<T, StoreError> {
            self.pass_fault_point("begin")?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if let Some(log) = log {
                log.make_room();
            }
            let value = work(&transaction)?;
            self.pass_fault_point("commit")?;
            transaction.commit()?;
            Ok(value)
        };
        let value = commit();
        ended(value.is_ok());
        drop(writer);
        let value = value?;
        self.pass_fault_point("committed")?;
        Ok(value)
    }

    fn pass_fault_point(&self, what: &'static str) -> Result<(), StoreError> {
        fault::point(what).map_err(|e| StoreError::io("write to", &self.path, e))
    }

    /// Runs `work` on one snapshot. It uses the writer's connection if that is idle, so a program that does one thing
    /// at a time opens only one.
    ///
    /// If the database is damaged, its readable part is used ([`rescue`]).
    pub(super) fn read_snapshot<T>(
        &self,
        work: impl Fn(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.rescue.get().is_some() {
            return self.read_rescued(&work);
        }
        let value = match self.writer.try_lock() {
            Ok(writer) => work(&writer.connection),
            Err(TryLockError::Poisoned(poisoned)) => work(&poisoned.into_inner().connection),
            Err(TryLockError::WouldBlock) => return self.read_aside(work),
        };
        self.or_rescued(value, &work)
    }

    /// [`query_rows`] in one snapshot.
    pub(super) fn select_rows<T>(
        &self,
        sql: &str,
        values: impl Params + Clone,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.read_snapshot(|db| query_rows(db, sql, values.clone(), &read))
    }

    /// [`query_one`] in one snapshot.
    pub(super) fn select_one<T>(
        &self,
        sql: &str,
        values: impl Params + Clone,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.read_snapshot(|db| query_one(db, sql, values.clone(), &read))
    }

    /// Frees the memory that caches the database. Connections in use keep theirs.
    pub(super) fn give_back_memory(&self) {
        lock(&self.readers).clear();
        if let Ok(writer) = self.writer.try_lock() {
            // A failure leaves the memory in use, which is harmless.
            let _ = writer.connection.execute_batch("PRAGMA shrink_memory;");
        }
    }

    /// Runs `work` on the database itself: damage is an error.
    pub(super) fn read_raw<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = open_connection(&self.path)?;
        work(&connection).map_err(|e| e.with_path(&self.path))
    }

    /// Calls `look` with each row of a statement that takes the number after which it reads, and the most rows.
    /// The number is its first column; `read` reads the others.
    pub(super) fn each_row<T>(
        &self,
        sql: &str,
        at_once: i64,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
        mut look: impl FnMut(i64, T) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut after: i64 = 0;
        loop {
            let page = self.read_aside(|db| {
                query_rows(db, sql, [after, at_once], |row| Ok((row.get::<_, i64>(0)?, read(row)?)))
            })?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            for (n, row) in page {
                look(n, row)?;
            }
        }
    }

    /// Like [`Database::read_snapshot`], for work that may take long: it does not block writers.
    pub(super) fn read_aside<T>(
        &self,
        work: impl Fn(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.rescue.get().is_some() {
            return self.read_rescued(&work);
        }
        let idle = lock(&self.readers).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let connection = open_connection(&self.path)?;
                connection.execute_batch(&format!("PRAGMA cache_size = -{READER_CACHE_KIB};"))?;
                connection
            }
        };
        let value = work(&connection);
        let mut idle = lock(&self.readers);
        if idle.len() < IDLE_READERS {
            idle.push(connection);
        }
        drop(idle);
        self.or_rescued(value, &work)
    }

    /// The value, or if the database is damaged, the value from its readable part.
    fn or_rescued<T>(
        &self,
        value: Result<T, StoreError>,
        work: &impl Fn(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match value.map_err(|e| e.with_path(&self.path)) {
            Err(StoreError::Damaged { .. }) => self.read_rescued(work),
            other => other,
        }
    }

    fn read_rescued<T>(&self, work: &impl Fn(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let rescue = lock(self.readable_part()?);
        work(&rescue.connection).map_err(|e| e.with_path(&self.path))
    }

    /// The readable part of the database, read only once.
    fn readable_part(&self) -> Result<&Mutex<Rescue>, StoreError> {
        if let Some(rescue) = self.rescue.get() {
            return Ok(rescue);
        }
        let rescue = Rescue::from_damaged(&self.path)?;
        Ok(self.rescue.get_or_init(|| Mutex::new(rescue)))
    }

    /// True once the database was found to be damaged: missing rows may have been lost.
    pub(super) fn is_rescued(&self) -> bool {
        self.rescue.get().is_some()
    }

    /// Reads the database as a damaged one, and reports the unreadable parts.
    pub(super) fn read_as_damaged(&self) -> Result<Rescued, StoreError> {
        Ok(lock(self.readable_part()?).found.clone())
    }
}

/// The first damaged database that this process has read.
static DAMAGE_MET: OnceLock<PathBuf> = OnceLock::new();

/// The database that this process found damaged: it has read only the readable part, which may be incomplete.
#[must_use]
pub fn damage_met() -> Option<&'static Path> {
    DAMAGE_MET.get().map(PathBuf::as_path)
}

impl Rescue {
    fn from_damaged(path: &Path) -> Result<Self, StoreError> {
        let dir = tempfile::Builder::new().prefix("lobster-rescue-").tempdir();
        let dir = dir.map_err(|source| StoreError::Unusable { path: std::env::temp_dir(), source })?;
        let (connection, found) = rescue_database(path, dir.path())?;
        let _ = DAMAGE_MET.set(path.to_owned());
        Ok(Self { connection, found, _dir: dir })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        lock(&self.readers).clear();
        if self.read_only || self.rescue.get().is_some() {
            return;
        }
        let writer = lock(&self.writer);
        // If it fails, the next process that closes the database does it.
        let _ = fold_long_log(&writer.connection);
    }
}

/// Folds the log into the database if it is long, and starts a new log.
fn fold_long_log(connection: &Connection) -> rusqlite::Result<()> {
    let checkpoint = |how: &str| -> rusqlite::Result<(i64, i64)> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    let (_, pages) = checkpoint("NOOP")?;
    if pages <= LOG_KEPT_AT_CLOSE {
        return Ok(());
    }
    // If other processes use the database, the last of them does it.
    connection.busy_timeout(Duration::ZERO)?;
    let (busy, _) = checkpoint("RESTART")?;
    if busy == 0 {
        // The next write restarts the log, so that a process that opens the database ignores the old content.
        // Truncating the file would free its disk space, which the next writes need again.
        connection.execute_batch(&format!("PRAGMA application_id = {APPLICATION}"))?;
    }
    Ok(())
}

pub(super) fn open_connection(path: &Path) -> Result<Connection, StoreError> {
    // No URI, since a directory may have any name. No CREATE, since `create` makes the whole database.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let attempt = || -> Result<Connection, StoreError> {
        let mut connection = Connection::open_with_flags(path, flags)?;
        wait_patiently(&mut connection)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // The log stays when the last process exits: folding it would cost every command two syncs at its end.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let found = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        let version = found("user_version")?;
        let application = found("application_id")?;
        if application != APPLICATION || version < 1 {
            let what = "it is not a lobster store, or its beginning is gone".to_owned();
            return Err(StoreError::Damaged { path: path.to_owned(), what });
        }
        if version > VERSION {
            return Err(StoreError::Newer { path: path.to_owned(), found: version, supported: VERSION });
        }
        connection.execute_batch(&format!(
            "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
             PRAGMA cache_size = -{CACHE_KIB};"
        ))?;
        Ok(connection)
    };
    let is_refused = |made: &Result<Connection, StoreError>| {
        matches!(made, Err(StoreError::Unusable { .. } | StoreError::ReadOnly { .. })) && is_without_log(path)
    };
    let mut made = attempt().map_err(|e| e.with_path(path));
    if is_refused(&made) {
        // Another process may have created it in the meantime, and then it can be written to.
        made = attempt().map_err(|e| e.with_path(path));
    }
    if is_refused(&made) { connect_immutable(path).map_err(|e| e.with_path(path)) } else { made }
}

/// True if the whole database is in its main file.
fn is_without_log(path: &Path) -> bool {
    path.is_file() && log_path(path).metadata().map_or(true, |log| log.len() == 0)
}

/// Opens a database on a disk where SQLite cannot create the files that it shares with other processes. No process can
/// write there, so nothing needs to be shared.
pub(super) fn connect_immutable(path: &Path) -> Result<Connection, StoreError> {
    use std::fmt::Write as _;
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte))
            }
            // Writing to a String cannot fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application != APPLICATION {
        let what = "it is not a lobster store, or its beginning is gone".to_owned();
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    Ok(connection)
}

/// Waits for another process in short, growing steps. A write takes a fraction of a millisecond, and SQLite's own
/// steps of up to 100 ms would make many processes wait far longer than that.
fn wait_patiently(connection: &mut Connection) -> rusqlite::Result<()> {
    let mut since = Instant::now();
    connection.busy_handler(Some(move |turn: i32| {
        if turn == 0 {
            since = Instant::now();
        }
        std::thread::sleep(Duration::from_micros(50 << turn.clamp(0, 6)));
        since.elapsed() < longest_wait()
    }))
}

/// Creates the database under a temporary name and moves it into place when it is complete, so that no process opens
/// an unfinished one.
pub(super) fn create_database(dir: &Path, path: &Path) -> Result<(), StoreError> {
    let unusable = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full { path: dir.to_owned() }
        }
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { path: dir.to_owned() },
        _ => StoreError::Unusable { path: dir.to_owned(), source },
    };
    let fresh = make_dirs(dir).map_err(unusable)?;
    // One process creates it; the others find it there.
    let guard = File::open(dir).map_err(unusable)?;
    let Some(_lock) = FileLock::try_acquire(guard, Sharing::Exclusive, longest_wait()).map_err(unusable)?
    else {
        return Err(StoreError::Busy { path: dir.to_owned(), seconds: longest_wait().as_secs() });
    };
    if path.exists() {
        return Ok(());
    }
    let shelved = fs::read_dir(dir.join("blobs")).is_ok_and(|mut shelf| shelf.next().is_some());
    if log_path(path).metadata().is_ok_and(|m| m.len() > 0) || shelved {
        let what = "the database is missing but its other files are there".to_owned();
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    fault::point("create").map_err(unusable)?;
    let draft = tempfile::Builder::new().prefix("new-").suffix(".db").tempfile_in(dir).map_err(unusable)?;
    let build = || -> Result<(), StoreError> {
        let connection = Connection::open_with_flags(draft.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA auto_vacuum = INCREMENTAL; BEGIN; {} \
             PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT; \
             PRAGMA journal_mode = WAL;",
            include_str!("schema.sql")
        ))?;
        connection.close().map_err(|(_, e)| e)?;
        Ok(())
    };
    build().map_err(|e| e.with_path(dir))?;
    draft.as_file().sync_all().map_err(unusable)?;
    fault::point("created").map_err(unusable)?;
    draft.persist_noclobber(path).map_err(|e| unusable(e.error))?;
    // The log is never removed; its name becomes durable together with the database's.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(log_path(path)).map_err(unusable)?;
    private::make_dir(&dir.join("blobs")).map_err(unusable)?;
    for dir in fresh.iter().map(PathBuf::as_path).chain([dir]) {
        sync_dir(dir).map_err(unusable)?;
    }
    Ok(())
}

/// Creates `dir` and its missing parents, accessible to this user only. Returns the directories whose listing changed;
/// they are not durable yet.
fn make_dirs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    let missing: Vec<_> =
        dir.ancestors().skip(1).take_while(|d| !d.as_os_str().is_empty() && !d.exists()).collect();
    if let Some(parent) = dir.parent() {
        private::make_dir(parent)?;
        changed.extend(missing.iter().filter_map(|d| d.parent()).map(Path::to_owned));
        changed.push(parent.to_owned());
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists || !dir.is_dir() => Err(e),
        _ => Ok(changed),
    }
}

/// Makes the names in `dir` durable. An empty path is the current directory.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    fault::point("sync directory")?;
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}
