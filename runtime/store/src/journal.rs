//! Runs and their journals.
//!
//! A record is one JSON text: `{"run","seq","at","prev","event"}`, numbered from 1, where `prev` is the BLAKE3 hash of
//! the preceding text (zeros for the first). The text itself is stored and hashed, so nothing depends on how a value
//! would be printed again. The run's row keeps the number and hash of the last record, which reveals a truncated
//! journal.

use std::borrow::Cow;
use std::fmt;

use rusqlite::{Connection, Row, Transaction, params, params_from_iter, types};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Store;
use super::db::Durability;
use super::error::StoreError;
use super::event::{Event, RunId, RunStatus};
use super::high_water::Mark;
use super::statement::{execute, query_one, query_rows};
use lobster_base::digest::Digest;
use lobster_base::json::{self, JsonError};

/// `prev` of the first record.
pub(super) const BEFORE_ALL: [u8; 32] = [0; 32];

/// Digits of [`RunId::short_id`]; the database has an index for them.
const SHORT: usize = 8;

/// Least length of a part of an id that [`Store::find_run`] accepts.
const PREFIX_MIN: usize = 4;

/// Most runs that are listed for an ambiguous id.
const CANDIDATES: u8 = 5;

/// Properties of a run that are known before it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// Display name: the workflow's name, or the pipeline's text.
    pub name: String,
    /// `workflow`, `pipeline`, `replay` …
    pub kind: String,
    /// Blob of the Plan.
    pub plan: Digest,
    /// Blob of the arguments.
    pub args: Option<Digest>,
    /// `human` or `tool`.
    pub mode: String,
    /// The user or program that started it, if known.
    pub actor: Option<String>,
    /// The working directory.
    pub cwd: String,
    /// The run that it was forked from or is part of.
    pub parent: Option<RunId>,
    /// Other data for the first event.
    pub detail: Value,
}

/// One record of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The run that the journal belongs to.
    pub run: RunId,
    /// Starts at 1, without gaps.
    pub seq: u64,
    /// In milliseconds since 1970, by the clock of the machine that wrote it.
    pub at: i64,
    /// Hash of the previous record.
    pub prev: Digest,
    /// The event.
    pub event: Event,
    /// The text that is hashed; all other fields were read from it.
    pub text: String,
}

impl Record {
    /// The `prev` of the next record.
    #[must_use]
    pub fn hash(&self) -> Digest {
        Digest::of_bytes(self.text.as_bytes())
    }
}

/// Position at which a journal stops being the chain that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenChain {
    pub run: String,
    /// The first wrong record.
    pub seq: u64,
    pub why: String,
}

impl fmt::Display for BrokenChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the journal of run {} is damaged at record {}: {}", self.run, self.seq, self.why)
    }
}

#[derive(Serialize)]
struct RecordOut<'a, E> {
    run: &'a RunId,
    seq: u64,
    at: i64,
    prev: &'a Digest,
    event: &'a E,
}

#[derive(Deserialize)]
struct RecordIn {
    run: RunId,
    seq: u64,
    at: i64,
    prev: Digest,
    event: Box<RawValue>,
}

/// A run as shown in lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    pub id: RunId,
    pub name: String,
    pub kind: String,
    pub status: RunStatus,
    pub mode: String,
    pub actor: Option<String>,
    pub cwd: String,
    pub parent: Option<RunId>,
    pub plan: Digest,
    pub args: Option<Digest>,
    /// In milliseconds since 1970.
    pub started_at: i64,
    /// Time when it last ended; `None` while it is not over.
    pub ended_at: Option<i64>,
    pub output: Option<Digest>,
    pub error: Option<String>,
    /// Kept by collections, whatever its age.
    pub pinned: bool,
    /// Records in its journal.
    pub records: u64,
}

/// Filter for a list of runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    pub status: Option<RunStatus>,
    /// The exact name.
    pub name: Option<String>,
    /// Started at this time or later.
    pub since: Option<i64>,
    /// Only runs created before this one, which is the last of the previous page.
    pub before: Option<RunId>,
    /// Most runs to return; 0 means all.
    pub limit: usize,
}

/// The end of a journal, where the next record goes.
pub(super) struct Head {
    pub(super) n: i64,
    pub(super) id: RunId,
    pub(super) seq: u64,
    pub(super) hash: Digest,
    /// True if the run's row has the status `cancelled`.
    is_cancelled: bool,
}

impl Head {
    /// The error for a run whose latest end came from a person.
    pub(super) fn called_off(&self, db: &Connection) -> Result<Option<StoreError>, StoreError> {
        // Runs that are written to are hardly ever cancelled, so this rarely costs anything.
        if !self.is_cancelled {
            return Ok(None);
        }
        let mut statement =
            db.prepare_cached("SELECT seq, record FROM journal WHERE run = ?1 ORDER BY seq DESC")?;
        let mut rows = statement.query([self.n])?;
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)?.cast_unsigned();
            let record = parse_record(self.id, seq, record_text_of(row, 1)?)?;
            if let Event::RunEnded { .. } = record.event {
                let how = record.event.called_off().map(str::to_owned);
                return Ok(how.map(|how| StoreError::CalledOff { run: self.id.to_string(), how }));
            }
        }
        Ok(None)
    }

    /// Adds the text of the next record, and updates the run accordingly.
    pub(super) fn append_record(
        &mut self,
        tx: &Transaction<'_>,
        at: i64,
        event: &Event,
        text: &str,
    ) -> Result<(), StoreError> {
        self.seq += 1;
        self.hash = Digest::of_bytes(text.as_bytes());
        let sql = "INSERT INTO journal (run, seq, record) VALUES (?1, ?2, ?3)";
        execute(tx, sql, params![self.n, self.seq.cast_signed(), text])?;
        super::NEWEST.set(Some(Mark {
            number: tx.last_insert_rowid(),
            record: self.hash,
            run: self.id,
            seq: self.seq,
            what: event.kind().to_owned(),
        }));
        let Some(status) = event.run_status() else { return Ok(()) };
        let (output, error) = match event {
            Event::RunEnded { output, error, .. } => (output.map(|blob| blob.digest), error.as_deref()),
            _ => (None, None),
        };
        tx.prepare_cached("UPDATE runs SET status = ?2, ended = ?3, output = ?4, error = ?5 WHERE n = ?1")?
            .execute(params![
            self.n,
            status.as_str(),
            status.is_over().then_some(at),
            output.as_ref().map(Digest::as_bytes),
            error,
        ])?;
        Ok(())
    }

    /// True if `record` continues this journal.
    pub(super) fn is_continued_by(&self, record: &Record) -> bool {
        record.seq == self.seq + 1 && record.prev == self.hash
    }

    /// Stores the new end of the journal.
    pub(super) fn save(&self, tx: &Transaction<'_>) -> Result<(), StoreError> {
        let sql = "UPDATE runs SET head_seq = ?2, head = ?3 WHERE n = ?1";
        execute(tx, sql, params![self.n, self.seq.cast_signed(), self.hash.as_bytes()])?;
        Ok(())
    }
}

impl Store {
    /// Creates a run: its row and its first event, [`Event::RunStarted`]. The write is lazy: the first synced event
    /// makes it durable.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create_run(&self, new: NewRun) -> Result<RunId, StoreError> {
        let id = RunId::new()?;
        self.create_run_as(id, new)?;
        Ok(id)
    }

    /// Like [`Store::create_run`], under an id that was promised earlier ([`super::Start::run`]).
    ///
    /// # Errors
    /// [`StoreError::RunExists`] if the run has already begun; otherwise as [`Store::create_run`].
    pub fn create_run_as(&self, id: RunId, new: NewRun) -> Result<(), StoreError> {
        let now = self.now();
        let clean = self.current_redactions();
        let event = Event::RunStarted {
            name: clean.hide_in_text(&new.name).into_owned(),
            kind: new.kind,
            plan: new.plan,
            args: new.args,
            mode: new.mode,
            actor: new.actor.map(|actor| clean.hide_in_text(&actor).into_owned()),
            cwd: clean.hide_in_text(&new.cwd).into_owned(),
            parent: new.parent,
            detail: new.detail,
        };
        self.write_transaction(Durability::Lazy, |tx| {
            if tx.prepare_cached("SELECT 1 FROM runs WHERE id = ?1")?.exists([id.as_bytes()])? {
                return Err(StoreError::RunExists(id.to_string()));
            }
            let mut head = insert_run(tx, id, now, &event)?;
            self.append_to(tx, &mut head, now, std::slice::from_ref(&event))
        })
    }

    /// Appends events to a journal, in one transaction with all blobs recorded before. An event that ends, pauses or
    /// resumes the run also changes its status.
    ///
    /// # Errors
    /// [`StoreError::CalledOff`] if a person has ended the run and some of the events would continue it: those events
    /// are left out, the others are appended. Also fails if there is no such run, or it cannot be written or made
    /// durable.
    pub fn append_events(
        &self,
        run: RunId,
        mut events: Vec<Event>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        self.write_transaction(durability, |tx| {
            let mut head = read_head(tx, run)?;
            let goes_on = events.iter().any(Event::goes_on);
            let refused = if goes_on { head.called_off(tx)? } else { None };
            if refused.is_some() {
                events.retain(|event| !event.goes_on());
            }
            self.append_to(tx, &mut head, self.now(), &events)?;
            Ok(refused.map_or(Ok(()), Err))
        })?
    }

    /// Fails if a person has ended the run.
    ///
    /// # Errors
    /// [`StoreError::CalledOff`], or if there is no such run or it cannot be read.
    pub fn check_not_called_off(&self, run: RunId) -> Result<(), StoreError> {
        let over = self.inner.db.read_snapshot(|db| read_head(db, run)?.called_off(db))?;
        over.map_or(Ok(()), Err)
    }

    /// Returns once everything appended and recorded so far is durable. Concurrent callers share the sync.
    ///
    /// # Errors
    /// If it cannot be made durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        let ticket = self.inner.db.group.announce_commit();
        self.flush_pending()?;
        self.inner.db.group.wait_until_durable(ticket)
    }

    pub(super) fn append_to(
        &self,
        tx: &Transaction<'_>,
        head: &mut Head,
        at: i64,
        events: &[Event],
    ) -> Result<(), StoreError> {
        self.check_claim(tx, head.id)?;
        let clean = self.current_redactions();
        for event in events {
            let (run, seq, prev) = (head.id, head.seq + 1, head.hash);
            let (text, event) = if clean.is_empty() {
                (record_text(&RecordOut { run: &run, seq, at, prev: &prev, event })?, Cow::Borrowed(event))
            } else {
                let mut value = serde_json::to_value(event).map_err(not_json)?;
                clean.hide_in_value(&mut value);
                let text = record_text(&RecordOut { run: &run, seq, at, prev: &prev, event: &value })?;
                (text, Cow::Owned(serde_json::from_value::<Event>(value).map_err(not_json)?))
            };
            head.append_record(tx, at, &event, &text)?;
            self.hold_for_witnesses(|| Record { run, seq, at, prev, event: event.into_owned(), text });
        }
        head.save(tx)
    }

    /// Keeps a record for the witnesses, which are called once it is committed.
    fn hold_for_witnesses(&self, record: impl FnOnce() -> Record) {
        if !self.witnesses().is_empty() {
            let mut noted = super::WITNESSED.take();
            noted.push(record());
            super::WITNESSED.set(noted);
        }
    }

    /// The whole journal of a run, from the start.
    ///
    /// # Errors
    /// If there is no such run, or a record cannot be parsed. The chain is not checked here; see
    /// [`Store::verify_chain`].
    pub fn all_events(&self, run: RunId) -> Result<Vec<Record>, StoreError> {
        self.events_after(run, 0, usize::MAX)
    }

    /// At most `limit` records after number `seq`; for following a run during its execution, and for long journals.
    ///
    /// # Errors
    /// As [`Store::all_events`].
    pub fn events_after(&self, run: RunId, seq: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.db.read_snapshot(|db| {
            let n = run_number(db, run)?;
            let mut statement = db.prepare_cached(
                "SELECT seq, record FROM journal WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = statement.query(params![n, seq.cast_signed(), limit])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                records.push(parse_record(
                    run,
                    row.get::<_, i64>(0)?.cast_unsigned(),
                    record_text_of(row, 1)?,
                )?);
            }
            Ok(records)
        })
    }

    /// The number of the newest record in the store; numbers only grow.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn newest_record(&self) -> Result<u64, StoreError> {
        self.inner.db.read_snapshot(|db| {
            let newest: Option<i64> =
                db.prepare_cached("SELECT max(id) FROM journal")?.query_row([], |row| row.get(0))?;
            Ok(newest.unwrap_or(0).cast_unsigned())
        })
    }

    /// At most `limit` records of all runs after the record with this number: their numbers and runs.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn records_after(&self, number: u64, limit: usize) -> Result<Vec<(u64, RunId)>, StoreError> {
        let sql = "SELECT journal.id, runs.id FROM journal JOIN runs ON runs.n = journal.run
             WHERE journal.id > ?1 ORDER BY journal.id LIMIT ?2";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.inner.db.select_rows(sql, params![number.cast_signed(), limit], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), run_id(row, 1)?))
        })
    }

    /// Runs that match `filter`, the newest first.
    ///
    /// # Errors
    /// If the database cannot be read, or `before` is unknown.
    pub fn list_runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, StoreError> {
        self.inner.db.read_snapshot(|db| {
            let mut sql = format!("SELECT {COLUMNS} FROM runs WHERE 1");
            let mut values: Vec<types::Value> = Vec::new();
            let mut also = |condition: &str, value: types::Value| {
                sql.push_str(condition);
                values.push(value);
            };
            if let Some(status) = filter.status {
                also(" AND status = ?", status.as_str().to_owned().into());
            }
            if let Some(name) = &filter.name {
                also(" AND name = ?", name.clone().into());
            }
            if let Some(since) = filter.since {
                also(" AND started >= ?", since.into());
            }
            if let Some(before) = filter.before {
                also(" AND n < ?", run_number(db, before)?.into());
            }
            let limit = if filter.limit == 0 { -1 } else { i64::try_from(filter.limit).unwrap_or(-1) };
            also(" ORDER BY n DESC LIMIT ?", limit.into());
            query_rows(db, &sql, params_from_iter(values), summary_from_row)
        })
    }

    /// One run.
    ///
    /// # Errors
    /// If there is no such run.
    pub fn run(&self, id: RunId) -> Result<RunSummary, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM runs WHERE id = ?");
        let found = self.inner.db.select_one(&sql, [id.as_bytes()], summary_from_row)?;
        found.ok_or_else(|| StoreError::UnknownRun(id.to_string()))
    }

    /// The run whose id is, begins with or ends with `text`, or whose [`RunId::short_id`] begins with it; dashes and case
    /// are ignored.
    ///
    /// # Errors
    /// If no run matches, or more than one does.
    pub fn find_run(&self, text: &str) -> Result<RunId, StoreError> {
        let hex: String = text.chars().filter(|c| *c != '-').map(|c| c.to_ascii_uppercase()).collect();
        let unknown = || self.or_damaged(StoreError::UnknownRun(text.to_owned()));
        if hex.len() < PREFIX_MIN || hex.len() > 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let bound = |fill: char| Uuid::parse_str(&format!("{hex:<32}").replace(' ', &fill.to_string()));
        let (Ok(low), Ok(high)) = (bound('0'), bound('f')) else { return Err(unknown()) };
        // The index covers the last digits, so a longer text is looked up by its own last digits.
        let (first, last) = match hex.len().checked_sub(SHORT) {
            Some(at) => (hex[at..].to_owned(), hex[at..].to_owned()),
            None => (hex.clone(), format!("{hex:F<SHORT$}")),
        };
        let sql = "SELECT n, id FROM runs WHERE id BETWEEN ?1 AND ?2
             UNION SELECT n, id FROM runs
             WHERE substr(hex(id), 25) BETWEEN ?3 AND ?4 AND (length(?5) < 8 OR substr(hex(id), -length(?5)) = ?5)
             UNION SELECT n, id FROM runs WHERE length(?5) < 8 AND substr(hex(id), -length(?5)) = ?5
             ORDER BY n DESC LIMIT ?6";
        let values = params![low.as_bytes(), high.as_bytes(), first, last, hex, CANDIDATES + 1];
        let mut found = self.inner.db.select_rows(sql, values, |row| run_id(row, 1))?;
        match found.as_slice() {
            [] => Err(unknown()),
            [one] => Ok(*one),
            several => {
                let more = several.len() > usize::from(CANDIDATES);
                found.truncate(usize::from(CANDIDATES));
                let candidates = found.iter().map(RunId::to_string).chain(more.then(|| "others".to_owned()));
                Err(StoreError::AmbiguousRun { prefix: text.to_owned(), candidates: candidates.collect() })
            }
        }
    }

    /// Pins a run, so that collections keep it, or unpins it.
    ///
    /// # Errors
    /// If there is no such run.
    pub fn pin_run(&self, run: RunId, pinned: bool) -> Result<(), StoreError> {
        self.write_transaction(Durability::Synced, |tx| {
            let changed =
                tx.execute("UPDATE runs SET pinned = ?2 WHERE id = ?1", params![run.as_bytes(), pinned])?;
            if changed == 0 { Err(StoreError::UnknownRun(run.to_string())) } else { Ok(()) }
        })
    }
}

/// Adds the row of a run that `event` starts, with an empty journal.
pub(super) fn insert_run(
    tx: &Transaction<'_>,
    id: RunId,
    at: i64,
    event: &Event,
) -> Result<Head, StoreError> {
    let Event::RunStarted { name, kind, plan, args, mode, actor, cwd, parent, .. } = event else {
        let why = "it does not start a run".to_owned();
        return Err(StoreError::BrokenChain { run: id.to_string(), seq: 1, why });
    };
    tx.prepare_cached(
        "INSERT INTO runs (id, name, kind, status, mode, actor, cwd, parent, plan, args, started, head_seq, head)
         VALUES (?1, ?2, ?3, 'running', ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11)",
    )?
    .execute(params![
        id.as_bytes(),
        name,
        kind,
        mode,
        actor,
        cwd,
        parent.as_ref().map(RunId::as_bytes),
        plan.as_bytes(),
        args.as_ref().map(Digest::as_bytes),
        at,
        BEFORE_ALL,
    ])?;
    Ok(Head { n: tx.last_insert_rowid(), id, seq: 0, hash: BEFORE_ALL.into(), is_cancelled: false })
}

/// Runs by their ids, as formatted by [`super::listing::ids_json`], the newest first.
pub(super) fn runs_with_ids(db: &Connection, ids: &str) -> Result<Vec<RunSummary>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM runs WHERE id IN (SELECT unhex(value) FROM json_each(?1)) ORDER BY n DESC"
    );
    query_rows(db, &sql, [ids], summary_from_row)
}

const COLUMNS: &str = "id, name, kind, status, mode, actor, cwd, parent, plan, args, started, ended, output, error, \
                       pinned, head_seq";

fn summary_from_row(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    Ok(RunSummary {
        id: run_id(row, 0)?,
        name: row.get(1)?,
        kind: row.get(2)?,
        status: read_word(row, 3)?,
        mode: row.get(4)?,
        actor: row.get(5)?,
        cwd: row.get(6)?,
        parent: row.get::<_, Option<[u8; 16]>>(7)?.map(|bytes| RunId(Uuid::from_bytes(bytes))),
        plan: row.get::<_, [u8; 32]>(8)?.into(),
        args: row.get::<_, Option<[u8; 32]>>(9)?.map(Digest::from),
        started_at: row.get(10)?,
        ended_at: row.get(11)?,
        output: row.get::<_, Option<[u8; 32]>>(12)?.map(Digest::from),
        error: row.get(13)?,
        pinned: row.get(14)?,
        records: row.get::<_, i64>(15)?.cast_unsigned(),
    })
}

pub(super) fn run_id(row: &Row<'_>, column: usize) -> rusqlite::Result<RunId> {
    Ok(RunId(Uuid::from_bytes(row.get(column)?)))
}

/// Reads a column that contains a word of a closed set.
pub(super) fn read_word<W: std::str::FromStr<Err = super::event::UnknownWord>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<W> {
    let text: String = row.get(column)?;
    text.parse()
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, types::Type::Text, Box::new(e)))
}

pub(super) fn read_head(db: &Connection, run: RunId) -> Result<Head, StoreError> {
    let sql = "SELECT n, head_seq, head, status = 'cancelled' FROM runs WHERE id = ?";
    query_one(db, sql, [run.as_bytes()], |row| {
        let seq = row.get::<_, i64>(1)?.cast_unsigned();
        let hash = row.get::<_, [u8; 32]>(2)?.into();
        Ok(Head { n: row.get(0)?, id: run, seq, hash, is_cancelled: row.get(3)? })
    })?
    .ok_or_else(|| StoreError::UnknownRun(run.to_string()))
}

pub(super) fn run_number(db: &Connection, run: RunId) -> Result<i64, StoreError> {
    let n = query_one(db, "SELECT n FROM runs WHERE id = ?", [run.as_bytes()], |row| row.get(0))?;
    n.ok_or_else(|| StoreError::UnknownRun(run.to_string()))
}

/// The text of a record. Text that is not UTF-8 is damaged: it is replaced by a text with a wrong hash, so that only
/// its own run has a broken chain.
pub(super) fn record_text_of(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(column)? {
        types::ValueRef::Text(bytes) | types::ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        },
        types::ValueRef::Null | types::ValueRef::Integer(_) | types::ValueRef::Real(_) => String::new(),
    })
}

fn record_text(record: &impl Serialize) -> Result<String, StoreError> {
    let mut text = Vec::with_capacity(512);
    json::write_compact(&mut text, record).map_err(not_json)?;
    Ok(String::from_utf8(text).unwrap_or_default())
}

fn not_json(error: serde_json::Error) -> StoreError {
    StoreError::Json { what: "an event has no JSON text", source: JsonError::Syntax(error) }
}

pub fn parse_record(run: RunId, seq: u64, text: String) -> Result<Record, StoreError> {
    let broken = |why: String| StoreError::BrokenChain { run: run.to_string(), seq, why };
    let unreadable = |e: JsonError| broken(format!("it is not the text of a record: {e}"));
    let record: RecordIn = json::parse_as(&text).map_err(unreadable)?;
    if record.run != run || record.seq != seq {
        return Err(broken(format!("it says that it is record {} of run {}", record.seq, record.run)));
    }
    let event = Event::from_json(record.event.get()).map_err(unreadable)?;
    Ok(Record { run, seq, at: record.at, prev: record.prev, event, text })
}
