//! What parked runs wait for, besides people: a time, an event. A row each, and no process.
//!
//! The engine writes the rows of a run when it leaves it, as a whole. When one of them is due the run
//! is queued and its rows go: whoever executes it finds out again what it waits for.

use rusqlite::{OptionalExtension, Transaction, params};
use uuid::Uuid;

use super::Service;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::RunId;

/// Something that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWait {
    /// The place in the run; empty for a run that is taken up for another reason: it could not begin or go on and is
    /// tried again, or somebody has answered it.
    pub path: String,
    /// When it is over in any case, in milliseconds since 1970.
    pub due: Option<i64>,
    /// The event that ends it.
    pub event: Option<String>,
}

/// The same as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    pub run: RunId,
    pub path: String,
    pub due: Option<i64>,
    pub event: Option<String>,
}

impl Service {
    /// Whether a run may be left waiting: it was started by the service, is not over, and a server
    /// was heard of at `since` or later.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn looks_after(&self, run: RunId, since: i64) -> Result<bool, StoreError> {
        self.read(|db| {
            let mut found = db.prepare_cached(
                "SELECT 1 FROM starts WHERE run = ?1 AND state IN ('queued', 'taken', 'parked') AND cancel IS NULL
                 AND EXISTS (SELECT 1 FROM servers WHERE heard >= ?2)",
            )?;
            Ok(found.exists(params![run.as_bytes(), since])?)
        })
    }

    /// Writes down all that a run waits for at its places, in place of what stood there. What has come already
    /// makes it due at once.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn park(&self, run: RunId, since: i64, waits: &[NewWait]) -> Result<(), StoreError> {
        let now = self.now();
        self.write(Durability::Synced, |tx| {
            tx.prepare_cached("DELETE FROM waits WHERE run = ?1 AND path <> ''")?
                .execute([run.as_bytes()])?;
            for wait in waits {
                let has_come = match &wait.event {
                    Some(name) => super::events::next_for(tx, run, name, since)?.is_some(),
                    None => false,
                };
                let due = if has_come { Some(now) } else { wait.due };
                add(tx, run, &NewWait { due, ..wait.clone() })?;
            }
            Ok(())
        })
    }

    /// Queues parked runs of which something is due, and frees queued ones whose rest is over; at most `limit`.
    /// Gives how many.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn wake_due(&self, limit: usize) -> Result<usize, StoreError> {
        const DUE: &str = "SELECT DISTINCT waits.run FROM waits CROSS JOIN starts ON starts.run = waits.run
             WHERE waits.due <= ?1 AND starts.state IN ('parked', 'queued') LIMIT ?2";
        let (now, limit) = (self.now(), i64::try_from(limit).unwrap_or(i64::MAX));
        if !self.read(|db| Ok(db.prepare_cached(DUE)?.exists([now, 1])?))? {
            return Ok(0);
        }
        self.write(Durability::Lazy, |tx| {
            let due: Vec<[u8; 16]> = {
                let mut statement = tx.prepare_cached(DUE)?;
                let rows = statement.query_map([now, limit], |row| row.get(0))?;
                rows.collect::<Result<_, _>>()?
            };
            for run in &due {
                tx.prepare_cached("UPDATE starts SET state = 'queued' WHERE run = ?1 AND state = 'parked'")?
                    .execute([run])?;
                forget(tx, RunId(Uuid::from_bytes(*run)))?;
            }
            Ok(due.len())
        })
    }

    /// When the next wait of a run without a process is over, in milliseconds since 1970.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn next_wake(&self) -> Result<Option<i64>, StoreError> {
        self.read(|db| {
            let mut next = db.prepare_cached(
                "SELECT waits.due FROM waits CROSS JOIN starts ON starts.run = waits.run
                 WHERE waits.due IS NOT NULL AND starts.state IN ('parked', 'queued') ORDER BY waits.due LIMIT 1",
            )?;
            Ok(next.query_row([], |row| row.get(0)).optional()?)
        })
    }

    /// What parked runs wait for, the next first and what only an event ends last; at most `limit`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn waits(&self, limit: usize) -> Result<Vec<WaitRow>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT run, path, due, event FROM waits ORDER BY due IS NULL, due, n LIMIT ?1",
            )?;
            let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                Ok(WaitRow {
                    run: RunId(Uuid::from_bytes(row.get(0)?)),
                    path: row.get(1)?,
                    due: row.get(2)?,
                    event: row.get(3)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

/// Has a run wait for one thing more.
pub(super) fn add(tx: &Transaction<'_>, run: RunId, wait: &NewWait) -> Result<(), StoreError> {
    tx.prepare_cached("INSERT INTO waits (run, path, due, event) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![run.as_bytes(), wait.path, wait.due, wait.event])?;
    Ok(())
}

/// Forgets what a run waits for.
pub(super) fn forget(tx: &Transaction<'_>, run: RunId) -> Result<(), StoreError> {
    tx.prepare_cached("DELETE FROM waits WHERE run = ?1")?.execute([run.as_bytes()])?;
    Ok(())
}
