//! Answers of adapters: `{ok, result}` around the result of a model.

use serde_json::{Map, Value};

use super::channel::Failure;
use super::llm_task;
use lobster_base::json;

/// Unpacks the answer of a `pi` or `http` adapter.
pub(crate) fn of_adapter(answer: Value) -> Result<Map<String, Value>, Failure> {
    match answer {
        Value::Object(map) if map.contains_key("ok") => unpack_envelope(map),
        other => check_result(Some(other)),
    }
}

/// Unpacks the answer of an adapter that is a function of the program which started lobster.
pub(crate) fn of_function(answer: Value) -> Result<Map<String, Value>, Failure> {
    match answer {
        Value::Object(map) => unpack_envelope(map),
        _ => Err(Failure::Envelope("it must be object".to_owned())),
    }
}

/// Unpacks the answer of an OpenClaw gateway, which may contain an adapter's answer.
pub(crate) fn of_gateway(answer: Value) -> Result<Map<String, Value>, Failure> {
    match answer {
        Value::Object(mut map) if map.contains_key("ok") => {
            if map.get("ok") != Some(&Value::Bool(true)) {
                let message = error_message(&map).unwrap_or_else(|| "Unknown error".to_owned());
                return Err(Failure::Request(format!("openclaw adapter error: {message}")));
            }
            match map.remove("result") {
                Some(Value::Object(inner)) if inner.contains_key("ok") => unpack_envelope(inner),
                inner => check_result(inner),
            }
        }
        other => check_result(Some(other)),
    }
}

fn unpack_envelope(mut map: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    match map.get("ok") {
        Some(Value::Bool(true)) => check_result(map.remove("result")),
        Some(Value::Bool(false)) => Err(Failure::Remote(
            error_message(&map).unwrap_or_else(|| "llm adapter returned an error".to_owned()),
        )),
        _ => Err(Failure::Envelope("ok must be boolean".to_owned())),
    }
}

fn error_message(map: &Map<String, Value>) -> Option<String> {
    map.get("error")?.get("message").map(json::js_string).filter(|text| !text.is_empty())
}

/// Checks a result. It may be missing; if present, it must have an output.
fn check_result(value: Option<Value>) -> Result<Map<String, Value>, Failure> {
    let map = match value {
        None => return Ok(Map::new()),
        Some(Value::Object(map)) => llm_task::as_of_adapter(map),
        Some(_) => return Err(Failure::Envelope("result must be object".to_owned())),
    };
    let wrong = |place: &str, kind: &str| Failure::Envelope(format!("result/{place} must be {kind}"));
    let Some(Value::Object(output)) = map.get("output") else { return Err(wrong("output", "object")) };
    type Fits = fn(&Value) -> bool;
    let check = |of: &Map<String, Value>, place: &str, names: &[&str], fits: Fits, kind: &str| {
        let unfit = |name: &&&str| of.get(**name).is_some_and(|value| !fits(value));
        names.iter().find(unfit).map_or(Ok(()), |name| Err(wrong(&format!("{place}{name}"), kind)))
    };
    check(output, "output/", &["text", "format"], Value::is_string, "string")?;
    check(&map, "", &["runId", "model", "prompt", "status"], Value::is_string, "string")?;
    check(&map, "", &["usage", "metadata", "diagnostics"], Value::is_object, "object")?;
    if let Some(Value::Object(usage)) = map.get("usage") {
        let counts = ["inputTokens", "outputTokens", "totalTokens"];
        check(usage, "usage/", &counts, Value::is_number, "number")?;
    }
    match map.get("warnings") {
        None => {}
        Some(Value::Array(lines)) if lines.iter().all(Value::is_string) => {}
        Some(_) => return Err(wrong("warnings", "an array of strings")),
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text_of(result: Result<Map<String, Value>, Failure>) -> String {
        match result {
            Ok(map) => Value::Object(map).to_string(),
            Err(failure) => failure.message_for("C"),
        }
    }

    #[test]
    fn adapters() {
        for (answer, expected) in [
            (json!({"ok": true, "result": {"output": {"text": "t"}}}), r#"{"output":{"text":"t"}}"#),
            (json!({"output": {}, "extra": null}), r#"{"output":{},"extra":null}"#),
            (json!({"ok": true}), "{}"),
            (json!({"ok": false, "error": {"message": "quota"}}), "C remote error: quota"),
            (json!({"ok": false}), "C remote error: llm adapter returned an error"),
            (json!({"ok": "yes"}), "C received invalid response envelope (ok must be boolean)"),
            (
                json!({"ok": true, "result": null}),
                "C received invalid response envelope (result must be object)",
            ),
            (json!([1]), "C received invalid response envelope (result must be object)"),
            (json!({"text": "x"}), "C received invalid response envelope (result/output must be object)"),
        ] {
            assert_eq!(text_of(of_adapter(answer.clone())), expected, "{answer}");
        }
    }

    #[test]
    fn gateways() {
        for (answer, expected) in [
            (json!({"ok": true, "result": {"output": {}}}), r#"{"output":{}}"#),
            (
                json!({"ok": true, "result": {"ok": true, "result": {"output": {"data": 1}}}}),
                r#"{"output":{"data":1}}"#,
            ),
            (
                json!({"ok": true, "result": {"ok": false, "error": {"message": "inner denied"}}}),
                "C remote error: inner denied",
            ),
            (
                json!({"ok": false, "error": {"message": "denied"}}),
                "C request failed: openclaw adapter error: denied",
            ),
            (json!({"ok": 1}), "C request failed: openclaw adapter error: Unknown error"),
            (json!({"output": {}}), r#"{"output":{}}"#),
        ] {
            assert_eq!(text_of(of_gateway(answer.clone())), expected, "{answer}");
        }
    }

    #[test]
    fn types_are_checked() {
        for (extra, place) in [
            (json!({"output": {"text": null}}), "output/text"),
            (json!({"output": {"format": 1}}), "output/format"),
            (json!({"model": null}), "model"),
            (json!({"usage": []}), "usage"),
            (json!({"usage": {"inputTokens": "3"}}), "usage/inputTokens"),
            (json!({"warnings": ["a", 1]}), "warnings"),
            (json!({"diagnostics": "x"}), "diagnostics"),
        ] {
            let mut answer = json!({"output": {}});
            for (name, value) in extra.as_object().unwrap() {
                answer[name] = value.clone();
            }
            assert!(text_of(of_adapter(answer)).contains(&format!("(result/{place} must be")), "{place}");
        }
    }
}
