//! Times and sizes in few characters.

use lobster_runtime::figures::{after, before};
pub(crate) use lobster_runtime::figures::{bytes, count, counted, duration, rough};

/// How long ago a time in milliseconds since 1970 was, as people say it: `just now`, `5 min ago`,
/// `3 h ago`, `yesterday`, `4 days ago`; from two weeks on the date.
pub(crate) fn ago(at: i64) -> String {
    before((lobster_runtime::store::system_clock())(), at)
}

/// A time as people want it: how long ago, or to the letter.
pub(crate) fn time(at: i64, exact: bool) -> String {
    if exact { lobster_runtime::store::iso(at) } else { ago(at) }
}

/// When a time to come is: `in 5 min`, `in 3 h`, `in 2 days`; or to the letter.
pub(crate) fn ahead(at: i64, exact: bool) -> String {
    match exact {
        true => format!("at {}", lobster_runtime::store::iso(at)),
        false => after((lobster_runtime::store::system_clock())(), at),
    }
}
