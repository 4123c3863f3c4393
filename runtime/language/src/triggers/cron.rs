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
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(text).map_err(|error| PatternError::Syntax(said_of(&error)))?;
    let pattern = Pattern { cron, follows_real_time: is_interval(text) };
    match pattern.next(SOME_DAY, true) {
        Some(_) => Ok(pattern),
        None => Err(PatternError::Never),
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
