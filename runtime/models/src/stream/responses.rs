//! Events of OpenAI's responses. The last one holds the whole answer.

use serde_json::{Value, json};

use super::{StreamFlow, Text};

/// The response received so far.
#[derive(Default)]
pub(super) struct Partial {
    /// Complete parts of the output.
    items: Vec<Value>,
    response: Option<Value>,
    text: Text,
}

impl super::Partial for Partial {
    fn add_event(&mut self, mut event: Value) -> StreamFlow {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                // These bytes come again with their complete part.
                let piece = event.get("delta").and_then(Value::as_str).unwrap_or_default();
                self.text.characters += piece.chars().count() as u64;
                StreamFlow::More
            }
            "response.output_item.done" => {
                let item = event.get_mut("item").map(Value::take).unwrap_or_default();
                self.text.bytes += lobster_base::json::compact(&item).len() as u64;
                self.items.push(item);
                StreamFlow::More
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.response = event.get_mut("response").map(Value::take).filter(Value::is_object);
                StreamFlow::Last
            }
            _ => StreamFlow::More,
        }
    }

    fn is_complete(&self) -> bool {
        self.response.is_some()
    }

    fn text_so_far(&self) -> Text {
        self.text
    }

    fn into_answer(self: Box<Self>) -> Value {
        let mut response = self.response.unwrap_or_default();
        // Some servers omit from the last event what they sent before.
        let is_empty = response.get("output").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if is_empty && !self.items.is_empty() {
            response["output"] = json!(self.items);
        }
        response
    }
}
