//! Google's Gemini models (`POST /v1beta/models/MODEL:generateContent`).
//! <https://ai.google.dev/api/generate-content>

use serde_json::{Map, Value, json};

use super::channel::Failure;
use super::ending::Endings;
use super::openai::{answer_output, copy_field, failure_instead};
use super::request::{Request, Retry, set_fields};
use crate::attachment::Attachment;
use lobster_stage::StageError;

/// The path of a model below the provider's address.
pub(crate) fn model_path(request: &Request) -> Result<[String; 2], StageError> {
    let model = request.named_model("gemini")?;
    let model = model.strip_prefix("models/").unwrap_or(model);
    Ok(["models".to_owned(), format!("{model}:generateContent")])
}

/// The request's body.
pub(crate) fn request_body(request: &Request, retry: Option<&Retry>) -> Value {
    let mut contents = Vec::new();
    for turn in request.chat_turns(retry) {
        let role = if turn.is_model { "model" } else { "user" };
        let text = json!({"text": turn.text});
        let parts: Value = std::iter::once(text).chain(turn.files.into_iter().map(file_part)).collect();
        contents.push(json!({"role": role, "parts": parts}));
    }
    let schema = request.output_schema.as_ref();
    let settings: Map<String, Value> = set_fields([
        ("maxOutputTokens", json!(request.max_output_tokens)),
        ("temperature", json!(request.temperature)),
        ("seed", json!(request.seed)),
        ("stopSequences", json!(request.stop)),
        ("thinkingConfig", json!(request.effort.as_ref().map(|effort| json!({"thinkingLevel": effort})))),
        ("responseMimeType", json!(schema.map(|_| "application/json"))),
        ("responseJsonSchema", json!(schema)),
    ])
    .collect();
    let fields = set_fields([
        ("contents", json!(contents)),
        ("systemInstruction", json!(request.system.as_ref().map(|text| json!({"parts": [{"text": text}]})))),
        ("generationConfig", json!(Some(settings).filter(|settings| !settings.is_empty()))),
    ]);
    fields.collect()
}

/// A file as a part of a message.
fn file_part(file: &Attachment) -> Value {
    json!({"inlineData": {"mimeType": file.media_type, "data": file.base64()}})
}

const ENDINGS: Endings = Endings { whole: &["STOP"], cut: &["MAX_TOKENS"] };

/// The answer in the form of an adapter's result.
pub(crate) fn adapter_result(answer: &Value, request: &Request) -> Result<Map<String, Value>, Failure> {
    if let Some(reason) = answer.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
        return Err(Failure::Remote(format!("the prompt was blocked: {reason}")));
    }
    let candidate = answer.pointer("/candidates/0");
    let candidate = candidate.ok_or_else(|| failure_instead(answer, "candidates/0 is missing"))?;
    let ended = candidate.get("finishReason").and_then(Value::as_str);
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
    let text: Option<String> = parts.map(|parts| {
        let said = parts.iter().filter(|part| part.get("thought") != Some(&Value::Bool(true)));
        said.filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
    });
    if let Some(reason @ ("SAFETY" | "RECITATION" | "PROHIBITED_CONTENT" | "BLOCKLIST" | "SPII")) = ended {
        return Err(Failure::Remote(format!("the model refuses: {reason}")));
    }
    let mut result = Map::new();
    ENDINGS.check_reason(ended, &mut result)?;
    let text = match (text, ended) {
        (Some(text), _) => text,
        // Reasoning used all tokens.
        (None, Some("MAX_TOKENS")) => String::new(),
        (None, _) => return Err(Failure::Envelope("candidates/0/content/parts must be array".to_owned())),
    };
    result.insert("output".into(), answer_output(&text, request));
    copy_field(answer, "responseId", "runId", &mut result);
    copy_field(answer, "modelVersion", "model", &mut result);
    if let Some(usage) = answer.get("usageMetadata").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        // Reasoning is billed as output.
        let input = count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount"));
        let output = count("candidatesTokenCount").saturating_add(count("thoughtsTokenCount"));
        result.insert("usage".into(), json!(super::token_usage(input, output)));
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
            request_body(&sample_request(None), None),
            json!({"contents": [{"role": "user", "parts": [{"text": "p"}]}]})
        );
        let full = Request {
            system: Some("be brief".into()),
            stop: vec!["END".into()],
            seed: Some(7.into()),
            effort: Some("low".into()),
            max_output_tokens: Some(9.into()),
            files: vec![Attachment::of_bytes("a.gif", b"GIF89a".to_vec()).unwrap()],
            ..sample_request(Some(json!({"type": "array"})))
        };
        let retry = Retry { attempt: 2, errors: vec!["/ must be array".into()], said: "{}".into() };
        assert_eq!(
            request_body(&full, Some(&retry)),
            json!({
                "contents": [
                    {"role": "user", "parts": [{"text": "p"}, {"inlineData": {"mimeType": "image/gif", "data": "R0lGODlh"}}]},
                    {"role": "model", "parts": [{"text": "{}"}]},
                    {"role": "user", "parts": [{"text": "[The previous answer did not fit the schema: / must be array. Answer again so that it fits.]"}]},
                ],
                "systemInstruction": {"parts": [{"text": "be brief"}]},
                "generationConfig": {
                    "maxOutputTokens": 9, "seed": 7, "stopSequences": ["END"], "thinkingConfig": {"thinkingLevel": "low"},
                    "responseMimeType": "application/json", "responseJsonSchema": {"type": "array"},
                },
            })
        );
        assert_eq!(
            model_path(&Request { model: Some("models/x".into()), ..Request::default() }).unwrap(),
            ["models", "x:generateContent"]
        );
        assert!(model_path(&Request::default()).is_err());
    }

    #[test]
    fn results() {
        let answer = json!({
            "responseId": "r", "modelVersion": "m-1",
            "candidates": [{
                "content": {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": "[1"}, {"text": "]"}]},
                "finishReason": "MAX_TOKENS",
            }],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 5},
        });
        assert_eq!(
            Value::Object(adapter_result(&answer, &sample_request(Some(json!({})))).unwrap()),
            json!({
                "output": {"format": "json", "text": "[1]", "data": [1]}, "runId": "r", "model": "m-1",
                "usage": {"inputTokens": 3, "outputTokens": 9, "totalTokens": 12},
                "warnings": ["the answer was cut at the limit of output tokens"],
            })
        );
        let message =
            |answer: Value| adapter_result(&answer, &sample_request(None)).unwrap_err().message_for("C");
        assert_eq!(message(json!({"error": {"message": "no"}})), "C remote error: no");
        assert_eq!(
            message(json!({"promptFeedback": {"blockReason": "SAFETY"}})),
            "C remote error: the prompt was blocked: SAFETY"
        );
        assert_eq!(
            message(json!({"candidates": [{"finishReason": "SAFETY"}]})),
            "C remote error: the model refuses: SAFETY"
        );
        assert!(message(json!({"candidates": [{"finishReason": "STOP"}]})).contains("must be array"));
        let silent = json!({"candidates": [{"finishReason": "MAX_TOKENS", "content": {}}]});
        assert_eq!(adapter_result(&silent, &sample_request(None)).unwrap()["output"]["text"], "");
    }
}
