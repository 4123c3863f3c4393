//! The lobster step runtime.
//!
//! Text becomes a plan (`language`), the engine drives it, steps do the work,
//! the store remembers it. See `docs/ARCHITECTURE.md` for the boundaries.

pub mod cancel;
pub mod digest;
pub mod engine;
mod file_digests;
mod glob;
pub mod json;
pub mod language;
pub mod model;
pub mod observe;
pub mod policy;
mod quantity;
pub mod record;
pub mod sandbox;
pub mod schema;
pub mod stage;
pub mod stages;
pub mod store;

/// Loading, inspecting and running single components.
pub use lobster_component as component;

pub use engine::{call, envelope, mcp, project_policy, runtime};
pub use language::graph;
pub use observe::audit;
pub use record as replay;
