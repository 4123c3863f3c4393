//! Checks the whole store, and measures its content.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;

use rusqlite::{Connection, Row};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Store;
use super::dependants::DamagedBlobs;
use super::error::StoreError;
use super::event::{Event, RunId, RunStatus, StepOutcome};
use super::gate::{GateStatus, status_after};
use super::gc::dir_entries;
use super::high_water::{Mark, Rollback};
use super::journal::{Record, RunSummary, record_text_of};
use super::rescue::{LostRows, Rescued};
use super::state_parts::PartUse;
use super::statement::{query_one, query_rows};
use super::wal_file::log_path;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;

/// Rows read at a time.
const ROWS_AT_ONCE: i64 = 500;

/// Most problems that are listed; further ones are only counted, since the store is lost anyway.
const NAMED_AT_MOST: usize = 10_000;

/// Most runs that the line of a damaged blob lists; the report lists all.
const NAMES_IN_A_LINE: usize = 5;

/// A part of the store that is damaged or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase", tag = "problem")]
pub enum Problem {
    /// The database file itself; the message is SQLite's.
    Database { message: String },
    /// Unreadable rows that cannot be assigned to a run.
    LostRows {
        #[serde(flatten)]
        rows: LostRows,
    },
    /// The database is older than promised: these records were durable and are missing now.
    RolledBack { missing: Vec<Mark> },
    /// The database belongs to another store.
    OtherStore,
    /// A journal; the run cannot be trusted from this record on.
    Journal { run: RunId, seq: u64, why: String },
    /// A run's row that differs from its journal.
    Run { run: String, why: String },
    /// Records, gates or values of a run that is not in the list of runs.
    NoRun { what: String, run: String },
    /// An unreadable outcome in the action cache; it is not used.
    CachedOutcome { action: String, why: String },
    /// A row of the service's tables.
    Service { row: String, why: String },
    /// A blob whose bytes do not match its digest.
    DamagedBlob {
        digest: Digest,
        place: String,
        /// Runs that need it, each with its first such step: the record names the blob, or a blob that leads to it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        named_by: Vec<String>,
    },
    /// A blob that a run or gate names and that does not exist.
    MissingBlob { digest: Digest, named_by: String },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database { message } => write!(f, "database: {message}"),
            Self::LostRows { rows } => write!(f, "database: {rows}"),
            Self::RolledBack { missing } => {
                let newest = missing.last().map(|mark| {
                    format!(": the newest is record {} of run {} ({})", mark.seq, mark.run, mark.what)
                });
                write!(
                    f,
                    "the database was rolled back; {} durable records are missing{}. Questions stay closed until the newer \
                     files are put back, or `lobster store verify --accept-rollback` makes this one a new store",
                    missing.len(),
                    newest.unwrap_or_default()
                )
            }
            Self::OtherStore => f.write_str(
                "the database belongs to another store. Questions stay closed until this store's own is put back, or \
                 `lobster store verify --accept-rollback` makes this one a new store",
            ),
            Self::Journal { run, seq, why } => write!(f, "journal of run {run}, record {seq}: {why}"),
            Self::Run { run, why } => write!(f, "run {run}: {why}"),
            Self::NoRun { what, run } => {
                let what = what.replace("gates", "questions");
                write!(f, "{what} of run {run}, which is not in the list of runs")
            }
            Self::CachedOutcome { action, why } => {
                write!(f, "the cached outcome of action {action} cannot be read: {why}")
            }
            Self::Service { row, why } => write!(f, "service, {row}: {why}"),
            Self::DamagedBlob { digest, place, named_by } => {
                write!(f, "blob {digest} is damaged ({place})")?;
                let (first, more) = named_by.split_at(named_by.len().min(NAMES_IN_A_LINE));
                if !first.is_empty() {
                    write!(f, ", needed by {}", first.join(", "))?;
                }
                if more.is_empty() {
                    Ok(())
                } else {
                    write!(f, " and {} more (--json names them)", more.len())
                }
            }
            Self::MissingBlob { digest, named_by } => {
                write!(f, "blob {digest} is missing, named by {named_by}")
            }
        }
    }
}

impl From<Rollback> for Problem {
    fn from(rollback: Rollback) -> Self {
        match rollback {
            Rollback::Older { missing, .. } => Self::RolledBack { missing },
            Rollback::OtherStore => Self::OtherStore,
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    pub runs: u64,
    pub records: u64,
    pub blobs: u64,
    /// Of all blobs.
    pub bytes: u64,
    /// Empty if everything is intact.
    pub problems: Vec<Problem>,
    /// Number of problems beyond the first ten thousand.
    pub unnamed_problems: u64,
}

impl VerifyReport {
    fn note_problem(&mut self, problem: Problem) {
        if self.problems.len() < NAMED_AT_MOST {
            self.problems.push(problem);
        } else {
            self.unnamed_problems += 1;
        }
    }
}

/// Amount of data in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStats {
    pub runs: u64,
    pub records: u64,
    pub open_gates: u64,
    pub cached_outcomes: u64,
    pub blobs: u64,
    /// Bytes of all blobs.
    pub blob_bytes: u64,
    /// Bytes of blobs in separate files.
    pub blob_file_bytes: u64,
    /// Bytes of the database file and its log.
    pub database_bytes: u64,
    /// Each part of the state directory, without the blobs.
    pub parts: Vec<PartUse>,
}

impl StoreStats {
    /// Bytes of all files below the state directory.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        self.blob_file_bytes + self.parts.iter().map(|part| part.bytes).sum::<u64>()
    }
}

impl Store {
    /// Reads everything and lists all damage. Nothing is changed: damaged parts stay in place, are never used, and do
    /// not affect the rest.
    ///
    /// # Errors
    /// Only if the store cannot be read at all; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport, StoreError> {
        self.flush_pending()?;
        let mut report = VerifyReport::default();
        self.verify_database(&mut report)?;
        if let Some(rollback) = self.find_rollback()? {
            report.note_problem(rollback.into());
        }
        let mut damaged = self.verify_blobs(&mut report)?;
        damaged.find_leading(self)?;
        let sql = "SELECT n, id FROM runs WHERE n > ?1 ORDER BY n LIMIT ?2";
        let look = |n, id: Vec<u8>| -> Result<(), StoreError> {
            match Uuid::from_slice(&id) {
                Ok(id) => self.verify_run(RunId(id), &mut damaged, &mut report)?,
                Err(error) => {
                    let why = format!("its row has no id ({error})");
                    report.note_problem(Problem::Run { run: format!("number {n}"), why });
                }
            }
            Ok(())
        };
        self.inner.db.each_row(sql, ROWS_AT_ONCE, |row| row.get(1), look)?;
        self.verify_gates(&mut report)?;
        self.verify_belonging(&mut report)?;
        self.verify_actions(&mut report)?;
        if let Some(service) = self.existing_service()? {
            for wrong in service.wrong_rows()? {
                report.note_problem(Problem::Service { row: wrong.row, why: wrong.why.to_owned() });
            }
        }
        Vec::from(damaged).into_iter().for_each(|problem| report.note_problem(problem));
        Ok(report)
    }

    fn verify_database(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let said = self.inner.db.read_raw(|db| {
            let mut statement = db.prepare("PRAGMA integrity_check(100)")?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        });
        let said = match said {
            Ok(said) => said,
            Err(StoreError::Damaged { what, .. }) => vec![what],
            Err(other) => return Err(other),
        };
        let messages: Vec<String> = said.into_iter().filter(|message| message != "ok").collect();
        if messages.is_empty() {
            return Ok(());
        }
        for message in messages {
            report.note_problem(Problem::Database { message });
        }
        let Rescued { lost, rebuilt } = self.inner.db.read_as_damaged()?;
        for rows in lost {
            report.note_problem(Problem::LostRows { rows });
        }
        for run in rebuilt {
            let why = "its row was lost; it was rebuilt from its journal".to_owned();
            report.note_problem(Problem::Run { run: run.to_string(), why });
        }
        Ok(())
    }

    fn verify_run(
        &self,
        run: RunId,
        damaged: &mut DamagedBlobs,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        report.runs += 1;
        let mut told = None;
        let mut gates = BTreeMap::new();
        let followed = self.follow_chain(run, |record| {
            update_summary(&mut told, &record);
            if let Some((gate, status)) = status_after(&record.event) {
                gates.insert(gate.to_owned(), status);
            }
        });
        match followed {
            Ok(()) => {
                self.verify_row(run, told, report)?;
                self.verify_gates_of(run, &gates, report)?;
            }
            Err(StoreError::BrokenChain { seq, why, .. }) => {
                report.note_problem(Problem::Journal { run, seq, why })
            }
            // Collected during this check.
            Err(StoreError::UnknownRun(_)) => return Ok(()),
            Err(other) => return Err(other),
        }
        let mut seq = 0;
        // Blobs left out of a bundle are not missing.
        let mut missing: HashSet<Digest> = match self.redacted_parts(run) {
            Ok(redacted) => redacted.blobs.into_iter().collect(),
            Err(StoreError::UnknownRun(_)) => return Ok(()),
            Err(error) => {
                report.note_problem(Problem::Run { run: run.to_string(), why: error.to_string() });
                HashSet::new()
            }
        };
        loop {
            let page = match self.events_after(run, seq, 500) {
                Ok(page) => page,
                Err(StoreError::BrokenChain { .. } | StoreError::UnknownRun(_)) => break,
                Err(other) => return Err(other),
            };
            let Some(last) = page.last() else { break };
            seq = last.seq;
            report.records += page.len() as u64;
            for record in &page {
                let name = || match record.event.step_path() {
                    Some(path) => format!("run {run} at {path}"),
                    None => format!("run {run}"),
                };
                for digest in record.event.required_blobs() {
                    if self.blob_len(&digest)?.is_none() && missing.insert(digest) {
                        report.note_problem(Problem::MissingBlob { digest, named_by: name() });
                    }
                }
                damaged.note_needed(run, &record.text, name);
            }
        }
        Ok(())
    }

    /// Compares the rows of a run's gates with its journal.
    fn verify_gates_of(
        &self,
        run: RunId,
        told: &BTreeMap<String, GateStatus>,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        if told.is_empty() {
            return Ok(());
        }
        let rows: Vec<(String, String)> = self.inner.db.read_aside(|db| {
            let sql =
                "SELECT gates.id, gates.status FROM gates JOIN runs ON runs.n = gates.run WHERE runs.id = ?1";
            query_rows(db, sql, [run.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        })?;
        let differs = |told: &BTreeMap<String, GateStatus>, (gate, row): &(String, String)| {
            told.get(gate).filter(|told| told.as_str() != row).map(|told| told.as_str())
        };
        if !rows.iter().any(|row| differs(told, row).is_some()) {
            return Ok(());
        }
        // A gate may have been answered after the journal was read.
        let mut again = BTreeMap::new();
        let followed = self.follow_chain(run, |record| {
            if let Some((gate, status)) = status_after(&record.event) {
                again.insert(gate.to_owned(), status);
            }
        });
        if followed.is_err() {
            return Ok(());
        }
        for row in &rows {
            if let Some(told) = differs(&again, row) {
                let why = format!("its question {} is {}, its journal says {told}", row.0, row.1);
                report.note_problem(Problem::Run { run: run.to_string(), why });
            }
        }
        Ok(())
    }

    /// Compares a run's row with its journal.
    fn verify_row(
        &self,
        run: RunId,
        told: Option<RunSummary>,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let mut found = |why: String| report.note_problem(Problem::Run { run: run.to_string(), why });
        let row = match self.run(run) {
            Ok(row) => row,
            Err(StoreError::UnknownRun(_)) => return Ok(()),
            Err(StoreError::Database(error)) => {
                found(format!("its row cannot be read: {error}"));
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let Some(told) = told else {
            found("its journal does not begin with the start of the run".to_owned());
            return Ok(());
        };
        // The run is being executed, so more records have been added since.
        if row.records != told.records {
            return Ok(());
        }
        let (row, told) = (derived_fields(&row), derived_fields(&told));
        for ((field, row), (_, told)) in row.iter().zip(&told).filter(|(row, told)| row != told) {
            found(format!("its row says {field} {row}, its journal {told}"));
        }
        Ok(())
    }

    /// Checks that rows of runs belong to existing ones.
    pub(super) fn verify_belonging(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        for (table, what) in [("journal", "records"), ("gates", "gates"), ("run_values", "values")] {
            let stray = self.inner.db.read_aside(|db| {
                let sql = format!(
                    "SELECT run, count(*) FROM {table} WHERE run NOT IN (SELECT n FROM runs) GROUP BY run"
                );
                query_rows(db, &sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            })?;
            for (n, rows) in stray {
                let first = self.inner.db.read_aside(|db| {
                    let sql = "SELECT record FROM journal WHERE run = ?1 LIMIT 1";
                    query_one(db, sql, [n], |row| record_text_of(row, 0))
                })?;
                let id = first.and_then(|text| Some(json::parse(&text).ok()?["run"].as_str()?.to_owned()));
                let run = id.unwrap_or_else(|| format!("number {n}"));
                report.note_problem(Problem::NoRun { what: format!("{rows} {what}"), run });
            }
        }
        Ok(())
    }

    /// Reads all outcomes in the action cache.
    fn verify_actions(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let sql = "SELECT n, digest, outcome FROM actions WHERE n > ?1 ORDER BY n LIMIT ?2";
        let read = |row: &Row<'_>| -> rusqlite::Result<_> { Ok((row.get(1)?, record_text_of(row, 2)?)) };
        self.inner.db.each_row(sql, ROWS_AT_ONCE, read, |n, (digest, text): (Vec<u8>, String)| {
            let action = <[u8; 32]>::try_from(digest).map(|bytes| Digest::from(bytes).to_string());
            let action = action.unwrap_or_else(|_| format!("number {n}"));
            let outcome: StepOutcome = match json::parse_as(&text) {
                Ok(outcome) => outcome,
                Err(error) => {
                    report.note_problem(Problem::CachedOutcome { action, why: error.to_string() });
                    return Ok(());
                }
            };
            for blob in [outcome.stdout, outcome.output].into_iter().flatten() {
                if self.blob_len(&blob.digest)?.is_none() {
                    let named_by = format!("the cached outcome of action {action}");
                    report.note_problem(Problem::MissingBlob { digest: blob.digest, named_by });
                }
            }
            Ok(())
        })
    }

    fn verify_gates(&self, report: &mut VerifyReport) -> Result<(), StoreError> {
        let missing = self.inner.db.read_aside(|db| {
            let sql = "SELECT id, question FROM gates WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE digest = question)";
            query_rows(db, sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, [u8; 32]>(1)?)))
        })?;
        for (id, digest) in missing {
            let named_by = format!("question {id}");
            report.note_problem(Problem::MissingBlob { digest: digest.into(), named_by });
        }
        Ok(())
    }

    /// Reads all blobs, and returns the damaged ones.
    fn verify_blobs(&self, report: &mut VerifyReport) -> Result<DamagedBlobs, StoreError> {
        let mut damaged = DamagedBlobs::default();
        let sql = "SELECT id, digest FROM blobs WHERE id > ?1 ORDER BY id LIMIT ?2";
        self.inner.db.each_row(
            sql,
            ROWS_AT_ONCE,
            |row| row.get(1),
            |_, digest: [u8; 32]| self.verify_blob(&digest.into(), &mut damaged, report),
        )?;
        // Files without a row are harmless, but their bytes are checked too.
        for path in dir_entries(&self.inner.dir.join("blobs")).iter().flat_map(|shelf| dir_entries(shelf)) {
            let Some(digest) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
                continue;
            };
            if self.blob_len(&digest)?.is_none() {
                self.verify_blob(&digest, &mut damaged, report)?;
            }
        }
        Ok(damaged)
    }

    fn verify_blob(
        &self,
        digest: &Digest,
        damaged: &mut DamagedBlobs,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let mut found = |place| damaged.add_damaged(*digest, place);
        // A file that was checked before may have been damaged since.
        lock(&self.inner.checked).remove(digest);
        match self.open_blob(digest) {
            Ok(blob) => {
                report.blobs += 1;
                report.bytes += blob.len();
            }
            Err(StoreError::DamagedBlob { place, .. }) => found(Some(place)),
            Err(StoreError::LostBlob { .. }) => found(None),
            // Collected during this check.
            Err(StoreError::MissingBlob(_)) => {}
            Err(StoreError::Io { source, .. }) => found(Some(source.to_string())),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Amounts of everything in the store.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.flush_pending()?;
        let path = self.inner.db.path();
        let size = |path: &std::path::Path| fs::metadata(path).map_or(0, |meta| meta.len());
        let database_bytes = size(path) + size(&log_path(path));
        let parts = self.part_uses();
        self.inner.db.read_aside(|db| {
            let one = |sql: &str| count_rows(db, sql);
            Ok(StoreStats {
                runs: one("SELECT count(*) FROM runs")?,
                records: one("SELECT count(*) FROM journal")?,
                open_gates: one("SELECT count(*) FROM gates WHERE status = 'open'")?,
                cached_outcomes: one("SELECT count(*) FROM actions")?,
                blobs: one("SELECT count(*) FROM blobs")?,
                blob_bytes: one("SELECT coalesce(sum(len), 0) FROM blobs")?,
                blob_file_bytes: one("SELECT coalesce(sum(len), 0) FROM blobs WHERE data IS NULL")?,
                database_bytes,
                parts: parts.clone(),
            })
        })
    }
}

/// Updates the summary of a run with the next record of its journal.
pub(super) fn update_summary(told: &mut Option<RunSummary>, record: &Record) {
    if let Event::RunStarted { name, kind, plan, args, mode, actor, cwd, parent, .. } = &record.event
        && record.seq == 1
    {
        *told = Some(RunSummary {
            id: record.run,
            name: name.clone(),
            kind: kind.clone(),
            status: RunStatus::Running,
            mode: mode.clone(),
            actor: actor.clone(),
            cwd: cwd.clone(),
            parent: *parent,
            plan: *plan,
            args: *args,
            started_at: record.at,
            ended_at: None,
            output: None,
            error: None,
            pinned: false,
            records: 0,
        });
    }
    let Some(told) = told else { return };
    told.records = record.seq;
    if let Some(status) = record.event.run_status() {
        told.status = status;
        told.ended_at = status.is_over().then_some(record.at);
        (told.output, told.error) = match &record.event {
            Event::RunEnded { output, error, .. } => (output.map(|blob| blob.digest), error.clone()),
            _ => (None, None),
        };
    }
}

/// The fields of a run's row that follow from its journal.
fn derived_fields(run: &RunSummary) -> [(&'static str, Value); 12] {
    [
        ("name", json!(run.name)),
        ("kind", json!(run.kind)),
        ("status", json!(run.status)),
        ("mode", json!(run.mode)),
        ("actor", json!(run.actor)),
        ("cwd", json!(run.cwd)),
        ("parent", json!(run.parent)),
        ("plan", json!(run.plan)),
        ("args", json!(run.args)),
        ("started", json!(run.started_at)),
        ("ended", json!(run.ended_at)),
        ("output and error", json!([run.output, run.error])),
    ]
}

fn count_rows(db: &Connection, sql: &str) -> Result<u64, StoreError> {
    Ok(db.query_row(sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
}

impl Event {
    /// The blobs without which this event cannot be understood.
    #[must_use]
    pub fn required_blobs(&self) -> Vec<Digest> {
        match self {
            Self::RunStarted { plan, args, .. } => std::iter::once(*plan).chain(*args).collect(),
            Self::RunEnded { output, .. } => output.iter().map(|blob| blob.digest).collect(),
            Self::StepStarted { action, .. } => action.iter().copied().collect(),
            Self::StepEnded { begun, outcome, .. } => outcome
                .kept_streams()
                .map(|(_, blob)| blob.digest)
                .chain(begun.iter().map(|begun| begun.action))
                .collect(),
            Self::GateOpened { question, .. } => vec![*question],
            Self::RunResumed { .. }
            | Self::RunPaused { .. }
            | Self::GateAnswered { .. }
            | Self::GateClosed { .. }
            | Self::Decision { .. }
            | Self::RetryRequested { .. }
            | Self::Note { .. }
            | Self::Unknown(_) => Vec::new(),
        }
    }
}
