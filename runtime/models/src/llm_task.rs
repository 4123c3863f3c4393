//! OpenClaw's `llm-task` tool with its own field names.
//!
//! The incumbent's `llm.invoke` sends an adapter's fields (`artifacts`, `outputSchema`, `maxOutputTokens`), which
//! gateways accepted until the tool refused unknown fields. A gateway that refuses them is sent the tool's own names
//! (`input`, `schema`, `maxTokens`), and no other names for as long as this process lives.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex};

use serde_json::{Map, Value, json};

use crate::http::{CompleteReply, Url};
use crate::request::{Request, Retry};
use lobster_base::sync::lock;
use lobster_stage::StageError;

/// Fields that the tool does not have.
const OLD_NAMES: [&str; 6] =
    ["artifacts", "artifacthashes", "outputschema", "maxoutputtokens", "schemaversion", "retrycontext"];

/// Phrases that refuse a field.
const REFUSALS: [&str; 6] =
    ["additional propert", "unexpected", "unknown", "unrecognized", "not allowed", "unsupported"];

/// The gateways that have refused the old names.
static REFUSED_BY: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

/// True if this gateway has refused the old names before.
pub(crate) fn wants_own_names(gateway: &Url) -> bool {
    lock(&REFUSED_BY).contains(&gateway.origin().ascii_serialization())
}

/// Notes that this gateway refuses the old names.
pub(crate) fn note_refusal(gateway: &Url) {
    lock(&REFUSED_BY).insert(gateway.origin().ascii_serialization());
}

/// True if the gateway refused the field names before any model was called. Its messages about a model's
/// answer that does not fit a schema are similar, so the message must name a field that was sent.
pub(crate) fn is_refusal_of_names(reply: &CompleteReply) -> bool {
    if !matches!(reply.status, 400 | 422) {
        return false;
    }
    let Ok(body) = reply.body_json() else { return false };
    let message = body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let is_of_model = message.contains("llm json") || message.contains("llm returned");
    let mut words = message.split(|c: char| !c.is_ascii_alphanumeric());
    body["ok"] == false
        && !is_of_model
        && REFUSALS.iter().any(|refusal| message.contains(refusal))
        && words.any(|word| OLD_NAMES.contains(&word))
}

/// The arguments of the tool.
///
/// # Errors
/// The request has a setting that the tool has no field for.
pub(crate) fn tool_arguments(request: &Request, retry: Option<&Retry>) -> Result<Value, StageError> {
    request.refuse_settings("openclaw", &["system", "files", "stop", "seed"])?;
    let mut prompt = request.prompt.clone();
    if let Some(retry) = retry {
        prompt.push_str("\n\n");
        prompt.push_str(&retry.correction_text());
    }
    let input = match &request.metadata {
        Some(metadata) => Some(json!({"artifacts": request.artifacts, "metadata": metadata})),
        None => (!request.artifacts.is_empty()).then(|| json!(request.artifacts)),
    };
    let fields = [
        ("prompt", Some(json!(prompt))),
        ("input", input),
        ("schema", request.output_schema.clone()),
        ("model", request.model.as_ref().map(|model| json!(model))),
        ("thinking", request.effort.as_ref().map(|effort| json!(effort))),
        ("temperature", request.temperature.clone().map(Value::Number)),
        ("maxTokens", request.max_output_tokens.clone().map(Value::Number)),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(fields.collect::<Map<_, _>>()))
}

/// Converts the result of the tool to an adapter's result; returns any other result unchanged.
pub(crate) fn as_of_adapter(result: Map<String, Value>) -> Map<String, Value> {
    let Some(details) = result.get("details").filter(|_| !result.contains_key("output")) else {
        return result;
    };
    let Some(data) = details.get("json") else { return result };
    let text = result.get("content").and_then(|content| content.pointer("/0/text")?.as_str());
    let output = json!({"text": text.unwrap_or_default(), "data": data, "format": "json"});
    let mut made = Map::from_iter([("output".to_owned(), output)]);
    made.extend(
        details.get("model").filter(|model| model.is_string()).map(|m| ("model".to_owned(), m.clone())),
    );
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refusal(status: u16, message: &str) -> bool {
        let body = json!({"ok": false, "error": {"type": "tool_error", "message": message}}).to_string();
        is_refusal_of_names(&CompleteReply::from_words(status, "", &body))
    }

    #[test]
    fn only_a_definite_refusal_of_names_is_one() {
        for message in [
            "Validation failed for tool \"llm-task\":\n  - artifacts: must not have additional properties",
            "must NOT have additional properties: artifactHashes",
            "Unrecognized key(s) in object: 'outputSchema', 'schemaVersion'",
            "unknown field `maxOutputTokens`",
        ] {
            assert!(is_refusal(400, message) && is_refusal(422, message), "{message}");
            assert!(!is_refusal(500, message) && !is_refusal(200, message), "{message}");
        }
        for message in [
            "LLM JSON did not match schema: <root> must NOT have additional properties (metadata)",
            "LLM returned invalid JSON: unexpected token in metadata",
            "must NOT have additional properties",
            "Model not allowed by llm-task plugin config: a/b",
            "prompt required",
        ] {
            assert!(!is_refusal(400, message), "{message}");
        }
        assert!(!is_refusal_of_names(&CompleteReply::from_words(400, "", "unknown field artifacts")));
    }

    #[test]
    fn every_setting_has_a_field_or_is_refused() {
        let request = Request {
            prompt: "p".into(),
            model: Some("m".into()),
            artifacts: vec![json!({"kind": "text", "text": "a"})],
            output_schema: Some(json!({"type": "object"})),
            max_output_tokens: crate::request::json_number(9.0),
            effort: Some("low".into()),
            ..Request::default()
        };
        assert_eq!(
            tool_arguments(&request, None).unwrap(),
            json!({
                "prompt": "p", "input": [{"kind": "text", "text": "a"}], "schema": {"type": "object"},
                "model": "m", "thinking": "low", "maxTokens": 9,
            })
        );
        let with = Request { metadata: Some(json!({"a": 1})), ..request.clone() };
        assert_eq!(tool_arguments(&with, None).unwrap()["input"]["metadata"], json!({"a": 1}));
        let with = Request { system: Some("s".into()), ..request };
        assert!(tool_arguments(&with, None).is_err());
    }

    #[test]
    fn the_tools_own_result_becomes_that_of_an_adapter() {
        let made = |value: Value| Value::Object(as_of_adapter(value.as_object().unwrap().clone()));
        assert_eq!(
            made(json!({
                "content": [{"type": "text", "text": "{\"n\":1}"}],
                "details": {"json": {"n": 1}, "provider": "a", "model": "m"},
            })),
            json!({"output": {"text": "{\"n\":1}", "data": {"n": 1}, "format": "json"}, "model": "m"})
        );
        let other = json!({"output": {"text": "t"}, "details": {"json": 1}});
        assert_eq!(made(other.clone()), other);
    }
}
