//! The table of [`super::claim`]. It is not copied from a damaged database, since runs are claimed again.

use rusqlite::Connection;

use super::service_tables::has_table;
use super::statement::execute;

/// True if the table exists.
pub(super) fn is_there(db: &Connection) -> rusqlite::Result<bool> {
    has_table(db, "claims")
}

/// Creates the table if it is missing.
pub(super) fn create_if_missing(db: &Connection) -> rusqlite::Result<()> {
    if !is_there(db)? {
        db.execute_batch(include_str!("claims.sql"))?;
    }
    Ok(())
}

/// Removes the claim of a run that is being removed.
pub(super) fn remove_claim(db: &Connection, run: &[u8]) -> rusqlite::Result<()> {
    if is_there(db)? {
        execute(db, "DELETE FROM claims WHERE run = ?1", [run])?;
    }
    Ok(())
}
