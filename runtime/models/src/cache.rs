//! Cached answers: in files shared by all runs, and under a state key.
//!
//! Both formats are the incumbent's. A file that is damaged or belongs to another request is ignored.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use lobster_base::{json, regular_file};
use lobster_store::{StoreError, UserState};

/// Cache keys and places of one answer.
#[derive(Clone, Debug)]
pub struct Slot {
    /// `llm.invoke` or `llm_task.invoke`, which do not share answers.
    pub command: &'static str,
    /// From [`super::request::Request::cache_key`].
    pub key: String,
    /// The run's state key, if it has one.
    pub state_key: Option<String>,
    /// True if files are used.
    pub files: bool,
}

/// The place of a cached answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    RunState,
    File,
}

impl Found {
    /// The `source` of the replayed item.
    pub fn name(self) -> &'static str {
        match self {
            Self::RunState => "run_state",
            Self::File => "cache",
        }
    }
}

/// Result of a look-up.
#[derive(Debug)]
pub struct LookedUp {
    pub found: Option<(Value, Found)>,
    /// Messages about stored answers that cannot belong to this request.
    pub passed_over: Vec<String>,
}

/// A failure to store an answer.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    State(#[from] StoreError),
    #[error("cannot keep the answer in {}: {source}; set LOBSTER_CACHE_DIR, or give --disable-cache", .path.display())]
    File { path: PathBuf, source: std::io::Error },
}

/// The directory of cached answers: `LOBSTER_CACHE_DIR`, else `.lobster-cache` in the directory that
/// lobster was started in, regardless of the step's directory. Under a policy it is in the store's
/// directory, which no step sees: writers of the workspace must not forge model answers.
pub fn directory(env: &dyn Fn(&str) -> Option<String>, state_dir: &Path, is_under_policy: bool) -> PathBuf {
    if is_under_policy {
        return state_dir.join("store").join("answers");
    }
    env("LOBSTER_CACHE_DIR")
        .map(|dir| dir.trim().to_owned())
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| PathBuf::from(".lobster-cache"), PathBuf::from)
}

impl Slot {
    /// Looks for a cached answer. An answer that `misfit` rejects is skipped and reported.
    pub fn look_up(
        &self,
        state_dir: &Path,
        cache_dir: &Path,
        misfit: &dyn Fn(&Value) -> Option<String>,
    ) -> Result<LookedUp, StoreError> {
        let mut passed_over = Vec::new();
        let mut fits = |item: &Value, place: String| {
            let differs = |field: &str, wanted: &str| item.get(field).is_some_and(|value| value != wanted);
            let why = if differs("cacheKey", &self.key) || differs("kind", self.command) {
                Some("it belongs to another request".to_owned())
            } else {
                misfit(item)
            };
            match why {
                None => true,
                Some(why) => {
                    passed_over.push(format!("a cached answer in {place} is not used: {why}"));
                    false
                }
            }
        };
        if let Some(state_key) = &self.state_key {
            let kept = match UserState::in_dir(state_dir).get(state_key) {
                Err(StoreError::StateText { .. }) => None,
                other => other?,
            };
            let is_ours =
                |kept: &Value| kept["type"] == self.command && kept["cacheKey"] == self.key.as_str();
            if let Some(item) = kept.filter(is_ours).and_then(first_item)
                && fits(&item, format!("the state key {state_key:?}"))
            {
                return Ok(LookedUp { found: Some((item, Found::RunState)), passed_over });
            }
        }
        let path = self.answer_path(cache_dir);
        if self.files
            && let Ok(text) = regular_file::open(&path).and_then(std::io::read_to_string)
            && let Ok(kept) = json::parse(&text)
            && kept["cacheKey"] == self.key.as_str()
            && let Some(item) = first_item(kept)
            && fits(&item, path.display().to_string())
        {
            return Ok(LookedUp { found: Some((item, Found::File)), passed_over });
        }
        Ok(LookedUp { found: None, passed_over })
    }

    /// Stores an answer. If the file cannot be written, the state is unchanged.
    pub fn store_answer(
        &self,
        item: &Value,
        stored_at: &str,
        state_dir: &Path,
        cache_dir: &Path,
    ) -> Result<(), KeepError> {
        let Some(state_key) = &self.state_key else { return self.keep_file(item, stored_at, cache_dir) };
        UserState::in_dir(state_dir).with_lock(state_key, |state| {
            let before = match state.get() {
                Err(StoreError::StateText { .. }) => None,
                other => other?,
            };
            state.set(&json!({
                "type": self.command, "version": 1, "cacheKey": self.key, "items": [item], "storedAt": stored_at,
            }))?;
            self.keep_file(item, stored_at, cache_dir).or_else(|error| {
                match before {
                    Some(before) => state.set(&before)?,
                    None => {
                        state.remove_value()?;
                    }
                }
                Err(error)
            })
        })
    }

    fn keep_file(&self, item: &Value, stored_at: &str, cache_dir: &Path) -> Result<(), KeepError> {
        if !self.files {
            return Ok(());
        }
        let path = self.answer_path(cache_dir);
        let text = json::pretty(&json!({"items": [item], "cacheKey": self.key, "storedAt": stored_at}));
        replace_file(&path, &text).map_err(|source| KeepError::File { path, source })
    }

    fn answer_path(&self, cache_dir: &Path) -> PathBuf {
        cache_dir.join(self.command).join(format!("{}.json", self.key))
    }
}

fn first_item(mut kept: Value) -> Option<Value> {
    match kept.get_mut("items")?.as_array_mut()?.first_mut()? {
        item @ Value::Object(_) => Some(item.take()),
        _ => None,
    }
}

/// Replaces a file atomically; readers see the old text or the new one.
fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    // Answers of models are private to the user who asked.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Created with mode 0600, which the answer keeps.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn sample_slot(state_key: Option<&str>, files: bool) -> Slot {
        Slot { command: "llm.invoke", key: "abc".into(), state_key: state_key.map(str::to_owned), files }
    }

    #[test]
    fn keeps_both_in_the_incumbents_form() {
        let dir = tempfile::tempdir().unwrap();
        let (state, cache) = (dir.path().join("s"), dir.path().join("c"));
        let item = json!({"kind": "llm.invoke", "n": 1.0});
        assert_eq!(sample_slot(Some("k"), true).look_up(&state, &cache, &|_| None).unwrap().found, None);
        sample_slot(Some("k"), true).store_answer(&item, "2026-01-01T00:00:00.000Z", &state, &cache).unwrap();
        let file = cache.join("llm.invoke/abc.json");
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            "{\n  \"items\": [\n    {\n      \"kind\": \"llm.invoke\",\n      \"n\": 1\n    }\n  ],\n  \"cacheKey\": \"abc\",\n  \"storedAt\": \"2026-01-01T00:00:00.000Z\"\n}\n"
        );
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let kept = json::parse(&std::fs::read_to_string(state.join("k.json")).unwrap()).unwrap();
        assert_eq!(
            (&kept["type"], &kept["version"], &kept["cacheKey"]),
            (&json!("llm.invoke"), &json!(1), &json!("abc"))
        );
        let found =
            |slot: Slot| slot.look_up(&state, &cache, &|_| None).unwrap().found.map(|(_, found)| found);
        assert_eq!(found(sample_slot(Some("k"), true)), Some(Found::RunState));
        assert_eq!(found(sample_slot(Some("other"), true)), Some(Found::File));
        assert_eq!(found(sample_slot(None, false)), None);
        assert_eq!(found(Slot { key: "x".into(), ..sample_slot(Some("k"), true) }), None);
        assert_eq!(found(Slot { command: "llm_task.invoke", ..sample_slot(Some("k"), true) }), None);
    }

    #[test]
    fn what_is_damaged_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (state, cache) = (dir.path().join("s"), dir.path().join("c"));
        std::fs::create_dir_all(cache.join("llm.invoke")).unwrap();
        std::fs::create_dir_all(&state).unwrap();
        for text in [
            "",
            "{oops",
            "[]",
            "{\"cacheKey\":\"abc\"}",
            "{\"cacheKey\":\"abc\",\"items\":[]}",
            "{\"cacheKey\":\"abc\",\"items\":[1]}",
            "{\"cacheKey\":\"other\",\"items\":[{}]}",
        ] {
            std::fs::write(cache.join("llm.invoke/abc.json"), text).unwrap();
            std::fs::write(state.join("k.json"), text).unwrap();
            assert_eq!(
                sample_slot(Some("k"), true).look_up(&state, &cache, &|_| None).unwrap().found,
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn what_answers_something_else_or_does_not_fit_is_passed_over_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let (state, cache) = (dir.path().join("s"), dir.path().join("c"));
        std::fs::create_dir_all(cache.join("llm.invoke")).unwrap();
        let misfit = |item: &Value| (item["n"] == 1).then(|| "n is 1".to_owned());
        for (item, why) in [
            (json!({"cacheKey": "other", "kind": "llm.invoke"}), "another request"),
            (json!({"cacheKey": "abc", "kind": "llm_task.invoke"}), "another request"),
            (json!({"cacheKey": "abc", "kind": "llm.invoke", "n": 1}), "n is 1"),
        ] {
            let kept = json!({"cacheKey": "abc", "items": [item]});
            std::fs::write(cache.join("llm.invoke/abc.json"), kept.to_string()).unwrap();
            let looked_up = sample_slot(None, true).look_up(&state, &cache, &misfit).unwrap();
            assert_eq!(looked_up.found, None);
            assert!(looked_up.passed_over[0].contains(why), "{looked_up:?}");
        }
    }

    #[test]
    fn under_a_policy_the_workspace_is_not_asked() {
        let env = |name: &str| (name == "LOBSTER_CACHE_DIR").then(|| "/elsewhere".to_owned());
        let state = Path::new("/state");
        assert_eq!(directory(&env, state, true), Path::new("/state/store/answers"));
        assert_eq!(directory(&env, state, false), Path::new("/elsewhere"));
        assert_eq!(directory(&|_| None, state, false), Path::new(".lobster-cache"));
    }

    #[test]
    fn a_cache_that_cannot_be_written_leaves_the_state_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (state, cache) = (dir.path().join("s"), dir.path().join("c"));
        std::fs::write(&cache, "a file").unwrap();
        UserState::in_dir(&state).set("k", &json!({"mine": 1})).unwrap();
        let error = sample_slot(Some("k"), true).store_answer(&json!({}), "t", &state, &cache).unwrap_err();
        assert!(error.to_string().contains("LOBSTER_CACHE_DIR"), "{error}");
        assert_eq!(UserState::in_dir(&state).get("k").unwrap(), Some(json!({"mine": 1})));
        assert!(sample_slot(Some("new"), true).store_answer(&json!({}), "t", &state, &cache).is_err());
        assert_eq!(UserState::in_dir(&state).get("new").unwrap(), None);
    }
}
