//! Drives plans: order, conditions, branches, loops, retries, timeouts, gates.
//!
//! One engine runs files and pipelines, both when they start and when they resume.

pub(crate) mod action;
pub mod call;
pub mod envelope;
pub mod known_settings;
pub mod mcp;
pub(crate) mod own_tokens;
pub mod project_policy;
pub mod runtime;
pub(crate) mod secrets;
mod settings;

mod activity;
pub mod ahead;
mod ancestors;
mod approval;
mod ask_terminal;
mod at_once;
mod attempts;
pub mod audience;
pub mod author;
pub(crate) mod background;
pub mod beginning;
pub mod binding;
pub mod budget;
mod child_workflow;
mod current_values;
mod effects;
pub mod env;
mod for_each;
mod gate;
mod graph;
mod host_functions;
mod imported;
mod kept_values;
pub mod kinds;
mod notify;
pub mod origin;
pub mod overseer;
mod parallel;
pub mod path;
pub mod perform;
mod pipeline;
mod question;
pub mod recall;
mod record;
pub mod recorded_plan;
mod redacted;
mod repeat;
pub(crate) mod requests;
mod reuse;
pub mod reversal;
pub mod run;
mod secret_reader;
pub mod services;
pub mod settle;
mod stale;
mod stdin;
pub(crate) mod surroundings;
mod switch;
#[cfg(test)]
mod tests;
pub mod token;
pub(crate) mod unseen;
pub mod upcoming;
pub(crate) mod value;
mod wait;
mod workflow;

pub use ahead::{Ahead, Asking, NextEffect};
pub use audience::{
    Asked, AskedCommand, Heard, Notes, Notify, Occasions, Progress, PromptError, Prompter, Said, Screen,
};
pub use binding::SetsGoing;
pub use env::{NOTIFY_VARIABLE, WORKFLOW_DIR};
pub use kinds::component::{
    component_proposal, denial_error, js_evaluator_digest, store_component as keep_component,
    withhold_undeclared,
};
pub use notify::{NOTIFY_TIMEOUT, notify_of_end};
pub use question::{AT_ONCE, Fact, QuestionKind, QuestionView, Weight};
pub use run::Interrupted;
pub use services::Caller;
pub use settle::execute_plan;
pub use token::gate_token;
pub use unseen::{Lost, UnseenEnd};
pub use value::RunOutput;
pub(crate) use value::read_to_end;
