//! One module per kind of step; `stages/` has one file per pipeline command.

pub(crate) mod blocked;
mod bound_files;
mod granted_roots;
mod inputs;
mod jail_spec;
pub(crate) mod mcp;
pub(crate) mod native;
mod policy_gate;
pub(crate) use policy_gate::{Decided, decision_env, journal_decision};
pub mod stages;
