//! The tables of [`super::service`]: how they are made, and how those of a damaged database are copied.
//! Needs nothing of the store, so that whatever opens or rescues one may use it.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

/// The layout that this code reads and writes.
pub(super) const VERSION: i64 = 1;

/// All but the one that names the layout.
const TABLES: [&str; 8] =
    ["workflows", "schedules", "ticks", "starts", "deliveries", "credentials", "trail", "servers"];

/// Makes the tables, empty.
pub(super) fn make(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(include_str!("service/schema.sql"))?;
    db.execute("INSERT INTO service (key, value) VALUES ('version', ?1)", [VERSION])?;
    Ok(())
}

/// The layout of the tables, if they are there.
pub(super) fn version(db: &Connection) -> rusqlite::Result<Option<i64>> {
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'service'";
    if !db.prepare_cached(there)?.exists([])? {
        return Ok(None);
    }
    let mut found = db.prepare_cached("SELECT value FROM service WHERE key = 'version'")?;
    found.query_row([], |row| row.get(0)).optional()
}

/// Copies what can be read of the tables of a damaged database. Gives the tables of which rows are lost,
/// each with how many were copied.
pub(super) fn copy(from: &Connection, into: &Connection) -> Vec<(&'static str, i64)> {
    if !matches!(version(from), Ok(Some(VERSION))) || make(into).is_err() {
        return Vec::new();
    }
    let copied = TABLES.into_iter().map(|table| {
        let mut copied = 0;
        let whole = copy_table(from, into, table, &mut copied).is_ok();
        (table, copied, whole)
    });
    copied.filter(|(.., whole)| !whole).map(|(table, copied, _)| (table, copied)).collect()
}

fn copy_table(from: &Connection, into: &Connection, table: &str, copied: &mut i64) -> rusqlite::Result<()> {
    let mut select = from.prepare(&format!("SELECT * FROM {table}"))?;
    let columns = select.column_count();
    let marks = vec!["?"; columns].join(", ");
    let mut insert = into.prepare(&format!("INSERT OR IGNORE INTO {table} VALUES ({marks})"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let values: Vec<Value> = (0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?;
        insert.execute(params_from_iter(values))?;
        *copied += 1;
    }
    Ok(())
}
