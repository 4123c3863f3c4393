//! Limits in bytes that the environment sets.

/// Names the most bytes that a process may write to stdout, and to stderr. A step's own
/// `limits.output` lowers that for stdout.
pub const OUTPUT_VARIABLE: &str = "LOBSTER_MAX_OUTPUT_BYTES";

/// The largest whole number that every JSON reader keeps exactly; nobody means a larger limit.
const LARGEST_LIMIT: u64 = (1 << 53) - 1;

/// A limit that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must be a positive safe integer (bytes)")]
pub struct LimitError(&'static str);

/// The limit in bytes that a variable names; none where it is unset or blank.
pub fn byte_limit(
    name: &'static str,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Option<u64>, LimitError> {
    let text = env(name).unwrap_or_default();
    let digits = text.trim();
    if digits.is_empty() {
        return Ok(None);
    }
    // `parse` would take a sign.
    let limit = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    limit.filter(|limit| (1..=LARGEST_LIMIT).contains(limit)).map(Some).ok_or(LimitError(name))
}
