//! The tables of [`super::service`]: their creation, and copying them from a damaged database. It depends on nothing
//! else in the store, so that code that opens or rescues one can use it.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

/// The layout that this code reads and writes.
pub(super) const VERSION: i64 = 4;

/// Additions of layout 2 and each later one.
const LATER: [&str; 3] = [
    include_str!("service/schema_2.sql"),
    include_str!("service/schema_3.sql"),
    include_str!("service/schema_4.sql"),
];

/// All tables except two: the table with the version of the layout, and the table of challenges, which are valid for
/// minutes. A new key makes earlier challenges invalid.
const TABLES: [&str; 14] = [
    "workflows",
    "schedules",
    "ticks",
    "starts",
    "deliveries",
    "credentials",
    "passkeys",
    "trail",
    "servers",
    "waits",
    "events",
    "taken_events",
    "notices",
    "watched",
];

/// Creates the tables, empty.
pub(super) fn create_tables(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(include_str!("service/schema.sql"))?;
    for layout in LATER {
        db.execute_batch(layout)?;
    }
    db.execute("INSERT INTO service (key, value) VALUES ('version', ?1)", [VERSION])?;
    Ok(())
}

/// Converts tables of an earlier layout to this one.
pub(super) fn upgrade_tables(db: &Connection, from: i64) -> rusqlite::Result<()> {
    let known = usize::try_from(from - 1).unwrap_or_default();
    for layout in LATER.iter().skip(known) {
        db.execute_batch(layout)?;
    }
    db.execute("UPDATE service SET value = ?1 WHERE key = 'version'", [VERSION])?;
    Ok(())
}

/// True if the database has the table.
pub(super) fn has_table(db: &Connection, name: &str) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?.exists([name])
}

/// The layout of the tables, if they exist.
pub(super) fn layout_version(db: &Connection) -> rusqlite::Result<Option<i64>> {
    if !has_table(db, "service")? {
        return Ok(None);
    }
    let mut found = db.prepare_cached("SELECT value FROM service WHERE key = 'version'")?;
    found.query_row([], |row| row.get(0)).optional()
}

/// Copies the readable rows of a damaged database's tables. Returns the tables with lost rows, each with the number of
/// copied rows.
pub(super) fn copy_readable(from: &Connection, into: &Connection) -> Vec<(&'static str, i64)> {
    if !matches!(layout_version(from), Ok(Some(..=VERSION))) || create_tables(into).is_err() {
        return Vec::new();
    }
    copy_tables(from, into, &TABLES)
}

/// The same for the given tables, which exist on both sides or are lost.
pub(super) fn copy_tables(
    from: &Connection,
    into: &Connection,
    tables: &[&'static str],
) -> Vec<(&'static str, i64)> {
    // A table counts as existing if this cannot be determined, and is then reported as lost.
    let is_there = |table: &&str| has_table(from, table).unwrap_or(true);
    let copied = tables.iter().copied().filter(is_there).map(|table| {
        let mut copied = 0;
        let whole = copy_table(from, into, table, &mut copied).is_ok();
        (table, copied, whole)
    });
    copied.filter(|(.., whole)| !whole).map(|(table, copied, _)| (table, copied)).collect()
}

fn copy_table(from: &Connection, into: &Connection, table: &str, copied: &mut i64) -> rusqlite::Result<()> {
    let mut select = from.prepare(&format!("SELECT * FROM {table}"))?;
    let columns = select.column_count();
    // By name, since tables of an earlier layout lack later columns.
    let names: Vec<&str> = select.column_names().collect();
    let names = names.join(", ");
    let marks = vec!["?"; columns].join(", ");
    let mut insert = into.prepare(&format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let values: Vec<Value> = (0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?;
        insert.execute(params_from_iter(values))?;
        *copied += 1;
    }
    Ok(())
}
