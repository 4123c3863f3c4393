//! Times at which a schedule is due.
//!
//! A tick of a pattern is identified by its intended civil time and by its position among two equal
//! civil times, never by the instant alone: if the rules of a zone change, the same tick is due at
//! another instant, and it must not run twice.
//!
//! - A time of day (`30 2 * * *`) is due once for each civil time that matches. If the clock skips the
//!   time, it is due at the first instant after the gap; if the clock repeats it, it is due the first
//!   time.
//! - An interval (`*/15 * * * *`, see [`Pattern::follows_real_time`]) is due at each instant whose
//!   civil time matches: not in a gap, and both times in a fold.
//! - `every` counts real time from the Unix epoch, so that neither a restart nor a machine that sleeps
//!   shifts it.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::cron::{self, Pattern, PatternError};
use super::{Due, Schedule};
use lobster_base::digest::Digest;

/// One time at which a schedule is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick {
    /// Instant at which it is due, before the jitter.
    pub due: Timestamp,
    /// Intended civil time in the schedule's zone; for `every`, in UTC.
    pub intended: DateTime,
    /// True if this is the second of two instants with the intended civil time.
    pub is_second: bool,
}

impl Tick {
    /// Name of the tick within one revision of its schedule: `2026-11-01T01:30:00`, with `+fold` for
    /// the second of two equal times.
    #[must_use]
    pub fn key(&self) -> String {
        let fold = if self.is_second { "+fold" } else { "" };
        format!("{}{fold}", self.intended)
    }
}

/// A schedule that cannot be due.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TickError {
    #[error("the pattern {pattern:?} cannot be used: {error}")]
    Pattern { pattern: String, error: PatternError },
    #[error("there is no time zone {0:?}")]
    Zone(String),
    #[error("an interval must not be zero")]
    NoInterval,
}

impl Schedule {
    /// Ticks after an instant, in order, up to the end of the calendar.
    ///
    /// The zone is looked up in `zones` first, and then in the program's own copy. Two ticks may be due
    /// at one instant, for civil times that the clock skips: after a restart, start from before it and
    /// use [`Tick::key`] to find out which of them have run.
    ///
    /// # Errors
    /// The schedule did not come from a validated file.
    pub fn ticks_after(&self, after: Timestamp, zones: &TimeZoneDatabase) -> Result<Ticks, TickError> {
        let repeating = match &self.due {
            Due::Every { ms: 0 } => return Err(TickError::NoInterval),
            Due::Every { ms } => Repeating::Every(*ms),
            Due::Cron { pattern, timezone } => {
                let zone = find_zone(timezone, zones).ok_or_else(|| TickError::Zone(timezone.clone()))?;
                let pattern = cron::parse(pattern)
                    .map_err(|error| TickError::Pattern { pattern: pattern.clone(), error })?;
                Repeating::Pattern(Box::new(pattern), zone)
            }
        };
        Ok(Ticks { repeating, after, wall: None })
    }

    /// Delay of the schedule's starts: less than the jitter, and the same on every machine for one
    /// `identity` (the service's name for the schedule).
    #[must_use]
    pub fn delay_ms(&self, identity: &str) -> u64 {
        let digest = Digest::of_bytes(identity.as_bytes());
        let drawn = digest.to_string().get(..15).and_then(|hex| u64::from_str_radix(hex, 16).ok());
        drawn.unwrap_or_default().checked_rem(self.jitter_ms).unwrap_or_default()
    }
}

/// True if there is a time zone of this name. A name that was replaced by another one is also valid.
#[must_use]
pub fn is_zone(name: &str) -> bool {
    // The database in the program: the meaning of a file does not depend on the machine.
    TimeZoneDatabase::bundled().get(name).is_ok()
}

/// All names of time zones, for proposals.
pub(crate) fn zone_names() -> Vec<String> {
    TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect()
}

fn find_zone(name: &str, zones: &TimeZoneDatabase) -> Option<TimeZone> {
    zones.get(name).or_else(|_| TimeZoneDatabase::bundled().get(name)).ok()
}

#[derive(Clone, Debug)]
enum Repeating {
    Every(u64),
    Pattern(Box<Pattern>, TimeZone),
}

/// Ticks of a schedule, in order of their instants.
#[derive(Clone, Debug)]
pub struct Ticks {
    repeating: Repeating,
    after: Timestamp,
    /// Civil time up to which fixed times have been returned.
    wall: Option<DateTime>,
}

impl Iterator for Ticks {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        let tick = match &self.repeating {
            Repeating::Every(ms) => next_interval(*ms, self.after),
            Repeating::Pattern(pattern, zone) if pattern.follows_real_time() => {
                next_by_real_time(pattern, zone, self.after)
            }
            Repeating::Pattern(pattern, zone) => {
                let first = self.wall.is_none();
                let wall = self.wall.unwrap_or_else(|| zone.to_datetime(self.after));
                next_fixed(pattern, zone, wall, first.then_some(self.after))
            }
        }?;
        (self.after, self.wall) = (tick.due, Some(tick.intended));
        Some(tick)
    }
}

fn next_interval(ms: u64, after: Timestamp) -> Option<Tick> {
    let ms = i64::try_from(ms).ok()?;
    // Rounds towards the past, even before the epoch.
    let counted = after.as_nanosecond().div_euclid(i128::from(ms) * 1_000_000);
    let due = i64::try_from(counted + 1).ok()?.checked_mul(ms)?;
    let due = Timestamp::from_millisecond(due).ok()?;
    Some(Tick { due, intended: TimeZone::UTC.to_datetime(due), is_second: false })
}

/// First matching civil time after `wall` that is due after the instant `after`, if there is one.
fn next_fixed(pattern: &Pattern, zone: &TimeZone, wall: DateTime, after: Option<Timestamp>) -> Option<Tick> {
    let mut wall = whole_seconds(wall)?;
    loop {
        wall = pattern.next(wall, false)?;
        let ambiguous = zone.to_ambiguous_timestamp(wall);
        let due = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok()?,
            AmbiguousOffset::Gap { before, .. } => {
                // The instant at which the unchanged clock would have shown it, which is after the
                // change.
                let late = before.to_timestamp(wall).ok()?;
                let change =
                    zone.preceding(late.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?).next()?;
                change.timestamp()
            }
        };
        // In the second half of a fold, times that were returned in the first half match again.
        if after.is_none_or(|after| due > after) {
            return Some(Tick { due, intended: wall, is_second: false });
        }
    }
}

/// First instant after `after` whose civil time matches.
fn next_by_real_time(pattern: &Pattern, zone: &TimeZone, after: Timestamp) -> Option<Tick> {
    let (mut from, mut or_at_it) = (after, false);
    loop {
        let offset = zone.to_offset(from);
        let wall = whole_seconds(offset.to_datetime(from))?;
        let intended = pattern.next(wall, or_at_it)?;
        let due = offset.to_timestamp(intended).ok()?;
        // The offset applies until the clock changes; the search then continues with the next offset.
        match zone.following(from).next().map(|change| change.timestamp()) {
            Some(change) if due >= change => (from, or_at_it) = (change, true),
            _ => return Some(Tick { due, intended, is_second: is_second(zone, intended, due) }),
        }
    }
}

fn is_second(zone: &TimeZone, intended: DateTime, due: Timestamp) -> bool {
    match zone.to_ambiguous_timestamp(intended).offset() {
        AmbiguousOffset::Fold { after, .. } => after.to_timestamp(intended).is_ok_and(|second| second == due),
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => false,
    }
}

fn whole_seconds(wall: DateTime) -> Option<DateTime> {
    wall.with().subsec_nanosecond(0).build().ok()
}
