//! The effects of `state.get`, `state.set` and `diff.last`.

use serde_json::{Value, json};

use lobster_base::digest::Digest;
use lobster_stage::{EffectAction, EffectHost, StageError};
use lobster_store::{StoreError, UserState};

/// The effect that reads the value of a key.
pub(super) fn read_effect(key: &str) -> EffectAction {
    EffectAction { kind: "state.get".to_owned(), detail: json!({"key": key}), idempotent: true }
}

/// The effect that writes the value of a key. The journal names the value by its digest.
pub(super) fn write_effect(key: &str, value: &Value) -> EffectAction {
    let digest = Digest::of_bytes(lobster_base::json::stable_text(value).as_bytes());
    EffectAction {
        kind: "state.set".to_owned(),
        detail: json!({"key": key, "value": digest}),
        idempotent: true,
    }
}

/// The value of a key, `null` if it has none.
pub(super) fn get(host: &EffectHost<'_>, key: &str) -> Result<Value, StoreError> {
    Ok(UserState::in_dir(host.state_dir).get(key)?.unwrap_or_default())
}

/// Replaces the value of a key.
pub(super) fn set(host: &EffectHost<'_>, key: &str, value: &Value) -> Result<(), StoreError> {
    UserState::in_dir(host.state_dir).set(key, value)
}

/// A failure of the store as a stage reports it.
pub(super) fn to_stage_error(error: StoreError) -> StageError {
    StageError::from_error(error)
}
