//! How things look to a person.

pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod units;
