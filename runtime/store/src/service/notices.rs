//! Notices to people: what is to be told to whom, and what became of it.

use std::fmt;
use std::str::FromStr;

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};

use super::Service;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::words;
use crate::journal::word;

words! {
    /// Where a notice stands.
    NoticeState {
        Waiting = "waiting",
        Sent = "sent",
        /// It was given up.
        Failed = "failed",
    }
}

/// A notice as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub n: i64,
    /// What it is about; told once over each channel.
    pub occasion: String,
    pub channel: String,
    /// JSON.
    pub message: String,
    pub state: NoticeState,
    pub attempts: u32,
    /// When it is tried next.
    pub due: i64,
    /// What went wrong the last time.
    pub why: Option<String>,
}

impl Service {
    /// Has something told over a channel, once. False if it was asked for before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_notice(
        &self,
        occasion: &str,
        channel: &str,
        message: &str,
        due: i64,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        let message = self.store.hide(message).into_owned();
        self.write(Durability::Synced, |tx| {
            let added = tx.execute(
                "INSERT INTO notices (occasion, channel, message, state, due, made) VALUES (?1, ?2, ?3, 'waiting', ?4, ?5)
                 ON CONFLICT (occasion, channel) DO NOTHING",
                params![occasion, channel, message, due, now],
            )?;
            Ok(added > 0)
        })
    }

    /// Takes notices that are due; until `again` nobody else takes them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn take_notices(&self, again: i64, limit: usize) -> Result<Vec<Notice>, StoreError> {
        let now = self.now();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let due = "SELECT 1 FROM notices WHERE state = 'waiting' AND due <= ?1 LIMIT 1";
        if !self.read(|db| Ok(db.prepare_cached(due)?.exists([now])?))? {
            return Ok(Vec::new());
        }
        self.write(Durability::Synced, |tx| {
            let mut statement = tx.prepare_cached(
                "UPDATE notices SET due = ?2, attempts = attempts + 1 WHERE n IN (
                     SELECT n FROM notices WHERE state = 'waiting' AND due <= ?1 ORDER BY due LIMIT ?3)
                 RETURNING n, occasion, channel, message, state, attempts, due, why",
            )?;
            let rows = statement.query_map([now, again, limit], notice)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Writes down what became of a notice: `due` is when it is tried again, none that it is not.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end_notice(&self, n: i64, failure: Option<&str>, due: Option<i64>) -> Result<(), StoreError> {
        let now = self.now();
        let state = match (failure, due) {
            (None, _) => NoticeState::Sent,
            (Some(_), Some(_)) => NoticeState::Waiting,
            (Some(_), None) => NoticeState::Failed,
        };
        self.write(Durability::Synced, |tx| {
            tx.execute(
                "UPDATE notices SET state = ?2, why = ?3, due = coalesce(?4, due), ended = iif(?4 IS NULL, ?5, NULL)
                 WHERE n = ?1",
                params![n, state.as_str(), failure, due.filter(|_| failure.is_some()), now],
            )?;
            Ok(())
        })
    }

    /// The newest notices; at most `limit`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn notices(&self, limit: usize) -> Result<Vec<Notice>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT n, occasion, channel, message, state, attempts, due, why FROM notices ORDER BY n DESC LIMIT ?1",
            )?;
            let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], notice)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

fn notice(row: &Row<'_>) -> rusqlite::Result<Notice> {
    Ok(Notice {
        n: row.get(0)?,
        occasion: row.get(1)?,
        channel: row.get(2)?,
        message: row.get(3)?,
        state: word(row, 4)?,
        attempts: row.get(5)?,
        due: row.get(6)?,
        why: row.get(7)?,
    })
}
