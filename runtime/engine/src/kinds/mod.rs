//! One module per kind of step that does something outside the engine.

mod blocked;
mod bound_files;
mod bound_trees;
pub mod changes;
pub mod component;
mod decided;
mod decision_env;
pub mod finished_commits;
mod git_settings;
mod granted_roots;
mod guarded;
mod inputs;
mod jail_spec;
pub(crate) mod mcp;
pub(crate) mod mcp_servers;
pub(crate) mod native;
mod own_places;
mod passed;
pub(crate) mod pile;
pub(crate) mod policy_gate;
pub(crate) mod readable;
pub mod review;
pub(crate) mod user_state;
pub(crate) use decided::Decided;
pub(crate) use decision_env::decision_env;
pub(crate) use passed::restore_terminal;
pub(crate) use policy_gate::{journal_decision, shown_credentials};
