//! Reads rows directly from the pages of a database file when the pages that lead to them are damaged. See "B-tree
//! Pages" and "Record Format" in SQLite's description of its file format (<https://www.sqlite.org/fileformat2.html>).
//!
//! A freed page may still hold old rows. This is therefore only for rows that never change and whose content can be
//! checked: records of journals, which are chained, and blobs, which are named by their hash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rusqlite::types::Value;

/// Page size of the database: SQLite's default.
pub(super) const PAGE: usize = 4096;

/// Type of a page that holds rows of a table.
const TABLE_LEAF: u8 = 13;

/// Limit above all rows of the store: a blob in the database has at most 64 KiB, and a record contains no payloads.
const MAX_ROW: usize = 16 << 20;

/// A row with its key.
pub(super) struct LeafRow {
    pub(super) key: i64,
    /// The key column is null here.
    pub(super) columns: Vec<Value>,
}

/// Calls `take` for each row with `columns` columns on any page of the file.
pub(super) fn visit_rows(file: &File, columns: usize, mut take: impl FnMut(LeafRow)) -> io::Result<()> {
    let pages = file.metadata()?.len() / PAGE as u64;
    for number in 1..=pages {
        let Some(page) = read_page(file, number) else { continue };
        let header = if number == 1 { 100 } else { 0 };
        if page[header] != TABLE_LEAF {
            continue;
        }
        let cells = usize::from(u16_at(&page, header + 3).unwrap_or(0));
        for cell in 0..cells {
            let at = u16_at(&page, header + 8 + 2 * cell).map(usize::from);
            if let Some(row) = at.and_then(|at| read_row(file, &page, at, columns)) {
                take(row);
            }
        }
    }
    Ok(())
}

fn read_page(file: &File, number: u64) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE];
    file.read_exact_at(&mut page, number.checked_sub(1)? * PAGE as u64).ok()?;
    Some(page)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number of one to nine bytes: seven bits of each byte, but all eight of a ninth.
fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for n in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if n == 8 {
            return Some(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn read_row(file: &File, page: &[u8], mut at: usize, columns: usize) -> Option<LeafRow> {
    let len = usize::try_from(read_varint(page, &mut at)?).ok().filter(|len| *len <= MAX_ROW)?;
    let key = read_varint(page, &mut at)?.cast_signed();
    let payload = read_payload(file, page, at, len)?;
    let mut at = 0;
    let header = usize::try_from(read_varint(&payload, &mut at)?).ok()?;
    let mut types = Vec::with_capacity(columns);
    while at < header {
        if types.len() == columns {
            return None;
        }
        types.push(read_varint(&payload, &mut at)?);
    }
    if types.len() != columns || at != header {
        return None;
    }
    let values =
        types.into_iter().map(|serial| read_column(&payload, &mut at, serial)).collect::<Option<_>>()?;
    Some(LeafRow { key, columns: values })
}

/// The bytes of a row, whose end may be on overflow pages.
fn read_payload(file: &File, page: &[u8], at: usize, len: usize) -> Option<Vec<u8>> {
    let most = PAGE - 35;
    if len <= most {
        return Some(page.get(at..at + len)?.to_vec());
    }
    let least = (PAGE - 12) * 32 / 255 - 23;
    let fitting = least + (len - least) % (PAGE - 4);
    let local = if fitting <= most { fitting } else { least };
    let mut payload = page.get(at..at + local)?.to_vec();
    let mut next = u32::from_be_bytes(page.get(at + local..at + local + 4)?.try_into().ok()?);
    while payload.len() < len {
        let more = read_page(file, u64::from(next))?;
        next = u32::from_be_bytes(more.get(..4)?.try_into().ok()?);
        let rest = (len - payload.len()).min(PAGE - 4);
        payload.extend_from_slice(&more[4..4 + rest]);
    }
    Some(payload)
}

fn read_column(payload: &[u8], at: &mut usize, serial: u64) -> Option<Value> {
    let mut take = |len: usize| {
        let bytes = payload.get(*at..at.checked_add(len)?)?;
        *at += len;
        Some(bytes)
    };
    let integer = |bytes: &[u8]| {
        let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
        bytes.iter().fold(sign, |value: i64, byte| value << 8 | i64::from(*byte))
    };
    Some(match serial {
        0 => Value::Null,
        1..=4 => Value::Integer(integer(take(usize::try_from(serial).ok()?)?)),
        5 => Value::Integer(integer(take(6)?)),
        6 => Value::Integer(integer(take(8)?)),
        7 => Value::Real(f64::from_be_bytes(take(8)?.try_into().ok()?)),
        8 => Value::Integer(0),
        9 => Value::Integer(1),
        10 | 11 => return None,
        _ => {
            let bytes = take(usize::try_from((serial - 12) / 2).ok()?)?;
            if serial.is_multiple_of(2) {
                Value::Blob(bytes.to_vec())
            } else {
                Value::Text(String::from_utf8(bytes.to_vec()).ok()?)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn rows_are_read_without_the_way_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA page_size = 4096; CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c)")
            .unwrap();
        for n in 0..2000_i64 {
            let text = "x".repeat(usize::try_from(n * 7 % 9000).unwrap());
            db.execute(
                "INSERT INTO t VALUES (?1, ?2, ?3, ?4)",
                (n + 1, n * n * n - 500, text, n as f64 / 3.0),
            )
            .unwrap();
        }
        drop(db);
        let mut found = Vec::new();
        visit_rows(&File::open(&path).unwrap(), 4, |row| found.push(row)).unwrap();
        found.sort_by_key(|row| row.key);
        assert_eq!(found.len(), 2000);
        for (n, row) in (0_i64..).zip(&found) {
            let text = "x".repeat(usize::try_from(n * 7 % 9000).unwrap());
            let real = if n % 3 == 0 { Value::Integer(n / 3) } else { Value::Real(n as f64 / 3.0) };
            assert_eq!(row.key, n + 1);
            assert_eq!(row.columns[..3], [Value::Null, Value::Integer(n * n * n - 500), Value::Text(text)]);
            assert!(row.columns[3] == real || row.columns[3] == Value::Real(n as f64 / 3.0));
        }
    }

    /// Reading a page with arbitrary bytes ends, and returns no more than the page contains.
    #[test]
    fn any_bytes_can_be_a_page() {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..300 {
            let mut bytes = vec![0; 3 * PAGE];
            for byte in &mut bytes {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                *byte = seed.to_le_bytes()[0];
            }
            bytes[PAGE] = TABLE_LEAF;
            bytes[2 * PAGE] = TABLE_LEAF;
            let path = dir.path().join("pages");
            std::fs::write(&path, &bytes).unwrap();
            visit_rows(&File::open(&path).unwrap(), 4, |_| {}).unwrap();
        }
    }
}
