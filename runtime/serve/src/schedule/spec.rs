//! Schedules as the store keeps them: their terms without their place in the file, so that moving a line does not
//! change the schedule.

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use lobster_runtime::json;
use lobster_runtime::language::triggers::{Schedule, TickError, Triggers};
use lobster_runtime::store::service::SpecOfSchedule;
use serde_json::{Value, json};

/// A stored schedule that cannot be used.
#[derive(Debug)]
pub enum SpecError {
    Text(String),
    Tick(TickError),
}

impl From<TickError> for SpecError {
    fn from(error: TickError) -> Self {
        Self::Tick(error)
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(why) => write!(f, "the stored schedule cannot be read: {why}"),
            Self::Tick(error) => error.fmt(f),
        }
    }
}

/// Parses a stored schedule.
///
/// # Errors
/// Fails if the text is not a schedule.
pub fn parse_spec(text: &str) -> Result<Schedule, SpecError> {
    let mut value = json::parse(text).map_err(|error| SpecError::Text(error.to_string()))?;
    value["span"] = json!({ "start": 0, "end": 0 });
    serde_json::from_value(value).map_err(|error| SpecError::Text(error.to_string()))
}

/// Returns the schedules of a workflow of this name for its registration.
///
/// # Errors
/// Fails if a schedule can never be due.
pub fn specs_of(
    workflow: &str,
    triggers: &Triggers,
    now: i64,
    zones: &TimeZoneDatabase,
) -> Result<Vec<SpecOfSchedule>, SpecError> {
    let spec_of = |schedule: &Schedule| {
        let mut value = serde_json::to_value(schedule).map_err(|error| SpecError::Text(error.to_string()))?;
        if let Value::Object(fields) = &mut value {
            fields.shift_remove("span");
        }
        let delay = schedule.delay_ms(&format!("{workflow}/{}", schedule.name));
        let next = next_after(schedule, delay, now.saturating_sub_unsigned(delay), zones)?;
        Ok(SpecOfSchedule { name: schedule.name.clone(), spec: json::compact(&value), next })
    };
    triggers.schedules.iter().map(spec_of).collect()
}

/// Returns the time at which the first tick after `decided` is decided, including its jitter.
///
/// # Errors
/// Fails if the schedule can never be due.
pub fn next_after(
    schedule: &Schedule,
    delay_ms: u64,
    decided: i64,
    zones: &TimeZoneDatabase,
) -> Result<Option<i64>, TickError> {
    let tick = schedule.ticks_after(instant_from_ms(decided), zones)?.next();
    Ok(tick.map(|tick| tick.due.as_millisecond().saturating_add_unsigned(delay_ms)))
}

/// Converts milliseconds to an instant. Values outside the calendar become its nearest end.
pub(super) fn instant_from_ms(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
