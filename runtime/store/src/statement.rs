//! Statements of SQL, prepared once for each connection.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::error::StoreError;

/// The rows that a statement returns, each read by `read`.
pub(super) fn query_rows<T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(values, read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The row that a statement returns, if any, read by `read`.
pub(super) fn query_one<T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    Ok(db.prepare_cached(sql)?.query_row(values, read).optional()?)
}

/// Executes a statement, and tells how many rows it changed.
pub(super) fn execute(db: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
    db.prepare_cached(sql)?.execute(values)
}
