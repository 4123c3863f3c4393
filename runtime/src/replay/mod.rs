//! What a record is good for afterwards: executing it again and comparing,
//! going on from the middle of it under other conditions, saying why two runs
//! differ, and carrying it to another machine.
//!
//! Nothing here changes the record of a run: a fork is a new run.

mod ahead;
pub mod bundle;
mod contents;
mod diff;
mod fork;
#[cfg(test)]
mod fork_model;
mod helpers;
mod json_path;
mod preimage;
mod programs;
mod recording;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verify;
mod why;

pub(crate) use ahead::plan_after;
pub use ahead::{Ahead, NextEffect};
pub use diff::{RunDiff, StepChange, StepDifference};
pub(crate) use fork::overseer_of_fork;
pub use fork::{DoneAnew, FORK_NOTE, ForkPlan, ForkRequest};
pub use preimage::{Difference, Part};
pub use verify::{Divergence, ReplayOptions, ReplayReport, Unverified};
pub use why::{Why, WhyError};
