//! Outcomes that are taken from the action cache instead of being had again.

use std::cell::Cell;
use std::sync::Arc;

use super::action::ActionRecord;
use super::env::Env;
use super::path::StepPath;
use super::run::Run;
use lobster_base::digest::Digest;
use lobster_language::plan::Extras;
use lobster_stage::{Stop, store_failure};
use lobster_store::{Blob, StepOutcome, StepStatus};

/// The variable that keeps runs from taking anything from the action cache.
const NO_CACHE: &str = "LOBSTER_NO_CACHE";

/// Whether the environment asks for everything to be done.
pub(super) fn is_off(env: &Env) -> bool {
    env.non_blank(NO_CACHE).is_some_and(|word| is_yes(&word))
}

/// Whether recorded settings asked for it.
pub(super) fn was_off(settings: &serde_json::Value) -> bool {
    settings.get(NO_CACHE).and_then(serde_json::Value::as_str).is_some_and(is_yes)
}

fn is_yes(word: &str) -> bool {
    !matches!(word.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off")
}

/// An environment that asks for everything to be done.
pub(crate) fn without_cache(env: &Env) -> Env {
    env.with_inherited(NO_CACHE, "1")
}

/// Which outcomes of an action may be taken instead of performing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// None.
    Never,
    /// Those of a pure action, however old.
    Pure,
    /// Those of an effect too, on the author's word; at most so many milliseconds old, if it says so.
    Promised { ttl_ms: Option<i64> },
}

impl Reuse {
    /// What a step's `cache` says.
    pub(crate) fn of(extras: &Extras) -> Self {
        match extras.cache {
            None => Self::Pure,
            Some(false) => Self::Never,
            Some(true) => {
                let ttl_ms = extras.cache_ttl_ms.map(|ttl| i64::try_from(ttl).unwrap_or(i64::MAX));
                Self::Promised { ttl_ms }
            }
        }
    }

    /// Whether it covers an action of this purity.
    pub(crate) fn covers(self, pure: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Pure => pure,
            Self::Promised { .. } => true,
        }
    }

    fn ttl_ms(self) -> Option<i64> {
        match self {
            Self::Never | Self::Pure => None,
            Self::Promised { ttl_ms } => ttl_ms,
        }
    }
}

impl Run<'_> {
    /// What an equal action gave, in this run or an earlier one, if all of it is still there.
    pub(crate) fn cached(&self, key: &Digest, reuse: Reuse) -> Result<Option<StepOutcome>, Stop> {
        if self.ignores_cache() {
            return Ok(None);
        }
        let known = self.store.cached_outcome(key, reuse.ttl_ms()).map_err(store_failure)?;
        let mut known = known.filter(|outcome| self.has_blobs(outcome));
        if let Some(outcome) = &mut known {
            outcome.cached = true;
            outcome.duration_us = 0;
        }
        Ok(known)
    }

    /// Remembers what an action gave, for this run and later ones.
    pub(crate) fn cache(&self, key: Digest, outcome: &StepOutcome, reuse: Reuse) {
        // What the cache does not know is done again.
        if let Err(error) = self.store.cache_outcome(key, outcome, reuse.ttl_ms()) {
            tracing::warn!("an outcome is not cached: {error}");
        }
    }

    /// An effect that is performed only if no equal one is known under `key`, and
    /// known afterwards if it went well and `is_settled` says that it holds.
    pub(crate) fn perform_once_cached<T>(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        (key, reuse): (Digest, Reuse),
        perform: impl FnOnce() -> StepOutcome,
        is_settled: impl FnOnce() -> bool,
        decode: impl FnOnce(&StepOutcome) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        if let Some(outcome) = self.reused(path, action, &key, reuse)? {
            return decode(&outcome).inspect_err(|_| self.record_failure(path));
        }
        let performed = Cell::new(false);
        let perform = || {
            performed.set(true);
            perform()
        };
        self.perform_once(path, action, perform, |outcome| {
            if performed.get() && self.is_lasting(outcome) && is_settled() {
                self.cache(key, outcome, reuse);
            }
            decode(outcome)
        })
    }

    /// What an equal effect gave. Nothing is started then: the journal has one
    /// record, which says that it was taken from the cache.
    ///
    /// An attempt that had begun and whose end nobody saw is not passed over.
    fn reused(
        &self,
        path: &StepPath,
        action: &ActionRecord,
        key: &Digest,
        reuse: Reuse,
    ) -> Result<Option<Arc<StepOutcome>>, Stop> {
        let wanted_anew = self.overseer().is_some_and(|overseer| overseer.wants_anew(path));
        if !self.journals() || wanted_anew || self.is_cut_off(path) {
            return Ok(None);
        }
        if let Some(outcome) = self.ask_overseer(path, action)?.or_else(|| self.remembered(path)) {
            return Ok(Some(outcome));
        }
        let Some(outcome) = self.cached(key, reuse).inspect_err(|_| self.record_failure(path))? else {
            return Ok(None);
        };
        let outcome = Arc::new(outcome);
        self.note_reused(path, action, &outcome).inspect_err(|_| self.record_failure(path))?;
        Ok(Some(outcome))
    }

    /// Whether what an effect has just given may answer for it later.
    pub(crate) fn is_lasting(&self, outcome: &StepOutcome) -> bool {
        self.journals() && outcome.status == StepStatus::Ok && outcome.detail.get("read_state").is_none()
    }

    /// Whether what an outcome gave can be had; each gave one or the other.
    fn has_blobs(&self, outcome: &StepOutcome) -> bool {
        if outcome.stdout.is_none() && outcome.output.is_none() {
            return false;
        }
        let named = [outcome.stdout, outcome.stderr, outcome.output].into_iter().flatten();
        let calls = outcome.detail.get("host_calls").and_then(|calls| calls.as_str()?.parse().ok());
        named
            .map(|blob: Blob| blob.digest)
            .chain(calls)
            .all(|digest| matches!(self.store.blob_len(&digest), Ok(Some(_))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_author_says_of_a_step() {
        let said = |cache, cache_ttl_ms| Reuse::of(&Extras { cache, cache_ttl_ms, ..Extras::default() });
        assert_eq!(said(None, None), Reuse::Pure);
        assert_eq!(said(Some(false), None), Reuse::Never);
        assert_eq!(said(Some(true), Some(10)), Reuse::Promised { ttl_ms: Some(10) });
        assert_eq!(
            [Reuse::Never, Reuse::Pure, said(Some(true), None)]
                .map(|reuse| [true, false].map(|pure| reuse.covers(pure))),
            [[false, false], [true, false], [true, true]]
        );
    }

    #[test]
    fn words_that_mean_yes() {
        assert_eq!(
            ["1", "true", "0", " no ", "", "off"].map(is_yes),
            [true, true, false, false, false, false]
        );
    }
}
