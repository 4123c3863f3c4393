//! Copies the readable part of a damaged database into a new one.
//!
//! SQLite stops at the first damaged page, however it is reached. Here each table is walked by its key: if a row
//! cannot be read, the walk looks for the next readable key after the damage and continues there. Indexes are not
//! used, but rebuilt. A run whose row is lost is rebuilt from its journal.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::Serialize;

use super::db;
use super::error::StoreError;
use super::event::RunId;
use super::journal::{Record, parse_record};
use super::leaves::{self, LeafRow, PAGE};
use super::service_tables;
use super::spent_tables;
use super::statement::query_rows;
use super::store_name;
use super::verify::update_summary;
use super::wal_file::log_path;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::regular_file;

/// Tables with a growing number as their key, and the name of that key.
const NUMBERED: [(&str, &str); 5] =
    [("runs", "n"), ("journal", "id"), ("blobs", "id"), ("gates", "n"), ("actions", "n")];

/// Rows read by one statement.
const ROWS_AT_ONCE: usize = 1000;

/// Most keys that are skipped when the walk looks for the end of the damage.
const FARTHEST: i64 = 1 << 40;

/// Unreadable rows of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostRows {
    pub table: &'static str,
    /// First key that may have existed. The last one is in `last`.
    pub first: i64,
    /// `None` if nothing after the damage can be read either.
    pub last: Option<i64>,
}

impl fmt::Display for LostRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Some(last) if last == self.first => write!(f, "{} {last} cannot be read", self.table),
            Some(last) => write!(f, "{} {} to {last} cannot be read", self.table, self.first),
            None => write!(f, "{} from {} on cannot be read", self.table, self.first),
        }
    }
}

/// Result of a rescue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rescued {
    pub lost: Vec<LostRows>,
    /// Runs whose row was lost and rebuilt from their journal.
    pub rebuilt: Vec<RunId>,
}

/// Copies everything that can be read from the database at `source` into a new one in `target`. Blob files are not
/// touched.
pub(super) fn rescue_database(source: &Path, target: &Path) -> Result<(Connection, Rescued), StoreError> {
    let mut best: Option<(u64, Connection, Rescued)> = None;
    for layout in [Layout::Own, Layout::WithoutLog, Layout::NewStore, Layout::Backup] {
        let place = target.join(layout.dir_name());
        let Ok((found, rescued)) = rescue_as(source, &place, layout) else { continue };
        let records: i64 = found.query_row("SELECT count(*) FROM journal", [], |row| row.get(0))?;
        let records = records.cast_unsigned();
        if best.as_ref().is_none_or(|(most, ..)| records > *most) {
            best = Some((records, found, rescued));
        }
        // A log that belongs to other pages can hide everything, and without it there may be something to read. A log
        // that hides only a part is used, because it may contain an answer that must not be given again.
        if matches!(layout, Layout::Own | Layout::WithoutLog) && records > 0 {
            break;
        }
    }
    let (_, connection, rescued) = best.ok_or_else(|| StoreError::Damaged {
        path: source.to_owned(),
        what: "nothing of it can be read".to_owned(),
    })?;
    Ok((connection, rescued))
}

/// Position of the tables in a database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// As its own first pages say.
    Own,
    /// As its first pages said before the changes in the log.
    WithoutLog,
    /// As in a new store, since all have the same layout.
    NewStore,
    /// As in a backup.
    Backup,
}

impl Layout {
    fn dir_name(self) -> &'static str {
        match self {
            Self::Own => "rescued",
            Self::WithoutLog => "rescued-without-log",
            Self::NewStore => "rescued-by-layout",
            Self::Backup => "rescued-as-backup",
        }
    }
}

fn rescue_as(source: &Path, target: &Path, layout: Layout) -> Result<(Connection, Rescued), StoreError> {
    let copy = target.join("lobster.db");
    db::create_database(target, &copy)?;
    let into = db::open_connection(&copy)?;
    into.execute_batch("PRAGMA synchronous = OFF")?;
    let from = match layout {
        Layout::Own => db::open_connection(source)?,
        Layout::WithoutLog => db::connect_immutable(source)?,
        Layout::NewStore | Layout::Backup => open_with_layout(source, &target.join("from"), layout)?,
    };
    let mut rescued = Rescued::default();
    into.execute_batch("BEGIN")?;
    for (table, key) in NUMBERED {
        copy_table(&from, &into, table, key, &mut rescued.lost)?;
    }
    if rescued.lost.iter().any(|rows| rows.first != rows.last.unwrap_or(i64::MAX)) {
        copy_leaves(source, &target.join("pages"), &into)?;
    }
    rebuild_runs(&into, &mut rescued)?;
    copy_values(&from, &into)?;
    copy_counters(&from, &into);
    if store_name::make_table(&into).is_ok() {
        service_tables::copy_tables(&from, &into, &[store_name::TABLE]);
    }
    if matches!(layout, Layout::Own | Layout::WithoutLog) {
        // The other layouts do not include tables that are created later.
        let lost =
            [service_tables::copy_readable(&from, &into), spent_tables::copy_readable(&from, &into)].concat();
        rescued.lost.extend(lost.into_iter().map(|(table, copied)| LostRows {
            table,
            first: copied + 1,
            last: None,
        }));
    }
    into.execute_batch("COMMIT")?;
    Ok((into, rescued))
}

/// Adds records and blobs from pages that no other page leads to any more.
fn copy_leaves(source: &Path, scratch: &Path, into: &Connection) -> Result<(), StoreError> {
    fs::create_dir_all(scratch).map_err(|e| StoreError::io("write in", scratch, e))?;
    let copy = scratch.join("pages.db");
    copy_files(source, &copy)?;
    // Writes the content of the log to its pages. If that fails, the pages are older, but their content is still
    // valid.
    if let Ok(db) = db::open_connection(&copy) {
        let _ = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    let failed = |e| StoreError::io("read", source, e);
    let file = File::open(&copy).map_err(failed)?;
    let mut record =
        into.prepare("INSERT OR IGNORE INTO journal (id, run, seq, record) VALUES (?1, ?2, ?3, ?4)")?;
    leaves::visit_rows(&file, 4, |LeafRow { key, columns }| {
        if let [Value::Null, Value::Integer(run), Value::Integer(seq), Value::Text(text)] = columns.as_slice()
            && text.starts_with("{\"run\":")
        {
            let _ = record.execute(params![key, run, seq, text]);
        }
    })
    .map_err(failed)?;
    let mut blob = into.prepare(
        "INSERT OR IGNORE INTO blobs (id, digest, len, touched, data) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    leaves::visit_rows(&file, 5, |LeafRow { key, columns }| {
        let [Value::Null, Value::Blob(digest), Value::Integer(len), Value::Integer(touched), data] =
            columns.as_slice()
        else {
            return;
        };
        let whole = match data {
            Value::Blob(bytes) => Digest::of_bytes(bytes).as_bytes().as_slice() == digest.as_slice(),
            Value::Null => digest.len() == 32,
            Value::Integer(_) | Value::Real(_) | Value::Text(_) => false,
        };
        if whole {
            let _ = blob.execute(params![key, digest, len, touched, data]);
        }
    })
    .map_err(failed)?;
    Ok(())
}

/// Copies the database and its log as files.
fn copy_files(source: &Path, copy: &Path) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("copy", source, e);
    for (from, to) in [(source.to_owned(), copy.to_owned()), (log_path(source), log_path(copy))] {
        if from.exists() {
            let copy = || -> io::Result<()> {
                let mut source = regular_file::open(&from)?;
                let mut copy =
                    File::options().write(true).create(true).truncate(true).mode(0o600).open(&to)?;
                io::copy(&mut source, &mut copy).map(drop)
            };
            copy().map_err(failed)?;
        }
    }
    Ok(())
}

/// Opens a copy of the database in which the first page and the pages with the position of each table come from a new
/// database.
fn open_with_layout(source: &Path, scratch: &Path, layout: Layout) -> Result<Connection, StoreError> {
    let failed = |e| StoreError::io("copy", source, e);
    let fresh = scratch.join("fresh");
    db::create_database(&fresh, &fresh.join("lobster.db"))?;
    let mut model = fresh.join("lobster.db");
    if layout == Layout::Backup {
        let vacuumed = fresh.join("vacuumed.db");
        db::open_connection(&model)?.execute("VACUUM INTO ?1", [vacuumed.to_string_lossy()])?;
        model = vacuumed;
    }
    let copy = scratch.join("damaged.db");
    copy_files(source, &copy)?;
    let patch = || -> io::Result<()> {
        let model = fs::read(&model)?;
        let file = File::options().write(true).open(&copy)?;
        let pages = file.metadata()?.len() / PAGE as u64;
        for number in schema_pages(&model) {
            let from = (number - 1) * PAGE;
            let Some(page) = model.get(from..from + PAGE) else { continue };
            let mut page = page.to_vec();
            if number == 1 {
                // The size in pages, and the version of a database with a log ("The Database Header").
                page[28..32].copy_from_slice(&u32::try_from(pages).unwrap_or(u32::MAX).to_be_bytes());
                page[18..20].copy_from_slice(&[2, 2]);
            }
            file.write_all_at(&page, from as u64)?;
        }
        Ok(())
    };
    patch().map_err(failed)?;
    db::open_connection(&copy)
}

/// The pages that list the tables: the first, and those it leads to ("B-tree Pages" of SQLite's file format).
fn schema_pages(database: &[u8]) -> Vec<usize> {
    const INTERIOR: u8 = 5;
    const HEADER: usize = 100;
    let mut pages = vec![1];
    let number = |at: usize| -> usize {
        let bytes = database.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map_or(0, |bytes| u32::from_be_bytes(bytes) as usize)
    };
    if database.get(HEADER) != Some(&INTERIOR) {
        return pages;
    }
    pages.push(number(HEADER + 8));
    let cells = number(HEADER + 1) >> 16;
    for cell in 0..cells {
        let pointer = number(HEADER + 12 + 2 * cell) >> 16;
        pages.push(number(pointer));
    }
    pages.retain(|page| *page > 0);
    pages
}

fn copy_table(
    from: &Connection,
    into: &Connection,
    table: &'static str,
    key: &str,
    lost: &mut Vec<LostRows>,
) -> Result<(), StoreError> {
    let columns = into.prepare(&format!("SELECT * FROM {table}"))?.column_count();
    let places = vec!["?"; columns].join(", ");
    let mut insert = into.prepare(&format!("INSERT OR IGNORE INTO {table} VALUES ({places})"))?;
    let mut walk = Walk { db: from, table, key, after: 0 };
    loop {
        let page = walk.read_page(|row| {
            let values: Option<Vec<Value>> = (0..columns).map(|column| read_value(row, column)).collect();
            match values {
                Some(values) => insert.execute(params_from_iter(values)).map(|_| true).or(Ok(false)),
                None => Ok(false),
            }
        });
        lost.extend(page.refused.into_iter().map(|at| LostRows { table, first: at, last: Some(at) }));
        match page.end {
            PageEnd::More => {}
            PageEnd::Over => return Ok(()),
            PageEnd::Damaged => {
                let first = walk.after + 1;
                let next = walk.next_readable();
                lost.push(LostRows { table, first, last: next.map(|next| next - 1) });
                match next {
                    Some(next) => walk.after = next - 1,
                    None => return Ok(()),
                }
            }
        }
    }
}

/// A column as it is stored; `None` if it is text, but not UTF-8.
fn read_value(row: &Row<'_>, column: usize) -> Option<Value> {
    Some(match row.get_ref(column).ok()? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8(text.to_vec()).ok()?),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    })
}

/// A walk over a table by its key.
struct Walk<'a> {
    db: &'a Connection,
    table: &'a str,
    key: &'a str,
    /// The key of the last row read.
    after: i64,
}

struct Page {
    /// Keys of rows that were not accepted.
    refused: Vec<i64>,
    end: PageEnd,
}

enum PageEnd {
    More,
    Over,
    Damaged,
}

impl Walk<'_> {
    /// Reads until the page is full, the table ends or a row cannot be read.
    fn read_page(&mut self, mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>) -> Page {
        let mut page = Page { refused: Vec::new(), end: PageEnd::Damaged };
        let (table, key) = (self.table, self.key);
        let sql =
            format!("SELECT * FROM {table} NOT INDEXED WHERE {key} > ?1 ORDER BY {key} LIMIT {ROWS_AT_ONCE}");
        let Ok(mut statement) = self.db.prepare_cached(&sql) else { return page };
        let Ok(mut rows) = statement.query([self.after]) else { return page };
        let mut count = 0;
        loop {
            match rows.next() {
                Ok(Some(row)) => {
                    let Ok(at) = row.get::<_, i64>(0) else { return page };
                    if !take(row).unwrap_or(false) {
                        page.refused.push(at);
                    }
                    self.after = at;
                    count += 1;
                }
                Ok(None) => {
                    page.end = if count < ROWS_AT_ONCE { PageEnd::Over } else { PageEnd::More };
                    return page;
                }
                Err(_) => return page,
            }
        }
    }

    /// The lowest key after the damage from which a row can be read.
    fn next_readable(&self) -> Option<i64> {
        let mut step = 1;
        let mut reached = self.next_readable_key(self.after + step);
        while reached.is_err() {
            step *= 2;
            if step > FARTHEST {
                return None;
            }
            reached = self.next_readable_key(self.after + step);
        }
        // Finds the first readable position between the two.
        let (mut failing, mut working) = (self.after + step / 2, self.after + step);
        while working - failing > 1 {
            let middle = failing + (working - failing) / 2;
            match self.next_readable_key(middle) {
                Ok(key) => (working, reached) = (middle, Ok(key)),
                Err(_) => failing = middle,
            }
        }
        reached.ok().flatten()
    }

    /// The next key after `after`, if it can be reached.
    fn next_readable_key(&self, after: i64) -> rusqlite::Result<Option<i64>> {
        let (table, key) = (self.table, self.key);
        let sql = format!("SELECT * FROM {table} NOT INDEXED WHERE {key} > ?1 ORDER BY {key} LIMIT 1");
        self.db.prepare_cached(&sql)?.query_row([after], |row| row.get(0)).optional()
    }
}

/// Rebuilds runs whose row is lost and whose journal contains their start.
fn rebuild_runs(db: &Connection, rescued: &mut Rescued) -> Result<(), StoreError> {
    let sql = "SELECT DISTINCT run FROM journal WHERE run NOT IN (SELECT n FROM runs) ORDER BY run";
    for n in query_rows(db, sql, [], |row| row.get::<_, i64>(0))? {
        if let Some(run) = rebuild_run(db, n)? {
            rescued.rebuilt.push(run);
        }
    }
    Ok(())
}

fn rebuild_run(db: &Connection, n: i64) -> Result<Option<RunId>, StoreError> {
    let mut statement = db.prepare_cached("SELECT seq, record FROM journal WHERE run = ?1 ORDER BY seq")?;
    let mut rows = statement.query([n])?;
    let mut told = None;
    let mut head: Option<Record> = None;
    while let Some(row) = rows.next()? {
        let (seq, text): (i64, String) = (row.get(0)?, row.get(1)?);
        let run = match &head {
            Some(record) => Some(record.run),
            None => json::parse(&text).ok().and_then(|value| value["run"].as_str()?.parse().ok()),
        };
        let Some(run) = run else { return Ok(None) };
        let Ok(record) = parse_record(run, seq.cast_unsigned(), text) else { break };
        let follows = head
            .as_ref()
            .map_or(record.seq == 1, |before| record.seq == before.seq + 1 && record.prev == before.hash());
        if !follows {
            break;
        }
        update_summary(&mut told, &record);
        head = Some(record);
    }
    let (Some(told), Some(head)) = (told, head) else { return Ok(None) };
    db.execute(
        "INSERT OR IGNORE INTO runs (n, id, name, kind, status, mode, actor, cwd, parent, plan, args, started, ended, output, error, head_seq, head)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        params![
            n,
            told.id.as_bytes(),
            told.name,
            told.kind,
            told.status.as_str(),
            told.mode,
            told.actor,
            told.cwd,
            told.parent.as_ref().map(RunId::as_bytes),
            told.plan.as_bytes(),
            told.args.as_ref().map(Digest::as_bytes),
            told.started_at,
            told.ended_at,
            told.output.as_ref().map(Digest::as_bytes),
            told.error,
            head.seq.cast_signed(),
            head.hash().as_bytes(),
        ],
    )?;
    Ok(Some(told.id))
}

/// Copies the values of runs, run by run, since the table has no number to walk by.
fn copy_values(from: &Connection, into: &Connection) -> Result<(), StoreError> {
    let runs = query_rows(into, "SELECT n FROM runs ORDER BY n", [], |row| row.get::<_, i64>(0))?;
    let mut insert =
        into.prepare("INSERT OR IGNORE INTO run_values (run, key, value) VALUES (?1, ?2, ?3)")?;
    for run in runs {
        let Ok(mut statement) = from.prepare_cached("SELECT key, value FROM run_values WHERE run = ?1")
        else {
            return Ok(());
        };
        let Ok(mut rows) = statement.query([run]) else { continue };
        while let Ok(Some(row)) = rows.next() {
            if let (Some(key), Some(value)) = (read_value(row, 0), read_value(row, 1)) {
                insert.execute(params![run, key, value])?;
            }
        }
    }
    Ok(())
}

/// Copies the counters, so that no number is used twice.
fn copy_counters(from: &Connection, into: &Connection) {
    let read = || -> rusqlite::Result<Vec<(String, i64)>> {
        let mut statement = from.prepare("SELECT name, seq FROM sqlite_sequence")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    for (name, seq) in read().unwrap_or_default() {
        let raised =
            into.execute("UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1", params![name, seq]);
        if let Ok(0) = raised {
            let _ =
                into.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", params![name, seq]);
        }
    }
}
