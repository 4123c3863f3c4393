//! OpenAI's responses (`POST /responses`), the successor of its chat completions.
//! <https://platform.openai.com/docs/api-reference/responses>

use serde_json::{Map, Value, json};

use super::channel::Failure;
use super::ending::Endings;
use super::openai::{answer_output, copy_field, is_strict};
use super::request::{Request, Retry, set_fields};
use crate::attachment::Attachment;
use lobster_stage::StageError;

/// The request's body. The provider stores nothing: the record is here.
pub(crate) fn request_body(request: &Request, retry: Option<&Retry>) -> Result<Value, StageError> {
    let model = request.named_model("openai-responses")?;
    request.refuse_settings("openai-responses", &["seed", "stop"])?;
    let mut input = Vec::new();
    for turn in request.chat_turns(retry) {
        let (role, kind) = if turn.is_model { ("assistant", "output_text") } else { ("user", "input_text") };
        let text = json!({"type": kind, "text": turn.text});
        let parts: Value = std::iter::once(text).chain(turn.files.into_iter().map(file_part)).collect();
        input.push(json!({"role": role, "content": parts}));
    }
    let format = request.output_schema.as_ref().map(|schema| {
        let strict = is_strict(schema);
        json!({"format": {"type": "json_schema", "name": "output", "schema": schema, "strict": strict}})
    });
    let fields = set_fields([
        ("model", json!(model)),
        ("input", json!(input)),
        ("store", json!(false)),
        ("instructions", json!(request.system)),
        ("max_output_tokens", json!(request.max_output_tokens)),
        ("temperature", json!(request.temperature)),
        ("reasoning", json!(request.effort.as_ref().map(|effort| json!({"effort": effort})))),
        ("text", json!(format)),
    ]);
    Ok(fields.collect())
}

/// A file as a part of a message.
fn file_part(file: &Attachment) -> Value {
    match file.is_image() {
        true => json!({"type": "input_image", "image_url": file.data_url()}),
        false => json!({"type": "input_file", "filename": file.name, "file_data": file.data_url()}),
    }
}

const ENDINGS: Endings = Endings { whole: &["completed"], cut: &["max_output_tokens"] };

/// The answer in the form of an adapter's result.
pub(crate) fn adapter_result(answer: &Value, request: &Request) -> Result<Map<String, Value>, Failure> {
    if let Some(message) = answer.pointer("/error/message").and_then(Value::as_str) {
        return Err(Failure::Remote(message.to_owned()));
    }
    let Some(items) = answer.get("output").and_then(Value::as_array) else {
        return Err(Failure::Envelope("output must be array".to_owned()));
    };
    let of_kind = |value: &Value, kind: &str| value.get("type").and_then(Value::as_str) == Some(kind);
    let parts = items
        .iter()
        .filter(|item| of_kind(item, "message"))
        .filter_map(|item| item.get("content").and_then(Value::as_array))
        .flatten();
    let mut text = String::new();
    for part in parts {
        if let Some(refusal) = part.get("refusal").and_then(Value::as_str) {
            return Err(Failure::Remote(format!("the model refuses: {refusal}")));
        }
        if of_kind(part, "output_text") {
            text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
        }
    }
    let mut result = Map::new();
    result.insert("output".into(), answer_output(&text, request));
    copy_field(answer, "id", "runId", &mut result);
    copy_field(answer, "model", "model", &mut result);
    if let Some(usage) = answer.get("usage").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let usage = super::token_usage(count("input_tokens"), count("output_tokens"));
        result.insert("usage".into(), json!(usage));
    }
    // An incomplete answer has the reason in its details.
    let reason = answer.pointer("/incomplete_details/reason").or_else(|| answer.get("status"));
    ENDINGS.check_reason(reason.and_then(Value::as_str), &mut result)?;
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
        let full = Request {
            system: Some("be brief".into()),
            effort: Some("low".into()),
            max_output_tokens: Some(9.into()),
            files: vec![
                Attachment::of_bytes("a.gif", b"GIF89a".to_vec()).unwrap(),
                Attachment::of_bytes("b.pdf", b"%PDF-1".to_vec()).unwrap(),
            ],
            ..sample_request(Some(json!({"type": "array"})))
        };
        let retry = Retry { attempt: 2, errors: vec!["/ must be array".into()], said: "{}".into() };
        assert_eq!(
            request_body(&full, Some(&retry)).unwrap(),
            json!({
                "model": "m", "store": false, "instructions": "be brief", "max_output_tokens": 9,
                "reasoning": {"effort": "low"},
                "input": [
                    {"role": "user", "content": [
                        {"type": "input_text", "text": "p"},
                        {"type": "input_image", "image_url": "data:image/gif;base64,R0lGODlh"},
                        {"type": "input_file", "filename": "b.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"},
                    ]},
                    {"role": "assistant", "content": [{"type": "output_text", "text": "{}"}]},
                    {"role": "user", "content": [{"type": "input_text", "text": "[The previous answer did not fit the schema: / must be array. Answer again so that it fits.]"}]},
                ],
                "text": {"format": {"type": "json_schema", "name": "output", "schema": {"type": "array"}, "strict": false}},
            })
        );
        let stopped = Request { stop: vec!["x".into()], ..sample_request(None) };
        assert!(request_body(&stopped, None).unwrap_err().message.contains("no setting for --stop"));
        assert!(request_body(&Request::default(), None).is_err());
    }

    #[test]
    fn results() {
        let answer = json!({
            "id": "resp", "model": "m-1", "error": null, "incomplete_details": {"reason": "max_output_tokens"},
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "message", "content": [{"type": "output_text", "text": "[1"}, {"type": "output_text", "text": "]"}]},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        });
        assert_eq!(
            Value::Object(adapter_result(&answer, &sample_request(Some(json!({})))).unwrap()),
            json!({
                "output": {"format": "json", "text": "[1]", "data": [1]}, "runId": "resp", "model": "m-1",
                "usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7},
                "warnings": ["the answer was cut at the limit of output tokens"],
            })
        );
        let message =
            |answer: Value| adapter_result(&answer, &sample_request(None)).unwrap_err().message_for("C");
        assert_eq!(message(json!({"error": {"message": "no"}})), "C remote error: no");
        assert!(message(json!({})).contains("output must be array"));
        let refusal =
            json!({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "never"}]}]});
        assert_eq!(message(refusal), "C remote error: the model refuses: never");
        let filtered = json!({"output": [], "incomplete_details": {"reason": "content_filter"}});
        assert_eq!(
            message(filtered),
            "C remote error: the answer is not whole: it ended with \"content_filter\""
        );
    }
}
