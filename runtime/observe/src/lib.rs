//! What journals tell to others: a timeline for auditors and spans for a collector.
//!
//! Both are read from what the store holds; nothing here is a truth of its own.

pub mod audit;
pub mod telemetry;
