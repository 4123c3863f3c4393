//! Failures that a provider reports within an answer or in the middle of its stream, after the HTTP
//! status was sent.

use serde_json::Value;

use super::channel::Failure;
use crate::http::CompleteReply;
use lobster_base::json;

/// The providers' words for HTTP statuses.
const STATUSES: [(u16, &[&str]); 9] = [
    (400, &["invalid_request_error", "invalid_prompt", "bad_request", "BadRequestError", "INVALID_ARGUMENT"]),
    (401, &["authentication_error", "invalid_api_key", "UNAUTHENTICATED"]),
    (403, &["permission_error", "PERMISSION_DENIED"]),
    (404, &["not_found_error", "model_not_found", "NOT_FOUND"]),
    (413, &["request_too_large"]),
    (429, &["rate_limit_error", "rate_limit_exceeded", "insufficient_quota", "RESOURCE_EXHAUSTED"]),
    (503, &["UNAVAILABLE", "service_unavailable"]),
    (504, &["timeout_error", "DEADLINE_EXCEEDED", "vector_store_timeout"]),
    (529, &["overloaded_error"]),
];

/// Words for a fault of the provider itself.
const FAULTS: [&str; 4] = ["api_error", "server_error", "internal_server_error", "INTERNAL"];

/// The failure in an answer, if it names one by a status or by a word for a status.
pub(crate) fn find_failure(answer: &Value) -> Option<Failure> {
    let error = answer.get("error").filter(|error| error.is_object())?;
    let words: Vec<String> = ["code", "type", "status"]
        .iter()
        .filter_map(|name| error.get(*name))
        .filter(|word| word.is_string() || word.is_number())
        .map(json::js_string)
        .collect();
    let status = words.iter().find_map(|word| status_of(word))?;
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    // The word next to the number is more precise than the number's own phrase.
    let word = words.iter().find(|word| word.parse::<u16>().is_err()).map(String::as_str).unwrap_or_default();
    Some(Failure::Reported(CompleteReply::from_words(status, word, message)))
}

fn status_of(word: &str) -> Option<u16> {
    if let Ok(number) = word.parse::<u16>() {
        return (400..600).contains(&number).then_some(number);
    }
    let known = STATUSES.iter().find(|(_, words)| words.contains(&word)).map(|(status, _)| *status);
    known.or_else(|| FAULTS.contains(&word).then_some(500))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failures_within_answers_have_the_status_that_they_have_elsewhere() {
        for (error, message) in [
            (
                json!({"type": "overloaded_error", "message": "Overloaded"}),
                Some("529 overloaded_error: Overloaded"),
            ),
            (json!({"code": 503, "status": "UNAVAILABLE", "message": "busy"}), Some("503 UNAVAILABLE: busy")),
            (json!({"code": "server_error", "message": "sorry"}), Some("500 server_error: sorry")),
            (json!({"code": "429", "message": "later"}), Some("429 : later")),
            (json!({"code": 7, "message": "?"}), None),
            (json!({"message": "denied"}), None),
            (json!("denied"), None),
        ] {
            let failure = find_failure(&json!({"error": error}));
            let expected = message.map(|message| format!("C request failed: {message}"));
            assert_eq!(failure.map(|failure| failure.message_for("C")), expected, "{error}");
        }
        assert!(find_failure(&json!({"error": null})).is_none() && find_failure(&json!([])).is_none());
    }
}
