//! Chunks of Gemini's answers, each in the form of a whole answer.

use serde_json::{Map, Value, json};

use super::{StreamFlow, Text, keep_latest};

/// The answer received so far.
#[derive(Default)]
pub(super) struct Partial {
    /// The fields of all chunks except their candidates; the latest values win.
    around: Map<String, Value>,
    /// The text, if any part of the content arrived.
    said: Option<String>,
    finish: Option<Value>,
    text: Text,
}

impl super::Partial for Partial {
    fn add_event(&mut self, event: Value) -> StreamFlow {
        let Value::Object(mut chunk) = event else { return StreamFlow::More };
        if let Some(Value::Array(candidates)) = chunk.remove("candidates")
            && let Some(candidate) = candidates.first()
        {
            let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
            for part in parts.into_iter().flatten() {
                let said = self.said.get_or_insert_default();
                // Thoughts are no part of the answer.
                let is_thought = part.get("thought") == Some(&Value::Bool(true));
                if let Some(text) = part.get("text").and_then(Value::as_str).filter(|_| !is_thought) {
                    self.text.count_text(text);
                    said.push_str(text);
                }
            }
            if let Some(finish) = candidate.get("finishReason").filter(|finish| !finish.is_null()) {
                self.finish = Some(finish.clone());
            }
        }
        keep_latest(
            &mut self.around,
            &mut chunk,
            &["promptFeedback", "usageMetadata", "modelVersion", "responseId"],
        );
        // No chunk is marked as the last; some servers repeat the end reason in each.
        StreamFlow::More
    }

    fn is_complete(&self) -> bool {
        let blocked = self.around.get("promptFeedback").and_then(|feedback| feedback.get("blockReason"));
        self.finish.is_some() || blocked.is_some_and(|reason| !reason.is_null())
    }

    fn text_so_far(&self) -> Text {
        self.text
    }

    fn into_answer(self: Box<Self>) -> Value {
        let mut answer = self.around;
        if self.finish.is_some() || self.said.is_some() {
            let parts = self.said.map(|text| json!([{"text": text}]));
            let content = parts.map_or_else(|| json!({}), |parts| json!({"role": "model", "parts": parts}));
            answer.insert("candidates".into(), json!([{"content": content, "finishReason": self.finish}]));
        }
        Value::Object(answer)
    }
}
