//! Schedules and the ledger of their ticks.
//!
//! Each decision about a schedule is written in one transaction: the entries of its ticks, their starts, and the time
//! up to which it is decided. If two servers decide at once, the second one finds a later time in the row, and changes
//! nothing.

use rusqlite::{Connection, Row, Transaction, params};
use serde_json::json;

use super::Service;
use super::starts::{self, NewStart};
use super::trail::{Deed, note_deed};
use crate::error::StoreError;
use crate::event::{RunId, words};
use crate::journal::read_word;
use crate::statement::{execute, query_one, query_rows};
use uuid::Uuid;

/// The trail's verb for a changed due time.
const RESCHEDULED: &str = "reschedule";

words! {
    /// Outcome of a tick.
    TickState {
        /// Its run was started when it was due.
        Fired = "fired",
        /// It was missed, and its run was started later.
        CaughtUp = "caught_up",
        /// No server was running when it was due, and it does not run.
        Missed = "missed",
        /// An earlier run had not ended.
        Skipped = "skipped",
        /// The schedule, or its whole workflow, was paused.
        Paused = "paused",
        /// Its schedule was changed or removed before the tick was decided.
        Superseded = "superseded",
        /// A person had it backfilled.
        Backfilled = "backfilled",
    }
}

/// A schedule, and the time up to which it is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRow {
    pub n: i64,
    /// Number of its workflow; the name follows.
    pub workflow: i64,
    pub workflow_name: String,
    pub name: String,
    pub revision: i64,
    /// The schedule as JSON.
    pub spec: String,
    /// In milliseconds since 1970.
    pub decided: i64,
    pub next: Option<i64>,
    /// Time when it was paused, and by whom.
    pub paused: Option<(i64, Option<String>)>,
    pub is_removed: bool,
}

impl ScheduleRow {
    /// Display name: the workflow, a slash and the schedule's own name.
    #[must_use]
    pub fn display_name(&self) -> String {
        format!("{}/{}", self.workflow_name, self.name)
    }
}

/// An entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    pub n: i64,
    pub revision: i64,
    /// The key of the tick, or of the first of several ticks.
    pub key: String,
    /// Due time in milliseconds since 1970.
    pub due: i64,
    /// Number of ticks in the entry; 0 if they were not counted.
    pub count: u64,
    /// Due time of the last tick in it.
    pub last: i64,
    pub state: TickState,
    pub reason: Option<String>,
    pub run: Option<RunId>,
    pub at: i64,
}

/// An entry to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTick {
    pub key: String,
    pub due: i64,
    pub count: u64,
    pub last: i64,
    pub state: TickState,
    pub reason: Option<String>,
    /// Index of its run among the settlement's starts.
    pub start: Option<usize>,
}

/// Decisions about one schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    pub schedule: i64,
    /// Revision of the row when it was read; if it has changed, nothing is written.
    pub revision: i64,
    pub from: i64,
    pub is_paused: bool,
    /// The new time up to which it is decided.
    pub decided: i64,
    pub next: Option<i64>,
    /// Set if the clock was set back.
    pub retraction: Option<Retraction>,
    pub ticks: Vec<NewTick>,
    pub starts: Vec<NewStart>,
    /// Runs to cancel, with the reasons.
    pub cancel: Vec<(RunId, String)>,
}

/// Withdraws decisions about ticks that are in the future again. Runs that have begun stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retraction {
    /// The current time.
    pub after: i64,
    /// Entries for several ticks that are shortened: the number of remaining ticks, and the due time of the last one.
    pub shortened: Vec<(i64, u64, i64)>,
}

impl Service {
    /// Writes settlements, each as a whole or not at all. Returns true for each that was written: false if the
    /// schedule was decided, changed or paused meanwhile.
    ///
    /// # Errors
    /// If it cannot be written; then none is.
    pub fn write_settlements(&self, settlements: &[Settlement]) -> Result<Vec<bool>, StoreError> {
        self.write_durably(|tx, now| settlements.iter().map(|one| apply_settlement(tx, one, now)).collect())
    }

    /// All schedules that are not removed.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_schedules(&self) -> Result<Vec<ScheduleRow>, StoreError> {
        let sql = format!("{SELECT} WHERE s.removed IS NULL ORDER BY w.name, s.name");
        self.db().select_rows(&sql, [], schedule_from_row)
    }

    /// The schedules that are due next and are not paused, in order; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn next_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        let sql = format!(
            "{SELECT} WHERE s.removed IS NULL AND s.next IS NOT NULL AND s.paused IS NULL ORDER BY s.next LIMIT ?1"
        );
        self.db().select_rows(&sql, [i64::try_from(limit).unwrap_or(i64::MAX)], schedule_from_row)
    }

    /// The schedules after the one with this number that will be due at some time, by number; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn schedules_after(&self, n: i64, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        let sql = format!(
            "{SELECT} WHERE s.n > ?1 AND s.removed IS NULL AND s.paused IS NULL AND s.next IS NOT NULL
             ORDER BY s.n LIMIT ?2"
        );
        self.db().select_rows(&sql, [n, i64::try_from(limit).unwrap_or(i64::MAX)], schedule_from_row)
    }

    /// Changes the due time of a schedule because the rules of its time zone have changed, and records it. False if
    /// the schedule was decided, changed or paused meanwhile.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn reschedule(&self, row: &ScheduleRow, next: i64, origin: &str) -> Result<bool, StoreError> {
        self.write_durably(|tx, now| {
            let sql = "UPDATE schedules SET next = ?2 WHERE n = ?1 AND revision = ?3 AND decided = ?4 AND next IS ?5
                     AND paused IS NULL AND removed IS NULL";
            let changed = execute(tx, sql, params![row.n, next, row.revision, row.decided, row.next])?;
            if changed > 0 {
                let detail = json!({ "was": row.next, "is": next });
                note_deed(tx, now, RESCHEDULED, &row.display_name(), (None, origin), &detail)?;
            }
            Ok(changed > 0)
        })
    }

    /// The last change of a due time by new rules of the time zone: when it was noticed, the earlier due time, and the
    /// new one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn last_rescheduling(&self, row: &ScheduleRow) -> Result<Option<(i64, i64, i64)>, StoreError> {
        let found = self.last_deed(RESCHEDULED, &row.display_name())?;
        let of = |deed: &Deed, name: &str| deed.detail[name].as_i64();
        Ok(found.and_then(|deed| Some((deed.at, of(&deed, "was")?, of(&deed, "is")?))))
    }

    /// The schedules that are due at `now`, at most `limit`; the longest due first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn due_schedules(&self, now: i64, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        let sql = format!(
            "{SELECT} WHERE s.removed IS NULL AND s.next IS NOT NULL AND s.next <= ?1 ORDER BY s.next LIMIT ?2"
        );
        self.db().select_rows(&sql, [now, i64::try_from(limit).unwrap_or(i64::MAX)], schedule_from_row)
    }

    /// The schedules decided beyond `now`, because the clock was set back since.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn schedules_decided_after(&self, now: i64) -> Result<Vec<ScheduleRow>, StoreError> {
        let sql = format!("{SELECT} WHERE s.removed IS NULL AND s.decided > ?1");
        self.db().select_rows(&sql, [now], schedule_from_row)
    }

    /// Time of the next decision about any schedule.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next_decision(&self) -> Result<Option<i64>, StoreError> {
        self.read_snapshot(|db| {
            let sql = "SELECT min(next) FROM schedules WHERE removed IS NULL AND next IS NOT NULL";
            Ok(db.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
        })
    }

    /// The entries of a schedule that end at `since` or later, the newest first; at most `limit`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_ticks(&self, schedule: i64, since: i64, limit: usize) -> Result<Vec<Tick>, StoreError> {
        let sql = "SELECT n, revision, key, due, count, last, state, reason, run, at FROM ticks
             WHERE schedule = ?1 AND last >= ?2 ORDER BY due DESC, n DESC LIMIT ?3";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.db().select_rows(sql, params![schedule, since, limit], tick_from_row)
    }

    /// Pauses or resumes a schedule. Ticks that were due until now must be decided before: nothing is decided during a
    /// pause, and afterwards everything since. False if nothing changed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_paused(
        &self,
        schedule: &ScheduleRow,
        paused: bool,
        actor: Option<&str>,
        origin: &str,
    ) -> Result<bool, StoreError> {
        self.write_durably(|tx, now| {
            let sql = "UPDATE schedules SET paused = iif(?2, ?3, NULL), paused_by = iif(?2, ?4, NULL), next = iif(?2, NULL, ?3)
                     WHERE n = ?1 AND removed IS NULL AND (paused IS NOT NULL) <> ?2";
            let changed = execute(tx, sql, params![schedule.n, paused, now, actor])?;
            if changed == 0 {
                return Ok(false);
            }
            let verb = if paused { "pause" } else { "resume" };
            note_deed(tx, now, verb, &schedule.display_name(), (actor, origin), &json!({}))?;
            Ok(true)
        })
    }

    /// Backfills ticks: adds an entry and a start for each that has no run yet, in the name of `actor`. Returns the
    /// runs, `None` for a tick that already has one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn backfill_ticks(
        &self,
        schedule: &ScheduleRow,
        wanted: &[(NewTick, NewStart)],
        actor: Option<&str>,
        origin: &str,
    ) -> Result<Vec<Option<RunId>>, StoreError> {
        self.write_durably(|tx, now| {
            let mut runs = Vec::with_capacity(wanted.len());
            for (entry, start) in wanted {
                let has_run =
                    "SELECT 1 FROM ticks WHERE schedule = ?1 AND key IN (?2, ?3) AND run IS NOT NULL";
                let key = format!("{}+backfill", entry.key);
                if tx.prepare_cached(has_run)?.exists(params![schedule.n, entry.key, key])? {
                    runs.push(None);
                    continue;
                }
                let actor = actor.map(str::to_owned).or_else(|| start.actor.clone());
                let run = starts::insert_start(tx, &NewStart { actor, ..start.clone() }, now)?;
                insert_tick(
                    tx,
                    schedule.n,
                    schedule.revision,
                    &NewTick { key, ..entry.clone() },
                    Some(run),
                    now,
                )?;
                runs.push(Some(run));
            }
            let made = runs.iter().flatten().count();
            let detail = json!({ "runs": made, "ticks": wanted.len() });
            note_deed(tx, now, "backfill", &schedule.display_name(), (actor, origin), &detail)?;
            Ok(runs)
        })
    }
}

fn apply_settlement(tx: &Transaction<'_>, one: &Settlement, now: i64) -> Result<bool, StoreError> {
    let changed = tx
        .prepare_cached(
            "UPDATE schedules SET decided = ?2, next = ?3
             WHERE n = ?1 AND revision = ?4 AND decided = ?5 AND (paused IS NOT NULL) = ?6 AND removed IS NULL",
        )?
        .execute(params![one.schedule, one.decided, one.next, one.revision, one.from, one.is_paused])?;
    if changed == 0 {
        return Ok(false);
    }
    if let Some(retraction) = &one.retraction {
        retract_ticks(tx, one, retraction, now)?;
    }
    let mut runs = Vec::with_capacity(one.starts.len());
    for (at, start) in one.starts.iter().enumerate() {
        // After the clock was set back, a tick may have run before.
        let tick = one.ticks.iter().find(|tick| tick.start == Some(at));
        let known = "SELECT 1 FROM ticks WHERE schedule = ?1 AND revision = ?2 AND key = ?3";
        let has_run = match tick {
            Some(tick) => tx.prepare_cached(known)?.exists(params![one.schedule, one.revision, tick.key])?,
            None => false,
        };
        runs.push(if has_run { None } else { Some(starts::insert_start(tx, start, now)?) });
    }
    for tick in &one.ticks {
        let run = tick.start.and_then(|at| runs.get(at).copied().flatten());
        if tick.start.is_none() && extend_entry(tx, one, tick, now)? {
            continue;
        }
        insert_tick(tx, one.schedule, one.revision, tick, run, now)?;
    }
    for (run, why) in &one.cancel {
        starts::want_cancelled(tx, *run, why, now)?;
    }
    Ok(true)
}

/// Adds ticks to the previous entry if state and reason are the same.
fn extend_entry(
    tx: &Transaction<'_>,
    one: &Settlement,
    tick: &NewTick,
    now: i64,
) -> Result<bool, StoreError> {
    let sql = "SELECT n, state, reason, last FROM ticks WHERE schedule = ?1 AND revision = ?2 ORDER BY n DESC LIMIT 1";
    let newest: Option<(i64, String, Option<String>, i64)> =
        query_one(tx, sql, [one.schedule, one.revision], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    let Some((n, state, reason, last)) = newest else { return Ok(false) };
    if state != tick.state.as_str() || reason != tick.reason || last > tick.due {
        return Ok(false);
    }
    // An entry with uncounted ticks stays uncounted.
    let sql =
        "UPDATE ticks SET count = iif(count = 0 OR ?2 = 0, 0, count + ?2), last = ?3, at = ?4 WHERE n = ?1";
    execute(tx, sql, params![n, tick.count.cast_signed(), tick.last, now])?;
    Ok(true)
}

/// Withdraws entries of ticks together with their starts, except starts that have begun: those have run.
fn retract_ticks(
    tx: &Transaction<'_>,
    one: &Settlement,
    what: &Retraction,
    now: i64,
) -> Result<(), StoreError> {
    const WHY: &str = "its tick is not due yet: the clock was ahead when it was queued, and was set back";
    let queued: Vec<[u8; 16]> = {
        let sql = "SELECT starts.run FROM ticks JOIN starts ON starts.run = ticks.run
             WHERE ticks.schedule = ?1 AND ticks.revision = ?2 AND ticks.due > ?3 AND ticks.state <> 'backfilled'
             AND starts.state = 'queued' AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = starts.run)";
        query_rows(tx, sql, [one.schedule, one.revision, what.after], |row| row.get(0))?
    };
    for run in queued {
        starts::want_cancelled(tx, RunId(Uuid::from_bytes(run)), WHY, now)?;
        tx.prepare_cached("UPDATE ticks SET run = NULL WHERE schedule = ?1 AND run = ?2")?
            .execute(params![one.schedule, run])?;
    }
    let sql = "DELETE FROM ticks WHERE schedule = ?1 AND revision = ?2 AND due > ?3 AND run IS NULL";
    execute(tx, sql, [one.schedule, one.revision, what.after])?;
    for (n, count, last) in &what.shortened {
        let sql = "UPDATE ticks SET count = ?2, last = ?3 WHERE n = ?1";
        execute(tx, sql, [*n, count.cast_signed(), *last])?;
    }
    Ok(())
}

fn insert_tick(
    tx: &Transaction<'_>,
    schedule: i64,
    revision: i64,
    tick: &NewTick,
    run: Option<RunId>,
    now: i64,
) -> Result<(), StoreError> {
    tx.prepare_cached(
        "INSERT INTO ticks (schedule, revision, key, due, count, last, state, reason, run, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (schedule, revision, key) DO NOTHING",
    )?
    .execute(params![
        schedule,
        revision,
        tick.key,
        tick.due,
        tick.count.cast_signed(),
        tick.last,
        tick.state.as_str(),
        tick.reason,
        run.as_ref().map(RunId::as_bytes),
        now,
    ])?;
    Ok(())
}

/// An entry for a period whose ticks were not counted.
pub(super) fn note_stretch(
    tx: &Transaction<'_>,
    row: &ScheduleRow,
    until: i64,
    state: TickState,
    why: &str,
) -> Result<(), StoreError> {
    let due = row.next.unwrap_or(row.decided);
    let tick = NewTick {
        key: format!("until {until}"),
        due,
        count: 0,
        last: until,
        state,
        reason: Some(why.to_owned()),
        start: None,
    };
    insert_tick(tx, row.n, row.revision, &tick, None, until)
}

pub(super) fn of_workflow(db: &Connection, workflow: i64) -> Result<Vec<ScheduleRow>, StoreError> {
    query_rows(db, &format!("{SELECT} WHERE s.workflow = ?1"), [workflow], schedule_from_row)
}

const SELECT: &str = "SELECT s.n, s.workflow, w.name, s.name, s.revision, s.spec, s.decided, s.next, s.paused, \
                      s.paused_by, s.removed IS NOT NULL FROM schedules s JOIN workflows w ON w.n = s.workflow";

fn schedule_from_row(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let paused: Option<i64> = row.get(8)?;
    let by: Option<String> = row.get(9)?;
    Ok(ScheduleRow {
        n: row.get(0)?,
        workflow: row.get(1)?,
        workflow_name: row.get(2)?,
        name: row.get(3)?,
        revision: row.get(4)?,
        spec: row.get(5)?,
        decided: row.get(6)?,
        next: row.get(7)?,
        paused: paused.map(|at| (at, by)),
        is_removed: row.get(10)?,
    })
}

fn tick_from_row(row: &Row<'_>) -> rusqlite::Result<Tick> {
    Ok(Tick {
        n: row.get(0)?,
        revision: row.get(1)?,
        key: row.get(2)?,
        due: row.get(3)?,
        count: row.get::<_, i64>(4)?.cast_unsigned(),
        last: row.get(5)?,
        state: read_word(row, 6)?,
        reason: row.get(7)?,
        run: row.get::<_, Option<[u8; 16]>>(8)?.map(|bytes| RunId(Uuid::from_bytes(bytes))),
        at: row.get(9)?,
    })
}
