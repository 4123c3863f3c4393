//! Schedules: decisions about their ticks, and the turns in which they are made.
//!
//! [`decide`] is a pure function of a schedule, its row, its runs and the clock. [`Scheduler`] reads this data and
//! writes the result. One transaction stores the entries, the starts and the time up to which the schedule is decided.
//! It takes effect only if the row is unchanged since it was read, which keeps the promises.

mod decide;
mod spec;
#[cfg(test)]
mod tests;

use jiff::tz::TimeZoneDatabase;
use lobster_runtime::language::triggers::Due;
use lobster_runtime::store::service::{NewStart, NewTick, ScheduleRow, Service, Settlement, TickState};
use lobster_runtime::store::{Store, StoreError};

use crate::readiness::EARLIEST_MS;

pub use decide::{CLOCK_TOLERANCE_MS, View, decide_ticks};
pub use spec::{SpecError, next_after, parse_spec, specs_of};

/// The time zone database: of this machine if it has one, otherwise the copy in the program.
#[must_use]
pub fn time_zones() -> TimeZoneDatabase {
    TimeZoneDatabase::from_env()
}

/// Returns the entries and starts that backfill the ticks of a schedule from `from` until before `to`, in order and at
/// most `limit`.
///
/// # Errors
/// Returns the reason why the schedule cannot be due.
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
        .ticks_after(spec::instant_from_ms(from.saturating_sub(1)), &time_zones())
        .map_err(|error| error.to_string())?;
    let ticks = ticks.take_while(|tick| tick.due < spec::instant_from_ms(to)).take(limit);
    let made = ticks.map(|tick| {
        let entry = decide::tick_entry(&tick, TickState::Backfilled, None);
        (entry, decide::new_start(&schedule, row, digest, &tick, "backfill", true))
    });
    Ok(made.collect())
}

/// Schedules decided in one transaction.
const AT_ONCE: usize = 256;

/// Transactions of one turn. The rest is left for the next turn, so that no other work waits for long.
const BATCHES: usize = 64;

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Number of schedules that were decided.
    pub decided: usize,
    /// Number of runs to start.
    pub starts: usize,
    /// Time of the next decision, in milliseconds since 1970.
    pub next: Option<i64>,
}

/// Decides the schedules of a store.
pub struct Scheduler {
    service: Service,
    zones: TimeZoneDatabase,
    /// Clock at the last turn. `None` makes the first turn check whether the clock was set back.
    last: Option<i64>,
    check: ZoneCheck,
}

/// Progress of the search for schedules that new time zone rules move. The store holds the time of each next decision,
/// so a tick that new rules move forward would otherwise be late.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneCheck {
    /// Number of the last schedule that was checked.
    after: i64,
    /// Time at which the last search finished.
    done: Option<i64>,
}

/// Interval at which all schedules are checked, in milliseconds. The time zone database itself is reloaded about as
/// often.
const ZONE_CHECK_MS: i64 = 10 * 60_000;

/// Schedules that one turn checks: 10,000 take five minutes, at a quarter of a percent of a core.
const ZONE_CHECK_AT_ONCE: usize = 8;

/// Smallest change that matters, in milliseconds: changes of zone rules are a quarter of an hour at least.
const ZONE_CHANGE_MS: i64 = 60_000;

impl Scheduler {
    /// Creates a scheduler of this store.
    ///
    /// # Errors
    /// Fails if the store has no room for the tables of the service.
    pub fn new(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            service: store.service()?,
            zones: TimeZoneDatabase::from_env(),
            last: None,
            check: ZoneCheck::default(),
        })
    }

    /// Replaces the time zone database.
    #[cfg(test)]
    pub(crate) fn with_zones(self, zones: TimeZoneDatabase) -> Self {
        Self { zones, ..self }
    }

    /// Decides everything that is due now.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written. Earlier decisions of the turn stay.
    pub fn decide_due(&mut self) -> Result<Turn, StoreError> {
        let now = self.service.store().clock_ms();
        let mut turn = Turn::default();
        // A clock that went forward looks like an outage; a clock that went back is handled here.
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

    /// Checks some schedules: changed time zone rules move their next decision.
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
            let Some((was, is)) = self.moved_decision(&row, now) else { continue };
            if self.service.reschedule(&row, is, "time zones")? {
                tracing::warn!(
                    schedule = row.display_name(),
                    was,
                    is,
                    "the rules of its time zone have changed"
                );
            }
        }
        Ok(())
    }

    /// Returns the stored and the current time of a schedule's next decision, if the time zone rules have moved it.
    fn moved_decision(&self, row: &ScheduleRow, now: i64) -> Option<(i64, i64)> {
        let was = row.next.filter(|next| *next > now)?;
        let schedule = parse_spec(&row.spec).ok()?;
        if matches!(&schedule.due, Due::Every { .. }) {
            return None;
        }
        let is = next_after(&schedule, schedule.delay_ms(&row.display_name()), row.decided, &self.zones)
            .ok()??;
        (was.abs_diff(is) >= ZONE_CHANGE_MS.unsigned_abs()).then_some((was, is))
    }

    /// Decides one schedule now, before it is paused or changed. Returns false if another process decided it meanwhile,
    /// so this decision had no effect.
    ///
    /// # Errors
    /// Fails like [`Scheduler::decide_due`].
    pub fn settle_schedule(&self, row: &ScheduleRow) -> Result<bool, StoreError> {
        let settlement = self.make_settlement(row, self.service.store().clock_ms())?;
        Ok(self.service.write_settlements(&[settlement])?.first().is_some_and(|counted| *counted))
    }

    fn decide_about(&self, rows: &[ScheduleRow], now: i64, turn: &mut Turn) -> Result<(), StoreError> {
        let settlements =
            rows.iter().map(|row| self.make_settlement(row, now)).collect::<Result<Vec<_>, _>>()?;
        let counted = self.service.write_settlements(&settlements)?;
        for (settlement, _) in settlements.iter().zip(counted).filter(|(_, counted)| *counted) {
            turn.decided += 1;
            turn.starts += settlement.starts.len();
        }
        Ok(())
    }

    fn make_settlement(&self, row: &ScheduleRow, now: i64) -> Result<Settlement, StoreError> {
        if now < EARLIEST_MS {
            // A clock that has lost the time retracts nothing: due ticks stay due.
            return Ok(decide::no_change(row, row.next));
        }
        let active = self.service.active_starts(row.n)?;
        let digest = self.service.workflow_by_number(row.workflow)?.map(|workflow| workflow.digest);
        let decided = parse_spec(&row.spec).map(|schedule| {
            let recent = match row.decided > now {
                true => self.service.list_ticks(
                    row.n,
                    now.saturating_sub_unsigned(schedule.jitter_ms),
                    usize::MAX,
                )?,
                false => Vec::new(),
            };
            let view = View { row, schedule: &schedule, active: &active, recent: &recent, digest };
            Ok::<_, StoreError>(decide_ticks(&view, now, &self.zones).map_err(SpecError::from))
        });
        let decided = match decided {
            Ok(decided) => decided?,
            Err(error) => Err(error),
        };
        Ok(decided.unwrap_or_else(|error| {
            // The schedule was checked at its registration, but its zone may be gone since, or the row is damaged.
            tracing::error!(schedule = row.display_name(), %error, "the schedule cannot be decided");
            decide::no_change(row, None)
        }))
    }
}
