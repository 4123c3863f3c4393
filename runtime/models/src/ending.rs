//! Reasons for the end of an answer. Only a known normal end makes an answer whole: an unknown reason may
//! be a filter or a fault.

use serde_json::{Map, Value, json};

use super::CUT_SHORT;
use super::channel::Failure;

/// The reasons of one provider.
pub(crate) struct Endings {
    /// The model finished its answer.
    pub(crate) whole: &'static [&'static str],
    /// A limit of tokens ended the answer.
    pub(crate) cut: &'static [&'static str],
}

impl Endings {
    /// Adds a warning to `result` if the answer was cut. Some servers give no reason.
    ///
    /// # Errors
    /// The answer was withheld, or its end is not known to be a normal one.
    pub(crate) fn check_reason(
        &self,
        reason: Option<&str>,
        result: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        match reason {
            None => {}
            Some(reason) if self.whole.contains(&reason) => {}
            Some(reason) if self.cut.contains(&reason) => {
                result.insert("warnings".into(), json!([CUT_SHORT]));
            }
            Some(reason) => {
                return Err(Failure::Remote(format!("the answer is not whole: it ended with {reason:?}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::{anthropic, gemini, openai, responses};

    /// Judgement of an answer.
    #[derive(Debug, PartialEq)]
    enum Counts {
        Whole,
        Cut,
        Failed,
    }

    fn sample_request(schema: bool) -> Request {
        let output_schema = schema.then(|| json!({"type": "object"}));
        Request { prompt: "p".into(), model: Some("m".into()), output_schema, ..Request::default() }
    }

    fn judge_result(result: &Result<Map<String, Value>, Failure>) -> Counts {
        match result {
            Err(Failure::Remote(_)) => Counts::Failed,
            Err(other) => panic!("{other:?}"),
            Ok(result) if result.contains_key("warnings") => Counts::Cut,
            Ok(_) => Counts::Whole,
        }
    }

    /// Every documented reason of the providers, and an unknown one.
    #[test]
    fn only_normal_ends_are_whole() {
        let by_chat = |reason: &str| {
            let choice = json!({"message": {"content": "{}"}, "finish_reason": reason});
            openai::adapter_result(&json!({"choices": [choice]}), &sample_request(false))
        };
        let by_messages = |reason: &str, schema: bool| {
            let content = json!([{"type": "text", "text": "{}"}, {"type": "tool_use", "input": {}}]);
            anthropic::adapter_result(
                &json!({"content": content, "stop_reason": reason}),
                &sample_request(schema),
            )
        };
        let by_gemini = |reason: &str| {
            let candidate = json!({"content": {"parts": [{"text": "{}"}]}, "finishReason": reason});
            gemini::adapter_result(&json!({"candidates": [candidate]}), &sample_request(false))
        };
        let by_response = |reason: &str| {
            let part = json!({"type": "output_text", "text": "{}"});
            let output = json!([{"type": "message", "content": [part]}]);
            let answer = match ["completed", "failed", "cancelled", "queued", "in_progress"].contains(&reason)
            {
                true => json!({"output": output, "status": reason, "incomplete_details": null}),
                false => {
                    json!({"output": output, "status": "incomplete", "incomplete_details": {"reason": reason}})
                }
            };
            responses::adapter_result(&answer, &sample_request(false))
        };
        for reason in ["stop", "eos"] {
            assert_eq!(judge_result(&by_chat(reason)), Counts::Whole, "{reason}");
        }
        assert_eq!(judge_result(&by_chat("length")), Counts::Cut);
        for reason in ["content_filter", "tool_calls", "function_call", "insufficient_system_resource", "new"]
        {
            assert_eq!(judge_result(&by_chat(reason)), Counts::Failed, "{reason}");
        }
        for reason in ["end_turn", "stop_sequence"] {
            assert_eq!(judge_result(&by_messages(reason, false)), Counts::Whole, "{reason}");
        }
        assert_eq!(judge_result(&by_messages("tool_use", true)), Counts::Whole);
        for reason in ["max_tokens", "model_context_window_exceeded"] {
            assert_eq!(judge_result(&by_messages(reason, true)), Counts::Cut, "{reason}");
        }
        for reason in ["tool_use", "pause_turn", "refusal", "new"] {
            assert_eq!(judge_result(&by_messages(reason, false)), Counts::Failed, "{reason}");
        }
        assert_eq!(judge_result(&by_gemini("STOP")), Counts::Whole);
        assert_eq!(judge_result(&by_gemini("MAX_TOKENS")), Counts::Cut);
        for reason in [
            "FINISH_REASON_UNSPECIFIED",
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "OTHER",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MALFORMED_FUNCTION_CALL",
            "IMAGE_SAFETY",
            "UNEXPECTED_TOOL_CALL",
            "NEW",
        ] {
            assert_eq!(judge_result(&by_gemini(reason)), Counts::Failed, "{reason}");
        }
        assert_eq!(judge_result(&by_response("completed")), Counts::Whole);
        assert_eq!(judge_result(&by_response("max_output_tokens")), Counts::Cut);
        for reason in ["content_filter", "failed", "cancelled", "queued", "in_progress", "new"] {
            assert_eq!(judge_result(&by_response(reason)), Counts::Failed, "{reason}");
        }
    }
}
