//! `wait`: until when a step waits.

use jiff::{Timestamp, Zoned};

use super::plan::WaitFor;
use lobster_base::quantity::Span;

/// Longest that a step waits, in days.
const MOST_DAYS: u64 = 366;
const DAY_MS: u64 = 86_400_000;

impl WaitFor {
    /// What was written, a template.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Span(text) | Self::Time(text) => text,
        }
    }

    /// As a person reads it.
    #[must_use]
    pub fn display_text(&self) -> String {
        match self {
            Self::Span(text) => text.clone(),
            Self::Time(text) => format!("until {text}"),
        }
    }

    /// When it is over: both in milliseconds since 1970. `text` is [`WaitFor::text`], filled in.
    ///
    /// # Errors
    /// A sentence, when the text is no duration or no time, or is more than a year ahead.
    pub fn deadline(&self, text: &str, now: u64) -> Result<u64, String> {
        let text = text.trim();
        let deadline = match self {
            Self::Span(_) => now.saturating_add(span_ms(text)?),
            Self::Time(_) => time_ms(text)?,
        };
        if deadline.saturating_sub(now) > MOST_DAYS * DAY_MS {
            return Err(format!("{text:?} is more than {MOST_DAYS} days ahead"));
        }
        Ok(deadline)
    }

    /// What is wrong with it whenever it is reached, if its text is constant.
    pub(super) fn mistake(&self) -> Option<String> {
        match self {
            Self::Span(text) => self.deadline(text, 0).err(),
            Self::Time(text) => time_ms(text.trim()).err(),
        }
    }
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
    // What was before 1970 is over, too.
    Ok(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_count_from_now_and_times_do_not() {
        let span = |text: &str| WaitFor::Span(String::new()).deadline(text, 1000);
        assert_eq!([span("90s"), span(" 2m ")], [Ok(91_000), Ok(121_000)]);
        for wrong in ["", "5", "-1s", "soon", "367d", "18446744073709551615w"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        let time = |text: &str| WaitFor::Time(String::new()).deadline(text, 1_800_000_000_000);
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
