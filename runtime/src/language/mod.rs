//! Source text to plain data. Nothing here reads files, runs anything or asks anyone.

pub mod pipeline;
