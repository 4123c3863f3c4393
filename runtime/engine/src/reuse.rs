//! Outcomes that are taken from the action cache instead of performing the action.

use super::env::Env;
use lobster_language::plan::Extras;

/// The variable that keeps runs from reading the action cache.
const NO_CACHE: &str = "LOBSTER_NO_CACHE";

/// True if the environment asks for everything to be performed.
pub(super) fn is_off(env: &Env) -> bool {
    env.non_blank(NO_CACHE).is_some_and(|word| is_yes(&word))
}

/// True if the recorded settings asked for it.
pub(super) fn was_off(settings: &serde_json::Value) -> bool {
    settings.get(NO_CACHE).and_then(serde_json::Value::as_str).is_some_and(is_yes)
}

fn is_yes(word: &str) -> bool {
    !matches!(word.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off")
}

/// An environment that asks for everything to be performed.
pub(crate) fn without_cache(env: &Env) -> Env {
    env.with_inherited(NO_CACHE, "1")
}

/// The cached outcomes that an action may reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// None.
    Never,
    /// Outcomes of a pure action, of any age.
    Pure,
    /// Outcomes of effects as well, which the author allows; at most `ttl_ms` milliseconds old, if that is set.
    Promised { ttl_ms: Option<i64> },
}

impl Reuse {
    /// Reads a step's `cache`.
    pub(crate) fn from_extras(extras: &Extras) -> Self {
        match extras.cache {
            None => Self::Pure,
            Some(false) => Self::Never,
            Some(true) => {
                let ttl_ms = extras.cache_ttl_ms.map(|ttl| i64::try_from(ttl).unwrap_or(i64::MAX));
                Self::Promised { ttl_ms }
            }
        }
    }

    /// True if it covers an action of this purity.
    pub(crate) fn covers(self, pure: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Pure => pure,
            Self::Promised { .. } => true,
        }
    }

    pub(super) fn ttl_ms(self) -> Option<i64> {
        match self {
            Self::Never | Self::Pure => None,
            Self::Promised { ttl_ms } => ttl_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_author_says_of_a_step() {
        let said =
            |cache, cache_ttl_ms| Reuse::from_extras(&Extras { cache, cache_ttl_ms, ..Extras::default() });
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
