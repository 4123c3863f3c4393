//! Paths of the places in a run.
//!
//! A path is stable across executions of the same plan, so it is the key by which the journal finds recorded outcomes.
//! `loop[3]/sub#2|1.0` is the first effect of the second stage in the second attempt of step `sub` in the fourth round
//! of `loop`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use lobster_base::place;

/// A place in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepPath(String);

impl StepPath {
    /// The run itself.
    #[must_use]
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// A step below this place. Characters with a meaning in paths are escaped.
    #[must_use]
    pub(crate) fn step(&self, id: &str) -> Self {
        let mut text = self.0.clone();
        if !text.is_empty() {
            text.push('/');
        }
        text.push_str(&place::escape_id(id));
        Self(text)
    }

    /// One round of a loop step.
    #[must_use]
    pub(crate) fn round(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// One attempt of a step, counted from 1; the first has the step's own path.
    #[must_use]
    pub(crate) fn attempt(&self, number: u64) -> Self {
        if number <= 1 { self.clone() } else { Self(format!("{}#{number}", self.0)) }
    }

    /// One stage of a pipeline, counted from 0.
    #[must_use]
    pub(crate) fn stage(&self, index: usize) -> Self {
        Self(format!("{}|{index}", self.0))
    }

    /// An effect of a stage, counted from 0.
    #[must_use]
    pub(crate) fn ordinal(&self, number: usize) -> Self {
        Self(format!("{}.{number}", self.0))
    }

    /// A question that belongs to this place (`approval`, `input`, `policy`).
    #[must_use]
    pub(crate) fn gate(&self, which: &str) -> Self {
        Self(format!("{}!{which}", self.0))
    }

    /// The commit of the file changes of this place.
    #[must_use]
    pub(crate) fn changes(&self) -> Self {
        self.gate("changes")
    }

    /// True if this is the place of such a commit.
    pub(crate) fn is_commit(&self) -> bool {
        self.0.ends_with("!changes")
    }

    /// The number of the innermost attempt, counted from 1.
    #[must_use]
    pub(crate) fn attempt_number(&self) -> u32 {
        let last = self.0.rsplit('/').next().unwrap_or_default();
        let digits = last.split_once('#').map_or("", |(_, rest)| rest);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().unwrap_or(1)
    }

    /// The same place without the attempt numbers of itself and of the steps around it.
    #[must_use]
    pub fn any_attempt(&self) -> Self {
        let mut parts = self.0.split('#');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        Self(text)
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if `self` is `other` or is inside it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        place::is_within(&self.0, &other.0)
    }

    /// The id of the innermost step, as in its file; empty outside of steps.
    #[must_use]
    pub fn step_id(&self) -> Cow<'_, str> {
        place::step_id(&self.0)
    }

    /// The id of the outermost step.
    #[must_use]
    pub fn top_id(&self) -> Cow<'_, str> {
        place::top_id(&self.0)
    }
}

impl fmt::Display for StepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for StepPath {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_reads_from_the_outside_in() {
        let path = StepPath::root().step("loop").round(3).step("sub").attempt(2).stage(1).ordinal(0);
        assert_eq!(path.as_str(), "loop[3]/sub#2|1.0");
        assert_eq!((path.attempt_number(), StepPath::from("a#3/b").attempt_number()), (2, 1));
        assert!(path.is_within(&StepPath::from("loop[3]/sub")));
        assert!(path.is_within(&StepPath::from("loop")));
        assert!(!path.is_within(&StepPath::from("loop[3]/su")));
        assert!(!path.is_within(&StepPath::from("loop[31]")));
        assert!(!StepPath::from("a.b").is_within(&StepPath::from("a")));
        assert!(StepPath::from("a|1.0").is_within(&StepPath::from("a|1")));
        assert!(StepPath::from("|1.0").is_within(&StepPath::from("|1")));
    }

    #[test]
    fn attempts_of_one_place_are_told_by_their_numbers_alone() {
        let any = |text: &str| StepPath::from(text).any_attempt().as_str().to_owned();
        assert_eq!(any("loop[3]/sub#2|1.0"), "loop[3]/sub|1.0");
        assert_eq!((any("a#12/b#3"), any("a/b")), ("a/b".to_owned(), "a/b".to_owned()));
    }

    #[test]
    fn ids_cannot_imitate_structure() {
        let path = StepPath::root().step("a/b[0]#2|!%");
        assert_eq!(path.as_str(), "a%2Fb%5B0]%232%7C%21%25");
        for id in ["a/b[0]#2|!%", "100%", "größe"] {
            let inner = path.round(3).step(id).attempt(2).gate("approval");
            assert_eq!((&*inner.step_id(), &*inner.top_id()), (id, "a/b[0]#2|!%"));
        }
    }
}
