//! Rebuilds the gates of a salvaged store from the journals of their runs, and not from rows that may be damaged: an
//! answered gate must not be open again.

use std::collections::BTreeMap;

use rusqlite::params;

use super::Store;
use super::db::Durability;
use super::error::StoreError;
use super::event::{Event, RunId};
use super::gate::{GateAnswer, GateStatus, can_read_gate, status_after};
use super::journal::{RunFilter, run_number};
use super::statement::query_rows;
use super::verify::Problem;
use lobster_base::digest::Digest;
use lobster_base::json;

/// A gate according to the journal.
struct RecordedGate {
    path: String,
    kind: String,
    question: Digest,
    binding: Digest,
    expires_at: Option<i64>,
    status: GateStatus,
    answer: Option<GateAnswer>,
    closed: Option<(i64, Option<String>)>,
}

impl Store {
    /// Sets the gates of every run to the state in its journal, and reports the gates that differed. The journals must
    /// have been checked.
    pub(super) fn rebuild_gates(&self) -> Result<Vec<Problem>, StoreError> {
        let mut problems = Vec::new();
        for run in self.list_runs(&RunFilter::default())? {
            let recorded = self.recorded_gates(run.id)?;
            let named = |why| Problem::Run { run: run.id.to_string(), why };
            let rows: Vec<(i64, String)> = self.inner.db.read_snapshot(|db| {
                let sql = "SELECT n, id FROM gates WHERE run = ?1";
                query_rows(db, sql, [run_number(db, run.id)?], |row| Ok((row.get(0)?, row.get(1)?)))
            })?;
            for (n, id) in &rows {
                let can_be_kept = match recorded.get(id) {
                    Some(gate) => {
                        if self.rebuild_gate(*n, gate)? {
                            let status = gate.status;
                            problems.push(named(format!(
                                "the row of its question {id} was damaged; it is {status} now"
                            )));
                        }
                        self.inner.db.read_snapshot(|db| Ok(can_read_gate(db, *n)))?
                    }
                    None => false,
                };
                if !can_be_kept {
                    self.write_statement(Durability::Lazy, "DELETE FROM gates WHERE n = ?1", [n])?;
                    problems.push(named(format!("its question {id} was damaged and is left out")));
                }
            }
        }
        Ok(problems)
    }

    fn recorded_gates(&self, run: RunId) -> Result<BTreeMap<String, RecordedGate>, StoreError> {
        let mut gates: BTreeMap<String, RecordedGate> = BTreeMap::new();
        self.follow_chain(run, |record| {
            if let Event::GateOpened { path, gate, kind, binding, question, expires_at } = &record.event {
                let opened = RecordedGate {
                    path: path.clone(),
                    kind: kind.clone(),
                    question: *question,
                    binding: *binding,
                    expires_at: *expires_at,
                    status: GateStatus::Open,
                    answer: None,
                    closed: None,
                };
                gates.insert(gate.clone(), opened);
            } else if let Some((id, status)) = status_after(&record.event)
                && let Some(gate) = gates.get_mut(id)
            {
                let (answer, by) = match &record.event {
                    Event::GateAnswered { answer, by, .. } => (Some(answer.clone()), by.clone()),
                    Event::GateClosed { by, .. } => (None, by.clone()),
                    _ => (None, None),
                };
                (gate.status, gate.answer) = (status, answer);
                gate.closed = (status != GateStatus::Open).then_some((record.at, by));
            }
        })?;
        Ok(gates)
    }

    /// True if the row differed.
    fn rebuild_gate(&self, n: i64, gate: &RecordedGate) -> Result<bool, StoreError> {
        let (at, by) = gate.closed.clone().map_or((None, None), |(at, by)| (Some(at), by));
        self.write_transaction(Durability::Lazy, |tx| {
            let changed = tx
                .prepare_cached(
                    "UPDATE gates SET path = ?2, kind = ?3, question = ?4, binding = ?5, expires = ?6, status = ?7,
                     answer = ?8, by = ?9, answered = ?10
                     WHERE n = ?1 AND NOT (path IS ?2 AND kind IS ?3 AND question IS ?4 AND binding IS ?5
                     AND expires IS ?6 AND status IS ?7 AND answer IS ?8 AND by IS ?9 AND answered IS ?10)",
                )?
                .execute(params![
                    n,
                    gate.path,
                    gate.kind,
                    gate.question.as_bytes(),
                    gate.binding.as_bytes(),
                    gate.expires_at,
                    gate.status.as_str(),
                    gate.answer.as_ref().map(json::compact),
                    by,
                    at,
                ])?;
            Ok(changed > 0)
        })
    }

    /// Removes runs that were rebuilt from their journals and are not over, if records were lost: an answer may be
    /// among the lost records.
    pub(super) fn remove_cut_runs(&self, rebuilt: &[RunId]) -> Result<Vec<Problem>, StoreError> {
        let mut problems = Vec::new();
        for run in rebuilt {
            let sql = "SELECT ended IS NULL FROM runs WHERE id = ?1";
            let found = self.inner.db.select_one(sql, [run.as_bytes()], |row| row.get(0))?;
            if found == Some(true) {
                self.remove_run(*run)?;
                let why = "it is left out: the end of its journal may be among the lost records".to_owned();
                problems.push(Problem::Run { run: run.to_string(), why });
            }
        }
        Ok(problems)
    }
}
