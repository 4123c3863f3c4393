//! Transfer of runs between stores: the data that belongs to a run, and importing it.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, Transaction, params};
use serde::{Deserialize, Serialize};

use super::Store;
use super::blob::Blob;
use super::db::Durability;
use super::error::StoreError;
use super::event::{Event, RunId, RunStatus};
use super::journal::{Record, insert_run, parse_record, read_head, record_text_of};
use super::named_blobs::{NAMES_AT_MOST, digests_in};
use super::statement::query_rows;
use lobster_base::digest::Digest;
use lobster_base::json;

/// Parts that were left out of a run when it was exported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Redacted {
    /// Steps whose payload is missing.
    pub steps: Vec<String>,
    /// Blobs that the run names and that are missing.
    pub blobs: Vec<Digest>,
}

/// Key of the run value that holds them.
const REDACTED: &str = "\0redacted";

/// Key of the run value that marks an imported run as resumable: it may also continue in its original store.
const COPY: &str = "\0copy";

/// Key of the run value with the number of imported records, for finished and unfinished runs. It stays as long as the
/// run.
const IMPORTED: &str = "\0imported";

/// Prefix of the keys that components cannot set.
pub(super) const RESERVED: char = '\0';

impl Store {
    /// Parts that were left out of a run when it was exported.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn redacted_parts(&self, run: RunId) -> Result<Redacted, StoreError> {
        let Some(value) = self.run_value(run, REDACTED)? else { return Ok(Redacted::default()) };
        serde_json::from_value(value)
            .map_err(|e| StoreError::Json { what: "the note on what was redacted", source: e.into() })
    }

    /// True if the run was imported unfinished and has not been taken over: it may still continue in its original
    /// store.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn is_copy(&self, run: RunId) -> Result<bool, StoreError> {
        Ok(self.run_value(run, COPY)?.is_some())
    }

    /// Number of imported records of a run: they are the first of its journal and were written elsewhere. Nothing may
    /// be done on the basis of their content.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn imported_records(&self, run: RunId) -> Result<Option<u64>, StoreError> {
        match self.run_value(run, IMPORTED)? {
            // Another value was not written by lobster; then none of the run's records are trusted.
            Some(value) => Ok(Some(value.as_u64().unwrap_or(u64::MAX))),
            // Earlier versions marked only copies.
            None if self.is_copy(run)? => Ok(Some(self.run(run)?.records)),
            None => Ok(None),
        }
    }

    /// Takes over an imported run and appends the event that continues it, in one transaction.
    ///
    /// # Errors
    /// [`StoreError::CalledOff`]; also fails if there is no such run, or it cannot be written.
    pub fn take_over(&self, run: RunId, event: Event) -> Result<(), StoreError> {
        self.write_transaction(Durability::Synced, |tx| {
            let mut head = read_head(tx, run)?;
            if let Some(refused) = head.called_off(tx)? {
                return Err(refused);
            }
            tx.execute("DELETE FROM run_values WHERE run = ?1 AND key = ?2", params![head.n, COPY])?;
            tx.execute(
                "INSERT OR IGNORE INTO run_values (run, key, value) VALUES (?1, ?2, ?3)",
                params![head.n, IMPORTED, head.seq.to_string()],
            )?;
            self.append_to(tx, &mut head, self.now(), &[event])
        })
    }

    /// The same error, or a more precise one if the blob was left out of `run` when it was exported.
    #[must_use]
    pub fn explain_error(&self, run: RunId, error: StoreError) -> StoreError {
        match error {
            StoreError::MissingBlob(digest)
                if self.redacted_parts(run).is_ok_and(|redacted| redacted.blobs.contains(&digest)) =>
            {
                StoreError::RedactedBlob(digest)
            }
            other => other,
        }
    }

    /// True if a blob was left out of any imported run.
    pub(super) fn is_left_out(&self, digest: &Digest) -> bool {
        let found = self.inner.db.read_snapshot(|db| {
            let mut statement =
                db.prepare_cached("SELECT 1 FROM run_values WHERE key = ?1 AND instr(value, ?2) > 0")?;
            Ok(statement.exists(params![REDACTED, digest.to_string()])?)
        });
        found.unwrap_or(false)
    }

    /// All stored blobs that the journal of `run` names, and the blobs that these name in turn, each once and in the
    /// order in which they are first named.
    ///
    /// # Errors
    /// If there is no such run, or a blob cannot be read.
    pub fn blobs_of_run(&self, run: RunId) -> Result<Vec<Blob>, StoreError> {
        let mut seen = HashSet::new();
        let mut blobs = Vec::new();
        let mut seq = 0;
        loop {
            let page = self.events_after(run, seq, 500)?;
            let Some(last) = page.last() else { return Ok(blobs) };
            seq = last.seq;
            for record in &page {
                self.collect_named(record.text.as_bytes(), &mut seen, &mut blobs)?;
            }
        }
    }

    fn collect_named(
        &self,
        text: &[u8],
        seen: &mut HashSet<Digest>,
        blobs: &mut Vec<Blob>,
    ) -> Result<(), StoreError> {
        let mut named = Vec::new();
        digests_in(text, |digest| named.push(digest));
        named.reverse();
        while let Some(digest) = named.pop() {
            if !seen.insert(digest) {
                continue;
            }
            let Some(len) = self.blob_len(&digest)? else { continue };
            blobs.push(Blob { digest, len });
            if len > NAMES_AT_MOST {
                continue;
            }
            let content = self.load_blob(&digest, NAMES_AT_MOST)?;
            if matches!(content.first(), Some(b'{' | b'[')) {
                let from = named.len();
                digests_in(&content, |digest| named.push(digest));
                named[from..].reverse();
            }
        }
        Ok(())
    }

    /// Imports a journal, given as the texts of its records in order. The chain is checked first, and a broken one is
    /// rejected as a whole. The blobs are recorded separately, preferably before; `redacted` lists the blobs that will
    /// never be. If the run was imported before it was over, and has not been taken over, its later records are added.
    ///
    /// # Errors
    /// [`StoreError::BrokenChain`]; [`StoreError::RunExists`]; [`StoreError::Refused`] if the journal differs from the
    /// stored one, is shorter, or the run could continue in this store; also fails if it cannot be written.
    pub fn import_run(&self, texts: Vec<String>, redacted: &Redacted) -> Result<RunId, StoreError> {
        let broken = |seq: usize, why: String| StoreError::BrokenChain {
            run: "to import".to_owned(),
            seq: seq as u64,
            why,
        };
        let first = texts.first().ok_or_else(|| broken(1, "it is missing".to_owned()))?;
        let run: RunId = json::parse(first)
            .map_err(|e| broken(1, e.to_string()))?
            .get("run")
            .and_then(|run| run.as_str()?.parse().ok())
            .ok_or_else(|| broken(1, "it does not name its run".to_owned()))?;
        let records: Vec<Record> = texts
            .into_iter()
            .zip(1..)
            .map(|(text, seq)| parse_record(run, seq, text))
            .collect::<Result<_, _>>()?;
        self.write_transaction(Durability::Synced, |tx| {
            let known: Option<i64> = tx
                .query_row("SELECT n FROM runs WHERE id = ?1", [run.as_bytes()], |row| row.get(0))
                .optional()?;
            let (mut head, known_records) = match known {
                Some(n) => {
                    let known_records = continued_from(tx, (n, run), &records)?;
                    tx.execute(
                        "DELETE FROM run_values WHERE run = ?1 AND key IN (?2, ?3)",
                        params![n, REDACTED, COPY],
                    )?;
                    (read_head(tx, run)?, known_records)
                }
                None => (insert_run(tx, run, records[0].at, &records[0].event)?, 0),
            };
            for record in &records[known_records..] {
                if !head.is_continued_by(record) {
                    let why = "it does not carry the hash of the record before".to_owned();
                    return Err(StoreError::BrokenChain { run: run.to_string(), seq: record.seq, why });
                }
                head.append_record(tx, record.at, &record.event, &record.text)?;
            }
            if *redacted != Redacted::default() {
                tx.execute(
                    "INSERT INTO run_values (run, key, value) VALUES (?1, ?2, ?3)",
                    params![head.n, REDACTED, json::compact(redacted)],
                )?;
            }
            tx.execute(
                "INSERT OR REPLACE INTO run_values (run, key, value) VALUES (?1, ?2, ?3)",
                params![head.n, IMPORTED, records.len().to_string()],
            )?;
            let status = records.iter().rev().find_map(|record| record.event.run_status());
            // A failed run can be resumed too.
            if !matches!(status, Some(RunStatus::Ok | RunStatus::Cancelled)) {
                tx.execute(
                    "INSERT INTO run_values (run, key, value) VALUES (?1, ?2, 'true')",
                    params![head.n, COPY],
                )?;
            }
            head.save(tx)
        })?;
        Ok(run)
    }
}

/// Number of these records that are already stored, if they continue an imported run that has not been taken over.
fn continued_from(
    tx: &Transaction<'_>,
    (n, run): (i64, RunId),
    records: &[Record],
) -> Result<usize, StoreError> {
    let sql = "SELECT record FROM journal WHERE run = ?1 ORDER BY seq";
    let here = query_rows(tx, sql, [n], |row| record_text_of(row, 0))?;
    let is_copy = tx
        .prepare_cached("SELECT 1 FROM run_values WHERE run = ?1 AND key = ?2")?
        .exists(params![n, COPY])?;
    let same = here.iter().zip(records).take_while(|(text, record)| **text == record.text).count();
    let refused = |why: &str| {
        Err(StoreError::Refused(format!("run {run} is already in this store, {why}; nothing was changed")))
    };
    if same < here.len().min(records.len()) {
        return refused(&format!(
            "and from record {} on its record differs from that of the bundle",
            same + 1
        ));
    }
    match records.len().saturating_sub(here.len()) {
        0 if here.len() == records.len() => Err(StoreError::RunExists(run.to_string())),
        0 => refused(&format!("and further: it has {} records here, and {} in the bundle", here.len(), same)),
        _ if !is_copy => {
            refused("and belongs to it, so it may continue here; the record in the bundle continues it")
        }
        _ => Ok(same),
    }
}
