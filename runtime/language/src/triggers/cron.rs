//! Cron patterns: their one interpretation, and the errors of patterns that never match.
//!
//! A pattern is only compared with civil times. [`super::ticks`] applies the time zone and defines the
//! handling of gaps and folds of the clock.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Start of the search for a pattern's first times. Any day would do: patterns repeat, and every kind
/// of leap year follows this one.
const SOME_DAY: DateTime = Date::constant(2001, 1, 1).at(0, 0, 0, 0);

/// Number of gaps between times that are measured to find out how often a pattern is due.
const GAPS: usize = 50;

/// A pattern that is due at least once.
#[derive(Clone, Debug)]
pub struct Pattern {
    cron: Cron,
    follows_real_time: bool,
}

impl Pattern {
    /// First matching civil time after `wall`; with `or_at_it`, `wall` itself may match.
    pub(super) fn next(&self, wall: DateTime, or_at_it: bool) -> Option<DateTime> {
        // UTC has no gaps and no folds, so the search sees the civil times unchanged.
        let wall = wall.to_zoned(TimeZone::UTC).ok()?;
        self.cron.find_next_occurrence(&wall, or_at_it).ok().map(|found| found.datetime())
    }

    /// True if the minutes or the hours begin with `*`. Such a pattern means an interval rather than a
    /// time of day, and is due in real time when the clock changes.
    #[must_use]
    pub fn follows_real_time(&self) -> bool {
        self.follows_real_time
    }

    /// Shortest time between two matches in milliseconds, among the first matches.
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

/// Reason why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("{0}")]
    Syntax(String),
    #[error("it is never due")]
    Never,
}

/// Parses a pattern of five fields, or of six with seconds first, or a name such as `@daily`.
///
/// # Errors
/// The text is not a pattern, or no time matches it.
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

/// True if a day has to match both of its fields, the day of the month and the day of the week. The
/// rule is that of Vixie cron: both if one of them begins with `*`, otherwise one is enough.
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

    /// Checks every pair of fields against the rule, written out day by day.
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
