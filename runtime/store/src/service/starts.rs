//! Starts: runs that are to begin, and runs that the service manages.
//!
//! A start contains the id of its future run. The process that executes it creates the run under this id, which
//! succeeds only once: a server that was suspended, or whose lease has expired, begins nothing twice. Leases only keep
//! servers from trying in vain.

use std::collections::HashMap;

use rusqlite::{Connection, Row, Transaction, params};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Service;
use super::trail::note_deed;
use super::waits::{self, NewWait};
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::{RunId, words};
use crate::journal::{RunSummary, read_word, runs_with_ids};
use crate::listing::ids_json;
use crate::service_tables::has_table;
use crate::statement::{execute, query_one, query_rows};
use lobster_base::digest::Digest;
use lobster_base::json;

words! {
    /// State of a start.
    StartState {
        /// It waits for a free slot.
        Queued = "queued",
        /// A server has given it to a process.
        Taken = "taken",
        /// Its run waits for a person, a time or an event, without a process.
        Parked = "parked",
        /// Its run has ended.
        Over = "over",
        /// It cannot begin.
        Refused = "refused",
        /// It was cancelled before it began.
        Withdrawn = "withdrawn",
    }
}

impl StartState {
    /// True if nothing remains to be done.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Over | Self::Refused | Self::Withdrawn => true,
            Self::Queued | Self::Taken | Self::Parked => false,
        }
    }
}

/// A run that is to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct NewStart {
    pub workflow: i64,
    /// Digest of the registered version: other versions are not started.
    pub digest: Digest,
    pub schedule: Option<i64>,
    /// `schedule`, `manual`, `backfill`, `api`, `webhook` …
    pub cause: String,
    /// Further data about the cause.
    pub detail: Value,
    pub args: Value,
    /// The person or program shown in the history.
    pub actor: Option<String>,
    /// It begins when all earlier starts of its schedule have ended.
    pub is_serial: bool,
    /// Known reason why it cannot begin: it is then stored as refused, so that people are notified.
    pub refusal: Option<String>,
}

/// A stored start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub n: i64,
    pub run: RunId,
    pub workflow: i64,
    pub digest: Digest,
    pub schedule: Option<i64>,
    pub cause: String,
    pub detail: Value,
    pub args: Value,
    pub actor: Option<String>,
    pub state: StartState,
    /// Reason why it did not begin.
    pub why: Option<String>,
    /// Reason for the requested cancellation.
    pub cancel: Option<String>,
    pub queued_at: i64,
    pub ended_at: Option<i64>,
    /// Number of attempts to execute it.
    pub attempts: u32,
}

/// A start as shown in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStart {
    /// The name of its workflow.
    pub workflow: Option<String>,
    pub cause: String,
    pub state: StartState,
    /// True if its cancellation was requested.
    pub is_cancelled: bool,
}

/// Result of executing a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The run waits.
    Parked,
    /// The run has ended.
    Over,
    /// It cannot begin or continue.
    Refused(String),
    /// It is tried again.
    Again,
    /// It could not begin or continue now, and is tried again at `due`, in milliseconds since 1970; meanwhile a run
    /// keeps waiting for its person, time or event.
    Later { due: i64, why: String },
}

impl Service {
    /// Queues a start, and records its author.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn enqueue_start(&self, start: &NewStart, object: &str, origin: &str) -> Result<RunId, StoreError> {
        self.write_durably(|tx, now| {
            let run = insert_start(tx, start, now)?;
            let detail = json!({ "run": run, "cause": start.cause });
            note_deed(tx, now, "start", object, (start.actor.as_deref(), origin), &detail)?;
            Ok(run)
        })
    }

    /// Takes at most `limit` queued starts for a server. Workflows with the fewest running starts come first, and
    /// within a workflow the oldest start.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn take_starts(&self, server: &str, lease: i64, limit: usize) -> Result<Vec<Start>, StoreError> {
        if limit == 0 || !self.read_snapshot(has_queued)? {
            return Ok(Vec::new());
        }
        // In an older copy of the store, waiting starts may have run.
        self.store.check_rollback()?;
        self.write_transaction(Durability::Lazy, |tx| {
            let mut queues = waiting_queues(tx, limit)?;
            let mut taken = Vec::new();
            while taken.len() < limit {
                let Some(next) = queues.iter_mut().filter(|queue| !queue.waiting.is_empty()).min_by_key(|queue| {
                    (queue.at_work, queue.waiting.front().map(|start| start.n))
                }) else {
                    break;
                };
                next.at_work += 1;
                taken.extend(next.waiting.pop_front());
            }
            for start in &mut taken {
                let sql = "UPDATE starts SET state = 'taken', server = ?2, lease = ?3, attempts = attempts + 1 WHERE n = ?1";
                execute(tx, sql, params![start.n, server, lease])?;
                start.attempts += 1;
                start.state = StartState::Taken;
            }
            Ok(taken)
        })
    }

    /// Extends the lease of all starts of a server.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn extend_leases(&self, server: &str, lease: i64) -> Result<(), StoreError> {
        let sql = "UPDATE starts SET lease = ?2 WHERE state = 'taken' AND server = ?1";
        self.store.write_statement(Durability::Lazy, sql, params![server, lease]).map(drop)
    }

    /// Assigns to this server a start whose run is executed by a process that no living server has started. False if
    /// another server has it, or it is over.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn adopt_run(&self, run: RunId, server: &str, lease: i64) -> Result<bool, StoreError> {
        let now = self.now();
        let sql = "UPDATE starts SET state = 'taken', server = ?2, lease = ?3
             WHERE run = ?1 AND (state IN ('queued', 'parked')
                 OR (state = 'taken' AND (server = ?2 OR lease IS NULL OR lease < ?4)))";
        let values = params![run.as_bytes(), server, lease, now];
        Ok(self.store.write_statement(Durability::Lazy, sql, values)? > 0)
    }

    /// Continues a run that was answered or should be retried: now, or when its current process has ended. A start
    /// that was over is active again.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn take_up(&self, run: RunId) -> Result<(), StoreError> {
        self.write_durably(|tx, now| {
            let sql =
                "UPDATE starts SET state = 'queued', why = NULL, cancel = NULL, ended = NULL, attempts = 0
                     WHERE run = ?1 AND state IN ('over', 'refused')";
            let again = execute(tx, sql, [run.as_bytes()])?;
            let is_at_work = tx
                .prepare_cached("SELECT 1 FROM starts WHERE run = ?1 AND state IN ('taken', 'parked')")?
                .exists([run.as_bytes()])?;
            if again == 0 && is_at_work {
                waits::insert_wait(tx, run, &NewWait { path: String::new(), due: Some(now), event: None })?;
            }
            Ok(())
        })
    }

    /// Records that a process continues a run whose start was over, because a person resumed it. The server manages it
    /// from now on, and handles its end.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_resumed(&self, run: RunId) -> Result<(), StoreError> {
        let sql = "UPDATE starts SET state = 'parked', why = NULL, cancel = NULL, ended = NULL, attempts = 0
             WHERE run = ?1 AND state IN ('over', 'refused')";
        self.store.write_statement(Durability::Lazy, sql, [run.as_bytes()]).map(drop)
    }

    /// Stores the result of executing a start. A start that is over stays so.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_standing(&self, run: RunId, standing: &Standing) -> Result<(), StoreError> {
        let now = self.now();
        let (state, why) = match standing {
            Standing::Parked => (StartState::Parked, None),
            Standing::Over => (StartState::Over, None),
            Standing::Refused(why) => (StartState::Refused, Some(why.as_str())),
            Standing::Again => (StartState::Queued, None),
            Standing::Later { why, .. } => (StartState::Queued, Some(why.as_str())),
        };
        let why = why.map(|why| self.store.hide_secrets(why).into_owned());
        let durability = match standing {
            // If a power cut loses these, the run's journal still has them.
            Standing::Parked | Standing::Over | Standing::Later { .. } => Durability::Lazy,
            Standing::Refused(_) | Standing::Again => Durability::Synced,
        };
        self.write_transaction(durability, |tx| {
            // A process that got as far as a wait has succeeded, so earlier attempts are forgotten.
            let is_done = *standing == Standing::Parked;
            let state = match standing {
                Standing::Later { .. } if is_waiting(tx, run)? => StartState::Parked,
                _ => state,
            };
            let sql = "UPDATE starts SET state = ?2, why = CASE WHEN ?5 THEN NULL ELSE coalesce(?3, why) END, ended = ?4,
                         server = NULL, lease = NULL, attempts = CASE WHEN ?5 THEN 0 ELSE attempts END
                     WHERE run = ?1 AND state IN ('queued', 'taken', 'parked')";
            let ended = state.is_over().then_some(now);
            let changed = execute(tx, sql, params![run.as_bytes(), state.as_str(), why, ended, is_done])?;
            if let Standing::Later { due, .. } = standing
                && changed > 0
            {
                waits::insert_wait(tx, run, &NewWait { path: String::new(), due: Some(*due), event: None })?;
            }
            if state.is_over() {
                waits::remove_waits(tx, run)?;
            }
            Ok(())
        })
    }

    /// Queues a start until `due` because no process could be started. The fault is the server's, so the attempt is
    /// not counted.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put_back(&self, run: RunId, due: i64, why: &str) -> Result<(), StoreError> {
        let why = self.store.hide_secrets(why);
        self.write_transaction(Durability::Lazy, |tx| {
            let sql = "UPDATE starts SET state = 'queued', why = ?2, server = NULL, lease = NULL,
                         attempts = max(attempts - 1, 0) WHERE run = ?1 AND state = 'taken'";
            let changed = execute(tx, sql, params![run.as_bytes(), why])?;
            if changed > 0 {
                waits::insert_wait(tx, run, &NewWait { path: String::new(), due: Some(due), event: None })?;
            }
            Ok(())
        })
    }

    /// The taken starts of this server, and those without a living server, whose lease has expired. At most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn taken_starts(&self, server: &str, now: i64, limit: usize) -> Result<Vec<Start>, StoreError> {
        let sql =
            "WHERE state = 'taken' AND (server = ?1 OR lease IS NULL OR lease < ?2) ORDER BY n LIMIT ?3";
        self.select_starts(sql, params![server, now, i64::try_from(limit).unwrap_or(i64::MAX)])
    }

    /// Parked starts whose run has ended, or has nothing left to wait for.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn ripe_starts(&self, now: i64, limit: usize) -> Result<Vec<Start>, StoreError> {
        let sql = "WHERE state = 'parked' AND NOT EXISTS (
                       SELECT 1 FROM runs JOIN gates ON gates.run = runs.n
                       WHERE runs.id = starts.run AND runs.status = 'waiting' AND gates.status = 'open'
                       AND (gates.expires IS NULL OR gates.expires > ?1)
                   ) AND NOT EXISTS (
                       SELECT 1 FROM waits JOIN runs ON runs.id = waits.run
                       WHERE waits.run = starts.run AND runs.status = 'waiting'
                   ) ORDER BY n LIMIT ?2";
        self.select_starts(sql, [now, i64::try_from(limit).unwrap_or(i64::MAX)])
    }

    /// Starts to be cancelled that have not ended.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn starts_to_cancel(&self) -> Result<Vec<Start>, StoreError> {
        self.select_starts(
            "WHERE cancel IS NOT NULL AND state IN ('queued', 'taken', 'parked') ORDER BY n",
            [],
        )
    }

    /// One start.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn start_of(&self, run: RunId) -> Result<Option<Start>, StoreError> {
        Ok(self.select_starts("WHERE run = ?1", [run.as_bytes().as_slice()])?.pop())
    }

    /// The starts of these runs, if the service started them.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn starts_of(&self, runs: &[RunId]) -> Result<HashMap<RunId, ListedStart>, StoreError> {
        if runs.is_empty() {
            return Ok(HashMap::new());
        }
        let ids = ids_json(runs.iter().copied());
        self.read_snapshot(|db| {
            let mut statement = db.prepare_cached(
                "SELECT s.run, w.name, s.cause, s.state, s.cancel IS NOT NULL FROM starts s
                 LEFT JOIN workflows w ON w.n = s.workflow
                 WHERE s.run IN (SELECT unhex(value) FROM json_each(?1))",
            )?;
            let rows = statement.query_map([&ids], |row| {
                let start = ListedStart {
                    workflow: row.get(1)?,
                    cause: row.get(2)?,
                    state: read_word(row, 3)?,
                    is_cancelled: row.get(4)?,
                };
                Ok((RunId(Uuid::from_bytes(row.get(0)?)), start))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The runs of a workflow that the service has started, the newest first; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn runs_of(&self, workflow: i64, limit: usize) -> Result<Vec<RunSummary>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read_snapshot(|db| {
            let mut newest: Vec<(i64, RunId)> = Vec::new();
            // One state at a time, because the index is by state.
            for state in StartState::ALL {
                let sql =
                    "SELECT n, run FROM starts WHERE state = ?1 AND workflow = ?2 ORDER BY n DESC LIMIT ?3";
                newest.extend(query_rows(db, sql, params![state.as_str(), workflow, limit], |row| {
                    Ok((row.get(0)?, RunId(Uuid::from_bytes(row.get(1)?))))
                })?);
            }
            newest.sort_unstable_by_key(|(n, _)| std::cmp::Reverse(*n));
            newest.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            runs_with_ids(db, &ids_json(newest.into_iter().map(|(_, run)| run)))
        })
    }

    /// The starts of a schedule that are not over, the oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn active_starts(&self, schedule: i64) -> Result<Vec<Start>, StoreError> {
        self.select_starts(
            "WHERE schedule = ?1 AND state IN ('queued', 'taken', 'parked') ORDER BY n",
            [schedule],
        )
    }

    /// The newest starts, including those that are over if `also_over`; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_starts(&self, also_over: bool, limit: usize) -> Result<Vec<Start>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        match also_over {
            true => self.select_starts("ORDER BY n DESC LIMIT ?1", [limit]),
            false => self.select_starts(
                "WHERE state IN ('queued', 'taken', 'parked') ORDER BY n DESC LIMIT ?1",
                [limit],
            ),
        }
    }

    /// The newest starts without a run: queued, refused or cancelled. At most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn starts_without_run(&self, limit: usize) -> Result<Vec<Start>, StoreError> {
        let sql = "WHERE state IN ('queued', 'taken', 'refused', 'withdrawn')
                   AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = starts.run) ORDER BY n DESC LIMIT ?1";
        self.select_starts(sql, [i64::try_from(limit).unwrap_or(i64::MAX)])
    }

    /// Number of starts that wait for a process.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn count_queued(&self) -> Result<u64, StoreError> {
        self.read_snapshot(|db| {
            let mut statement = db.prepare_cached("SELECT count(*) FROM starts WHERE state = 'queued'")?;
            Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.cast_unsigned())
        })
    }

    /// Number of starts in each state.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn count_starts(&self) -> Result<Vec<(StartState, u64)>, StoreError> {
        let sql = "SELECT state, count(*) FROM starts GROUP BY state";
        self.db().select_rows(sql, [], |row| Ok((read_word(row, 0)?, row.get::<_, i64>(1)?.cast_unsigned())))
    }

    /// Cancels a start, or its run. False if it is over.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn cancel_start(
        &self,
        run: RunId,
        why: &str,
        actor: Option<&str>,
        origin: &str,
    ) -> Result<bool, StoreError> {
        self.write_durably(|tx, now| {
            if !want_cancelled(tx, run, why, now)? {
                return Ok(false);
            }
            note_deed(tx, now, "cancel", &run.to_string(), (actor, origin), &json!({ "why": why }))?;
            Ok(true)
        })
    }

    fn select_starts<P: rusqlite::Params + Copy>(
        &self,
        rest: &str,
        values: P,
    ) -> Result<Vec<Start>, StoreError> {
        self.read_snapshot(|db| select_starts(db, rest, values))
    }
}

fn select_starts(
    db: &Connection,
    rest: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<Start>, StoreError> {
    let sql = format!(
        "SELECT n, run, workflow, digest, schedule, cause, detail, args, actor, state, why, cancel, queued, ended, attempts
         FROM starts {rest}"
    );
    query_rows(db, &sql, values, start_from_row)
}

/// Refuses the starts that waited in a store restored to an earlier state, since they may have run since: a person
/// decides.
pub(crate) fn refuse_waiting_starts(tx: &Transaction<'_>, now: i64) -> Result<(), StoreError> {
    if has_table(tx, "starts")? {
        let why = "the store was put back to an earlier state, so this may have run already; start it again if it has not";
        let sql =
            "UPDATE starts SET state = 'refused', why = ?1, ended = ?2 WHERE state IN ('queued', 'taken')";
        tx.execute(sql, params![why, now])?;
        // Ticks since the copy was made may have run too.
        tx.execute("UPDATE schedules SET decided = ?1 WHERE decided < ?1", [now])?;
    }
    Ok(())
}

fn has_queued(db: &Connection) -> Result<bool, StoreError> {
    Ok(db.prepare_cached("SELECT 1 FROM starts WHERE state = 'queued' LIMIT 1")?.exists([])?)
}

/// The starts of one workflow that may begin.
struct Queue {
    at_work: i64,
    waiting: std::collections::VecDeque<Start>,
}

/// The oldest waiting starts of each workflow, without those that rest until their next attempt.
fn waiting_queues(db: &Connection, limit: usize) -> Result<Vec<Queue>, StoreError> {
    let workflows: Vec<i64> =
        query_rows(db, "SELECT DISTINCT workflow FROM starts WHERE state = 'queued'", [], |row| row.get(0))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    workflows
        .into_iter()
        .map(|workflow| {
            let waiting = select_starts(
                db,
                "WHERE state = 'queued' AND workflow = ?1 AND (serial = 0 OR NOT EXISTS (
                     SELECT 1 FROM starts AS other WHERE other.schedule = starts.schedule AND other.n < starts.n
                     AND other.state IN ('queued', 'taken', 'parked')))
                 AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.run = starts.run AND waits.path = '')
                 ORDER BY n LIMIT ?2",
                [workflow, limit],
            )?;
            let at_work = db
                .prepare_cached("SELECT count(*) FROM starts WHERE state = 'taken' AND workflow = ?1")?
                .query_row([workflow], |row| row.get(0))?;
            Ok(Queue { at_work, waiting: waiting.into() })
        })
        .collect()
}

/// Adds a start under a new id.
pub(super) fn insert_start(tx: &Transaction<'_>, start: &NewStart, now: i64) -> Result<RunId, StoreError> {
    let run = RunId::new()?;
    tx.prepare_cached(
        "INSERT INTO starts (run, workflow, digest, schedule, cause, detail, args, actor, serial, queued, state, why, ended)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        run.as_bytes(),
        start.workflow,
        start.digest.as_bytes(),
        start.schedule,
        start.cause,
        json::compact(&start.detail),
        json::compact(&start.args),
        start.actor,
        start.is_serial,
        now,
        if start.refusal.is_some() { StartState::Refused } else { StartState::Queued }.as_str(),
        start.refusal,
        start.refusal.is_some().then_some(now),
    ])?;
    Ok(run)
}

/// Requests the cancellation of a start; if it has not begun, it is cancelled now.
pub(super) fn want_cancelled(
    tx: &Transaction<'_>,
    run: RunId,
    why: &str,
    now: i64,
) -> Result<bool, StoreError> {
    let sql = "UPDATE starts SET cancel = ?2 WHERE run = ?1 AND state IN ('queued', 'taken', 'parked')
             RETURNING state <> 'queued' OR EXISTS (SELECT 1 FROM runs WHERE runs.id = starts.run)";
    let begun: Option<bool> = query_one(tx, sql, params![run.as_bytes(), why], |row| row.get(0))?;
    if begun == Some(false) {
        tx.prepare_cached("UPDATE starts SET state = 'withdrawn', why = ?2, ended = ?3 WHERE run = ?1")?
            .execute(params![run.as_bytes(), why, now])?;
        waits::remove_waits(tx, run)?;
    }
    Ok(begun.is_some())
}

fn is_waiting(db: &Connection, run: RunId) -> Result<bool, StoreError> {
    let mut found = db.prepare_cached("SELECT 1 FROM runs WHERE id = ?1 AND status = 'waiting'")?;
    Ok(found.exists([run.as_bytes()])?)
}

fn start_from_row(row: &Row<'_>) -> rusqlite::Result<Start> {
    let value = |column: usize| -> rusqlite::Result<Value> {
        Ok(json::parse(&row.get::<_, String>(column)?).unwrap_or_default())
    };
    Ok(Start {
        n: row.get(0)?,
        run: RunId(Uuid::from_bytes(row.get(1)?)),
        workflow: row.get(2)?,
        digest: row.get::<_, [u8; 32]>(3)?.into(),
        schedule: row.get(4)?,
        cause: row.get(5)?,
        detail: value(6)?,
        args: value(7)?,
        actor: row.get(8)?,
        state: read_word(row, 9)?,
        why: row.get(10)?,
        cancel: row.get(11)?,
        queued_at: row.get(12)?,
        ended_at: row.get(13)?,
        attempts: row.get(14)?,
    })
}
