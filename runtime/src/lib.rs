//! The lobster step runtime.
//!
//! Text becomes a plan (`language`), the engine drives it, steps do the work,
//! the store remembers it. See `docs/ARCHITECTURE.md` for the boundaries.

pub mod cancel;
pub mod digest;
pub mod json;
pub mod policy;
pub mod steps;
