//! A host for native tests: state and blobs of the thread, the log on standard error.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::StepError;
use crate::host::Level;

thread_local! {
    static STATE: RefCell<HashMap<String, String>> = RefCell::default();
    static BLOBS: RefCell<HashMap<String, Vec<u8>>> = RefCell::default();
}

pub(crate) fn log(level: Level, message: &str, fields: &str) {
    eprintln!("{level:?}: {message} {fields}");
}

pub(crate) fn progress(done: u64, total: Option<u64>, message: Option<&str>) {
    eprintln!("progress: {done} of {total:?} {}", message.unwrap_or_default());
}

pub(crate) fn state_get(key: &str) -> Option<String> {
    STATE.with_borrow(|state| state.get(key).cloned())
}

pub(crate) fn state_set(key: &str, value: &str) {
    STATE.with_borrow_mut(|state| state.insert(key.to_owned(), value.to_owned()));
}

pub(crate) fn blob(digest: &str) -> Result<Vec<u8>, StepError> {
    BLOBS
        .with_borrow(|blobs| blobs.get(digest).cloned())
        .ok_or_else(|| StepError::new("not-found", format!("no blob {digest}")))
}

#[expect(clippy::unnecessary_wraps, reason = "the real store can refuse")]
pub(crate) fn put_blob(bytes: &[u8]) -> Result<String, StepError> {
    let digest = blake3::hash(bytes).to_hex().to_string();
    BLOBS.with_borrow_mut(|blobs| blobs.insert(digest.clone(), bytes.to_vec()));
    Ok(digest)
}
