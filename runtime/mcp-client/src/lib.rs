//! A client of the Model Context Protocol.
//!
//! It connects to a server, compares the server's tools with the ones that were pinned, and calls a tool. It starts no
//! process itself (the sandbox does), decides nothing (the policy does), and takes what a server says as data.

mod faults;
mod lines;
mod lock;
mod session;

pub use lock::{Lock, LockError, PinnedTool};
pub use session::{CallProblem, Launch, ServerTerms, Session, Way};

use rmcp::model::CallToolResult;
use serde_json::Value;

use lobster_base::json;

/// A tool's result as the result of its step: its structured content, else its text (as JSON if it is an object or a
/// list), else all of its content.
pub fn value_of(result: &CallToolResult) -> Value {
    if let Some(value) = result.structured_content.as_ref().filter(|value| !value.is_null()) {
        return value.clone();
    }
    match text_of(result) {
        None => serde_json::to_value(&result.content).unwrap_or(Value::Null),
        Some(text) => match json::parse(text.trim()) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
            _ => Value::String(text),
        },
    }
}

/// The text of a result that consists only of text.
pub fn text_of(result: &CallToolResult) -> Option<String> {
    let texts: Option<Vec<&str>> =
        result.content.iter().map(|block| block.as_text().map(|text| text.text.as_str())).collect();
    texts.map(|texts| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use rmcp::model::ContentBlock;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_its_structure_or_its_text() {
        let text = |text: &str| CallToolResult::success(vec![ContentBlock::text(text)]);
        assert_eq!(value_of(&text("plain")), json!("plain"));
        assert_eq!(value_of(&text(r#"{"a":1}"#)), json!({"a": 1}));
        assert_eq!(value_of(&text("7")), json!("7"));
        let mut both = text("shown");
        both.structured_content = Some(json!({"b": 2}));
        assert_eq!(value_of(&both), json!({"b": 2}));
        let image = CallToolResult::success(vec![ContentBlock::image("AA==", "image/png")]);
        assert_eq!(value_of(&image)[0]["mimeType"], json!("image/png"));
    }
}
