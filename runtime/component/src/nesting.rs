//! The limit on the nesting of the JSON that programs and lobster pass to each other.

use lobster_base::json;

/// Most levels of arrays and objects in arguments, output items and values of the run, and in input items
/// that are checked against a schema.
pub const MAX_NESTING: usize = json::MAX_MESSAGE_DEPTH;

/// Reason why a text was rejected as JSON, for people. `what` is its subject and verb, such as `it is`.
pub(crate) fn explain_rejected(what: &str, text: &str, error: &serde_json::Error) -> String {
    if json::is_nested_deeper(text.as_bytes(), MAX_NESTING) {
        format!("{what} nested more than {MAX_NESTING} levels of arrays and objects deep")
    } else {
        format!("{what} not JSON: {error}")
    }
}

/// Like [`explain_rejected`], for arguments.
pub(crate) fn explain_rejected_args(text: &str, error: &serde_json::Error) -> String {
    let why = explain_rejected("they are", text, error);
    if json::is_nested_deeper(text.as_bytes(), MAX_NESTING) {
        why + "; in a js step, one level is around `input`, and two are around the results of earlier steps"
    } else {
        why
    }
}
