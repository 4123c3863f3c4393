//! The effects behind `state.get`, `state.set` and `diff.last`.

use serde_json::{Value, json};

use super::{EffectAction, EffectHost, StageError};
use crate::digest::Digest;

/// Reading the value of a key.
pub(super) fn reading(key: &str) -> EffectAction {
    EffectAction { kind: "state.get".to_owned(), detail: json!({"key": key}), idempotent: true }
}

/// Writing the value of a key. The journal names the value by its digest.
pub(super) fn writing(key: &str, value: &Value) -> EffectAction {
    let digest = Digest::of(crate::json::stable(value).as_bytes());
    EffectAction {
        kind: "state.set".to_owned(),
        detail: json!({"key": key, "value": digest}),
        idempotent: true,
    }
}

/// The value of a key, `null` where there is none.
pub(super) fn get(host: &EffectHost<'_>, key: &str) -> Result<Value, StageError> {
    let path = interim_path(host, key)?;
    match std::fs::read_to_string(&path) {
        Ok(text) => crate::json::parse(&text).map_err(|error| StageError::new(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(StageError::new(error.to_string())),
    }
}

/// Replaces the value of a key.
pub(super) fn set(host: &EffectHost<'_>, key: &str, value: &Value) -> Result<(), StageError> {
    let path = interim_path(host, key)?;
    std::fs::create_dir_all(host.state_dir)
        .and_then(|()| std::fs::write(path, format!("{}\n", crate::json::pretty(value))))
        .map_err(|error| StageError::new(error.to_string()))
}

fn interim_path(host: &EffectHost<'_>, key: &str) -> Result<std::path::PathBuf, StageError> {
    let name: String = key
        .to_lowercase()
        .chars()
        .map(|c| if matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-') { c } else { '_' })
        .collect();
    let name = name.trim_matches('_');
    if name.is_empty() {
        return Err(StageError::permanent("state key is empty/invalid"));
    }
    Ok(host.state_dir.join(format!("{name}.json")))
}
