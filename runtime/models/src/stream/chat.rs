//! Chunks of OpenAI's chat completions.

use serde_json::{Map, Value, json};

use super::{StreamFlow, Text, keep_latest};

/// The completion received so far.
#[derive(Default)]
pub(super) struct Partial {
    /// The fields of all chunks except their choices; the latest values win.
    around: Map<String, Value>,
    content: Option<String>,
    refusal: Option<String>,
    finish: Option<Value>,
    text: Text,
}

impl super::Partial for Partial {
    fn add_event(&mut self, event: Value) -> StreamFlow {
        let Value::Object(mut chunk) = event else { return StreamFlow::More };
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            // Only one answer is requested.
            let is_first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
            for choice in choices.iter().filter(is_first) {
                self.take_choice(choice);
            }
        }
        keep_latest(&mut self.around, &mut chunk, &["id", "model", "usage"]);
        // The token counts follow the last words, and `[DONE]` follows the counts.
        StreamFlow::More
    }

    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn text_so_far(&self) -> Text {
        self.text
    }

    fn into_answer(self: Box<Self>) -> Value {
        let message = json!({"role": "assistant", "content": self.content, "refusal": self.refusal});
        let mut answer = self.around;
        answer.insert(
            "choices".into(),
            json!([{"index": 0, "message": message, "finish_reason": self.finish}]),
        );
        Value::Object(answer)
    }
}

impl Partial {
    fn take_choice(&mut self, choice: &Value) {
        for (name, kept) in [("content", &mut self.content), ("refusal", &mut self.refusal)] {
            if let Some(piece) = choice.pointer(&format!("/delta/{name}")).and_then(Value::as_str) {
                self.text.count_text(piece);
                kept.get_or_insert_default().push_str(piece);
            }
        }
        if let Some(finish) = choice.get("finish_reason").filter(|finish| !finish.is_null()) {
            self.finish = Some(finish.clone());
        }
    }
}
