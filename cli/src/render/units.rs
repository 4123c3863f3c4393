//! Times and sizes in short form.

use lobster_runtime::figures::{after, before};
pub(crate) use lobster_runtime::figures::{bytes, count, counted, duration, rough};

/// The age of a time in milliseconds since 1970 in ordinary words: `just now`, `5 min ago`, `3 h ago`,
/// `yesterday`, `4 days ago`; after two weeks the date.
pub(crate) fn ago(at: i64) -> String {
    before((lobster_runtime::store::system_clock())(), at)
}

/// A time for people: its age, or the exact time.
pub(crate) fn time(at: i64, exact: bool) -> String {
    if exact { lobster_runtime::store::iso(at) } else { ago(at) }
}

/// A future time: `in 5 min`, `in 3 h`, `in 2 days`; or the exact time.
pub(crate) fn ahead(at: i64, exact: bool) -> String {
    match exact {
        true => format!("at {}", lobster_runtime::store::iso(at)),
        false => after((lobster_runtime::store::system_clock())(), at),
    }
}
