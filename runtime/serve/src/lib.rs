//! The service over a store: what starts runs when nobody types them.
//!
//! It keeps no truth of its own. Every decision is written in the store with what it is based on,
//! so a server may be killed at any instant and several may serve one store. Runs execute in
//! processes of their own, which are started here and never waited for by anything else.

pub mod access;
mod after;
mod folders;
mod hooks;
pub mod http;
pub mod net;
pub mod notify;
mod passkeys;
pub mod probe;
pub mod program;
mod rate;
mod readiness;
mod run_process;
pub mod schedule;
pub mod server;
pub mod tidings;
mod usage;
pub mod watch;
pub mod workers;
pub mod workflow_files;
pub mod workflows;
