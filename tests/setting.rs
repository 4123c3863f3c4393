//! What a variable of the environment makes larger or other: how much is tried, and from which seed on.

use std::str::FromStr;

/// The number that a variable says, or the one that a change is tried with.
pub(crate) fn number<T: FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number"))
}
