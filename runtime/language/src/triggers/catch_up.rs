//! Handling of ticks that were missed because no server was running.

use jiff::tz::TimeZoneDatabase;
use jiff::{SignedDuration, Timestamp};

use super::{Due, Missed, Schedule, Tick, TickError};

/// Most missed ticks that are counted one by one. A pattern that is due each second reaches this number
/// in eleven days; counting those of a year would take too long.
const MOST_COUNTED: u64 = 1_000_000;

/// Ticks of a time in which no server ran the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatchUp {
    /// Ticks that run now, oldest first.
    pub run: Vec<Tick>,
    /// Number of ticks that do not run.
    pub left_out: u64,
    /// True if the number is larger than counted.
    pub are_more: bool,
    /// First and last of the ticks that do not run.
    pub span: Option<(Tick, Tick)>,
}

impl Schedule {
    /// Divides the ticks after `after`, up to and including `now`, into ticks that run and ticks that
    /// do not, by the rule in `missed:`.
    ///
    /// # Errors
    /// As [`Schedule::ticks_after`].
    pub fn catch_up(
        &self,
        after: Timestamp,
        now: Timestamp,
        zones: &TimeZoneDatabase,
    ) -> Result<CatchUp, TickError> {
        let (max, within_ms) = match self.missed {
            Missed::Skip => (0, None),
            Missed::Last { within_ms } => (1, within_ms),
            Missed::All { max, within_ms } => (max, within_ms),
        };
        let oldest = within_ms
            .and_then(|ms| i64::try_from(ms).ok())
            // A tick that is exactly as old as the window still runs.
            .and_then(|ms| {
                now.checked_sub(SignedDuration::from_millis(ms) + SignedDuration::from_nanos(1)).ok()
            });
        let from = oldest.map_or(after, |oldest| oldest.max(after));
        let run = self.latest_ticks(from, now, usize::try_from(max).unwrap_or(usize::MAX), zones)?;
        let mut found = CatchUp { run, ..CatchUp::default() };
        for tick in self.ticks_after(after, zones)?.take_while(|tick| tick.due <= now) {
            if found.run.first().is_some_and(|first| tick == *first) {
                break;
            }
            if found.left_out == MOST_COUNTED {
                found.are_more = true;
                break;
            }
            found.left_out += 1;
            found.span = Some((found.span.map_or(tick, |(first, _)| first), tick));
        }
        Ok(found)
    }

    /// The last `max` ticks of a period. The search starts at its end, because the period may be long.
    fn latest_ticks(
        &self,
        after: Timestamp,
        now: Timestamp,
        max: usize,
        zones: &TimeZoneDatabase,
    ) -> Result<Vec<Tick>, TickError> {
        if max == 0 || now <= after {
            return Ok(Vec::new());
        }
        let mut back = SignedDuration::from_millis(match &self.due {
            Due::Every { ms } => i64::try_from(*ms).unwrap_or(i64::MAX),
            // Many patterns are due within a minute; for other patterns the search is extended.
            Due::Cron { .. } => 60_000,
        });
        loop {
            let from = now.checked_sub(back).map_or(after, |from| from.max(after));
            let mut ticks: Vec<Tick> =
                self.ticks_after(from, zones)?.take_while(|tick| tick.due <= now).collect();
            if ticks.len() >= max || from == after {
                ticks.drain(..ticks.len().saturating_sub(max));
                return Ok(ticks);
            }
            back = back.checked_mul(2).unwrap_or(SignedDuration::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::Span;
    use crate::triggers::Overlap;

    fn sample_schedule(due: Due, missed: Missed) -> Schedule {
        let (jitter_ms, overlap) = (0, Overlap::default());
        let args = serde_json::Map::new();
        Schedule { span: Span::default(), name: "s".to_owned(), due, jitter_ms, missed, overlap, args }
    }

    fn cron_schedule(pattern: &str, missed: Missed) -> Schedule {
        let timezone = "America/New_York".to_owned();
        sample_schedule(Due::Cron { pattern: pattern.to_owned(), timezone }, missed)
    }

    fn parse_time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn three_days_of_minutes_are_no_avalanche() {
        let zones = TimeZoneDatabase::bundled();
        let (from, to) = (parse_time("2026-11-20T12:00:00Z"), parse_time("2026-11-23T12:00:00Z"));
        let all = cron_schedule("* * * * *", Missed::All { max: 10, within_ms: None });
        let found = all.catch_up(from, to, &zones).unwrap();
        assert_eq!((found.run.len(), found.left_out, found.are_more), (10, 4310, false));
        assert_eq!((found.run[0].due, found.run[9].due), (parse_time("2026-11-23T11:51:00Z"), to));
        let (first, last) = found.span.unwrap();
        assert_eq!(
            (first.due, last.due),
            (parse_time("2026-11-20T12:01:00Z"), parse_time("2026-11-23T11:50:00Z"))
        );

        let short = cron_schedule("* * * * *", Missed::All { max: 10, within_ms: Some(180_000) });
        let found = short.catch_up(from, to, &zones).unwrap();
        assert_eq!((found.run.len(), found.left_out), (4, 4316));
        let none = cron_schedule("* * * * *", Missed::Skip).catch_up(from, to, &zones).unwrap();
        assert_eq!((none.run.len(), none.left_out), (0, 4320));
        assert_eq!(all.catch_up(to, to, &zones).unwrap(), CatchUp::default());
        // A clock that was set back.
        assert_eq!(all.catch_up(to, from, &zones).unwrap(), CatchUp::default());
    }

    #[test]
    fn a_count_without_end_stops() {
        let zones = TimeZoneDatabase::bundled();
        let every = sample_schedule(Due::Every { ms: 1000 }, Missed::Last { within_ms: None });
        let found = every
            .catch_up(parse_time("2000-01-01T00:00:00Z"), parse_time("2026-01-01T00:00:00Z"), &zones)
            .unwrap();
        assert_eq!((found.run.len(), found.left_out, found.are_more), (1, MOST_COUNTED, true));
        assert_eq!(found.run[0].due, parse_time("2026-01-01T00:00:00Z"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// However a period is divided into outages, each tick is in exactly one part.
        #[test]
        fn each_tick_runs_or_is_left_out_once(
            which in 0_usize..6,
            policy in 0_u64..3,
            max in 1_u64..5,
            within in prop::option::of(1_u64..100),
            cuts in prop::collection::btree_set(0_i64..20_000, 1..6),
        ) {
            let zones = TimeZoneDatabase::bundled();
            let within_ms = within.map(|minutes| minutes * 60_000);
            let missed = match policy {
                0 => Missed::Skip,
                1 => Missed::Last { within_ms },
                _ => Missed::All { max, within_ms },
            };
            let patterns = ["*/7 * * * *", "30 1 * * *", "30 2 * * *", "0 */4 * * *", "15,45 1,2 * * *"];
            let schedule = match patterns.get(which) {
                Some(pattern) => cron_schedule(pattern, missed),
                None => sample_schedule(Due::Every { ms: 1_234_567 }, missed),
            };
            // Around the hour that occurs twice.
            let start = parse_time("2026-10-29T00:00:00Z");
            let minute = |n: i64| start + SignedDuration::from_mins(n);
            let end = minute(20_000);
            let (mut ran, mut left_out, mut from) = (HashSet::new(), 0, start);
            for to in cuts.into_iter().map(minute).chain([end]) {
                let found = schedule.catch_up(from, to, &zones).unwrap();
                let most = [0, 1, max][usize::try_from(policy).unwrap()];
                prop_assert!(found.run.len() as u64 <= most);
                for tick in found.run {
                    prop_assert!(from < tick.due && tick.due <= to);
                    prop_assert!(ran.insert(tick.key()), "{} ran twice", tick.key());
                }
                left_out += found.left_out;
                from = to;
            }
            let all = schedule.ticks_after(start, &zones).unwrap().take_while(|tick| tick.due <= end).count();
            prop_assert_eq!(ran.len() as u64 + left_out, all as u64);
        }
    }
}
