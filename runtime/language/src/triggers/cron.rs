//! Cron patterns: the one way in which they are read, and what is wrong with those that never come.
//!
//! A pattern is only ever compared with civil times. The time zone is applied by [`super::ticks`],
//! which says what a gap and a fold of the clock mean.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Where the search for a pattern's first times begins. Any day does: patterns repeat, and this one
/// has every kind of leap year after it.
const SOME_DAY: DateTime = Date::constant(2001, 1, 1).at(0, 0, 0, 0);

/// How many gaps between times are looked at to know how often a pattern is due.
const GAPS: usize = 50;

/// A pattern that is due at some time.
#[derive(Clone, Debug)]
pub struct Pattern {
    cron: Cron,
    follows_real_time: bool,
}

impl Pattern {
    /// The first matching civil time after `wall`, or at it.
    pub(super) fn next(&self, wall: DateTime, or_at_it: bool) -> Option<DateTime> {
        // UTC has no gaps and no folds, so the search sees the civil times as they are.
        let wall = wall.to_zoned(TimeZone::UTC).ok()?;
        self.cron.find_next_occurrence(&wall, or_at_it).ok().map(|found| found.datetime())
    }

    /// Whether the minutes or the hours begin with `*`: such a pattern means an interval, not a time
    /// of day, and is due in real time when the clock is changed.
    #[must_use]
    pub fn follows_real_time(&self) -> bool {
        self.follows_real_time
    }

    /// The shortest time between two of its times, in milliseconds, as far as the first ones tell.
    #[must_use]
    pub fn shortest_gap_ms(&self) -> Option<u64> {
        let mut at = self.next(SOME_DAY, true)?;
        let mut shortest = None;
        for _ in 0..GAPS {
            let next = self.next(at, false)?;
            let gap = u64::try_from(at.duration_until(next).as_millis()).ok()?;
            shortest = Some(shortest.map_or(gap, |shortest: u64| shortest.min(gap)));
            at = next;
        }
        shortest
    }
}

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("{0}")]
    Syntax(String),
    #[error("it is never due")]
    Never,
}

/// Reads a pattern of five fields, or six with seconds before them; `@daily` and the like as well.
///
/// # Errors
/// When it is not a pattern, or no time fits it.
pub fn parse(text: &str) -> Result<Pattern, PatternError> {
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        .year(Year::Disallowed)
        .dom_and_dow(needs_both_days(text))
        .build();
    let cron = parser.parse(text).map_err(|error| PatternError::Syntax(said_of(&error)))?;
    let pattern = Pattern { cron, follows_real_time: is_interval(text) };
    match pattern.next(SOME_DAY, true) {
        Some(_) => Ok(pattern),
        None => Err(PatternError::Never),
    }
}

/// Whether a day has to fit both its fields, the day of the month and the day of the week. The rule is that of Vixie's
/// cron: both if one of them begins with `*`, and otherwise one is enough.
fn needs_both_days(text: &str) -> bool {
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields.as_slice() {
        [_, _, _, of_month, _, of_week] | [_, _, of_month, _, of_week] => {
            [of_month, of_week].iter().any(|field| field.starts_with(['*', '?']))
        }
        _ => false,
    }
}

fn is_interval(text: &str) -> bool {
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields.as_slice() {
        [name] => name.eq_ignore_ascii_case("@hourly"),
        [_, minutes, hours, _, _, _] | [minutes, hours, _, _, _] => {
            [minutes, hours].iter().any(|field| field.starts_with(['*', '?']))
        }
        _ => false,
    }
}

/// The error as the end of a sentence.
fn said_of(error: &CronError) -> String {
    let said = error.to_string();
    let said = said.trim_end_matches('.');
    let mut letters = said.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of fields, beside the rule written out day by day.
    #[test]
    fn the_two_fields_of_days_go_together_as_in_vixies_cron() {
        let multiples = |step: i8| (1..=31).step_by(step.unsigned_abs().into()).collect::<Vec<i8>>();
        let of_month = [
            ("*", multiples(1)),
            ("?", multiples(1)),
            ("*/2", multiples(2)),
            ("1-31/2", multiples(2)),
            ("13", vec![13]),
        ];
        let of_week = [
            ("*", vec![0, 1, 2, 3, 4, 5, 6]),
            ("*/2", vec![0, 2, 4, 6]),
            ("1", vec![1]),
            ("mon", vec![1]),
            ("5,6", vec![5, 6]),
        ];
        for (month_text, days) in &of_month {
            for (week_text, weekdays) in &of_week {
                for seconds in ["", "0 "] {
                    let text = format!("{seconds}0 0 {month_text} * {week_text}");
                    let pattern = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                    let mut at = SOME_DAY;
                    for _ in 0..800 {
                        let weekday = at.weekday().to_sunday_zero_offset();
                        let (fits_month, fits_week) = (days.contains(&at.day()), weekdays.contains(&weekday));
                        let is_open = month_text.starts_with(['*', '?']) || week_text.starts_with('*');
                        let due = if is_open { fits_month && fits_week } else { fits_month || fits_week };
                        assert_eq!(pattern.next(at, true) == Some(at), due, "{text} at {at}");
                        at = at.tomorrow().unwrap_or_else(|error| panic!("{error}"));
                    }
                }
            }
        }
    }
}
