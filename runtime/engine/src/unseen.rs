//! Effects that began and whose end was not seen (invariant E7).
//!
//! Such an effect may have happened or not. The journal has it as interrupted, with everything known about the loss,
//! and a person decides if it is repeated or skipped. For a resumed run it has begun and not ended ([`CUT_OFF`]), so
//! an older lobster that reads the journal asks as well.

use super::path::StepPath;
use super::recall::Recall;
pub(crate) use lobster_executor::tell_idempotent;
pub use lobster_executor::{Lost, UnseenEnd};

/// An effect of a run that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    pub(crate) path: String,
    pub(crate) end: UnseenEnd,
}

impl Recall {
    /// The recorded effects that began and did not end, in the order of their paths.
    pub(super) fn unseen_effects(&self) -> Vec<Unseen> {
        let mut paths: Vec<_> = self.started.iter().collect();
        paths.sort();
        paths.into_iter().map(|path| Unseen { path: path.to_string(), end: self.unseen_end(path) }).collect()
    }

    /// The recorded facts about the end of an effect that began and did not end.
    pub(super) fn unseen_end(&self, path: &StepPath) -> UnseenEnd {
        let Some(outcome) = self.cut_off.get(path) else { return UnseenEnd::of_loss(Lost::Lobster) };
        UnseenEnd::of_outcome(outcome)
            .unwrap_or_else(|| UnseenEnd { why: outcome.error.clone(), ..UnseenEnd::of_loss(Lost::Stopped) })
    }
}

/// The question to a person about effects whose end was not seen.
pub(super) fn question_text(run: &str, unseen: &[Unseen]) -> String {
    let (they, it, did) = match unseen {
        [_] | [] => ("it", "it", "it had an effect"),
        _ => ("they", "them", "they had an effect"),
    };
    let told: Vec<_> = unseen
        .iter()
        .map(|one| format!("step '{}' was interrupted: {}", one.path, one.end.reason()))
        .collect();
    let mut told = match told.is_empty() {
        true => "a step was interrupted".to_owned(),
        false => told.join("; "),
    };
    if let Some(first) = told.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    format!(
        "{told}. It is not known if {did}, so nothing is repeated without asking. Check what {they} did, then \
         `lobster resume {run} --retry-interrupted` repeats {it}, `lobster resume {run} --skip-interrupted` \
         continues as if {they} had failed, and `lobster resume {run} --cancel` ends the run."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_each_step_and_the_three_ways_on() {
        let one = |path: &str, lost| Unseen { path: path.to_owned(), end: UnseenEnd::of_loss(lost) };
        let asked =
            question_text("0badf00d", &[one("pay", Lost::Process), one("loop[2]/mail", Lost::Answer)]);
        for words in [
            "Step 'pay' was interrupted: its process was killed",
            "step 'loop[2]/mail' was interrupted: its call was sent",
            "It is not known if they had an effect",
            "0badf00d --retry-interrupted",
            "0badf00d --skip-interrupted",
            "0badf00d --cancel",
        ] {
            assert!(asked.contains(words), "{words}: {asked}");
        }
    }
}
