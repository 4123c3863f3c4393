//! Converts source text to a [`Plan`](plan::Plan). Nothing here reads a clock, an environment or a
//! file: sources are passed in as text, and sub-workflows through a loader of the caller.

pub mod codes;
pub mod complete;
pub mod condition;
pub mod diagnostic;
pub mod dry_run;
mod failures;
pub mod graph;
mod json_text;
pub mod mistyped;
mod needs;
pub mod pipeline;
pub mod plan;
mod scalar;
pub mod source;
pub mod template;
pub mod triggers;
pub mod wait;
pub mod workflow;
mod yaml;
