//! Checks the tables of the service: rows must be readable, and the rows that they refer to must exist.

use rusqlite::Connection;

use super::Service;
use crate::error::StoreError;

/// A damaged row.
pub(crate) struct WrongRow {
    /// The table and the row's number or name.
    pub(crate) row: String,
    pub(crate) why: &'static str,
}

/// The checks: table, message, and a statement that finds the wrong rows.
const CHECKS: &[(&str, &str, &str)] = &[
    ("workflows", "its digest is malformed", "SELECT name FROM workflows WHERE length(digest) <> 32"),
    ("workflows", "its content is not JSON", "SELECT name FROM workflows WHERE NOT json_valid(content)"),
    (
        "schedules",
        "it belongs to no workflow",
        "SELECT n FROM schedules WHERE workflow NOT IN (SELECT n FROM workflows)",
    ),
    ("schedules", "what it says is not JSON", "SELECT n FROM schedules WHERE NOT json_valid(spec)"),
    (
        "ticks",
        "it belongs to no schedule",
        "SELECT n FROM ticks WHERE schedule NOT IN (SELECT n FROM schedules)",
    ),
    (
        "ticks",
        "its state is unknown",
        "SELECT n FROM ticks WHERE state NOT IN
         ('fired', 'caught_up', 'missed', 'skipped', 'paused', 'superseded', 'backfilled')",
    ),
    (
        "ticks",
        // 0 means that the ticks were not counted.
        "it must be for one tick with a run, or for ticks without a run",
        "SELECT n FROM ticks WHERE count < 0 OR last < due OR (count <> 1 AND run IS NOT NULL)",
    ),
    (
        "ticks",
        "its run is unknown",
        "SELECT n FROM ticks WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM starts)
         AND n NOT IN (SELECT max(n) FROM ticks GROUP BY schedule) AND run NOT IN (SELECT id FROM runs)
         AND last >= (SELECT coalesce(min(queued), 0) FROM starts)",
    ),
    (
        "ticks",
        "two ticks have one run",
        "SELECT min(n) FROM ticks WHERE run IS NOT NULL GROUP BY run HAVING count(*) > 1",
    ),
    (
        "starts",
        "it belongs to no workflow",
        "SELECT n FROM starts WHERE workflow NOT IN (SELECT n FROM workflows)",
    ),
    (
        "starts",
        "its id or its digest is malformed",
        "SELECT n FROM starts WHERE length(run) <> 16 OR length(digest) <> 32",
    ),
    (
        "starts",
        "its arguments are not JSON",
        "SELECT n FROM starts WHERE NOT json_valid(args) OR NOT json_valid(detail)",
    ),
    (
        "starts",
        "its state is unknown",
        "SELECT n FROM starts WHERE state NOT IN ('queued', 'taken', 'parked', 'over', 'refused', 'withdrawn')",
    ),
    (
        "starts",
        "it waits, but its run is missing",
        "SELECT n FROM starts WHERE state = 'parked' AND run NOT IN (SELECT id FROM runs)",
    ),
    (
        "waits",
        "the waiting run has no start",
        "SELECT n FROM waits WHERE run NOT IN (SELECT run FROM starts)",
    ),
    ("events", "its data is not JSON", "SELECT n FROM events WHERE NOT json_valid(data)"),
    (
        "deliveries",
        "its id or its digest is malformed",
        "SELECT n FROM deliveries WHERE length(digest) <> 32 OR id = '' OR (run IS NOT NULL AND length(run) <> 16)",
    ),
    ("credentials", "its secret is not a digest", "SELECT id FROM credentials WHERE length(hash) <> 32"),
    ("trail", "what was done is not JSON", "SELECT n FROM trail WHERE NOT json_valid(detail)"),
    ("notices", "its content is not JSON", "SELECT n FROM notices WHERE NOT json_valid(content)"),
    (
        "notices",
        "its state is unknown",
        "SELECT n FROM notices WHERE state NOT IN ('queued', 'sent', 'failed')",
    ),
];

/// Most rows listed for one check.
const NAMED: usize = 100;

impl Service {
    /// All wrong rows in the service's tables.
    ///
    /// # Errors
    /// If the tables cannot be read at all.
    pub(crate) fn wrong_rows(&self) -> Result<Vec<WrongRow>, StoreError> {
        self.read_snapshot(|db| {
            let mut wrong = Vec::new();
            for (table, why, sql) in CHECKS {
                wrong.extend(
                    find_rows(db, sql)?
                        .into_iter()
                        .map(|row| WrongRow { row: format!("{table} {row}"), why }),
                );
            }
            Ok(wrong)
        })
    }
}

fn find_rows(db: &Connection, sql: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while names.len() < NAMED
        && let Some(row) = rows.next()?
    {
        names.push(match row.get_ref(0)? {
            rusqlite::types::ValueRef::Integer(n) => n.to_string(),
            other => other.as_str().unwrap_or("?").to_owned(),
        });
    }
    Ok(names)
}
