//! Checks everything the store holds, and counts it.

use std::collections::HashSet;
use std::fmt;
use std::fs;

use rusqlite::{Connection, params};
use serde::Serialize;

use super::Store;
use super::error::StoreError;
use super::event::{Event, RunId};
use super::gc::entries;
use super::journal::run_id;
use super::log::log_path;
use crate::digest::Digest;

/// Rows looked at in one read.
const ROWS_AT_ONCE: i64 = 500;

/// More problems than this are counted, not named: the store is lost anyway.
const NAMED_AT_MOST: usize = 10_000;

/// One thing that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "problem")]
pub enum Problem {
    /// The database file itself, in SQLite's words.
    Database { message: String },
    /// A journal; the run cannot be trusted from this record on.
    Journal { run: RunId, seq: u64, why: String },
    /// A blob whose bytes are not the ones it is named after.
    DamagedBlob { digest: Digest, place: String },
    /// A blob that a run or gate names and that is nowhere.
    MissingBlob { digest: Digest, named_by: String },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database { message } => write!(f, "database: {message}"),
            Self::Journal { run, seq, why } => write!(f, "journal of run {run}, record {seq}: {why}"),
            Self::DamagedBlob { digest, place } => write!(f, "blob {digest} is damaged ({place})"),
            Self::MissingBlob { digest, named_by } => {
                write!(f, "blob {digest} is missing, named by {named_by}")
            }
        }
    }
}

/// What was checked and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    pub runs: u64,
    pub records: u64,
    pub blobs: u64,
    /// Of all blobs.
    pub bytes: u64,
    /// Empty when all is well.
    pub problems: Vec<Problem>,
    /// Problems beyond the first ten thousand.
    pub unnamed_problems: u64,
}

impl VerifyReport {
    fn found(&mut self, problem: Problem) {
        if self.problems.len() < NAMED_AT_MOST {
            self.problems.push(problem);
        } else {
            self.unnamed_problems += 1;
        }
    }
}

/// How much the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    pub runs: u64,
    pub records: u64,
    pub open_gates: u64,
    pub cached_outcomes: u64,
    pub blobs: u64,
    /// Of all blobs.
    pub blob_bytes: u64,
    /// Of those, in files of their own.
    pub blob_file_bytes: u64,
    /// Of the database file and its log.
    pub database_bytes: u64,
}

impl Store {
    /// Reads everything and names whatever is not as it was written. Nothing is
    /// changed: what is damaged stays where it is, is never used, and leaves the
    /// rest alone.
    ///
    /// # Errors
    /// Only when the store cannot be read at all; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport, StoreError> {
        self.flush()?;
        let mut report = VerifyReport::default();
        self.verify_database(&mut report)?;
        let mut after = 0;
        loop {
            let page = self.inner.db.read_aside(|db| {
                let mut statement =
                    db.prepare_cached("SELECT n, id FROM runs WHERE n > ?1 ORDER BY n LIMIT ?2")?;
                let rows = statement.query_map(params![after, ROWS_AT_ONCE], |row| {
                    Ok((row.get::<_, i64>(0)?, run_id(row, 1)?))
                })?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            })?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            page.into_iter().try_for_each(|(_, run)| self.verify_run(run, &mut report))?;
        }
        self.verify_gates(&mut report)?;
        self.verify_blobs(&mut report)?;
        Ok(report)
    }

    fn verify_database(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let said = self.inner.db.read_aside(|db| {
            let mut statement = db.prepare("PRAGMA integrity_check(100)")?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })?;
        for message in said.into_iter().filter(|message| message != "ok") {
            report.found(Problem::Database { message });
        }
        Ok(())
    }

    fn verify_run(&self, run: RunId, report: &mut VerifyReport) -> Result<(), StoreError> {
        report.runs += 1;
        match self.verify_chain(run) {
            Ok(()) => {}
            Err(StoreError::BrokenChain { seq, why, .. }) => report.found(Problem::Journal { run, seq, why }),
            // Collected while we were reading.
            Err(StoreError::UnknownRun(_)) => return Ok(()),
            Err(other) => return Err(other),
        }
        let mut seq = 0;
        let mut missing = HashSet::new();
        loop {
            let page = match self.events_after(run, seq, 500) {
                Ok(page) => page,
                Err(StoreError::BrokenChain { .. } | StoreError::UnknownRun(_)) => break,
                Err(other) => return Err(other),
            };
            let Some(last) = page.last() else { break };
            seq = last.seq;
            report.records += page.len() as u64;
            for digest in page.iter().flat_map(|record| record.event.blobs()) {
                if self.blob_len(&digest)?.is_none() && missing.insert(digest) {
                    report.found(Problem::MissingBlob { digest, named_by: format!("run {run}") });
                }
            }
        }
        Ok(())
    }

    fn verify_gates(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let missing = self.inner.db.read_aside(|db| {
            let mut statement = db.prepare(
                "SELECT id, question FROM gates WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE digest = question)",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, [u8; 32]>(1)?)))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })?;
        for (id, digest) in missing {
            report.found(Problem::MissingBlob { digest: digest.into(), named_by: format!("gate {id}") });
        }
        Ok(())
    }

    fn verify_blobs(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let page = self.inner.db.read_aside(|db| {
                let mut statement =
                    db.prepare_cached("SELECT id, digest FROM blobs WHERE id > ?1 ORDER BY id LIMIT ?2")?;
                let rows = statement.query_map(params![after, ROWS_AT_ONCE], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
                })?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            })?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, digest) in page {
                self.verify_blob(&digest.into(), report)?;
            }
        }
        // Files without a row: harmless, but their bytes should be right too.
        for path in entries(&self.inner.dir.join("blobs")).iter().flat_map(|shelf| entries(shelf)) {
            let Some(digest) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
                continue;
            };
            if self.blob_len(&digest)?.is_none() {
                self.verify_blob(&digest, report)?;
            }
        }
        Ok(())
    }

    fn verify_blob(&self, digest: &Digest, report: &mut VerifyReport) -> Result<(), StoreError> {
        // A file that was checked before may have rotted since.
        super::db::lock(&self.inner.checked).remove(digest);
        match self.open_blob(digest) {
            Ok(blob) => {
                report.blobs += 1;
                report.bytes += blob.len();
            }
            Err(StoreError::DamagedBlob { place, .. }) => {
                report.found(Problem::DamagedBlob { digest: *digest, place });
            }
            Err(StoreError::MissingBlob(_)) => {
                // Unless it was collected while we were reading.
                if self.blob_len(digest)?.is_some() {
                    let named_by = "the table of blobs; its file is gone".to_owned();
                    report.found(Problem::MissingBlob { digest: *digest, named_by });
                }
            }
            Err(StoreError::Io { source, .. }) => {
                report.found(Problem::DamagedBlob { digest: *digest, place: source.to_string() });
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// How much there is of everything.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.flush()?;
        let path = self.inner.db.path();
        let size = |path: &std::path::Path| fs::metadata(path).map_or(0, |meta| meta.len());
        let database_bytes = size(path) + size(&log_path(path));
        self.inner.db.read_aside(|db| {
            let one = |sql: &str| count(db, sql);
            Ok(StoreStats {
                runs: one("SELECT count(*) FROM runs")?,
                records: one("SELECT count(*) FROM journal")?,
                open_gates: one("SELECT count(*) FROM gates WHERE status = 'open'")?,
                cached_outcomes: one("SELECT count(*) FROM actions")?,
                blobs: one("SELECT count(*) FROM blobs")?,
                blob_bytes: one("SELECT coalesce(sum(len), 0) FROM blobs")?,
                blob_file_bytes: one("SELECT coalesce(sum(len), 0) FROM blobs WHERE data IS NULL")?,
                database_bytes,
            })
        })
    }
}

fn count(db: &Connection, sql: &str) -> Result<u64, StoreError> {
    Ok(db.query_row(sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
}

impl Event {
    /// The blobs that must be there for this event to be understood.
    pub(super) fn blobs(&self) -> Vec<Digest> {
        match self {
            Self::RunStarted { plan, args, .. } => std::iter::once(*plan).chain(*args).collect(),
            Self::RunEnded { output, .. } => output.iter().map(|blob| blob.digest).collect(),
            Self::StepEnded { outcome, .. } => [outcome.stdout, outcome.stderr, outcome.output]
                .into_iter()
                .flatten()
                .map(|blob| blob.digest)
                .collect(),
            Self::GateOpened { question, .. } => vec![*question],
            Self::RunResumed { .. }
            | Self::RunPaused { .. }
            | Self::StepStarted { .. }
            | Self::GateAnswered { .. }
            | Self::GateClosed { .. }
            | Self::Decision { .. }
            | Self::RetryRequested { .. }
            | Self::Note { .. }
            | Self::Unknown(_) => Vec::new(),
        }
    }
}
