//! Anthropic's messages (`POST /v1/messages`). A schema is enforced by a tool that the model must call.

use serde_json::{Map, Value, json};

use super::channel::Failure;
use super::ending::Endings;
use super::openai::{copy_field, failure_instead};
use super::request::{Request, Retry, set_fields};
use crate::attachment::Attachment;
use lobster_stage::StageError;

/// The version of the interface, sent as `anthropic-version`.
pub(crate) const VERSION: &str = "2023-06-01";

/// Most tokens of an answer if the request names no limit; the interface requires one.
pub(crate) const MAX_TOKENS: u32 = 4096;

/// The name of the tool whose arguments are the answer.
const TOOL: &str = "answer";

/// The request's body.
pub(crate) fn request_body(request: &Request, retry: Option<&Retry>) -> Result<Value, StageError> {
    let model = request.named_model("anthropic")?;
    request.refuse_settings("anthropic", &["seed"])?;
    let messages =
        request.chat_messages(retry, |text, files| files.into_iter().map(file_block).chain([text]).collect());
    let tools = request.output_schema.as_ref().map(|schema| {
        json!([{"name": TOOL, "description": "Gives the answer.", "input_schema": tool_schema(schema).0}])
    });
    let choice = tools.as_ref().map(|_| json!({"type": "tool", "name": TOOL}));
    let fields = set_fields([
        ("model", json!(model)),
        ("max_tokens", request.max_output_tokens.as_ref().map_or(json!(MAX_TOKENS), |n| json!(n))),
        ("temperature", json!(request.temperature)),
        ("stop_sequences", json!(request.stop)),
        ("output_config", json!(request.effort.as_ref().map(|effort| json!({"effort": effort})))),
        ("system", json!(request.system)),
        ("messages", messages.collect()),
        ("tools", json!(tools)),
        ("tool_choice", json!(choice)),
    ]);
    Ok(fields.collect())
}

/// A file as a block of a message.
fn file_block(file: &Attachment) -> Value {
    let kind = if file.is_image() { "image" } else { "document" };
    let source = json!({"type": "base64", "media_type": file.media_type, "data": file.base64()});
    json!({"type": kind, "source": source})
}

/// The schema of the tool's arguments, which must be an object; any other answer is wrapped in one, and
/// the second value is true.
fn tool_schema(schema: &Value) -> (Value, bool) {
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        return (schema.clone(), false);
    }
    (json!({"type": "object", "properties": {"value": schema}, "required": ["value"]}), true)
}

const ENDINGS: Endings =
    Endings { whole: &["end_turn", "stop_sequence"], cut: &["max_tokens", "model_context_window_exceeded"] };

/// The answer in the form of an adapter's result.
pub(crate) fn adapter_result(answer: &Value, request: &Request) -> Result<Map<String, Value>, Failure> {
    let blocks = answer.get("content").and_then(Value::as_array);
    let blocks = blocks.ok_or_else(|| failure_instead(answer, "content must be array"))?;
    let kind = |block: &Value| block.get("type").and_then(Value::as_str).map(str::to_owned);
    let text: String = blocks
        .iter()
        .filter(|block| kind(block).as_deref() == Some("text"))
        .filter_map(|block| block.get("text").and_then(Value::as_str))
        .collect();
    let call = blocks.iter().find(|block| kind(block).as_deref() == Some("tool_use"));
    let output = match (&request.output_schema, call.and_then(|block| block.get("input"))) {
        (Some(schema), Some(input)) => {
            let data = if tool_schema(schema).1 { input.get("value").cloned() } else { Some(input.clone()) };
            json!({"format": "json", "text": lobster_base::json::compact(&data), "data": data})
        }
        (Some(_) | None, _) => super::openai::answer_output(&text, request),
    };
    let mut result = Map::new();
    result.insert("output".into(), output);
    copy_field(answer, "id", "runId", &mut result);
    copy_field(answer, "model", "model", &mut result);
    if let Some(usage) = answer.get("usage").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        // Tokens written to or read from the provider's prompt cache were also read by the model.
        let input = count("input_tokens")
            .saturating_add(count("cache_creation_input_tokens"))
            .saturating_add(count("cache_read_input_tokens"));
        result.insert("usage".into(), json!(super::token_usage(input, count("output_tokens"))));
    }
    match answer.get("stop_reason").and_then(Value::as_str) {
        Some("refusal") => return Err(Failure::Remote("the model refuses to answer".to_owned())),
        // With a schema the tool call is the answer.
        Some("tool_use") if request.output_schema.is_some() => {}
        reason => ENDINGS.check_reason(reason, &mut result)?,
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_request(schema: Option<Value>) -> Request {
        Request { prompt: "p".into(), model: Some("m".into()), output_schema: schema, ..Request::default() }
    }

    #[test]
    fn bodies() {
        assert_eq!(
            request_body(&sample_request(None), None).unwrap(),
            json!({"model": "m", "max_tokens": 4096, "messages": [{"role": "user", "content": "p"}]})
        );
        let with = request_body(&sample_request(Some(json!({"type": "array"}))), None).unwrap();
        assert_eq!(
            with["tools"][0]["input_schema"],
            json!({"type": "object", "properties": {"value": {"type": "array"}}, "required": ["value"]})
        );
        assert_eq!(with["tool_choice"], json!({"type": "tool", "name": "answer"}));
        assert!(request_body(&Request::default(), None).is_err());
    }

    #[test]
    fn everything_that_a_request_says_is_in_the_body() {
        let full = Request {
            system: Some("be brief".into()),
            stop: vec!["END".into()],
            effort: Some("low".into()),
            files: vec![Attachment::of_bytes("a.gif", b"GIF89a".to_vec()).unwrap()],
            ..sample_request(None)
        };
        let retry = Retry { attempt: 2, errors: vec!["/ must be object".into()], said: "[]".into() };
        assert_eq!(
            request_body(&full, Some(&retry)).unwrap(),
            json!({
                "model": "m", "max_tokens": 4096, "stop_sequences": ["END"], "output_config": {"effort": "low"},
                "system": "be brief",
                "messages": [
                    {"role": "user", "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlh"}},
                        {"type": "text", "text": "p"},
                    ]},
                    {"role": "assistant", "content": "[]"},
                    {"role": "user", "content": "[The previous answer did not fit the schema: / must be object. Answer again so that it fits.]"},
                ],
            })
        );
        let seeded = Request { seed: Some(1.into()), ..sample_request(None) };
        assert!(request_body(&seeded, None).unwrap_err().message.contains("no setting for --seed"));
    }

    #[test]
    fn results() {
        let answer = json!({
            "id": "msg", "model": "m-1", "stop_reason": "tool_use",
            "content": [{"type": "text", "text": "so: "}, {"type": "tool_use", "input": {"value": [1]}}],
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 4},
        });
        let text = json!({"stop_reason": "end_turn"});
        let shown = |schema: Option<Value>| {
            let mut answer = answer.clone();
            if schema.is_none() {
                answer["stop_reason"] = text["stop_reason"].clone();
            }
            Value::Object(adapter_result(&answer, &sample_request(schema)).unwrap())
        };
        assert_eq!(
            shown(Some(json!({"type": "array"})))["output"],
            json!({"format": "json", "text": "[1]", "data": [1]})
        );
        assert_eq!(shown(Some(json!({"type": "object"})))["output"]["data"], json!({"value": [1]}));
        assert_eq!(
            shown(None),
            json!({
                "output": {"format": "text", "text": "so: "}, "runId": "msg", "model": "m-1",
                "usage": {"inputTokens": 13, "outputTokens": 4, "totalTokens": 17},
            })
        );
        let message =
            |answer: Value| adapter_result(&answer, &sample_request(None)).unwrap_err().message_for("C");
        assert_eq!(message(json!({"error": {"message": "overloaded"}})), "C remote error: overloaded");
        assert!(message(json!({})).contains("content must be array"));
    }
}
