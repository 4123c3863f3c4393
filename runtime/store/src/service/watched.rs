//! State of watched files at the last start of a run for them.
//!
//! The state is text here. It changes together with the start that it causes, and only if it is unchanged since it was
//! read: if two servers see a file, one of them starts a run, and a restarted server starts none.

use rusqlite::params;

use super::Service;
use super::starts::{self, NewStart};
use super::trail::note_deed;
use crate::error::StoreError;
use crate::event::RunId;
use crate::statement::{execute, query_one};
use serde_json::json;

/// Result of setting a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The state was set, with this run.
    Counted(Option<RunId>),
    /// Another server was first.
    Superseded,
}

impl Service {
    /// The state of a watch, and its revision.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn watch_state(&self, key: &str) -> Result<Option<(i64, String)>, StoreError> {
        let sql = "SELECT revision, state FROM watched WHERE key = ?1";
        self.db().select_one(sql, [key], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Sets the state of a watch, together with its start, unless it has changed since `revision`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_watched(
        &self,
        key: &str,
        revision: Option<i64>,
        state: &str,
        start: Option<&NewStart>,
    ) -> Result<Watched, StoreError> {
        self.write_durably(|tx, now| {
            let sql = "SELECT revision FROM watched WHERE key = ?1";
            let found: Option<i64> = query_one(tx, sql, [key], |row| row.get(0))?;
            if found != revision {
                return Ok(Watched::Superseded);
            }
            let sql = "INSERT INTO watched (key, revision, state) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE SET revision = ?2, state = ?3";
            execute(tx, sql, params![key, revision.unwrap_or(0) + 1, state])?;
            let Some(start) = start else { return Ok(Watched::Counted(None)) };
            let run = starts::insert_start(tx, start, now)?;
            let detail = json!({ "run": run, "cause": start.cause });
            note_deed(tx, now, "start", key, (start.actor.as_deref(), "watch"), &detail)?;
            Ok(Watched::Counted(Some(run)))
        })
    }
}
