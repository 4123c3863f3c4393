//! The high-water mark: a note outside the database of how far the store has got.
//!
//! A database restored to an earlier state (by a backup tool that copied the database and its log at different
//! moments, by a lost or truncated log, or from an older copy) is sound in itself: SQLite drops the end of a damaged
//! log by design. But then an answered gate would be open again, and a completed effect would be missing. So after
//! each durable commit, the number and the hash of the newest journal record are noted in two small files: one beside
//! the database, and one outside the state directory, in case that is restored as a whole. If the database lacks a
//! marked record, it was rolled back: no gate is answered and no run continues until the operator accepts that.
//!
//! Marks belong to the name of the store ([`StoreName`]), not to its path: every copy of a store carries its name and
//! is compared with the same marks. A gate answered in one copy can therefore not be answered in another. A store that
//! continues without the missing records gets a new name.
//!
//! Marks are not synced themselves: losing one weakens the check, but no mark is ahead of the durable records.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::event::RunId;
use super::store_name::StoreName;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::regular_file;
use lobster_base::sync::lock;

/// The file beside the database.
const BESIDE: &str = "high-water.jsonl";

/// Size above which a file of marks is shortened: some thousand lines.
const SHORTEN_AT: u64 = 512 * 1024;

/// Bytes at the end of the file that are then kept, and searched for missing records.
const KEPT_END: u64 = 128 * 1024;

/// Bytes at the end of the file that hold the newest lines in all but odd cases: a line has some 300 bytes.
const NEWEST_LINES: u64 = 4 * 1024;

/// Limits the warning about marks that cannot be written to one per process.
static WARNED: Once = Once::new();

/// A durable record of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The number of the record in the database; it only grows.
    pub number: i64,
    /// The hash of the record's text.
    pub record: Digest,
    /// The run that the record belongs to.
    pub run: RunId,
    /// The number of the record in its run.
    pub seq: u64,
    /// Kind of its event: `gate_answered`, `step_started` …
    pub what: String,
}

/// One line of a file of marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    /// The store's name, so that marks of another store at the same path are ignored.
    store: String,
    /// The state directory whose lobster wrote the line, for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(flatten)]
    said: Said,
}

impl Line {
    /// The record that the line marks.
    fn durable_mark(&self) -> Option<Mark> {
        match &self.said {
            Said::Durable(mark) => Some(mark.clone()),
            Said::RolledBack { .. } | Said::Accepted { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
enum Said {
    /// This record was durable.
    Durable(Mark),
    /// The database was found to end at this number, before a mark.
    RolledBack { found: i64 },
    /// The operator accepted the database. Written by earlier versions, which kept the name.
    Accepted { found: i64 },
}

/// A database that may lack answers that were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// Records that were promised are missing.
    Older {
        /// Marked records missing from the database, oldest first, as far back as the marks reach.
        missing: Vec<Mark>,
        /// The state directory of the copy that has the newest of them, if it is another one.
        elsewhere: Option<String>,
    },
    /// The database belongs to another store.
    OtherStore,
}

impl Rollback {
    /// The error for operations that would build on the database at `path`.
    pub(super) fn to_error(&self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Older { elsewhere, .. } => StoreError::RolledBack { path, elsewhere: elsewhere.clone() },
            Self::OtherStore => StoreError::OtherStore { path },
        }
    }
}

/// The marks of one store.
pub(super) struct HighWater {
    dir: PathBuf,
    /// A directory for marks that is not copied, moved or restored together with the state directory.
    outside: Option<PathBuf>,
    /// False for a temporary store.
    is_kept: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Set once the name is in the database.
    name: Option<String>,
    rollback: Option<Rollback>,
}

/// Result of comparing the database with its marks.
struct Comparison {
    name: StoreName,
    rollback: Option<Rollback>,
    /// The newest line of each file.
    newest: Vec<Line>,
    /// The lines about records missing from the database, oldest first.
    missing: Vec<Line>,
    /// The number of the newest record of the database.
    found: i64,
}

impl HighWater {
    pub(super) fn new(dir: &Path, outside: Option<&Path>, is_kept: bool) -> Self {
        let outside = outside.map(Path::to_owned);
        Self { dir: dir.to_owned(), outside, is_kept, state: Mutex::default() }
    }

    /// Files for the marks of this name.
    fn mark_files(&self, name: &str) -> Vec<PathBuf> {
        let outside = self.outside.iter().map(|outside| outside.join(format!("{name}.jsonl")));
        std::iter::once(self.dir.join(BESIDE)).chain(outside).collect()
    }

    /// File in which an earlier version kept its outside marks, named after the path of the store.
    fn earlier_file(&self) -> Option<PathBuf> {
        let place = Digest::of_bytes(self.dir.as_os_str().as_encoded_bytes()).to_string();
        Some(self.outside.as_ref()?.join(format!("{}.jsonl", &place[..16])))
    }

    /// Compares the database with the last `length` bytes of each file of marks. The marks are read first: everything
    /// durable by then is in a snapshot that begins afterwards, while a mark added by another process after the
    /// snapshot may name a newer record.
    fn compare_marks(&self, db: &Connection, length: u64) -> Result<Comparison, StoreError> {
        let name = StoreName::read(&self.dir, db);
        let files = name.get().map(|name| self.mark_files(name)).unwrap_or_default();
        let noted: Vec<Vec<Line>> = match name.get() {
            Some(name) => files
                .into_iter()
                .chain(self.earlier_file())
                .map(|file| read_lines(&file, name, length))
                .collect(),
            None => Vec::new(),
        };
        let found = newest_record(db)?;
        let (mut is_behind, mut missing, mut newest) = (false, Vec::<(i64, Line)>::new(), Vec::new());
        for lines in noted {
            newest.extend(lines.last().cloned());
            let (mut lost, mut was_found_behind) = (Vec::new(), false);
            for line in lines {
                match &line.said {
                    Said::Durable(mark) if !has_or_had(db, found, mark) => lost.push((mark.number, line)),
                    Said::Durable(_) => {}
                    Said::RolledBack { .. } => was_found_behind = true,
                    Said::Accepted { .. } => {
                        was_found_behind = false;
                        lost.clear();
                    }
                }
            }
            is_behind |= was_found_behind || !lost.is_empty();
            missing.extend(lost);
        }
        missing.sort_by_key(|(number, _)| *number);
        missing.dedup();
        let missing: Vec<Line> = missing.into_iter().map(|(_, line)| line).collect();
        let rollback = if name.is_of_two_stores() {
            Some(Rollback::OtherStore)
        } else {
            let ahead = missing.last().and_then(|line| line.place.clone());
            is_behind.then(|| Rollback::Older {
                elsewhere: ahead.filter(|place| Some(place) != self.state_dir().as_ref()),
                missing: missing.iter().filter_map(Line::durable_mark).collect(),
            })
        };
        Ok(Comparison { name, rollback, newest, missing, found })
    }

    /// Compares once per process, during its first write, and completes the name.
    pub(super) fn check_once(&self, tx: &Connection) -> Result<(), StoreError> {
        if !self.is_kept || lock(&self.state).name.is_some() {
            return Ok(());
        }
        self.check_write(tx, NEWEST_LINES)
    }

    /// Compares with every line that is left, before a write that must not be repeated: another copy of the store may
    /// have added marks since.
    pub(super) fn check_all(&self, tx: &Connection) -> Result<(), StoreError> {
        if self.is_kept { self.check_write(tx, KEPT_END) } else { Ok(()) }
    }

    fn check_write(&self, tx: &Connection, length: u64) -> Result<(), StoreError> {
        let Comparison { name, rollback, newest, found, .. } = self.compare_marks(tx, length)?;
        let name = name.write_missing(&self.dir, tx)?;
        // Later records may fill the gap, and then nothing else would reveal it.
        let is_noted = newest.first().is_some_and(|line| matches!(line.said, Said::RolledBack { .. }));
        if rollback.is_some() && !is_noted {
            let line = self.mark_line(&name, Said::RolledBack { found });
            let _ = append_line(&self.dir.join(BESIDE), line.as_bytes());
        }
        *lock(&self.state) = State { name: Some(name), rollback };
        Ok(())
    }

    /// Compares with the newest lines, before the database at `path` is read or a run in it continues.
    pub(super) fn check_rollback(&self, db: &Connection, path: &Path) -> Result<(), StoreError> {
        if !self.is_kept {
            return Ok(());
        }
        let Comparison { name, rollback, .. } = self.compare_marks(db, NEWEST_LINES)?;
        let mut state = lock(&self.state);
        if state.name.is_some() {
            // Another process may have accepted a rollback.
            state.name = name.get().map(str::to_owned);
        }
        state.rollback = rollback;
        drop(state);
        self.reject_rolled_back(path)
    }

    /// Fails once the database is known to have been rolled back.
    pub(super) fn reject_rolled_back(&self, path: &Path) -> Result<(), StoreError> {
        lock(&self.state).rollback.as_ref().map_or(Ok(()), |rollback| Err(rollback.to_error(path)))
    }

    /// Marks a record that is durable now.
    pub(super) fn add_mark(&self, mark: Mark) {
        let name = match &*lock(&self.state) {
            State { name: Some(name), rollback: None } => name.clone(),
            State { .. } => return,
        };
        // A line is one write, so lines of several processes do not mix.
        let line = self.mark_line(&name, Said::Durable(mark));
        for file in self.mark_files(&name) {
            if let Err(error) = append_line(&file, line.as_bytes()) {
                let path = file.display();
                WARNED.call_once(|| {
                    tracing::warn!(%error, %path, "the newest record cannot be marked there, so a store that is \
                        put back to an earlier state may not be recognised");
                });
            }
        }
    }

    /// Marked records that are missing from the database.
    pub(super) fn find_rollback(&self, db: &Connection) -> Result<Option<Rollback>, StoreError> {
        if self.is_kept { Ok(self.compare_marks(db, KEPT_END)?.rollback) } else { Ok(None) }
    }

    /// Continues with the database as a new store: promises made under the old name still hold for all other copies.
    pub(super) fn accept_rollback(&self, tx: &Connection) -> Result<(), StoreError> {
        let name = StoreName::assign_new(&self.dir, tx)?;
        *lock(&self.state) = State { name: Some(name), rollback: None };
        Ok(())
    }

    /// Name and marks by which a copy of the store is recognised. Read before the copy is made, so that no mark is
    /// ahead of the copy of a sound store.
    pub(super) fn carried_marks(&self, db: &Connection) -> Result<CarriedMark, StoreError> {
        let Comparison { name, rollback, newest, missing, found } = self.compare_marks(db, KEPT_END)?;
        let lines = if rollback.is_some() { missing } else { newest };
        let mut marks: String = lines.iter().map(|line| json::compact(line) + "\n").collect();
        if let (Some(own), Some(_)) = (name.get(), &rollback) {
            marks += &self.mark_line(own, Said::RolledBack { found });
        }
        Ok(CarriedMark { name, marks, rollback })
    }

    fn mark_line(&self, name: &str, said: Said) -> String {
        json::compact(&Line { store: name.to_owned(), place: self.state_dir(), said }) + "\n"
    }

    /// The state directory.
    fn state_dir(&self) -> Option<String> {
        Some(self.dir.parent()?.to_string_lossy().into_owned())
    }
}

/// The name and the marks of a store, for a copy.
pub(super) struct CarriedMark {
    name: StoreName,
    marks: String,
    pub(super) rollback: Option<Rollback>,
}

impl CarriedMark {
    /// Writes both into the store directory of the copy.
    pub(super) fn write_to(&self, store: &Path) -> Result<(), StoreError> {
        let write = || -> io::Result<()> {
            self.name.copy_to(store)?;
            append_line(&store.join(BESIDE), self.marks.as_bytes())
        };
        write().map_err(|error| StoreError::io("write in", store, error))
    }
}

fn append_line(path: &Path, line: &[u8]) -> io::Result<()> {
    let open = || regular_file::open_own(OpenOptions::new().append(true).create(true).mode(0o600), path);
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = path.parent().unwrap_or(Path::new("."));
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            open()?
        }
        other => other?,
    };
    file.write_all(line)?;
    if file.metadata()?.len() > SHORTEN_AT {
        shorten_file(path)?;
    }
    Ok(())
}

/// Keeps the end of a file. A line that another process appends meanwhile may be lost; its next line is not.
fn shorten_file(path: &Path) -> io::Result<()> {
    let end = end_of(path, KEPT_END)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().prefix("new-").tempfile_in(dir)?;
    draft.write_all(&end)?;
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The complete lines in the last `length` bytes of a file, and lines appended meanwhile.
fn end_of(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    let mut file = regular_file::open_own(OpenOptions::new().read(true), path)?;
    let len = file.metadata()?.len();
    let from = len.saturating_sub(length);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::with_capacity(usize::try_from(len - from).unwrap_or(0) + 1);
    file.take(2 * KEPT_END).read_to_end(&mut bytes)?;
    if from > 0 {
        let first = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..first);
    }
    Ok(bytes)
}

/// The lines of this store in the last `length` bytes of a file; if there are none, those in the whole file.
/// Incomplete lines are ignored.
fn read_lines(path: &Path, name: &str, length: u64) -> Vec<Line> {
    for length in [length, KEPT_END] {
        let bytes = end_of(path, length).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<Line> = text.lines().filter_map(|line| line_of(line, name)).collect();
        if !lines.is_empty() {
            return lines;
        }
    }
    Vec::new()
}

fn line_of(text: &str, name: &str) -> Option<Line> {
    json::parse_as::<Line>(text).ok().filter(|line| line.store == name)
}

/// The number of the newest record that the database has ever had.
fn newest_record(db: &Connection) -> Result<i64, StoreError> {
    let mut statement = db.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// True if the database has the record, or has collected it. Also true for a record that cannot be read or does not
/// fit its own journal, since damage is handled elsewhere.
fn has_or_had(db: &Connection, newest: i64, mark: &Mark) -> bool {
    if newest < mark.number {
        return false;
    }
    let text = db.prepare_cached("SELECT CAST(record AS BLOB) FROM journal WHERE id = ?1").and_then(
        |mut statement| statement.query_row([mark.number], |row| row.get::<_, Vec<u8>>(0)).optional(),
    );
    match text {
        Ok(Some(text)) => {
            let hash = Digest::of_bytes(&text);
            hash == mark.record || !is_chained(db, mark.number, &hash)
        }
        Ok(None) | Err(_) => true,
    }
}

/// True if the next record of the journal, or the row of its run, contains the hash of this record: then the record
/// was written like that, by a store with another history.
fn is_chained(db: &Connection, number: i64, hash: &Digest) -> bool {
    let found = db
        .prepare_cached(
            "SELECT CAST(next.record AS BLOB), runs.head FROM journal own JOIN runs ON runs.n = own.run
             LEFT JOIN journal next ON next.run = own.run AND next.seq = own.seq + 1 WHERE own.id = ?1",
        )
        .and_then(|mut statement| {
            statement
                .query_row([number], |row| Ok((row.get::<_, Option<Vec<u8>>>(0)?, row.get::<_, Vec<u8>>(1)?)))
        });
    match found {
        Ok((Some(next), _)) => json::parse(&String::from_utf8_lossy(&next))
            .is_ok_and(|next| next["prev"].as_str() == Some(hash.to_string().as_str())),
        Ok((None, head)) => head == hash.as_bytes(),
        Err(_) => false,
    }
}
