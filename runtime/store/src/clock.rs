//! Wall-clock time in milliseconds since 1970, passed in so that tests can set it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest wait of a writer for other processes. A write takes well under a millisecond, so a longer wait means that
/// the other process is stuck or stopped.
pub(super) fn longest_wait() -> Duration {
    match ENDS_AT.get() {
        None => Duration::from_secs(30),
        Some(at) => at.saturating_duration_since(Instant::now()).max(Duration::from_millis(200)),
    }
}

/// End of all waits in a process that is being stopped.
static ENDS_AT: OnceLock<Instant> = OnceLock::new();

/// Limits all waits for a locked store in this process, current ones included, to 5 seconds from now.
pub fn shorten_patience() {
    let _ = ENDS_AT.set(Instant::now() + Duration::from_secs(5));
}

/// Returns the current time in milliseconds since 1970-01-01 UTC.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The clock of this machine.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    })
}

/// The time in the incumbent's format: `2026-01-31T12:00:00.000Z`.
#[must_use]
pub fn iso(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Converts days to a civil date: Howard Hinnant, "chrono-compatible low-level date algorithms".
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) =
        (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s, milli) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso(ms), text);
        }
    }
}
