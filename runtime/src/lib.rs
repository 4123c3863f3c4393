//! The lobster step runtime: the library under the program `lobster`.
//!
//! Text becomes a plan ([`language`]), the [`engine`] drives it, steps do the
//! work, the [`store`] remembers it, and [`replay`] does with the record what a
//! record is good for. Each of these is a crate of its own, so that the compiler
//! holds the layers; this one only gathers what programs use. See
//! `docs/ARCHITECTURE.md` for the boundaries.

/// Digests, JSON as ECMAScript writes it, JSON Schema, cancellation, quantities, clipped texts.
pub use lobster_base::{cancel, code, digest, json, quantity, schema, text};
/// Loading, inspecting and running single components.
pub use lobster_component as component;
/// Drives plans: runs, questions, callers.
pub use lobster_engine as engine;
/// What a program embeds: a runtime, its settings, its answers.
pub use lobster_engine::{call, envelope, mcp, project_policy, runtime};
/// Workflow files and pipelines.
pub use lobster_language as language;
/// Plans as pictures.
pub use lobster_language::graph;
/// Language models and what they cost.
pub use lobster_models as model;
/// The history of runs for auditors.
pub use lobster_observe::audit;
/// The records of runs as lines, while they run.
pub use lobster_observe::events;
/// What native commands may do.
pub use lobster_policy as policy;
/// What a record is good for: resuming, replaying, forking, explaining, carrying.
pub use lobster_record as replay;
/// How native processes are started and confined.
pub use lobster_sandbox as sandbox;
/// The contract between pipeline commands and what runs them.
pub use lobster_stage as stage;
/// The pipeline commands.
pub use lobster_stages as stages;
/// Blobs, journal, gates and user state.
pub use lobster_store as store;
