//! Waits of parked runs, besides those for people: a time or an event, one row each, without a process.
//!
//! The engine writes all rows of a run when it parks it. When one is due, the run is queued and its rows are removed;
//! the process that executes it determines the waits again.

use rusqlite::{Transaction, params};
use uuid::Uuid;

use super::Service;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::RunId;
use crate::statement::{execute, query_rows};

/// Something that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWait {
    /// The step in the run. Empty for a run that is continued for another reason: it could not begin or continue and
    /// is tried again, or it was answered.
    pub path: String,
    /// End of the wait without an event, in milliseconds since 1970.
    pub due: Option<i64>,
    /// The event that ends it.
    pub event: Option<String>,
}

/// A stored wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    pub run: RunId,
    pub path: String,
    pub due: Option<i64>,
    pub event: Option<String>,
}

impl Service {
    /// True if a run can be parked: it was started by the service, is not over, and a server has had a heartbeat at
    /// `since` or later.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn looks_after(&self, run: RunId, since: i64) -> Result<bool, StoreError> {
        self.read_snapshot(|db| {
            let mut found = db.prepare_cached(
                "SELECT 1 FROM starts WHERE run = ?1 AND state IN ('queued', 'taken', 'parked') AND cancel IS NULL
                 AND EXISTS (SELECT 1 FROM servers WHERE heard >= ?2)",
            )?;
            Ok(found.exists(params![run.as_bytes(), since])?)
        })
    }

    /// Replaces all waits of a run's steps. A wait whose event has already been sent is due at once.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn replace_waits(&self, run: RunId, since: i64, waits: &[NewWait]) -> Result<(), StoreError> {
        self.write_durably(|tx, now| {
            execute(tx, "DELETE FROM waits WHERE run = ?1 AND path <> ''", [run.as_bytes()])?;
            for wait in waits {
                let has_come = match &wait.event {
                    Some(name) => super::events::next_for(tx, run, name, since)?.is_some(),
                    None => false,
                };
                let due = if has_come { Some(now) } else { wait.due };
                insert_wait(tx, run, &NewWait { due, ..wait.clone() })?;
            }
            Ok(())
        })
    }

    /// Queues parked runs with a due wait, and releases queued runs whose rest is over; at most `limit`. Returns their
    /// number.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn wake_due(&self, limit: usize) -> Result<usize, StoreError> {
        const DUE: &str = "SELECT DISTINCT waits.run FROM waits CROSS JOIN starts ON starts.run = waits.run
             WHERE waits.due <= ?1 AND starts.state IN ('parked', 'queued') LIMIT ?2";
        let (now, limit) = (self.now(), i64::try_from(limit).unwrap_or(i64::MAX));
        if !self.read_snapshot(|db| Ok(db.prepare_cached(DUE)?.exists([now, 1])?))? {
            return Ok(0);
        }
        self.write_transaction(Durability::Lazy, |tx| {
            let due: Vec<[u8; 16]> = query_rows(tx, DUE, [now, limit], |row| row.get(0))?;
            for run in &due {
                execute(tx, "UPDATE starts SET state = 'queued' WHERE run = ?1 AND state = 'parked'", [run])?;
                remove_waits(tx, RunId(Uuid::from_bytes(*run)))?;
            }
            Ok(due.len())
        })
    }

    /// End of the next wait of a run without a process, in milliseconds since 1970.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next_wake(&self) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT waits.due FROM waits CROSS JOIN starts ON starts.run = waits.run
             WHERE waits.due IS NOT NULL AND starts.state IN ('parked', 'queued') ORDER BY waits.due LIMIT 1";
        self.db().select_one(sql, [], |row| row.get(0))
    }

    /// Waits of parked runs, the next first, and those without a time last; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_waits(&self, limit: usize) -> Result<Vec<WaitRow>, StoreError> {
        let sql = "SELECT run, path, due, event FROM waits ORDER BY due IS NULL, due, n LIMIT ?1";
        self.db().select_rows(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(WaitRow {
                run: RunId(Uuid::from_bytes(row.get(0)?)),
                path: row.get(1)?,
                due: row.get(2)?,
                event: row.get(3)?,
            })
        })
    }
}

/// Adds a wait to a run.
pub(super) fn insert_wait(tx: &Transaction<'_>, run: RunId, wait: &NewWait) -> Result<(), StoreError> {
    tx.prepare_cached("INSERT INTO waits (run, path, due, event) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![run.as_bytes(), wait.path, wait.due, wait.event])?;
    Ok(())
}

/// Removes the waits of a run.
pub(super) fn remove_waits(tx: &Transaction<'_>, run: RunId) -> Result<(), StoreError> {
    execute(tx, "DELETE FROM waits WHERE run = ?1", [run.as_bytes()])?;
    Ok(())
}
