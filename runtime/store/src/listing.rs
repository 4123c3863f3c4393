//! Queries for lists of runs, each covering many runs at once.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, params};

use super::Store;
use super::error::StoreError;
use super::event::RunId;
use super::journal::{parse_record, record_text_of, run_id};
use super::service_tables;
use crate::event::Event;
use lobster_base::json;

/// Records at the end of a journal that are searched. Few records follow the end of a run: closed gates and notes.
const LAST: i64 = 8;

/// Runs as one value for a statement: a JSON list of their ids in hexadecimal.
pub(super) fn ids_json(runs: impl IntoIterator<Item = RunId>) -> String {
    let hex = |run: RunId| run.0.simple().to_string();
    json::compact(&runs.into_iter().map(hex).collect::<Vec<_>>())
}

/// The runs whose last `last` records contain an event of this kind, each with the last such event if its text
/// contains `text`.
fn last_events(
    db: &Connection,
    runs: impl IntoIterator<Item = RunId>,
    (kind, text): (&str, &str),
    last: i64,
) -> Result<HashMap<RunId, Option<Event>>, StoreError> {
    let mut found = HashMap::new();
    let ids = ids_json(runs);
    if ids == "[]" {
        return Ok(found);
    }
    let mut statement = db.prepare_cached(
        "SELECT r.id, j.seq, j.record FROM runs r JOIN journal j ON j.run = r.n AND j.seq > r.head_seq - ?3
         WHERE r.id IN (SELECT unhex(value) FROM json_each(?1)) AND instr(j.record, ?2) ORDER BY r.n, j.seq",
    )?;
    let mut rows = statement.query(params![ids, kind, last])?;
    while let Some(row) = rows.next()? {
        let (run, seq) = (run_id(row, 0)?, row.get::<_, i64>(1)?.cast_unsigned());
        let record = record_text_of(row, 2)?;
        let event = record.contains(text).then(|| parse_record(run, seq, record)).and_then(Result::ok);
        found.insert(run, event.map(|record| record.event));
    }
    Ok(found)
}

impl Store {
    /// The runs among `runs` that wait for a person, or that the service has parked until a time or an event.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn waiting_among(&self, runs: &[RunId]) -> Result<HashSet<RunId>, StoreError> {
        if runs.is_empty() {
            return Ok(HashSet::new());
        }
        let (ids, now) = (ids_json(runs.iter().copied()), self.now());
        self.inner.db.read_snapshot(|db| {
            let mut found: HashSet<RunId> = select_runs(
                db,
                "SELECT r.id FROM runs r JOIN gates g ON g.run = r.n
                 WHERE r.id IN (SELECT unhex(value) FROM json_each(?1))
                 AND g.status = 'open' AND (g.expires IS NULL OR g.expires > ?2)",
                params![ids, now],
            )?;
            if service_tables::layout_version(db)?.is_some_and(|version| version > 1) {
                found.extend(select_runs::<HashSet<RunId>>(
                    db,
                    "SELECT w.run FROM waits w JOIN starts s ON s.run = w.run
                     WHERE w.run IN (SELECT unhex(value) FROM json_each(?1)) AND s.state IN ('queued', 'taken', 'parked')",
                    [&ids],
                )?);
            }
            Ok(found)
        })
    }

    /// The last event of a kind of each of these runs, if it is among the last records and its text contains `text`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn last_events_holding(
        &self,
        runs: &[RunId],
        kind: &str,
        text: &str,
    ) -> Result<HashMap<RunId, Event>, StoreError> {
        let kind = format!("\"event\":{{\"type\":\"{kind}\"");
        self.inner.db.read_snapshot(|db| {
            // Usually it is the very last record, and then only a tenth of the texts is searched.
            let mut found = last_events(db, runs.iter().copied(), (&kind, text), 1)?;
            let rest: Vec<RunId> = runs.iter().copied().filter(|run| !found.contains_key(run)).collect();
            found.extend(last_events(db, rest, (&kind, text), LAST)?);
            Ok(found.into_iter().filter_map(|(run, event)| Some((run, event?))).collect())
        })
    }

    /// The runs of the open gates, one for each gate, the newest first; at most `limit`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn runs_that_ask(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let now = self.now();
        self.inner.db.read_snapshot(|db| {
            select_runs(
                db,
                "SELECT r.id FROM gates g JOIN runs r ON r.n = g.run
                 WHERE g.status = 'open' AND (g.expires IS NULL OR g.expires > ?1) ORDER BY g.n DESC LIMIT ?2",
                [now, i64::try_from(limit).unwrap_or(i64::MAX)],
            )
        })
    }
}

fn select_runs<C: FromIterator<RunId>>(
    db: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<C, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(values, |row| run_id(row, 0))?;
    Ok(rows.collect::<Result<C, _>>()?)
}
