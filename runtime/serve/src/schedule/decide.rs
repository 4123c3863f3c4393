//! Decides the due ticks of a schedule: a pure function of its arguments.
//!
//! Ticks are compared without the jitter: for a schedule with jitter, the clock is set back by it.

use jiff::tz::TimeZoneDatabase;
use lobster_runtime::digest::Digest;
use lobster_runtime::language::triggers::{CatchUp, Due, DueTick, Missed, Overlap, Schedule, TickError};
use lobster_runtime::store::RunId;
use lobster_runtime::store::service::{
    NewStart, NewTick, Retraction, ScheduleRow, Settlement, Start, StartState, Tick, TickState,
};
use serde_json::{Value, json};

use super::spec::{instant_from_ms, next_after};

/// Longest delay between a tick and its decision; after it, the tick was missed. Long enough for a restarting server or
/// a machine under load.
const ON_TIME_MS: i64 = 60_000;

/// Largest difference between the clocks of two servers; beyond it, one of them is treated as set back.
pub const CLOCK_TOLERANCE_MS: i64 = 90_000;

/// The data on which a decision is based.
pub struct View<'v> {
    pub row: &'v ScheduleRow,
    pub schedule: &'v Schedule,
    /// The starts of the schedule that are not over, oldest first.
    pub active: &'v [Start],
    /// Entries that end at `now` or later; needed only if the clock was set back.
    pub recent: &'v [Tick],
    /// Digest of the registered version.
    pub digest: Option<Digest>,
}

/// Decides every tick that became due since the last decision.
///
/// # Errors
/// Fails if the schedule can never be due.
pub fn decide_ticks(view: &View<'_>, now: i64, zones: &TimeZoneDatabase) -> Result<Settlement, TickError> {
    let (row, schedule) = (view.row, view.schedule);
    let delay = schedule.delay_ms(&row.display_name());
    let clock = now.saturating_sub_unsigned(delay);
    let next = |decided| next_after(schedule, delay, decided, zones);
    if row.decided > now + CLOCK_TOLERANCE_MS {
        let mut settlement = no_change(row, next(clock)?);
        settlement.decided = clock;
        settlement.retraction = Some(find_retraction(view, clock, zones)?);
        return Ok(settlement);
    }
    if clock <= row.decided {
        return Ok(no_change(row, next(row.decided)?));
    }
    let mut settlement = no_change(row, if row.paused.is_some() { None } else { next(clock)? });
    settlement.decided = clock;
    if row.paused.is_some() {
        let all = left_out(schedule, row.decided, clock, zones)?;
        let by = row.paused.as_ref().and_then(|(_, by)| by.as_ref());
        let reason = by.map(|by| format!("paused by {by}"));
        settlement.ticks.extend(combined_entry(&all, TickState::Paused, reason));
        return Ok(settlement);
    }
    let due = ticks_to_run(schedule, row.decided, clock, zones)?;
    settlement.ticks.extend(combined_entry(&due.left_out, TickState::Missed, Some(why_missed(schedule))));
    Overlapping::new(view, &mut settlement).place_ticks(&due);
    Ok(settlement)
}

/// A settlement that changes only the time of the next check.
pub(super) fn no_change(row: &ScheduleRow, next: Option<i64>) -> Settlement {
    Settlement {
        schedule: row.n,
        revision: row.revision,
        from: row.decided,
        is_paused: row.paused.is_some(),
        decided: row.decided,
        next,
        retraction: None,
        ticks: Vec::new(),
        starts: Vec::new(),
        cancel: Vec::new(),
    }
}

/// The ticks to run, each with its state, and the ticks left out.
#[derive(Default)]
struct DueTicks {
    run: Vec<(DueTick, TickState)>,
    left_out: CatchUp,
    /// True if some of the ticks were missed and the schedule catches up on them: they run one after another.
    are_made_up_for: bool,
}

fn ticks_to_run(
    schedule: &Schedule,
    from: i64,
    clock: i64,
    zones: &TimeZoneDatabase,
) -> Result<DueTicks, TickError> {
    let punctual = clock - on_time_ms(schedule, from, zones)?;
    let first = schedule.ticks_after(instant_from_ms(from), zones)?.next();
    let is_late = first.is_some_and(|tick| tick.due.as_millisecond() <= punctual);
    let on_time = |after: i64| -> Result<Vec<(DueTick, TickState)>, TickError> {
        let ticks = schedule.ticks_after(instant_from_ms(after), zones)?;
        Ok(ticks
            .take_while(|tick| tick.due <= instant_from_ms(clock))
            .map(|tick| (tick, TickState::Fired))
            .collect())
    };
    if !is_late {
        return Ok(DueTicks { run: on_time(from)?, ..DueTicks::default() });
    }
    if schedule.missed == Missed::Skip {
        let left_out = left_out(schedule, from, punctual, zones)?;
        return Ok(DueTicks { run: on_time(punctual)?, left_out, are_made_up_for: false });
    }
    // The latest tick may be on time; then it is the one that runs.
    let mut found = schedule.catch_up(instant_from_ms(from), instant_from_ms(clock), zones)?;
    let run = std::mem::take(&mut found.run).into_iter().map(|tick| {
        let is_late = tick.due.as_millisecond() <= punctual;
        (tick, if is_late { TickState::CaughtUp } else { TickState::Fired })
    });
    Ok(DueTicks { run: run.collect(), left_out: found, are_made_up_for: true })
}

/// Returns how late a tick may be decided. This is less than the time to the next tick; otherwise a short halt would
/// make many ticks of a schedule that is due every second.
fn on_time_ms(schedule: &Schedule, from: i64, zones: &TimeZoneDatabase) -> Result<i64, TickError> {
    let gap = match &schedule.due {
        Due::Every { ms } => i64::try_from(*ms).unwrap_or(i64::MAX),
        Due::Cron { .. } => {
            let mut ticks = schedule.ticks_after(instant_from_ms(from), zones)?;
            match (ticks.next(), ticks.next()) {
                (Some(one), Some(two)) => two.due.as_millisecond() - one.due.as_millisecond(),
                _ => i64::MAX,
            }
        }
    };
    Ok(gap.clamp(1000, ON_TIME_MS))
}

/// Collects all ticks of a period as left out.
fn left_out(
    schedule: &Schedule,
    after: i64,
    until: i64,
    zones: &TimeZoneDatabase,
) -> Result<CatchUp, TickError> {
    let skipping = Schedule { missed: Missed::Skip, ..schedule.clone() };
    skipping.catch_up(instant_from_ms(after), instant_from_ms(until), zones)
}

/// Makes one entry for the ticks that do not run.
fn combined_entry(found: &CatchUp, state: TickState, reason: Option<String>) -> Option<NewTick> {
    let (first, last) = found.span?;
    Some(NewTick {
        key: first.key(),
        due: first.due.as_millisecond(),
        // Ticks beyond the counting limit are unknown.
        count: if found.are_more { 0 } else { found.left_out },
        last: last.due.as_millisecond(),
        state,
        reason,
        start: None,
    })
}

fn why_missed(schedule: &Schedule) -> String {
    let policy = match schedule.missed {
        Missed::Skip => "skip".to_owned(),
        Missed::Last { .. } => "last".to_owned(),
        Missed::All { max, .. } => format!("all, at most {max}"),
    };
    format!("no server was running when it was due, or the clock jumped past it (missed: {policy})")
}

/// Decides which runs of a schedule start beside its runs that have not ended.
struct Overlapping<'a, 'v> {
    view: &'a View<'v>,
    settlement: &'a mut Settlement,
    waiting: u64,
}

impl<'a, 'v> Overlapping<'a, 'v> {
    fn new(view: &'a View<'v>, settlement: &'a mut Settlement) -> Self {
        let waiting = view.active.iter().filter(|start| start.state == StartState::Queued).count();
        Self { view, settlement, waiting: waiting as u64 }
    }

    fn place_ticks(&mut self, due: &DueTicks) {
        for (at, (tick, state)) in due.run.iter().enumerate() {
            let is_busy = !self.view.active.is_empty() || !self.settlement.starts.is_empty();
            match self.view.schedule.overlap {
                Overlap::Allow => self.start_tick(tick, *state, false),
                // The schedule asks for these ticks, so they wait for one another.
                Overlap::Skip | Overlap::Queue { .. } if due.are_made_up_for => {
                    self.start_tick(tick, *state, true)
                }
                Overlap::Skip if is_busy => {
                    let reason = format!("{} (overlap: skip)", self.why_busy());
                    self.skip_tick(tick, reason);
                }
                Overlap::Queue { max } if is_busy && self.waiting >= max => {
                    let reason = format!(
                        "{} and {} are already waiting (overlap: queue, at most {max})",
                        self.why_busy(),
                        self.waiting
                    );
                    self.skip_tick(tick, reason);
                }
                Overlap::Queue { .. } => {
                    self.waiting += u64::from(is_busy);
                    self.start_tick(tick, *state, true);
                }
                Overlap::Skip => self.start_tick(tick, *state, true),
                Overlap::CancelPrevious if at + 1 < due.run.len() => {
                    self.skip_tick(
                        tick,
                        "a later tick was due before it began (overlap: cancel_previous)".to_owned(),
                    );
                }
                Overlap::CancelPrevious => {
                    let why = format!("the next tick of its schedule was due ({})", tick.key());
                    let earlier = self.view.active.iter().filter(|start| start.cancel.is_none());
                    let earlier: Vec<(RunId, String)> =
                        earlier.map(|start| (start.run, why.clone())).collect();
                    self.settlement.cancel.extend(earlier);
                    self.start_tick(tick, *state, true);
                }
            }
        }
    }

    fn start_tick(&mut self, tick: &DueTick, state: TickState, is_serial: bool) {
        let row = self.view.row;
        let Some(digest) = self.view.digest else {
            return self.skip_tick(tick, "its workflow is no longer registered".to_owned());
        };
        self.settlement
            .ticks
            .push(NewTick { start: Some(self.settlement.starts.len()), ..tick_entry(tick, state, None) });
        self.settlement.starts.push(new_start(self.view.schedule, row, digest, tick, "schedule", is_serial));
    }

    fn skip_tick(&mut self, tick: &DueTick, reason: String) {
        let new = tick_entry(tick, TickState::Skipped, Some(reason));
        match self.settlement.ticks.last_mut() {
            Some(last) if last.state == new.state && last.reason == new.reason => {
                last.count += 1;
                last.last = new.last;
            }
            _ => self.settlement.ticks.push(new),
        }
    }

    fn why_busy(&self) -> String {
        let Some(start) = self.view.active.first() else {
            return "the run of the previous tick has not ended".to_owned();
        };
        let what = match start.state {
            StartState::Queued => "waits for a free place",
            StartState::Parked => "waits for an answer, a time or an event",
            StartState::Taken | StartState::Over | StartState::Refused | StartState::Withdrawn => {
                "has not ended"
            }
        };
        format!("run {} {what}", start.run.short_id())
    }
}

/// Makes the entry of one tick.
pub(super) fn tick_entry(tick: &DueTick, state: TickState, reason: Option<String>) -> NewTick {
    let due = tick.due.as_millisecond();
    NewTick { key: tick.key(), due, count: 1, last: due, state, reason, start: None }
}

/// Makes the start of a tick's run.
pub(super) fn new_start(
    schedule: &Schedule,
    row: &ScheduleRow,
    digest: Digest,
    tick: &DueTick,
    cause: &str,
    is_serial: bool,
) -> NewStart {
    NewStart {
        workflow: row.workflow,
        digest,
        schedule: Some(row.n),
        cause: cause.to_owned(),
        detail: json!({ "schedule": row.display_name(), "tick": tick.key(), "due": tick.due.as_millisecond() }),
        args: Value::Object(schedule.args.clone()),
        actor: Some(format!("schedule:{}", row.display_name())),
        is_serial,
        refusal: None,
    }
}

/// Finds the entries to retract. Entries for several ticks keep those that the clock has reached.
fn find_retraction(view: &View<'_>, clock: i64, zones: &TimeZoneDatabase) -> Result<Retraction, TickError> {
    let mut shortened = Vec::new();
    for tick in view.recent.iter().filter(|tick| {
        tick.run.is_none() && tick.revision == view.row.revision && tick.due <= clock && tick.last > clock
    }) {
        let left = left_out(view.schedule, tick.due - 1, clock, zones)?;
        let last = left.span.map_or(tick.due, |(_, last)| last.due.as_millisecond());
        let count = if tick.count == 0 || left.are_more { 0 } else { left.left_out };
        shortened.push((tick.n, count, last));
    }
    Ok(Retraction { after: clock, shortened })
}
