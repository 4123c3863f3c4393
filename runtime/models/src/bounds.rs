//! Bounds of model calls: money is reserved before each.

use super::channel::Failure;
use lobster_stage::{StageError, WorstCase};

/// Bounds of a call.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// True if the call must state its highest possible cost.
    pub has_budget: bool,
    /// Reserves that cost, or refuses the call.
    pub reserve: &'a dyn Fn(&WorstCase) -> Result<(), StageError>,
    /// Releases the reservation of a call that was certainly not computed.
    pub give_back: &'a dyn Fn(),
}

impl Bounds<'_> {
    /// Makes a call if its highest possible cost fits.
    pub(crate) fn call_if_affordable<T>(
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
