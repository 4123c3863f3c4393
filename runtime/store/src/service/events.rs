//! Events: named, with data, sent once and received by every run that waits for the name.
//!
//! A run receives events sent since its start was accepted, the oldest first and each of them once. An event that
//! arrives while the start is queued, or before its step is reached, is therefore not lost, and a loop receives one
//! per iteration. The event of a step is stored before the run's journal records it, so a crash in between gives the
//! same event again.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::Service;
use super::trail::note_deed;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::RunId;
use crate::statement::{execute, query_one};
use lobster_base::json;

/// Largest data of an event, in bytes of JSON.
pub const MAX_EVENT_DATA: usize = 64 << 10;

/// An event that was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SentEvent {
    pub n: i64,
    pub name: String,
    pub data: Value,
    /// In milliseconds since 1970.
    pub at: i64,
    pub by: Option<String>,
}

/// Result of sending an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub n: i64,
    /// Number of parked runs that it wakes.
    pub waiting: usize,
}

impl Service {
    /// Sends an event: stores it durably, adds it to the trail, and wakes every parked run that waits for it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn send_event(
        &self,
        name: &str,
        data: &Value,
        actor: Option<&str>,
        origin: &str,
    ) -> Result<Sent, StoreError> {
        let mut data = data.clone();
        self.store.hide_in(&mut data);
        let actor = actor.map(|actor| self.store.hide_secrets(actor));
        let (actor, now, text) = (actor.as_deref(), self.now(), json::compact(&data));
        self.write_transaction(Durability::Synced, |tx| {
            tx.prepare_cached("INSERT INTO events (name, data, at, by) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![name, text, now, actor])?;
            let n = tx.last_insert_rowid();
            let waiting = execute(tx, "UPDATE waits SET due = ?2 WHERE event = ?1", params![name, now])?;
            let detail = json!({ "event": n, "waiting": waiting });
            note_deed(tx, now, "send-event", name, (actor, origin), &detail)?;
            Ok(Sent { n, waiting })
        })
    }

    /// The event for a step of a run, among the events sent since `since` or since the run's start was accepted. Later
    /// calls return the same event.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn take_event(
        &self,
        run: RunId,
        path: &str,
        name: &str,
        since: i64,
    ) -> Result<Option<SentEvent>, StoreError> {
        let taken = |db: &Connection| {
            let sql = "SELECT events.n, name, data, at, by FROM taken_events JOIN events ON events.n = taken_events.event
                       WHERE run = ?1 AND path = ?2 AND name = ?3";
            query_one(db, sql, params![run.as_bytes(), path, name], event_from_row)
        };
        let found = self.read_snapshot(|db| {
            Ok(match taken(db)? {
                Some(taken) => Some(Ok(taken)),
                None => next_for(db, run, name, since)?.map(Err),
            })
        })?;
        match found {
            None => Ok(None),
            Some(Ok(taken)) => Ok(Some(taken)),
            Some(Err(_)) => self.write_transaction(Durability::Synced, |tx| {
                if let Some(taken) = taken(tx)? {
                    return Ok(Some(taken));
                }
                let Some(next) = next_for(tx, run, name, since)? else { return Ok(None) };
                let sql = "INSERT OR REPLACE INTO taken_events (run, path, event) VALUES (?1, ?2, ?3)";
                execute(tx, sql, params![run.as_bytes(), path, next.n])?;
                Ok(Some(next))
            }),
        }
    }

    /// The newest events; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_events(&self, limit: usize) -> Result<Vec<SentEvent>, StoreError> {
        let sql = "SELECT n, name, data, at, by FROM events ORDER BY n DESC LIMIT ?1";
        self.db().select_rows(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], event_from_row)
    }
}

/// The oldest event of this name that the run has not received yet.
pub(super) fn next_for(
    db: &Connection,
    run: RunId,
    name: &str,
    since: i64,
) -> Result<Option<SentEvent>, StoreError> {
    let sql = "SELECT n, name, data, at, by FROM events WHERE name = ?2
               AND at >= min(?3, coalesce((SELECT queued FROM starts WHERE starts.run = ?1), ?3))
               AND NOT EXISTS (SELECT 1 FROM taken_events WHERE run = ?1 AND event = events.n) ORDER BY n LIMIT 1";
    query_one(db, sql, params![run.as_bytes(), name, since], event_from_row)
}

fn event_from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<SentEvent> {
    Ok(SentEvent {
        n: row.get(0)?,
        name: row.get(1)?,
        data: json::parse(&row.get::<_, String>(2)?).unwrap_or_default(),
        at: row.get(3)?,
        by: row.get(4)?,
    })
}
