//! Write a lobster step in Rust.
//!
//! A step is a type that implements [`Step`]; [`export_step!`] turns it into a
//! component of the `lobster:step` contract. The JSON Schemas that the step
//! publishes come from the very types it reads and writes, so they cannot drift.
//!
//! ```
//! use lobster_step::{Description, Input, JsonSchema, Output, Step, StepError};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Args {
//!     /// What to multiply by.
//!     factor: f64,
//! }
//!
//! #[derive(Deserialize, Serialize, JsonSchema)]
//! struct Reading {
//!     value: f64,
//! }
//!
//! struct Scale;
//!
//! impl Step for Scale {
//!     type Args = Args;
//!     type In = Reading;
//!     type Out = Reading;
//!
//!     fn describe() -> Description {
//!         Description::new("scale", env!("CARGO_PKG_VERSION"), "Multiplies readings")
//!     }
//!
//!     fn run(args: Args, input: &mut Input<Reading>, output: &mut Output<Reading>) -> Result<(), StepError> {
//!         for reading in input {
//!             output.emit(&Reading { value: reading?.value * args.factor })?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! lobster_step::export_step!(Scale);
//! # fn main() {}
//! ```
//!
//! What a step may rely on: it runs once per instance, with nothing but what was
//! granted; the clock and randomness are the same in every run unless the real
//! ones were granted; a panic ends the step with the panic's text in the log.
//!
//! The feature `arena` (on by default) makes small runs cheaper to start by an
//! allocator of this crate's own; leave it out to choose another.

#[cfg(any(target_family = "wasm", test))]
mod arena;
mod describe;
mod error;
pub mod files;
pub mod host;
mod input;
mod output;
mod payload;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod wasm;

#[cfg(all(target_family = "wasm", feature = "arena"))]
#[global_allocator]
static ALLOCATOR: arena::Arena = arena::Arena::new();

pub use describe::{Capability, Description, Example, Want};
pub use error::StepError;
pub use input::Input;
pub use output::Output;
pub use payload::{Any, Bytes, Payload};
pub use schemars::{self, JsonSchema};

use serde::de::DeserializeOwned;

/// A step: what it is, what it takes and gives, and what it does.
pub trait Step {
    /// The arguments, a struct. Give it `#[serde(deny_unknown_fields)]` so that
    /// a misspelt argument is an error.
    type Args: DeserializeOwned + JsonSchema;
    /// One input item, or [`Bytes`] for a byte stream, or [`Any`] for either.
    type In: Payload;
    /// One output item, or [`Bytes`], or [`Any`].
    type Out: Payload;

    /// What the step says about itself. It must be a constant.
    fn describe() -> Description;

    /// Does the work. Output that was given before an error is discarded by the host.
    ///
    /// # Errors
    /// Whatever makes the result unusable, see [`StepError`].
    fn run(
        args: Self::Args,
        input: &mut Input<Self::In>,
        output: &mut Output<Self::Out>,
    ) -> Result<(), StepError>;
}

/// Parses arguments, runs the step and hands on what is still buffered.
pub(crate) fn run<S: Step>(
    args: &str,
    input: &mut Input<S::In>,
    output: &mut Output<S::Out>,
) -> Result<(), StepError> {
    let args = if args.trim().is_empty() { "{}" } else { args };
    let args = serde_json::from_str(args)
        .map_err(|error| StepError::new("bad-args", format!("the arguments do not fit: {error}")))?;
    S::run(args, input, output)?;
    output.flush_items()
}

/// Makes a [`Step`] the step of this component. Use it once, at the crate root
/// of a `cdylib`.
#[macro_export]
macro_rules! export_step {
    ($step:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::wasm::Adapter<$step>;
    $crate::wasm::bindings::export!(Exported with_types_in $crate::wasm::bindings);
        };
    };
}
