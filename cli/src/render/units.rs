//! Times and sizes in short form.

pub(crate) use lobster_runtime::figures::{
    count_noun, format_bytes, format_count, format_duration, rough_duration,
};
use lobster_runtime::figures::{time_since, time_until};

/// The age of a time in milliseconds since 1970 in ordinary words: `just now`, `5 min ago`, `3 h ago`,
/// `yesterday`, `4 days ago`; after two weeks the date.
pub(crate) fn format_age(at: i64) -> String {
    time_since((lobster_runtime::store::system_clock())(), at)
}

/// A time for people: its age, or the exact time.
pub(crate) fn format_time(at: i64, exact: bool) -> String {
    if exact { lobster_runtime::store::iso(at) } else { format_age(at) }
}

/// A future time: `in 5 min`, `in 3 h`, `in 2 days`; or the exact time.
pub(crate) fn format_future(at: i64, exact: bool) -> String {
    match exact {
        true => format!("at {}", lobster_runtime::store::iso(at)),
        false => time_until((lobster_runtime::store::system_clock())(), at),
    }
}
