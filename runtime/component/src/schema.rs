//! JSON Schema, as far as a step's description uses it.

mod work;

use lobster_base::schema::Schema as JsonSchema;
use lobster_base::text::{self, Count};
use serde_json::Value;

use crate::nesting::explain_rejected;

/// A schema that is ready to check values.
pub(crate) struct Schema(JsonSchema);

/// A position where a value does not match, and the reason.
pub(crate) struct Misfit {
    /// `$` is the value itself, then `.field` and `[index]`.
    pub(crate) path: String,
    pub(crate) message: String,
}

/// Long values are shortened in error messages.
const MESSAGE_LIMIT: usize = 300;

impl Schema {
    /// Reads the schema in `text`. References to other documents are not followed.
    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        let schema: Value =
            serde_json::from_str(text).map_err(|error| explain_rejected("it is", text, &error))?;
        work::reject_expensive(&schema)?;
        JsonSchema::compile_foreign(&schema).map(Self)
    }

    pub(crate) fn check_value(&self, value: &Value) -> Result<(), Misfit> {
        self.0.first_error(value).map_or(Ok(()), |error| {
            let path = std::iter::once("$".to_owned())
                .chain(error.pointer.split('/').skip(1).map(|part| {
                    let part = part.replace("~1", "/").replace("~0", "~");
                    if part.parse::<usize>().is_ok() { format!("[{part}]") } else { format!(".{part}") }
                }))
                .collect();
            let message = text::clip(&error.message, MESSAGE_LIMIT, Count::Bytes).into_owned();
            Err(Misfit { path, message })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_the_place_of_a_misfit() {
        let schema = Schema::from_json(
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]}"#,
        );
        let Ok(schema) = schema else { panic!("the schema is good") };
        let misfit = |value: Value| schema.check_value(&value).err().map(|m| (m.path, m.message));
        assert_eq!(misfit(json!({"a": [1, 2]})), None);
        assert_eq!(misfit(json!({"a": [1, "x"]})), Some(("$.a[1]".into(), "must be integer".into())));
        assert_eq!(misfit(json!({})), Some(("$".into(), "must have required property 'a'".into())));
    }

    #[test]
    fn refuses_what_is_no_schema() {
        assert!(Schema::from_json("{").is_err());
        assert!(Schema::from_json(r#"{"type": 7}"#).is_err());
        assert!(Schema::from_json(r#"{"$ref": "https://example.com/other.json"}"#).is_err());
    }
}
