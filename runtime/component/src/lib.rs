//! Runs WebAssembly as lobster steps. This is the only crate that uses wasmtime.
//!
//! [`Engine`] loads and compiles, [`Component`] is one loaded program, and [`Component::run`] turns an
//! [`Invocation`] into an [`Outcome`]. There are three forms of program: a component for the
//! `lobster:step` world, a `wasi:cli/command` component, and a preview-1 core module with `_start`.
//!
//! This crate must never give a program anything that its [`Grants`] do not name, let a run exceed its
//! [`Limits`], or load machine code that this crate did not write itself.

mod cache;
mod compiler;
mod complexity;
mod component;
mod engine;
mod error;
mod file;
mod host;
mod invocation;
mod kind;
mod names;
mod nesting;
mod opened;
mod outcome;
mod run;
mod schema;
mod state;
mod ticker;
mod untyped;
mod wants;
mod writes;

#[cfg(test)]
mod tests;

pub use cache::{CodeLimits, CodeUse, MAX_CODE};
pub use compiler::{COMPILE_ARGUMENT, CompileLimits, CompilerProgram, Patience, compile_main};
pub use complexity::MAX_PROGRAM;
pub use component::{Capability, Component, Description, Example, Inspection, Want};
pub use engine::{Allocation, Engine, EngineConfig};
pub use error::{LoadError, RunError, StepError};
pub use file::{open_file, read_file};
pub use invocation::{
    BlobError, BlobRead, BlobWrite, Cancel, Ceilings, DirGrant, Grants, HostCall, HostCallTrace,
    HostServices, Input, Invocation, Level, Limits, LimitsSetBy, NoServices, OutputSink, SetBy, cancelled_by,
};
pub use kind::Kind;
pub use nesting::MAX_NESTING;
pub use opened::{DirId, OpenedDirs};
pub use outcome::Outcome;
pub use writes::{StagedWrites, WritesError, Written, WrittenKind};

/// BLAKE3 digest that identifies a component.
pub type Digest = blake3::Hash;
