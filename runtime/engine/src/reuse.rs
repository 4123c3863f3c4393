//! Outcomes that are taken from the action cache instead of being had again.

use super::env::Env;
use lobster_language::plan::Extras;

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
