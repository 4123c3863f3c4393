//! Reads journals as chains, from the start or from an earlier position.

use std::cell::{Cell, RefCell};

use rusqlite::{Connection, params, types};

use super::Store;
use super::error::StoreError;
use super::event::RunId;
use super::journal::{BEFORE_ALL, BrokenChain, Record, parse_record, read_head, record_text_of, run_number};
use super::statement::query_rows;
use lobster_base::digest::Digest;

/// Records read at a time.
const PAGE: i64 = 512;

/// Position in a journal, and a digest of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTo {
    seq: u64,
    hash: Digest,
    all: Digest,
}

impl Default for ReadTo {
    fn default() -> Self {
        Self { seq: 0, hash: BEFORE_ALL.into(), all: BEFORE_ALL.into() }
    }
}

impl ReadTo {
    /// Number of the last record that was read.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.seq
    }

    fn advance_to(&mut self, seq: u64, hash: Digest) {
        let mut both = [0; 64];
        both[..32].copy_from_slice(self.all.as_bytes());
        both[32..].copy_from_slice(hash.as_bytes());
        *self = Self { seq, hash, all: Digest::of_bytes(&both) };
    }
}

/// Result of [`Store::read_on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOn {
    /// The records read before are unchanged, and the rest follows from them.
    To(ReadTo),
    /// The records read before have changed.
    Other,
}

impl Store {
    /// Checks that the journal is exactly the chain that was written.
    ///
    /// # Errors
    /// [`StoreError::BrokenChain`] with the first wrong record.
    pub fn verify_chain(&self, run: RunId) -> Result<(), StoreError> {
        self.follow_chain(run, |_| {})
    }

    /// The whole journal, after checking that it is the chain that was written.
    ///
    /// # Errors
    /// As [`Store::verify_chain`].
    pub fn verified_events(&self, run: RunId) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        self.follow_chain(run, |record| records.push(record))?;
        Ok(records)
    }

    /// The readable records of a journal, for display: all of them if it is the chain that was written, otherwise the
    /// remaining ones and the damage.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn found_events(&self, run: RunId) -> Result<(Vec<Record>, Option<BrokenChain>), StoreError> {
        let (seq, why) = match self.verified_events(run) {
            Err(StoreError::BrokenChain { seq, why, .. }) => (seq, why),
            other => return Ok((other?, None)),
        };
        let left = self.inner.db.read_aside(|db| {
            let n = run_number(db, run)?;
            let sql = "SELECT seq, record FROM journal WHERE run = ?1 ORDER BY seq";
            query_rows(db, sql, [n], |row| {
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), record_text_of(row, 1)?))
            })
        })?;
        let records = left.into_iter().filter_map(|(seq, text)| parse_record(run, seq, text).ok()).collect();
        Ok((records, Some(BrokenChain { run: run.to_string(), seq, why })))
    }

    /// The records with these numbers, as far as they exist and can be read. The chain is not checked.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn events_at(&self, run: RunId, seqs: &[u64]) -> Result<Vec<Record>, StoreError> {
        self.inner.db.read_snapshot(|db| {
            // One transaction for all, since each statement would otherwise open one.
            let snapshot = db.unchecked_transaction()?;
            let n = run_number(&snapshot, run)?;
            let mut statement =
                snapshot.prepare_cached("SELECT record FROM journal WHERE run = ?1 AND seq = ?2")?;
            let mut records = Vec::with_capacity(seqs.len());
            for seq in seqs {
                let mut rows = statement.query(params![n, seq.cast_signed()])?;
                if let Some(row) = rows.next()? {
                    records.extend(parse_record(run, *seq, record_text_of(row, 0)?));
                }
            }
            Ok(records)
        })
    }

    /// Passes the records of a journal that contain a text to `each`, the latest first, until it returns false. The
    /// chain is not checked, and unreadable records are left out.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn events_holding(
        &self,
        run: RunId,
        text: &str,
        each: impl FnMut(Record) -> bool,
    ) -> Result<(), StoreError> {
        let each = RefCell::new(each);
        self.inner.db.read_aside(|db| {
            let n = run_number(db, run)?;
            let mut statement = db.prepare_cached(
                "SELECT seq, record FROM journal WHERE run = ?1 AND instr(record, ?2) ORDER BY seq DESC",
            )?;
            let mut rows = statement.query(params![n, text])?;
            while let Some(row) = rows.next()? {
                let seq = row.get::<_, i64>(0)?.cast_unsigned();
                if let Ok(record) = parse_record(run, seq, record_text_of(row, 1)?)
                    && !(each.borrow_mut())(record)
                {
                    break;
                }
            }
            Ok(())
        })
    }

    pub(super) fn follow_chain(&self, run: RunId, each: impl FnMut(Record)) -> Result<(), StoreError> {
        self.read_on(run, ReadTo::default(), each).map(drop)
    }

    /// Continues reading a journal after the position `known`. The earlier records are hashed again but not parsed,
    /// which detects changes to them in a tenth of the time.
    ///
    /// # Errors
    /// As [`Store::verify_chain`].
    pub fn read_on(&self, run: RunId, known: ReadTo, each: impl FnMut(Record)) -> Result<ReadOn, StoreError> {
        // If the database is damaged, records that were read before the damage was found are read again.
        let told = Cell::new(known.seq);
        let each = RefCell::new(each);
        self.inner.db.read_aside(|db| {
            // One transaction, so that the head matches the records.
            let snapshot = db.unchecked_transaction()?;
            let tell = |record: Record| {
                if record.seq > told.get() {
                    told.set(record.seq);
                    (each.borrow_mut())(record);
                }
            };
            read_new_records(&snapshot, run, known, tell)
        })
    }
}

fn read_new_records(
    snapshot: &Connection,
    run: RunId,
    known: ReadTo,
    tell: impl Fn(Record),
) -> Result<ReadOn, StoreError> {
    let broken = |seq, why: &str| StoreError::BrokenChain { run: run.to_string(), seq, why: why.to_owned() };
    let head = read_head(snapshot, run)?;
    if head.seq < known.seq {
        return Ok(ReadOn::Other);
    }
    let mut read = ReadTo::default();
    let mut statement = snapshot.prepare_cached(
        "SELECT seq, record FROM journal WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    loop {
        let mut rows = statement.query(params![head.n, read.seq.cast_signed(), PAGE])?;
        let before = read.seq;
        while let Some(row) = rows.next()? {
            let found = row.get::<_, i64>(0)?.cast_unsigned();
            if found != read.seq + 1 {
                return Err(broken(read.seq + 1, "it is missing"));
            }
            if found <= known.seq {
                let hash = match row.get_ref(1)? {
                    types::ValueRef::Text(bytes) | types::ValueRef::Blob(bytes) => Digest::of_bytes(bytes),
                    types::ValueRef::Null | types::ValueRef::Integer(_) | types::ValueRef::Real(_) => {
                        return Ok(ReadOn::Other);
                    }
                };
                read.advance_to(found, hash);
                if found == known.seq && read != known {
                    return Ok(ReadOn::Other);
                }
                continue;
            }
            let record = parse_record(run, found, record_text_of(row, 1)?)?;
            if record.prev != read.hash {
                return Err(broken(found, "it does not carry the hash of the record before"));
            }
            read.advance_to(found, record.hash());
            tell(record);
        }
        if read.seq == before {
            break;
        }
    }
    match read.seq.cmp(&head.seq) {
        std::cmp::Ordering::Less => Err(broken(read.seq + 1, "it and all after it are missing")),
        std::cmp::Ordering::Greater => Err(broken(head.seq + 1, "it was added beside the journal")),
        std::cmp::Ordering::Equal if read.hash != head.hash => {
            Err(broken(read.seq, "its hash is not the one that was recorded"))
        }
        std::cmp::Ordering::Equal => Ok(ReadOn::To(read)),
    }
}
