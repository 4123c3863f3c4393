//! The high-water mark: what the store has promised, noted outside its database.
//!
//! A database that was put back to an earlier state (a backup tool that copied
//! the database and its log at different moments, a lost or cut log, an older
//! copy) is sound in itself: SQLite drops the end of a damaged log by design.
//! But a gate that was answered would be open again, and an effect that was done
//! would not have been. So after each durable commit the number and the hash of
//! the newest journal record are noted in two small files: one beside the
//! database, one outside the state directory for when all of that is put back.
//! If the database knows less than a mark, it was rolled back: no gate is
//! answered and no run goes on until the operator accepts that.
//!
//! Marks are not synced themselves: a mark that is lost weakens the notice, a mark
//! is never ahead of what was durable.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::StoreError;
use super::event::RunId;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::regular_file;
use lobster_base::sync::lock;

/// A file of marks is shortened when it is larger: some thousand lines.
const SHORTEN_AT: u64 = 512 * 1024;

/// So many bytes of its end are kept then, and looked at to name what is missing.
const KEPT_END: u64 = 128 * 1024;

/// So many bytes of its end hold the newest line in all but odd cases: a line has some 250.
const NEWEST_LINE: u64 = 4 * 1024;

/// A durable record of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The number of the record in the database; it only grows.
    pub number: i64,
    /// The hash of the record's text.
    pub record: Digest,
    /// Whose record it is.
    pub run: RunId,
    /// The number of the record in its run.
    pub seq: u64,
    /// What it tells: `gate_answered`, `step_started` …
    pub what: String,
}

/// One line of a file of marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    /// The store's name, so that another store in the same place is not held against it.
    store: String,
    #[serde(flatten)]
    said: Said,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
enum Said {
    /// This was durable.
    Durable(Mark),
    /// The database was found to end at this number, before a mark.
    RolledBack { found: i64 },
    /// The operator goes on with what is there.
    Accepted { found: i64 },
}

/// A database that knows less than was promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rollback {
    /// The newest record that the marks know.
    pub newest: Option<Mark>,
    /// Marked records that the database does not have, oldest first, as far as the marks reach back.
    pub missing: Vec<Mark>,
}

/// The marks of one store.
pub(super) struct HighWater {
    /// Where they are noted; empty for a store that nobody means to keep.
    files: Vec<PathBuf>,
    name_file: PathBuf,
    name: OnceLock<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    checked: bool,
    rolled_back: bool,
}

impl HighWater {
    /// Of the store in `dir`. `outside` is a directory for marks that does not
    /// go with the state directory when that is copied, moved or put back.
    pub(super) fn new(dir: &Path, outside: Option<&Path>, kept: bool) -> Self {
        let mut files = Vec::new();
        if kept {
            files.push(dir.join("high-water.jsonl"));
            // By the place of the store: a copy elsewhere is a store of its own.
            let place = Digest::of(dir.as_os_str().as_encoded_bytes()).to_string();
            files.extend(outside.map(|outside| outside.join(format!("{}.jsonl", &place[..16]))));
        }
        Self { files, name_file: dir.join("name"), name: OnceLock::new(), state: Mutex::default() }
    }

    /// The name of the store, given when it is first written to.
    fn name(&self) -> io::Result<&str> {
        if let Some(name) = self.name.get() {
            return Ok(name);
        }
        let name = match regular_file::read_own_text(&self.name_file) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let fresh = Uuid::new_v4().simple().to_string();
                let dir = self.name_file.parent().unwrap_or(Path::new("."));
                let mut draft = tempfile::Builder::new().prefix("new-").tempfile_in(dir)?;
                draft.write_all(fresh.as_bytes())?;
                match draft.persist_noclobber(&self.name_file) {
                    Ok(_) => fresh,
                    // Another process was faster.
                    Err(_) => regular_file::read_own_text(&self.name_file)?,
                }
            }
            Err(error) => return Err(error),
        };
        Ok(self.name.get_or_init(|| name.trim().to_owned()))
    }

    /// Holds the database against the marks, once in this process. The marks are read
    /// first: whatever was durable by then is in a snapshot that begins after it, while a
    /// mark that another process makes after the snapshot may name a newer record.
    pub(super) fn check_once(&self, db: &Connection) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        if state.checked || self.files.is_empty() {
            return Ok(());
        }
        let Ok(name) = self.name() else { return Ok(()) };
        let noted: Vec<Said> = self.files.iter().filter_map(|file| last_line(file, name)).collect();
        let found = newest(db)?;
        state.rolled_back |= noted.iter().any(|said| match said {
            Said::RolledBack { .. } => true,
            Said::Durable(mark) => !knows(db, found, mark),
            Said::Accepted { .. } => false,
        });
        if state.rolled_back {
            self.say(name, &Said::RolledBack { found });
        }
        state.checked = true;
        Ok(())
    }

    /// An error once the database is known to have been rolled back.
    pub(super) fn guard(&self, path: &Path) -> Result<(), StoreError> {
        match lock(&self.state).rolled_back {
            true => Err(StoreError::RolledBack { path: path.to_owned() }),
            false => Ok(()),
        }
    }

    /// Notes a record that is durable now.
    pub(super) fn note(&self, mark: Mark) {
        if self.files.is_empty() || lock(&self.state).rolled_back {
            return;
        }
        if let Ok(name) = self.name() {
            self.say(name, &Said::Durable(mark));
        }
    }

    /// What the marks know and the database does not. The marks are read first, as in [`Self::check_once`].
    pub(super) fn rollback(&self, db: &Connection) -> Result<Option<Rollback>, StoreError> {
        let Ok(name) = self.name() else { return Ok(None) };
        let noted: Vec<Vec<Said>> = self.files.iter().map(|file| lines(file, name)).collect();
        let found = newest(db)?;
        let mut behind = false;
        let mut missing: Vec<Mark> = Vec::new();
        for said in noted {
            let mut lost = Vec::new();
            let mut said_so = false;
            for said in said {
                match said {
                    Said::Durable(mark) if !knows(db, found, &mark) => lost.push(mark),
                    Said::Durable(_) => {}
                    Said::RolledBack { .. } => said_so = true,
                    Said::Accepted { .. } => {
                        said_so = false;
                        lost.clear();
                    }
                }
            }
            behind |= said_so || !lost.is_empty();
            missing.extend(lost);
        }
        missing.sort_by_key(|mark| mark.number);
        missing.dedup();
        Ok(behind.then(|| Rollback { newest: missing.last().cloned(), missing }))
    }

    /// Goes on with what the database has.
    pub(super) fn accept(&self, db: &Connection) -> Result<(), StoreError> {
        let found = newest(db)?;
        if let Ok(name) = self.name() {
            self.say(name, &Said::Accepted { found });
        }
        *lock(&self.state) = State { checked: true, rolled_back: false };
        Ok(())
    }

    /// Appends a line to each file. A line is one write, so lines of several
    /// processes do not mix. A mark that finds no room is not there.
    fn say(&self, name: &str, said: &Said) {
        let line = Line { store: name.to_owned(), said: said.clone() };
        let text = json::compact(&line) + "\n";
        for file in &self.files {
            let _ = append(file, text.as_bytes());
        }
    }
}

fn append(path: &Path, line: &[u8]) -> io::Result<()> {
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
        shorten(path)?;
    }
    Ok(())
}

/// Keeps the end of a file. A line that another process appends meanwhile may be
/// lost; its next one is not.
fn shorten(path: &Path) -> io::Result<()> {
    let end = end_of(path, KEPT_END)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().prefix("new-").tempfile_in(dir)?;
    draft.write_all(&end)?;
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The whole lines in the last `length` bytes of a file, and those that are appended meanwhile.
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

/// The lines of this store at the end of a file. A line that was cut off says nothing.
fn lines(path: &Path, name: &str) -> Vec<Said> {
    let bytes = end_of(path, KEPT_END).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(|line| line_of(line, name)).collect()
}

/// The newest line of this store. Each run asks for it when it begins, so the rest is not read.
fn last_line(path: &Path, name: &str) -> Option<Said> {
    [NEWEST_LINE, KEPT_END].into_iter().find_map(|length| {
        let bytes = end_of(path, length).ok()?;
        String::from_utf8_lossy(&bytes).lines().rev().find_map(|line| line_of(line, name))
    })
}

fn line_of(text: &str, name: &str) -> Option<Said> {
    json::parse_as::<Line>(text).ok().filter(|line| line.store == name).map(|line| line.said)
}

/// The number of the newest record that the database ever had.
fn newest(db: &Connection) -> Result<i64, StoreError> {
    let mut statement = db.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Whether the database has the record, or had it and collected it. A record that
/// cannot be read is damaged, which is another matter.
fn knows(db: &Connection, newest: i64, mark: &Mark) -> bool {
    if newest < mark.number {
        return false;
    }
    let text = db.prepare_cached("SELECT CAST(record AS BLOB) FROM journal WHERE id = ?1").and_then(
        |mut statement| statement.query_row([mark.number], |row| row.get::<_, Vec<u8>>(0)).optional(),
    );
    !matches!(text, Ok(Some(text)) if Digest::of(&text) != mark.record)
}
