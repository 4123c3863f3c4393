//! OpenAI's chat completions (`POST /chat/completions`), the form that most model servers offer.

use serde_json::{Map, Value, json};

use super::channel::Failure;
use super::ending::Endings;
use super::request::{Request, Retry, set_fields};
use crate::attachment::Attachment;
use lobster_base::json;
use lobster_stage::StageError;

/// The request's body. `max_tokens` is the name of the field that limits the answer.
pub(crate) fn request_body(
    request: &Request,
    retry: Option<&Retry>,
    max_tokens: &str,
) -> Result<Value, StageError> {
    let model = request.named_model("openai")?;
    let system = request.system.iter().map(|system| json!({"role": "system", "content": system}));
    let turns = request.chat_messages(retry, |text, files| {
        std::iter::once(text).chain(files.into_iter().map(file_part)).collect()
    });
    let format = request.output_schema.as_ref().map(|schema| {
        let format = json!({"name": "output", "schema": schema, "strict": is_strict(schema)});
        json!({"type": "json_schema", "json_schema": format})
    });
    let fields = set_fields([
        ("model", json!(model)),
        ("messages", system.chain(turns).collect()),
        (max_tokens, json!(request.max_output_tokens)),
        ("temperature", json!(request.temperature)),
        ("seed", json!(request.seed)),
        ("stop", json!(request.stop)),
        ("reasoning_effort", json!(request.effort)),
        ("response_format", json!(format)),
    ]);
    Ok(fields.collect())
}

/// A file as a part of a message.
fn file_part(file: &Attachment) -> Value {
    match file.is_image() {
        true => json!({"type": "image_url", "image_url": {"url": file.data_url()}}),
        false => json!({"type": "file", "file": {"filename": file.name, "file_data": file.data_url()}}),
    }
}

/// True if "strict" decoding accepts the schema: closed objects with all their properties required, and
/// an object at the top.
pub(crate) fn is_strict(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object") && is_closed(schema)
}

fn is_closed(schema: &Value) -> bool {
    const KNOWN: [&str; 7] =
        ["type", "properties", "required", "additionalProperties", "items", "enum", "description"];
    let Some(map) = schema.as_object().filter(|map| map.keys().all(|key| KNOWN.contains(&key.as_str())))
    else {
        return false;
    };
    let closed = match map.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            let required = map.get("required").and_then(Value::as_array);
            map.get("additionalProperties") == Some(&Value::Bool(false))
                && properties.keys().all(|key| required.is_some_and(|names| names.contains(&json!(key))))
                && properties.values().all(is_closed)
        }
        None => map.get("type").and_then(Value::as_str) != Some("object"),
    };
    closed && map.get("items").is_none_or(is_closed)
}

/// Servers with this form also report the end reasons of their own models.
const ENDINGS: Endings = Endings {
    whole: &["stop", "eos", "eos_token", "end_turn", "stop_sequence"],
    cut: &["length", "max_tokens", "model_length"],
};

/// The answer in the form of an adapter's result.
pub(crate) fn adapter_result(answer: &Value, request: &Request) -> Result<Map<String, Value>, Failure> {
    let choice = answer.pointer("/choices/0");
    let choice = choice.ok_or_else(|| failure_instead(answer, "choices/0 is missing"))?;
    if let Some(refusal) = choice.pointer("/message/refusal").and_then(Value::as_str) {
        return Err(Failure::Remote(format!("the model refuses: {refusal}")));
    }
    let mut result = Map::new();
    ENDINGS.check_reason(choice.get("finish_reason").and_then(Value::as_str), &mut result)?;
    let Some(text) = choice.pointer("/message/content").and_then(Value::as_str) else {
        return Err(Failure::Envelope("choices/0/message/content must be string".to_owned()));
    };
    result.insert("output".into(), answer_output(text, request));
    copy_field(answer, "id", "runId", &mut result);
    copy_field(answer, "model", "model", &mut result);
    if let Some(usage) = answer.get("usage").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        let (input, output) = (count("prompt_tokens").unwrap_or(0), count("completion_tokens").unwrap_or(0));
        let total = count("total_tokens").unwrap_or_else(|| input.saturating_add(output));
        let usage = json!({"inputTokens": input, "outputTokens": output, "totalTokens": total});
        result.insert("usage".into(), usage);
    }
    Ok(result)
}

/// The failure that an answer tells in place of a result, or `lack`.
pub(super) fn failure_instead(answer: &Value, lack: &str) -> Failure {
    match answer.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => Failure::Remote(message.to_owned()),
        None => Failure::Envelope(lack.to_owned()),
    }
}

/// The text of a model; with a schema, also its JSON if it is valid.
pub(super) fn answer_output(text: &str, request: &Request) -> Value {
    match request.output_schema.as_ref().and_then(|_| find_json(text)) {
        Some(data) => json!({"format": "json", "text": text, "data": data}),
        None => json!({"format": "text", "text": text}),
    }
}

/// The JSON in a text: the whole text, or its only fenced block, which models write if they are not told
/// to write JSON alone.
fn find_json(text: &str) -> Option<Value> {
    const FENCE: &str = "```";
    let fenced = || {
        let parts: Vec<&str> = text.split(FENCE).collect();
        let [_, block, _] = parts.as_slice() else { return None };
        // The first line names the language.
        let (_, block) = block.split_once('\n')?;
        json::parse(block.trim()).ok()
    };
    json::parse(text.trim()).ok().or_else(fenced)
}

/// Copies a field with text.
pub(super) fn copy_field(from: &Value, name: &str, to: &str, result: &mut Map<String, Value>) {
    if let Some(value) = from.get(name).filter(|value| value.is_string()) {
        result.insert(to.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_request(schema: Option<Value>) -> Request {
        Request {
            prompt: "p".into(),
            model: Some("m".into()),
            output_schema: schema,
            max_output_tokens: Some(5.into()),
            ..Request::default()
        }
    }

    #[test]
    fn bodies() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
        assert_eq!(
            request_body(
                &sample_request(Some(schema.clone())),
                Some(&Retry { attempt: 2, errors: vec!["/n must be integer".into()], said: String::new() }),
                "max_tokens"
            )
            .unwrap(),
            json!({
                "model": "m",
                "messages": [{"role": "user", "content": "p\n\n[The previous answer did not fit the schema: /n must be integer. Answer again so that it fits.]"}],
                "max_tokens": 5,
                "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": true}},
            })
        );
        assert!(request_body(&Request::default(), None, "max_tokens").is_err());
    }

    #[test]
    fn everything_that_a_request_says_is_in_the_body() {
        let file = |name: &str, bytes: &[u8]| Attachment::of_bytes(name, bytes.to_vec()).unwrap();
        let full = Request {
            system: Some("be brief".into()),
            stop: vec!["END".into()],
            seed: Some(7.into()),
            effort: Some("low".into()),
            files: vec![file("a.gif", b"GIF89a"), file("b.pdf", b"%PDF-1"), file("c.txt", b"see")],
            ..sample_request(None)
        };
        let retry = Retry { attempt: 2, errors: vec!["/ must be object".into()], said: "[]".into() };
        assert_eq!(
            request_body(&full, Some(&retry), "max_completion_tokens").unwrap(),
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": [
                        {"type": "text", "text": "p\n\n[file c.txt]\nsee"},
                        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}},
                        {"type": "file", "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}},
                    ]},
                    {"role": "assistant", "content": "[]"},
                    {"role": "user", "content": "[The previous answer did not fit the schema: / must be object. Answer again so that it fits.]"},
                ],
                "max_completion_tokens": 5, "seed": 7, "stop": ["END"], "reasoning_effort": "low",
            })
        );
    }

    #[test]
    fn strictness() {
        for (schema, strict) in [
            (json!({"type": "object", "properties": {}, "additionalProperties": false}), true),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
                false,
            ),
            (json!({"type": "object", "properties": {}}), false),
            (json!({"type": "object"}), false),
            (json!({"type": "array", "items": {"type": "string"}}), false),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}, "required": ["a"], "additionalProperties": false}),
                false,
            ),
            (
                json!({"type": "object", "properties": {"a": {"minLength": 1}}, "required": ["a"], "additionalProperties": false}),
                false,
            ),
        ] {
            assert_eq!(is_strict(&schema), strict, "{schema}");
        }
    }

    #[test]
    fn json_is_found_in_the_one_fence() {
        for (text, found) in [
            (" [1] ", Some(json!([1]))),
            ("Sure:\n```json\n{\"a\": \"`\"}\n```\n", Some(json!({"a": "`"}))),
            ("```\n5\n```", Some(json!(5))),
            ("```json\n{\n```", None),
            ("```\n1\n```\nor\n```\n2\n```", None),
            ("```json\n{\"a\": 1}", None),
            ("```{}```", None),
            ("{} {}", None),
        ] {
            assert_eq!(find_json(text), found, "{text}");
        }
    }

    #[test]
    fn results() {
        let answer = json!({
            "id": "c1", "model": "m-1",
            "choices": [{"message": {"content": " {\"n\":1} "}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        });
        assert_eq!(
            Value::Object(adapter_result(&answer, &sample_request(Some(json!({})))).unwrap()),
            json!({
                "output": {"format": "json", "text": " {\"n\":1} ", "data": {"n": 1}},
                "runId": "c1", "model": "m-1",
                "usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7},
                "warnings": ["the answer was cut at the limit of output tokens"],
            })
        );
        let message =
            |answer: Value| adapter_result(&answer, &sample_request(None)).unwrap_err().message_for("C");
        assert_eq!(message(json!({"error": {"message": "no"}})), "C remote error: no");
        assert_eq!(message(json!([])), "C received invalid response envelope (choices/0 is missing)");
        assert_eq!(
            message(json!({"choices": [{"message": {"refusal": "never"}}]})),
            "C remote error: the model refuses: never"
        );
        assert!(message(json!({"choices": [{"message": {"content": null}}]})).contains("must be string"));
    }
}
