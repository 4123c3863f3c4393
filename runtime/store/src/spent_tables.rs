//! The tables of [`super::spent`]: their creation, and copying them from a damaged database. It depends on nothing
//! else in the store, so that code that opens or rescues one can use it.

use rusqlite::Connection;

use super::service_tables::{copy_tables, has_table};

/// True if the tables exist.
pub(super) fn is_there(db: &Connection) -> rusqlite::Result<bool> {
    has_table(db, "service_budget")
}

/// Creates the tables if they are missing.
pub(super) fn create_if_missing(db: &Connection) -> rusqlite::Result<()> {
    if !is_there(db)? {
        db.execute_batch(include_str!("spent.sql"))?;
    }
    Ok(())
}

/// Copies the readable rows of a damaged database. Returns the tables with lost rows, each with the number of copied
/// rows.
pub(super) fn copy_readable(from: &Connection, into: &Connection) -> Vec<(&'static str, i64)> {
    if !is_there(from).unwrap_or(false) || create_if_missing(into).is_err() {
        return Vec::new();
    }
    copy_tables(from, into, &["spent", "service_budget"])
}
