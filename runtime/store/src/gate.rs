//! Gates, at which a run waits for a person.
//!
//! A gate is answered once. The transaction that closes it also writes the answer into the journal, so the winner is
//! recorded, and later attempts see who it was. The token only names the gate and carries nothing else.

use std::fmt;
use std::str::FromStr;

use rusqlite::{Connection, Row, Transaction, params, params_from_iter, types};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Store;
use super::db::Durability;
use super::error::StoreError;
use super::event::{Event, RunId, words};
use super::journal::{parse_record, read_head, read_word, record_text_of, run_id, run_number};
use super::statement::{query_one, query_rows};
use lobster_base::digest::Digest;
use lobster_base::json;

/// Least length of an id's prefix that [`Store::find_gate`] accepts.
const ID_PREFIX_MIN: usize = 4;

/// Attempts to find an unused short id. With a million gates, each is already taken with a probability of 1 in 4000.
const ID_TRIES: u32 = 64;

/// The secret name of a gate: 122 random bits, as the text of a UUIDv4.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateKey(Uuid);

impl fmt::Display for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Keys open gates, so this keeps them out of logs.
impl fmt::Debug for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateKey(…)")
    }
}

impl FromStr for GateKey {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

words! {
    /// Kind of answer that a gate asks for.
    GateKind {
        /// Approve or reject.
        Approval = "approval",
        /// A JSON value.
        Input = "input",
    }
}

words! {
    /// State of a gate.
    GateStatus {
        Open = "open",
        Answered = "answered",
        Cancelled = "cancelled",
        Expired = "expired",
    }
}

/// The gate of the run itself that an event concerns, and its status afterwards.
pub(super) fn status_after(event: &Event) -> Option<(&str, GateStatus)> {
    match event {
        Event::GateOpened { gate, .. } => Some((gate.as_str(), GateStatus::Open)),
        Event::GateAnswered { gate, from: None, .. } => Some((gate.as_str(), GateStatus::Answered)),
        Event::GateClosed { gate, status, .. } => Some((gate.as_str(), *status)),
        _ => None,
    }
}

/// Status of a gate according to the newest record about it.
fn recorded_status(db: &Connection, gate: &Gate) -> Result<Option<GateStatus>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT seq, record FROM journal WHERE run = ?1 AND instr(record, ?2) ORDER BY seq DESC",
    )?;
    let mut rows = statement.query(params![run_number(db, gate.run)?, gate.id])?;
    while let Some(row) = rows.next()? {
        let (seq, text): (i64, String) = (row.get(0)?, record_text_of(row, 1)?);
        let record = parse_record(gate.run, seq.cast_unsigned(), text)?;
        if let Some((_, status)) = status_after(&record.event).filter(|(id, _)| *id == gate.id) {
            return Ok(Some(status));
        }
    }
    Ok(None)
}

/// Answer of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateAnswer {
    Approved,
    /// A part of the file changes that the question shows.
    ApprovedPart {
        /// The change set of that part.
        changes: Digest,
    },
    Rejected,
    /// The requested value.
    Response(Value),
}

/// The person or program that closes a gate.
#[derive(Clone, Copy, Debug)]
pub struct Answerer<'a> {
    /// The name given by the approver.
    pub name: Option<&'a str>,
    /// Evidence of the identity, for the record.
    pub author: &'a Value,
}

impl<'a> From<Option<&'a str>> for Answerer<'a> {
    fn from(name: Option<&'a str>) -> Self {
        Self { name, author: &Value::Null }
    }
}

/// A gate to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRecord {
    pub run: RunId,
    /// The step that asks.
    pub path: String,
    pub kind: GateKind,
    /// Everything that the person is shown.
    pub question: Value,
    /// Covers everything that the person sees and that will run (invariant G1).
    pub binding: Digest,
    /// In milliseconds since 1970; `None` means never.
    pub expires_at: Option<i64>,
    /// The only approver who may answer.
    pub required_approver: Option<String>,
    /// Data that the engine needs to check the answer: initiator, schema …
    pub detail: Value,
}

/// A stored gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The key in the token: everyone who has it may answer.
    pub key: GateKey,
    /// The short id: 8 lower-case hex digits, unique in this store.
    pub id: String,
    pub run: RunId,
    pub path: String,
    pub kind: GateKind,
    pub question: Value,
    /// The blob of the question's JSON.
    pub question_digest: Digest,
    pub binding: Digest,
    pub created_at: i64,
    pub expires_at: Option<i64>,
    pub required_approver: Option<String>,
    pub detail: Value,
    pub status: GateStatus,
    pub answer: Option<GateAnswer>,
    pub answered_by: Option<String>,
    pub answered_at: Option<i64>,
}

/// Filter for a list of gates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateFilter {
    pub status: Option<GateStatus>,
    pub run: Option<RunId>,
    /// Most gates to return; 0 means all.
    pub limit: usize,
}

impl Store {
    /// Opens a gate together with its event, durably.
    ///
    /// # Errors
    /// [`StoreError::CalledOff`]; also fails if there is no such run, or it cannot be written.
    pub fn open_gate(&self, record: GateRecord) -> Result<Gate, StoreError> {
        let clean = self.current_redactions();
        let (mut question, mut detail) = (record.question, record.detail);
        clean.hide_in_value(&mut question);
        clean.hide_in_value(&mut detail);
        let question_digest = self.put_blob(json::compact(&question).as_bytes())?.digest;
        let created_at = self.now();
        let key = GateKey(Uuid::new_v4());
        let id = self.write_transaction(Durability::Synced, |tx| {
            let mut head = read_head(tx, record.run)?;
            if let Some(over) = head.called_off(tx)? {
                return Err(over);
            }
            let id = unused_id(tx)?;
            tx.prepare_cached(
                "INSERT INTO gates (key, id, run, path, kind, question, binding, approver, detail, created, expires, status)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'open')",
            )?
            .execute(params![
                key.0.as_bytes(),
                id,
                head.n,
                record.path,
                record.kind.as_str(),
                question_digest.as_bytes(),
                record.binding.as_bytes(),
                record.required_approver,
                json::compact(&detail),
                created_at,
                record.expires_at,
            ])?;
            let event = Event::GateOpened {
                path: record.path.clone(),
                gate: id.clone(),
                kind: record.kind.as_str().to_owned(),
                binding: record.binding,
                question: question_digest,
                expires_at: record.expires_at,
            };
            self.append_to(tx, &mut head, created_at, &[event])?;
            Ok(id)
        })?;
        Ok(Gate {
            key,
            id,
            run: record.run,
            path: record.path,
            kind: record.kind,
            question,
            question_digest,
            binding: record.binding,
            created_at,
            expires_at: record.expires_at,
            required_approver: record.required_approver,
            detail,
            status: GateStatus::Open,
            answer: None,
            answered_by: None,
            answered_at: None,
        })
    }

    /// The gate that a token names, in any status.
    ///
    /// # Errors
    /// [`StoreError::UnknownGate`].
    pub fn approval_by_key(&self, key: GateKey) -> Result<Gate, StoreError> {
        let found =
            self.inner.db.read_snapshot(|db| by_key(db, key)).map_err(|error| self.or_damaged(error))?;
        self.with_question(found)
    }

    /// The gate with a short id as typed by a person: case and characters other than hex digits are ignored.
    ///
    /// # Errors
    /// [`StoreError::UnknownGate`].
    pub fn gate_by_id(&self, typed: &str) -> Result<Gate, StoreError> {
        let id: String =
            typed.chars().filter(char::is_ascii_hexdigit).map(|c| c.to_ascii_lowercase()).collect();
        let found = self.inner.db.read_snapshot(|db| {
            let row = query_one(db, &format!("{SELECT} WHERE g.id = ?"), [&id], gate_from_row)?;
            row.ok_or_else(|| StoreError::UnknownGate(typed.to_owned()))
        });
        self.with_question(found.map_err(|error| self.or_damaged(error))?)
    }

    /// The gate whose short id is or begins with `typed`; open gates are preferred.
    ///
    /// # Errors
    /// [`StoreError::UnknownGate`], [`StoreError::ShortGate`], [`StoreError::AmbiguousGate`].
    pub fn find_gate(&self, typed: &str) -> Result<Gate, StoreError> {
        let id = typed.to_ascii_lowercase();
        if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(StoreError::UnknownGate(typed.to_owned()));
        }
        if id.len() < ID_PREFIX_MIN {
            return Err(StoreError::ShortGate { typed: typed.to_owned(), least: ID_PREFIX_MIN });
        }
        let sql = "SELECT id, status FROM gates WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY status <> 'open' LIMIT 5";
        let found: Vec<(String, GateStatus)> =
            self.inner.db.select_rows(sql, [&id], |row| Ok((row.get(0)?, read_word(row, 1)?)))?;
        let open = found.iter().filter(|(_, status)| *status == GateStatus::Open).count();
        match found.as_slice() {
            [] => Err(self.or_damaged(StoreError::UnknownGate(typed.to_owned()))),
            [(one, _), ..] if found.len() == 1 || open == 1 => self.gate_by_id(one),
            several => Err(StoreError::AmbiguousGate {
                prefix: typed.to_owned(),
                candidates: several.iter().map(|(id, _)| id.clone()).collect(),
            }),
        }
    }

    /// Gates that match `filter`, the newest first. An overdue gate that is still open is listed as expired.
    ///
    /// # Errors
    /// If the database or a question cannot be read.
    pub fn list_approvals(&self, filter: &GateFilter) -> Result<Vec<Gate>, StoreError> {
        let now = self.now();
        let found = self.inner.db.read_snapshot(|db| {
            let mut sql = format!("{SELECT} WHERE 1");
            let mut values: Vec<types::Value> = Vec::new();
            match filter.status {
                None => {}
                Some(GateStatus::Open) => {
                    sql.push_str(" AND g.status = 'open' AND (g.expires IS NULL OR g.expires > ?)");
                    values.push(now.into());
                }
                Some(GateStatus::Expired) => {
                    sql.push_str(" AND (g.status = 'expired' OR (g.status = 'open' AND g.expires <= ?))");
                    values.push(now.into());
                }
                Some(closed @ (GateStatus::Answered | GateStatus::Cancelled)) => {
                    sql.push_str(" AND g.status = ?");
                    values.push(closed.as_str().to_owned().into());
                }
            }
            if let Some(run) = filter.run {
                sql.push_str(" AND g.run = ?");
                values.push(run_number(db, run)?.into());
            }
            sql.push_str(" ORDER BY g.n DESC LIMIT ?");
            values
                .push(if filter.limit == 0 { -1 } else { i64::try_from(filter.limit).unwrap_or(-1) }.into());
            query_rows(db, &sql, params_from_iter(values), gate_from_row)
        })?;
        found.into_iter().map(|gate| self.with_question(gate)).collect()
    }

    /// Answers a gate: closes it and journals the answer, durably, in one transaction. Of several concurrent answers,
    /// exactly one succeeds. The caller checks first that the answer fits the question, and that its author may give
    /// it.
    ///
    /// # Errors
    /// [`StoreError::UnknownGate`], [`StoreError::ConsumedGate`], [`StoreError::ExpiredGate`] (the gate is then closed
    /// as expired).
    pub fn answer_gate<'a>(
        &self,
        key: GateKey,
        answer: GateAnswer,
        by: impl Into<Answerer<'a>>,
    ) -> Result<Gate, StoreError> {
        self.close_gate(key, GateStatus::Answered, Some(answer), by.into(), None)
    }

    /// Closes a gate without an answer.
    ///
    /// # Errors
    /// As [`Store::answer_gate`].
    #[cfg(test)]
    pub(crate) fn cancel_gate(&self, key: GateKey, by: Option<&str>) -> Result<Gate, StoreError> {
        self.close_gate(key, GateStatus::Cancelled, None, by.into(), None)
    }

    /// Rejects a gate (or cancels it, if `answer` is `None`) and ends its run with `end`, in one transaction. The
    /// run's other open gates are cancelled.
    ///
    /// # Errors
    /// As [`Store::answer_gate`].
    pub fn refuse_gate<'a>(
        &self,
        key: GateKey,
        answer: Option<GateAnswer>,
        by: impl Into<Answerer<'a>>,
        end: Event,
    ) -> Result<Gate, StoreError> {
        let status = if answer.is_some() { GateStatus::Answered } else { GateStatus::Cancelled };
        self.close_gate(key, status, answer, by.into(), Some(end))
    }

    /// Ends a run with `end` and cancels its open gates, in one transaction.
    ///
    /// # Errors
    /// If there is no such run, or it cannot be written.
    pub fn call_run_off(&self, run: RunId, by: Answerer<'_>, end: Event) -> Result<(), StoreError> {
        let name = by.name.map(|by| self.hide_secrets(by));
        let by = Answerer { name: name.as_deref(), ..by };
        self.write_transaction(Durability::Synced, |tx| self.end_run(tx, run, by, &end, self.now()))
    }

    /// Closes a gate whose question is obsolete, as if it had expired.
    ///
    /// # Errors
    /// As [`Store::answer_gate`].
    pub fn expire_gate(&self, key: GateKey, by: Answerer<'_>) -> Result<Gate, StoreError> {
        self.close_gate(key, GateStatus::Expired, None, by, None)
    }

    /// Opens an answered gate again if nothing was done on the basis of its answer. It stays closed if a person has
    /// ended the run.
    ///
    /// # Errors
    /// [`StoreError::UnknownGate`], or if it cannot be written.
    pub fn reopen_gate(&self, key: GateKey) -> Result<(), StoreError> {
        self.write_transaction(Durability::Synced, |tx| {
            let mut gate = by_key(tx, key)?;
            if gate.status == GateStatus::Answered && read_head(tx, gate.run)?.called_off(tx)?.is_none() {
                (gate.status, gate.answer, gate.answered_by, gate.answered_at) =
                    (GateStatus::Open, None, None, None);
                self.record_closing(tx, &gate, &Value::Null)?;
            }
            Ok(())
        })
    }

    /// Closes all overdue gates and returns them.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn expire_gates(&self) -> Result<Vec<Gate>, StoreError> {
        let now = self.now();
        let sql = "SELECT key FROM gates WHERE status = 'open' AND expires IS NOT NULL AND expires <= ?";
        let overdue: Vec<GateKey> =
            self.inner.db.select_rows(sql, [now], |row| Ok(GateKey(Uuid::from_bytes(row.get(0)?))))?;
        let mut closed = Vec::new();
        for key in overdue {
            match self.close_gate(key, GateStatus::Expired, None, None.into(), None) {
                Ok(gate) => closed.push(gate),
                Err(StoreError::ConsumedGate { .. } | StoreError::ExpiredGate { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(closed)
    }

    fn close_gate(
        &self,
        key: GateKey,
        status: GateStatus,
        mut answer: Option<GateAnswer>,
        Answerer { name, author }: Answerer<'_>,
        end: Option<Event>,
    ) -> Result<Gate, StoreError> {
        if let Some(GateAnswer::Response(value)) = &mut answer {
            self.hide_in(value);
        }
        let by = name.map(|by| self.hide_secrets(by));
        let (gate, late) = self.write_transaction(Durability::Synced, |tx| {
            // A rejection is harmless even after an earlier answer.
            let no = answer.as_ref().is_none_or(|answer| *answer == GateAnswer::Rejected);
            if !no {
                self.inner.high_water.check_all(tx)?;
                self.inner.high_water.reject_rolled_back(self.inner.db.path())?;
            }
            let mut gate = by_key(tx, key)?;
            match gate.status {
                // The row may have been changed; the journal is chained, so its record decides.
                GateStatus::Open if no => {}
                GateStatus::Open => {
                    if let Some(closed) =
                        recorded_status(tx, &gate)?.filter(|status| *status != GateStatus::Open)
                    {
                        let (id, how) = (gate.id.clone(), closed.as_str());
                        return Err(StoreError::ConsumedGate { id, how, by: None });
                    }
                }
                GateStatus::Expired => return Err(expired_error(&gate)),
                GateStatus::Answered | GateStatus::Cancelled => {
                    let how = if gate.status == GateStatus::Answered { "answered" } else { "cancelled" };
                    return Err(StoreError::ConsumedGate {
                        id: gate.id.clone(),
                        how,
                        by: gate.answered_by.clone(),
                    });
                }
            }
            let now = self.now();
            // A cancellation is never too late, but an answer can be.
            let late = status == GateStatus::Answered && gate.expires_at.is_some_and(|at| at <= now);
            gate.status = if late { GateStatus::Expired } else { status };
            gate.answer = answer.clone().filter(|_| !late);
            gate.answered_by = by.as_deref().map(str::to_owned).filter(|_| !late);
            gate.answered_at = Some(now);
            self.record_closing(tx, &gate, if late { &Value::Null } else { author })?;
            if let Some(end) = end.as_ref().filter(|_| !late) {
                let by = Answerer { name: gate.answered_by.as_deref(), author };
                self.end_run(tx, gate.run, by, end, now)?;
            }
            Ok((gate, late))
        })?;
        if late { Err(expired_error(&gate)) } else { self.with_question(gate) }
    }

    /// Ends a run and cancels its open gates.
    fn end_run(
        &self,
        tx: &Transaction<'_>,
        run: RunId,
        by: Answerer<'_>,
        end: &Event,
        now: i64,
    ) -> Result<(), StoreError> {
        let sql = format!("{SELECT} WHERE g.run = ? AND g.status = 'open' ORDER BY g.n");
        for mut other in query_rows(tx, &sql, [run_number(tx, run)?], gate_from_row)? {
            other.status = GateStatus::Cancelled;
            (other.answered_by, other.answered_at) = (by.name.map(str::to_owned), Some(now));
            self.record_closing(tx, &other, by.author)?;
        }
        let mut head = read_head(tx, run)?;
        self.append_to(tx, &mut head, now, std::slice::from_ref(end))
    }

    fn record_closing(&self, tx: &Transaction<'_>, gate: &Gate, author: &Value) -> Result<(), StoreError> {
        tx.prepare_cached(
            "UPDATE gates SET status = ?2, answer = ?3, by = ?4, answered = ?5 WHERE key = ?1",
        )?
        .execute(params![
            gate.key.0.as_bytes(),
            gate.status.as_str(),
            gate.answer.as_ref().map(json::compact),
            gate.answered_by,
            gate.answered_at,
        ])?;
        let (path, id, by) = (gate.path.clone(), gate.id.clone(), gate.answered_by.clone());
        let author = author.clone();
        let event = match &gate.answer {
            Some(answer) => Event::GateAnswered {
                path,
                gate: id,
                binding: gate.binding,
                answer: answer.clone(),
                by,
                author,
                from: None,
            },
            None => Event::GateClosed { path, gate: id, status: gate.status, by, author },
        };
        let mut head = read_head(tx, gate.run)?;
        self.append_to(tx, &mut head, gate.answered_at.unwrap_or_else(|| self.now()), &[event])
    }

    /// The gate of a row, with its question.
    fn with_question(&self, mut gate: Gate) -> Result<Gate, StoreError> {
        let bytes = self.load_blob(&gate.question_digest, u64::MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        gate.question = json::parse(&text)
            .map_err(|source| StoreError::Json { what: "the question of an approval", source })?;
        Ok(gate)
    }
}

fn expired_error(gate: &Gate) -> StoreError {
    let at = [gate.expires_at, gate.answered_at].into_iter().flatten().min().unwrap_or(gate.created_at);
    StoreError::ExpiredGate { id: gate.id.clone(), at, run: gate.run.short_id() }
}

const SELECT: &str = "SELECT g.key, g.id, r.id, g.path, g.kind, g.question, g.binding, g.created, g.expires, g.approver, \
                      g.detail, g.status, g.answer, g.by, g.answered \
                      FROM gates g JOIN runs r ON r.n = g.run";

fn by_key(db: &Connection, key: GateKey) -> Result<Gate, StoreError> {
    let row = query_one(db, &format!("{SELECT} WHERE g.key = ?"), [key.0.as_bytes()], gate_from_row)?;
    row.ok_or_else(|| StoreError::UnknownGate(key.to_string()))
}

/// True if the row of a gate can be read.
pub(super) fn can_read_gate(db: &Connection, n: i64) -> bool {
    let read = || db.prepare_cached(&format!("{SELECT} WHERE g.n = ?"))?.query_row([n], gate_from_row);
    read().is_ok()
}

/// A gate without its question.
fn gate_from_row(row: &Row<'_>) -> rusqlite::Result<Gate> {
    let text = |column| -> rusqlite::Result<Option<Value>> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| json::parse(&text).map_err(|e| not_json(column, e))).transpose()
    };
    let answer = text(12)?.map(serde_json::from_value).transpose().map_err(|e| not_json(12, e.into()))?;
    Ok(Gate {
        key: GateKey(Uuid::from_bytes(row.get(0)?)),
        id: row.get(1)?,
        run: run_id(row, 2)?,
        path: row.get(3)?,
        kind: read_word(row, 4)?,
        question: Value::Null,
        question_digest: row.get::<_, [u8; 32]>(5)?.into(),
        binding: row.get::<_, [u8; 32]>(6)?.into(),
        created_at: row.get(7)?,
        expires_at: row.get(8)?,
        required_approver: row.get(9)?,
        detail: text(10)?.unwrap_or_default(),
        status: read_word(row, 11)?,
        answer,
        answered_by: row.get(13)?,
        answered_at: row.get(14)?,
    })
}

fn not_json(column: usize, error: json::JsonError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, types::Type::Text, Box::new(error))
}

fn unused_id(db: &Connection) -> Result<String, StoreError> {
    let mut taken = db.prepare_cached("SELECT 1 FROM gates WHERE id = ?")?;
    let mut id = String::new();
    for _ in 0..ID_TRIES {
        id = Uuid::new_v4().simple().to_string()[..8].to_owned();
        if !taken.exists([&id])? {
            break;
        }
    }
    // If all attempts failed, the unique column rejects the last id.
    Ok(id)
}
