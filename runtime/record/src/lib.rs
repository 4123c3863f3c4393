//! Uses of the record of a run: replaying and comparing it, forking it under other conditions, explaining
//! differences between two runs, and moving it to another machine.
//!
//! Resuming continues a recorded run. No other function here changes the record of a run: a fork is a new
//! run.

mod ahead;
mod authors;
pub mod bundle;
mod changes;
mod contents;
mod copied;
mod diff;
mod directory;
mod failed_step;
mod fork;
#[cfg(test)]
mod fork_model;
mod incumbent_gates;
mod json_path;
mod left_running;
mod observed;
mod part_of_changes;
mod precompute;
mod preimage;
mod recorded_programs;
mod recording;
mod replay;
mod requests;
mod resume;
mod standing;
mod step_output;
mod step_undos;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod timeline;
mod why;

pub use ahead::preview_steps;
pub use changes::{
    OtherEffect, StepChanges, Undo, UndoError, WhatToUndo, changes_in, changes_of_run, plan_undo,
    tells_changes,
};
pub use diff::{RunDiff, StepChange, StepDifference, compare_runs};
pub use directory::own_directory;
pub use failed_step::{StepPlace, failed_step, failure_after, place_in_plan, place_of_step};
pub use fork::{DoneAnew, FORK_NOTE, ForkPlan, ForkRequest, execute_fork, plan_fork};
pub use incumbent_gates::{IncumbentGate, incumbent_gates, incumbent_refusal};
pub use observed::{observed_commands, rules_of_approvals};
pub use part_of_changes::part_of_question;
pub use preimage::{Difference, Part};
pub use replay::{Divergence, ReplayOptions, ReplayReport, Unverified, replay_run};
pub use resume::{
    GateRef, Reply, ResumeRequest, answer_and_resume, cancel_run, check_approver, has_unused_answer,
    open_gate, policy_of, record_answer, record_retry, resume_conflicting, resume_run, run_of_gate,
    take_over, waits_for_people,
};
pub use standing::{Standing, Standings, last_end, read_standing, runs_with_standing};
pub use step_output::{
    end_of_output, ends_output, kept_outputs, recorded_streams, retain_unrecorded, stream_as_json,
    streams_as_json,
};
pub use step_undos::{NotProposed, StepUndo};
pub use why::{Why, WhyError, explain_step};
