//! Who did what to the service, and which servers are at work.

use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use super::Service;
use super::workflows::deed;
use crate::db::Durability;
use crate::error::StoreError;
use lobster_base::json;

/// What somebody did to the service.
#[derive(Clone, Debug, PartialEq)]
pub struct Deed {
    /// Milliseconds since 1970; set when it is written.
    pub at: i64,
    pub actor: Option<String>,
    /// From where: the command line, or the address of a client.
    pub origin: Option<String>,
    /// `register`, `pause` …
    pub verb: String,
    pub object: String,
    pub detail: Value,
}

/// A server that was not heard of for so long, in milliseconds, is gone.
const HEARD_MS: i64 = 10_000;

/// A server that uses this store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub id: String,
    pub pid: u32,
    /// Where it listens.
    pub listen: String,
    /// How people reach it: what the addresses of its pages begin with, without a slash at its end.
    pub url: String,
    pub started_at: i64,
    /// When it was last heard of.
    pub heard_at: i64,
}

impl Deed {
    /// Writes it down in the transaction that does it.
    pub(super) fn note(&self, tx: &rusqlite::Transaction<'_>, at: i64) -> Result<(), StoreError> {
        tx.prepare_cached(
            "INSERT INTO trail (at, actor, origin, verb, object, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            at,
            self.actor,
            self.origin,
            self.verb,
            self.object,
            json::compact(&self.detail)
        ])?;
        Ok(())
    }
}

fn read_deed(row: &Row<'_>) -> rusqlite::Result<Deed> {
    Ok(Deed {
        at: row.get(0)?,
        actor: row.get(1)?,
        origin: row.get(2)?,
        verb: row.get(3)?,
        object: row.get(4)?,
        detail: json::parse(&row.get::<_, String>(5)?).unwrap_or_default(),
    })
}

impl Service {
    /// Writes down what somebody is about to do to the store itself.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(
        &self,
        verb: &str,
        object: &str,
        (actor, origin): (Option<&str>, &str),
        detail: Value,
    ) -> Result<(), StoreError> {
        self.write(Durability::Synced, |tx| deed(verb, object, actor, origin, detail).note(tx, self.now()))
    }

    /// Writes down a request that may change something, before it is carried out; the change itself is made durable
    /// by its own transaction.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_request(
        &self,
        object: &str,
        (actor, origin): (Option<&str>, &str),
        detail: Value,
    ) -> Result<(), StoreError> {
        self.write(Durability::Lazy, |tx| deed("request", object, actor, origin, detail).note(tx, self.now()))
    }

    /// What was done, the newest first; at most `limit`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn deeds(&self, limit: usize) -> Result<Vec<Deed>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT at, actor, origin, verb, object, detail FROM trail ORDER BY n DESC LIMIT ?1",
            )?;
            let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], read_deed)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The newest deed of a kind about something.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last_deed(&self, verb: &str, object: &str) -> Result<Option<Deed>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT at, actor, origin, verb, object, detail FROM trail WHERE verb = ?1 AND object = ?2
                 ORDER BY n DESC LIMIT 1",
            )?;
            Ok(statement.query_row([verb, object], read_deed).optional()?)
        })
    }

    /// The number of the newest deed: what is registered is the same while it is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn newest_deed(&self) -> Result<i64, StoreError> {
        let sql = "SELECT coalesce(max(n), 0) FROM trail";
        self.read(|db| Ok(db.prepare_cached(sql)?.query_row([], |row| row.get(0))?))
    }

    /// Says that a server is at work, where it listens and how people reach it. Those that were not heard of
    /// since `before` are forgotten.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn beat(
        &self,
        id: &str,
        pid: u32,
        (listen, url): (&str, &str),
        before: i64,
    ) -> Result<(), StoreError> {
        let now = self.now();
        self.write(Durability::Lazy, |tx| {
            tx.prepare_cached(
                "INSERT INTO servers (id, pid, listen, started, heard, url) VALUES (?1, ?2, ?3, ?4, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET heard = ?4, listen = ?3, url = ?5",
            )?
            .execute(params![id, pid, listen, now, url])?;
            tx.prepare_cached("DELETE FROM servers WHERE heard < ?1")?.execute([before])?;
            Ok(())
        })
    }

    /// Says that a server has ended.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn leave(&self, id: &str) -> Result<(), StoreError> {
        self.write(Durability::Lazy, |tx| {
            tx.execute("DELETE FROM servers WHERE id = ?1", [id])?;
            Ok(())
        })
    }

    /// The servers that are at work: those that were heard of a short while ago, the one that was started
    /// last at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn servers(&self) -> Result<Vec<Served>, StoreError> {
        let since = self.now() - HEARD_MS;
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT id, pid, listen, started, heard, url FROM servers WHERE heard >= ?1 ORDER BY started",
            )?;
            let rows = statement.query_map([since], |row| {
                let (listen, url): (String, String) = (row.get(2)?, row.get(5)?);
                Ok(Served {
                    id: row.get(0)?,
                    pid: row.get(1)?,
                    url: if url.is_empty() { format!("http://{listen}") } else { url },
                    listen,
                    started_at: row.get(3)?,
                    heard_at: row.get(4)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}
