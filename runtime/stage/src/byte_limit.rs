//! Limits in bytes that are set in the environment.

use std::ffi::OsString;

use lobster_base::setting::Setting;

/// The most bytes that a process may write to stdout, and to stderr. A step's own `limits.output` lowers it for
/// stdout.
pub const MAX_OUTPUT: Setting<u64> = byte_setting("LOBSTER_MAX_OUTPUT_BYTES");

/// The largest whole number that every JSON reader keeps exactly; a larger limit would be a mistake.
const LARGEST_LIMIT: u64 = (1 << 53) - 1;

/// Form of a limit.
const FORM: &str = "a positive safe integer (bytes)";

/// A setting with such a limit.
#[must_use]
pub const fn byte_setting(name: &'static str) -> Setting<u64> {
    Setting::new(name, FORM, read_limit)
}

/// An invalid limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must be {FORM}")]
pub struct LimitError(&'static str);

/// The limit in bytes that the environment sets; `None` if it is unset or blank.
pub fn byte_limit(
    setting: &Setting<u64>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Option<u64>, LimitError> {
    setting.read_env(|name| env(name).map(OsString::from)).map_err(|_| LimitError(setting.name))
}

fn read_limit(digits: &str) -> Option<u64> {
    // `parse` would accept a sign.
    let limit = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    limit.filter(|limit| (1..=LARGEST_LIMIT).contains(limit))
}
