//! Views of the journals for other programs: a history for auditors, spans for a collector, and lines for programs
//! that follow a run.
//!
//! All are derived from the store; nothing else is recorded here.

pub mod audit;
pub mod events;
pub mod figures;
pub mod telemetry;
