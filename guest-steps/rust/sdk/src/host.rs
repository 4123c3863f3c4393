//! What the host offers every step beyond its grants.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::StepError;

#[cfg(not(target_family = "wasm"))]
use crate::testing::fake as backend;
#[cfg(target_family = "wasm")]
use crate::wasm::real as backend;

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a structured log line; `fields` is a JSON object or `null`.
pub fn log(level: Level, message: &str, fields: &Value) {
    let fields = if fields.is_null() { String::new() } else { fields.to_string() };
    backend::log(level, message, &fields);
}

/// A log line at `info`.
pub fn info(message: &str) {
    backend::log(Level::Info, message, "");
}

/// A log line at `warn`.
pub fn warn(message: &str) {
    backend::log(Level::Warn, message, "");
}

/// Says how far the step is, for the person who waits.
pub fn progress(done: u64, total: Option<u64>, message: Option<&str>) {
    backend::progress(done, total, message);
}

/// What an earlier step or call of this run kept under `key`.
///
/// # Errors
/// `bad-state` if it is not a `T`.
pub fn state<T: DeserializeOwned>(key: &str) -> Result<Option<T>, StepError> {
    let Some(text) = backend::state_get(key) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        StepError::new("bad-state", format!("what is kept under `{key}` does not fit: {error}"))
    })
}

/// Keeps a value for the rest of this run.
///
/// # Errors
/// `bad-state` if the value cannot be JSON.
pub fn set_state(key: &str, value: &impl Serialize) -> Result<(), StepError> {
    let text = serde_json::to_string(value)
        .map_err(|error| StepError::new("bad-state", format!("`{key}` is not JSON: {error}")))?;
    backend::state_set(key, &text);
    Ok(())
}

/// The whole of a blob that this run produced or was given, by its BLAKE3 digest in hex.
///
/// # Errors
/// `not-found`, `not-granted`, `limit` or `io`, as the host says.
pub fn blob(digest: &str) -> Result<Vec<u8>, StepError> {
    backend::blob(digest)
}

/// Puts bytes into the store and gives their BLAKE3 digest in hex.
///
/// # Errors
/// `limit` or `io`, as the host says.
pub fn put_blob(bytes: &[u8]) -> Result<String, StepError> {
    backend::put_blob(bytes)
}
