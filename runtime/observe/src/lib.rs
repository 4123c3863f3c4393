//! What journals tell to others: a timeline for auditors, spans for a collector, lines for whoever follows a run.
//!
//! All are read from what the store holds; nothing here is a truth of its own.

pub mod audit;
pub mod events;
pub mod figures;
pub mod telemetry;
