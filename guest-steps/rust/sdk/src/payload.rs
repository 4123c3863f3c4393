//! What flows in and out of a step.

use schemars::{JsonSchema, Schema, schema_for};

/// What one side of a step carries: items of a type, [`Bytes`], or [`Any`].
pub trait Payload {
    /// The JSON Schema of one item; none for bytes.
    fn schema() -> Option<Schema>;
}

/// A byte stream: [`crate::Input`] is a reader then, [`crate::Output`] a writer.
pub enum Bytes {}

/// Either bytes or items, as the arguments or the input decide.
pub enum Any {}

impl Payload for Bytes {
    fn schema() -> Option<Schema> {
        None
    }
}

impl Payload for Any {
    fn schema() -> Option<Schema> {
        None
    }
}

impl<T: JsonSchema> Payload for T {
    fn schema() -> Option<Schema> {
        Some(schema_for!(T))
    }
}
