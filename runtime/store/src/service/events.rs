//! Events: named, with data, sent once and taken by every run that waits for the name.
//!
//! A run takes events that were sent since its start was accepted, the oldest first and each of them once. So an
//! event that comes while the start is queued, or before its step is reached, is not lost, and a loop takes one a round. What a place has
//! taken stands in the store before the run's journal knows of it: a crash in between takes the same.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use super::Service;
use super::workflows::deed;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::RunId;
use lobster_base::json;

/// Largest data of an event, in bytes of JSON.
pub const MAX_EVENT_DATA: usize = 64 << 10;

/// An event that was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SentEvent {
    pub n: i64,
    pub name: String,
    pub data: Value,
    /// Milliseconds since 1970.
    pub at: i64,
    pub by: Option<String>,
}

/// What sending came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub n: i64,
    /// Parked runs that it ends a wait of.
    pub waiting: usize,
}

impl Service {
    /// Sends an event: durable, in the trail, and due for every parked run that waits for it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn send_event(
        &self,
        name: &str,
        data: &Value,
        actor: Option<&str>,
        origin: &str,
    ) -> Result<Sent, StoreError> {
        let mut data = data.clone();
        self.store.hide_in(&mut data);
        let actor = actor.map(|actor| self.store.hide(actor));
        let (actor, now, text) = (actor.as_deref(), self.now(), json::compact(&data));
        self.write(Durability::Synced, |tx| {
            tx.prepare_cached("INSERT INTO events (name, data, at, by) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![name, text, now, actor])?;
            let n = tx.last_insert_rowid();
            let waiting = tx
                .prepare_cached("UPDATE waits SET due = ?2 WHERE event = ?1")?
                .execute(params![name, now])?;
            deed("send-event", name, actor, origin, json!({ "event": n, "waiting": waiting }))
                .note(tx, now)?;
            Ok(Sent { n, waiting })
        })
    }

    /// The event for a place of a run, among the events sent at `since` or later, or since the run's start was
    /// accepted; the same event whenever it is asked for.
    ///
    /// # Errors
    /// When it cannot be read or written.
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
            Ok::<_, StoreError>(
                db.prepare_cached(sql)?.query_row(params![run.as_bytes(), path, name], event).optional()?,
            )
        };
        let found = self.read(|db| {
            Ok(match taken(db)? {
                Some(taken) => Some(Ok(taken)),
                None => next_for(db, run, name, since)?.map(Err),
            })
        })?;
        match found {
            None => Ok(None),
            Some(Ok(taken)) => Ok(Some(taken)),
            Some(Err(_)) => self.write(Durability::Synced, |tx| {
                if let Some(taken) = taken(tx)? {
                    return Ok(Some(taken));
                }
                let Some(next) = next_for(tx, run, name, since)? else { return Ok(None) };
                tx.prepare_cached(
                    "INSERT OR REPLACE INTO taken_events (run, path, event) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![run.as_bytes(), path, next.n])?;
                Ok(Some(next))
            }),
        }
    }

    /// The newest events; at most `limit`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn events(&self, limit: usize) -> Result<Vec<SentEvent>, StoreError> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT n, name, data, at, by FROM events ORDER BY n DESC LIMIT ?1")?;
            let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], event)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

/// The oldest event of a name that a run has not had yet.
pub(super) fn next_for(
    db: &Connection,
    run: RunId,
    name: &str,
    since: i64,
) -> Result<Option<SentEvent>, StoreError> {
    let sql = "SELECT n, name, data, at, by FROM events WHERE name = ?2
               AND at >= min(?3, coalesce((SELECT queued FROM starts WHERE starts.run = ?1), ?3))
               AND NOT EXISTS (SELECT 1 FROM taken_events WHERE run = ?1 AND event = events.n) ORDER BY n LIMIT 1";
    Ok(db.prepare_cached(sql)?.query_row(params![run.as_bytes(), name, since], event).optional()?)
}

fn event(row: &rusqlite::Row<'_>) -> rusqlite::Result<SentEvent> {
    Ok(SentEvent {
        n: row.get(0)?,
        name: row.get(1)?,
        data: json::parse(&row.get::<_, String>(2)?).unwrap_or_default(),
        at: row.get(3)?,
        by: row.get(4)?,
    })
}
