//! `wait` and the pauses of `repeat`: the time at which a step continues.

use jiff::{Timestamp, Zoned};

use super::plan::WaitFor;
use super::template::is_constant;
use lobster_base::quantity::Span;

/// Longest wait of a step in days.
const MOST_DAYS: u64 = 366;
const DAY_MS: u64 = 86_400_000;

impl WaitFor {
    /// Text for people.
    #[must_use]
    pub fn display_text(&self) -> String {
        match self {
            Self::Span(text) => text.clone(),
            Self::Time(text) => format!("until {text}"),
            Self::Event { name, timeout: None } => format!("for event {name}"),
            Self::Event { name, timeout: Some(limit) } => format!("for event {name}, at most {limit}"),
        }
    }

    /// Error that occurs in every run, if the text is constant.
    pub(super) fn constant_error(&self) -> Option<String> {
        let known = |text: &str| is_constant(text).then(|| text.to_owned());
        match self {
            Self::Span(text) => deadline_after(&known(text)?, 0).err(),
            Self::Time(text) => time_ms(known(text)?.trim()).err(),
            Self::Event { name, timeout } => {
                let name = known(name).and_then(|name| event_name(&name).err());
                let limit = timeout.as_deref().and_then(known);
                name.or_else(|| limit.and_then(|limit| deadline_after(&limit, 0).err()))
            }
        }
    }
}

/// Longest name of an event in bytes.
const MAX_EVENT_NAME: usize = 200;

/// Name of an event, if the text is a valid one.
///
/// # Errors
/// A sentence that describes a valid name.
pub fn event_name(text: &str) -> Result<&str, String> {
    let name = text.trim();
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if name.is_empty() || name.len() > MAX_EVENT_NAME || !name.chars().all(fits) {
        return Err(format!(
            "{text:?} is not a name of an event: 1 to {MAX_EVENT_NAME} letters, digits and . _ - / :"
        ));
    }
    Ok(name)
}

/// End of a duration that starts at `now`, both in milliseconds since 1970.
///
/// # Errors
/// A sentence, if the text is not a duration or the duration exceeds a year.
pub fn deadline_after(text: &str, now: u64) -> Result<u64, String> {
    within_reach(text.trim(), now.saturating_add(span_ms(text.trim())?), now)
}

/// Time in the text, in milliseconds since 1970.
///
/// # Errors
/// A sentence, if the text is not a time or is more than a year after `now`.
pub fn parse_time(text: &str, now: u64) -> Result<u64, String> {
    within_reach(text.trim(), time_ms(text.trim())?, now)
}

fn within_reach(text: &str, deadline: u64, now: u64) -> Result<u64, String> {
    if deadline.saturating_sub(now) > MOST_DAYS * DAY_MS {
        return Err(format!("{text:?} is more than {MOST_DAYS} days ahead"));
    }
    Ok(deadline)
}

fn span_ms(text: &str) -> Result<u64, String> {
    let span: Span = text.parse()?;
    Ok(u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX))
}

fn time_ms(text: &str) -> Result<u64, String> {
    let time = match text.parse::<Zoned>() {
        Ok(zoned) => zoned.timestamp(),
        Err(_) => text.parse::<Timestamp>().map_err(|_| {
            format!(
                "{text:?} is not a time such as \"2027-01-31T09:00:00+01:00\" or \
                 \"2027-01-31T09:00[Europe/Zurich]\""
            )
        })?,
    };
    // Times before 1970 have also passed.
    Ok(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_plain_names() {
        assert_eq!(event_name(" deploy/eu-1:done "), Ok("deploy/eu-1:done"));
        for wrong in ["", " ", "a b", "a\nb", "$x", &"x".repeat(201)] {
            assert!(event_name(wrong).is_err(), "{wrong}");
        }
        let event = |name: &str, timeout: Option<&str>| WaitFor::Event {
            name: name.to_owned(),
            timeout: timeout.map(str::to_owned),
        };
        assert_eq!(event("paid-${id}", Some("${limit}")).constant_error(), None);
        assert!(
            event("a b", None).constant_error().is_some()
                && event("a", Some("soon")).constant_error().is_some()
        );
        assert_eq!(event("paid", Some("1h")).display_text(), "for event paid, at most 1h");
    }

    #[test]
    fn durations_count_from_now_and_times_do_not() {
        let span = |text: &str| deadline_after(text, 1000);
        assert_eq!([span("90s"), span(" 2m ")], [Ok(91_000), Ok(121_000)]);
        for wrong in ["", "5", "-1s", "soon", "367d", "18446744073709551615w"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        let time = |text: &str| parse_time(text, 1_800_000_000_000);
        assert_eq!(time("2027-01-31T09:00:00+01:00"), Ok(1_801_382_400_000));
        assert_eq!(time("2027-01-31T09:00[Europe/Zurich]"), time("2027-01-31T08:00:00Z"));
        assert_eq!(time("1900-01-01T00:00:00Z"), Ok(0));
        for wrong in
            ["2027-01-31", "2027-01-31T09:00:00", "tomorrow", "2027-02-30T09:00:00Z", "2900-01-01T00:00:00Z"]
        {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
