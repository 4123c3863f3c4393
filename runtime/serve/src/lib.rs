//! The service over a store: it starts runs without a person.
//!
//! The server itself keeps no state that matters. Every decision is written to the store with its reasons, so a server
//! may be killed at any moment, and several servers may share one store. Runs execute in their own processes, which the
//! server starts and only it waits for.

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
