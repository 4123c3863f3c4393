//! The lobster step runtime.
//!
//! Text becomes a plan (`language`), the engine drives it, steps do the work,
//! the store remembers it. See `docs/ARCHITECTURE.md` for the boundaries.

pub mod audit;
pub mod call;
pub mod cancel;
pub mod digest;
pub mod engine;
pub mod envelope;
mod file_digests;
mod glob;
pub mod graph;
mod http;
pub mod json;
pub mod language;
pub mod mcp;
pub mod model;
mod own_tokens;
pub mod policy;
pub mod project_policy;
mod quantity;
pub mod replay;
pub mod runtime;
pub mod sandbox;
pub mod schema;
mod secrets;
mod settings;
pub mod stage;
pub mod stages;
mod steps;
pub mod store;
mod telemetry;

/// Loading, inspecting and running single components.
pub use lobster_component as component;
