//! Channels of a pool that rest, and the ends of their rests.
//!
//! Kept in the state directory, so that the next run does not repeat the same wait. It is only a hint: if
//! it cannot be read or written, every channel is healthy.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use lobster_store::{StoreError, UserState, system_clock};

/// The name of the file, in a directory without state keys of workflows.
const KEY: &str = "channels";

/// Longest rest of a channel, even if its server asks for more.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// The health of the channels that share a state directory.
pub struct Health(UserState);

impl Health {
    pub fn at(state_dir: &Path) -> Self {
        Self(UserState::in_dir(&state_dir.join("models")))
    }

    /// The end of the rest of each resting channel, in milliseconds since 1970.
    pub(crate) fn resting_channels(&self) -> BTreeMap<String, i64> {
        match self.0.get(KEY) {
            Ok(kept) => current_rests(kept, system_clock()()),
            Err(error) => {
                tracing::warn!(%error, "the health of the model channels cannot be read");
                BTreeMap::new()
            }
        }
    }

    /// Lets a channel rest for a while.
    pub(crate) fn rest_channel(&self, channel: &str, why: &str, rest: Duration) {
        tracing::info!(channel, why, rest_ms = to_millis(rest), "channel rests");
        self.change_rests(|resting, now| {
            resting.insert(channel.to_owned(), now.saturating_add(to_millis(rest.min(LONGEST))));
        });
    }

    /// Notes that a channel answered.
    pub(crate) fn mark_healthy(&self, channel: &str) {
        if self.resting_channels().contains_key(channel) {
            self.change_rests(|resting, _| {
                resting.remove(channel);
            });
        }
    }

    fn change_rests(&self, change: impl FnOnce(&mut BTreeMap<String, i64>, i64)) {
        let kept = self.0.with_lock(KEY, |state| -> Result<(), StoreError> {
            let now = system_clock()();
            let mut all = current_rests(state.get().unwrap_or_default(), now);
            change(&mut all, now);
            state.set(&json!({ "restingUntil": all }))
        });
        if let Err(error) = kept {
            tracing::warn!(%error, "the health of the model channels cannot be kept");
        }
    }
}

/// The stored rests that have not ended. A rest that ends later than the longest rest allows was written
/// by a clock that has since been set back.
fn current_rests(kept: Option<Value>, now: i64) -> BTreeMap<String, i64> {
    let kept = kept.and_then(|mut kept| serde_json::from_value(kept.get_mut("restingUntil")?.take()).ok());
    let mut all: BTreeMap<String, i64> = kept.unwrap_or_default();
    all.retain(|_, until| *until > now && *until <= now.saturating_add(to_millis(LONGEST)));
    all
}

fn to_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_kept_and_end() {
        let dir = tempfile::tempdir().unwrap();
        let health = Health::at(dir.path());
        health.rest_channel("a", "429", Duration::from_secs(30));
        health.rest_channel("b", "503", Duration::from_secs(1_000_000));
        assert_eq!(Vec::from_iter(Health::at(dir.path()).resting_channels().into_keys()), ["a", "b"]);
        health.mark_healthy("a");
        assert_eq!(Vec::from_iter(health.resting_channels().into_keys()), ["b"]);
    }

    #[test]
    fn what_is_damaged_or_past_is_no_rest() {
        let kept = |value: Value| current_rests(Some(value), 1_000);
        assert!(kept(json!({"restingUntil": {"a": 999, "b": i64::MAX}})).is_empty());
        assert!(kept(json!({"restingUntil": {"a": "x"}})).is_empty());
        assert!(kept(json!([1])).is_empty());
        assert_eq!(kept(json!({"restingUntil": {"a": 1_001}})).len(), 1);
    }
}
