//! Notifications: a row for each occasion and recipient, created once and sent at least once.
//!
//! Occasions are found in data that the store has anyway: gates, ends of starts, entries of the ledger. A mark records
//! how far they have been processed; moving a mark and queueing the notices is one transaction.

use rusqlite::{Row, params};
use serde_json::Value;
use uuid::Uuid;

use super::{Service, StartState, TickState};
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::{RunId, words};
use crate::journal::read_word;
use crate::statement::{execute, query_rows};
use lobster_base::json;

words! {
    /// State of a notice.
    NoticeState {
        /// It is to be sent.
        Queued = "queued",
        /// The recipient has accepted it.
        Sent = "sent",
        /// All attempts have failed.
        Failed = "failed",
    }
}

/// A new notice.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNotice {
    /// Identifies the occasion and the recipient: there is one notice for each key.
    pub key: String,
    pub target: String,
    /// `question`, `failed` …
    pub kind: String,
    pub run: Option<RunId>,
    /// The short id of its gate.
    pub gate: Option<String>,
    pub content: Value,
    /// Time to send it, in milliseconds since 1970.
    pub due: i64,
}

/// A stored notice.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub n: i64,
    pub key: String,
    pub target: String,
    pub kind: String,
    pub run: Option<RunId>,
    pub gate: Option<String>,
    pub content: Value,
    pub state: NoticeState,
    pub attempts: u32,
    pub due: Option<i64>,
    pub queued_at: i64,
    pub ended_at: Option<i64>,
    /// Error of the last attempt.
    pub said: Option<String>,
}

/// An occasion for a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A run of the service opened a gate: its number and its key.
    Question { n: i64, gate: String, run: RunId, workflow: String },
    /// A gate that was announced is no longer open.
    Answered { gate: String, target: String, run: RunId, workflow: String },
    /// A run of the service has ended, or cannot begin. `asked`: targets that were notified of its gates.
    Ended {
        run: RunId,
        workflow: String,
        state: StartState,
        why: Option<String>,
        ended_at: i64,
        asked: Vec<String>,
    },
    /// A tick was missed.
    Missed { n: i64, schedule: String, workflow: String, due: i64, count: u64, reason: Option<String> },
}

const COLUMNS: &str = "n, key, target, kind, run, gate, content, state, attempts, due, queued, ended, said";

impl Service {
    /// Number up to which something has been processed; `None` if it never was.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_mark(&self, name: &str) -> Result<Option<i64>, StoreError> {
        self.db().select_one("SELECT value FROM service WHERE key = ?1", [name], |row| row.get(0))
    }

    /// The newest numbers of gates and of ledger entries, from which a new target starts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn newest_numbers(&self) -> Result<(i64, i64), StoreError> {
        let sql = "SELECT (SELECT coalesce(max(n), 0) FROM gates), (SELECT coalesce(max(n), 0) FROM ticks)";
        self.read_snapshot(|db| {
            Ok(db.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
        })
    }

    /// Queues the notices that do not exist yet, and moves marks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn queue_notices(&self, marks: &[(&str, i64)], notices: &[NewNotice]) -> Result<(), StoreError> {
        self.write_durably(|tx, now| {
            for new in notices {
                let content = self.store.hide_secrets(&json::compact(&new.content)).into_owned();
                tx.prepare_cached(
                    "INSERT OR IGNORE INTO notices (key, target, kind, run, gate, content, state, due, queued, open)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7, ?8, CASE ?3 WHEN 'question' THEN 1 END)",
                )?
                .execute(params![
                    new.key,
                    new.target,
                    new.kind,
                    new.run.as_ref().map(RunId::as_bytes),
                    new.gate,
                    content,
                    new.due,
                    now
                ])?;
                if new.kind == "answered" {
                    tx.prepare_cached("UPDATE notices SET open = NULL WHERE gate = ?1 AND target = ?2 AND open = 1")?
                        .execute(params![new.gate, new.target])?;
                }
            }
            for (name, at) in marks {
                let sql = "INSERT INTO service (key, value) VALUES (?1, ?2)
                     ON CONFLICT (key) DO UPDATE SET value = max(value, ?2)";
                execute(tx, sql, params![name, at])?;
            }
            Ok(())
        })
    }

    /// Reserves at most `limit` due notices for a target: no other server sends them until `lease`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn take_notices(&self, target: &str, lease: i64, limit: usize) -> Result<Vec<Notice>, StoreError> {
        let due =
            format!("SELECT {COLUMNS} FROM notices WHERE due <= ?1 AND target = ?3 ORDER BY due, n LIMIT ?2");
        let (now, limit) = (self.now(), i64::try_from(limit).unwrap_or(i64::MAX));
        if !self.read_snapshot(|db| Ok(db.prepare_cached(&due)?.exists(params![now, 1, target])?))? {
            return Ok(Vec::new());
        }
        self.write_transaction(Durability::Lazy, |tx| {
            let taken: Vec<Notice> = query_rows(tx, &due, params![now, limit, target], notice_from_row)?;
            for one in &taken {
                tx.prepare_cached("UPDATE notices SET due = ?2, attempts = attempts + 1 WHERE n = ?1")?
                    .execute([one.n, lease])?;
            }
            Ok(taken)
        })
    }

    /// Ends notices that were due before a point in time and belong to none of these targets.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end_notices_of_others(&self, targets: &[&str], before: i64) -> Result<(), StoreError> {
        let now = self.now();
        let targets = json::compact(&targets);
        let sql = "UPDATE notices SET state = ?3, said = 'no target of this name is configured any more', due = NULL,
                 ended = ?4
             WHERE due < ?2 AND target NOT IN (SELECT value FROM json_each(?1))";
        let values = params![targets, before, NoticeState::Failed.as_str(), now];
        self.store.write_statement(Durability::Lazy, sql, values).map(drop)
    }

    /// Stores the result of an attempt: success, or the error with the time of the next attempt, if there will be one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end_attempt(&self, n: i64, failed: Option<(&str, Option<i64>)>) -> Result<(), StoreError> {
        let now = self.now();
        let (state, said, due) = match failed {
            None => (NoticeState::Sent, None, None),
            Some((why, None)) => (NoticeState::Failed, Some(why), None),
            Some((why, again)) => (NoticeState::Queued, Some(why), again),
        };
        let said = said.map(|said| self.store.hide_secrets(said).into_owned());
        let ended = (state != NoticeState::Queued).then_some(now);
        let sql = "UPDATE notices SET state = ?2, said = ?3, due = ?4, ended = ?5 WHERE n = ?1";
        let values = params![n, state.as_str(), said, due, ended];
        self.store.write_statement(Durability::Synced, sql, values).map(drop)
    }

    /// The newest notices; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_notices(&self, limit: usize) -> Result<Vec<Notice>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM notices ORDER BY n DESC LIMIT ?1");
        self.db().select_rows(&sql, [i64::try_from(limit).unwrap_or(i64::MAX)], notice_from_row)
    }

    /// New occasions since the marks, for runs started by the service.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new_occasions(
        &self,
        gates: i64,
        ticks: i64,
        ended_since: i64,
    ) -> Result<Vec<Occasion>, StoreError> {
        let run = |row: &Row<'_>, column: usize| {
            Ok::<_, rusqlite::Error>(RunId(Uuid::from_bytes(row.get(column)?)))
        };
        self.read_snapshot(|db| {
            let mut found = Vec::new();
            let questions = "SELECT gates.n, gates.id, runs.id, workflows.name FROM gates JOIN runs ON runs.n = gates.run
                 JOIN starts ON starts.run = runs.id JOIN workflows ON workflows.n = starts.workflow
                 WHERE gates.n > ?1 ORDER BY gates.n";
            found.extend(query_rows(db, questions, [gates], |row| {
                Ok(Occasion::Question {
                    n: row.get(0)?,
                    gate: row.get(1)?,
                    run: run(row, 2)?,
                    workflow: row.get(3)?,
                })
            })?);
            let answered = "SELECT notices.gate, target, notices.run, workflows.name FROM notices
                 JOIN gates ON gates.id = notices.gate JOIN starts ON starts.run = notices.run
                 JOIN workflows ON workflows.n = starts.workflow
                 WHERE notices.open = 1 AND gates.status <> 'open'";
            found.extend(query_rows(db, answered, [], |row| {
                Ok(Occasion::Answered {
                    gate: row.get(0)?,
                    target: row.get(1)?,
                    run: run(row, 2)?,
                    workflow: row.get(3)?,
                })
            })?);
            let ended = "SELECT starts.run, workflows.name, state, why, ended,
                     (SELECT group_concat(DISTINCT target) FROM notices
                      WHERE notices.run = starts.run AND notices.kind = 'question')
                 FROM starts JOIN workflows ON workflows.n = starts.workflow
                 WHERE ended >= ?1 AND state IN ('over', 'refused') ORDER BY starts.n";
            found.extend(query_rows(db, ended, [ended_since], |row| {
                let asked: Option<String> = row.get(5)?;
                Ok(Occasion::Ended {
                    run: run(row, 0)?,
                    workflow: row.get(1)?,
                    state: read_word(row, 2)?,
                    why: row.get(3)?,
                    ended_at: row.get(4)?,
                    asked: asked.iter().flat_map(|all| all.split(',')).map(str::to_owned).collect(),
                })
            })?);
            let missed = "SELECT ticks.n, schedules.name, workflows.name, due, count, reason FROM ticks
                 JOIN schedules ON schedules.n = ticks.schedule JOIN workflows ON workflows.n = schedules.workflow
                 WHERE ticks.n > ?1 AND state = ?2 ORDER BY ticks.n";
            found.extend(query_rows(db, missed, params![ticks, TickState::Missed.as_str()], |row| {
                Ok(Occasion::Missed {
                    n: row.get(0)?,
                    schedule: row.get(1)?,
                    workflow: row.get(2)?,
                    due: row.get(3)?,
                    count: row.get::<_, i64>(4)?.unsigned_abs(),
                    reason: row.get(5)?,
                })
            })?);
            Ok(found)
        })
    }
}

fn notice_from_row(row: &Row<'_>) -> rusqlite::Result<Notice> {
    Ok(Notice {
        n: row.get(0)?,
        key: row.get(1)?,
        target: row.get(2)?,
        kind: row.get(3)?,
        run: row.get::<_, Option<[u8; 16]>>(4)?.map(|bytes| RunId(Uuid::from_bytes(bytes))),
        gate: row.get(5)?,
        content: json::parse(&row.get::<_, String>(6)?).unwrap_or_default(),
        state: read_word(row, 7)?,
        attempts: row.get(8)?,
        due: row.get(9)?,
        queued_at: row.get(10)?,
        ended_at: row.get(11)?,
        said: row.get(12)?,
    })
}
