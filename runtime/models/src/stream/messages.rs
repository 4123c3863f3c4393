//! Events of Anthropic's messages.
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>

use serde_json::{Map, Value, json};

use super::{StreamFlow, Text};
use lobster_base::json;

/// The message received so far.
#[derive(Default)]
pub(super) struct Partial {
    message: Map<String, Value>,
    blocks: Vec<Block>,
    has_stopped: bool,
    text: Text,
}

/// A block of the message's content.
struct Block {
    index: u64,
    block: Value,
    text: String,
    /// The arguments of a tool, as JSON text.
    arguments: String,
}

impl super::Partial for Partial {
    fn add_event(&mut self, mut event: Value) -> StreamFlow {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match kind.as_str() {
            "message_start" => {
                if let Some(Value::Object(message)) = event.get_mut("message").map(Value::take) {
                    self.message = message;
                }
            }
            "content_block_start" => {
                let block = event.get_mut("content_block").map(Value::take).unwrap_or_default();
                let text = block.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
                self.text.count_text(&text);
                self.text.bytes += json::compact(&block).len() as u64;
                self.blocks.push(Block { index, block, text, arguments: String::new() });
            }
            "content_block_delta" => {
                let piece = |name: &str| event.pointer(name).and_then(Value::as_str).unwrap_or_default();
                let (text, arguments) = (piece("/delta/text"), piece("/delta/partial_json"));
                if let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index) {
                    self.text.count_text(text);
                    self.text.count_text(arguments);
                    block.text.push_str(text);
                    block.arguments.push_str(arguments);
                }
            }
            "message_delta" => {
                if let Some(Value::Object(delta)) = event.get_mut("delta").map(Value::take) {
                    self.message.extend(delta);
                }
                // The counts are for the whole message; unchanged ones are not repeated.
                if let Some(Value::Object(counts)) = event.get_mut("usage").map(Value::take) {
                    let usage = self.message.entry("usage").or_insert_with(|| json!({}));
                    if let Value::Object(usage) = usage {
                        usage.extend(counts.into_iter().filter(|(_, count)| !count.is_null()));
                    }
                }
            }
            "message_stop" => {
                self.has_stopped = true;
                return StreamFlow::Last;
            }
            _ => {}
        }
        StreamFlow::More
    }

    fn is_complete(&self) -> bool {
        self.has_stopped || self.message.get("stop_reason").is_some_and(|reason| !reason.is_null())
    }

    fn text_so_far(&self) -> Text {
        self.text
    }

    fn into_answer(self: Box<Self>) -> Value {
        let mut message = self.message;
        let content: Vec<Value> = self.blocks.into_iter().map(Block::into_value).collect();
        message.insert("content".into(), json!(content));
        Value::Object(message)
    }
}

impl Block {
    fn into_value(self) -> Value {
        let Self { mut block, text, arguments, .. } = self;
        match block.get("type").and_then(Value::as_str) {
            Some("text") => block["text"] = json!(text),
            Some("tool_use") if !arguments.trim().is_empty() => match json::parse(&arguments) {
                Ok(input) => block["input"] = input,
                // Cut at the limit of tokens: the incomplete arguments become the model's text.
                Err(_) => return json!({"type": "text", "text": arguments}),
            },
            _ => {}
        }
        block
    }
}
