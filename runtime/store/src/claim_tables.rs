//! The table of [`super::claim`]. A damaged database's is not copied: whoever executes a run claims it anew.

use rusqlite::Connection;

use super::service_tables::has_table;

/// Whether a program has made it.
pub(super) fn is_there(db: &Connection) -> rusqlite::Result<bool> {
    has_table(db, "claims")
}

/// Makes it where it is not.
pub(super) fn make(db: &Connection) -> rusqlite::Result<()> {
    if !is_there(db)? {
        db.execute_batch(include_str!("claims.sql"))?;
    }
    Ok(())
}

/// Forgets who has claimed a run that is removed.
pub(super) fn forget(db: &Connection, run: &[u8]) -> rusqlite::Result<()> {
    if is_there(db)? {
        db.prepare_cached("DELETE FROM claims WHERE run = ?1")?.execute([run])?;
    }
    Ok(())
}
