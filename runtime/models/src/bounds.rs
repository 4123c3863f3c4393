//! What bounds the calls of models: money that is put aside before each.

use super::channel::Failure;
use lobster_stage::{StageError, WorstCase};

/// What bounds a call.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// Whether the call must say the most that it can cost.
    pub has_budget: bool,
    /// Puts that aside, or refuses the call.
    pub reserve: &'a dyn Fn(&WorstCase) -> Result<(), StageError>,
    /// Gives that back for a call that was certainly not computed.
    pub give_back: &'a dyn Fn(),
}

impl Bounds<'_> {
    /// Makes a call if the most that it can cost fits.
    pub(crate) fn call<T>(
        &self,
        worst: Option<&WorstCase>,
        make: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let worst = worst.filter(|_| self.has_budget);
        if let Some(worst) = worst {
            (self.reserve)(worst).map_err(Failure::Budget)?;
        }
        let answer = make();
        if let (Some(worst), Err(failure)) = (worst, &answer)
            && !failure.may_be_billed(worst)
        {
            (self.give_back)();
        }
        answer
    }
}
