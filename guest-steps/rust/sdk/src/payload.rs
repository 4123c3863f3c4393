//! What flows in and out of a step.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema};

/// What one side of a step carries: items of a type, [`Bytes`], or [`Any`].
pub trait Payload {
    /// The JSON Schema of one item as it is read, or as it is written; none for
    /// bytes. They differ: what `skip_serializing_if` leaves out is not required.
    fn schema(contract: Contract) -> Option<Schema>;
}

/// A byte stream: [`crate::Input`] is a reader then, [`crate::Output`] a writer.
pub enum Bytes {}

/// Either bytes or items, as the arguments or the input decide.
pub enum Any {}

impl Payload for Bytes {
    fn schema(_: Contract) -> Option<Schema> {
        None
    }
}

impl Payload for Any {
    fn schema(_: Contract) -> Option<Schema> {
        None
    }
}

impl<T: JsonSchema> Payload for T {
    fn schema(contract: Contract) -> Option<Schema> {
        let settings = SchemaSettings::default().with(|settings| settings.contract = contract);
        Some(settings.into_generator().into_root_schema_for::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Item {
        #[serde(default)]
        read: u32,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        written: bool,
    }

    #[test]
    fn what_is_left_out_when_it_is_written_is_not_required_of_the_output() {
        let required = |contract| Item::schema(contract).and_then(|schema| schema.get("required").cloned());
        assert_eq!(required(Contract::Serialize), Some(serde_json::json!(["read"])));
        assert_eq!(required(Contract::Deserialize), Some(serde_json::json!(["written"])));
    }
}
