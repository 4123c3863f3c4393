//! The tables of [`super::spent`]: how they are made, and how those of a damaged database are copied. Needs
//! nothing of the store, so that opening or rescuing one may use it.

use rusqlite::Connection;

use super::service_tables::{copy_tables, has_table};

/// Whether a program has made them.
pub(super) fn is_there(db: &Connection) -> rusqlite::Result<bool> {
    has_table(db, "service_budget")
}

/// Makes them where they are not.
pub(super) fn make(db: &Connection) -> rusqlite::Result<()> {
    if !is_there(db)? {
        db.execute_batch(include_str!("spent.sql"))?;
    }
    Ok(())
}

/// Copies what can be read of a damaged database. Gives the tables of which rows are lost, each with how
/// many were copied.
pub(super) fn copy(from: &Connection, into: &Connection) -> Vec<(&'static str, i64)> {
    if !is_there(from).unwrap_or(false) || make(into).is_err() {
        return Vec::new();
    }
    copy_tables(from, into, &["spent", "service_budget"])
}
