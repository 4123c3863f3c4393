//! Schedules: what becomes of their ticks, and the turns in which that is decided.
//!
//! [`decide`] is a function of a schedule, its row, its runs and the clock. [`Scheduler`] reads what
//! it needs, and writes what it says. The order is what holds the promises: entries, starts and how
//! far the schedule is decided are one transaction, which counts only if the row is as it was read.

mod decide;
mod spec;
#[cfg(test)]
mod tests;

use jiff::tz::TimeZoneDatabase;
use lobster_runtime::language::triggers::Due;
use lobster_runtime::store::service::{NewStart, NewTick, ScheduleRow, Service, Settlement, TickState};
use lobster_runtime::store::{Store, StoreError};

use crate::readiness::EARLIEST_MS;

pub use decide::{CLOCK_TOLERANCE_MS, View, decide};
pub use spec::{SpecError, next_after, parse_spec, specs_of};

/// Where time zones are looked up: this machine's database, else the program's own copy.
#[must_use]
pub fn zones() -> TimeZoneDatabase {
    TimeZoneDatabase::from_env()
}

/// The entries and starts that make up for the ticks of a schedule from `from` until before `to`, in
/// order; at most `limit`.
///
/// # Errors
/// Why the schedule cannot be due.
pub fn backfill_of(
    service: &Service,
    row: &ScheduleRow,
    from: i64,
    to: i64,
    limit: usize,
) -> Result<Vec<(NewTick, NewStart)>, String> {
    let schedule = parse_spec(&row.spec).map_err(|error| error.to_string())?;
    let workflow = service.workflow_by_number(row.workflow).map_err(|error| error.to_string())?;
    let digest = workflow.map(|workflow| workflow.digest).ok_or("its workflow is not registered")?;
    let ticks = schedule
        .ticks_after(spec::instant(from.saturating_sub(1)), &zones())
        .map_err(|error| error.to_string())?;
    let ticks = ticks.take_while(|tick| tick.due < spec::instant(to)).take(limit);
    let made = ticks.map(|tick| {
        let entry = decide::entry(&tick, TickState::Backfilled, None);
        (entry, decide::new_start(&schedule, row, digest, &tick, "backfill", true))
    });
    Ok(made.collect())
}

/// Schedules decided in one transaction.
const AT_ONCE: usize = 256;

/// Transactions of one turn; more is left for the next one, so that nothing else waits for long.
const BATCHES: usize = 64;

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Schedules about which something was decided.
    pub decided: usize,
    /// Runs that are to begin.
    pub starts: usize,
    /// When there is something to decide again, in milliseconds since 1970.
    pub next: Option<i64>,
}

/// Decides about the schedules of a store.
pub struct Scheduler {
    service: Service,
    zones: TimeZoneDatabase,
    /// What the clock said last: none makes the first turn look for a clock that was set back.
    last: Option<i64>,
    check: ZoneCheck,
}

/// How far the schedules are looked through for those that new rules of a time zone put elsewhere. When a schedule is
/// decided again stands in the store: what comes sooner than that would be late.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneCheck {
    /// The number of the schedule that was looked at last.
    after: i64,
    /// When the last look was through.
    done: Option<i64>,
}

/// How often all schedules are looked through, in milliseconds. The database of time zones itself is read anew
/// about as often.
const ZONE_CHECK_MS: i64 = 10 * 60_000;

/// Schedules that one turn looks at for it: 10,000 are looked through in five minutes, for a quarter of a percent of
/// a core.
const ZONE_CHECK_AT_ONCE: usize = 8;

/// Changes of the rules of a zone are a quarter of an hour at least.
const ZONE_CHANGE_MS: i64 = 60_000;

impl Scheduler {
    /// A scheduler of this store.
    ///
    /// # Errors
    /// When the store has no room for what a service keeps.
    pub fn new(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            service: store.service()?,
            zones: TimeZoneDatabase::from_env(),
            last: None,
            check: ZoneCheck::default(),
        })
    }

    /// The same, with another database of time zones.
    #[cfg(test)]
    pub(crate) fn with_zones(self, zones: TimeZoneDatabase) -> Self {
        Self { zones, ..self }
    }

    /// Decides about everything that is due now.
    ///
    /// # Errors
    /// When the store cannot be read or written; what was decided before that stays.
    pub fn turn(&mut self) -> Result<Turn, StoreError> {
        let now = self.service.store().clock_ms();
        let mut turn = Turn::default();
        // A clock that went forward is an outage; one that went back is met here.
        if self.last.is_none_or(|last| now < last) {
            let rows = self.service.schedules_decided_after(now + CLOCK_TOLERANCE_MS)?;
            self.decide_about(&rows, now, &mut turn)?;
        }
        self.last = Some(now);
        self.check_zones(now)?;
        for _ in 0..BATCHES {
            let rows = self.service.due_schedules(now, AT_ONCE)?;
            if rows.is_empty() {
                break;
            }
            self.decide_about(&rows, now, &mut turn)?;
        }
        turn.next = self.service.next_decision()?;
        Ok(turn)
    }

    /// Looks at some schedules: where the rules of a time zone have changed, what comes next is another time.
    fn check_zones(&mut self, now: i64) -> Result<(), StoreError> {
        let is_through = |done: i64| (done..done + ZONE_CHECK_MS).contains(&now);
        if self.check.after == 0 && self.check.done.is_some_and(is_through) {
            return Ok(());
        }
        let rows = self.service.schedules_after(self.check.after, ZONE_CHECK_AT_ONCE)?;
        let last = rows.last().filter(|_| rows.len() == ZONE_CHECK_AT_ONCE).map_or(0, |row| row.n);
        let done = if last == 0 { Some(now) } else { self.check.done };
        self.check = ZoneCheck { after: last, done };
        for row in rows {
            let Some((was, is)) = self.moved(&row, now) else { continue };
            if self.service.reschedule(&row, is, "time zones")? {
                tracing::warn!(schedule = row.title(), was, is, "the rules of its time zone have changed");
            }
        }
        Ok(())
    }

    /// When a schedule was to be decided, and when it is by the rules of now, if that is another time.
    fn moved(&self, row: &ScheduleRow, now: i64) -> Option<(i64, i64)> {
        let was = row.next.filter(|next| *next > now)?;
        let schedule = parse_spec(&row.spec).ok()?;
        if matches!(&schedule.due, Due::Every { .. }) {
            return None;
        }
        let is = next_after(&schedule, schedule.delay_ms(&row.title()), row.decided, &self.zones).ok()??;
        (was.abs_diff(is) >= ZONE_CHANGE_MS.unsigned_abs()).then_some((was, is))
    }

    /// Decides about one schedule now, as before it is paused or changed. Gives whether that counted:
    /// not if somebody else did it meanwhile.
    ///
    /// # Errors
    /// As [`Scheduler::turn`].
    pub fn settle(&self, row: &ScheduleRow) -> Result<bool, StoreError> {
        let settlement = self.settlement(row, self.service.store().clock_ms())?;
        Ok(self.service.settle(&[settlement])?.first().is_some_and(|counted| *counted))
    }

    fn decide_about(&self, rows: &[ScheduleRow], now: i64, turn: &mut Turn) -> Result<(), StoreError> {
        let settlements = rows.iter().map(|row| self.settlement(row, now)).collect::<Result<Vec<_>, _>>()?;
        let counted = self.service.settle(&settlements)?;
        for (settlement, _) in settlements.iter().zip(counted).filter(|(_, counted)| *counted) {
            turn.decided += 1;
            turn.starts += settlement.starts.len();
        }
        Ok(())
    }

    fn settlement(&self, row: &ScheduleRow, now: i64) -> Result<Settlement, StoreError> {
        if now < EARLIEST_MS {
            // Nothing is taken back for a clock that lost the time: what was due stays due.
            return Ok(decide::nothing(row, row.next));
        }
        let active = self.service.active_starts(row.n)?;
        let digest = self.service.workflow_by_number(row.workflow)?.map(|workflow| workflow.digest);
        let decided = parse_spec(&row.spec).map(|schedule| {
            let recent = match row.decided > now {
                true => {
                    self.service.ticks(row.n, now.saturating_sub_unsigned(schedule.jitter_ms), usize::MAX)?
                }
                false => Vec::new(),
            };
            let view = View { row, schedule: &schedule, active: &active, recent: &recent, digest };
            Ok::<_, StoreError>(decide(&view, now, &self.zones).map_err(SpecError::from))
        });
        let decided = match decided {
            Ok(decided) => decided?,
            Err(error) => Err(error),
        };
        Ok(decided.unwrap_or_else(|error| {
            // It was checked when it was registered; a zone may be gone since, or the row is damaged.
            tracing::error!(schedule = row.title(), %error, "the schedule cannot be decided");
            decide::nothing(row, None)
        }))
    }
}
