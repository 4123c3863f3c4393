//! The trail of changes to the service, and its running servers.

use rusqlite::{Row, Transaction, params};
use serde_json::Value;

use super::Service;
use crate::db::Durability;
use crate::error::StoreError;
use crate::statement::execute;
use lobster_base::json;

/// An entry of the trail.
#[derive(Clone, Debug, PartialEq)]
pub struct Deed {
    /// In milliseconds since 1970; set when it is written.
    pub at: i64,
    pub actor: Option<String>,
    /// Origin: the command line, or the address of a client.
    pub origin: Option<String>,
    /// `register`, `pause` …
    pub verb: String,
    pub object: String,
    pub detail: Value,
}

/// Time without a heartbeat, in milliseconds, after which a server is considered gone.
const HEARD_MS: i64 = 10_000;

/// A server that uses this store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub id: String,
    pub pid: u32,
    /// The address on which it listens.
    pub listen: String,
    /// The base URL of its pages, without a final slash.
    pub url: String,
    pub started_at: i64,
    /// Time of its last heartbeat.
    pub heard_at: i64,
}

/// Adds an entry in the transaction that makes the change.
pub(super) fn note_deed(
    tx: &Transaction<'_>,
    at: i64,
    verb: &str,
    object: &str,
    (actor, origin): (Option<&str>, &str),
    detail: &Value,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO trail (at, actor, origin, verb, object, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    execute(tx, sql, params![at, actor, origin, verb, object, json::compact(detail)])?;
    Ok(())
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
    /// Adds an entry for an operation on the store itself, before it begins.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_deed(
        &self,
        verb: &str,
        object: &str,
        by: (Option<&str>, &str),
        detail: Value,
    ) -> Result<(), StoreError> {
        self.write_durably(|tx, now| note_deed(tx, now, verb, object, by, &detail))
    }

    /// Adds an entry for a request that may change something, before it is carried out. The change itself is made
    /// durable by its own transaction.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_request(
        &self,
        object: &str,
        by: (Option<&str>, &str),
        detail: Value,
    ) -> Result<(), StoreError> {
        self.write_transaction(Durability::Lazy, |tx| {
            note_deed(tx, self.now(), "request", object, by, &detail)
        })
    }

    /// The entries, the newest first; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_deeds(&self, limit: usize) -> Result<Vec<Deed>, StoreError> {
        let sql = "SELECT at, actor, origin, verb, object, detail FROM trail ORDER BY n DESC LIMIT ?1";
        self.db().select_rows(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], read_deed)
    }

    /// The newest entry with this verb and object.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn last_deed(&self, verb: &str, object: &str) -> Result<Option<Deed>, StoreError> {
        let sql = "SELECT at, actor, origin, verb, object, detail FROM trail WHERE verb = ?1 AND object = ?2
             ORDER BY n DESC LIMIT 1";
        self.db().select_one(sql, [verb, object], read_deed)
    }

    /// The number of the newest entry. As long as it is the same, so are the registrations.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn newest_deed(&self) -> Result<i64, StoreError> {
        let sql = "SELECT coalesce(max(n), 0) FROM trail";
        self.read_snapshot(|db| Ok(db.prepare_cached(sql)?.query_row([], |row| row.get(0))?))
    }

    /// Records a server's heartbeat, with the addresses on which it listens and is reached. Servers without a
    /// heartbeat since `before` are removed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_heartbeat(
        &self,
        id: &str,
        pid: u32,
        (listen, url): (&str, &str),
        before: i64,
    ) -> Result<(), StoreError> {
        let now = self.now();
        self.write_transaction(Durability::Lazy, |tx| {
            let sql =
                "INSERT INTO servers (id, pid, listen, started, heard, url) VALUES (?1, ?2, ?3, ?4, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET heard = ?4, listen = ?3, url = ?5";
            execute(tx, sql, params![id, pid, listen, now, url])?;
            execute(tx, "DELETE FROM servers WHERE heard < ?1", [before])?;
            Ok(())
        })
    }

    /// Removes a server that has ended.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn remove_server(&self, id: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM servers WHERE id = ?1";
        self.store.write_statement(Durability::Lazy, sql, [id]).map(drop)
    }

    /// The running servers, which have had a recent heartbeat; the one started last comes last.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn running_servers(&self) -> Result<Vec<Served>, StoreError> {
        let since = self.now() - HEARD_MS;
        let sql =
            "SELECT id, pid, listen, started, heard, url FROM servers WHERE heard >= ?1 ORDER BY started";
        self.db().select_rows(sql, [since], |row| {
            let (listen, url): (String, String) = (row.get(2)?, row.get(5)?);
            Ok(Served {
                id: row.get(0)?,
                pid: row.get(1)?,
                url: if url.is_empty() { format!("http://{listen}") } else { url },
                listen,
                started_at: row.get(3)?,
                heard_at: row.get(4)?,
            })
        })
    }
}
