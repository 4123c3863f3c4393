//! Deliveries of webhooks. A delivery is stored together with its start before its sender gets a reply; an earlier one
//! is recognised by its id or its bytes.

use rusqlite::{Row, Transaction, params};
use serde_json::json;
use uuid::Uuid;

use super::Service;
use super::starts::{self, NewStart};
use super::trail::note_deed;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::RunId;
use crate::statement::{execute, query_one};
use lobster_base::digest::Digest;

/// Time in milliseconds for which a delivery is remembered, even if other history is removed. Within it, the same id
/// means the same delivery; so do equal bytes, if the signature does not cover a timestamp.
pub const SAME_DELIVERY_MS: i64 = 90 * 86_400_000;

/// A verified delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct NewDelivery {
    pub hook: String,
    /// The sender's name for it, or the digest of the body.
    pub id: String,
    pub body: Vec<u8>,
    /// Headers to keep, as JSON.
    pub headers: String,
    /// Equal bytes received after this time are the same delivery under another name; `None` compares names only. Some
    /// senders sign the body, but not the name.
    pub same_since: Option<i64>,
    pub start: NewStart,
}

/// Result of accepting a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    New(RunId),
    /// Received before, with this run.
    Again(Option<RunId>),
    /// Another body was received under this id before.
    Differs,
}

/// A stored delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub n: i64,
    pub hook: String,
    pub id: String,
    pub digest: Digest,
    pub headers: String,
    /// `None` once it is too old to be kept.
    pub body: Option<Vec<u8>>,
    pub received_at: i64,
    pub run: Option<RunId>,
}

impl Service {
    /// Stores a delivery and its start, durably and in one transaction.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn accept_delivery(&self, new: &NewDelivery) -> Result<Accepted, StoreError> {
        let digest = Digest::of_bytes(&new.body);
        self.write_durably(|tx, now| {
            // Outdated deliveries are removed every hour; removing this one here keeps it from matching until then.
            tx.prepare_cached("DELETE FROM deliveries WHERE hook = ?1 AND id = ?2 AND received < ?3")?
                .execute(params![new.hook, new.id, now.saturating_sub(SAME_DELIVERY_MS)])?;
            let sql = "SELECT digest, run FROM deliveries WHERE hook = ?1 AND id = ?2";
            let same_id: Option<([u8; 32], Option<[u8; 16]>)> =
                query_one(tx, sql, [&new.hook, &new.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if let Some((known, run)) = same_id {
                return Ok(match Digest::from(known) == digest {
                    true => Accepted::Again(run.map(|bytes| RunId(Uuid::from_bytes(bytes)))),
                    false => Accepted::Differs,
                });
            }
            let sql = "SELECT run FROM deliveries WHERE hook = ?1 AND digest = ?2 AND received >= ?3 LIMIT 1";
            let same_bytes: Option<Option<[u8; 16]>> = match new.same_since {
                None => None,
                Some(since) => {
                    query_one(tx, sql, params![new.hook, digest.as_bytes(), since], |row| row.get(0))?
                }
            };
            if let Some(run) = same_bytes {
                return Ok(Accepted::Again(run.map(|bytes| RunId(Uuid::from_bytes(bytes)))));
            }
            let run = starts::insert_start(tx, &new.start, now)?;
            let values =
                params![new.hook, new.id, digest.as_bytes(), new.headers, new.body, now, run.as_bytes()];
            let sql = "INSERT INTO deliveries (hook, id, digest, headers, body, received, run)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            execute(tx, sql, values)?;
            Ok(Accepted::New(run))
        })
    }

    /// Starts another run for an earlier delivery, at a person's request.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn redeliver(
        &self,
        delivery: &Delivery,
        start: &NewStart,
        origin: &str,
    ) -> Result<RunId, StoreError> {
        self.write_durably(|tx, now| {
            let run = starts::insert_start(tx, start, now)?;
            let detail = json!({ "delivery": delivery.n, "run": run });
            note_deed(tx, now, "redeliver", &delivery.hook, (start.actor.as_deref(), origin), &detail)?;
            Ok(run)
        })
    }

    /// The deliveries, the newest first, without bodies; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_deliveries(&self, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        let sql = "SELECT n, hook, id, digest, headers, NULL, received, run FROM deliveries ORDER BY n DESC LIMIT ?1";
        self.db().select_rows(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], delivery_from_row)
    }

    /// One delivery, with its body.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn find_delivery(&self, n: i64) -> Result<Option<Delivery>, StoreError> {
        let sql = "SELECT n, hook, id, digest, headers, body, received, run FROM deliveries WHERE n = ?1";
        self.db().select_one(sql, [n], delivery_from_row)
    }

    /// Removes the bodies of deliveries before `bodies`, and whole deliveries before `all`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn forget_deliveries(&self, bodies: i64, all: i64) -> Result<(), StoreError> {
        self.write_transaction(Durability::Lazy, |tx| remove_outdated(tx, bodies, all))
    }
}

/// Removes the bodies of deliveries before `bodies`, and whole deliveries before `all`, in a transaction.
pub(super) fn remove_outdated(tx: &Transaction<'_>, bodies: i64, all: i64) -> Result<(), StoreError> {
    tx.execute("UPDATE deliveries SET body = NULL WHERE received < ?1 AND body IS NOT NULL", [bodies])?;
    tx.execute("DELETE FROM deliveries WHERE received < ?1", [all])?;
    Ok(())
}

fn delivery_from_row(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        n: row.get(0)?,
        hook: row.get(1)?,
        id: row.get(2)?,
        digest: row.get::<_, [u8; 32]>(3)?.into(),
        headers: row.get(4)?,
        body: row.get(5)?,
        received_at: row.get(6)?,
        run: row.get::<_, Option<[u8; 16]>>(7)?.map(|bytes| RunId(Uuid::from_bytes(bytes))),
    })
}
