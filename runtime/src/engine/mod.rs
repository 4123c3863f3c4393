//! Drives plans: order, conditions, branches, loops, retries, timeouts, gates.
//!
//! One engine runs files and pipelines, the first time and when they go on.

pub(crate) mod action;
mod approval;
mod ask;
mod attempts;
pub(crate) mod background;
pub(crate) mod component;
pub(crate) mod env;
mod for_each;
pub(crate) mod gate;
mod host_calls;
mod incumbent_gates;
mod left_out;
mod notify;
pub(crate) mod overseer;
mod parallel;
pub(crate) mod path;
pub(crate) mod pipeline;
mod question;
pub(crate) mod recall;
mod record;
pub(crate) mod resume;
pub(crate) mod reuse;
pub(crate) mod run;
pub(crate) mod services;
pub(crate) mod settle;
mod stale;
mod stdin;
pub(crate) mod surroundings;
#[cfg(test)]
mod tests;
mod token;
pub(crate) mod value;
mod workflow;

pub use ask::{Asked, PromptError, Prompter, Said};
pub(crate) use component::keep as keep_component;
pub(crate) use component::{denied, js_evaluator_digest, proposal, withhold};
pub use host_calls::RecordedCalls;
pub use incumbent_gates::IncumbentGate;
pub use notify::{NOTIFY_TIMEOUT, NOTIFY_VARIABLE, Notify};
pub use question::{Fact, QuestionKind, QuestionView, Weight};
pub use resume::{GateRef, Reply, ResumeRequest};
pub use run::Interrupted;
pub use services::{Caller, Notes, Progress, Screen};
pub(crate) use settle::execute;
pub use token::gate_token;
pub use value::Output;
pub(crate) use value::read_to_end;
