//! What watched files were like when a run was last started for them.
//!
//! The state is text here. It changes together with the start that the change makes, and only if it is as it
//! was read: of two servers that see a file, one starts a run for it, and a server that is started
//! again starts none.

use rusqlite::{OptionalExtension, params};

use super::Service;
use super::starts::{self, NewStart};
use super::workflows::deed;
use crate::db::Durability;
use crate::error::StoreError;
use crate::event::RunId;
use serde_json::json;

/// What setting a state came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// It counts, and made this run.
    Counted(Option<RunId>),
    /// Another server was first.
    Superseded,
}

impl Service {
    /// The state of a watch, and the number of this state.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn watched(&self, key: &str) -> Result<Option<(i64, String)>, StoreError> {
        self.read(|db| {
            let mut found = db.prepare_cached("SELECT revision, state FROM watched WHERE key = ?1")?;
            Ok(found.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
        })
    }

    /// Sets the state of a watch, with the start that it makes, unless somebody has set another one
    /// since `revision`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_watched(
        &self,
        key: &str,
        revision: Option<i64>,
        state: &str,
        start: Option<&NewStart>,
    ) -> Result<Watched, StoreError> {
        let now = self.now();
        self.write(Durability::Synced, |tx| {
            let found: Option<i64> = tx
                .prepare_cached("SELECT revision FROM watched WHERE key = ?1")?
                .query_row([key], |row| row.get(0))
                .optional()?;
            if found != revision {
                return Ok(Watched::Superseded);
            }
            tx.prepare_cached(
                "INSERT INTO watched (key, revision, state) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE SET revision = ?2, state = ?3",
            )?
            .execute(params![key, revision.unwrap_or(0) + 1, state])?;
            let Some(start) = start else { return Ok(Watched::Counted(None)) };
            let run = starts::insert(tx, start, now)?;
            deed("start", key, start.actor.as_deref(), "watch", json!({ "run": run, "cause": start.cause }))
                .note(tx, now)?;
            Ok(Watched::Counted(Some(run)))
        })
    }
}
